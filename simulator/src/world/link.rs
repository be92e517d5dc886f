//! The connection between a process and etcd: requests, delays, losses, and answers that never arrive.

use super::World;
use super::event::{Event, Sender};
use super::network::Way;
use super::process::{Generation, Who};
use super::recorded::Step;
use ha_api_types::id::{NodeName, Revision};
use ha_api_types::keys::Key;
use ha_api_types::time::{Millis, Mono};
use ha_controller::core as controller;
use ha_node_agent::core as agent;
use ha_store::{Change, Entry, LeaseId, Outcome, StoreError, Transaction};

/// Unique id of a request.
pub(crate) type Token = u64;

/// Kind of a request, which decides the input that its answer becomes.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// A commit of an agent.
    AgentCommit(agent::CommitId),
    /// A commit of a controller.
    ControllerCommit(controller::CommitId),
    /// A read of keys for an agent.
    AgentRead(agent::ReadId),
    /// A lease for an agent.
    AgentLease(agent::LeaseRequestId),
    /// A lease for a controller.
    ControllerLease,
    /// A keep-alive of a lease.
    Keep(LeaseId),
    /// A revocation of a lease, whose answer is not awaited.
    Revoke,
    /// A read of everything for the view. For a controller, with the newest refresh that the read answers.
    Sync(controller::RefreshId),
}

/// A request that reaches etcd.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Commit this transaction.
    Commit(Transaction),
    /// Read these keys.
    Read(Vec<String>),
    /// Grant a lease with this lifetime in seconds.
    Grant(i64),
    /// Keep a lease alive.
    Keep(LeaseId),
    /// Revoke a lease.
    Revoke(LeaseId),
    /// Read all keys with these prefixes.
    List(Vec<String>),
}

/// An answer of etcd.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Outcome of a commit.
    Outcome(Outcome),
    /// Entries of a read.
    Entries(Vec<Entry>, Revision),
    /// A granted lease.
    Lease(LeaseId),
    /// Refusal of a lease because etcd has no space.
    NoLease,
    /// Result of a keep-alive.
    Kept(Result<i64, StoreError>),
    /// Entries of a list, by prefix.
    Lists(Vec<(String, Vec<Entry>)>, Revision),
    /// A revoked lease.
    Revoked,
}

/// Time limit of a client for every request except a heartbeat, in milliseconds.
const PATIENCE_MS: Millis = ha_api_types::timing::UNANSWERED_REQUEST_MS;
/// Delay before a broken watch is opened again, in milliseconds.
const RESUME_MS: Millis = 500;

impl World {
    /// Sends a request to etcd. The request may be slow, and the request or its answer may be lost.
    pub(super) fn ask(
        &mut self,
        who: &Who,
        generation: Generation,
        ask: Ask,
        request: Request,
        patience_ms: Option<Millis>,
    ) {
        self.tokens += 1;
        let token = self.tokens;
        let patience_ms = patience_ms.unwrap_or(PATIENCE_MS);
        match who {
            Who::Agent(node) => {
                if let Some(process) = self.agents.get_mut(node) {
                    process.outstanding.insert(token);
                }
            }
            Who::Controller(node) => {
                if let Some(process) = self.controllers.get_mut(node) {
                    process.outstanding.insert(token);
                }
            }
        }
        let timeout = Event::Timeout { who: who.clone(), generation, token, ask: ask.clone() };
        self.queue.push(self.now + patience_ms, timeout);
        let lost = self.chance_of_loss();
        if self.reaches_store(who, Way::Request) && !self.random.chance(lost) {
            let delay_ms = self.store_delay_ms();
            let sender =
                Sender { who: who.clone(), generation, sent: self.now, term: self.believed_term(who) };
            self.queue.push(self.now + delay_ms, Event::Arrive { sender, token, ask, request });
        }
    }

    /// Returns the probability that a request or an answer is lost: 1 in 2,000, and more while the connection is flaky.
    fn chance_of_loss(&self) -> f64 {
        if self.now < self.store_flaky_until { 0.1 } else { 0.0005 }
    }

    fn store_delay_ms(&mut self) -> Millis {
        let base = self.store_latency_ms;
        // One request in a thousand is delayed by up to 8 s, often until its sender has timed out.
        let slow = if self.now < self.store_flaky_until { 0.15 } else { 0.001 };
        if self.random.chance(slow) {
            return base + self.random.between_ms(500, 8_000);
        }
        base + self.random.between_ms(1, 4)
    }

    /// Handles a request at etcd. Its effect happens now, even if its answer is lost.
    pub(super) fn arrive(&mut self, sender: Sender, token: Token, ask: Ask, request: Request) {
        if let Request::Keep(_) = &request
            && let Some(at) = self.deposed_keeps(&sender.who)
        {
            // The deposed etcd leader answers without its peers, so the lease still expires.
            let answer = Answer::Kept(Ok(1));
            let delay_ms = self.random.between_ms(1, 3);
            let Sender { who, generation, .. } = sender;
            self.queue.push(at + delay_ms, Event::Answer { who, generation, token, ask, answer });
            return;
        }
        if !self.store_works() || self.asks_deposed(&sender.who) {
            return;
        }
        let deposed = self.is_of_a_deposed_leader(&sender.who, sender.term, &request);
        let beats = match (&sender.who, &request) {
            (Who::Agent(node), Request::Commit(transaction)) => {
                transaction.writes_key(&self.keys.alive(node))
            }
            (Who::Agent(_) | Who::Controller(_), _) => false,
        };
        let request = match request {
            Request::Commit(transaction) => Request::Commit(self.as_written(&sender.who, transaction)),
            other @ (Request::Read(_)
            | Request::Grant(_)
            | Request::Keep(_)
            | Request::Revoke(_)
            | Request::List(_)) => other,
        };
        let answer = self.serve(request);
        let answer = if self.has_next { self.answer_as_read(&sender.who, answer) } else { answer };
        let Sender { who, generation, sent, .. } = sender;
        if matches!(answer, Answer::Outcome(Outcome::Applied(_))) {
            if deposed {
                self.violate("no write of a deposed leader", format!("{who} is not the leader"));
            }
            if beats {
                self.note_heartbeat(who.node(), sent);
            }
        }
        let chance = self.chance_of_loss();
        let lost = !self.reaches_store(&who, Way::Answer) || self.random.chance(chance);
        if !lost {
            let delay_ms = self.random.between_ms(1, 3) + self.store_latency_ms;
            self.queue.push(self.now + delay_ms, Event::Answer { who, generation, token, ask, answer });
        }
    }

    fn answer_as_read(&self, who: &Who, answer: Answer) -> Answer {
        match answer {
            Answer::Entries(entries, revision) => Answer::Entries(self.as_read(who, entries), revision),
            Answer::Lists(lists, revision) => {
                let read = |(prefix, entries)| (prefix, self.as_read(who, entries));
                Answer::Lists(lists.into_iter().map(read).collect(), revision)
            }
            other @ (Answer::Outcome(_)
            | Answer::Lease(_)
            | Answer::NoLease
            | Answer::Kept(_)
            | Answer::Revoked) => other,
        }
    }

    fn serve(&mut self, request: Request) -> Answer {
        match request {
            Request::Commit(transaction) => {
                let before = self.store.revision();
                let outcome = self.store.commit(&transaction);
                if matches!(outcome, Outcome::Applied(_)) {
                    self.note_step(&"".into(), || Step::Committed(transaction.clone()));
                }
                if self.store.revision() != before {
                    self.committed(before + 1);
                }
                Answer::Outcome(outcome)
            }
            Request::Read(keys) => {
                let entries = keys.iter().flat_map(|key| self.store.get(key).entries).collect();
                Answer::Entries(entries, self.store.revision())
            }
            Request::Grant(ttl_seconds) => {
                // Without space, etcd grants no lease either.
                if self.store.is_full() {
                    return Answer::NoLease;
                }
                let lease = self.store.grant_lease(Mono(self.now), ttl_seconds);
                self.schedule_expiry();
                Answer::Lease(lease)
            }
            Request::Keep(lease) => Answer::Kept(self.store.keep_alive(Mono(self.now), lease)),
            Request::Revoke(lease) => {
                let before = self.store.revision();
                // A lease that no longer exists needs no revocation.
                let _ = self.store.revoke_lease(lease);
                if self.store.revision() != before {
                    self.committed(before + 1);
                }
                Answer::Revoked
            }
            Request::List(prefixes) => {
                let lists = prefixes
                    .into_iter()
                    .map(|prefix| (prefix.clone(), self.store.list(&prefix).entries))
                    .collect();
                Answer::Lists(lists, self.store.revision())
            }
        }
    }

    /// Handles a change of the store: wakes the watchers and checks the invariants.
    pub(super) fn committed(&mut self, from: Revision) {
        let Ok(revisions) = self.store.changes_since(self.keys.root(), from) else { return };
        let mut changes: Vec<Change> = revisions.into_iter().flat_map(|(_, changes)| changes).collect();
        if self.has_next {
            changes = super::version::all_told(changes);
        }
        self.check_store_changes(&changes);
        for change in &changes {
            if let Some(Key::Candidate(id) | Key::Refresh(id)) = self.keys.parse(change.key()) {
                self.refreshed.insert(id.to_owned(), self.now);
            }
        }
        let revision = self.store.revision();
        self.note_words(&changes, revision);
        let mut watchers = Vec::new();
        for (node, process) in &mut self.agents {
            if process.notice(&changes, revision) {
                watchers.push((Who::Agent(node.clone()), process.generation));
            }
        }
        for (node, process) in &mut self.controllers {
            if process.notice(&changes, revision) {
                watchers.push((Who::Controller(node.clone()), process.generation));
            }
        }
        for (who, generation) in watchers {
            // One notification of a watch in a thousand is late.
            let slow_ms = if self.random.chance(0.001) { self.random.between_ms(100, 2_000) } else { 0 };
            let delay_ms = self.random.between_ms(1, 6) + slow_ms + self.store_latency_ms;
            self.queue.push(self.now + delay_ms, Event::Watch(who, generation));
        }
    }

    pub(super) fn schedule_expiry(&mut self) {
        if let Some(at) = self.store.next_expiry() {
            self.queue.push(at.0.max(self.now), Event::LeasesExpire);
        }
    }

    /// Delivers an answer, or its timeout, to the process.
    pub(super) fn answered(
        &mut self,
        who: &Who,
        generation: Generation,
        token: Token,
        ask: Ask,
        answer: Option<Answer>,
    ) {
        let fresh = match who {
            Who::Agent(node) => self.agents.get_mut(node).is_some_and(|process| {
                process.generation == generation && process.outstanding.remove(&token)
            }),
            Who::Controller(node) => self.controllers.get_mut(node).is_some_and(|process| {
                process.generation == generation && process.outstanding.remove(&token)
            }),
        };
        if !fresh {
            return;
        }
        if matches!(ask, Ask::Sync(_)) {
            self.count_syncs(who, |syncs| syncs - 1);
        }
        match who {
            Who::Agent(node) => self.agent_answered(node, generation, ask, answer),
            Who::Controller(node) => self.controller_answered(node, generation, ask, answer),
        }
    }

    fn agent_answered(&mut self, node: &NodeName, generation: Generation, ask: Ask, answer: Option<Answer>) {
        let no_answer = || "no answer in time".to_owned();
        let input = match (ask, answer) {
            (Ask::AgentCommit(id), Some(Answer::Outcome(outcome))) => agent::Input::Committed { id, outcome },
            (Ask::AgentCommit(id), _) => {
                agent::Input::Committed { id, outcome: Outcome::Unknown(no_answer()) }
            }
            (Ask::AgentRead(id), Some(Answer::Entries(entries, revision))) => {
                agent::Input::Read { id, result: Ok((entries, revision)) }
            }
            (Ask::AgentRead(id), _) => agent::Input::Read { id, result: Err(no_answer()) },
            (Ask::AgentLease(id), Some(Answer::Lease(lease))) => {
                agent::Input::LeaseGranted { id, result: Ok(lease) }
            }
            (Ask::AgentLease(id), _) => agent::Input::LeaseGranted { id, result: Err(no_answer()) },
            (Ask::Keep(lease), Some(Answer::Kept(Ok(_)))) => {
                agent::Input::LeaseKept { lease, kept: agent::LeaseKept::Kept }
            }
            (Ask::Keep(lease), Some(Answer::Kept(Err(_)))) => {
                agent::Input::LeaseKept { lease, kept: agent::LeaseKept::Gone }
            }
            (Ask::Keep(lease), _) => {
                agent::Input::LeaseKept { lease, kept: agent::LeaseKept::Unknown(no_answer()) }
            }
            (Ask::Sync(_), Some(Answer::Lists(lists, revision))) => {
                if let Some(process) = self.agents.get_mut(node) {
                    process.cursor = Some(revision);
                    process.watching = false;
                }
                for (prefix, entries) in lists {
                    self.tell_agent(node, generation, agent::Input::Synced { prefix, entries, revision });
                }
                // The watch must not repeat the changes that the read already contains.
                self.watch(&Who::Agent(node.to_owned()), generation);
                return;
            }
            (Ask::Sync(answers), _) => {
                self.sync_later(&Who::Agent(node.to_owned()), generation, answers);
                return;
            }
            (Ask::ControllerCommit(_) | Ask::ControllerLease | Ask::Revoke, _) => return,
        };
        self.tell_agent(node, generation, input);
    }

    fn controller_answered(
        &mut self,
        node: &NodeName,
        generation: Generation,
        ask: Ask,
        answer: Option<Answer>,
    ) {
        let no_answer = || StoreError::Unreachable("no answer in time".to_owned());
        let input = match (ask, answer) {
            (Ask::ControllerCommit(id), Some(Answer::Outcome(outcome))) => {
                controller::Input::Committed { id, outcome }
            }
            (Ask::ControllerCommit(id), _) => {
                controller::Input::Committed { id, outcome: Outcome::Unknown("no answer in time".to_owned()) }
            }
            (Ask::ControllerLease, Some(Answer::Lease(lease))) => {
                controller::Input::LeaseGranted { result: Ok(lease) }
            }
            (Ask::ControllerLease, _) => controller::Input::LeaseGranted { result: Err(no_answer()) },
            (Ask::Keep(lease), Some(Answer::Kept(result))) => controller::Input::LeaseKept { lease, result },
            (Ask::Keep(lease), _) => controller::Input::LeaseKept { lease, result: Err(no_answer()) },
            (Ask::Sync(answers), Some(Answer::Lists(lists, revision))) => {
                let who = Who::Controller(node.to_owned());
                if let Some(process) = self.controllers.get_mut(node) {
                    process.cursor = Some(revision);
                    process.watching = false;
                    // A read that failed meanwhile may have been for another refresh.
                    let due = process.answered_sync(answers);
                    self.sync_again(&who, generation, due);
                }
                let entries = lists.into_iter().flat_map(|(_, entries)| entries).collect();
                self.tell_controller(
                    node,
                    generation,
                    controller::Input::Synced { entries, revision, answers },
                );
                self.watch(&who, generation);
                return;
            }
            (Ask::Sync(answers), _) => {
                self.sync_later(&Who::Controller(node.to_owned()), generation, answers);
                return;
            }
            (Ask::AgentCommit(_) | Ask::AgentRead(_) | Ask::AgentLease(_) | Ask::Revoke, _) => return,
        };
        self.tell_controller(node, generation, input);
    }

    /// Reads everything that a process watches.
    pub(super) fn sync(&mut self, who: &Who, generation: Generation, answers: controller::RefreshId) {
        let prefixes = match who {
            Who::Agent(node) => agent::prefixes(&self.keys, node),
            Who::Controller(_) => vec![self.keys.root().to_owned()],
        };
        self.count_syncs(who, |syncs| syncs + 1);
        self.ask(who, generation, Ask::Sync(answers), Request::List(prefixes), None);
    }

    /// Changes the number of unanswered full reads of a process.
    fn count_syncs(&mut self, who: &Who, count: fn(u32) -> u32) {
        let syncs = match who {
            Who::Agent(node) => self.agents.get_mut(node).map(|process| &mut process.syncs),
            Who::Controller(node) => self.controllers.get_mut(node).map(|process| &mut process.syncs),
        };
        if let Some(syncs) = syncs {
            *syncs = count(*syncs);
        }
    }

    /// Schedules another full read after one that failed, or whose watch cannot be resumed.
    fn sync_later(&mut self, who: &Who, generation: Generation, answers: controller::RefreshId) {
        let due = match who {
            Who::Agent(node) => self.agents.get_mut(node).map(|process| process.failed_sync(answers)),
            Who::Controller(node) => {
                self.controllers.get_mut(node).map(|process| process.failed_sync(answers))
            }
        };
        self.sync_again(who, generation, due.unwrap_or_default());
    }

    fn sync_again(&mut self, who: &Who, generation: Generation, due: Vec<controller::RefreshId>) {
        for answers in due {
            self.queue.push(self.now + 500, Event::SyncAgain(who.clone(), generation, answers));
        }
    }

    /// Delivers the changes of a watch. A broken or compacted watch makes the process read everything again.
    pub(super) fn watch(&mut self, who: &Who, generation: Generation) {
        let cursor = match who {
            Who::Agent(node) => self.agents.get_mut(node).filter(|p| p.generation == generation).map(|p| {
                p.watching = false;
                p.cursor
            }),
            Who::Controller(node) => {
                self.controllers.get_mut(node).filter(|p| p.generation == generation).map(|p| {
                    p.watching = false;
                    p.cursor
                })
            }
        };
        let Some(Some(cursor)) = cursor else { return };
        if let Some(until) = self.lags_until.get(who.node()).copied().filter(|until| self.now < *until) {
            self.mark_watching(who);
            self.queue.push(until, Event::Watch(who.clone(), generation));
            return;
        }
        let reached = self.reaches_store(who, Way::Request) && self.reaches_store(who, Way::Answer);
        if !reached || !self.store_works() || self.asks_deposed(who) {
            // The watch resumes after the last seen revision; if that revision was compacted, everything is read again.
            self.mark_watching(who);
            self.queue.push(self.now + RESUME_MS, Event::Watch(who.clone(), generation));
            return;
        }
        let prefixes = match who {
            Who::Agent(node) => self.agents.get(node).map(|process| process.prefixes.as_slice()),
            Who::Controller(node) => self.controllers.get(node).map(|process| process.prefixes.as_slice()),
        };
        let Ok(changes) = self.store.changes_of(prefixes.unwrap_or_default(), cursor + 1) else {
            self.set_cursor(who, None);
            self.sync_later(who, generation, 0);
            return;
        };
        let revision = self.store.revision();
        self.set_cursor(who, Some(revision));
        let mut changes: Vec<Change> = changes.into_iter().flat_map(|(_, changes)| changes).collect();
        if self.has_next {
            changes = self.as_told(who, changes);
        }
        match who {
            Who::Agent(node) if changes.is_empty() => {
                self.tell_agent(node, generation, agent::Input::Progress(revision));
            }
            Who::Agent(node) => {
                self.tell_agent(node, generation, agent::Input::Changed { changes, revision });
            }
            Who::Controller(node) if changes.is_empty() => {
                self.tell_controller(node, generation, controller::Input::Progress(revision));
            }
            Who::Controller(node) => {
                self.tell_controller(node, generation, controller::Input::Changed { changes, revision });
            }
        }
    }

    /// Records that a notification of the watch is already scheduled.
    fn mark_watching(&mut self, who: &Who) {
        match who {
            Who::Agent(node) => {
                if let Some(process) = self.agents.get_mut(node) {
                    process.watching = true;
                }
            }
            Who::Controller(node) => {
                if let Some(process) = self.controllers.get_mut(node) {
                    process.watching = true;
                }
            }
        }
    }

    /// Handles a timeout; the next attempt goes to another member of etcd.
    pub(super) fn timed_out(&mut self, who: &Who, generation: Generation, token: Token, ask: &Ask) {
        let waits = match who {
            Who::Agent(node) => self.agents.get(node).is_some_and(|process| {
                process.generation == generation && process.outstanding.contains(&token)
            }),
            Who::Controller(node) => self.controllers.get(node).is_some_and(|process| {
                process.generation == generation && process.outstanding.contains(&token)
            }),
        };
        if waits && !matches!(ask, Ask::Keep(_)) {
            self.turn_to_another_member(who);
        }
    }

    fn set_cursor(&mut self, who: &Who, cursor: Option<Revision>) {
        match who {
            Who::Agent(node) => {
                if let Some(process) = self.agents.get_mut(node) {
                    process.cursor = cursor;
                }
            }
            Who::Controller(node) => {
                if let Some(process) = self.controllers.get_mut(node) {
                    process.cursor = cursor;
                }
            }
        }
    }
}
