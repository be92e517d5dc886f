//! `/apis/hactl.io/v1/resources/NAME/log`: the last lines of a service's log, read by the agent of its node.
//!
//! Agents listen on no port, so request and answer go over etcd. Both are leased, and never part of an object or event.

use super::ApiState;
use super::answer::warning;
use super::error::ApiError;
use super::read;
use super::request::query_pairs;
use axum::extract::{Path, State};
use axum::http::{HeaderName, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::id::{NodeName, ResourceName, Revision};
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::record::{
    Assignment, LOG_BYTES_MAX, LOG_LINES_DEFAULT, LOG_LINES_MAX, LOG_TIMEOUT_MS, LogAnswer, LogFailure,
    LogRequest,
};
use ha_api_types::resource::{Resource, ResourceStatus, ServiceDefinition};
use ha_store::{Change, Guard, Outcome, Store, Transaction, WatchItem};
use serde_json::Value;
use std::time::Duration;

/// Delay before a failed watch is opened again.
const WATCH_RETRY_DELAY: Duration = Duration::from_millis(200);

/// The query parameters of a request for a log; others are ignored, as in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameters {
    tail_lines: u32,
    since_seconds: Option<u64>,
    node: Option<NodeName>,
}

impl Parameters {
    fn of(pairs: &[(String, String)]) -> Result<Parameters, ApiError> {
        let mut parameters = Parameters { tail_lines: LOG_LINES_DEFAULT, since_seconds: None, node: None };
        for (name, value) in pairs {
            let invalid =
                |expected: &str| ApiError::bad_request(format!("{name}={value}: must be {expected}"));
            match name.as_str() {
                "tailLines" => {
                    let lines = value.parse().ok().filter(|lines| (1..=LOG_LINES_MAX).contains(lines));
                    parameters.tail_lines =
                        lines.ok_or_else(|| invalid(&format!("a number from 1 to {LOG_LINES_MAX}")))?;
                }
                "sinceSeconds" => {
                    // The limit prevents an overflow in time arithmetic, and is longer than any log.
                    let limit = u64::from(u32::MAX);
                    let seconds = value.parse().ok().filter(|seconds| (1..=limit).contains(seconds));
                    parameters.since_seconds =
                        Some(seconds.ok_or_else(|| invalid(&format!("a number from 1 to {limit}")))?);
                }
                "node" => {
                    parameters.node = Some(value.as_str().into()).filter(|node: &NodeName| !node.is_empty());
                }
                _ => {}
            }
        }
        Ok(parameters)
    }
}

pub(crate) async fn handler<S: Store>(
    State(state): State<ApiState<S>>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let parameters = Parameters::of(&query_pairs(&uri)?)?;
    let _permit = state.log_permit()?;
    let (node, request) = log_target(&state, &name, parameters).await?;
    if let Some(cause) = state.options().no_logs {
        let failure = Some(LogFailure::NotKept(cause.to_owned()));
        let answer = LogAnswer { failure, ..LogAnswer::default() };
        return log_response(&request.definition.name, &node, answer);
    }
    let answer = request_log(&state, &node, &request).await?;
    log_response(&request.definition.name, &node, answer)
}

/// Returns the node to ask, and the request for it.
async fn log_target<S: Store>(
    state: &ApiState<S>,
    name: &str,
    parameters: Parameters,
) -> Result<(NodeName, LogRequest), ApiError> {
    let (store, keys) = (state.store(), state.keys());
    let stored = read::find(store, keys, Kind::Resource, name).await?;
    let name = &ResourceName::from(names::without_type(name));
    let reading = store.get(&keys.assignment(name)).await?;
    let assignment =
        reading.entries.first().and_then(|entry| serde_json::from_slice::<Assignment>(&entry.value).ok());
    let status = stored.status.as_ref();
    let status =
        status.and_then(|status| serde_json::from_value::<ResourceStatus>(status.value.clone()).ok());
    if let Some(node) = &parameters.node
        && read::get(store, keys, Kind::Node, node).await?.is_none()
    {
        return Err(ApiError::not_found(Kind::Node, node));
    }
    let assigned = assignment.as_ref().map(|assignment| assignment.node.clone());
    let node = parameters.node.or(status.and_then(|status| status.node)).or(assigned);
    let node = node.ok_or_else(|| not_assigned(name))?;
    let definition = definition_on(&node, assignment, &stored.spec.value)
        .ok_or_else(|| ApiError::internal(format!("the spec of resource {name} cannot be read")))?;
    if store.get(&keys.alive(&node)).await?.entries.is_empty() {
        return Err(ApiError::unavailable(format!("the agent of node {node} is not online")));
    }
    let Parameters { tail_lines, since_seconds, node: _ } = parameters;
    Ok((node, LogRequest { definition, tail_lines, since_seconds }))
}

/// Returns the definition with which a service runs on a node: that of its assignment, or else the one in its spec.
fn definition_on(node: &NodeName, assignment: Option<Assignment>, spec: &Value) -> Option<ServiceDefinition> {
    match assignment.filter(|assignment| assignment.node == *node) {
        Some(assignment) => Some(assignment.definition),
        None => serde_json::from_value::<Resource>(spec.clone())
            .ok()
            .map(|resource| ServiceDefinition::of(&resource)),
    }
}

/// Writes a request, waits for the answer, and removes both.
async fn request_log<S: Store>(
    state: &ApiState<S>,
    node: &NodeName,
    request: &LogRequest,
) -> Result<LogAnswer, ApiError> {
    let (store, keys) = (state.store(), state.keys());
    let id = uuid::Uuid::new_v4().to_string();
    let (request_key, answer_key) = (keys.log_request(node, &id), keys.log_answer(node, &id));
    let value = serde_json::to_vec(request).map_err(|error| ApiError::internal(error.to_string()))?;
    let lease = state.log_lease().id(store).await?;
    let write = Transaction::new().put_leased(request_key.clone(), Guard::Absent, value, lease);
    let revision = match store.commit(write).await {
        Outcome::Applied(revision) => revision,
        Outcome::LeaseNotFound => {
            state.log_lease().forget(lease).await;
            return Err(ApiError::unavailable("lease of the request no longer exists: try again"));
        }
        Outcome::Conflict(_) => return Err(ApiError::internal("the id of the request is not unique")),
        Outcome::Refused(cause) | Outcome::Unknown(cause) => {
            return Err(ApiError::unavailable(format!("etcd did not confirm the request: {cause}")));
        }
    };
    let timeout = Duration::from_millis(LOG_TIMEOUT_MS);
    let answer = tokio::time::timeout(timeout, wait_for_answer(store, &answer_key, revision)).await;
    let mut remove = Transaction::new().delete(request_key, Guard::Created(revision));
    if let Ok((_, created)) = &answer {
        remove = remove.delete(answer_key, Guard::Created(*created));
    }
    // Leases remove the keys that remain.
    let _ = store.commit(remove).await;
    let (answer, _) = answer.map_err(|_| {
        let seconds = LOG_TIMEOUT_MS / 1000;
        let message = format!(
            "the agent of node {node} did not respond within {seconds} s: \
             the agent's version may not support logs, or its etcd user lacks access to the keys log and log-answer"
        );
        ApiError::new(ErrorReason::Timeout, message)
    })?;
    Ok(answer)
}

/// Waits until a key exists, and returns its value and the revision at which it was created.
async fn wait_for_answer<S: Store>(store: &S, key: &str, mut from: Revision) -> (LogAnswer, Revision) {
    loop {
        let mut items = store.watch(key, from);
        while let Some(Ok(item)) = items.next().await {
            match item {
                WatchItem::Changes { changes, revision } => {
                    for change in changes {
                        if let Change::Put(entry) = change {
                            let answer = serde_json::from_slice(&entry.value).unwrap_or_else(unreadable);
                            return (answer, entry.create_revision);
                        }
                    }
                    from = revision + 1;
                }
                WatchItem::Progress(revision) => from = from.max(revision + 1),
            }
        }
        tokio::time::sleep(WATCH_RETRY_DELAY).await;
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the caller passes it so")]
fn unreadable(error: serde_json::Error) -> LogAnswer {
    let failure = LogFailure::Unreadable(format!("cannot parse the response from the agent: {error}"));
    LogAnswer { failure: Some(failure), ..LogAnswer::default() }
}

fn log_response(resource: &ResourceName, node: &NodeName, answer: LogAnswer) -> Result<Response, ApiError> {
    match answer.failure {
        Some(LogFailure::NotKept(cause)) => {
            Err(ApiError::bad_request(format!("no log of resource {resource} on node {node}: {cause}")))
        }
        Some(LogFailure::Unreadable(cause)) => Err(ApiError::internal(format!(
            "cannot read the log of resource {resource} on node {node}: {cause}"
        ))),
        None => {
            let mut response = answer.text.into_response();
            let headers = response.headers_mut();
            let media_type = HeaderValue::from_static("text/plain; charset=utf-8");
            headers.insert(header::CONTENT_TYPE, media_type);
            // A log can contain markup, which a browser must not run.
            let no_sniffing = HeaderName::from_static("x-content-type-options");
            headers.insert(no_sniffing, HeaderValue::from_static("nosniff"));
            if answer.truncated {
                let text =
                    format!("older lines were omitted: a response contains at most {LOG_BYTES_MAX} bytes");
                headers.append(HeaderName::from_static("warning"), warning(&text));
            }
            Ok(response)
        }
    }
}

fn not_assigned(name: &ResourceName) -> ApiError {
    let message = format!("resource {name} is not assigned to a node: specify a node to read the log from");
    let cause = ("NotAssigned".to_owned(), "status.node".to_owned(), message.clone());
    ApiError::new(ErrorReason::Conflict, message).with_object(Kind::Resource, name).with_causes(vec![cause])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn log_parameters_have_bounds() {
        let parse = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            Parameters::of(&pairs)
        };
        let defaults = Parameters { tail_lines: LOG_LINES_DEFAULT, since_seconds: None, node: None };
        assert_eq!(parse(&[("timestamps", "x"), ("node", "")]), Ok(defaults.clone()));
        let all_parameters =
            Parameters { tail_lines: 10_000, since_seconds: Some(60), node: Some("n".into()) };
        assert_eq!(
            parse(&[("tailLines", "10000"), ("sinceSeconds", "60"), ("node", "n")]),
            Ok(all_parameters)
        );
        for (name, value) in [
            ("tailLines", "0"),
            ("tailLines", "10001"),
            ("tailLines", "-1"),
            ("tailLines", "x"),
            ("sinceSeconds", "0"),
            ("sinceSeconds", "1.5"),
            ("sinceSeconds", "99999999999"),
        ] {
            let error = parse(&[(name, value)]).expect_err("out of bounds");
            assert!(error.to_string().starts_with(&format!("{name}={value}: must be")), "{error}");
        }
    }

    #[test]
    fn log_request_uses_the_assigned_definition() {
        let spec = json!({
            "apiVersion": "hactl.io/v1",
            "kind": "Resource",
            "metadata": {"name": "web"},
            "spec": {"driver": {"systemd": {"unit": "new"}}},
        });
        let mut assignment = Assignment { node: "node1".into(), ..Assignment::default() };
        assignment.definition.name = "assigned".into();
        let name = |node: &str| {
            definition_on(&node.into(), Some(assignment.clone()), &spec).expect("a definition").name
        };
        assert_eq!((name("node1").as_str(), name("node2").as_str()), ("assigned", "web"));
        assert_eq!(definition_on(&"node1".into(), None, &spec).expect("a definition").name, "web");
    }
}
