//! `hactl group`: checks node groups, and plans moves between them.

mod balance;
mod check;
mod compress;
pub(super) mod input;
pub(super) mod moves;
mod redistribute;
pub(super) mod size;

use crate::failure::Outcome;
use crate::session::Session;
use clap::{Args, Subcommand};

/// Check node groups and plan moves between them
#[derive(Args, Debug)]
pub(crate) struct Group {
    #[command(subcommand)]
    command: GroupCommand,
}

/// The commands about node groups.
#[derive(Subcommand, Debug)]
enum GroupCommand {
    /// Check the health and balance of node groups
    Check(check::Check),
    /// Plan moves out of unhealthy groups
    Redistribute(redistribute::Redistribute),
    /// Plan moves that empty a group
    Compress(compress::Compress),
    /// Plan moves that balance the load between groups
    Balance(balance::Balance),
}

impl Group {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.command {
            GroupCommand::Check(check) => check.run(session).await,
            GroupCommand::Redistribute(redistribute) => redistribute.run(session).await,
            GroupCommand::Compress(compress) => compress.run(session).await,
            GroupCommand::Balance(balance) => balance.run(session).await,
        }
    }
}
