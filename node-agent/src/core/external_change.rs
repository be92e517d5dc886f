//! Clean stops and starts with a service's own tool, such as `systemctl stop`, that the resource accepts
//! (`externalStop: Accept`). The leader writes them into the spec as the requested state.

use super::role::Role;
use super::service::{Presence, Service, Step};
use super::{AgentCore, Now};
use ha_api_types::id::ActionUid;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Phase, ServiceReport};

/// A clean stop with the service's own tool that is being confirmed.
#[derive(Clone, Debug)]
pub(super) struct ExternalStop {
    /// The action under which the service ran.
    uid: ActionUid,
    /// The way in which the service ended.
    message: String,
}

impl AgentCore {
    /// Returns `true` if the assignment to this node accepts changes with the service's own tool.
    pub(super) fn accepts_external_stop(&self, service: &Service) -> bool {
        // The flag is read first, because reading the role copies the assignment.
        self.view.assignments.value(service.name()).is_some_and(|assignment| assignment.accepts_external_stop)
            && matches!(self.role(service.name()), Role::Act { .. })
    }

    /// Returns `true` if a start of a stopped service with its own tool is accepted.
    pub(super) fn accepts_external_start(&self, service: &Service) -> bool {
        let assignment = self.view.assignments.value(service.name());
        assignment.is_some_and(|assignment| matches!(assignment.action, Action::Stop { .. }))
            && self.accepts_external_stop(service)
    }

    /// Keeps a service stopped that was stopped cleanly with its own tool. Reports Stopped once no part of it runs.
    pub(super) fn accept_external_stop(
        &mut self,
        now: &Now,
        service: &mut Service,
        uid: &ActionUid,
        message: String,
    ) {
        let text =
            format!("Service was stopped outside hactl ({message}), which externalStop: Accept allows");
        self.emit_event(now, service, false, Reason::StoppedExternally, &text);
        service.has_crashed_before = false;
        self.set_desired(
            service,
            self.report(now, service, Some(uid), Phase::Stopping, Reason::StoppedExternally, &message),
        );
        service.external_stop = Some(ExternalStop { uid: uid.clone(), message });
        let graceful_ms = service.definition.timeouts.stop_ms();
        service.transition_to(Step::Stop { uid: Some(uid.clone()), graceful_ms });
        self.changed = true;
    }

    /// Marks the report of a confirmed stop if the service was stopped with its own tool under the same action.
    pub(super) fn with_external_stop(&self, service: &mut Service, report: ServiceReport) -> ServiceReport {
        match service.external_stop.take() {
            Some(stop) if report.action_uid.as_ref() == Some(&stop.uid) && !self.is_leaving() => {
                ServiceReport {
                    external_change: true,
                    reason: Reason::StoppedExternally,
                    message: stop.message,
                    ..report
                }
            }
            Some(_) | None => report,
        }
    }

    /// Reports a stopped service that runs because its own tool has started it. The service keeps running without a
    /// permit until the leader assigns its start or its stop. Until then, the service is active, so an isolated node
    /// kills it.
    pub(super) fn report_external_start(&mut self, now: &Now, service: &mut Service, uid: &ActionUid) {
        let is_already_reported = self.current_report(service).is_some_and(|report| {
            report.external_change
                && report.phase == Phase::ProbedRunning
                && report.action_uid.as_ref() == Some(uid)
        });
        if is_already_reported || service.presence != Presence::Running {
            return;
        }
        let text = "Service was started outside hactl, which externalStop: Accept allows";
        self.emit_event(now, service, false, Reason::StartedExternally, text);
        let report =
            self.report(now, service, Some(uid), Phase::ProbedRunning, Reason::StartedExternally, "");
        self.set_desired(service, ServiceReport { external_change: true, ..report });
        self.changed = true;
    }
}
