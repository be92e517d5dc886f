//! Receptions at the target of a live migration: services that may still arrive, and the confirmation that no service
//! can arrive (R4.40, R4.41).

use super::command::CommandResult;
use super::service::{KillReason, Presence, Service, Step};
use super::view::peer_report_key;
use super::{AgentCore, Now};
use ha_api_types::id::ResourceName;
use ha_api_types::record::{FailureClass, Phase};
use ha_api_types::time::Millis;

/// Delay before the agent repeats the order to close a reception.
const CLOSE_RETRY_MS: Millis = 200;
/// Maximum number of repeated orders to close a reception.
const MAX_CLOSE_RETRIES: u32 = 5;

impl AgentCore {
    /// Ends a reception once no copy can arrive, because its source has ended or will not begin (R4.40).
    pub(super) fn end_finished_reception(&mut self, name: &ResourceName) {
        let Some(reception) = self.journal.receptions.get(name) else { return };
        let Some(assignment) = self.view.assignments.value(name) else { return };
        let is_over = if assignment.action_uid == reception.action_uid {
            let reported = self.view.peer_reports.value(&peer_report_key(&assignment.node, name));
            let has_ended = reported.is_some_and(|report| {
                let ended = matches!(
                    report.phase,
                    Phase::HandedOver | Phase::MoveFailed | Phase::Stopped | Phase::Failed
                );
                ended && report.action_uid.as_ref() == Some(&assignment.action_uid)
            });
            has_ended || self.is_proven_gone(&assignment.node, assignment.epoch)
        } else {
            // A new assignment means that the source has ended, or that the hand-over, which guards the old assignment,
            // can no longer commit.
            true
        };
        if is_over {
            self.remove_reception(name);
        }
    }

    fn remove_reception(&mut self, name: &ResourceName) {
        if self.journal.receptions.remove(name).is_some() {
            self.mark_journal_changed();
        }
    }

    /// Returns `true` if an exclusive service may still arrive here and no driver has confirmed that it cannot run.
    ///
    /// A reception stays open across boots and registrations, because the source may still be migrating. Before its
    /// registration, this boot runs no service that a watchdog must guard.
    pub(super) fn has_open_reception(&self) -> bool {
        let is_gone = |name: &ResourceName| {
            self.view.is_complete()
                && self.view.resources.get(name).is_none()
                && self.view.assignments.get(name).is_none()
        };
        (self.registration().is_some() || self.journal.boot_id == self.config.boot_id)
            && self
                .journal
                .receptions
                .iter()
                .any(|(name, reception)| reception.exclusive && !self.is_unmanaged(name) && !is_gone(name))
    }

    /// Handles a service that is confirmed dead. A reception before a reset, or before registering, is also closed.
    pub(super) fn on_kill_verified(&mut self, now: &Now, service: &mut Service, kill_reason: KillReason) {
        let closes = match kill_reason {
            KillReason::BeforeReset(_) | KillReason::Clearing => true,
            KillReason::AssignedElsewhere | KillReason::NotReceived | KillReason::MigrationRemnant => false,
        };
        let receives = self.journal.receptions.contains_key(service.name());
        if closes && receives {
            service.presence = Presence::Stopped;
            service.not_before = None;
            service.transition_to(Step::CloseReception { kill_reason, attempts: 0 });
            self.changed = true;
        } else {
            self.on_killed(now, service, kill_reason);
        }
    }

    /// Handles the result of closing a reception. R4.41: if the driver cannot confirm the close, the node does not
    /// stay.
    pub(super) fn on_reception_closed(
        &mut self,
        now: &Now,
        service: &mut Service,
        kill_reason: KillReason,
        attempts: u32,
        result: CommandResult,
    ) {
        let can_never = match result {
            CommandResult::Done | CommandResult::Observed(_) => {
                self.remove_reception(service.name());
                return self.on_killed(now, service, kill_reason);
            }
            CommandResult::Failed(failure) => {
                let can_never = failure.class == FailureClass::NeverHere;
                service.message = failure.message;
                can_never
            }
            CommandResult::Canceled => false,
        };
        if can_never || attempts >= MAX_CLOSE_RETRIES {
            return self.on_killed(now, service, kill_reason);
        }
        service.not_before = Some(now.monotonic_raw + CLOSE_RETRY_MS);
        service.transition_to(Step::CloseReception { kill_reason, attempts: attempts + 1 });
        self.changed = true;
    }
}
