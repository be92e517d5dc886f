//! `hactl node maintenance`: services leave a node, and may come back.

use crate::client::{Change, Collection, Commitment, Watcher};
use crate::command::wait::{WaitFlags, bounded, where_it_is};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::name_of;
use crate::render::columns::condition;
use crate::session::Session;
use clap::{Args, Subcommand};
use ha_api_types::kind::Kind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an explanation may take.
const HELP_WITHIN: Duration = Duration::from_secs(5);

/// What to do about maintenance.
#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Move every started service away and let no new ones come
    Enable(Maintenance),
    /// Let services come again; what was moved for the maintenance returns
    Disable(Maintenance),
}

#[derive(Args, Debug)]
pub(super) struct Maintenance {
    /// The node
    node: String,
    #[command(flatten)]
    wait: WaitFlags,
}

impl Command {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        match self {
            Command::Enable(maintenance) => enable(session, maintenance).await,
            Command::Disable(maintenance) => disable(session, maintenance).await,
        }
    }
}

/// Sets `spec.maintenance`; gives the node's name, and `false` if it was so already.
async fn change(
    session: &Session,
    maintenance: &Maintenance,
    wanted: bool,
) -> Result<(String, bool), Failure> {
    session.format(&[])?;
    let client = session.client()?;
    let target = crate::command::node(&maintenance.node)?;
    let node = client.target(&target).await?;
    let name = target.name.name;
    let changed = (node["spec"]["maintenance"] == true) != wanted;
    if changed {
        client.patch(Kind::Node, &name, &json!({"spec": {"maintenance": wanted}}), Commitment::Real).await?;
    }
    Ok((name, changed))
}

async fn enable(session: &Session, maintenance: &Maintenance) -> Outcome {
    let (name, changed) = change(session, maintenance, true).await?;
    let name = name.as_str();
    let what_is = if changed { "maintenance enabled" } else { "is in maintenance already" };
    session.terminal().say(&format!("node/{name} {what_is}"));
    if maintenance.wait.wait {
        let what = format!("node/{name} is not empty");
        let mut left = BTreeMap::new();
        let emptied = bounded(maintenance.wait.timeout, &what, until_empty(session, name, &mut left)).await;
        if let Err(failure) = emptied {
            let mut lines = String::new();
            for (service, why) in &left {
                lines += &format!("\n{service}: {why}");
                for help in what_helps(session, service).await {
                    lines += &format!("\n  what would help: {help}");
                }
            }
            return Err(Failure { message: format!("{}{lines}", failure.message), ..failure });
        }
        session.terminal().say(&format!("node/{name} is empty"));
    }
    Ok(Exit::Done)
}

/// Follows the services until none on the node runs or is on its way; `left` always holds those, and why.
async fn until_empty(
    session: &Session,
    node: &str,
    left: &mut BTreeMap<String, String>,
) -> Result<(), Failure> {
    let mut watcher = Watcher::new(session.client()?, Collection::Kind(Kind::Resource), Vec::new());
    let mut synced = false;
    let mut shown = String::new();
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    let mut stuck: BTreeSet<String> = BTreeSet::new();
    loop {
        match watcher.next().await? {
            Change::Applied(resource) => {
                let name = name_of(&resource).to_owned();
                if is_stuck(&resource) {
                    stuck.insert(name.clone());
                } else {
                    stuck.remove(&name);
                }
                if occupies(&resource, node) {
                    left.insert(name, where_it_is(Kind::Resource, &resource));
                } else {
                    left.remove(&name);
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
        let line = format!("{} left on {node}: {}", left.len(), names.join(", "));
        if line != shown {
            session.terminal().progress(&line);
            shown = line;
        }
        for (service, why) in left.iter() {
            if told.get(service) != Some(why) {
                session.terminal().progress(&format!("  {service}: {why}"));
                if stuck.contains(service) {
                    for help in what_helps(session, service).await {
                        session.terminal().progress(&format!("    what would help: {help}"));
                    }
                }
                told.insert(service.clone(), why.clone());
            }
        }
    }
}

/// What would let a service leave, as the controller explains it; nothing when it cannot be asked in time.
async fn what_helps(session: &Session, service: &str) -> Vec<String> {
    let Ok(client) = session.client() else { return Vec::new() };
    match tokio::time::timeout(HELP_WITHIN, client.explanation(service)).await {
        Ok(Ok(explanation)) => explanation.help,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Whether the leader says that a service cannot go on by itself.
fn is_stuck(resource: &Value) -> bool {
    condition(resource, "Stalled").is_some_and(|stalled| stalled["status"] == "True")
}

/// Whether a service keeps a node from being empty: it is there and not at rest.
fn occupies(resource: &Value, node: &str) -> bool {
    let status = &resource["status"];
    let at_rest = matches!(
        status["state"].as_str().unwrap_or_default(),
        "Stopped" | "Disabled" | "Ignored" | "Error" | "Queued" | "Recovery"
    );
    status["node"] == node && (status["running"] == true || !at_rest)
}

async fn disable(session: &Session, maintenance: &Maintenance) -> Outcome {
    let (name, changed) = change(session, maintenance, false).await?;
    let what_is = if changed { "maintenance disabled" } else { "is not in maintenance" };
    session.terminal().say(&format!("node/{name} {what_is}"));
    if maintenance.wait.wait {
        let what = format!("node/{name} is still in maintenance");
        let mut watcher = Watcher::object(session.client()?, Kind::Node, &name);
        bounded(maintenance.wait.timeout, &what, async {
            loop {
                match watcher.next().await? {
                    Change::Applied(node) if node["status"]["state"] != "Maintenance" => return Ok(()),
                    Change::Applied(_) | Change::Synced => {}
                    Change::Deleted(_) => return Err(Failure::refused(format!("node/{name} was deleted"))),
                }
            }
        })
        .await?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_empty_when_nothing_there_runs_or_moves() {
        let check = |status: Value, expected: bool| {
            assert_eq!(occupies(&json!({"status": status}), "node1"), expected);
        };
        check(json!({"node": "node1", "state": "Started", "running": true}), true);
        check(json!({"node": "node1", "state": "Migrate", "running": true}), true);
        check(json!({"node": "node1", "state": "Starting", "running": false}), true);
        check(json!({"node": "node1", "state": "Stopped", "running": false}), false);
        check(json!({"node": "node1", "state": "Error", "running": true}), true);
        check(json!({"node": "node2", "state": "Started", "running": true}), false);
        check(json!({}), false);
    }
}
