//! Unreadable values: a stored value that this version cannot read counts as its most dangerous possible value
//! (FENCING, R1.16 to R1.22).
//!
//! The tables of the view contain the readable part of such a value. The unreadable fields have their most dangerous
//! values. Code that must distinguish unreadable values calls the functions of this module.

use super::{ClusterView, Versioned};
use ha_api_types::cluster::{CLUSTER_NAME, Cluster, OnEtcdLoss};
use ha_api_types::id::{Epoch, NodeName, ResourceName, Revision};
use ha_api_types::keys::Key;
use ha_api_types::kind::Kind;
use ha_api_types::lenient::Partial;
use ha_api_types::record::{Action, Assignment, FenceState, HoldTerms, Mode, Phase, ServiceReport};
use ha_api_types::time::MonotonicTime;
use ha_api_types::timing::{Profile, Timings};
use std::collections::{BTreeMap, BTreeSet};

/// Fields of a service report that do not affect safety.
const HARMLESS_IN_SERVICE_REPORT: [&str; 6] = ["restarts", "reason", "message", "failure", "asked", "at"];
/// Fields of a node report that do not affect safety.
const HARMLESS_IN_NODE_REPORT: [&str; 4] = ["version", "capacity", "drivers", "protocol"];
/// Fields of a resource's status that do not affect safety.
const HARMLESS_IN_STATUS: [&str; 9] = [
    "conditions",
    "availability",
    "replicas",
    "declaredSecondary",
    "runningSince",
    "failedNodes",
    "neverNodes",
    "relocations",
    "moveFailures",
];

/// Nodes and resources with a stored value that cannot be read. Each such value counts as the most dangerous possible
/// one.
#[derive(Clone, Debug, Default)]
pub(in crate::core) struct UnreadableSubjects {
    /// Nodes with an unreadable fence; `true` if the epoch of the fence is also unreadable.
    fences: BTreeMap<NodeName, bool>,
    node_reports: BTreeSet<NodeName>,
    heartbeats: BTreeSet<NodeName>,
    service_reports: BTreeSet<(NodeName, ResourceName)>,
    statuses: BTreeSet<ResourceName>,
    assignments: BTreeSet<ResourceName>,
}

impl UnreadableSubjects {
    /// Removes a key that was deleted, or of which no part is kept.
    pub(super) fn discard(&mut self, key: &Key<'_>) {
        match key {
            Key::Fence(node) => drop(self.fences.remove(node)),
            Key::NodeReport(node) => drop(self.node_reports.remove(node)),
            Key::Alive(node) => drop(self.heartbeats.remove(node)),
            Key::ServiceReport(node, resource) if !self.service_reports.is_empty() => {
                self.service_reports.remove(&(node.clone(), resource.clone()));
            }
            Key::Status(Kind::Resource, name) => drop(self.statuses.remove(*name)),
            Key::Assignment(name) => drop(self.assignments.remove(name)),
            Key::Spec(..)
            | Key::Status(..)
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
            | Key::ServiceReport(..)
            | Key::Event(..)
            | Key::LogRequest(..)
            | Key::JoinToken(..)
            | Key::IssuedCertificate(..)
            | Key::LogAnswer(..) => {}
        }
    }
}

/// Returns `true` if the readable part of such a key is kept when the rest is unreadable.
pub(super) fn keeps_readable_part(key: &Key<'_>) -> bool {
    match key {
        // Of an unreadable Cluster object, no part is kept: the previous settings stay active.
        Key::Spec(Kind::Cluster, _)
        | Key::Status(..)
        | Key::Assignment(_)
        | Key::Fence(_)
        | Key::NotificationRecord
        | Key::Backup
        | Key::RestoreMarker
        | Key::Incarnation
        | Key::Leader
        | Key::Candidate(_)
        | Key::Refresh(_)
        | Key::Alive(_)
        | Key::NodeReport(_)
        | Key::DoctorReport(_)
        | Key::UsageReport(_)
        | Key::ServiceReport(..)
        | Key::Event(..)
        | Key::LogRequest(..)
        | Key::JoinToken(..)
        | Key::IssuedCertificate(..)
        | Key::LogAnswer(..) => true,
        Key::Spec(..) | Key::Tombstone(_) => false,
    }
}

impl ClusterView {
    /// Returns `true` if the fence of a node is unreadable: it counts as Fencing, and only an operator clears it.
    pub(in crate::core) fn is_fence_unreadable(&self, node: &NodeName) -> bool {
        self.unreadable_subjects.fences.contains_key(node)
    }

    /// Returns `true` if the report of a node is unreadable. Such a report is not proof.
    pub(in crate::core) fn is_node_report_unreadable(&self, node: &NodeName) -> bool {
        self.unreadable_subjects.node_reports.contains(node)
    }

    /// Returns `true` if the heartbeat of a node is unreadable: only its change counts.
    pub(in crate::core) fn is_heartbeat_unreadable(&self, node: &NodeName) -> bool {
        self.unreadable_subjects.heartbeats.contains(node)
    }

    /// Returns `true` if a service report is unreadable: it counts as an active, exclusive copy in unknown state.
    pub(in crate::core) fn is_report_unreadable(&self, resource: &ResourceName, node: &NodeName) -> bool {
        !self.unreadable_subjects.service_reports.is_empty()
            && self.unreadable_subjects.service_reports.contains(&(node.to_owned(), resource.clone()))
    }

    /// Returns `true` if the status or the assignment of a resource is unreadable.
    pub(in crate::core) fn is_service_unreadable(&self, resource: &ResourceName) -> bool {
        self.unreadable_subjects.statuses.contains(resource)
            || self.unreadable_subjects.assignments.contains(resource)
    }

    pub(in crate::core) fn is_assignment_unreadable(&self, resource: &ResourceName) -> bool {
        self.unreadable_subjects.assignments.contains(resource)
    }

    /// Returns `false` if the Cluster object exists and both the object and its active values are unreadable. The
    /// leader then plans no action.
    pub fn has_readable_settings(&self) -> bool {
        self.cluster.is_some()
            || self.unreadable.is_empty()
            || !self.unreadable.contains_key(&self.keys.spec(Kind::Cluster, CLUSTER_NAME))
    }

    /// Returns `true` if a service that was permitted on a node under an epoch may still run there.
    pub fn may_run_under_epoch(&self, node: &NodeName, epoch: Epoch) -> bool {
        match self.unreadable_subjects.fences.get(node) {
            None => self.unreleased_epoch(node) == Some(epoch),
            Some(true) => true,
            // The node's epoch may be open, or closed without a proof.
            Some(false) => self.fences.get(node).is_some_and(|fence| epoch + 1 >= fence.value.epoch),
        }
    }

    /// Returns `true` if a service report may still hold, because its epoch is open or closed without a proof. An
    /// unreadable report belongs to the epoch that contains its revision: a registration precedes all reports under its
    /// epoch.
    pub fn is_report_current(
        &self,
        resource: &ResourceName,
        node: &NodeName,
        report: &Versioned<ServiceReport>,
    ) -> bool {
        if !self.is_report_unreadable(resource, node) {
            return self.may_run_under_epoch(node, report.value.epoch);
        }
        let Some(fence) = self.fences.get(node) else { return true };
        let is_since_registration = fence.value.request.is_none_or(|request| report.mod_revision > request);
        self.is_fence_unreadable(node) || (self.unreleased_epoch(node).is_some() && is_since_registration)
    }

    /// Returns the highest epoch that any key of a node names.
    pub(in crate::core) fn highest_epoch(&self, node: &NodeName) -> Epoch {
        let fence = self.fences.get(node).map(|fence| fence.value.epoch);
        let alive = self.alive.get(node).map(|alive| alive.value.epoch);
        let report = self.node_reports.get(node).map(|report| report.value.epoch);
        let services = self.service_reports.values().filter_map(|table| Some(table.get(node)?.value.epoch));
        let assigned = self.assignments.values().flat_map(|assignment| {
            let Assignment { node, epoch, action, .. } = &assignment.value;
            let target = match action {
                Action::Migrate { target, target_epoch, .. } => Some((target, *target_epoch)),
                Action::Start | Action::Stop { .. } | Action::Restart | Action::DoNothing => None,
            };
            [Some((node, *epoch)), target].into_iter().flatten()
        });
        let assigned = assigned.filter(|(name, _)| *name == node).map(|(_, epoch)| epoch);
        let statuses = self.resource_statuses.values().map(|status| &status.value);
        let statuses = statuses.filter(|status| status.node.as_ref() == Some(node));
        let recorded_epochs = [fence, alive, report].into_iter().flatten().chain(services).chain(assigned);
        recorded_epochs.chain(statuses.filter_map(|status| status.epoch)).max().unwrap_or_default()
    }

    pub(super) fn track_unreadable_fence(
        &mut self,
        node: &NodeName,
        read_result: Result<(), Partial<()>>,
    ) -> Result<(), String> {
        let Err(partial) = read_result else {
            self.unreadable_subjects.fences.remove(node);
            return Ok(());
        };
        self.unreadable_subjects.fences.insert(node.to_owned(), partial.is_unreadable("epoch"));
        if let Some(fence) = self.fences.get_mut(node) {
            let fence = &mut fence.value;
            fence.state = FenceState::Fencing;
            fence.proof = None;
            fence.armed_fencing_delay_ms = None;
            fence.hold = Some(HoldTerms { candidate_generation: Revision(0) });
        }
        Err(partial.error)
    }

    pub(super) fn track_unreadable_node_report(
        &mut self,
        node: &NodeName,
        read_result: Result<(), Partial<()>>,
    ) -> Result<(), String> {
        self.unreadable_subjects.node_reports.remove(node);
        let Err(partial) = read_result else { return Ok(()) };
        if partial.has_only_unreadable(&HARMLESS_IN_NODE_REPORT) {
            return Err(partial.error);
        }
        self.unreadable_subjects.node_reports.insert(node.to_owned());
        if let Some(report) = self.node_reports.get_mut(node) {
            let report = &mut report.value;
            if partial.is_unreadable("mode") {
                // Registering or Left would count as evidence that no service runs.
                report.mode = Mode::Active;
            }
            if partial.is_unreadable("timings") {
                report.timings = Timings::of_profile(Profile::Conservative);
            }
            if ["onStoreLoss", "onEtcdLoss"].iter().any(|name| partial.is_unreadable(name))
                || partial.is_unreadable("candidateGeneration")
            {
                report.on_etcd_loss = OnEtcdLoss::Hold;
                report.candidate_generation = Revision(0);
            }
        }
        Err(partial.error)
    }

    pub(super) fn track_unreadable_heartbeat(
        &mut self,
        node: &NodeName,
        read_result: Result<(), Partial<()>>,
    ) -> Result<(), String> {
        self.unreadable_subjects.heartbeats.remove(node);
        let Err(partial) = read_result else { return Ok(()) };
        self.unreadable_subjects.heartbeats.insert(node.to_owned());
        Err(partial.error)
    }

    pub(super) fn track_unreadable_service_report(
        &mut self,
        node: &NodeName,
        resource: &ResourceName,
        read_result: Result<(), Partial<()>>,
    ) -> Result<(), String> {
        let report_key = (node.to_owned(), resource.clone());
        self.unreadable_subjects.service_reports.remove(&report_key);
        let Err(partial) = read_result else { return Ok(()) };
        if partial.has_only_unreadable(&HARMLESS_IN_SERVICE_REPORT) {
            return Err(partial.error);
        }
        self.unreadable_subjects.service_reports.insert(report_key);
        if let Some(report) = self.service_reports.get_mut(resource).and_then(|table| table.get_mut(node)) {
            let report = &mut report.value;
            report.phase = Phase::ProbedUnknown;
            report.exclusive = true;
            report.message = format!("Report of {node} cannot be read: {}", partial.error);
        }
        Err(partial.error)
    }

    pub(super) fn track_unreadable_status(
        &mut self,
        resource: &ResourceName,
        read_result: Result<(), Partial<()>>,
    ) -> Result<(), String> {
        self.unreadable_subjects.statuses.remove(resource);
        let Err(partial) = read_result else { return Ok(()) };
        if !partial.has_only_unreadable(&HARMLESS_IN_STATUS) {
            self.unreadable_subjects.statuses.insert(resource.clone());
        }
        Err(partial.error)
    }

    pub(super) fn track_unreadable_assignment(
        &mut self,
        resource: &ResourceName,
        read_result: Result<(), Partial<()>>,
    ) -> Result<(), String> {
        self.unreadable_subjects.assignments.remove(resource);
        let Err(partial) = read_result else { return Ok(()) };
        self.unreadable_subjects.assignments.insert(resource.clone());
        Err(partial.error)
    }

    /// Activates the settings in the Cluster's status while the Cluster object is unreadable, even in a process that
    /// has never read the object. Without such a status, the last settings that this process could read stay active.
    pub(super) fn restore_active_settings(&mut self, now: MonotonicTime) {
        let is_unreadable = self.unreadable.contains_key(&self.keys.spec(Kind::Cluster, CLUSTER_NAME));
        let stored = self.cluster_status.as_ref().filter(|_| is_unreadable).map(|status| &status.value);
        if let Some((status, active)) = stored.and_then(|status| Some((status, status.active.clone()?))) {
            let generation = status.observed_generation;
            let cluster = self.cluster.get_or_insert_with(|| Versioned {
                value: Cluster::new(CLUSTER_NAME, active.clone()),
                create_revision: Revision(0),
                mod_revision: Revision(0),
                first_seen_at: now,
            });
            cluster.value.spec = active;
            cluster.value.metadata.generation = generation;
        }
        self.update_timings();
    }
}
