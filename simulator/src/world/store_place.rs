//! Where the store is and whether it answers: members on nodes, changes of its leader, and a leader that was left behind.
//!
//! An etcd leader that was paused and cut off goes on answering keep-alives, for they do not pass through consensus, while
//! no write of its clients succeeds (FENCING, section 3). So for the time that a step gives, the clients that had chosen
//! that member get no answer but to keep-alives, whose leases run out meanwhile; each turns to another member once an
//! attempt has timed out, but for the stream of its keep-alives.

use super::World;
use super::event::Event;
use super::process::Who;
use ha_api_types::kind::Kind;
use ha_api_types::record::{Restored, forgotten, revision_raise};
use ha_api_types::time::{Millis, Mono};
use ha_store::memory_state::MemoryState;
use std::collections::BTreeSet;

/// How long etcd takes to elect a leader, milliseconds.
const ELECTION_MS: Millis = 1_200;
/// How long a paused leader stands still at most, before it goes on cut off from its peers, milliseconds.
const MOST_PAUSE_MS: Millis = 2_000;

/// A leader of the store that was paused and cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deposed {
    /// Until then it stands still: nobody gets an answer from it.
    pub(super) paused_until: Millis,
    /// Until then it is cut off.
    pub(super) until: Millis,
    /// Who sends its requests to it.
    requests: BTreeSet<Who>,
    /// Whose keep-alives go to it.
    keep_alives: BTreeSet<Who>,
}

impl World {
    /// Whether the store commits: a quorum of its members is there, and they have a leader.
    pub(super) fn store_works(&self) -> bool {
        self.store_down_until <= self.now && self.has_quorum() && self.restored.is_none()
    }

    fn member_works(&self, node: &str) -> bool {
        self.machines.get(node).is_some_and(|machine| machine.works() && machine.network)
    }

    /// Whether a member works, and reaches the leader.
    pub(super) fn member_serves(&self, node: &str) -> bool {
        let leader = self.store_leader.as_deref();
        self.member_works(node) && leader.is_some_and(|leader| leader == node || self.both_ways(leader, node))
    }

    /// Whether a member works and reaches a quorum, with itself.
    fn may_lead(&self, node: &str) -> bool {
        let members = &self.scenario.store;
        let reached = |other: &&String| {
            self.member_works(other) && (other.as_str() == node || self.both_ways(node, other))
        };
        self.member_works(node) && members.iter().filter(reached).count() > members.len() / 2
    }

    fn has_quorum(&self) -> bool {
        let members = &self.scenario.store;
        members.is_empty() || members.iter().any(|node| self.may_lead(node))
    }

    /// A member has gone or come: the leader's loss, and the return of a quorum, cost an election.
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
                self.log("store", "", "has no quorum");
            }
            return;
        }
        let elected = self.scenario.store.iter().find(|node| self.may_lead(node)).cloned();
        self.store_leader.clone_from(&elected);
        // At the beginning it has been there for long.
        if self.now > 0 {
            self.log("store", "", &format!("elects {}", elected.unwrap_or_default()));
            self.election();
        }
    }

    /// Nothing is committed until a leader is elected.
    pub(super) fn election(&mut self) {
        self.store_away(ELECTION_MS);
    }

    /// Nothing is committed for so long.
    pub(super) fn store_away(&mut self, length_ms: Millis) {
        self.store_down_until = self.store_down_until.max(self.now + length_ms);
        self.queue.push(self.store_down_until, Event::StoreBack);
    }

    /// The store is replaced by its last backup, or by an empty one, as `hactl restore` prepares it, when it is back.
    pub(super) fn restore_store(&mut self, empty: bool) -> Result<(), String> {
        let nothing = MemoryState::default();
        let backup = if empty { Some(&nothing) } else { self.backup.as_ref() };
        let backup = backup.ok_or("there is no backup: store snapshot comes first")?;
        let marker = Restored { backup_revision: backup.revision(), ..Restored::default() };
        let marker = (self.keys.restored(), serde_json::to_vec(&marker).map_err(|error| error.to_string())?);
        let forgotten = forgotten(&self.keys);
        let raise = revision_raise(1_767_225_600_000_000 + i128::from(self.now) * 1000);
        self.restored = Some(backup.restored(Mono(self.now), raise, &forgotten, marker));
        self.log("store", "", "is lost, and is being restored");
        self.store_away(0);
        Ok(())
    }

    /// The store's leader is paused and cut off from its peers for so long; they elect another.
    pub(super) fn pause_store_leader(&mut self, length_ms: Millis) {
        let processes: Vec<Who> = self
            .agents
            .keys()
            .map(|node| Who::Agent(node.clone()))
            .chain(self.controllers.keys().map(|node| Who::Controller(node.clone())))
            .collect();
        // Every client has chosen a member; two in three have chosen this one, for the leader answers soonest.
        let chosen: BTreeSet<Who> = processes.into_iter().filter(|_| self.random.chance(0.67)).collect();
        let names: Vec<String> = chosen.iter().map(Who::to_string).collect();
        self.log("store", "", &format!("its leader stands still, with {}", names.join(", ")));
        self.deposed = Some(Deposed {
            paused_until: self.now + (length_ms / 2).min(MOST_PAUSE_MS),
            until: self.now + length_ms,
            requests: chosen.clone(),
            keep_alives: chosen,
        });
        self.queue.push(self.now + length_ms, Event::StoreBack);
        self.election();
    }

    /// Whether a process's requests go to a leader that was left behind.
    pub(super) fn asks_deposed(&self, who: &Who) -> bool {
        self.deposed
            .as_ref()
            .is_some_and(|deposed| self.now < deposed.until && deposed.requests.contains(who))
    }

    /// A leader that was left behind answers a keep-alive, or will: when.
    pub(super) fn deposed_keeps(&self, who: &Who) -> Option<Millis> {
        let deposed = self.deposed.as_ref()?;
        let keeps = self.now < deposed.until && deposed.keep_alives.contains(who);
        keeps.then(|| deposed.paused_until.max(self.now))
    }

    /// An attempt has timed out: the process turns to another member.
    pub(super) fn turn_to_another_member(&mut self, who: &Who) {
        if let Some(deposed) = &mut self.deposed {
            deposed.requests.remove(who);
        }
    }

    /// The store answers again, or its old leader has rejoined.
    pub(super) fn store_back(&mut self) {
        if self.deposed.as_ref().is_some_and(|deposed| deposed.until <= self.now) {
            self.deposed = None;
            self.log("store", "", "the leader that was cut off follows the new one");
        }
        if self.store_down_until <= self.now
            && self.has_quorum()
            && let Some(restored) = self.restored.take()
        {
            self.store = restored;
            self.store.make_space();
            // What the checks know of the lost store: epochs may come again, also one that was closed since, and nobody answers
            // for operations that are gone.
            self.epochs.clear();
            self.machines.values_mut().for_each(|machine| machine.bound.released = false);
            let (store, keys) = (&self.store, &self.keys);
            self.operations
                .retain(|name, _| !store.get(&keys.spec(Kind::Operation, name)).entries.is_empty());
            self.log("store", "", &format!("is restored, at revision {}", self.store.revision()));
        }
        if self.store_works() {
            self.log("store", "", "answers");
            self.schedule_expiry();
        }
    }
}
