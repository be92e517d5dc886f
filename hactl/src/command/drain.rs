//! `hactl cordon`, `hactl uncordon` and `hactl drain`: block a node, or empty it, as kubectl does.

use super::diff::show_effects;
use super::dry_run::{DryRun, DryRunFlag};
use super::node::maintenance::{enable, wait_until_drained};
use crate::client::WriteMode;
use crate::failure::{Exit, Failure, Outcome};
use crate::object::TypedObject;
use crate::session::Session;
use clap::Args;
use ha_api_types::kind::Kind;
use ha_api_types::node::NodeSpec;
use ha_api_types::view::PlanRequest;
use serde_json::{Value, json};
use std::time::Duration;

/// Block new placements on nodes; their services keep running
#[derive(Args, Debug)]
#[command(after_help = "To also move the services away: hactl drain NODE. To undo: hactl uncordon NODE.")]
pub(crate) struct Cordon {
    #[command(flatten)]
    nodes: NodeArguments,
}

/// Allow placements on nodes again; ends their maintenance
#[derive(Args, Debug)]
#[command(
    after_help = "Services that were moved for maintenance return, as after: hactl node maintenance disable NODE."
)]
pub(crate) struct Uncordon {
    #[command(flatten)]
    nodes: NodeArguments,
}

/// Enable maintenance of nodes and wait until they are empty
#[derive(Args, Debug)]
#[command(
    after_help = "Same as: hactl node maintenance enable NODE --wait. To undo: hactl uncordon NODE, which also returns the services.\n\
        If several nodes are named, all are cordoned first, so that no service moves between them.\n\n\
        Examples:\n  hactl drain node1\n  hactl drain node1 node2 --timeout 30m\n  hactl drain node1 --dry-run"
)]
pub(crate) struct Drain {
    #[command(flatten)]
    nodes: NodeArguments,
    /// Maximum time to wait; at expiry, exit with 124 (maintenance continues)
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = crate::duration::parse)]
    timeout: Duration,
}

// The nodes of a command. (A doc comment would replace the help of each command that uses it.)
#[derive(Args, Debug)]
struct NodeArguments {
    /// Names of the nodes
    #[arg(value_name = "NODE", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    dry_run: DryRunFlag,
}

impl Cordon {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        self.nodes
            .set_fields(session, |spec| !spec.is_schedulable(), &json!({"unschedulable": true}), "cordoned")
            .await
    }
}

impl Uncordon {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let schedulable_fields = json!({"unschedulable": false, "maintenance": false});
        let is_schedulable = |spec: &NodeSpec| spec.is_schedulable() && !spec.maintenance;
        self.nodes.set_fields(session, is_schedulable, &schedulable_fields, "uncordoned").await
    }
}

impl Drain {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let nodes = self.nodes.read(session).await?;
        match self.nodes.dry_run.mode {
            DryRun::None => {
                enable_all(session, &nodes, DryRun::None).await?;
                let names: Vec<&str> = nodes.iter().map(TypedObject::name).collect();
                wait_until_drained(session, &names, self.timeout).await?;
            }
            DryRun::Server => {
                // The dry run of a single node does not include the drains of the other nodes. The effects of all
                // drains together are therefore shown instead.
                session.terminal().hold_warnings();
                let result = show_drain_effects(session, &nodes).await;
                session.terminal().release_warnings(|_| nodes.len() == 1);
                result?;
            }
            DryRun::Client => {
                enable_all(session, &nodes, DryRun::Client).await?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Marks nodes unschedulable before they are drained. [`enable_all`] restores the nodes' own setting.
async fn make_unschedulable(session: &Session, nodes: &[TypedObject<NodeSpec>]) -> Result<(), Failure> {
    let client = session.client()?;
    let patch = json!({"spec": {"unschedulable": true}});
    for node in nodes.iter().filter(|node| !node.spec.maintenance && node.spec.is_schedulable()) {
        client.patch(Kind::Node, node.name(), &patch, WriteMode::Persist).await?;
    }
    Ok(())
}

/// Enables the maintenance of all nodes. Returns the nodes as they are stored, or would be after a dry run.
async fn enable_all(
    session: &Session,
    nodes: &[TypedObject<NodeSpec>],
    dry_run: DryRun,
) -> Result<Vec<Value>, Failure> {
    // After each enabled maintenance, the leader moves services. They must not move to a node that is drained next.
    let is_made_unschedulable = matches!(dry_run, DryRun::None) && nodes.len() > 1;
    if is_made_unschedulable {
        make_unschedulable(session, nodes).await?;
    }
    let mut changed = Vec::new();
    for node in nodes {
        changed.push(enable(session, node, dry_run, is_made_unschedulable).await?);
    }
    Ok(changed)
}

/// Shows where the services of nodes would move.
async fn show_drain_effects(session: &Session, nodes: &[TypedObject<NodeSpec>]) -> Result<(), Failure> {
    let objects = enable_all(session, nodes, DryRun::Server).await?;
    show_effects(session, &PlanRequest { objects, deletions: Vec::new() }).await
}

impl NodeArguments {
    /// Returns the nodes. All of them must exist before any node is changed.
    async fn read(&self, session: &Session) -> Result<Vec<TypedObject<NodeSpec>>, Failure> {
        let mut nodes = Vec::new();
        for name in &self.names {
            nodes.push(session.client()?.node(&super::parse_node(name)?).await?);
        }
        Ok(nodes)
    }

    /// Merges fields into the spec of each node that does not have them.
    async fn set_fields(
        &self,
        session: &Session,
        has_fields: fn(&NodeSpec) -> bool,
        fields: &Value,
        outcome_word: &str,
    ) -> Outcome {
        session.format(&[])?;
        for node in self.read(session).await? {
            let name = node.name();
            let already = if has_fields(&node.spec) { "already " } else { "" };
            if let Some(write_mode) = self.dry_run.mode.write_mode().filter(|_| already.is_empty()) {
                session.client()?.patch(Kind::Node, name, &json!({"spec": fields}), write_mode).await?;
            }
            let suffix = self.dry_run.mode.suffix();
            session.terminal().report(&format!("node/{name} {already}{outcome_word}{suffix}"));
        }
        Ok(Exit::Done)
    }
}
