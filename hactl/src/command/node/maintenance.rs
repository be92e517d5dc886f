//! `hactl node maintenance`: moves services away from a node, or allows their return.

use crate::client::{Change, Collection, Watcher};
use crate::command::dry_run::DryRun;
use crate::command::wait::{WaitFlags, is_stuck, status_line, timed_out, with_timeout};
use crate::failure::{Exit, Failure, Outcome};
use crate::merge;
use crate::names::name_of;
use crate::object::{AnyObject, TypedObject};
use crate::session::Session;
use clap::{Args, Subcommand};
use ha_api_types::kind::Kind;
use ha_api_types::node::NodeSpec;
use ha_api_types::resource::{ResourceSpec, ServiceState};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest wait for an explanation.
const EXPLANATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The commands about maintenance.
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Drain a node and block new placements
    Enable(Maintenance),
    /// Allow placements again and return the services moved for maintenance
    Disable(Maintenance),
}

#[derive(Args, Debug)]
pub(super) struct Maintenance {
    /// Name of the node
    node: String,
    #[command(flatten)]
    wait: WaitFlags,
}

/// A service that is still on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RemainingService {
    /// State of the service, with its message.
    explanation: String,
    /// `true` if a message exists, which means that the service is not merely running.
    is_explained: bool,
    /// `true` if the service cannot continue automatically.
    is_stuck: bool,
}

impl RemainingService {
    fn new(resource: &AnyObject) -> RemainingService {
        let mut explanation = status_line(Kind::Resource, resource);
        // A running service is ready, but may have a reason why it stays on its node.
        let ready = resource.condition("Ready").filter(|ready| ready.reason != "Running");
        let ready_message = ready.map_or("", |ready| &ready.message);
        if !explanation.contains(ready_message) {
            explanation += &format!(": {ready_message}");
        }
        RemainingService {
            explanation,
            is_explained: !ready_message.is_empty(),
            is_stuck: is_stuck(resource),
        }
    }
}

impl Command {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let (Command::Enable(Maintenance { node, wait }) | Command::Disable(Maintenance { node, wait })) =
            self;
        let node = session.client()?.node(&crate::command::parse_node(node)?).await?;
        match self {
            Command::Enable(_) => {
                enable(session, &node, DryRun::None, false).await?;
                if wait.wait {
                    wait_until_drained(session, &[node.name()], wait.timeout).await?;
                }
            }
            Command::Disable(_) => disable(session, &node, wait).await?,
        }
        Ok(Exit::Done)
    }
}

/// Enables the maintenance of a node. Returns the node as it is stored, or as a dry run would store it. If
/// `is_made_unschedulable` is `true`, the caller has made the node unschedulable after reading it. In that case, the
/// node's own setting is restored.
pub(in crate::command) async fn enable(
    session: &Session,
    node: &TypedObject<NodeSpec>,
    dry_run: DryRun,
    is_made_unschedulable: bool,
) -> Result<Value, Failure> {
    let changed = set_maintenance(session, node, true, dry_run, is_made_unschedulable).await?;
    let outcome = if changed.is_some() { "maintenance enabled" } else { "already in maintenance" };
    session.terminal().report(&format!("node/{} {outcome}{}", node.name(), dry_run.suffix()));
    Ok(changed.unwrap_or_else(|| node.value.clone()))
}

/// Sets `spec.maintenance`. Returns the changed node; `None` if the node already had this value.
async fn set_maintenance(
    session: &Session,
    node: &TypedObject<NodeSpec>,
    enabled: bool,
    dry_run: DryRun,
    is_made_unschedulable: bool,
) -> Result<Option<Value>, Failure> {
    if node.spec.maintenance == enabled {
        return Ok(None);
    }
    let mut spec = json!({"maintenance": enabled});
    if is_made_unschedulable {
        // The value as it was received: null removes the field if the node had none.
        spec["unschedulable"] = node.value["spec"]["unschedulable"].clone();
    }
    let patch = json!({"spec": spec});
    Ok(Some(match dry_run.write_mode() {
        Some(write_mode) => session.client()?.patch(Kind::Node, node.name(), &patch, write_mode).await?,
        None => merge::with_merge_patch(&node.value, &patch),
    }))
}

/// Waits until all nodes in maintenance are empty. The error of a timeout lists the remaining services.
pub(in crate::command) async fn wait_until_drained(
    session: &Session,
    nodes: &[&str],
    timeout: Duration,
) -> Result<(), Failure> {
    let started = Instant::now();
    for node in nodes {
        let mut remaining_services = BTreeMap::new();
        let time_left = timeout.saturating_sub(started.elapsed());
        let result =
            tokio::time::timeout(time_left, wait_until_empty(session, node, &mut remaining_services)).await;
        let result = result.unwrap_or_else(|_| {
            Err(timed_out(timeout, &format!("node/{node} still has services"))
                .help(format!("the maintenance continues; run \"hactl drain {node}\" to wait again")))
        });
        if let Err(failure) = result {
            let mut lines = String::new();
            for (service, RemainingService { explanation, .. }) in &remaining_services {
                lines += &format!("\n{service}: {explanation}");
                for help in suggested_actions(session, service).await {
                    lines += &format!("\n  suggested action: {help}");
                }
            }
            return Err(Failure { message: format!("{}{lines}", failure.message), ..failure });
        }
        session.terminal().report(&format!("node/{node} drained"));
    }
    Ok(())
}

/// Waits until no service on the node runs or is in transition. Updates `remaining_services` at each poll.
async fn wait_until_empty(
    session: &Session,
    node: &str,
    remaining_services: &mut BTreeMap<String, RemainingService>,
) -> Result<(), Failure> {
    let mut watcher = Watcher::new(session.client()?, Collection::Kind(Kind::Resource), Vec::new());
    let mut synced = false;
    let mut printed_line = String::new();
    let mut shown_services: BTreeMap<String, RemainingService> = BTreeMap::new();
    loop {
        match watcher.next().await? {
            Change::Applied(resource) => {
                let service = RemainingService::new(&AnyObject::from_value(&resource));
                let resource = TypedObject::from_value(resource);
                if occupies(&resource, node) {
                    remaining_services.insert(resource.metadata.name, service);
                } else {
                    remaining_services.remove(resource.name());
                }
            }
            Change::Deleted(resource) => {
                remaining_services.remove(name_of(&resource));
            }
            Change::Synced => synced = true,
        }
        if !synced {
            continue;
        }
        if remaining_services.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = remaining_services.keys().map(String::as_str).collect();
        let line = format!("services left on {node} ({}): {}", remaining_services.len(), names.join(", "));
        if line != printed_line {
            session.terminal().progress(&line);
            printed_line = line;
        }
        for (service, remaining) in remaining_services
            .iter()
            .filter(|(service, remaining)| shown_services.get(*service) != Some(*remaining))
        {
            let line = format!("{service}: {}", remaining.explanation);
            if remaining.is_explained {
                session.terminal().notice(&line);
            } else {
                session.terminal().progress(&line);
            }
            if remaining.is_stuck {
                for help in suggested_actions(session, service).await {
                    session.terminal().progress(&format!("  suggested action: {help}"));
                }
            }
        }
        shown_services.clone_from(remaining_services);
    }
}

/// Returns the controller's suggested actions for a service that stays; empty if the controller does not answer in time.
async fn suggested_actions(session: &Session, service: &str) -> Vec<String> {
    let Ok(client) = session.client() else { return Vec::new() };
    match tokio::time::timeout(EXPLANATION_TIMEOUT, client.explanation(service)).await {
        Ok(Ok(explanation)) => explanation.help,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Returns `true` if a service keeps a node from being empty: it is on the node and not at rest.
fn occupies(resource: &TypedObject<ResourceSpec>, node: &str) -> bool {
    use ServiceState::{Disabled, Error, Ignored, Queued, Recovery, Stopped};
    let is_inactive =
        matches!(resource.state(), Some(Stopped | Disabled | Ignored | Error | Queued | Recovery));
    let status = resource.status.as_ref();
    status.is_some_and(|status| status.node.as_deref() == Some(node) && (status.running || !is_inactive))
}

async fn disable(session: &Session, node: &TypedObject<NodeSpec>, wait: &WaitFlags) -> Result<(), Failure> {
    let name = node.name();
    let changed = set_maintenance(session, node, false, DryRun::None, false).await?;
    let outcome = if changed.is_some() { "maintenance disabled" } else { "not in maintenance" };
    session.terminal().report(&format!("node/{name} {outcome}"));
    if !wait.wait {
        return Ok(());
    }
    let timeout_message = format!("node/{name} is still in maintenance");
    let mut watcher = Watcher::for_object(session.client()?, Kind::Node, name);
    with_timeout(wait.timeout, &timeout_message, async {
        loop {
            match watcher.next().await? {
                Change::Applied(node) if AnyObject::from_value(&node).status.state != "Maintenance" => {
                    return Ok(());
                }
                Change::Applied(_) | Change::Synced => {}
                Change::Deleted(_) => return Err(Failure::failed(format!("node/{name} was deleted"))),
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remaining_service_has_a_reason() {
        let check = |ready: Value, stalled: &str, explanation: &str, is_explained: bool, is_stuck: bool| {
            let resource = json!({"status": {"state": "Started", "node": "node1", "conditions": [
                ready, {"type": "Stalled", "status": stalled, "message": "no node can take it"}]}});
            assert_eq!(
                RemainingService::new(&AnyObject::from_value(&resource)),
                RemainingService { explanation: explanation.to_owned(), is_explained, is_stuck }
            );
        };
        let ready = |status: &str, reason: &str, message: &str| json!({"type": "Ready", "status": status, "reason": reason, "message": message});
        let runs = ready("True", "Running", "Running on node1");
        check(runs, "False", "Started on node1", false, false);
        let failed = ready("True", "MoveFailed", "its move to node2 failed");
        check(failed, "False", "Started on node1: its move to node2 failed", true, false);
        let nowhere = ready("True", "Draining", "no node can take it");
        check(nowhere, "True", "Started on node1: no node can take it", true, true);
        let waiting = ready("False", "Waiting", "it waits");
        check(waiting, "False", "Started on node1: it waits", true, false);
    }

    #[test]
    fn only_running_or_moving_services_occupy_a_node() {
        let check = |status: Value, expected: bool| {
            assert_eq!(occupies(&TypedObject::from_value(json!({"status": status})), "node1"), expected);
        };
        check(json!({"node": "node1", "state": "Started", "running": true}), true);
        check(json!({"node": "node1", "state": "Migrate", "running": true}), true);
        check(json!({"node": "node1", "state": "Starting", "running": false}), true);
        check(json!({"node": "node1", "state": "Stopped", "running": false}), false);
        check(json!({"node": "node1", "state": "Error", "running": true}), true);
        check(json!({"node": "node1", "state": "Hibernated", "running": false}), true);
        check(json!({"node": "node2", "state": "Started", "running": true}), false);
        check(json!({}), false);
    }
}
