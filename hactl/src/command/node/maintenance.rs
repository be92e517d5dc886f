//! `hactl node maintenance`: moves services away from a node, or allows their return.

use crate::client::{Change, Collection, Watcher};
use crate::command::dry_run::DryRun;
use crate::command::wait::{WaitFlags, bounded, is_stuck, timed_out, where_it_is};
use crate::failure::{Exit, Failure, Outcome};
use crate::merge;
use crate::names::name_of;
use crate::object::{AnyObject, Served};
use crate::session::Session;
use clap::{Args, Subcommand};
use ha_api_types::kind::Kind;
use ha_api_types::node::NodeSpec;
use ha_api_types::resource::{ResourceSpec, ServiceState};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest wait for an explanation.
const HELP_WITHIN: Duration = Duration::from_secs(5);

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
struct Left {
    /// State of the service, with its message.
    why: String,
    /// Whether a message exists, so that the service is not merely running.
    is_explained: bool,
    /// Whether the service cannot continue automatically.
    is_stuck: bool,
}

impl Left {
    fn of(resource: &AnyObject) -> Left {
        let mut why = where_it_is(Kind::Resource, resource);
        // A running service is ready, but may have a reason to stay.
        let ready = resource.condition("Ready").filter(|ready| ready.reason != "Running");
        let said = ready.map_or("", |ready| &ready.message);
        if !why.contains(said) {
            why += &format!(": {said}");
        }
        Left { why, is_explained: !said.is_empty(), is_stuck: is_stuck(resource) }
    }
}

impl Command {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let (Command::Enable(Maintenance { node, wait }) | Command::Disable(Maintenance { node, wait })) =
            self;
        let node = session.client()?.node(&crate::command::node(node)?).await?;
        match self {
            Command::Enable(_) => {
                enable(session, &node, DryRun::None, false).await?;
                if wait.wait {
                    until_drained(session, &[node.name()], wait.timeout).await?;
                }
            }
            Command::Disable(_) => disable(session, &node, wait).await?,
        }
        Ok(Exit::Done)
    }
}

/// Enables the maintenance of a node. Returns the node as it is stored, or as a dry run would store it. If `is_blocked`,
/// the caller has made the node unschedulable after reading it, and the node's own setting is restored.
pub(in crate::command) async fn enable(
    session: &Session,
    node: &Served<NodeSpec>,
    dry_run: DryRun,
    is_blocked: bool,
) -> Result<Value, Failure> {
    let changed = change(session, node, true, dry_run, is_blocked).await?;
    let what_is = if changed.is_some() { "maintenance enabled" } else { "already in maintenance" };
    session.terminal().say(&format!("node/{} {what_is}{}", node.name(), dry_run.suffix()));
    Ok(changed.unwrap_or_else(|| node.value.clone()))
}

/// Sets `spec.maintenance`. Returns the changed node; `None` if the node already had this value.
async fn change(
    session: &Session,
    node: &Served<NodeSpec>,
    wanted: bool,
    dry_run: DryRun,
    is_blocked: bool,
) -> Result<Option<Value>, Failure> {
    if node.spec.maintenance == wanted {
        return Ok(None);
    }
    let mut spec = json!({"maintenance": wanted});
    if is_blocked {
        // The value as it was received: null removes the field if the node had none.
        spec["schedulable"] = node.value["spec"]["schedulable"].clone();
    }
    let patch = json!({"spec": spec});
    Ok(Some(match dry_run.commitment() {
        Some(commitment) => session.client()?.patch(Kind::Node, node.name(), &patch, commitment).await?,
        None => merge::patched(&node.value, &patch),
    }))
}

/// Waits until all nodes in maintenance are empty. The error of a timeout lists the services that are left.
pub(in crate::command) async fn until_drained(
    session: &Session,
    nodes: &[&str],
    timeout: Duration,
) -> Result<(), Failure> {
    let started = Instant::now();
    for node in nodes {
        let mut left = BTreeMap::new();
        let remaining = timeout.saturating_sub(started.elapsed());
        let emptied = tokio::time::timeout(remaining, until_empty(session, node, &mut left)).await;
        let emptied = emptied.unwrap_or_else(|_| {
            Err(timed_out(timeout, &format!("node/{node} still has services"))
                .help(format!("the maintenance continues; run \"hactl drain {node}\" to wait again")))
        });
        if let Err(failure) = emptied {
            let mut lines = String::new();
            for (service, Left { why, .. }) in &left {
                lines += &format!("\n{service}: {why}");
                for help in what_helps(session, service).await {
                    lines += &format!("\n  suggested action: {help}");
                }
            }
            return Err(Failure { message: format!("{}{lines}", failure.message), ..failure });
        }
        session.terminal().say(&format!("node/{node} drained"));
    }
    Ok(())
}

/// Waits until no service on the node runs or is in transition. Keeps `left` up to date.
async fn until_empty(
    session: &Session,
    node: &str,
    left: &mut BTreeMap<String, Left>,
) -> Result<(), Failure> {
    let mut watcher = Watcher::new(session.client()?, Collection::Kind(Kind::Resource), Vec::new());
    let mut synced = false;
    let mut shown = String::new();
    let mut told: BTreeMap<String, Left> = BTreeMap::new();
    loop {
        match watcher.next().await? {
            Change::Applied(resource) => {
                let left_over = Left::of(&AnyObject::of(&resource));
                let resource = Served::of(resource);
                if occupies(&resource, node) {
                    left.insert(resource.metadata.name, left_over);
                } else {
                    left.remove(resource.name());
                }
            }
            Change::Deleted(resource) => {
                left.remove(name_of(&resource));
            }
            Change::Synced => synced = true,
        }
        if !synced {
            continue;
        }
        if left.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = left.keys().map(String::as_str).collect();
        let line = format!("services left on {node} ({}): {}", left.len(), names.join(", "));
        if line != shown {
            session.terminal().progress(&line);
            shown = line;
        }
        for (service, one) in left.iter().filter(|(service, one)| told.get(*service) != Some(*one)) {
            let line = format!("{service}: {}", one.why);
            if one.is_explained {
                session.terminal().held_up(&line);
            } else {
                session.terminal().progress(&line);
            }
            if one.is_stuck {
                for help in what_helps(session, service).await {
                    session.terminal().progress(&format!("  suggested action: {help}"));
                }
            }
        }
        told.clone_from(left);
    }
}

/// Returns the controller's suggested actions for a service that stays; empty if the controller does not answer in time.
async fn what_helps(session: &Session, service: &str) -> Vec<String> {
    let Ok(client) = session.client() else { return Vec::new() };
    match tokio::time::timeout(HELP_WITHIN, client.explanation(service)).await {
        Ok(Ok(explanation)) => explanation.help,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Returns `true` if a service keeps a node from being empty: it is on the node and not at rest.
fn occupies(resource: &Served<ResourceSpec>, node: &str) -> bool {
    use ServiceState::{Disabled, Error, Ignored, Queued, Recovery, Stopped};
    let at_rest = matches!(resource.state(), Some(Stopped | Disabled | Ignored | Error | Queued | Recovery));
    let status = resource.status.as_ref();
    status.is_some_and(|status| status.node.as_deref() == Some(node) && (status.running || !at_rest))
}

async fn disable(session: &Session, node: &Served<NodeSpec>, wait: &WaitFlags) -> Result<(), Failure> {
    let name = node.name();
    let changed = change(session, node, false, DryRun::None, false).await?;
    let what_is = if changed.is_some() { "maintenance disabled" } else { "not in maintenance" };
    session.terminal().say(&format!("node/{name} {what_is}"));
    if !wait.wait {
        return Ok(());
    }
    let what = format!("node/{name} is still in maintenance");
    let mut watcher = Watcher::object(session.client()?, Kind::Node, name);
    bounded(wait.timeout, &what, async {
        loop {
            match watcher.next().await? {
                Change::Applied(node) if AnyObject::of(&node).status.state != "Maintenance" => return Ok(()),
                Change::Applied(_) | Change::Synced => {}
                Change::Deleted(_) => return Err(Failure::refused(format!("node/{name} was deleted"))),
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_service_that_is_left() {
        let check = |ready: Value, stalled: &str, why: &str, is_explained: bool, is_stuck: bool| {
            let resource = json!({"status": {"state": "Started", "node": "node1", "conditions": [
                ready, {"type": "Stalled", "status": stalled, "message": "no node can take it"}]}});
            assert_eq!(
                Left::of(&AnyObject::of(&resource)),
                Left { why: why.to_owned(), is_explained, is_stuck }
            );
        };
        let ready = |status: &str, reason: &str, message: &str| json!({"type": "Ready", "status": status, "reason": reason, "message": message});
        let runs = ready("True", "Running", "Running on node1");
        check(runs, "False", "Started on node1", false, false);
        let failed = ready("True", "MoveFailed", "its move to node2 failed");
        check(failed, "False", "Started on node1: its move to node2 failed", true, false);
        let nowhere = ready("True", "Draining", "no node can take it");
        check(nowhere, "True", "Started on node1: no node can take it", true, true);
        let waits = ready("False", "Waiting", "it waits");
        check(waits, "False", "Started on node1: it waits", true, false);
    }

    #[test]
    fn a_node_is_empty_when_nothing_there_runs_or_moves() {
        let check = |status: Value, expected: bool| {
            assert_eq!(occupies(&Served::of(json!({"status": status})), "node1"), expected);
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
