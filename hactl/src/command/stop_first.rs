//! `--stop-first`: stops a resource before an edit that is allowed only while no copy may run.

use super::wait::bounded;
use crate::client::{Change, Client, Commitment, Watcher};
use crate::failure::Failure;
use crate::session::Session;
use clap::Args;
use ha_api_types::kind::Kind;
use serde_json::{Value, json};
use std::time::Duration;

/// Whether to stop resources before edits that need it.
#[derive(Args, Clone, Debug)]
pub(crate) struct StopFirstFlags {
    /// Stop the resource if the edit needs it, then restore its state
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) stop_first: bool,
    /// Maximum time to wait for the stop; the exit status is then 124
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

    /// Stops a resource and waits until no copy may run. Returns the requested state from before.
    pub(crate) async fn stop(
        &self,
        session: &Session,
        client: &Client,
        name: &str,
        live: &Value,
    ) -> Result<Value, Failure> {
        let before = live.pointer("/spec/state").cloned().unwrap_or_else(|| json!("Started"));
        let is_error = live.pointer("/status/state").and_then(Value::as_str) == Some("Error");
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
                    Change::Applied(object) => match keeps(&object) {
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
                "the resource stays stopped and unchanged; its requested state was {}: run \"hactl set {name} state={}\"",
                before.as_str().unwrap_or("Started"),
                before.as_str().unwrap_or("Started")
            ))
        })?;
        Ok(before)
    }
}

/// Returns the reason why the edit is not allowed yet; `None` if it is allowed.
fn keeps(object: &Value) -> Option<String> {
    let status = &object["status"];
    let state = status["state"].as_str().unwrap_or("Queued");
    let copies: Vec<&str> =
        status["copies"].as_array().into_iter().flatten().filter_map(|copy| copy["node"].as_str()).collect();
    match state {
        "Stopped" | "Disabled" if copies.is_empty() => None,
        "Stopped" | "Disabled" => Some(format!("{state}, node {} may still run a copy", copies.join(", "))),
        _ => Some(format!("state {state}")),
    }
}

/// Returns the patch with its requested state, or with the state from before the stop if it has none.
pub(crate) fn with_state(mut patch: Value, wanted: Option<&Value>, before: &Value) -> Value {
    if !patch["spec"].is_object() {
        patch["spec"] = json!({});
    }
    patch["spec"]["state"] = wanted.unwrap_or(before).clone();
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_waits_for_the_state_and_the_copies() {
        let of = |state: &str, copies: Value| keeps(&json!({"status": {"state": state, "copies": copies}}));
        assert_eq!(of("Stopped", json!([])), None);
        assert_eq!(of("Disabled", Value::Null), None);
        assert_eq!(of("Stopping", json!([])), Some("state Stopping".to_owned()));
        assert_eq!(
            of("Stopped", json!([{"node": "n1"}])),
            Some("Stopped, node n1 may still run a copy".to_owned())
        );
        assert_eq!(keeps(&json!({})), Some("state Queued".to_owned()));
    }

    #[test]
    fn the_requested_state_comes_back_with_the_edit() {
        let edit = json!({"spec": {"exclusive": true}});
        let before = json!("Started");
        assert_eq!(with_state(edit.clone(), None, &before)["spec"]["state"], "Started");
        assert_eq!(with_state(edit, Some(&json!("Disabled")), &before)["spec"]["state"], "Disabled");
    }
}
