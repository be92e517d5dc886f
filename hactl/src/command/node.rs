//! `hactl node`: maintenance, confirming that a node is off, and the list.

use super::operate::{Patience, carry_out};
use super::wait::{WaitFlags, bounded, where_it_is};
use crate::client::{Change, Collection, Commitment, Watcher};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::name_of;
use crate::render::{Format, age, columns};
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use ha_api_types::kind::Kind;
use ha_api_types::operation::{OperationAction, OperationSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Nodes: list, maintenance, confirming that one is off
#[derive(Args, Debug)]
pub(crate) struct Node {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Subcommand, Debug)]
enum NodeCommand {
    /// List the nodes
    List,
    /// Move a node's services away and keep new ones out, or let them come back
    #[command(subcommand)]
    Maintenance(MaintenanceCommand),
    /// State that a node is off, so that its services may run elsewhere: only when you have made sure of it
    ConfirmFenced(ConfirmFenced),
}

#[derive(Subcommand, Debug)]
enum MaintenanceCommand {
    /// Move every started service away and let no new ones come
    Enable(Maintenance),
    /// Let services come again; what was moved for the maintenance returns
    Disable(Maintenance),
}

#[derive(Args, Debug)]
struct Maintenance {
    /// The node
    node: String,
    #[command(flatten)]
    wait: WaitFlags,
}

#[derive(Args, Debug)]
struct ConfirmFenced {
    /// The node
    node: String,
    /// Do not ask: you have made sure that the machine is off
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    patience: Patience,
}

impl Node {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.command {
            NodeCommand::List => list(session).await,
            NodeCommand::Maintenance(MaintenanceCommand::Enable(maintenance)) => {
                enable(session, maintenance).await
            }
            NodeCommand::Maintenance(MaintenanceCommand::Disable(maintenance)) => {
                disable(session, maintenance).await
            }
            NodeCommand::ConfirmFenced(confirm) => confirm_fenced(session, confirm).await,
        }
    }
}

async fn list(session: &Session) -> Outcome {
    let format = session.format(&[Format::Wide])?;
    let wide = format == Some(Format::Wide);
    let nodes = session.client()?.list(Collection::Kind(Kind::Node), &[]).await?;
    let mut table = columns::table(Kind::Node, wide);
    for node in &nodes.items {
        table.row(columns::row(Kind::Node, node, wide, false));
    }
    session.terminal().out(&table.render(session.terminal(), 0));
    Ok(Exit::Done)
}

async fn enable(session: &Session, maintenance: &Maintenance) -> Outcome {
    session.format(&[])?;
    let client = session.client()?;
    let target = super::node(&maintenance.node)?;
    let node = client.target(&target).await?;
    let name = &target.name.name;
    if node["spec"]["maintenance"] == true {
        session.terminal().say(&format!("node/{name} is in maintenance already"));
    } else {
        let state = node["status"]["state"].as_str().unwrap_or("Unknown");
        if state != "Online" {
            return Err(Failure::refused(format!(
                "node/{name} is {state}, so its services cannot be moved away"
            ))
            .help("wait until it is Online, or take care of it as it is: hactl status"));
        }
        client.patch(Kind::Node, name, &json!({"spec": {"maintenance": true}}), Commitment::Real).await?;
        session.terminal().say(&format!("node/{name} maintenance enabled"));
    }
    if maintenance.wait.wait {
        let what = format!("node/{name} is not empty");
        let mut left = BTreeMap::new();
        let emptied = bounded(maintenance.wait.timeout, &what, until_empty(session, name, &mut left)).await;
        if let Err(failure) = emptied {
            let lines: Vec<String> = left.iter().map(|(name, why)| format!("\n{name}: {why}")).collect();
            return Err(Failure { message: format!("{}{}", failure.message, lines.concat()), ..failure });
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
    loop {
        match watcher.next().await? {
            Change::Applied(resource) => {
                let name = name_of(&resource).to_owned();
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
    }
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
    session.format(&[])?;
    let client = session.client()?;
    let target = super::node(&maintenance.node)?;
    let node = client.target(&target).await?;
    let name = &target.name.name;
    if node["spec"]["maintenance"] == true {
        client.patch(Kind::Node, name, &json!({"spec": {"maintenance": false}}), Commitment::Real).await?;
        session.terminal().say(&format!("node/{name} maintenance disabled"));
    } else {
        session.terminal().say(&format!("node/{name} is not in maintenance"));
    }
    if maintenance.wait.wait {
        let what = format!("node/{name} is still in maintenance");
        let mut watcher = Watcher::object(client, Kind::Node, name);
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

async fn confirm_fenced(session: &Session, confirm: &ConfirmFenced) -> Outcome {
    let target = super::node(&confirm.node)?;
    let node = session.client()?.target(&target).await?;
    let name = &target.name.name;
    let status = &node["status"];
    let epoch = status["epoch"].as_u64();
    let boot_id = status["bootId"].as_str().map(str::to_owned);
    if !confirm.yes {
        let state = status["state"].as_str().unwrap_or("Unknown");
        let seen = age(status["lastSeen"].as_str());
        let services = status["services"].as_u64().unwrap_or(0);
        let question = format!(
            "node {name} is {state}, last seen {seen} ago, with {services} services.\n\
             If it still runs, they will run twice and their data may be destroyed.\n\
             Have you made sure, at the machine itself, that {name} is powered off?"
        );
        if !Terminal::confirm(&question)? {
            return Err(Failure::refused("not confirmed: nothing was changed"));
        }
    }
    let spec = OperationSpec {
        action: OperationAction::ConfirmFenced,
        node: Some(name.clone()),
        epoch,
        boot_id,
        ..OperationSpec::default()
    };
    carry_out(session, spec, &confirm.patience).await
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
