//! Responses in the form that the client requests: objects, Tables or metadata only, pages of lists, and warnings.

use super::ApiState;
use super::error::ApiError;
use super::request::{Form, Parameters, form, not_acceptable};
use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ha_api_types::id::Revision;
use ha_api_types::table::{IncludeObject, Rows, partial, table};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum number of `Warning:` headers in a response.
const MAX_WARNINGS: usize = 20;
/// Maximum length of a warning, in characters.
const MAX_WARNING_LENGTH: usize = 500;

/// The form of a response, and the columns of its Tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    form: Form,
    include: IncludeObject,
    rows: Rows,
}

impl Shape {
    /// Returns the form that the request asks for.
    pub(crate) fn of(headers: &HeaderMap, parameters: &Parameters, rows: Rows) -> Result<Shape, ApiError> {
        let form =
            form(headers, &[Form::Plain, Form::Table, Form::PartialMetadata]).ok_or_else(not_acceptable)?;
        Ok(Shape { form, include: parameters.include_object, rows })
    }

    /// Returns an object in this form. Watches use it too.
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

pub(crate) fn object_response<S>(
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

/// Returns a warning header by RFC 7234: code, agent, quoted text. Characters that a header cannot carry are
/// replaced.
pub(super) fn warning(text: &str) -> HeaderValue {
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

/// One page of a list.
pub(crate) struct Page {
    items: Vec<Value>,
    metadata: Value,
}

/// Position at which the next page begins.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    /// Revision of the first page. A watch from this revision misses no change on any page.
    revision: Revision,
    /// Last name of the previous page.
    after: String,
}

/// Returns the page of a list, sorted by key, that the parameters ask for.
pub(crate) fn select_page(
    items: Vec<(String, Value)>,
    revision: Revision,
    parameters: &Parameters,
) -> Result<Page, ApiError> {
    let token = parameters
        .continue_token
        .as_ref()
        .map(|text| {
            serde_json::from_str::<Token>(text)
                .map_err(|_| ApiError::bad_request("continue: must be a token from an earlier list response"))
        })
        .transpose()?;
    let revision = token.as_ref().map_or(revision, |token| token.revision);
    let mut remaining_items: Vec<(String, Value)> =
        items.into_iter().filter(|(key, _)| token.as_ref().is_none_or(|token| *key > token.after)).collect();
    let limit = parameters.limit.unwrap_or(usize::MAX);
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if remaining_items.len() > limit {
        let remaining = remaining_items.len() - limit;
        remaining_items.truncate(limit);
        if let Some((after, _)) = remaining_items.last() {
            let token = Token { revision, after: after.clone() };
            let text =
                serde_json::to_string(&token).map_err(|error| ApiError::internal(error.to_string()))?;
            metadata["continue"] = json!(text);
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    Ok(Page { items: remaining_items.into_iter().map(|(_, object)| object).collect(), metadata })
}

pub(crate) fn list_response<S>(
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
