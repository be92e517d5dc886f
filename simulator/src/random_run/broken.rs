//! Nodes that stay broken to the end of a run. Checks whether such a node explains why a service does not run.

use crate::scenario::action::FenceDeviceCondition;
use crate::world::World;
use crate::world::network::Direction;
use crate::world::process::Client;
use ha_api_types::cluster::Cluster;
use ha_api_types::id::NodeName;
use ha_api_types::keys::Key;
use ha_api_types::kind::Kind;
use ha_api_types::node::Node;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState, Mode, NodeReport, SleepProtection, WatchdogKind};
use ha_api_types::resource::{ResourceStatus, ServiceState};

impl World {
    /// Returns `true` if the script breaks this node permanently and the node is still off or cannot reach etcd. A node
    /// that its fence device has switched on again does not count as broken.
    pub(super) fn is_broken(&self, node: &NodeName) -> bool {
        let agent = Client::Agent(node.to_owned());
        self.scenario.expect.broken.iter().any(|broken| broken == node)
            && !(self.reaches_store(&agent, Direction::Request)
                && self.reaches_store(&agent, Direction::Answer))
    }

    /// Returns reasons, one of which the services of a broken node must state, because no proof of the end of the node
    /// is possible. `None`: a proof is possible, so the services must have been recovered.
    pub(super) fn required_reasons(&self, node: &NodeName) -> Option<&'static [Reason]> {
        let fence: Fence = self.read_record(&self.keys.fence(node))?;
        match fence.state {
            // Under the policy Freeze, services wait for the node after a clean shutdown.
            FenceState::Fenced => return Some(&[Reason::Frozen]),
            FenceState::Closed => return None,
            FenceState::Open | FenceState::Fencing => {}
        }
        let spec = self.read_object::<Node>(Kind::Node, node).map(|node| node.spec).unwrap_or_default();
        let has_device = !spec.fencing.devices.is_empty()
            && self
                .machines
                .get(node)
                .is_some_and(|machine| machine.fence_devices == FenceDeviceCondition::Works);
        let report: NodeReport = self.read_record(&self.keys.node_report(node))?;
        if report.mode == Mode::Restart {
            return Some(&[Reason::Frozen, Reason::AgentDown]);
        }
        if has_device {
            return None;
        }
        let cluster = self.read_object::<Cluster>(Kind::Cluster, "default");
        let allows_simulated = cluster.is_some_and(|cluster| cluster.spec.fencing.allow_simulated_watchdog);
        let watchdog_counts = report.watchdog.kind != WatchdogKind::Simulated || allows_simulated;
        if !report.armed
            || !watchdog_counts
            || (report.is_virtual && !spec.fencing.trust_watchdog_on_virtual_machine)
        {
            return Some(&[Reason::FencingUnavailable, Reason::WatchdogMissing, Reason::Fencing]);
        }
        if report.watchdog_failed {
            return Some(&[Reason::WatchdogFailed]);
        }
        if report.sleep_protection == Some(SleepProtection::None)
            && !spec.fencing.trust_watchdog_on_virtual_machine
        {
            return Some(&[Reason::SleepUnprotected]);
        }
        if !self.has_old_enough_controller(&report) {
            return Some(&[Reason::JoinedLater]);
        }
        None
    }

    /// Returns `true` if a running controller is old enough for the node's report, so that it may declare the node dead.
    fn has_old_enough_controller(&self, report: &NodeReport) -> bool {
        let Some(terms) = report.hold_terms() else { return true };
        let candidates = self.store.list(&self.keys.candidates()).entries;
        candidates.iter().any(|entry| {
            let is_working =
                matches!(self.keys.parse(&entry.key), Some(Key::Candidate(id)) if self.controller_works(&id.as_str().into()));
            is_working && terms.includes_candidate(entry.create_revision)
        })
    }

    /// Returns `true` if a broken node prevents the desired state of a service, and the status of the service states
    /// the right reason.
    pub(super) fn is_held_by_broken_node(&self, status: &ResourceStatus) -> bool {
        // The service may run on the broken node even if hactl did not assign it there: only an operator or the node
        // itself can answer.
        let waits_for_probe = status.conditions.iter().any(|condition| {
            condition.reason == Reason::NotProbed
                && self.scenario.expect.broken.iter().any(|node| condition.message.contains(node.as_str()))
        });
        if status.state == ServiceState::Queued && waits_for_probe {
            return true;
        }
        let node = status.node.iter().chain(&status.target).find(|node| self.is_broken(node));
        let Some(reasons) = node.and_then(|node| self.required_reasons(node)) else { return false };
        status
            .conditions
            .iter()
            .any(|condition| reasons.contains(&condition.reason) && !condition.message.is_empty())
    }
}
