//! `hactl notify`: tests the notification targets.

use super::operate::{Patience, carry_out};
use crate::failure::Outcome;
use crate::session::Session;
use clap::{Args, Subcommand};
use ha_api_types::operation::{OperationAction, OperationSpec};

#[derive(Args, Debug)]
pub(crate) struct Notify {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Let the leader send a test to every target of Cluster.spec.notifications, and say what became of each
    Test(Test),
}

#[derive(Args, Debug)]
struct Test {
    #[command(flatten)]
    patience: Patience,
}

impl Notify {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.command {
            Command::Test(test) => {
                let action = OperationAction::TestNotifications;
                let spec = OperationSpec { action, ..OperationSpec::default() };
                carry_out(session, spec, &test.patience).await
            }
        }
    }
}
