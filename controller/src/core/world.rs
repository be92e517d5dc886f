//! The view of the cluster as last read from etcd: typed, with revisions, and with the time at which this process saw
//! each value.

mod counting;
mod heartbeat;
mod identities;
mod observation;
mod policies;
mod protocol;
mod tables;
mod unreadable;

use ha_api_types::id::{ControllerId, Epoch, NodeName, OperationName, ResourceName, Revision};
use identities::Identities;

pub use observation::{Observation, RefreshObservation};

use ha_api_types::cluster::{CLUSTER_NAME, Cluster, ClusterSpec, ClusterStatus, ShutdownPolicy};
use ha_api_types::keys::{Key, Keys};
use ha_api_types::kind::Kind;
use ha_api_types::node::{Node, NodeGroup, NodeGroupStatus, NodeStatus};
use ha_api_types::node_policy::NodePolicy;
use ha_api_types::operation::{Operation, OperationStatus};
use ha_api_types::placement::{AffinityRule, Group, RuleStatus};
use ha_api_types::protocol::Protocol;
use ha_api_types::record::{
    Alive, Assignment, BackupRecord, DoctorReport, Fence, FenceState, Incarnation, NodeReport,
    NotificationRecord, RestoreMarker, ServiceReport, Tombstone, UsageReport,
};
use ha_api_types::resource::{Resource, ResourceStatus};
use ha_api_types::time::MonotonicTime;
use ha_api_types::timing::Timings;
use ha_store::{Change, Entry, Guard};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use tables::{error_text, put, put_record, put_single};

/// A value with the revisions at which it was read, and the time at which this process first saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Versioned<T> {
    /// The parsed value.
    pub value: T,
    /// Create revision of the key.
    pub create_revision: Revision,
    /// Mod revision of the key.
    pub mod_revision: Revision,
    /// Time on this process's own clock when it first saw this revision. Every wait that a later leader may repeat in
    /// full counts from this time; wall clocks affect no decision.
    pub first_seen_at: MonotonicTime,
}

/// Objects or records by name.
pub type Table<K, T> = BTreeMap<K, Versioned<T>>;

/// Number of consecutive failed moves of a service, and the time of the last one on this process's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedMoves {
    /// Number of consecutive failures.
    pub count: u32,
    /// Time at which this number was first seen. Other writes about the service do not change it.
    pub since: MonotonicTime,
}

/// The typed view of the cluster.
///
/// Guarantees: the view is the complete content of etcd at `revision`. A key whose value is unreadable, completely or
/// in some field, is in `unreadable` and counts as its most dangerous possible value (`world/unreadable.rs`).
/// Candidates are the exception: only their protocol version is always read.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// Layout of the keys.
    pub keys: Keys,
    /// Revision up to which the view is complete; 0 before the first read.
    pub revision: Revision,
    /// The single Cluster object.
    pub cluster: Option<Versioned<Cluster>>,
    /// Resource objects by name.
    pub resources: Table<ResourceName, Resource>,
    /// Group objects by name.
    pub groups: Table<String, Group>,
    /// AffinityRule objects by name.
    pub rules: Table<String, AffinityRule>,
    /// Node objects by name.
    pub nodes: Table<NodeName, Node>,
    /// NodeGroup objects by name.
    pub node_groups: Table<String, NodeGroup>,
    /// Operation objects by name.
    pub operations: Table<OperationName, Operation>,
    /// Status of the Cluster object.
    pub cluster_status: Option<Versioned<ClusterStatus>>,
    /// Statuses of resources by name.
    pub resource_statuses: Table<ResourceName, ResourceStatus>,
    /// Statuses of groups by name.
    pub group_statuses: Table<String, RuleStatus>,
    /// Statuses of affinity rules by name.
    pub rule_statuses: Table<String, RuleStatus>,
    /// Statuses of nodes by name.
    pub node_statuses: Table<NodeName, NodeStatus>,
    /// Statuses of node groups by name.
    pub node_group_statuses: Table<String, NodeGroupStatus>,
    /// Statuses of operations by name.
    pub operation_statuses: Table<OperationName, OperationStatus>,
    /// Assignments by resource.
    pub assignments: Table<ResourceName, Assignment>,
    /// Tombstones by resource.
    pub tombstones: Table<ResourceName, Tombstone>,
    /// Fence records (epoch and fencing state) by node.
    pub fences: Table<NodeName, Fence>,
    /// Heartbeats by node.
    pub alive: Table<NodeName, Alive>,
    /// Reports of agents about their nodes, by node.
    pub node_reports: Table<NodeName, NodeReport>,
    /// The different policies of all nodes, sorted.
    policies: Vec<NodePolicy>,
    /// Results of the agents' machine checks, by node.
    pub doctor_reports: Table<NodeName, DoctorReport>,
    /// Resource usage measured by agents, by node.
    pub usage_reports: Table<NodeName, UsageReport>,
    /// Reports of agents about services: by resource, then by node.
    pub service_reports: BTreeMap<ResourceName, Table<NodeName, ServiceReport>>,
    /// Record of notifications; `None` if none was ever stored.
    pub notified: Option<Versioned<NotificationRecord>>,
    /// The last verified backup of etcd.
    pub backup: Option<Versioned<BackupRecord>>,
    /// Marker of a restore from a backup; `None` if no restore is in progress.
    pub restored: Option<Versioned<RestoreMarker>>,
    /// Identity of etcd's data; `None` until the first leader has created it.
    pub incarnation: Option<Versioned<Incarnation>>,
    /// The leader key; `None` without a leader.
    pub leader: Option<Entry>,
    /// Candidate keys by id, unparsed. [`ClusterView::candidates`] parses them for display.
    pub candidate_entries: BTreeMap<ControllerId, Entry>,
    /// Protocol version of each candidate, as in `candidate_entries`.
    candidate_protocols: BTreeMap<ControllerId, Protocol>,
    /// Refresh keys by candidate id, unparsed.
    pub refresh_entries: BTreeMap<ControllerId, Entry>,
    /// Time of the last observed refresh, by candidate id.
    pub refreshed: BTreeMap<ControllerId, RefreshObservation>,
    /// Keys whose value is unreadable in some field, with the error.
    pub unreadable: BTreeMap<String, String>,
    /// Unreadable values that count as their most dangerous possible value.
    pub(in crate::core) unreadable_subjects: unreadable::UnreadableSubjects,
    /// Time of the last observed heartbeat, by node.
    pub observations: BTreeMap<NodeName, Observation>,
    /// Services whose last move failed.
    pub failed_moves: BTreeMap<ResourceName, FailedMoves>,
    /// Identity of each resource's definition, computed when the resource changes.
    identities: Identities,
    /// Timings of the Cluster object, computed when it changes, because every input needs them.
    timings: Timings,
    /// Events that have not been counted yet; `None` if this view does not count events.
    counting: Option<counting::Counting>,
    /// All entries as read, so that a complete read only processes differences.
    entries: BTreeMap<String, Entry>,
}

/// Effect of a change on planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanRelevance {
    /// No plan depends on the change.
    Irrelevant,
    /// A heartbeat of a node that was in time before.
    Heartbeat,
    /// A plan may depend on the change.
    Relevant,
}

impl ClusterView {
    /// Creates an empty view, before the first read.
    pub fn new(keys: Keys) -> ClusterView {
        ClusterView {
            keys,
            revision: Revision(0),
            cluster: None,
            resources: Table::new(),
            groups: Table::new(),
            rules: Table::new(),
            nodes: Table::new(),
            node_groups: Table::new(),
            operations: Table::new(),
            cluster_status: None,
            resource_statuses: Table::new(),
            group_statuses: Table::new(),
            rule_statuses: Table::new(),
            node_statuses: Table::new(),
            node_group_statuses: Table::new(),
            operation_statuses: Table::new(),
            assignments: Table::new(),
            tombstones: Table::new(),
            fences: Table::new(),
            alive: Table::new(),
            node_reports: Table::new(),
            policies: Vec::new(),
            doctor_reports: Table::new(),
            usage_reports: Table::new(),
            service_reports: BTreeMap::new(),
            notified: None,
            backup: None,
            restored: None,
            incarnation: None,
            leader: None,
            candidate_entries: BTreeMap::new(),
            candidate_protocols: BTreeMap::new(),
            refresh_entries: BTreeMap::new(),
            refreshed: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            unreadable_subjects: unreadable::UnreadableSubjects::default(),
            observations: BTreeMap::new(),
            failed_moves: BTreeMap::new(),
            identities: Identities::default(),
            timings: Timings::default(),
            counting: None,
            entries: BTreeMap::new(),
        }
    }

    /// Creates an empty view that collects events to count.
    pub(in crate::core) fn with_metric_events(keys: Keys) -> ClusterView {
        ClusterView { counting: Some(counting::Counting::default()), ..ClusterView::new(keys) }
    }

    /// Replaces the view with a complete read, unless the view is already newer. Unchanged values keep the time at
    /// which they were first seen.
    pub fn replace(&mut self, entries: Vec<Entry>, revision: Revision, now: MonotonicTime) {
        if revision < self.revision {
            return;
        }
        let present: BTreeSet<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
        let is_removed = |key: &&String| !present.contains(key.as_str());
        let removed_keys: Vec<String> = self.entries.keys().filter(is_removed).cloned().collect();
        for key in &removed_keys {
            self.remove(key);
        }
        for entry in entries {
            if self.entries.get(&entry.key) != Some(&entry) {
                self.put(entry, now);
            }
        }
        self.revision = revision;
    }

    /// Applies changes in order. Changes that the view already contains are skipped.
    pub fn apply(&mut self, changes: Vec<Change>, revision: Revision, now: MonotonicTime) -> PlanRelevance {
        let mut relevance = PlanRelevance::Irrelevant;
        for change in changes {
            let change_relevance = match change {
                Change::Put(entry) if entry.mod_revision > self.revision => self.put(entry, now),
                Change::Delete { key, revision } if revision > self.revision => self.remove(&key),
                Change::Put(_) | Change::Delete { .. } => PlanRelevance::Irrelevant,
            };
            relevance = relevance.max(change_relevance);
        }
        self.revision = self.revision.max(revision);
        relevance
    }

    /// Returns the settings of the cluster; defaults without a Cluster object.
    pub fn settings(&self) -> Cow<'_, ClusterSpec> {
        match &self.cluster {
            Some(cluster) => Cow::Borrowed(&cluster.value.spec),
            None => Cow::Owned(ClusterSpec::default()),
        }
    }

    /// Returns the timings of the Cluster object; defaults if they are invalid.
    pub fn timings(&self) -> Timings {
        self.timings
    }

    /// Returns the shutdown policy of a node. Maintenance of the node takes precedence over the cluster's policy.
    pub fn shutdown_policy(&self, node: &NodeName) -> ShutdownPolicy {
        if self.nodes.get(node).is_some_and(|node| node.value.spec.maintenance) {
            return ShutdownPolicy::Migrate;
        }
        self.settings().shutdown_policy
    }

    /// Returns the generation of the Cluster object, 0 without one.
    pub fn cluster_generation(&self) -> i64 {
        self.cluster.as_ref().map_or(0, |cluster| cluster.value.metadata.generation)
    }

    /// Returns the report of a node about a service.
    pub fn service_report(
        &self,
        resource: &ResourceName,
        node: &NodeName,
    ) -> Option<&Versioned<ServiceReport>> {
        self.service_reports.get(resource)?.get(node)
    }

    /// Returns the epoch under which a service that may still run on a node was permitted: the open epoch, or the last
    /// epoch if it was closed without a proof. `None` if no managed service may run there.
    pub fn unreleased_epoch(&self, node: &NodeName) -> Option<Epoch> {
        let fence = &self.fences.get(node)?.value;
        match fence.state {
            FenceState::Open => Some(fence.epoch),
            FenceState::Fencing => Some(fence.epoch.previous()),
            FenceState::Fenced | FenceState::Closed => None,
        }
    }

    /// Returns an entry as it was read; `None` if the key does not exist.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Returns the first of these keys with an unreadable value, and the error.
    pub fn first_unreadable(&self, keys: &[String]) -> Option<(&String, &String)> {
        keys.iter().find_map(|key| self.unreadable.get_key_value(key))
    }

    /// Parses a key. Returns `None` for keys without significance for the leader's plan.
    fn planned_key<'k>(&self, key: &'k str) -> Option<Key<'k>> {
        let parsed = self.keys.parse(key)?;
        let is_for_others = matches!(
            parsed,
            Key::Spec(Kind::GitSync, _)
                | Key::Status(Kind::GitSync, _)
                | Key::Event(..)
                | Key::LogRequest(..)
                | Key::JoinToken(..)
                | Key::IssuedCertificate(..)
                | Key::LogAnswer(..)
        );
        (!is_for_others).then_some(parsed)
    }

    fn put(&mut self, entry: Entry, now: MonotonicTime) -> PlanRelevance {
        let Some(key) = self.planned_key(&entry.key) else { return PlanRelevance::Irrelevant };
        let relevance = self.apply_entry(&key, &entry, now);
        match self.entries.get_mut(&entry.key) {
            Some(stored) => *stored = entry,
            None => drop(self.entries.insert(entry.key.clone(), entry)),
        }
        relevance
    }

    fn apply_entry(&mut self, key: &Key<'_>, entry: &Entry, now: MonotonicTime) -> PlanRelevance {
        let read = match key {
            Key::Spec(kind, name) => self.put_spec(*kind, name, entry, now),
            Key::Status(kind, name) => self.put_status(*kind, name, entry, now),
            Key::Assignment(name) => {
                let read = put_record(&mut self.assignments, name, entry, now);
                self.track_unreadable_assignment(name, read)
            }
            Key::Tombstone(name) => put(&mut self.tombstones, name, entry, now),
            Key::Fence(name) => {
                let before = self.fences.get(name).map(|fence| fence.value.state);
                let read = put_record(&mut self.fences, name, entry, now);
                let read = self.track_unreadable_fence(name, read);
                self.count_fence(name, before, now);
                self.observe_fence(name, now);
                read
            }
            Key::NotificationRecord => {
                put_single(&mut self.notified, CLUSTER_NAME, entry, now).map_err(error_text)
            }
            Key::Backup => put_single(&mut self.backup, CLUSTER_NAME, entry, now).map_err(error_text),
            Key::Incarnation => {
                put_single(&mut self.incarnation, CLUSTER_NAME, entry, now).map_err(error_text)
            }
            Key::RestoreMarker => {
                // An unreadable marker still counts as a marker.
                let value = serde_json::from_slice(&entry.value).unwrap_or_default();
                let first_seen_at =
                    self.restored.as_ref().filter(|marker| marker.mod_revision == entry.mod_revision);
                let first_seen_at = first_seen_at.map_or(now, |marker| marker.first_seen_at);
                let (create_revision, mod_revision) = (entry.create_revision, entry.mod_revision);
                self.restored = Some(Versioned { value, create_revision, mod_revision, first_seen_at });
                Ok(())
            }
            Key::Leader => {
                self.leader = Some(entry.clone());
                Ok(())
            }
            Key::Candidate(name) => {
                let earlier_entry = self.candidate_entries.insert(name.clone(), entry.clone());
                self.update_candidate_protocol(name);
                self.observe_refresh(name, earlier_entry.is_some(), now);
                if earlier_entry.is_some() {
                    return PlanRelevance::Irrelevant;
                }
                Ok(())
            }
            Key::Refresh(name) => {
                let earlier_entry = self.refresh_entries.insert(name.clone(), entry.clone());
                self.observe_refresh(name, earlier_entry.is_some(), now);
                return PlanRelevance::Irrelevant;
            }
            Key::Alive(name) => {
                let expected =
                    self.alive.get(name).is_some_and(|alive| alive.create_revision == entry.create_revision);
                let before = self.entries.get(&entry.key).map(|entry| &*entry.value);
                let read = heartbeat::put(&mut self.alive, name, before, entry, now);
                let read = self.track_unreadable_heartbeat(name, read);
                let late_metric = self.observe_heartbeat(name, entry.mod_revision, now);
                if expected && !late_metric && read.is_ok() {
                    return PlanRelevance::Heartbeat;
                }
                read
            }
            Key::NodeReport(name) => {
                let before = self.policy_of(name).cloned();
                let read = put_record(&mut self.node_reports, name, entry, now);
                self.update_policies(name, before.as_ref());
                self.track_unreadable_node_report(name, read)
            }
            Key::DoctorReport(name) => {
                put_record(&mut self.doctor_reports, name, entry, now).map_err(error_text)
            }
            Key::UsageReport(name) => {
                put_record(&mut self.usage_reports, name, entry, now).map_err(error_text)
            }
            Key::ServiceReport(node, name) => {
                let table = self.service_reports.entry(name.clone()).or_default();
                let read = put_record(table, node, entry, now);
                self.track_unreadable_service_report(node, name, read)
            }
            Key::Event(..)
            | Key::LogRequest(..)
            | Key::JoinToken(..)
            | Key::IssuedCertificate(..)
            | Key::LogAnswer(..) => return PlanRelevance::Irrelevant,
        };
        match read {
            Ok(()) => {
                self.unreadable.remove(&entry.key);
            }
            Err(error) => {
                if !unreadable::keeps_readable_part(key) {
                    self.remove_value(key);
                }
                self.unreadable.insert(entry.key.clone(), error);
            }
        }
        if matches!(key, Key::Spec(Kind::Cluster, _) | Key::Status(Kind::Cluster, _)) {
            self.restore_active_settings(now);
        }
        // A change of usage figures alone causes no plan. The next plan uses the latest figures. No plan depends on a
        // backup.
        if matches!(key, Key::UsageReport(_) | Key::Backup) {
            PlanRelevance::Irrelevant
        } else {
            PlanRelevance::Relevant
        }
    }

    fn put_spec(&mut self, kind: Kind, name: &str, entry: &Entry, now: MonotonicTime) -> Result<(), String> {
        match kind {
            Kind::Resource => {
                let name = &ResourceName::from(name);
                let read = put(&mut self.resources, name, entry, now);
                self.update_identity(name);
                read
            }
            Kind::Group => put(&mut self.groups, &name.to_owned(), entry, now),
            Kind::AffinityRule => put(&mut self.rules, &name.to_owned(), entry, now),
            Kind::Node => put(&mut self.nodes, &name.into(), entry, now),
            Kind::NodeGroup => put(&mut self.node_groups, &name.to_owned(), entry, now),
            Kind::Cluster => {
                // If the Cluster object is unreadable, the previous settings stay active.
                let mut read = self.cluster.clone();
                let result = put_single(&mut read, name, entry, now).map_err(error_text);
                if result.is_ok() && name == CLUSTER_NAME {
                    self.cluster = read;
                }
                result
            }
            Kind::Operation => put(&mut self.operations, &name.into(), entry, now),
            Kind::GitSync => Ok(()),
        }
    }

    fn put_status(
        &mut self,
        kind: Kind,
        name: &str,
        entry: &Entry,
        now: MonotonicTime,
    ) -> Result<(), String> {
        match kind {
            Kind::Resource => {
                let name = &ResourceName::from(name);
                let before = self.service_before(name);
                let read = put_record(&mut self.resource_statuses, name, entry, now);
                let read = self.track_unreadable_status(name, read);
                self.update_identity(name);
                self.count_service(name, before, now);
                self.observe_failed_moves(name, now);
                read
            }
            Kind::Group => {
                put_record(&mut self.group_statuses, &name.to_owned(), entry, now).map_err(error_text)
            }
            Kind::AffinityRule => {
                put_record(&mut self.rule_statuses, &name.to_owned(), entry, now).map_err(error_text)
            }
            Kind::Node => put_record(&mut self.node_statuses, &name.into(), entry, now).map_err(error_text),
            Kind::NodeGroup => {
                put_record(&mut self.node_group_statuses, &name.to_owned(), entry, now).map_err(error_text)
            }
            Kind::Cluster => put_single(&mut self.cluster_status, name, entry, now).map_err(error_text),
            Kind::Operation => {
                let before = self.operation_statuses.get(name).map(|status| status.value.phase);
                let read =
                    put_record(&mut self.operation_statuses, &name.into(), entry, now).map_err(error_text);
                self.count_operation(name, before);
                read
            }
            Kind::GitSync => Ok(()),
        }
    }

    fn update_timings(&mut self) {
        let declared = self.cluster.as_ref().map(|cluster| Timings::from(&cluster.value.spec.timing));
        let is_valid = |timings: &Timings| ha_api_types::timing::problems(timings).is_empty();
        self.timings = declared.filter(is_valid).unwrap_or_default();
    }

    /// Observes a change of a service's status.
    fn observe_failed_moves(&mut self, name: &ResourceName, now: MonotonicTime) {
        let count = self.resource_statuses.get(name).map_or(0, |status| status.value.move_failures);
        if count == 0 {
            self.failed_moves.remove(name);
        } else if self.failed_moves.get(name).is_none_or(|failed_moves| failed_moves.count != count) {
            self.failed_moves.insert(name.clone(), FailedMoves { count, since: now });
        }
    }

    fn remove(&mut self, key: &str) -> PlanRelevance {
        self.entries.remove(key);
        self.unreadable.remove(key);
        let Some(parsed) = self.planned_key(key) else { return PlanRelevance::Irrelevant };
        self.remove_value(&parsed);
        PlanRelevance::Relevant
    }

    fn remove_value(&mut self, key: &Key<'_>) {
        self.unreadable_subjects.discard(key);
        match key {
            Key::Spec(kind, name) => match kind {
                Kind::Resource => {
                    self.resources.remove(*name);
                    self.update_identity(&ResourceName::from(*name));
                }
                Kind::Group => drop(self.groups.remove(*name)),
                Kind::AffinityRule => drop(self.rules.remove(*name)),
                Kind::Node => drop(self.nodes.remove(*name)),
                Kind::NodeGroup => drop(self.node_groups.remove(*name)),
                Kind::Cluster => {
                    self.cluster = self.cluster.take().filter(|_| *name != CLUSTER_NAME);
                    self.update_timings();
                }
                Kind::Operation => drop(self.operations.remove(*name)),
                Kind::GitSync => {}
            },
            Key::Status(kind, name) => match kind {
                Kind::Resource => {
                    let name = &ResourceName::from(*name);
                    self.resource_statuses.remove(name);
                    self.update_identity(name);
                    self.failed_moves.remove(name);
                    self.forget_counting(name);
                }
                Kind::Group => drop(self.group_statuses.remove(*name)),
                Kind::AffinityRule => drop(self.rule_statuses.remove(*name)),
                Kind::Node => drop(self.node_statuses.remove(*name)),
                Kind::NodeGroup => drop(self.node_group_statuses.remove(*name)),
                Kind::Cluster => {
                    self.cluster_status = self.cluster_status.take().filter(|_| *name != CLUSTER_NAME);
                }
                Kind::Operation => drop(self.operation_statuses.remove(*name)),
                Kind::GitSync => {}
            },
            Key::Assignment(name) => drop(self.assignments.remove(name)),
            Key::Tombstone(name) => drop(self.tombstones.remove(name)),
            Key::Fence(name) => drop(self.fences.remove(name)),
            Key::NotificationRecord => self.notified = None,
            Key::Backup => self.backup = None,
            Key::Incarnation => self.incarnation = None,
            Key::RestoreMarker => self.restored = None,
            Key::Leader => self.leader = None,
            Key::Candidate(name) => {
                self.candidate_entries.remove(name);
                self.update_candidate_protocol(name);
                self.refreshed.remove(name);
            }
            Key::Refresh(name) => drop(self.refresh_entries.remove(name)),
            // A deleted heartbeat counts only as silence: the observation stays.
            Key::Alive(name) => drop(self.alive.remove(name)),
            Key::NodeReport(name) => {
                let before = self.policy_of(name).cloned();
                self.node_reports.remove(name);
                self.update_policies(name, before.as_ref());
            }
            Key::DoctorReport(name) => drop(self.doctor_reports.remove(name)),
            Key::UsageReport(name) => drop(self.usage_reports.remove(name)),
            Key::ServiceReport(node, name) => {
                if let Some(reports) = self.service_reports.get_mut(name) {
                    reports.remove(node);
                    if reports.is_empty() {
                        self.service_reports.remove(name);
                    }
                }
            }
            Key::Event(..)
            | Key::LogRequest(..)
            | Key::JoinToken(..)
            | Key::IssuedCertificate(..)
            | Key::LogAnswer(..) => {}
        }
    }
}

/// Returns the guard for a write of a key: the key as it was read.
pub fn guard_of<T>(record: Option<&Versioned<T>>) -> Guard {
    record.map_or(Guard::Absent, |record| Guard::Unchanged(record.mod_revision))
}
