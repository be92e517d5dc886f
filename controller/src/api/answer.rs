//! Answers in the form that the client asked for: objects, Tables, metadata only; pages of lists; warnings.

use super::ApiState;
use super::error::ApiError;
use super::request::{Form, IncludeObject, Parameters, form, not_acceptable};
use super::table::{Rows, partial, table};
use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ha_api_types::record::Revision;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The most `Warning:` headers of one answer.
const MAX_WARNINGS: usize = 20;
/// The longest text of one.
const MAX_WARNING_LENGTH: usize = 500;

/// The form of an answer, and what its tables show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    form: Form,
    include: IncludeObject,
    rows: Rows,
}

impl Shape {
    /// As the request asks for it.
    pub(crate) fn of(headers: &HeaderMap, parameters: &Parameters, rows: Rows) -> Result<Shape, ApiError> {
        let form =
            form(headers, &[Form::Plain, Form::Table, Form::PartialMetadata]).ok_or_else(not_acceptable)?;
        Ok(Shape { form, include: parameters.include_object, rows })
    }

    /// One object, as a watch sends it too.
    pub(crate) fn object(self, object: Value, now_seconds: i64) -> Value {
        match self.form {
            Form::Plain | Form::Discovery => object,
            Form::PartialMetadata => partial(&object),
            Form::Table => {
                let version =
                    object.pointer("/metadata/resourceVersion").cloned().unwrap_or_else(|| json!(""));
                let metadata = json!({"resourceVersion": version});
                table(self.rows, &[object], &metadata, self.include, now_seconds)
            }
        }
    }
}

/// An answer with one object.
pub(crate) fn one<S>(
    state: &ApiState<S>,
    shape: Shape,
    object: Value,
    code: StatusCode,
    warnings: &[String],
) -> Response {
    let mut response = (code, Json(shape.object(object, state.now_seconds()))).into_response();
    for text in warnings.iter().take(MAX_WARNINGS) {
        response.headers_mut().append(HeaderName::from_static("warning"), warning(text));
    }
    response
}

/// RFC 7234: code, agent, quoted text; what a header cannot carry is replaced.
fn warning(text: &str) -> HeaderValue {
    let clean: String = text
        .replace('→', "->")
        .chars()
        .take(MAX_WARNING_LENGTH)
        .map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' })
        .collect();
    let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("299 - \"{quoted}\""))
        .unwrap_or_else(|_| HeaderValue::from_static("299 - \"a warning that cannot be shown\""))
}

/// A part of a list.
pub(crate) struct Page {
    items: Vec<Value>,
    metadata: Value,
}

/// Where the next page begins.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    /// The first page's revision: a watch from there misses nothing on any page.
    revision: Revision,
    /// The last name of the page before.
    after: String,
}

/// The page of a list, sorted by key, that the parameters ask for.
pub(crate) fn page(
    items: Vec<(String, Value)>,
    revision: Revision,
    parameters: &Parameters,
) -> Result<Page, ApiError> {
    let token = parameters
        .continue_token
        .as_ref()
        .map(|text| {
            serde_json::from_str::<Token>(text)
                .map_err(|_| ApiError::bad_request("continue: must be what an earlier list answered"))
        })
        .transpose()?;
    let revision = token.as_ref().map_or(revision, |token| token.revision);
    let mut rest: Vec<(String, Value)> =
        items.into_iter().filter(|(key, _)| token.as_ref().is_none_or(|token| *key > token.after)).collect();
    let limit = parameters.limit.unwrap_or(usize::MAX);
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if rest.len() > limit {
        let remaining = rest.len() - limit;
        rest.truncate(limit);
        if let Some((after, _)) = rest.last() {
            let token = Token { revision, after: after.clone() };
            let text =
                serde_json::to_string(&token).map_err(|error| ApiError::internal(error.to_string()))?;
            metadata["continue"] = json!(text);
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    Ok(Page { items: rest.into_iter().map(|(_, object)| object).collect(), metadata })
}

/// An answer with a list.
pub(crate) fn list<S>(
    state: &ApiState<S>,
    shape: Shape,
    kind: &str,
    api_version: &str,
    page: Page,
) -> Response {
    let Page { items, metadata } = page;
    let body = match shape.form {
        Form::Table => table(shape.rows, &items, &metadata, shape.include, state.now_seconds()),
        Form::PartialMetadata => json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": items.iter().map(partial).collect::<Vec<_>>(),
        }),
        Form::Plain | Form::Discovery => {
            json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items})
        }
    };
    Json(body).into_response()
}
