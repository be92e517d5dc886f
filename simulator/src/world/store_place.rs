//! The place and availability of etcd: members on nodes, elections, and a deposed etcd leader.
//!
//! An etcd leader that was paused and then isolated continues to answer keep-alives, because they do not pass through
//! consensus. No write of its clients succeeds (FENCING, section 3). The simulation imitates this for the duration in a
//! step: clients of that member get answers to keep-alives only, and their leases expire. After a timed-out attempt, a
//! client sends its requests to another member, but keeps its keep-alive stream.

use super::World;
use super::event::Event;
use super::process::Client;
use ha_api_types::id::NodeName;
use ha_api_types::kind::Kind;
use ha_api_types::record::{RestoreMarker, keys_deleted_by_restore, revision_raise};
use ha_api_types::time::{Millis, MonotonicTime};
use ha_store::memory_state::MemoryState;
use std::collections::BTreeSet;

/// Time that etcd takes to elect a leader, in milliseconds.
const ELECTION_DURATION_MS: Millis = 1_200;
/// Longest pause of an etcd leader before it continues in isolation, in milliseconds.
const MAX_PAUSE_MS: Millis = 2_000;

/// An etcd leader that was paused and isolated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeposedLeader {
    /// Time until which the member is paused and answers no request.
    pub(super) paused_until: Millis,
    /// Time until which the member is isolated.
    pub(super) isolated_until: Millis,
    /// Processes whose requests go to the member.
    request_clients: BTreeSet<Client>,
    /// Processes whose keep-alives go to the member.
    keep_alive_clients: BTreeSet<Client>,
}

impl World {
    /// Returns `true` if etcd commits: a quorum of its members is connected and has a leader.
    pub(super) fn is_store_available(&self) -> bool {
        self.store_down_until <= self.now && self.has_quorum() && self.pending_restore.is_none()
    }

    fn is_member_working(&self, node: &NodeName) -> bool {
        self.machines.get(node).is_some_and(|machine| machine.is_working() && machine.network)
    }

    /// Returns `true` if a member works and reaches etcd's leader.
    pub(super) fn can_member_serve(&self, node: &NodeName) -> bool {
        let leader = self.store_leader.as_ref();
        self.is_member_working(node)
            && leader.is_some_and(|leader| leader == node || self.is_connected_both_ways(leader, node))
    }

    /// Returns `true` if a member works and reaches a quorum, including itself.
    fn may_lead(&self, node: &NodeName) -> bool {
        let members = &self.scenario.store;
        let reached = |other: &&NodeName| {
            self.is_member_working(other)
                && (other.as_str() == node || self.is_connected_both_ways(node, other))
        };
        self.is_member_working(node) && members.iter().filter(reached).count() > members.len() / 2
    }

    fn has_quorum(&self) -> bool {
        let members = &self.scenario.store;
        members.is_empty() || members.iter().any(|node| self.may_lead(node))
    }

    /// Handles the loss or return of a member: a lost leader, or a returned quorum, requires an election.
    pub(super) fn update_store_leader(&mut self) {
        if self.scenario.store.is_empty() {
            return;
        }
        if self.store_leader.as_ref().is_some_and(|leader| self.may_lead(leader)) {
            return;
        }
        let previous_leader = self.store_leader.take();
        if !self.has_quorum() {
            if previous_leader.is_some() {
                self.log(&"store".into(), "", "has no quorum");
            }
            return;
        }
        let elected = self.scenario.store.iter().find(|node| self.may_lead(node)).cloned();
        self.store_leader.clone_from(&elected);
        // At the beginning of a run, etcd has a leader, so no election is necessary.
        if self.now > 0 {
            self.log(&"store".into(), "", &format!("elects {}", elected.unwrap_or_default()));
            self.start_election();
        }
    }

    /// Suspends commits until a leader is elected.
    pub(super) fn start_election(&mut self) {
        self.stop_store(ELECTION_DURATION_MS);
    }

    /// Suspends commits for this time.
    pub(super) fn stop_store(&mut self, duration_ms: Millis) {
        self.store_down_until = self.store_down_until.max(self.now + duration_ms);
        self.queue.push(self.store_down_until, Event::StoreAvailable);
    }

    /// Replaces etcd's data with its last backup, or with empty data, as `hactl restore` prepares it. etcd has the new data
    /// when it runs again.
    pub(super) fn restore_store(&mut self, empty: bool) -> Result<(), String> {
        let empty_store = MemoryState::default();
        let backup = if empty { Some(&empty_store) } else { self.backup.as_ref() };
        let backup = backup.ok_or("no backup exists: run store snapshot first")?;
        let marker = RestoreMarker { backup_revision: backup.revision(), ..RestoreMarker::default() };
        let marker =
            (self.keys.restore_marker(), serde_json::to_vec(&marker).map_err(|error| error.to_string())?);
        let keys_deleted_by_restore = keys_deleted_by_restore(&self.keys);
        let revision_increase = revision_raise(self.wall_unix_ms() * 1000);
        self.pending_restore = Some(backup.restored(
            MonotonicTime(self.now),
            revision_increase,
            &keys_deleted_by_restore,
            marker,
        ));
        self.log(&"store".into(), "", "is lost, and is being restored");
        self.stop_store(0);
        Ok(())
    }

    /// Pauses and isolates etcd's leader for this time; the other members elect a new leader.
    pub(super) fn pause_store_leader(&mut self, duration_ms: Millis) {
        let clients: Vec<Client> = self
            .agents
            .keys()
            .map(|node| Client::Agent(node.clone()))
            .chain(self.controllers.keys().map(|node| Client::Controller(node.clone())))
            .collect();
        // Every client uses one member. Two of three clients use the leader, because the leader answers fastest.
        let isolated_clients: BTreeSet<Client> =
            clients.into_iter().filter(|_| self.random.draw_chance(0.67)).collect();
        let names: Vec<String> = isolated_clients.iter().map(Client::to_string).collect();
        self.log(&"store".into(), "", &format!("leader is paused, with {}", names.join(", ")));
        self.deposed_etcd_leader = Some(DeposedLeader {
            paused_until: self.now + (duration_ms / 2).min(MAX_PAUSE_MS),
            isolated_until: self.now + duration_ms,
            request_clients: isolated_clients.clone(),
            keep_alive_clients: isolated_clients,
        });
        self.queue.push(self.now + duration_ms, Event::StoreAvailable);
        self.start_election();
    }

    /// Returns `true` if a process's requests go to a deposed leader.
    pub(super) fn sends_to_deposed_leader(&self, client: &Client) -> bool {
        self.deposed_etcd_leader.as_ref().is_some_and(|deposed| {
            self.now < deposed.isolated_until && deposed.request_clients.contains(client)
        })
    }

    /// Returns the time at which a deposed leader answers a keep-alive of the process; `None`: it does not answer.
    pub(super) fn deposed_keep_alive_time(&self, client: &Client) -> Option<Millis> {
        let deposed = self.deposed_etcd_leader.as_ref()?;
        let is_client_isolated =
            self.now < deposed.isolated_until && deposed.keep_alive_clients.contains(client);
        is_client_isolated.then(|| deposed.paused_until.max(self.now))
    }

    /// Handles a timed-out attempt: the process sends its requests to another member.
    pub(super) fn switch_store_member(&mut self, client: &Client) {
        if let Some(deposed) = &mut self.deposed_etcd_leader {
            deposed.request_clients.remove(client);
        }
    }

    /// Ends an outage of etcd, or the isolation of its former leader.
    pub(super) fn resume_store(&mut self) {
        if self.deposed_etcd_leader.as_ref().is_some_and(|deposed| deposed.isolated_until <= self.now) {
            self.deposed_etcd_leader = None;
            self.log(&"store".into(), "", "the isolated leader follows the new one");
        }
        if self.store_down_until <= self.now
            && self.has_quorum()
            && let Some(restored) = self.pending_restore.take()
        {
            self.store = restored;
            self.store.make_space();
            // The lost data no longer counts in the checks: epochs may repeat, even closed epochs, and deleted
            // operations need no outcome.
            self.node_epochs.clear();
            self.machines.values_mut().for_each(|machine| machine.bound.is_released = false);
            let (store, keys) = (&self.store, &self.keys);
            self.operations
                .retain(|name, _| !store.get(&keys.spec(Kind::Operation, name)).entries.is_empty());
            self.log(&"store".into(), "", &format!("is restored, at revision {}", self.store.revision()));
        }
        if self.is_store_available() {
            self.log(&"store".into(), "", "answers");
            self.schedule_expiry();
        }
    }
}
