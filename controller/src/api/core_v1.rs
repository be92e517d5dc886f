//! The part of core/v1 that clients of hactl objects need: Events, converted from hactl's events, and their
//! namespace.

use super::answer::{self, ListRequest, ListVersion, Shape};
use super::error::ApiError;
use super::request::Parameters;
use super::selector::Selector;
use super::{ApiState, read, watch};
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::event::{ACTION_UID_ANNOTATION, EPOCH_ANNOTATION, Event, NODE_ANNOTATION};
use ha_api_types::id::Revision;
use ha_api_types::keys::Key;
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::table::Rows;
use ha_runtime::shutdown::Shutdown;
use ha_store::{Change, Entry, Store, WatchItem};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Namespace in which all events are shown. hactl objects have no namespace.
pub(crate) const NAMESPACE: &str = "default";

fn namespace() -> Value {
    json!({
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {"name": NAMESPACE, "uid": "00000000-0000-0000-0000-000000000001", "resourceVersion": "1"},
        "spec": {},
        "status": {"phase": "Active"},
    })
}

/// Handles `/api/v1/namespaces`.
pub(crate) async fn namespaces<S: Store>(
    State(state): State<ApiState<S>>,
    request: Request,
) -> Result<Response, ApiError> {
    let parameters = Parameters::of(request.uri())?;
    let shape = Shape::of(request.headers(), &parameters, Rows::Namespaces)?;
    let request = ListRequest::of(&parameters)?;
    let page = request.select_page(vec![(NAMESPACE.to_owned(), namespace())], Revision(1))?;
    Ok(answer::list_response(&state, shape, "NamespaceList", "v1", page))
}

/// Handles `/api/v1/namespaces/{name}`.
pub(crate) async fn one_namespace(Path(name): Path<String>) -> Result<Response, ApiError> {
    if name == NAMESPACE { Ok(Json(namespace()).into_response()) } else { Err(ApiError::no_such_path()) }
}

/// Handles `/api/v1/events`.
pub(crate) async fn all_events<S: Store>(
    State(state): State<ApiState<S>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    events(&state, &parts, true).await
}

/// Handles `/api/v1/namespaces/{namespace}/events`.
pub(crate) async fn namespaced_events<S: Store>(
    State(state): State<ApiState<S>>,
    Path(namespace): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    events(&state, &parts, namespace == NAMESPACE).await
}

/// Handles `/api/v1/namespaces/{namespace}/events/{name}`.
pub(crate) async fn one_event<S: Store>(
    State(state): State<ApiState<S>>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    let shape = Shape::of(&parts.headers, &Parameters::of(&parts.uri)?, Rows::Events)?;
    let (mut events, _) = read_events(&state, ListVersion::Newest).await?;
    let requested_event = events.remove(&name).filter(|_| namespace == NAMESPACE);
    let event = requested_event
        .ok_or_else(|| ApiError::new(ErrorReason::NotFound, format!("events {name:?} not found")))?;
    Ok(answer::object_response(&state, shape, event, axum::http::StatusCode::OK, &[]))
}

async fn events<S: Store>(state: &ApiState<S>, parts: &Parts, shown: bool) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&parts.uri)?;
    let shape = Shape::of(&parts.headers, &parameters, Rows::Events)?;
    let selector = Selector::parse(Rows::Events, &parameters.label_selector, &parameters.field_selector)?;
    if parameters.watch {
        return watch_events(state, parts, &parameters, shape, selector).await;
    }
    let request = ListRequest::of(&parameters)?;
    let (events, revision) = read_events(state, request.version).await?;
    let items = events.into_iter().filter(|(_, event)| shown && matches_event(&selector, event));
    Ok(answer::list_response(state, shape, "EventList", "v1", request.select_page(items, revision)?))
}

/// Returns `true` if a selector matches an event. Clients disagree on the namespace of a cluster-scoped object, so
/// both forms match.
fn matches_event(selector: &Selector, event: &Value) -> bool {
    let matches_in = |namespace: &str| {
        let mut event = event.clone();
        event["involvedObject"]["namespace"] = json!(namespace);
        selector.matches(&event)
    };
    matches_in("") || matches_in(NAMESPACE)
}

/// Reads all events by name, oldest first, in the form of core/v1.
async fn read_events<S: Store>(
    state: &ApiState<S>,
    version: ListVersion,
) -> Result<(BTreeMap<String, Value>, Revision), ApiError> {
    let reading = read::read_version(state.store(), &[state.keys().events()], version).await?;
    let events = reading.entries.iter().filter_map(|entry| shown(state, entry)).collect();
    Ok((events, reading.revision))
}

/// Returns the name of the event under a key.
fn name_of<S>(state: &ApiState<S>, key: &str) -> Option<String> {
    match state.keys().parse(key)? {
        Key::Event(writer, id) => Some(format!("{writer}.{id}").to_lowercase()),
        Key::Spec(..)
        | Key::Status(..)
        | Key::Assignment(_)
        | Key::Tombstone(_)
        | Key::Fence(_)
        | Key::NotificationRecord
        | Key::Backup
        | Key::RestoreMarker
        | Key::Incarnation
        | Key::Leader
        | Key::Candidate(_)
        | Key::Refresh(_)
        | Key::Alive(_)
        | Key::NodeReport(_)
        | Key::DoctorReport(_)
        | Key::UsageReport(_)
        | Key::ServiceReport(..)
        | Key::LogRequest(..)
        | Key::JoinToken(..)
        | Key::IssuedCertificate(..)
        | Key::LogAnswer(..) => None,
    }
}

/// Converts a stored event to a core/v1 Event; `None` if it cannot be read.
fn shown<S>(state: &ApiState<S>, entry: &Entry) -> Option<(String, Value)> {
    let name = name_of(state, &entry.key)?;
    let event: Event = serde_json::from_slice(&entry.value).ok()?;
    let (component, host) = match event.source.split_once('/') {
        Some((component, host)) => (format!("ha-{component}"), host.to_owned()),
        None => (event.source.clone(), event.node.as_deref().unwrap_or_default().to_owned()),
    };
    let epoch = event.epoch.map(|epoch| epoch.to_string());
    let annotations: Map<String, Value> = [
        (ACTION_UID_ANNOTATION, event.action_uid.map(|uid| uid.to_string())),
        (EPOCH_ANNOTATION, epoch),
        (NODE_ANNOTATION, event.node.as_ref().map(ToString::to_string)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?))))
    .collect();
    let mut object = json!({
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": name,
            "resourceVersion": entry.mod_revision.to_string(),
            "creationTimestamp": event.at,
            "annotations": annotations,
        },
        "involvedObject": {
            "kind": event.kind.name(),
            "apiVersion": API_VERSION,
            "name": event.name,
            "uid": event.uid,
        },
        "reason": event.reason,
        "message": event.message,
        "type": event.event_type,
        "count": 1,
        "firstTimestamp": event.at,
        "lastTimestamp": event.at,
        "source": {"component": component, "host": host},
        "reportingComponent": component,
        "reportingInstance": host,
    });
    if let Some(operation) = event.operation {
        object["related"] =
            json!({"kind": Kind::Operation.name(), "apiVersion": API_VERSION, "name": operation});
    }
    Some((name, object))
}

/// Returns a watch of events. Events are only added, and deleted when their lease expires.
async fn watch_events<S: Store>(
    state: &ApiState<S>,
    parts: &Parts,
    parameters: &Parameters,
    shape: Shape,
    selector: Selector,
) -> Result<Response, ApiError> {
    let permit = state.watch_permit()?;
    let from = watch::start_revision(parameters)?;
    let (mut events, revision) = read_events(state, ListVersion::Newest).await?;
    watch::check_start(from, revision)?;
    let length = watch::watch_duration(parameters);
    let state = state.clone();
    let lines = async_stream::stream! {
        let _permit = permit;
        let end_time = tokio::time::Instant::now() + length;
        if from.is_none() {
            for event in events.values().filter(|event| matches_event(&selector, event)) {
                yield watch::watch_line("ADDED", &shape.object(event.clone(), state.now_seconds()));
            }
        }
        let mut items = state.store().watch(&state.keys().events(), from.unwrap_or(revision) + 1);
        loop {
            let item = tokio::select! {
                item = items.next() => item,
                () = tokio::time::sleep_until(end_time) => break,
            };
            match item {
                Some(Ok(WatchItem::Changes { changes, revision: _ })) => {
                    for change in &changes {
                        let (event_type, event) = match change {
                            Change::Put(entry) => match shown(&state, entry) {
                                Some((name, event)) => {
                                    events.insert(name, event.clone());
                                    ("ADDED", Some(event))
                                }
                                None => ("ADDED", None),
                            },
                            Change::Delete { key, revision } => {
                                let removed = name_of(&state, key).and_then(|name| events.remove(&name));
                                let deletion = removed.map(|mut event| {
                                    event["metadata"]["resourceVersion"] = json!(revision.to_string());
                                    event
                                });
                                ("DELETED", deletion)
                            }
                        };
                        if let Some(event) = event.filter(|event| matches_event(&selector, event)) {
                            yield watch::watch_line(event_type, &shape.object(event, state.now_seconds()));
                        }
                    }
                }
                Some(Ok(WatchItem::Progress(_))) => {}
                Some(Err(error)) => {
                    yield watch::watch_line("ERROR", &ApiError::from(error).status());
                    break;
                }
                None => break,
            }
        }
    };
    Ok(watch::respond(lines, parts.extensions.get::<Shutdown>().cloned()))
}

/// Interval of keep-alive comments on an idle stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Handles `/apis/hactl.io/v1/events/stream`: hactl's events as server-sent events. The id is the revision. A client
/// that reconnects with `Last-Event-ID` misses no event that still exists.
pub(crate) async fn stream<S: Store>(
    State(state): State<ApiState<S>>,
    request: Request,
) -> Result<Response, ApiError> {
    use axum::response::sse::{Event as Sent, KeepAlive, Sse};
    let (parts, _) = request.into_parts();
    let last = parts
        .headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok())
        .and_then(|id| id.parse::<Revision>().ok());
    let permit = state.watch_permit()?;
    let reading = state.store().list(&state.keys().events()).await?;
    let shutdown = parts.extensions.get::<Shutdown>().cloned();
    let lines = async_stream::stream! {
        let _permit = permit;
        let sent = |entry: &Entry| {
            serde_json::from_slice::<Event>(&entry.value).ok().map(|event| {
                Sent::default().event("event").id(entry.mod_revision.to_string()).data(json!(event).to_string())
            })
        };
        let mut past: Vec<&Entry> =
            reading.entries.iter().filter(|entry| last.is_some_and(|last| entry.mod_revision > last)).collect();
        past.sort_by_key(|entry| entry.mod_revision);
        for event in past.into_iter().filter_map(sent) {
            yield Ok::<Sent, std::convert::Infallible>(event);
        }
        let mut items = state.store().watch(&state.keys().events(), reading.revision + 1);
        while let Some(Ok(item)) = items.next().await {
            if let WatchItem::Changes { changes, revision: _ } = item {
                for change in &changes {
                    if let Change::Put(entry) = change
                        && let Some(event) = sent(entry)
                    {
                        yield Ok(event);
                    }
                }
            }
        }
    };
    let lines = match shutdown {
        Some(shutdown) => ha_runtime::http::until_shutdown(lines, shutdown).boxed(),
        None => lines.boxed(),
    };
    Ok(Sse::new(lines).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL)).into_response())
}
