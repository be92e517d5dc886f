//! The objects of hactl.io/v1: list, get, create, replace, patch, delete.

mod delete;
mod requested;
mod status;
mod write;

use super::answer::{self, ListRequest, Shape};
use super::authentication::User;
use super::error::ApiError;
use super::read::{self, StoredKeys};
use super::request::{Parameters, media_type, read_body};
use super::selector::Selector;
use super::{ApiState, watch};
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use ha_api_types::document;
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::table::Rows;
use ha_store::Store;
use serde_json::{Value, json};

fn kind_of(plural: &str) -> Result<Kind, ApiError> {
    Kind::ALL.into_iter().find(|kind| kind.plural() == plural).ok_or_else(ApiError::no_such_path)
}

/// Handles `/apis/hactl.io/v1/{plural}`.
pub(crate) async fn handle_collection<S: Store>(
    State(state): State<ApiState<S>>,
    Path(plural): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let kind = kind_of(&plural)?;
    let (parts, body) = request.into_parts();
    let parameters = Parameters::of(&parts.uri)?;
    match parts.method {
        Method::GET | Method::HEAD if parameters.watch => {
            watch::objects(&state, kind, &parameters, &parts).await
        }
        Method::GET | Method::HEAD => list_objects(&state, kind, &parameters, &parts).await,
        Method::POST => write::create(&state, kind, &parameters, &parts, body).await,
        Method::DELETE => delete::delete_collection(&state, kind, &parameters, &parts).await,
        _ => Err(ApiError::method_not_allowed(
            "method not allowed: a collection supports GET, POST and DELETE",
        )),
    }
}

/// Handles `/apis/hactl.io/v1/{plural}/{name}`.
pub(crate) async fn handle_object<S: Store>(
    State(state): State<ApiState<S>>,
    Path((plural, name)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let kind = kind_of(&plural)?;
    let (parts, body) = request.into_parts();
    let parameters = Parameters::of(&parts.uri)?;
    match parts.method {
        Method::GET | Method::HEAD if parameters.watch => {
            watch::objects(&state, kind, &only_named(parameters, &name), &parts).await
        }
        Method::GET | Method::HEAD => get_object(&state, kind, &name, &parameters, &parts).await,
        Method::PUT => write::replace(&state, kind, &name, &parameters, &parts, body).await,
        Method::PATCH => write::patch(&state, kind, &name, &parameters, &parts, body).await,
        Method::DELETE => delete::delete_object(&state, kind, &name, &parameters, &parts, body).await,
        _ => Err(ApiError::method_not_allowed(
            "method not allowed: an object supports GET, PUT, PATCH and DELETE",
        )),
    }
}

/// Handles `/apis/hactl.io/v1/{plural}/{name}/status`. `hactl sync` writes the status of a GitSync. All other statuses
/// are read-only, because only the leader writes them.
pub(crate) async fn handle_status<S: Store>(
    State(state): State<ApiState<S>>,
    Path((plural, name)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let kind = kind_of(&plural)?;
    let (parts, body) = request.into_parts();
    let parameters = Parameters::of(&parts.uri)?;
    match parts.method {
        Method::GET | Method::HEAD => get_object(&state, kind, &name, &parameters, &parts).await,
        Method::PUT | Method::PATCH if kind == Kind::GitSync => {
            status::write_status(&state, &name, &parameters, &parts, body).await
        }
        _ => Err(ApiError::method_not_allowed(
            "status is read-only: only the leader writes it. Change the spec",
        )),
    }
}

/// Returns the parameters of a watch for the object with this name only.
fn only_named(parameters: Parameters, name: &str) -> Parameters {
    let by_name = format!("metadata.name={}", names::without_type(name));
    let other = Some(parameters.field_selector).filter(|selector| !selector.is_empty());
    let field_selector = other.into_iter().chain([by_name]).collect::<Vec<_>>().join(",");
    Parameters { field_selector, ..parameters }
}

async fn get_object<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    name: &str,
    parameters: &Parameters,
    parts: &Parts,
) -> Result<Response, ApiError> {
    let shape = Shape::of(&parts.headers, parameters, Rows::Of(kind))?;
    let stored = read::find(state.store(), state.keys(), kind, name).await?;
    let object = User::of_request(parts).secret_values(kind).in_object(stored.object(kind));
    Ok(answer::object_response(state, shape, object, axum::http::StatusCode::OK, &[]))
}

async fn list_objects<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    parameters: &Parameters,
    parts: &Parts,
) -> Result<Response, ApiError> {
    let shape = Shape::of(&parts.headers, parameters, Rows::Of(kind))?;
    let selector = Selector::parse(Rows::Of(kind), &parameters.label_selector, &parameters.field_selector)?;
    let request = ListRequest::of(parameters)?;
    let reading =
        read::read_version(state.store(), &read::selectors(state.keys(), kind), request.version).await?;
    let stored = read::join_keys(state.keys(), &reading.entries);
    // Selectors see the objects as the user may read them, so that they reveal no secret value.
    let secret_values = User::of_request(parts).secret_values(kind);
    let object = |stored: StoredKeys| secret_values.in_object(stored.parse(kind).object(kind));
    let page = if selector == Selector::default() {
        request.select_page(stored, reading.revision)?.map(object)
    } else {
        let objects = stored.into_iter().map(|(name, stored)| (name, object(stored)));
        request.select_page(objects.filter(|(_, object)| selector.matches(object)), reading.revision)?
    };
    Ok(answer::list_response(state, shape, &format!("{kind}List"), ha_api_types::kind::API_VERSION, page))
}

/// Reads a JSON body, and the paths of duplicate fields.
async fn json_body(parts: &Parts, body: Body) -> Result<document::Json, ApiError> {
    let accepted = ["application/json", "application/yaml"];
    let bytes = read_body(body).await?;
    match media_type(&parts.headers) {
        "application/json" => document::json(&bytes).map_err(|error| ApiError::bad_request(error.message)),
        "application/yaml" | "application/x-yaml" => yaml(&bytes),
        other => Err(ApiError::unsupported_media_type(other, &accepted)),
    }
}

/// Reads one YAML document. JSON is valid YAML.
fn yaml(bytes: &[u8]) -> Result<document::Json, ApiError> {
    // Try JSON first: most clients send it, and only this parser distinguishes duplicate fields from other errors.
    if let Ok(read) = document::json(bytes) {
        return Ok(read);
    }
    let text =
        std::str::from_utf8(bytes).map_err(|_| ApiError::bad_request("request body is not valid UTF-8"))?;
    let documents = ha_api_types::yaml::documents(text).map_err(|error| {
        let line = error.line.map_or(String::new(), |line| format!("line {line}: "));
        ApiError::bad_request(format!("request body is not valid YAML: {line}{}", error.message))
    })?;
    match <[_; 1]>::try_from(documents) {
        Ok([one]) => Ok(document::Json { value: one.value, duplicates: Vec::new() }),
        Err(several) => Err(ApiError::bad_request(format!(
            "request body must contain one document, got {}",
            several.len()
        ))),
    }
}

/// Returns the response to DELETE of an object that was removed.
fn deleted_status(kind: Kind, name: &str, uid: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": name, "group": ha_api_types::kind::GROUP, "kind": kind.plural(), "uid": uid},
    })
}
