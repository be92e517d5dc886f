//! The agent's view of etcd: typed, by key, never older than a state that was already read.

mod cluster;

use super::unreadable::own_report;
use ha_api_types::cluster::{Cluster, ClusterStatus};
use ha_api_types::etcd_access::AgentSelector;
use ha_api_types::id::{ControllerId, NodeName, OperationName, ResourceName, Revision};
use ha_api_types::keys::{Key, Keys};
use ha_api_types::kind::Kind;
use ha_api_types::lenient;
use ha_api_types::node::Node;
use ha_api_types::operation::{Operation, OperationStatus};
use ha_api_types::record::{
    Alive, Assignment, Candidate, DoctorReport, Fence, NodeReport, ServiceReport, UsageReport,
};
use ha_api_types::resource::Resource;
use ha_api_types::timing::Timings;
use ha_store::{Change, Entry, Guard};
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key that exists. The value is `None` if it cannot be read; its revisions still serve as guards.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stored<T> {
    pub(super) value: Option<T>,
    pub(super) create_revision: Revision,
    pub(super) mod_revision: Revision,
}

#[derive(Clone, Debug)]
struct CachedRecord<T> {
    stored: Option<Stored<T>>,
    /// The revision at or after which the key is known to have this state. Older states are ignored.
    as_of: Revision,
}

/// Keys of one kind, by name.
#[derive(Clone, Debug)]
pub(super) struct Table<K, T> {
    records: BTreeMap<K, CachedRecord<T>>,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Table<K, T> {
        Table { records: BTreeMap::new() }
    }
}

impl<K: Ord, T: DeserializeOwned> Table<K, T> {
    pub(super) fn get<Q: Ord + ?Sized>(&self, name: &Q) -> Option<&Stored<T>>
    where
        K: Borrow<Q>,
    {
        self.records.get(name)?.stored.as_ref()
    }

    pub(super) fn value<Q: Ord + ?Sized>(&self, name: &Q) -> Option<&T>
    where
        K: Borrow<Q>,
    {
        self.get(name)?.value.as_ref()
    }

    /// Returns the guard for a write of this key, from its last known state.
    pub(super) fn guard<Q: Ord + ?Sized>(&self, name: &Q) -> Guard
    where
        K: Borrow<Q>,
    {
        self.get(name).map_or(Guard::Absent, |stored| Guard::Unchanged(stored.mod_revision))
    }

    /// Returns the newest revision at which the state of the key is known; 0 if never.
    pub(super) fn as_of<Q: Ord + ?Sized>(&self, name: &Q) -> Revision
    where
        K: Borrow<Q>,
    {
        self.records.get(name).map_or(Revision(0), |cell| cell.as_of)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &Stored<T>)> {
        self.records.iter().filter_map(|(name, cell)| Some((name, cell.stored.as_ref()?)))
    }

    fn put(&mut self, name: K, entry: &Entry, as_of: Revision) {
        self.put_as(name, entry, as_of, |value| serde_json::from_slice(value).ok());
    }

    fn put_as(&mut self, name: K, entry: &Entry, as_of: Revision, read: impl Fn(&[u8]) -> Option<T>) {
        let as_of = as_of.max(entry.mod_revision);
        let stored = || Stored {
            value: read(&entry.value),
            create_revision: entry.create_revision,
            mod_revision: entry.mod_revision,
        };
        match self.records.get_mut(&name) {
            // The value is unchanged; the read confirms it at a later revision.
            Some(cell)
                if cell.stored.as_ref().is_some_and(|stored| stored.mod_revision == entry.mod_revision) =>
            {
                cell.as_of = cell.as_of.max(as_of);
            }
            // An older state is ignored. A read at a newer revision counts even if the key's own revision has
            // decreased, as after a restore from a backup with a raised revision.
            Some(cell) if cell.as_of >= as_of => {}
            Some(cell) => *cell = CachedRecord { stored: Some(stored()), as_of },
            None => {
                self.records.insert(name, CachedRecord { stored: Some(stored()), as_of });
            }
        }
    }

    fn remove(&mut self, name: K, revision: Revision) {
        if self.records.get(&name).is_none_or(|cell| cell.as_of < revision) {
            self.records.insert(name, CachedRecord { stored: None, as_of: revision });
        }
    }

    /// Applies this agent's own write of the key.
    pub(super) fn record_write(&mut self, name: K, value: T, revision: Revision) {
        if self.records.get(&name).is_some_and(|cell| cell.as_of >= revision) {
            return;
        }
        let create_revision = self.get(&name).map_or(revision, |stored| stored.create_revision);
        let stored = Stored { value: Some(value), create_revision, mod_revision: revision };
        self.records.insert(name, CachedRecord { stored: Some(stored), as_of: revision });
    }

    /// Applies this agent's own deletion of the key.
    pub(super) fn on_deleted(&mut self, name: K, revision: Revision) {
        self.remove(name, revision);
    }

    /// Drops every entry whose name is not in `names`, because its key was absent at `revision`. Older markers of
    /// absence are not needed.
    fn keep_only(&mut self, names: &BTreeSet<K>, revision: Revision) {
        self.records.retain(|name, cell| names.contains(name) || cell.as_of > revision);
    }
}

/// The agent's view of etcd.
#[derive(Clone, Debug)]
pub(super) struct View {
    keys: Keys,
    node: NodeName,
    unsynced: BTreeSet<AgentSelector>,
    /// The highest revision of a linearizable read.
    pub(super) revision: Revision,
    clusters: Table<String, Cluster>,
    /// The settings that this agent follows.
    active_cluster: Option<Cluster>,
    /// The cluster's timings if they are valid. Computed when the settings change, because nearly every step needs
    /// them.
    pub(super) timings: Option<Timings>,
    /// The errors in timings that are refused, until they are logged.
    pub(super) refused_timings: Option<String>,
    /// The leader's status of the Cluster object.
    pub(super) cluster_statuses: Table<String, ClusterStatus>,
    pub(super) operations: Table<OperationName, Operation>,
    /// The leader's statuses of operations. A test of the watchdog begins only when the leader allows it.
    pub(super) operation_statuses: Table<OperationName, OperationStatus>,
    pub(super) nodes: Table<NodeName, Node>,
    pub(super) resources: Table<ResourceName, Resource>,
    pub(super) assignments: Table<ResourceName, Arc<Assignment>>,
    pub(super) fences: Table<NodeName, Fence>,
    /// The URL of each candidate, read once from a new key. A key keeps its URL when its controller rewrites it: at a
    /// restart, or every Ki by a version without `refresh/<id>`.
    candidates: Table<ControllerId, String>,
    /// Newest revision at which a candidate key no longer existed; `None` if none was deleted. Departed candidates need
    /// not grant hold once this node's fence was read at that revision or later.
    candidate_departed_at: Option<Revision>,
    /// Report of this node only, by node name.
    pub(super) node_reports: Table<NodeName, NodeReport>,
    /// Report of this node only, by node name.
    pub(super) doctor_reports: Table<NodeName, DoctorReport>,
    /// Report of this node only, by node name.
    pub(super) usage_reports: Table<NodeName, UsageReport>,
    /// Reports of this node only, by resource.
    pub(super) reports: Table<ResourceName, ServiceReport>,
    /// Reports of the other side of a migration, by node and resource; read when needed, never watched.
    pub(super) peer_reports: Table<(NodeName, ResourceName), ServiceReport>,
    /// Key of this node only, by node name; read when needed.
    pub(super) alive: Table<NodeName, Alive>,
}

impl View {
    pub(super) fn new(keys: &Keys, node: &NodeName) -> View {
        View {
            keys: keys.clone(),
            node: node.to_owned(),
            unsynced: AgentSelector::ALL.into_iter().collect(),
            revision: Revision(0),
            clusters: Table::default(),
            active_cluster: None,
            timings: None,
            refused_timings: None,
            cluster_statuses: Table::default(),
            operations: Table::default(),
            operation_statuses: Table::default(),
            nodes: Table::default(),
            resources: Table::default(),
            assignments: Table::default(),
            fences: Table::default(),
            candidates: Table::default(),
            candidate_departed_at: None,
            node_reports: Table::default(),
            doctor_reports: Table::default(),
            usage_reports: Table::default(),
            reports: Table::default(),
            peer_reports: Table::default(),
            alive: Table::default(),
        }
    }

    /// Returns `true` if the keys of every selector have been read once.
    pub(super) fn is_complete(&self) -> bool {
        self.unsynced.is_empty()
    }

    pub(super) fn on_synced(&mut self, selector: AgentSelector, entries: &[Entry], revision: Revision) {
        self.unsynced.remove(&selector);
        self.revision = self.revision.max(revision);
        for entry in entries {
            self.put(entry, revision);
        }
        match selector {
            AgentSelector::ClusterSpecs => {
                let names = self.names_of_objects(entries);
                self.clusters.keep_only(&names, revision);
                self.update_active_cluster();
            }
            AgentSelector::ClusterStatuses => {
                let names = self.names_of_objects(entries);
                self.cluster_statuses.keep_only(&names, revision);
            }
            AgentSelector::OperationStatuses => {
                let names = self.names_of_objects(entries);
                self.operation_statuses.keep_only(&names, revision);
            }
            AgentSelector::OperationSpecs => {
                let names = self.names_of_objects(entries);
                self.operations.keep_only(&names, revision);
            }
            AgentSelector::OwnNodeSpec => {
                let names = self.names_of_objects(entries);
                self.nodes.keep_only(&names, revision);
            }
            AgentSelector::ResourceSpecs => {
                let names = self.names_of_objects(entries);
                self.resources.keep_only(&names, revision);
            }
            AgentSelector::Assignments => {
                let names = self
                    .names(entries, |key| if let Key::Assignment(name) = key { Some(name) } else { None });
                self.assignments.keep_only(&names, revision);
            }
            AgentSelector::Fences => {
                let names =
                    self.names(entries, |key| if let Key::Fence(node) = key { Some(node) } else { None });
                self.fences.keep_only(&names, revision);
            }
            AgentSelector::Candidates => {
                let names =
                    self.names(entries, |key| if let Key::Candidate(id) = key { Some(id) } else { None });
                // A known candidate that is absent in this read has departed at this revision or earlier.
                self.on_candidate_departed(revision);
                self.candidates.keep_only(&names, revision);
            }
            AgentSelector::OwnReports => self.keep_only_reports(entries, revision),
        }
    }

    /// Removes the reports of this node that a complete read does not contain.
    fn keep_only_reports(&mut self, entries: &[Entry], revision: Revision) {
        let services =
            self.names(entries, |key| if let Key::ServiceReport(_, name) = key { Some(name) } else { None });
        self.reports.keep_only(&services, revision);
        let nodes =
            self.names(entries, |key| if let Key::NodeReport(node) = key { Some(node) } else { None });
        self.node_reports.keep_only(&nodes, revision);
        let doctors =
            self.names(entries, |key| if let Key::DoctorReport(node) = key { Some(node) } else { None });
        self.doctor_reports.keep_only(&doctors, revision);
        let usages =
            self.names(entries, |key| if let Key::UsageReport(node) = key { Some(node) } else { None });
        self.usage_reports.keep_only(&usages, revision);
    }

    /// Returns the results of `pick` for the keys of these entries.
    fn names<K: Ord>(&self, entries: &[Entry], pick: impl Fn(Key<'_>) -> Option<K>) -> BTreeSet<K> {
        entries.iter().filter_map(|entry| pick(self.keys.parse(&entry.key)?)).collect()
    }

    /// Returns the names of the objects of one kind, from entries with their specs or statuses.
    fn names_of_objects<K: Ord + for<'n> From<&'n str>>(&self, entries: &[Entry]) -> BTreeSet<K> {
        self.names(entries, |key| {
            if let Key::Spec(_, name) | Key::Status(_, name) = key { Some(name.into()) } else { None }
        })
    }

    pub(super) fn on_changed(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(entry) => self.put(entry, entry.mod_revision),
                Change::Delete { key, revision } => self.remove(key, *revision),
            }
        }
    }

    /// Returns `true` if these changes only rewrite the keys of known candidates.
    pub(super) fn only_refreshes_candidates(&self, changes: &[Change]) -> bool {
        let is_known = |name: &str, entry: &Entry| {
            self.candidates
                .get(name)
                .is_some_and(|candidate| candidate.create_revision == entry.create_revision)
        };
        let is_refresh = |change: &Change| match change {
            Change::Put(entry) => matches!(
                self.keys.parse(&entry.key), Some(Key::Candidate(name)) if is_known(&name, entry)
            ),
            Change::Delete { .. } => false,
        };
        !changes.is_empty() && changes.iter().all(is_refresh)
    }

    /// Applies a read of single keys: those without an entry did not exist at `revision`.
    pub(super) fn read(&mut self, keys: &[String], entries: &[Entry], revision: Revision) {
        self.revision = self.revision.max(revision);
        for key in keys {
            match entries.iter().find(|entry| entry.key == *key) {
                Some(entry) => self.put(entry, revision),
                None => self.remove(key, revision),
            }
        }
    }

    fn put(&mut self, entry: &Entry, as_of: Revision) {
        let Some(key) = self.keys.parse(&entry.key) else { return };
        match key {
            Key::Spec(Kind::Cluster, name) => {
                self.clusters.put(name.into(), entry, as_of);
                self.update_active_cluster();
            }
            Key::Status(Kind::Cluster, name) => {
                let read = |text: &[u8]| match lenient::read(text) {
                    Ok(status) => Some(status),
                    Err(partial) => (!partial.is_unreadable("disarm")).then_some(partial.value),
                };
                self.cluster_statuses.put_as(name.into(), entry, as_of, read);
                if self.is_cluster_unreadable() {
                    self.update_active_cluster();
                }
            }
            Key::Status(Kind::Operation, name) => self.operation_statuses.put(name.into(), entry, as_of),
            Key::Spec(Kind::Operation, name) => self.operations.put(name.into(), entry, as_of),
            Key::Spec(Kind::Node, name) => self.nodes.put(name.into(), entry, as_of),
            Key::Spec(Kind::Resource, name) => self.resources.put(name.into(), entry, as_of),
            Key::Assignment(name) => self.assignments.put(name, entry, as_of),
            Key::Fence(name) => self.fences.put(name, entry, as_of),
            Key::Candidate(name) => self.put_candidate(&name, entry, as_of),
            Key::NodeReport(node) if node == self.node => {
                self.node_reports.put_as(node, entry, as_of, |text| Some(own_report(text)));
            }
            Key::DoctorReport(node) if node == self.node => self.doctor_reports.put(node, entry, as_of),
            Key::UsageReport(node) if node == self.node => self.usage_reports.put(node, entry, as_of),
            Key::ServiceReport(node, name) if node == self.node => {
                self.reports.put(name, entry, as_of);
            }
            Key::ServiceReport(node, name) => self.peer_reports.put((node, name), entry, as_of),
            Key::Alive(node) if node == self.node => self.alive.put(node, entry, as_of),
            Key::NodeReport(_)
            | Key::DoctorReport(_)
            | Key::UsageReport(_)
            | Key::Alive(_)
            | Key::Spec(Kind::Group | Kind::AffinityRule | Kind::NodeGroup | Kind::GitSync, _)
            | Key::Status(..)
            | Key::Tombstone(_)
            | Key::NotificationRecord
            | Key::Backup
            | Key::RestoreMarker
            | Key::Incarnation
            | Key::Leader
            | Key::Refresh(_)
            | Key::Event(..)
            | Key::LogRequest(..)
            | Key::JoinToken(..)
            | Key::IssuedCertificate(..)
            | Key::LogAnswer(..) => {}
        }
    }

    fn remove(&mut self, key: &str, revision: Revision) {
        let Some(key) = self.keys.parse(key) else { return };
        match key {
            Key::Spec(Kind::Cluster, name) => {
                self.clusters.remove(name.into(), revision);
                self.update_active_cluster();
            }
            Key::Status(Kind::Cluster, name) => self.cluster_statuses.remove(name.into(), revision),
            Key::Status(Kind::Operation, name) => self.operation_statuses.remove(name.into(), revision),
            Key::Spec(Kind::Operation, name) => self.operations.remove(name.into(), revision),
            Key::Spec(Kind::Node, name) => self.nodes.remove(name.into(), revision),
            Key::Spec(Kind::Resource, name) => self.resources.remove(name.into(), revision),
            Key::Assignment(name) => self.assignments.remove(name, revision),
            Key::Fence(name) => self.fences.remove(name, revision),
            Key::Candidate(name) => {
                if self.candidates.get(&name).is_some() {
                    self.on_candidate_departed(revision);
                }
                self.candidates.remove(name, revision);
            }
            Key::NodeReport(node) if node == self.node => self.node_reports.remove(node, revision),
            Key::DoctorReport(node) if node == self.node => self.doctor_reports.remove(node, revision),
            Key::UsageReport(node) if node == self.node => self.usage_reports.remove(node, revision),
            Key::ServiceReport(node, name) if node == self.node => self.reports.remove(name, revision),
            Key::ServiceReport(node, name) => self.peer_reports.remove((node, name), revision),
            Key::Alive(node) if node == self.node => self.alive.remove(node, revision),
            Key::NodeReport(_)
            | Key::DoctorReport(_)
            | Key::UsageReport(_)
            | Key::Alive(_)
            | Key::Spec(Kind::Group | Kind::AffinityRule | Kind::NodeGroup | Kind::GitSync, _)
            | Key::Status(..)
            | Key::Tombstone(_)
            | Key::NotificationRecord
            | Key::Backup
            | Key::RestoreMarker
            | Key::Incarnation
            | Key::Leader
            | Key::Refresh(_)
            | Key::Event(..)
            | Key::LogRequest(..)
            | Key::JoinToken(..)
            | Key::IssuedCertificate(..)
            | Key::LogAnswer(..) => {}
        }
    }

    fn put_candidate(&mut self, name: &str, entry: &Entry, as_of: Revision) {
        let candidate =
            self.candidates.get(name).map(|candidate| (candidate.create_revision, candidate.value.clone()));
        let url = match candidate {
            Some((create_revision, url)) if create_revision == entry.create_revision => url,
            Some(_) => {
                self.on_candidate_departed(entry.create_revision);
                url_of(entry)
            }
            None => url_of(entry),
        };
        self.candidates.put_as(name.into(), entry, as_of, |_| url.clone());
    }

    fn on_candidate_departed(&mut self, revision: Revision) {
        self.candidate_departed_at = self.candidate_departed_at.max(Some(revision));
    }

    /// Returns the controllers that this node must ask for hold: every existing candidate. A departed candidate is
    /// dropped only once the fence was read, unchanged, at a revision that is not older than the departure (FENCING,
    /// section 9).
    pub(super) fn hold_candidates(&self, node: &NodeName) -> HoldCandidates {
        if self.has_unconfirmed_departure(node) {
            return HoldCandidates::Unsure;
        }
        let urls = self.candidates.iter().map(|(id, stored)| {
            // A candidate with an unreadable URL cannot receive the request, so it cannot grant.
            (id.clone(), stored.value.clone().unwrap_or_default())
        });
        HoldCandidates::All(urls.collect())
    }

    /// Returns `true` if a candidate has departed, and the fence of this node was not read since.
    pub(super) fn has_unconfirmed_departure(&self, node: &NodeName) -> bool {
        self.candidate_departed_at.is_some_and(|departed_at| self.fences.as_of(node) < departed_at)
    }

    /// Returns the create revision of the newest candidate.
    pub(super) fn candidate_generation(&self) -> Revision {
        self.candidates.iter().map(|(_, stored)| stored.create_revision).max().unwrap_or(Revision(0))
    }
}

/// The controllers to ask for hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HoldCandidates {
    /// The candidates' URLs, by id.
    All(BTreeMap<ControllerId, String>),
    /// A departed candidate may have declared this node dead before it left.
    Unsure,
}

fn url_of(entry: &Entry) -> Option<String> {
    serde_json::from_slice::<Candidate>(&entry.value).ok().map(|candidate| candidate.url)
}

/// Returns the key of a peer's report in [`View::peer_reports`].
pub(super) fn peer_report_key(node: &NodeName, resource: &ResourceName) -> (NodeName, ResourceName) {
    (node.clone(), resource.clone())
}
