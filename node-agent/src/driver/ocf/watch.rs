//! Watches of running services: the resource agent's `monitor` runs at an interval, and immediately after the last
//! process of the service has ended.

use super::outcome::MonitorResult;
use super::request::{Action, interval_ms};
use super::{Context, OcfSpec};
use crate::core::DriverEvent;
use ha_api_types::resource::ServiceDefinition;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Interval between checks of whether the service still has processes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Interval and number of further runs of `monitor` after the last process has ended. Until process 1 reaps the ended
/// process, the resource agent may still detect it.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
const RECHECK_COUNT: u32 = 5;

/// Number of consecutive *not running* reports after which a service counts as ended. The first report may coincide
/// with a restart by the resource agent.
const REPORTS_TO_CONFIRM: u32 = 2;

impl Context {
    /// Starts to watch a service, unless it is already watched.
    pub(super) fn watch(self: &Arc<Context>, service: &ServiceDefinition, spec: &OcfSpec) {
        // A strong reference in the task would keep the driver alive.
        let watch = || watch(Arc::downgrade(self), service.clone(), self.has_processes(service));
        self.watches.ensure(&service.name, (service.uid.to_string(), spec.clone()), watch);
    }
}

async fn watch(driver: Weak<Context>, service: ServiceDefinition, mut was_populated: bool) {
    let mut rechecks_left = 0_u32;
    let mut is_unclear = false;
    loop {
        let Some(context) = driver.upgrade() else { return };
        let Some(spec) = service.driver.ocf.as_ref() else { return };
        let metadata = context.metadata(&service).await;
        let interval_ms = interval_ms(spec, &metadata);
        drop(context);
        let regular_interval = Duration::from_millis(interval_ms);
        let next = Instant::now()
            + if rechecks_left > 0 { regular_interval.min(RECHECK_INTERVAL) } else { regular_interval };
        rechecks_left = rechecks_left.saturating_sub(1);
        while Instant::now() < next {
            sleep_until(next.min(Instant::now() + POLL_INTERVAL)).await;
            let Some(context) = driver.upgrade() else { return };
            let is_populated = context.has_processes(&service);
            let emptied = was_populated && !is_populated;
            was_populated = is_populated;
            if emptied {
                rechecks_left = RECHECK_COUNT;
                break;
            }
        }
        let Some(context) = driver.upgrade() else { return };
        if let Some(message) = context.confirm_end(&service, interval_ms, &mut is_unclear).await {
            // Sending fails only when the agent is ending.
            let _ = context.events.send(DriverEvent::Exited {
                name: service.name,
                uid: service.uid,
                message,
                stopped_externally: false,
            });
            return;
        }
    }
}

impl Context {
    /// Returns `true` if the service is known to have processes.
    fn has_processes(&self, service: &ServiceDefinition) -> bool {
        self.programs.cgroup_of(&service.name).and_then(|group| group.is_populated()).unwrap_or(false)
    }

    /// Returns the message about the end of the service if the resource agent reports the end [`REPORTS_TO_CONFIRM`]
    /// times in a row. An unclear result does not count as such a report. The first of consecutive unclear results is
    /// logged.
    async fn confirm_end(
        &self,
        service: &ServiceDefinition,
        interval_ms: u64,
        is_unclear: &mut bool,
    ) -> Option<String> {
        let mut message = String::new();
        for _ in 0..REPORTS_TO_CONFIRM {
            message = match self.monitor(service, Action::Monitor { interval_ms }).await {
                MonitorResult::Running => {
                    *is_unclear = false;
                    return None;
                }
                MonitorResult::NotRunning => {
                    "resource agent reports that the service does not run".to_owned()
                }
                MonitorResult::Failing(message) => message,
                MonitorResult::Unclear(message) => {
                    if !std::mem::replace(is_unclear, true) {
                        tracing::warn!(
                            resource = service.name.as_str(),
                            why = message,
                            "cannot determine whether the service runs"
                        );
                    }
                    return None;
                }
            };
        }
        Some(message)
    }
}
