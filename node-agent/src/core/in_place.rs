//! Definitions that an operator has confirmed for a running copy, without a stop (FENCING, R6.10).

use super::effect::Level;
use super::role::Role;
use super::service::{Presence, ProbePurpose, Service, Step};
use super::{AgentCore, Now};
use ha_api_types::reason::Reason;
use ha_api_types::record::Phase;

impl AgentCore {
    /// Adopts a definition that an operator has confirmed in place, in memory and in the journal. Every later end of
    /// the service, in this process or the next one, then uses that definition.
    ///
    /// The definition is adopted only while no command runs: a running command ends under the definition with which it
    /// began. A definition with another identity or another `exclusive` is not adopted, nor one that the node's policy
    /// forbids.
    pub(super) fn adopt_confirmed_definition(&mut self, now: &Now, service: &mut Service) {
        // This check runs at every step of every service, so it runs before any copy is made.
        let is_confirmed = self
            .view
            .assignments
            .value(service.name())
            .is_some_and(|assignment| assignment.in_place.is_some());
        if !is_confirmed
            || service.step != Step::Idle
            || service.running_command.is_some()
            || !service.canceling.is_empty()
        {
            return;
        }
        let Role::Act { assignment } = self.role(service.name()) else { return };
        let Some(assignment) = assignment.value.filter(|assignment| assignment.in_place.is_some()) else {
            return;
        };
        let confirmed = assignment.definition.clone();
        if service.definition == confirmed
            || service.definition.uid != confirmed.uid
            || !service.definition.may_replace(&confirmed)
            || self.start_refusal(&confirmed).is_some()
        {
            return;
        }
        let name = service.name().to_owned();
        if let Some(entry) = self.journal.services.get_mut(&name) {
            entry.definition = confirmed.clone();
            self.mark_journal_changed();
        }
        self.log(
            Level::Info,
            format!("{name}: the edited definition is active, confirmed by an operator without a stop"),
        );
        service.definition = confirmed;
        let text = "Edited definition applied without a stop";
        self.emit_event(now, service, false, Reason::UserRequested, text);
        let failed_to_stop =
            self.current_report(service).is_some_and(|report| report.phase == Phase::StopFailed);
        if failed_to_stop {
            // The stop failed under the wrong definition, so it is retried immediately.
            service.not_before = None;
        }
        if service.presence == Presence::Running {
            // The driver monitors the running service under the definition that the probe carries.
            service.transition_to(Step::Probe { purpose: ProbePurpose::Presence });
        }
        self.changed = true;
    }
}
