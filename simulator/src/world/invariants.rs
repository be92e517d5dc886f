//! Invariants that must hold at all times, checked after every event that could break one.

mod bound;
mod placement;
#[cfg(test)]
mod tests;
mod writes;

pub(crate) use bound::Bound;

use super::World;
use super::machine::{Activity, Machine};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::keys::Key;
use ha_api_types::kind::Kind;
use ha_api_types::node::NodeStatus;
use ha_api_types::record::{Action, Assignment, Fence, FenceState, Phase, Proof, ServiceReport};
use ha_api_types::resource::{Resource, ResourceStatus, ServiceState};
use ha_api_types::time::Millis;
use ha_store::Change;
use std::collections::BTreeMap;

/// Time within which an agent commits that it is disarmed after its last service has ended, even if etcd is slow, in
/// milliseconds.
const RELEASED_WITHIN_MS: Millis = 10_000;

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Virtual time in milliseconds since time 0.
    pub at: u64,
    /// Name of the invariant.
    pub invariant: &'static str,
    /// Description of the violation.
    pub detail: String,
}

impl World {
    /// Returns the violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(crate) fn record_violation(&mut self, invariant: &'static str, detail: String) {
        self.log(&"simulator".into(), "VIOLATION", &format!("{invariant}: {detail}"));
        self.violations.push(Violation { at: self.elapsed_ms(self.now), invariant, detail });
    }

    /// Returns, for each service, the nodes on which it runs with access to its data.
    pub(crate) fn running_nodes_by_service(&self) -> BTreeMap<ResourceName, Vec<NodeName>> {
        let mut running: BTreeMap<ResourceName, Vec<NodeName>> = BTreeMap::new();
        for (node, machine) in
            self.machines.iter().filter(|(_, machine)| machine.is_up && !machine.is_storage_isolated)
        {
            for (name, present) in &machine.services {
                if present.activity == Activity::Runs {
                    running.entry(name.clone()).or_default().push(node.clone());
                }
            }
        }
        running
    }

    /// Checks that no service runs on two nodes at the same time. A service that a boot started automatically counts
    /// from the opening of the node's epoch.
    pub(super) fn check_at_most_one_copy(&mut self) {
        let mut nodes_of_service: BTreeMap<&ResourceName, Vec<&NodeName>> = BTreeMap::new();
        for (node, machine) in
            self.machines.iter().filter(|(_, machine)| machine.is_up && !machine.is_storage_isolated)
        {
            let runs = machine.services.iter().filter(|(_, present)| present.activity == Activity::Runs);
            for (name, _) in runs.filter(|(name, _)| !self.runs_only_by_boot(node, machine, name)) {
                nodes_of_service.entry(name).or_default().push(node);
            }
        }
        let doubled_services: Vec<(ResourceName, Vec<NodeName>)> = nodes_of_service
            .into_iter()
            .filter(|(name, nodes)| nodes.len() > 1 && self.is_exclusive(name))
            .map(|(name, nodes)| (name.to_owned(), nodes.into_iter().cloned().collect()))
            .collect();
        for (name, nodes) in doubled_services {
            if self.reported_doubles.insert(name.clone()) {
                self.record_violation("never two", format!("{name} runs on {}", nodes.join(" and ")));
            }
        }
    }

    /// Returns `true` if the machine's boot started a service that the agent has neither stopped nor been permitted to run.
    fn runs_only_by_boot(&self, node: &NodeName, machine: &Machine, name: &ResourceName) -> bool {
        machine.started_by_boot.contains(name)
            && !self
                .read_record::<ServiceReport>(&self.keys.service_report(node, name))
                .is_some_and(|report| report.boot_id == machine.boot_id(node) && report.phase.is_permitted())
    }

    /// Returns `true` if a committed report states that an exclusive service may run under a machine's current boot.
    pub(super) fn reports_active(&self, node: &NodeName) -> bool {
        let boot_id = self.machines.get(node).map(|machine| machine.boot_id(node)).unwrap_or_default();
        let reports = self.store.list(&self.keys.reports_of(node)).entries;
        reports
            .iter()
            .filter(|entry| matches!(self.keys.parse(&entry.key), Some(Key::ServiceReport(..))))
            .filter_map(|entry| self.decoded_record::<ServiceReport>(&entry.value))
            .any(|report| report.is_active() && report.boot_id == boot_id)
    }

    /// Returns `true` if the node's last service report came shortly before its last heartbeat. The agent may then have
    /// lacked the time to commit that it is disarmed.
    pub(super) fn has_just_become_idle(&self, node: &NodeName) -> bool {
        let time_of = |times: &BTreeMap<NodeName, Millis>| times.get(node).copied().unwrap_or_default();
        time_of(&self.last_heartbeat_at) < time_of(&self.last_report_at) + RELEASED_WITHIN_MS
    }

    /// Returns `true` if the agent armed the watchdog for an ordered start, and has written no service report since.
    /// Such an agent hangs or cannot reach etcd. Its watchdog stays armed even after the leader has withdrawn the
    /// order.
    pub(super) fn has_armed_without_an_answer(&self, node: &NodeName) -> bool {
        let opened_at = self.machines.get(node).and_then(|machine| machine.watchdog.opened_to_start_at);
        opened_at.is_some_and(|at| self.last_report_at.get(node).is_none_or(|reported| *reported < at))
    }

    /// Returns `true` if an assignment orders the machine to start or receive a service. The agent arms the watchdog
    /// before that.
    pub(super) fn is_to_start(&self, node: &NodeName) -> bool {
        let assignments = self.store.list(&self.keys.assignments()).entries;
        assignments.iter().filter_map(|entry| self.decoded_record::<Assignment>(&entry.value)).any(
            |assignment| match assignment.action {
                Action::Start | Action::Restart => assignment.node == *node,
                Action::Migrate { target, .. } => target == *node,
                Action::Stop { .. } | Action::DoNothing => false,
            },
        )
    }

    /// Returns `true` if guarantee 1 covers a service. The definition in its assignment decides, or its spec if there
    /// is no assignment. The definition of an old copy does not count. For a service that is not managed, the
    /// definitions of its copies decide.
    pub(in crate::world) fn is_exclusive(&self, name: &ResourceName) -> bool {
        if let Some(assignment) = self.read_record::<Assignment>(&self.keys.assignment(name)) {
            return assignment.definition.exclusive;
        }
        if let Some(resource) = self.read_object::<Resource>(Kind::Resource, name) {
            return resource.spec.exclusive;
        }
        let mut copies = self.machines.values().filter_map(|machine| machine.services.get(name));
        copies.all(|present| present.definition.exclusive)
    }

    /// Checks the changes of a commit.
    pub(super) fn check_store_changes(&mut self, changes: &[Change]) {
        let keys = self.keys.clone();
        for change in changes {
            let entry = match change {
                Change::Put(entry) => entry,
                Change::Delete { key, .. } => {
                    if let Some(Key::Status(Kind::Resource, name)) = keys.parse(key) {
                        self.settled_services.remove(name);
                    }
                    if let Some(Key::Spec(kind, name)) = keys.parse(key) {
                        self.check_spec_deleted(kind, key);
                        self.record_rule_change(kind);
                        // The service of a deleted resource continues, but the cluster is no longer responsible for it.
                        if kind == Kind::Resource {
                            self.managed_services.remove(name);
                            self.assigned_nodes.remove(name);
                        }
                    }
                    continue;
                }
            };
            match keys.parse(&entry.key) {
                Some(Key::Fence(node)) => self.check_fence(&node, &entry.value),
                Some(Key::Status(Kind::Resource, name)) => {
                    self.record_service_status(&name.into(), &entry.value);
                }
                Some(Key::Status(Kind::Node, node)) => self.record_node_status(&node.into(), &entry.value),
                Some(Key::Spec(kind, _)) => {
                    self.check_spec(&entry.key, &entry.value);
                    self.record_rule_change(kind);
                }
                Some(Key::Assignment(name)) => self.check_capacity(&name, &entry.value),
                Some(Key::NodeReport(node)) => self.record_node_report(&node, &entry.value),
                Some(Key::Alive(node)) => {
                    self.last_heartbeat_at.insert(node.clone(), self.now);
                }
                Some(Key::ServiceReport(node, name)) => {
                    self.last_report_at.insert(node.clone(), self.now);
                    self.record_permit(&node, &name, &entry.value);
                }
                Some(
                    Key::Status(..)
                    | Key::Tombstone(_)
                    | Key::NotificationRecord
                    | Key::Backup
                    | Key::RestoreMarker
                    | Key::Incarnation
                    | Key::Leader
                    | Key::Candidate(_)
                    | Key::Refresh(_)
                    | Key::DoctorReport(_)
                    | Key::UsageReport(_)
                    | Key::Event(..)
                    | Key::LogRequest(..)
                    | Key::JoinToken(..)
                    | Key::IssuedCertificate(..)
                    | Key::LogAnswer(..),
                )
                | None => {}
            }
        }
    }

    /// Checks that the epoch does not decrease, and records whether the fence releases the node's services.
    fn check_fence(&mut self, node: &NodeName, value: &[u8]) {
        let Ok(fence) = serde_json::from_slice::<Fence>(value) else {
            return self.record_violation("readable records", format!("fence of {node} cannot be read"));
        };
        let previous_epoch = self.node_epochs.insert(node.to_owned(), fence.epoch).unwrap_or_default();
        if fence.epoch < previous_epoch {
            self.record_violation(
                "epochs never go back",
                format!("{node}: {previous_epoch} to {}", fence.epoch),
            );
        }
        let sentence =
            fence.proof.as_ref().map_or_else(String::new, |proof| format!(", {}", proof.sentence()));
        self.log(node, "fence", &format!("epoch {} {}{sentence}", fence.epoch, fence.state.name()));
        self.record_release(node, &fence);
        if fence.state == FenceState::Open {
            self.on_boot_admitted(node, &fence.boot_id);
        }
        if fence.state != FenceState::Fenced {
            if fence.state == FenceState::Fencing {
                self.fencing_nodes.insert(node.to_owned());
            }
            return;
        }
        // A node that left, or that registered again before it was declared dead, was not fenced.
        let was_fencing = self.fencing_nodes.remove(node);
        let ended_without_fencing = matches!(
            fence.proof,
            Some(
                Proof::Reregistered | Proof::NewBoot { .. } | Proof::CleanLeave { .. } | Proof::NothingActive
            )
        );
        if was_fencing || (fence.epoch > previous_epoch && !ended_without_fencing) {
            self.fenced.push((node.to_owned(), self.now));
        }
    }

    /// Records the time of a start permit.
    fn record_permit(&mut self, node: &NodeName, name: &ResourceName, value: &[u8]) {
        let report = serde_json::from_slice::<ServiceReport>(value);
        if report.is_ok_and(|report| report.phase == Phase::Starting) {
            self.permit_times.insert((name.to_owned(), node.to_owned()), self.now);
        }
    }

    /// Records that rules may have changed: moves in progress were planned under the old rules.
    fn record_rule_change(&mut self, kind: Kind) {
        match kind {
            Kind::Resource | Kind::Group | Kind::AffinityRule | Kind::Node => {
                self.rules_changed_at = self.now;
            }
            Kind::NodeGroup | Kind::Cluster | Kind::Operation | Kind::GitSync => {}
        }
    }

    fn is_epoch_closed(&self, node: &NodeName) -> bool {
        let fence: Option<Fence> = self.read_record(&self.keys.fence(node));
        fence.is_some_and(|fence| fence.state != FenceState::Open)
    }

    fn record_service_status(&mut self, name: &ResourceName, value: &[u8]) {
        let Ok(status) = serde_json::from_slice::<ResourceStatus>(value) else {
            return self.record_violation("readable records", format!("status of {name} cannot be read"));
        };
        if super::steps::is_busy(&status) {
            self.settled_services.remove(name);
        } else {
            self.settled_services.insert(name.to_owned());
        }
        let node = status.node.clone().unwrap_or_default();
        let previous = self.service_states.insert(name.to_owned(), (status.state, status.node.clone()));
        if previous != Some((status.state, status.node.clone())) {
            self.log(&node, "service", &format!("{name} is {:?}", status.state));
        }
        if matches!(status.state, ServiceState::Fence | ServiceState::Recovery) {
            self.record_recovery(name, status.node.as_ref());
        }
        // A leader that closes an epoch and releases its services in one plan writes neither state.
        if let Some((_, Some(previous_node))) = &previous
            && *previous_node != node
            && self.is_epoch_closed(previous_node)
        {
            self.record_recovery(name, Some(previous_node));
        }
        if !matches!(status.state, ServiceState::Ignored | ServiceState::Queued) {
            self.managed_services.insert(name.to_owned());
        }
        let previous_state = previous.map(|(state, _)| state);
        if previous_state == Some(ServiceState::Queued) && self.service_activity(&node, name).is_some() {
            self.found_running_at.insert(node.clone(), self.now);
        }
        let is_moving_state = |state| matches!(state, Some(ServiceState::Migrate | ServiceState::Relocate));
        if is_moving_state(Some(status.state)) && !is_moving_state(previous_state) {
            self.moves_in_progress.insert(name.to_owned(), (status.state, node, self.now));
        }
        if !is_moving_state(Some(status.state))
            && let Some((kind, from, begun)) = self.moves_in_progress.get(name).cloned()
            && matches!(status.state, ServiceState::Started)
        {
            self.moves_in_progress.remove(name);
            if let Some(to) = status.node.filter(|to| *to != from) {
                self.check_rules_after_move(name, &to, begun);
                self.moves.push(super::Move { service: name.to_owned(), kind, from, to, at: self.now });
            }
        }
    }

    fn record_node_status(&mut self, node: &NodeName, value: &[u8]) {
        let Ok(status) = serde_json::from_slice::<NodeStatus>(value) else {
            return self.record_violation("readable records", format!("status of {node} cannot be read"));
        };
        if self.node_states.insert(node.to_owned(), status.state) != Some(status.state) {
            self.log(node, "node", &format!("is {:?}", status.state));
        }
    }
}
