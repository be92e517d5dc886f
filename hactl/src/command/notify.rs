//! `hactl notify`: tests the notification targets.

use super::operate::{OperationWaitFlags, run_operation};
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
    /// Send a test notification to every target and show the results
    Test(Test),
}

#[derive(Args, Debug)]
struct Test {
    #[command(flatten)]
    wait_flags: OperationWaitFlags,
}

impl Notify {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.command {
            Command::Test(test) => {
                let action = OperationAction::TestNotifications;
                let spec = OperationSpec { action, ..OperationSpec::default() };
                run_operation(session, spec, &test.wait_flags).await
            }
        }
    }
}
