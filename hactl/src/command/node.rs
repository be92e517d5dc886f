//! `hactl node`: lists nodes, and controls maintenance, shutdown, watchdog tests and fencing.

mod maintenance;
mod not_here;
mod watchdog;

use super::operate::{Patience, carry_out};
use crate::client::Collection;
use crate::failure::{Exit, Failure, Outcome};
use crate::render::{Format, age, columns};
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use ha_api_types::kind::Kind;
use ha_api_types::operation::{OperationAction, OperationSpec};
use serde_json::Value;

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
    /// Show a node's watchdog: device, identity, timeout, whether it is armed, and the margin seen
    Watchdog(watchdog::Watchdog),
    /// Move a node's services away and keep new ones out, or let them come back
    #[command(subcommand)]
    Maintenance(maintenance::Command),
    /// Let a machine that shuts down go on without waiting for its services to move away
    ShutdownContinue(ShutdownContinue),
    /// Let a node's watchdog reset the machine, to see that it does: of a node in maintenance with nothing active
    #[command(mut_arg("yes", |yes| yes.help("Do not ask: the machine may go down now")))]
    TestWatchdog(Asked),
    /// Fence a node with its devices now, whatever its heartbeat says: its services run elsewhere
    Fence(Asked),
    /// Let a node that a fabric device has cut off in again without another boot: only when nothing of before runs there
    Unfence(Asked),
    /// Let a node follow this etcd although the node remembers other data: only after a restore that is meant
    #[command(mut_arg("yes", |yes| yes.help("Do not ask: this etcd is the right one for the node")))]
    FollowStore(FollowStore),
    /// Confirm that queued services do not run on a node that cannot tell
    NotHere(not_here::NotHere),
    /// State that a node is off, so that its services may run elsewhere: only when you have made sure of it
    #[command(mut_arg("yes", |yes| yes.help("Do not ask: you have made sure that the machine is off")))]
    ConfirmFenced(Asked),
}

#[derive(Args, Debug)]
struct ShutdownContinue {
    /// The node
    node: String,
    #[command(flatten)]
    patience: Patience,
}

#[derive(Args, Debug)]
struct FollowStore {
    /// The node
    node: String,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    patience: Patience,
}

// A command that asks before it is recorded. (A doc comment would replace the help of each command that uses it.)
#[derive(Args, Debug)]
struct Asked {
    /// The node
    node: String,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    patience: Patience,
}

/// The part of a node's observed identity that an operation carries; the leader refuses the operation if it differs.
#[derive(Clone, Copy)]
enum Carries {
    Nothing,
    Boot,
    EpochAndBoot,
}

impl Node {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.command {
            NodeCommand::List => list(session).await,
            NodeCommand::Watchdog(watchdog) => watchdog.run(session).await,
            NodeCommand::Maintenance(command) => command.run(session).await,
            NodeCommand::ShutdownContinue(go_on) => shutdown_continue(session, go_on).await,
            NodeCommand::FollowStore(follow) => follow_store(session, follow).await,
            NodeCommand::TestWatchdog(asked) => {
                asked.run(session, OperationAction::TestWatchdog, Carries::Boot, may_be_reset).await
            }
            NodeCommand::Fence(asked) => {
                asked.run(session, OperationAction::Fence, Carries::Nothing, may_be_fenced).await
            }
            NodeCommand::Unfence(asked) => {
                asked.run(session, OperationAction::Unfence, Carries::EpochAndBoot, has_ended).await
            }
            NodeCommand::NotHere(not_here) => not_here.run(session).await,
            NodeCommand::ConfirmFenced(asked) => {
                asked.run(session, OperationAction::ConfirmFenced, Carries::EpochAndBoot, is_off).await
            }
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

impl Asked {
    /// Asks, unless `--yes` is given, and records the operation.
    async fn run(
        &self,
        session: &Session,
        action: OperationAction,
        carries: Carries,
        question: fn(&str, &Value) -> String,
    ) -> Outcome {
        let target = super::node(&self.node)?;
        let node = session.client()?.target(&target).await?;
        let (name, status) = (&target.name.name, &node["status"]);
        if !self.yes && !Terminal::confirm(&question(name, status))? {
            return Err(Failure::refused("not confirmed: nothing was changed"));
        }
        carry_out(session, operation(action, carries, name, status), &self.patience).await
    }
}

fn is_off(name: &str, status: &Value) -> String {
    let seen = age(status["lastSeen"].as_str());
    format!(
        "{}, last seen {seen} ago, with {} services.\n\
         If it still runs, they will run twice and their data may be destroyed.\n\
         Have you made sure, at the machine itself, that {name} is powered off?",
        is_now(name, status),
        services(status)
    )
}

fn may_be_reset(name: &str, status: &Value) -> String {
    let watchdog = status["watchdog"]["identity"].as_str().unwrap_or("its watchdog");
    format!(
        "{watchdog} will reset {name} without a shutdown: what is not on disk there is lost.\n\
         Only a node in maintenance with nothing active on it is let go. Reset {name} now?"
    )
}

fn may_be_fenced(name: &str, status: &Value) -> String {
    format!(
        "{}, with {} services. Its fence devices will cut it off at once,\n\
         and everything on it ends as in a power failure. Fence {name}?",
        is_now(name, status),
        services(status)
    )
}

fn has_ended(name: &str, _: &Value) -> String {
    format!(
        "node {name} gets its storage back under the boot that was cut off. If a service that ran there\n\
         before runs on, it runs twice from then on and its data may be destroyed.\n\
         Have you made sure, at the machine itself, that nothing of that runs on {name}?"
    )
}

fn is_now(name: &str, status: &Value) -> String {
    format!("node {name} is {}", status["state"].as_str().unwrap_or("Unknown"))
}

fn services(status: &Value) -> u64 {
    status["services"].as_u64().unwrap_or(0)
}

async fn shutdown_continue(session: &Session, go_on: &ShutdownContinue) -> Outcome {
    let target = super::node(&go_on.node)?;
    let node = session.client()?.target(&target).await?;
    let spec =
        operation(OperationAction::ShutdownContinue, Carries::Boot, &target.name.name, &node["status"]);
    carry_out(session, spec, &go_on.patience).await
}

fn operation(action: OperationAction, carries: Carries, name: &str, status: &Value) -> OperationSpec {
    let boot_id = || status["bootId"].as_str().map(str::to_owned);
    let (epoch, boot_id) = match carries {
        Carries::Nothing => (None, None),
        Carries::Boot => (None, boot_id()),
        Carries::EpochAndBoot => (status["epoch"].as_u64(), boot_id()),
    };
    OperationSpec { action, node: Some(name.to_owned()), epoch, boot_id, ..OperationSpec::default() }
}

async fn follow_store(session: &Session, follow: &FollowStore) -> Outcome {
    let name = super::node(&follow.node)?.name.name;
    let question = format!(
        "Node {name} remembers other data than this etcd has. If the etcd that it followed is still in use, services\n\
         that run there may run twice. Is this etcd the right one for {name}?"
    );
    if !follow.yes && !Terminal::confirm(&question)? {
        return Err(Failure::refused("not confirmed: nothing was changed"));
    }
    let spec =
        OperationSpec { action: OperationAction::FollowStore, node: Some(name), ..OperationSpec::default() };
    carry_out(session, spec, &follow.patience).await
}
