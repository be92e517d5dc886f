//! `hactl node`: maintenance, a shutdown that waits, confirming that a node is off, and the list.

mod maintenance;
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
    TestWatchdog(TestWatchdog),
    /// Fence a node with its devices now, whatever its heartbeat says: its services run elsewhere
    Fence(Fence),
    /// Let a node that a fabric device has cut off in again without another boot: only when nothing of before runs there
    Unfence(Fence),
    /// State that a node is off, so that its services may run elsewhere: only when you have made sure of it
    ConfirmFenced(ConfirmFenced),
}

#[derive(Args, Debug)]
struct ShutdownContinue {
    /// The node
    node: String,
    #[command(flatten)]
    patience: Patience,
}

#[derive(Args, Debug)]
struct TestWatchdog {
    /// The node
    node: String,
    /// Do not ask: the machine may go down now
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    patience: Patience,
}

#[derive(Args, Debug)]
struct Fence {
    /// The node
    node: String,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    patience: Patience,
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
            NodeCommand::Watchdog(watchdog) => watchdog.run(session).await,
            NodeCommand::Maintenance(command) => command.run(session).await,
            NodeCommand::ShutdownContinue(go_on) => shutdown_continue(session, go_on).await,
            NodeCommand::TestWatchdog(test) => test_watchdog(session, test).await,
            NodeCommand::Fence(fence) => fence_now(session, fence).await,
            NodeCommand::Unfence(fence) => unfence(session, fence).await,
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
        confirmed(&question)?;
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

async fn test_watchdog(session: &Session, test: &TestWatchdog) -> Outcome {
    let target = super::node(&test.node)?;
    let status = session.client()?.node(&target).await?.status.unwrap_or_default();
    let name = &target.name.name;
    if !test.yes {
        let watchdog =
            status.watchdog.map_or_else(|| "its watchdog".to_owned(), |watchdog| watchdog.identity);
        let question = format!(
            "{watchdog} will reset {name} without a shutdown: what is not on disk there is lost.\n\
             Only a node in maintenance with nothing active on it is let go. Reset {name} now?"
        );
        confirmed(&question)?;
    }
    let spec = OperationSpec {
        action: OperationAction::TestWatchdog,
        node: Some(name.clone()),
        boot_id: Some(status.boot_id).filter(|boot_id| !boot_id.is_empty()),
        ..OperationSpec::default()
    };
    carry_out(session, spec, &test.patience).await
}

async fn fence_now(session: &Session, fence: &Fence) -> Outcome {
    let target = super::node(&fence.node)?;
    let node = session.client()?.target(&target).await?;
    let name = &target.name.name;
    if !fence.yes {
        let status = &node["status"];
        let state = status["state"].as_str().unwrap_or("Unknown");
        let services = status["services"].as_u64().unwrap_or(0);
        let question = format!(
            "node {name} is {state}, with {services} services. Its fence devices will cut it off at once,\n\
             and everything on it ends as in a power failure. Fence {name}?"
        );
        confirmed(&question)?;
    }
    let spec = OperationSpec {
        action: OperationAction::Fence,
        node: Some(name.clone()),
        ..OperationSpec::default()
    };
    carry_out(session, spec, &fence.patience).await
}

async fn unfence(session: &Session, fence: &Fence) -> Outcome {
    let target = super::node(&fence.node)?;
    let node = session.client()?.target(&target).await?;
    let name = &target.name.name;
    if !fence.yes {
        let question = format!(
            "node {name} gets its storage back under the boot that was cut off. If a service that ran there\n\
             before runs on, it runs twice from then on and its data may be destroyed.\n\
             Have you made sure, at the machine itself, that nothing of that runs on {name}?"
        );
        confirmed(&question)?;
    }
    let spec = OperationSpec {
        action: OperationAction::Unfence,
        node: Some(name.clone()),
        epoch: node["status"]["epoch"].as_u64(),
        boot_id: node["status"]["bootId"].as_str().map(str::to_owned),
        ..OperationSpec::default()
    };
    carry_out(session, spec, &fence.patience).await
}

fn confirmed(question: &str) -> Result<(), Failure> {
    if Terminal::confirm(question)? {
        Ok(())
    } else {
        Err(Failure::refused("not confirmed: nothing was changed"))
    }
}

async fn shutdown_continue(session: &Session, go_on: &ShutdownContinue) -> Outcome {
    let target = super::node(&go_on.node)?;
    let node = session.client()?.target(&target).await?;
    let spec = OperationSpec {
        action: OperationAction::ShutdownContinue,
        node: Some(target.name.name.clone()),
        boot_id: node["status"]["bootId"].as_str().map(str::to_owned),
        ..OperationSpec::default()
    };
    carry_out(session, spec, &go_on.patience).await
}
