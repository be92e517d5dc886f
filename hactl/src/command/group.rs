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

/// Node groups: which are healthy, and moves between them
#[derive(Args, Debug)]
pub(crate) struct Group {
    #[command(subcommand)]
    what: What,
}

/// What about groups.
#[derive(Subcommand, Debug)]
enum What {
    /// Say which groups are healthy, and which would gain from being balanced
    Check(check::Check),
    /// Plan moves out of groups that are not healthy, until all are
    Redistribute(redistribute::Redistribute),
    /// Plan how a group can be emptied: the one that frees most
    Compress(compress::Compress),
    /// Plan moves that even the load between groups
    Balance(balance::Balance),
}

impl Group {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.what {
            What::Check(check) => check.run(session).await,
            What::Redistribute(redistribute) => redistribute.run(session).await,
            What::Compress(compress) => compress.run(session).await,
            What::Balance(balance) => balance.run(session).await,
        }
    }
}
