//! The bounds of services on a machine: D plus the latest reset by the watchdog, and the release of the node. Every
//! start requires an armed node and a watchdog that follows a deadline.

use super::super::World;
use super::super::machine::Activity;
use ha_api_types::id::{Epoch, NodeName, ObjectUid, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::record::{Fence, FenceState, Mode, NodeReport};
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use ha_api_types::time::Millis;
use ha_api_types::timing::watchdog_worst_ms;
use ha_node_agent::watchdog::protocol::State;

/// Bounds from the store for services of a machine's current boot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bound {
    /// `true` if the boot's epoch is closed and its services are proven stopped.
    pub is_released: bool,
    /// Milliseconds from the sending of a heartbeat to the latest reset after D; `None`: the node's report is not
    /// armed.
    pub duration_ms: Option<Millis>,
    /// Virtual time at which the newest applied heartbeat was sent.
    pub heartbeat_sent_at: Millis,
}

impl World {
    /// Records an applied heartbeat.
    pub(in crate::world) fn record_heartbeat(&mut self, node: &NodeName, sent_ms: Millis) {
        if let Some(machine) = self.machines.get_mut(node) {
            machine.bound.heartbeat_sent_at = machine.bound.heartbeat_sent_at.max(sent_ms);
        }
    }

    /// Updates the bound from the watchdog data in a node's report.
    pub(super) fn record_node_report(&mut self, node: &NodeName, value: &[u8]) {
        let Ok(report) = serde_json::from_slice::<NodeReport>(value) else {
            return self.record_violation("readable records", format!("report of {node} cannot be read"));
        };
        let Some(machine) = self.machines.get_mut(node) else { return };
        let timings = &report.timings;
        let valid_ms = timings.heartbeat_valid_ms;
        let drift_ms = (valid_ms * timings.clock_rate_error_ppm).div_ceil(1_000_000);
        // FENCING 4: the daemon may be paused between reading its clock and petting, which adds another period.
        let worst_ms = watchdog_worst_ms(timings, report.watchdog.timeout_ms);
        let device_ms =
            if report.watchdog.sliding { worst_ms + timings.watchdog_lateness_ms } else { 2 * worst_ms };
        machine.bound.duration_ms = (report.armed && report.boot_id == machine.boot_id(node))
            .then_some(valid_ms + drift_ms + device_ms);
    }

    /// Records whether a node's fence releases the current boot.
    pub(super) fn record_release(&mut self, node: &NodeName, fence: &Fence) {
        if let Some(machine) = self.machines.get_mut(node) {
            machine.bound.is_released = match fence.state {
                FenceState::Fenced | FenceState::Closed => machine.boot_id(node) == fence.boot_id,
                FenceState::Open | FenceState::Fencing => false,
            };
        }
    }

    /// Checks the start of an exclusive service: the node's report must be armed, and its watchdog must follow a
    /// deadline.
    pub(in crate::world) fn check_guarded_start(&mut self, node: &NodeName, name: &ResourceName) {
        let Some(machine) = self.machines.get(node) else { return };
        let guard_problem = match machine.watchdog.daemon.status().state {
            State::Armed { .. } | State::Expired { .. } if machine.bound.duration_ms.is_some() => return,
            State::Armed { .. } | State::Expired { .. } => "before the report of the node contains armed",
            State::Released | State::Staying => "while the watchdog of the node has no deadline",
        };
        self.record_violation(
            "no service starts unguarded",
            format!("{name} is started on {node} {guard_problem}"),
        );
    }

    /// Checks the bounds of all machines, after every event.
    pub(in crate::world) fn check_bounds(&mut self) {
        let now = self.now;
        let mut overruns = Vec::new();
        for (node, machine) in &self.machines {
            let bound = &machine.bound;
            let invariant = if bound.is_released {
                "no service runs after the release"
            } else if bound.duration_ms.is_some_and(|duration_ms| now > bound.heartbeat_sent_at + duration_ms)
            {
                "no service runs after the deadline"
            } else {
                continue;
            };
            if machine.is_up && !machine.is_suspended && !machine.services.is_empty() {
                overruns.push((node.clone(), invariant));
            }
        }
        for (node, invariant) in overruns {
            let guarded_services = self.guarded_on(&node);
            // Each service is reported once.
            let new_overrun = guarded_services
                .into_iter()
                .find(|name| self.reported_overruns.insert((invariant, node.clone(), name.clone())));
            if let Some(name) = new_overrun {
                self.record_violation(invariant, format!("{name} on {node}"));
            }
        }
    }

    /// Returns the services that run on a node under guarantee 1: exclusive, and managed with their current uid.
    fn guarded_on(&self, node: &NodeName) -> Vec<ResourceName> {
        let copy = self.machines.get(node).into_iter().flat_map(|machine| machine.services.values());
        copy.filter(|copy| copy.activity == Activity::Runs && self.is_exclusive(&copy.definition.name))
            // An ungated service may arrive at any time until the migration on its source has ended, so the release of
            // the target does not cover the service.
            .filter(|copy| {
                let driver = &copy.definition.driver;
                driver.waits_for_resume_permit() || !driver.can_migrate()
            })
            .filter(|copy| self.is_guarded(node, &copy.definition.name, &copy.definition.uid))
            .map(|copy| copy.definition.name.clone())
            .collect()
    }

    /// Returns the next epoch of a node whose current epoch is closed; `None` if the current epoch is open.
    fn closed_epoch(&self, node: &NodeName) -> Option<Epoch> {
        let fence: Fence = self.read_record(&self.keys.fence(node))?;
        match fence.state {
            FenceState::Open => None,
            FenceState::Fencing | FenceState::Fenced | FenceState::Closed => Some(fence.epoch),
        }
    }

    /// Returns `true` if a service is managed: the leader manages it, and the resource is neither deleted nor Ignored. In
    /// a disarmed cluster, the operator is responsible for it.
    /// In Error, a service is managed only on the nodes on which it may still run. An operator who starts it on another
    /// node is responsible for it.
    fn is_guarded(&self, node: &NodeName, name: &ResourceName, uid: &ObjectUid) -> bool {
        let resource: Option<Resource> =
            self.spec_of(Kind::Resource, name).and_then(|value| serde_json::from_value(value).ok());
        let should_run = resource.is_some_and(|resource| {
            resource.metadata.uid == *uid
                && resource.metadata.deletion_timestamp.is_none()
                && resource.spec.state != RequestedState::Ignored
        });
        let is_managed = self.service_states.get(name).is_some_and(|(state, _)| {
            !matches!(state, ServiceState::Ignored | ServiceState::Queued | ServiceState::Freeze)
        });
        let is_abandoned = self.status_of::<ResourceStatus>(Kind::Resource, name).is_some_and(|status| {
            let elsewhere = status.node.as_ref() != Some(node);
            // The registration of the node named the service in notStopped: the service counts under the epoch that is
            // not open yet.
            let epoch_is_closed = status.epoch.is_some() && status.epoch == self.closed_epoch(node);
            status.state == ServiceState::Error
                && (elsewhere || epoch_is_closed || status.stop_confirmed == Some(true))
        });
        // The agent registers, and names the service as not stopped: the leader is about to set the service to Error.
        let is_reported_unstopped =
            self.read_record::<NodeReport>(&self.keys.node_report(node)).is_some_and(|report| {
                report.mode == Mode::Registering
                    && report
                        .not_stopped
                        .iter()
                        .any(|not_stopped| not_stopped.name == *name && not_stopped.uid == *uid)
            });
        should_run
            && is_managed
            && !is_abandoned
            && !is_reported_unstopped
            && self.managed_services.contains(name)
    }
}
