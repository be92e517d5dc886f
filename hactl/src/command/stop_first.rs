//! `--stop-first`: stops a resource before an edit that is allowed only while no copy may run.

use super::wait::with_timeout;
use crate::client::{Change, Client, Watcher, WriteMode};
use crate::failure::Failure;
use crate::merge;
use crate::object::TypedObject;
use crate::session::Session;
use clap::Args;
use ha_api_types::kind::Kind;
use ha_api_types::resource::{ResourceSpec, ServiceState};
use serde_json::{Value, json};
use std::time::Duration;

/// Flags for a stop of resources before edits that require a stop.
#[derive(Args, Clone, Debug)]
pub(crate) struct StopFirstFlags {
    /// Stop the resource if the edit requires a stop, then restore its state
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) stop_first: bool,
    /// Maximum time to wait for the stop; at expiry, exit with status 124
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "stop_first", value_parser = crate::duration::parse)]
    pub(crate) stop_timeout: Duration,
}

/// Text of a refusal that a stop resolves.
const STOP_REQUIRED_MESSAGE: &str = "cannot change while a copy may run";

impl StopFirstFlags {
    /// Returns `true` if a stop may resolve the refusal of an edit.
    pub(crate) fn resolves_refusal(&self, kind: Kind, refusal: &str) -> bool {
        self.stop_first && kind == Kind::Resource && refusal.contains(STOP_REQUIRED_MESSAGE)
    }

    /// Stops a resource and waits until no copy may run. Returns the earlier requested state as received, because it is
    /// sent back later, and may be unknown to this version.
    pub(crate) async fn stop(
        &self,
        session: &Session,
        client: &Client,
        name: &str,
        live: &Value,
    ) -> Result<String, Failure> {
        let live: TypedObject<ResourceSpec> = TypedObject::from_value(live.clone());
        let state_before = match live.text_at("/spec/state") {
            "" => "Started".to_owned(),
            state => state.to_owned(),
        };
        let is_error = live.state() == Some(ServiceState::Error);
        let patch = json!({"spec": {"state": if is_error { "Disabled" } else { "Stopped" }}});
        client.patch(Kind::Resource, name, &patch, WriteMode::Persist).await?;
        let display_name = format!("resource/{name}");
        session.terminal().progress(&format!(
            "{display_name}: stopping before the edit; if interrupted, the resource stays stopped and unchanged"
        ));
        let mut last_line = String::new();
        let stopped = async {
            let mut watcher = Watcher::for_object(session.client()?, Kind::Resource, name);
            loop {
                match watcher.next().await? {
                    Change::Applied(object) => match blocking_reason(&TypedObject::from_value(object)) {
                        None => return Ok(()),
                        Some(line) if line != last_line => {
                            session.terminal().progress(&format!("{display_name}: {line}"));
                            last_line = line;
                        }
                        Some(_) => {}
                    },
                    Change::Deleted(_) => {
                        return Err(Failure::failed(format!("{display_name} was deleted")));
                    }
                    Change::Synced => {}
                }
            }
        };
        let timeout_message = format!("stopping {display_name} before the edit");
        with_timeout(self.stop_timeout, &timeout_message, stopped).await.map_err(|failure| {
            failure.help(format!(
                "the resource stays stopped and unchanged; its requested state was {state_before}: run \"hactl set {name} state={state_before}\""
            ))
        })?;
        Ok(state_before)
    }
}

/// Returns the reason why the edit is not allowed yet; `None` if it is allowed.
fn blocking_reason(resource: &TypedObject<ResourceSpec>) -> Option<String> {
    let copies = resource.status.iter().flat_map(|status| &status.copies);
    let copies: Vec<&str> = copies.map(|copy| copy.node.as_str()).collect();
    let state = match resource.text_at("/status/state") {
        "" => "Queued",
        state => state,
    };
    let is_stopped = matches!(resource.state(), Some(ServiceState::Stopped | ServiceState::Disabled));
    match (is_stopped, copies.is_empty()) {
        (true, true) => None,
        (true, false) => Some(format!("{state}; a copy may still run on {}", copies.join(", "))),
        (false, _) => Some(format!("state {state}")),
    }
}

/// Adds the requested state to a patch: the state in `desired`, which is the object or patch of the user, or else
/// `state_before`, the requested state before the stop.
pub(crate) fn with_state(patch: &Value, desired: &Value, state_before: &str) -> Value {
    let state = desired.pointer("/spec/state").cloned().unwrap_or_else(|| json!(state_before));
    let mut patch = merge::with_merge_patch(patch, &json!({"spec": {}}));
    patch["spec"]["state"] = state;
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_waits_until_no_copy_may_run() {
        let reason = |state: &str, copies: Value| {
            blocking_reason(&TypedObject::from_value(json!({"status": {"state": state, "copies": copies}})))
        };
        assert_eq!(reason("Stopped", json!([])), None);
        assert_eq!(reason("Disabled", Value::Null), None);
        assert_eq!(reason("Stopping", json!([])), Some("state Stopping".to_owned()));
        assert_eq!(
            reason("Stopped", json!([{"node": "n1"}])),
            Some("Stopped; a copy may still run on n1".to_owned())
        );
        assert_eq!(blocking_reason(&TypedObject::from_value(json!({}))), Some("state Queued".to_owned()));
    }

    #[test]
    fn edit_restores_the_requested_state() {
        let edit = json!({"spec": {"exclusive": true}});
        let patched_spec = |desired: &Value| with_state(&edit, desired, "Started")["spec"].clone();
        assert_eq!(patched_spec(&edit), json!({"exclusive": true, "state": "Started"}));
        assert_eq!(patched_spec(&json!({"spec": {"state": "Disabled"}}))["state"], "Disabled");
    }
}
