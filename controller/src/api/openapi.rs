//! OpenAPI 3.0 from the Rust types. `kubectl explain` prints it, and `kubectl apply` reads it before a write.

use super::error::ApiError;
use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use ha_api_types::kind::{API_VERSION, GROUP, Kind, VERSION};
use ha_api_types::schema;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::OnceLock;

/// Returns the document as text, and its hash. Both stay the same for the life of the process.
fn document() -> &'static (String, String) {
    static DOCUMENT: OnceLock<(String, String)> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let text = build().to_string();
        let mut hash = String::new();
        for byte in Sha256::digest(text.as_bytes()) {
            // Writing into a string does not fail.
            let _ = write!(hash, "{byte:02X}");
        }
        (text, hash)
    })
}

/// Handles `/openapi/v3`: the paths of the documents. The hash in the path lets clients cache them.
pub(crate) async fn index() -> Response {
    let (_, hash) = document();
    let path = format!("apis/{API_VERSION}");
    let url = format!("/openapi/v3/{path}?hash={hash}");
    Json(json!({"paths": {path: {"serverRelativeURL": url}}})).into_response()
}

/// Handles `/openapi/v3/{path}`.
pub(crate) async fn group_version(Path(path): Path<String>) -> Result<Response, ApiError> {
    if path.trim_end_matches('/') != format!("apis/{API_VERSION}") {
        return Err(ApiError::no_such_path());
    }
    let (text, hash) = document();
    let mut response = text.clone().into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

/// Returns the name of a kind's schema.
pub(crate) fn schema_name(kind: Kind) -> String {
    format!("io.hactl.{VERSION}.{}", kind.name())
}

pub(crate) fn group_version_kind(kind: Kind) -> Value {
    json!({"group": GROUP, "version": VERSION, "kind": kind.name()})
}

fn build() -> Value {
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for kind in Kind::ALL {
        let name = schema_name(kind);
        let mut schema = schema::of(kind).clone();
        schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind)]);
        schemas.insert(name.clone(), schema);
        schemas.insert(
            format!("{name}List"),
            json!({
                "type": "object",
                "description": format!("Objects of kind {kind}."),
                "required": ["items"],
                "properties": {
                    "apiVersion": field("string", "Version of the API, always `hactl.io/v1`."),
                    "kind": field("string", "Kind of the list."),
                    "metadata": {"type": "object", "description": "Version and position of the list.", "properties": {
                        "resourceVersion": field("string", "Etcd revision of the list."),
                        "continue": field("string", "Token for the next part of the list; empty at its end."),
                        "remainingItemCount": field("integer", "Number of objects after this part of the list."),
                    }},
                    "items": {"type": "array", "description": "Objects of the list.", "items": reference(&name)},
                },
                "x-kubernetes-group-version-kind": [
                    {"group": GROUP, "version": VERSION, "kind": format!("{kind}List")}],
            }),
        );
        let base = format!("/apis/{API_VERSION}/{}", kind.plural());
        paths.insert(base.clone(), collection(kind, &name));
        paths.insert(format!("{base}/{{name}}"), item(kind, &name));
        if kind == Kind::Resource {
            paths.insert(format!("{base}/{{name}}/log"), log(kind));
        }
    }
    for (name, schema) in schema::views() {
        schemas.insert(format!("io.hactl.{VERSION}.{name}"), schema.clone());
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "hactl", "version": env!("CARGO_PKG_VERSION"),
            "description": "High availability for services on bare-metal nodes."},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn field(type_name: &str, description: &str) -> Value {
    json!({"type": type_name, "description": description})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn collection(kind: Kind, name: &str) -> Value {
    json!({
        "get": operation(kind, "list", "list", &READ, None, &format!("{name}List")),
        "post": operation(kind, "post", "create", &WRITE, Some(&["application/json", "application/yaml"]), name),
        "delete": operation(kind, "deletecollection", "deleteCollection", &READ, None, &format!("{name}List")),
    })
}

fn item(kind: Kind, name: &str) -> Value {
    let patches =
        ["application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"];
    let mut apply = WRITE.to_vec();
    apply.push((
        "force",
        "boolean",
        "Whether to take over fields that other managers set (server-side apply).",
    ));
    json!({
        "get": operation(kind, "get", "read", &[], None, name),
        "put": operation(kind, "put", "replace", &WRITE, Some(&["application/json", "application/yaml"]), name),
        "patch": operation(kind, "patch", "patch", &apply, Some(&patches), name),
        "delete": operation(kind, "delete", "delete", &WRITE[..1], None, name),
        "parameters": [name_parameter()],
    })
}

/// Returns the path item of the log, whose answer is text.
fn log(kind: Kind) -> Value {
    let mut get = operation(kind, "get", "readLog", &LOG, None, &schema_name(kind));
    get["responses"] =
        json!({"200": {"description": "OK", "content": {"text/plain": {"schema": {"type": "string"}}}}});
    json!({"get": get, "parameters": [name_parameter()]})
}

/// Returns the parameter of paths that contain the name of an object.
fn name_parameter() -> Value {
    json!({"name": "name", "in": "path", "required": true, "schema": {"type": "string"},
        "description": "Name of the object; for resources also type:name."})
}

type Parameter = (&'static str, &'static str, &'static str);

const WRITE: [Parameter; 3] = [
    ("dryRun", "string", "All: validate the request and write nothing."),
    ("fieldManager", "string", "Manager of the fields. Required for server-side apply."),
    (
        "fieldValidation",
        "string",
        "Treatment of unknown and duplicate fields. One of Strict (default), Warn, Ignore.",
    ),
];

const LOG: [Parameter; 3] = [
    ("tailLines", "integer", "Number of last lines. From 1 to 10000. Default: 100."),
    ("sinceSeconds", "integer", "Maximum age of the lines, in seconds. Default: no limit."),
    ("node", "string", "Node to read the log from. Default: the node of the service."),
];

const READ: [Parameter; 5] = [
    ("labelSelector", "string", "Label selector, such as app=web."),
    ("fieldSelector", "string", "Field selector, such as metadata.name=web."),
    ("limit", "integer", "Maximum number of objects in the response."),
    ("continue", "string", "Token from an earlier, limited list, which continues that list."),
    ("watch", "boolean", "Whether to stream changes, starting after resourceVersion."),
];

fn operation(
    kind: Kind,
    action: &str,
    verb: &str,
    parameters: &[Parameter],
    body: Option<&[&str]>,
    answer: &str,
) -> Value {
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|(name, value_type, description)| {
            json!({"name": name, "in": "query", "description": description,
                "schema": {"type": value_type, "uniqueItems": true}})
        })
        .collect();
    let mut operation = json!({
        "operationId": format!("{verb}HactlV1{}", kind.name()),
        "tags": ["hactl_v1"],
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": group_version_kind(kind),
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference(answer)}}}},
    });
    if let Some(media_types) = body {
        let content: Map<String, Value> = media_types
            .iter()
            .map(|media_type| ((*media_type).to_owned(), json!({"schema": {"type": "object"}})))
            .collect();
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_has_a_schema() {
        let built = build();
        let text = built.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(built["components"]["schemas"].get(name).is_some(), "{name}");
        }
    }
}
