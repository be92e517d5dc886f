//! `hactl node`: controls maintenance, shutdown, watchdog tests and fencing.

pub(super) mod maintenance;
mod not_here;
mod watchdog;

use super::operate::{OperationWaitFlags, run_operation};
use super::store::{AddNode, RemoveNode};
use crate::failure::{Failure, Outcome};
use crate::object::TypedObject;
use crate::render::age;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use ha_api_types::meta::Condition;
use ha_api_types::names::count_with_noun;
use ha_api_types::node::{NodeSpec, NodeState, NodeStatus};
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_api_types::reason::Reason;

/// Manage nodes: maintenance, watchdog tests, fencing
#[derive(Args, Debug)]
pub(crate) struct Node {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Subcommand, Debug)]
enum NodeCommand {
    /// Removed: use "hactl get nodes"
    #[command(hide = true)]
    List,
    /// Create the etcd user of a new node
    Add(AddNode),
    /// Delete a node that is not in use, and its etcd user
    Remove(RemoveNode),
    /// Show the watchdog of a node
    Watchdog(watchdog::Watchdog),
    /// Drain a node and block new placements, or end maintenance
    #[command(subcommand)]
    Maintenance(maintenance::Command),
    /// Continue a node shutdown without waiting for services to move
    ShutdownContinue(ShutdownContinue),
    /// WARNING: resets the node. Test the watchdog of a drained node
    #[command(mut_arg("yes", |yes| yes.help("Confirm that the node may be reset now; do not ask")))]
    TestWatchdog(ConfirmedOperation),
    /// WARNING: stops the node without a shutdown. Fence a node with its fence devices
    Fence(ConfirmedOperation),
    /// WARNING: data loss if services started before fencing still run. Reconnect a fenced node
    Unfence(ConfirmedOperation),
    /// WARNING: data loss if the former etcd is in use. Permit a node to use this etcd
    #[command(mut_arg("yes", |yes| yes.help("Confirm that this is the right etcd for the node; do not ask")))]
    FollowStore(FollowStore),
    /// WARNING: data loss if wrong. Confirm that services do not run on a node
    NotHere(not_here::NotHere),
    /// WARNING: data loss if NODE still runs. Confirm that it is powered off
    #[command(mut_arg("yes", |yes| yes.help("Confirm that the node is powered off; do not ask")))]
    ConfirmFenced(ConfirmedOperation),
}

#[derive(Args, Debug)]
struct ShutdownContinue {
    /// Name of the node
    node: String,
    #[command(flatten)]
    wait_flags: OperationWaitFlags,
}

#[derive(Args, Debug)]
struct FollowStore {
    /// Name of the node
    node: String,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    wait_flags: OperationWaitFlags,
}

// The arguments of an operation that the operator must confirm. (A doc comment would replace the help of each command
// that uses them.)
#[derive(Args, Debug)]
struct ConfirmedOperation {
    /// Name of the node
    node: String,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    wait_flags: OperationWaitFlags,
}

/// The part of a node's observed identity that an operation contains. If it differs from the actual identity, the
/// leader refuses the operation.
#[derive(Clone, Copy)]
enum IdentityGuard {
    Nothing,
    Boot,
    EpochAndBoot,
}

impl Node {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.command {
            NodeCommand::List => {
                Err(Failure::usage("hactl node list was removed").help("run \"hactl get nodes\""))
            }
            NodeCommand::Add(add) => add.run(session).await,
            NodeCommand::Remove(remove) => remove.run(session).await,
            NodeCommand::Watchdog(watchdog) => watchdog.run(session).await,
            NodeCommand::Maintenance(command) => command.run(session).await,
            NodeCommand::ShutdownContinue(arguments) => shutdown_continue(session, arguments).await,
            NodeCommand::FollowStore(arguments) => follow_store(session, arguments).await,
            NodeCommand::TestWatchdog(command) => {
                command.run(session, OperationAction::TestWatchdog, IdentityGuard::Boot, reset_question).await
            }
            NodeCommand::Fence(command) => {
                command.run(session, OperationAction::Fence, IdentityGuard::Nothing, fence_question).await
            }
            NodeCommand::Unfence(command) => {
                command
                    .run(
                        session,
                        OperationAction::Unfence,
                        IdentityGuard::EpochAndBoot,
                        services_ended_question,
                    )
                    .await
            }
            NodeCommand::NotHere(not_here) => not_here.run(session).await,
            NodeCommand::ConfirmFenced(command) => {
                command
                    .run(
                        session,
                        OperationAction::ConfirmFenced,
                        IdentityGuard::EpochAndBoot,
                        powered_off_question,
                    )
                    .await
            }
        }
    }
}

impl ConfirmedOperation {
    /// Asks for confirmation unless `--yes` is given, then records the operation.
    async fn run(
        &self,
        session: &Session,
        action: OperationAction,
        guard: IdentityGuard,
        question: fn(&str, &NodeStatus) -> String,
    ) -> Outcome {
        let node = session.client()?.node(&super::parse_node(&self.node)?).await?;
        let status = node.status.clone().unwrap_or_default();
        if !self.yes && !Terminal::confirm(&question(node.name(), &status))? {
            return Err(Failure::failed("not confirmed: nothing was changed"));
        }
        run_operation(session, operation(action, guard, &node), &self.wait_flags).await
    }
}

fn service_count(status: &NodeStatus) -> String {
    count_with_noun(status.services, "service")
}

fn powered_off_question(name: &str, status: &NodeStatus) -> String {
    // For a reachable node, the stored time is updated at most once a minute.
    let last_seen = match status.state {
        NodeState::Online | NodeState::Maintenance => String::new(),
        NodeState::Unknown | NodeState::Fence | NodeState::Offline | NodeState::Gone => {
            format!(", last seen {} ago", age(status.last_heartbeat_time.as_ref()))
        }
    };
    let now = format!("{}{last_seen}, with {}", state_sentence(name, status), service_count(status));
    let is_ready = |condition: &&Condition| condition.kind == "Ready";
    if status.conditions.iter().find(is_ready).is_none_or(|ready| ready.reason != Reason::DuplicateNode) {
        return format!(
            "WARNING: data loss if {name} still runs: its services would run twice.\n\
             {now}.\n\
             Confirm, at the machine itself, that {name} is powered off."
        );
    }
    let machine_id = if status.machine_id.is_empty() { "unknown" } else { &status.machine_id };
    format!(
        "WARNING: data loss if the previous machine of {name} still runs: its services would run twice.\n\
         {now}. Another machine registers under its name.\n\
         Confirm, at the previous machine itself (machine id {machine_id}), that it is powered off."
    )
}

fn reset_question(name: &str, status: &NodeStatus) -> String {
    let watchdog = status.watchdog.as_ref().map_or("the watchdog", |watchdog| &watchdog.identity);
    format!(
        "WARNING: {watchdog} resets {name} without a shutdown; data that is not on disk is lost.\n\
         The test is refused unless the node is in maintenance and runs no services. Reset {name} now?"
    )
}

fn fence_question(name: &str, status: &NodeStatus) -> String {
    format!(
        "WARNING: fencing stops {name} without a shutdown, as in a power failure.\n\
         {}, with {}. Its fence devices act immediately. Fence {name} now?",
        state_sentence(name, status),
        service_count(status)
    )
}

fn services_ended_question(name: &str, _: &NodeStatus) -> String {
    format!(
        "WARNING: data loss if a service that was started before fencing still runs on {name}: the service would run twice.\n\
         Node {name} regains access to storage without a reboot.\n\
         Confirm, at the machine itself, that no such service runs on {name}."
    )
}

fn state_sentence(name: &str, status: &NodeStatus) -> String {
    format!("Node {name} is {:?}", status.state)
}

async fn shutdown_continue(session: &Session, arguments: &ShutdownContinue) -> Outcome {
    let node = session.client()?.node(&super::parse_node(&arguments.node)?).await?;
    let spec = operation(OperationAction::ShutdownContinue, IdentityGuard::Boot, &node);
    run_operation(session, spec, &arguments.wait_flags).await
}

fn operation(action: OperationAction, guard: IdentityGuard, node: &TypedObject<NodeSpec>) -> OperationSpec {
    let status = node.status.as_ref();
    let epoch = || status.map(|status| status.epoch);
    let boot_id = || Some(status?.boot_id.clone()).filter(|boot_id| !boot_id.is_empty());
    let (epoch, boot_id) = match guard {
        IdentityGuard::Nothing => (None, None),
        IdentityGuard::Boot => (None, boot_id()),
        IdentityGuard::EpochAndBoot => (epoch(), boot_id()),
    };
    OperationSpec { action, node: Some(node.name().into()), epoch, boot_id, ..OperationSpec::default() }
}

async fn follow_store(session: &Session, arguments: &FollowStore) -> Outcome {
    let name = super::parse_node(&arguments.node)?.name.name;
    let question = format!(
        "WARNING: data loss if the former etcd of {name} is still in use: services may run twice.\n\
         The data recorded by node {name} differs from this etcd. Is this the right etcd for {name}?"
    );
    if !arguments.yes && !Terminal::confirm(&question)? {
        return Err(Failure::failed("not confirmed: nothing was changed"));
    }
    let spec = OperationSpec {
        action: OperationAction::FollowStore,
        node: Some(name.into()),
        ..OperationSpec::default()
    };
    run_operation(session, spec, &arguments.wait_flags).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::meta::ConditionStatus;

    #[test]
    fn the_confirmation_names_the_machine_that_must_be_off() {
        let node = |reason: Reason| {
            let ready = Condition {
                kind: "Ready".to_owned(),
                status: ConditionStatus::False,
                reason,
                message: String::new(),
                last_transition_time: None,
                observed_generation: 1,
            };
            NodeStatus {
                machine_id: "955882b1".to_owned().into(),
                conditions: vec![ready],
                ..NodeStatus::default()
            }
        };
        let question = powered_off_question("c4", &node(Reason::DuplicateNode));
        assert!(question.contains("the previous machine itself (machine id 955882b1)"), "{question}");
        let question = powered_off_question("c4", &node(Reason::HeartbeatMissed));
        assert!(question.contains("Confirm, at the machine itself, that c4 is powered off"), "{question}");
    }
}
