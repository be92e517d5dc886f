//! `--in-place`: applies an edit to the running copy without a stop, after the operator has confirmed it.

use super::operate::{create_operation, follow_operation, phase_word, status_explanation};
use super::wait::with_timeout;
use crate::failure::Failure;
use crate::object::AnyObject;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::Args;
use ha_api_types::kind::Kind;
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use serde_json::Value;
use std::time::Duration;

/// Longest wait for the leader.
const LEADER_TIMEOUT: Duration = Duration::from_secs(300);

/// Application of an edit to the running copy.
#[derive(Args, Clone, Debug)]
pub(crate) struct InPlaceFlags {
    /// WARNING: services may fail to stop. Apply the edit to running copies without a stop, after confirmation
    #[arg(long, conflicts_with_all = ["dry_run", "stop_first"])]
    in_place: bool,
    /// Confirm that the edited definition fits running copies; do not ask
    #[arg(long, requires = "in_place")]
    yes: bool,
}

impl InPlaceFlags {
    /// Asks for confirmation of the edited resources, unless `--yes` is given.
    pub(crate) fn confirm(&self, edited: &[(Kind, &str)]) -> Result<(), Failure> {
        if !self.in_place {
            return Ok(());
        }
        let names: Vec<&str> =
            edited.iter().filter(|(kind, _)| *kind == Kind::Resource).map(|(_, name)| *name).collect();
        if names.is_empty() {
            return Err(Failure::usage("--in-place requires an edited resource"));
        }
        let question = format!(
            "WARNING: a service that cannot be stopped under the edited definition enters Error, or its node is reset.\n\
             Confirm that the running copies of {} can be stopped and monitored under the edited definition.",
            names.join(", ")
        );
        if !self.yes && !Terminal::confirm(&question)? {
            return Err(Failure::failed("not confirmed: nothing was changed"));
        }
        Ok(())
    }

    /// Records the confirmation for the stored resource, and waits until the leader has executed it.
    pub(crate) async fn execute(&self, session: &Session, kind: Kind, stored: &Value) -> Result<(), Failure> {
        if !self.in_place || kind != Kind::Resource {
            return Ok(());
        }
        let metadata = AnyObject::from_value(stored).metadata;
        let name = &metadata.name;
        let spec = OperationSpec {
            action: OperationAction::UpdateInPlace,
            resource: Some(name.clone()),
            generation: (metadata.generation > 0).then_some(metadata.generation),
            ..OperationSpec::default()
        };
        let created = create_operation(session.client()?, &format!("update-in-place-{name}"), &spec).await?;
        let operation = created.name();
        let timeout_message = format!(
            "resource/{name} edited; operation/{operation}, which applies the edit to the running copy, continues"
        );
        let finished =
            with_timeout(LEADER_TIMEOUT, &timeout_message, follow_operation(session, operation, "")).await?;
        let status = finished.status.unwrap_or_default();
        let line = format!(
            "resource/{name}: in-place update {}: {}",
            phase_word(status.phase),
            status_explanation(&status)
        );
        match status.phase {
            OperationPhase::Succeeded => {
                session.terminal().progress(&line);
                Ok(())
            }
            OperationPhase::Failed
            | OperationPhase::Refused
            | OperationPhase::Pending
            | OperationPhase::Running => Err(Failure::failed(line).help(format!(
                "the edit is stored, but not applied to the running copy: run \"hactl why {name}\""
            ))),
        }
    }
}
