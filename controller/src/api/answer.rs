//! Responses in the form that the client requests: objects, Tables or metadata only, pages of lists, and warnings.

use super::ApiState;
use super::error::ApiError;
use super::request::{Parameters, ResponseFormat, VersionMatch, negotiate_format, not_acceptable};
use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ha_api_types::id::Revision;
use ha_api_types::table::{IncludeObject, Rows, partial_metadata, table};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum number of `Warning:` headers in a response.
const MAX_WARNINGS: usize = 20;
/// Maximum length of a warning, in characters.
const MAX_WARNING_LENGTH: usize = 500;

/// The form of a response, and the columns of its Tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    format: ResponseFormat,
    include: IncludeObject,
    rows: Rows,
}

impl Shape {
    /// Returns the form that the request asks for.
    pub(crate) fn of(headers: &HeaderMap, parameters: &Parameters, rows: Rows) -> Result<Shape, ApiError> {
        let format = negotiate_format(
            headers,
            &[ResponseFormat::Plain, ResponseFormat::Table, ResponseFormat::PartialMetadata],
        )
        .ok_or_else(not_acceptable)?;
        Ok(Shape { format, include: parameters.include_object, rows })
    }

    /// Returns an object in this form. Watches use it too.
    pub(crate) fn object(self, object: Value, now_seconds: i64) -> Value {
        match self.format {
            ResponseFormat::Plain | ResponseFormat::Discovery => object,
            ResponseFormat::PartialMetadata => partial_metadata(&object),
            ResponseFormat::Table => {
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

pub(crate) struct Page<T> {
    items: Vec<T>,
    metadata: Value,
}

impl<T> Page<T> {
    pub(crate) fn map<U>(self, convert: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(convert).collect(), metadata: self.metadata }
    }
}

/// Position at which the next page begins.
#[derive(Debug, Serialize, Deserialize)]
struct ContinueToken {
    /// Revision of the first page, at which all pages are read.
    revision: Revision,
    /// Last name of the previous page.
    after: String,
}

impl ContinueToken {
    fn encode(&self) -> Result<String, ApiError> {
        let text = serde_json::to_vec(self).map_err(|error| ApiError::internal(error.to_string()))?;
        Ok(URL_SAFE_NO_PAD.encode(text))
    }

    fn decode(text: &str) -> Option<ContinueToken> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
    }
}

/// The list that a client requests: its version, and the position of its first item.
#[derive(Debug)]
pub(crate) struct ListRequest {
    pub(crate) version: ListVersion,
    /// Name after which the page begins; `None` for the first page.
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListVersion {
    Newest,
    /// The newest one, which must have reached this revision.
    AtLeast(Revision),
    /// The version at this revision.
    At(Revision),
}

impl ListRequest {
    /// Reads the parameters of a list, with the meaning that Kubernetes gives to their combinations.
    ///
    /// # Errors
    /// 400 for a combination that Kubernetes refuses, and for a token that no list response contained.
    pub(crate) fn of(parameters: &Parameters) -> Result<ListRequest, ApiError> {
        let limit = parameters.limit;
        let version = match parameters.resource_version.as_deref() {
            None => None,
            Some(text) => {
                let revision = text.parse::<Revision>().ok().filter(|revision| *revision >= Revision(0));
                let invalid = || ApiError::bad_request(format!("resourceVersion={text}: must be a revision"));
                Some(revision.ok_or_else(invalid)?)
            }
        };
        let version_match = parameters.resource_version_match;
        if let Some(text) = &parameters.continue_token {
            if version.is_some_and(|revision| revision > Revision(0)) || version_match.is_some() {
                return Err(ApiError::bad_request(
                    "continue: the token selects the version, so resourceVersion and resourceVersionMatch are not permitted",
                ));
            }
            let token = ContinueToken::decode(text).ok_or_else(|| {
                ApiError::bad_request("continue: must be a token from an earlier list response")
            })?;
            return Ok(ListRequest {
                version: ListVersion::At(token.revision),
                after: Some(token.after),
                limit,
            });
        }
        let version = match (version, version_match) {
            (None, Some(_)) => {
                return Err(ApiError::bad_request("resourceVersionMatch: requires resourceVersion"));
            }
            (Some(Revision(0)), Some(VersionMatch::Exact)) => {
                return Err(ApiError::bad_request(
                    "resourceVersionMatch=Exact: requires a resourceVersion above 0",
                ));
            }
            (None | Some(Revision(0)), _) => ListVersion::Newest,
            // Without a match, the pages of a list are those of the version, as in Kubernetes.
            (Some(revision), None) if limit.is_some() => ListVersion::At(revision),
            (Some(revision), Some(VersionMatch::Exact)) => ListVersion::At(revision),
            (Some(revision), None | Some(VersionMatch::NotOlderThan)) => ListVersion::AtLeast(revision),
        };
        Ok(ListRequest { version, after: None, limit })
    }

    /// Returns the requested page of a list that was read at a revision, sorted by key.
    pub(crate) fn select_page<T>(
        self,
        items: impl IntoIterator<Item = (String, T)>,
        revision: Revision,
    ) -> Result<Page<T>, ApiError> {
        let remaining_items =
            items.into_iter().filter(|(key, _)| self.after.as_ref().is_none_or(|after| key > after));
        let limit = self.limit.unwrap_or(usize::MAX);
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        let mut selected: Vec<(String, T)> = Vec::new();
        let mut remaining = 0;
        for item in remaining_items {
            if selected.len() < limit {
                selected.push(item);
            } else {
                remaining += 1;
            }
        }
        if remaining > 0
            && let Some((after, _)) = selected.last()
        {
            metadata["continue"] = json!(ContinueToken { revision, after: after.clone() }.encode()?);
            metadata["remainingItemCount"] = json!(remaining);
        }
        Ok(Page { items: selected.into_iter().map(|(_, object)| object).collect(), metadata })
    }
}

pub(crate) fn list_response<S>(
    state: &ApiState<S>,
    shape: Shape,
    kind: &str,
    api_version: &str,
    page: Page<Value>,
) -> Response {
    let Page { items, metadata } = page;
    let body = match shape.format {
        ResponseFormat::Table => table(shape.rows, &items, &metadata, shape.include, state.now_seconds()),
        ResponseFormat::PartialMetadata => json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": items.iter().map(partial_metadata).collect::<Vec<_>>(),
        }),
        ResponseFormat::Plain | ResponseFormat::Discovery => {
            json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items})
        }
    };
    Json(body).into_response()
}
