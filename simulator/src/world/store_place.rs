//! The place and availability of etcd: members on nodes, elections, and a deposed etcd leader.
//!
//! An etcd leader that was paused and then isolated continues to answer keep-alives, because they do not pass through
//! consensus. No write of its clients succeeds (FENCING, section 3). The simulation imitates that for the time that a
//! step gives: clients of that member get answers to keep-alives only, and their leases expire. After a timed-out
//! attempt, a client sends its requests to another member, but keeps its keep-alive stream.

use super::World;
use super::event::Event;
use super::process::Who;
use ha_api_types::id::NodeName;
use ha_api_types::kind::Kind;
use ha_api_types::record::{Restored, keys_deleted_by_restore, revision_raise};
use ha_api_types::time::{Millis, Mono};
use ha_store::memory_state::MemoryState;
use std::collections::BTreeSet;

/// Time that etcd takes to elect a leader, in milliseconds.
const ELECTION_MS: Millis = 1_200;
/// Longest pause of an etcd leader before it continues in isolation, in milliseconds.
const MOST_PAUSE_MS: Millis = 2_000;

/// An etcd leader that was paused and isolated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deposed {
    /// Time until which the member is paused and answers nothing.
    pub(super) paused_until: Millis,
    /// Time until which the member is isolated.
    pub(super) until: Millis,
    /// Processes whose requests go to the member.
    requests: BTreeSet<Who>,
    /// Processes whose keep-alives go to the member.
    keep_alives: BTreeSet<Who>,
}

impl World {
    /// Returns `true` if etcd commits: a quorum of its members is connected and has a leader.
    pub(super) fn store_works(&self) -> bool {
        self.store_down_until <= self.now && self.has_quorum() && self.restored.is_none()
    }

    fn member_works(&self, node: &NodeName) -> bool {
        self.machines.get(node).is_some_and(|machine| machine.works() && machine.network)
    }

    /// Returns `true` if a member works and reaches etcd's leader.
    pub(super) fn member_serves(&self, node: &NodeName) -> bool {
        let leader = self.store_leader.as_ref();
        self.member_works(node) && leader.is_some_and(|leader| leader == node || self.both_ways(leader, node))
    }

    /// Returns `true` if a member works and reaches a quorum, including itself.
    fn may_lead(&self, node: &NodeName) -> bool {
        let members = &self.scenario.store;
        let reached = |other: &&NodeName| {
            self.member_works(other) && (other.as_str() == node || self.both_ways(node, other))
        };
        self.member_works(node) && members.iter().filter(reached).count() > members.len() / 2
    }

    fn has_quorum(&self) -> bool {
        let members = &self.scenario.store;
        members.is_empty() || members.iter().any(|node| self.may_lead(node))
    }

    /// Handles the loss or return of a member: a lost leader, or a returned quorum, requires an election.
    pub(super) fn look_at_store(&mut self) {
        if self.scenario.store.is_empty() {
            return;
        }
        if self.store_leader.as_ref().is_some_and(|leader| self.may_lead(leader)) {
            return;
        }
        let before = self.store_leader.take();
        if !self.has_quorum() {
            if before.is_some() {
                self.log(&"store".into(), "", "has no quorum");
            }
            return;
        }
        let elected = self.scenario.store.iter().find(|node| self.may_lead(node)).cloned();
        self.store_leader.clone_from(&elected);
        // At the beginning, etcd has had its leader for a long time.
        if self.now > 0 {
            self.log(&"store".into(), "", &format!("elects {}", elected.unwrap_or_default()));
            self.election();
        }
    }

    /// Suspends commits until a leader is elected.
    pub(super) fn election(&mut self) {
        self.store_away(ELECTION_MS);
    }

    /// Suspends commits for this time.
    pub(super) fn store_away(&mut self, length_ms: Millis) {
        self.store_down_until = self.store_down_until.max(self.now + length_ms);
        self.queue.push(self.store_down_until, Event::StoreBack);
    }

    /// Replaces etcd's data by its last backup, or by empty data, as `hactl restore` prepares it. The new data is used
    /// once etcd runs again.
    pub(super) fn restore_store(&mut self, empty: bool) -> Result<(), String> {
        let nothing = MemoryState::default();
        let backup = if empty { Some(&nothing) } else { self.backup.as_ref() };
        let backup = backup.ok_or("no backup exists: run store snapshot first")?;
        let marker = Restored { backup_revision: backup.revision(), ..Restored::default() };
        let marker = (self.keys.restored(), serde_json::to_vec(&marker).map_err(|error| error.to_string())?);
        let keys_deleted_by_restore = keys_deleted_by_restore(&self.keys);
        let raise = revision_raise(self.wall_unix_ms() * 1000);
        self.restored = Some(backup.restored(Mono(self.now), raise, &keys_deleted_by_restore, marker));
        self.log(&"store".into(), "", "is lost, and is being restored");
        self.store_away(0);
        Ok(())
    }

    /// Pauses and isolates etcd's leader for this time; the other members elect another one.
    pub(super) fn pause_store_leader(&mut self, length_ms: Millis) {
        let processes: Vec<Who> = self
            .agents
            .keys()
            .map(|node| Who::Agent(node.clone()))
            .chain(self.controllers.keys().map(|node| Who::Controller(node.clone())))
            .collect();
        // Every client uses one member. Two in three use this one, because the leader answers fastest.
        let chosen: BTreeSet<Who> = processes.into_iter().filter(|_| self.random.chance(0.67)).collect();
        let names: Vec<String> = chosen.iter().map(Who::to_string).collect();
        self.log(&"store".into(), "", &format!("leader is paused, with {}", names.join(", ")));
        self.deposed = Some(Deposed {
            paused_until: self.now + (length_ms / 2).min(MOST_PAUSE_MS),
            until: self.now + length_ms,
            requests: chosen.clone(),
            keep_alives: chosen,
        });
        self.queue.push(self.now + length_ms, Event::StoreBack);
        self.election();
    }

    /// Returns `true` if a process's requests go to a deposed leader.
    pub(super) fn asks_deposed(&self, who: &Who) -> bool {
        self.deposed
            .as_ref()
            .is_some_and(|deposed| self.now < deposed.until && deposed.requests.contains(who))
    }

    /// Returns the time at which a deposed leader answers a keep-alive of the process; `None`: it does not answer.
    pub(super) fn deposed_keeps(&self, who: &Who) -> Option<Millis> {
        let deposed = self.deposed.as_ref()?;
        let keeps = self.now < deposed.until && deposed.keep_alives.contains(who);
        keeps.then(|| deposed.paused_until.max(self.now))
    }

    /// Handles a timed-out attempt: the process sends its requests to another member.
    pub(super) fn turn_to_another_member(&mut self, who: &Who) {
        if let Some(deposed) = &mut self.deposed {
            deposed.requests.remove(who);
        }
    }

    /// Ends an outage of etcd, or the isolation of its former leader.
    pub(super) fn store_back(&mut self) {
        if self.deposed.as_ref().is_some_and(|deposed| deposed.until <= self.now) {
            self.deposed = None;
            self.log(&"store".into(), "", "the isolated leader follows the new one");
        }
        if self.store_down_until <= self.now
            && self.has_quorum()
            && let Some(restored) = self.restored.take()
        {
            self.store = restored;
            self.store.make_space();
            // The checks forget the lost data: epochs may repeat, also closed ones, and deleted operations no longer
            // need an outcome.
            self.epochs.clear();
            self.machines.values_mut().for_each(|machine| machine.bound.released = false);
            let (store, keys) = (&self.store, &self.keys);
            self.operations
                .retain(|name, _| !store.get(&keys.spec(Kind::Operation, name)).entries.is_empty());
            self.log(&"store".into(), "", &format!("is restored, at revision {}", self.store.revision()));
        }
        if self.store_works() {
            self.log(&"store".into(), "", "answers");
            self.schedule_expiry();
        }
    }
}
