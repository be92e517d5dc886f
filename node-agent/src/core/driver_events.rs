//! Events that drivers report without a command.

use super::command::DriverEvent;
use super::service::{Presence, Service, Step, UnexpectedExit};
use super::{AgentCore, Now};
use ha_api_types::quantity::Amounts;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Phase, ServiceReport};

impl AgentCore {
    pub(super) fn on_driver_event(&mut self, now: &Now, event: DriverEvent) {
        self.changed = true;
        let (name, uid) = event.subject();
        let name = name.to_owned();
        self.dirty_services.insert(name.clone());
        if self.services.get(&name).is_none_or(|service| service.definition.uid != uid) {
            return;
        }
        self.with_service(&name, |core, service| match event {
            DriverEvent::Exited { message, stopped_externally, .. } => {
                on_exited(service, message, stopped_externally);
            }
            DriverEvent::Appeared { .. } => {
                if service.presence == Presence::Stopped && service.running_command.is_none() {
                    service.presence = Presence::Running;
                }
            }
            DriverEvent::Progress { message, .. } => core.report_migration_progress(now, service, &message),
            DriverEvent::RequestedAmounts { amounts, .. } => {
                core.record_requested_amounts(now, service, amounts);
            }
        });
    }

    /// Writes the progress of a live migration into the source's report, which the leader shows.
    fn report_migration_progress(&mut self, now: &Now, service: &mut Service, message: &str) {
        let Step::Migrate { uid, .. } = &service.step else { return };
        let uid = uid.clone();
        let is_under_way = self.current_report(service).is_some_and(|report| {
            report.phase == Phase::HandingOver && report.action_uid.as_ref() == Some(&uid)
        });
        if is_under_way && service.running_command.is_some() {
            let report =
                self.report(now, service, Some(&uid), Phase::HandingOver, Reason::Migrating, message);
            self.set_desired(service, report);
        }
    }

    /// Records the requests of the service's definition on this node. The current report and every later one carry
    /// them.
    fn record_requested_amounts(&mut self, now: &Now, service: &mut Service, amounts: Amounts) {
        service.definition_requests = amounts;
        let Some(report) = self.current_report(service) else { return };
        if report.definition_requests != amounts && service.running_command.is_none() {
            self.set_desired(
                service,
                ServiceReport { definition_requests: amounts, at: now.timestamp(), ..report },
            );
        }
    }
}

fn on_exited(service: &mut Service, message: String, stopped_externally: bool) {
    // A command in progress reports the end itself.
    let reports_end =
        matches!(service.step, Step::Idle | Step::Probe { .. } | Step::Permit { .. } | Step::Journal { .. });
    if reports_end && service.presence == Presence::Running {
        service.presence = Presence::Stopped;
        service.unexpected_exit = Some(UnexpectedExit { message, stopped_externally });
    }
}
