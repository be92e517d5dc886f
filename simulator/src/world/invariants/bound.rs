//! How long what runs on a machine may go on: not beyond D and what its watchdog takes, and not beyond a release; and that
//! it was started under both.

use super::super::World;
use super::super::machine::Doing;
use ha_api_types::kind::Kind;
use ha_api_types::record::{Fence, FenceState, NodeReport};
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use ha_api_types::time::Millis;
use ha_api_types::timing::watchdog_worst_ms;
use ha_node_agent::watchdog::protocol::State;

/// What the store says of a machine's present boot, as far as it bounds what may run there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bound {
    /// Its epoch is closed, and what could run there is proven stopped.
    pub released: bool,
    /// From a heartbeat's sending to D and the latest reset, milliseconds; `None`: the node's report does not say armed.
    pub lasts_ms: Option<Millis>,
    /// When the newest heartbeat that was applied had been sent, virtual time.
    pub proven_at: Millis,
}

impl World {
    /// A heartbeat was applied.
    pub(in crate::world) fn note_heartbeat(&mut self, node: &str, sent: Millis) {
        if let Some(machine) = self.machines.get_mut(node) {
            machine.bound.proven_at = machine.bound.proven_at.max(sent);
        }
    }

    /// What a node's report says of its watchdog.
    pub(super) fn note_node_report(&mut self, node: &str, value: &[u8]) {
        let Ok(report) = serde_json::from_slice::<NodeReport>(value) else {
            return self.violate("readable records", format!("report of {node} cannot be read"));
        };
        let Some(machine) = self.machines.get_mut(node) else { return };
        let timings = &report.timings;
        let valid_ms = timings.heartbeat_valid_ms;
        let drift_ms = (valid_ms * timings.clock_rate_error_ppm).div_ceil(1_000_000);
        // FENCING 4: a daemon may be stopped between looking at its clock and petting, which costs another period.
        let worst_ms = watchdog_worst_ms(timings, report.watchdog.timeout_ms);
        let device_ms =
            if report.watchdog.sliding { worst_ms + timings.watchdog_lateness_ms } else { 2 * worst_ms };
        machine.bound.lasts_ms = (report.armed && report.boot_id == machine.boot_id(node))
            .then_some(valid_ms + drift_ms + device_ms);
    }

    /// What a node's fence says of its present boot.
    pub(super) fn note_release(&mut self, node: &str, fence: &Fence) {
        if let Some(machine) = self.machines.get_mut(node) {
            machine.bound.released = match fence.state {
                FenceState::Fenced | FenceState::Closed => machine.boot_id(node) == fence.boot_id,
                FenceState::Open | FenceState::Fencing => false,
            };
        }
    }

    /// An exclusive service is being started: the node's report says armed, and its watchdog follows a deadline.
    pub(in crate::world) fn check_guarded_start(&mut self, node: &str, name: &str) {
        let Some(machine) = self.machines.get(node) else { return };
        let missing = match machine.watchdog.daemon.status().state {
            State::Armed { .. } | State::Expired { .. } if machine.bound.lasts_ms.is_some() => return,
            State::Armed { .. } | State::Expired { .. } => "before its node's report says armed",
            State::Released | State::Staying => "while its node's watchdog follows no deadline",
        };
        self.violate("nothing starts unguarded", format!("{name} is started on {node} {missing}"));
    }

    /// Looked at after every event.
    pub(in crate::world) fn check_bounds(&mut self) {
        let now = self.now;
        let mut over = Vec::new();
        for (node, machine) in &self.machines {
            let bound = &machine.bound;
            let invariant = if bound.released {
                "nothing runs after the release"
            } else if bound.lasts_ms.is_some_and(|lasts_ms| now > bound.proven_at + lasts_ms) {
                "nothing runs after the deadline"
            } else {
                continue;
            };
            if machine.up && !machine.suspended && !machine.services.is_empty() {
                over.push((node.clone(), invariant));
            }
        }
        for (node, invariant) in over {
            let left = self.guarded_on(&node);
            // Said once a service.
            let fresh = left
                .into_iter()
                .find(|name| self.seen_beyond.insert((invariant, node.clone(), name.clone())));
            if let Some(name) = fresh {
                self.violate(invariant, format!("{name} on {node}"));
            }
        }
    }

    /// What runs on a node and is under promise 1: exclusive, and managed as it is.
    fn guarded_on(&self, node: &str) -> Vec<String> {
        let present = self.machines.get(node).into_iter().flat_map(|machine| machine.services.values());
        present
            .filter(|present| present.doing == Doing::Runs && self.is_exclusive(&present.definition.name))
            // What is not gated may arrive at any time until its source has ended: the release of the target says nothing of it.
            .filter(|present| {
                let driver = &present.definition.driver;
                driver.is_gated() || !driver.can_migrate()
            })
            .filter(|present| self.is_guarded(node, &present.definition.name, &present.definition.uid))
            .map(|present| present.definition.name.clone())
            .collect()
    }

    /// The epoch that a node is to have next, while it has none.
    fn closed_epoch(&self, node: &str) -> Option<u64> {
        let fence: Fence = self.record(&self.keys.fence(node))?;
        match fence.state {
            FenceState::Open => None,
            FenceState::Fencing | FenceState::Fenced | FenceState::Closed => Some(fence.epoch),
        }
    }

    /// Whether a service is managed: the leader has taken it on, and nobody has deleted it or wants it Ignored. One in Error
    /// is left alone but where it may still run: who starts it by hand then answers for it.
    fn is_guarded(&self, node: &str, name: &str, uid: &str) -> bool {
        let resource: Option<Resource> =
            self.spec_of(Kind::Resource, name).and_then(|value| serde_json::from_value(value).ok());
        let wanted = resource.is_some_and(|resource| {
            resource.metadata.uid == uid
                && resource.metadata.deletion_timestamp.is_none()
                && resource.spec.state != RequestedState::Ignored
        });
        let taken = self
            .states
            .get(name)
            .is_some_and(|(state, _)| !matches!(state, ServiceState::Ignored | ServiceState::Queued));
        let left_alone = self.status_of::<ResourceStatus>(Kind::Resource, name).is_some_and(|status| {
            let elsewhere = status.node.as_deref() != Some(node);
            // A node that registers has said that it could not stop it: it counts under the epoch that is not open yet.
            let is_told = status.epoch.is_some() && status.epoch == self.closed_epoch(node);
            status.state == ServiceState::Error
                && (elsewhere || is_told || status.stop_confirmed == Some(true))
        });
        wanted && taken && !left_alone && self.managed.contains(name)
    }
}
