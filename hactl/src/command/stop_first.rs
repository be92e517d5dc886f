//! `--stop-first`: stops a resource before an edit that is allowed only while no copy may run.

use super::wait::bounded;
use crate::client::{Change, Client, Commitment, Watcher};
use crate::failure::Failure;
use crate::merge;
use crate::object::Served;
use crate::session::Session;
use clap::Args;
use ha_api_types::kind::Kind;
use ha_api_types::resource::{ResourceSpec, ServiceState};
use serde_json::{Value, json};
use std::time::Duration;

/// Whether to stop resources before edits that need it.
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
const REFUSAL: &str = "cannot change while a copy may run";

impl StopFirstFlags {
    /// Returns `true` if a stop may resolve the refusal of an edit.
    pub(crate) fn helps(&self, kind: Kind, refusal: &str) -> bool {
        self.stop_first && kind == Kind::Resource && refusal.contains(REFUSAL)
    }

    /// Stops a resource and waits until no copy may run. Returns the requested state from before, as received: it is
    /// sent back, and may be unknown to this version.
    pub(crate) async fn stop(
        &self,
        session: &Session,
        client: &Client,
        name: &str,
        live: &Value,
    ) -> Result<String, Failure> {
        let live: Served<ResourceSpec> = Served::of(live.clone());
        let before = match live.word("/spec/state") {
            "" => "Started".to_owned(),
            state => state.to_owned(),
        };
        let is_error = live.state() == Some(ServiceState::Error);
        let patch = json!({"spec": {"state": if is_error { "Disabled" } else { "Stopped" }}});
        client.patch(Kind::Resource, name, &patch, Commitment::Real).await?;
        let shown = format!("resource/{name}");
        session.terminal().progress(&format!(
            "{shown}: stopping before the edit; if interrupted, the resource stays stopped and unchanged"
        ));
        let mut last = String::new();
        let stopped = async {
            let mut watcher = Watcher::object(session.client()?, Kind::Resource, name);
            loop {
                match watcher.next().await? {
                    Change::Applied(object) => match keeps(&Served::of(object)) {
                        None => return Ok(()),
                        Some(line) if line != last => {
                            session.terminal().progress(&format!("{shown}: {line}"));
                            last = line;
                        }
                        Some(_) => {}
                    },
                    Change::Deleted(_) => return Err(Failure::refused(format!("{shown} was deleted"))),
                    Change::Synced => {}
                }
            }
        };
        let what = format!("stopping {shown} before the edit");
        bounded(self.stop_timeout, &what, stopped).await.map_err(|failure| {
            failure.help(format!(
                "the resource stays stopped and unchanged; its requested state was {before}: run \"hactl set {name} state={before}\""
            ))
        })?;
        Ok(before)
    }
}

/// Returns the reason why the edit is not allowed yet; `None` if it is allowed.
fn keeps(resource: &Served<ResourceSpec>) -> Option<String> {
    let copies = resource.status.iter().flat_map(|status| &status.copies);
    let copies: Vec<&str> = copies.map(|copy| copy.node.as_str()).collect();
    let state = match resource.word("/status/state") {
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

/// Adds the requested state to a patch: the state in `wanted`, which is the object or patch of the user, or else
/// `before`, the requested state before the stop.
pub(crate) fn with_state(patch: &Value, wanted: &Value, before: &str) -> Value {
    let state = wanted.pointer("/spec/state").cloned().unwrap_or_else(|| json!(before));
    let mut patch = merge::patched(patch, &json!({"spec": {}}));
    patch["spec"]["state"] = state;
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_waits_for_the_state_and_the_copies() {
        let of = |state: &str, copies: Value| {
            keeps(&Served::of(json!({"status": {"state": state, "copies": copies}})))
        };
        assert_eq!(of("Stopped", json!([])), None);
        assert_eq!(of("Disabled", Value::Null), None);
        assert_eq!(of("Stopping", json!([])), Some("state Stopping".to_owned()));
        assert_eq!(
            of("Stopped", json!([{"node": "n1"}])),
            Some("Stopped; a copy may still run on n1".to_owned())
        );
        assert_eq!(keeps(&Served::of(json!({}))), Some("state Queued".to_owned()));
    }

    #[test]
    fn the_requested_state_comes_back_with_the_edit() {
        let edit = json!({"spec": {"exclusive": true}});
        let with = |wanted: &Value| with_state(&edit, wanted, "Started")["spec"].clone();
        assert_eq!(with(&edit), json!({"exclusive": true, "state": "Started"}));
        assert_eq!(with(&json!({"spec": {"state": "Disabled"}}))["state"], "Disabled");
    }
}
