//! Watches: changes of objects as newline-delimited JSON, resumed from a revision, with bookmarks.

mod feed;
mod source;
mod table;

use super::ApiState;
use super::answer::Shape;
use super::authentication::User;
use super::error::ApiError;
use super::metrics::WatchPermit;
use super::request::{Parameters, VersionMatch};
use super::selector::Selector;
use axum::body::Body;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::Response;
use bytes::Bytes;
pub(crate) use feed::ObjectFeed;
use futures::{Stream, StreamExt};
use ha_api_types::id::Revision;
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::table::Rows;
use ha_runtime::http::until_shutdown;
use ha_runtime::shutdown::Shutdown;
use ha_store::Store;
use serde_json::{Value, json};
use source::{Begin, Next, Source};
use std::convert::Infallible;
use std::time::Duration;
use table::{ClientView, Event, EventType};
use tokio::time::Instant;

/// Interval at which a client that requests bookmarks gets one while nothing changes.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum duration of a watch, unless the client asks for less. Clients resume from the last revision.
const MAX_WATCH_DURATION: Duration = Duration::from_secs(3600);

/// Handles GET of a collection with `watch=true`.
pub(crate) async fn objects<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    parameters: &Parameters,
    parts: &Parts,
) -> Result<Response, ApiError> {
    let shape = Shape::of(&parts.headers, parameters, Rows::Of(kind))?;
    let selector = Selector::parse(Rows::Of(kind), &parameters.label_selector, &parameters.field_selector)?;
    let permit = state.watch_permit()?;
    let from = start_revision(parameters)?;
    check_initial_events(parameters)?;
    let view = ClientView { kind, selector, secret_values: User::of_request(parts).secret_values(kind) };
    let begin = Source::begin(state, kind, from).await?;
    let shutdown = parts.extensions.get::<Shutdown>().cloned();
    let watcher = Watcher {
        state: state.clone(),
        shape,
        parameters: parameters.clone(),
        bookmark: json!({"kind": kind.name(), "apiVersion": API_VERSION}),
        view,
        permit,
    };
    Ok(respond(watcher.run(begin), shutdown))
}

/// Returns the revision after which the client requests changes; `None` means all existing objects first, then changes.
pub(crate) fn start_revision(parameters: &Parameters) -> Result<Option<Revision>, ApiError> {
    if parameters.send_initial_events {
        return Ok(None);
    }
    match parameters.resource_version.as_deref() {
        None | Some("0") => Ok(None),
        Some(text) => match text.parse::<Revision>() {
            Ok(revision) if revision > Revision(0) => Ok(Some(revision)),
            Ok(_) | Err(_) => {
                Err(ApiError::bad_request(format!("resourceVersion={text}: must be a revision")))
            }
        },
    }
}

/// Checks the parameters of a watch that begins with the existing objects (WatchList), as Kubernetes does.
fn check_initial_events(parameters: &Parameters) -> Result<(), ApiError> {
    match (parameters.send_initial_events, parameters.resource_version_match) {
        (true, Some(VersionMatch::NotOlderThan)) | (false, None) => Ok(()),
        (true, _) => {
            Err(ApiError::bad_request("sendInitialEvents: requires resourceVersionMatch=NotOlderThan"))
        }
        (false, Some(_)) => Err(ApiError::bad_request(
            "resourceVersionMatch: not permitted for a watch without sendInitialEvents",
        )),
    }
}

/// Refuses to resume from a revision that etcd has not reached: it belongs to the data before a restore (FENCING,
/// R10.19). The current revision must come from a linearizable read that was made after the request arrived.
pub(crate) fn check_start(from: Option<Revision>, present: Revision) -> Result<(), ApiError> {
    match from {
        Some(requested) if requested > present => Err(ApiError::revision_not_reached(requested, present)),
        Some(_) | None => Ok(()),
    }
}

pub(crate) fn watch_duration(parameters: &Parameters) -> Duration {
    match parameters.timeout_seconds.filter(|seconds| *seconds > 0) {
        Some(seconds) => Duration::from_secs(seconds).min(MAX_WATCH_DURATION),
        None => default_duration(),
    }
}

/// Returns a random duration from half the maximum to the maximum, so that clients that began together do not all
/// return together.
fn default_duration() -> Duration {
    let share = f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0;
    MAX_WATCH_DURATION.mul_f64(0.5 + share / 2.0)
}

/// Returns a streamed response. The stream ends when the process shuts down.
pub(crate) fn respond(
    lines: impl Stream<Item = Bytes> + Send + 'static,
    shutdown: Option<Shutdown>,
) -> Response {
    let lines = lines.map(Ok::<Bytes, Infallible>);
    let body = match shutdown {
        Some(shutdown) => Body::from_stream(until_shutdown(lines, shutdown)),
        None => Body::from_stream(lines),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

pub(crate) fn watch_line(event_type: &str, object: &Value) -> Bytes {
    let mut text = json!({"type": event_type, "object": object}).to_string();
    text.push('\n');
    Bytes::from(text)
}

/// State of a running watch.
struct Watcher<S> {
    state: ApiState<S>,
    shape: Shape,
    parameters: Parameters,
    bookmark: Value,
    view: ClientView,
    permit: WatchPermit,
}

impl<S: Store> Watcher<S> {
    /// Returns the lines of the watch: first the existing objects (unless resumed), then changes.
    fn run(self, begin: Begin) -> impl Stream<Item = Bytes> + Send {
        async_stream::stream! {
            let _permit = &self.permit;
            let end_time = Instant::now() + watch_duration(&self.parameters);
            let Begin { objects, revision, mut source } = begin;
            if let Some(objects) = objects {
                for event in objects.iter().filter_map(|stored| self.view.initial_event(stored)) {
                    yield self.event(event);
                }
                if self.parameters.allow_bookmarks && self.parameters.send_initial_events {
                    yield self.bookmark(revision, true);
                }
            }
            let mut complete_up_to = revision;
            let mut bookmarked = complete_up_to;
            let mut next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
            loop {
                let next = tokio::select! {
                    next = source.next() => next,
                    () = tokio::time::sleep_until(next_bookmark), if self.parameters.allow_bookmarks => {
                        next_bookmark += BOOKMARK_INTERVAL;
                        complete_up_to = source.progress().map_or(complete_up_to, |reached| reached.max(complete_up_to));
                        if complete_up_to > bookmarked {
                            bookmarked = complete_up_to;
                            yield self.bookmark(complete_up_to, false);
                        }
                        continue;
                    }
                    () = tokio::time::sleep_until(end_time) => break,
                };
                match next {
                    Next::Changes { changes, revision } => {
                        let later = changes.iter().filter(|change| change.revision > complete_up_to);
                        for event in later.filter_map(|change| self.view.event(change)) {
                            yield self.event(event);
                        }
                        complete_up_to = complete_up_to.max(revision);
                    }
                    Next::Failed(error) => {
                        yield watch_line("ERROR", &ApiError::from(error).status());
                        break;
                    }
                }
            }
        }
    }

    fn event(&self, event: Event) -> Bytes {
        let name = match event.event_type {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        };
        watch_line(name, &self.shape.object(event.object, self.state.now_seconds()))
    }

    fn bookmark(&self, revision: Revision, initial: bool) -> Bytes {
        let mut object = self.bookmark.clone();
        object["metadata"] = json!({"resourceVersion": revision.to_string()});
        if initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        watch_line("BOOKMARK", &self.shape.object(object, self.state.now_seconds()))
    }
}
