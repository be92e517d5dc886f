//! `hactl check`: checks of the whole cluster that pass or fail.

mod n_plus_one;

use crate::failure::Outcome;
use crate::session::Session;
use clap::{Args, Subcommand};

/// Check failover capacity (N+1)
#[derive(Args, Debug)]
pub(crate) struct Check {
    #[command(subcommand)]
    check: CheckCommand,
}

/// The checks.
#[derive(Subcommand, Debug)]
enum CheckCommand {
    /// Check that all services can be scheduled after any node failure
    #[command(name = "n+1")]
    NPlusOne(n_plus_one::NPlusOne),
}

impl Check {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.check {
            CheckCommand::NPlusOne(check) => check.run(session).await,
        }
    }
}
