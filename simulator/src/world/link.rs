//! The connection between a process and etcd: requests, delays, losses, and answers that never arrive.

use super::World;
use super::event::{Event, Sender};
use super::network::Direction;
use super::process::{Client, Generation};
use super::recorded::Step;
use ha_api_types::etcd_access::{AgentSelector, agent_selectors};
use ha_api_types::id::{NodeName, Revision};
use ha_api_types::keys::Key;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_controller::core as controller;
use ha_node_agent::core as agent;
use ha_store::{Change, Entry, LeaseId, Outcome, StoreError, Transaction};

/// Unique id of a request.
pub(crate) type Token = u64;

/// Kind of a request, which decides the input that its answer becomes.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    AgentCommit(agent::CommitId),
    ControllerCommit(controller::CommitId),
    /// A read of keys for an agent.
    AgentRead(agent::ReadId),
    AgentLease(agent::LeaseRequestId),
    ControllerLease,
    /// A keep-alive of a lease.
    Keep(LeaseId),
    /// A revocation of a lease. The sender does not wait for the answer.
    Revoke,
    /// A read of all watched keys. For a controller, the value is the newest refresh that the read answers.
    Sync(controller::FullReadId),
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
    Revoke(LeaseId),
    /// Read all keys with these selectors.
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
const REQUEST_TIMEOUT_MS: Millis = ha_api_types::timing::UNANSWERED_REQUEST_MS;
/// Delay before a broken watch is opened again, in milliseconds.
const WATCH_RETRY_MS: Millis = 500;

impl World {
    /// Sends a request to etcd. The request may be slow, and the request or its answer may be lost.
    pub(super) fn send_request(
        &mut self,
        client: &Client,
        generation: Generation,
        purpose: Purpose,
        request: Request,
        timeout_ms: Option<Millis>,
    ) {
        self.token_count += 1;
        let token = self.token_count;
        let timeout_ms = timeout_ms.unwrap_or(REQUEST_TIMEOUT_MS);
        match client {
            Client::Agent(node) => {
                if let Some(process) = self.agents.get_mut(node) {
                    process.outstanding.insert(token);
                }
            }
            Client::Controller(node) => {
                if let Some(process) = self.controllers.get_mut(node) {
                    process.outstanding.insert(token);
                }
            }
        }
        let timeout = Event::Timeout { client: client.clone(), generation, token, purpose: purpose.clone() };
        self.queue.push(self.now + timeout_ms, timeout);
        let loss_chance = self.chance_of_loss();
        if self.reaches_store(client, Direction::Request) && !self.random.draw_chance(loss_chance) {
            let delay_ms = self.store_delay_ms();
            let sender = Sender {
                client: client.clone(),
                generation,
                sent: self.now,
                term: self.believed_term(client),
            };
            self.queue.push(self.now + delay_ms, Event::Arrive { sender, token, purpose, request });
        }
    }

    /// Returns the probability that a request or an answer is lost: 1 in 2,000, and more while the connection is flaky.
    fn chance_of_loss(&self) -> f64 {
        if self.now < self.store_flaky_until { 0.1 } else { 0.0005 }
    }

    fn store_delay_ms(&mut self) -> Millis {
        let latency_ms = self.store_latency_ms;
        // One request in a thousand is delayed by up to 8 s, often until its sender has timed out.
        let slow_chance = if self.now < self.store_flaky_until { 0.15 } else { 0.001 };
        if self.random.draw_chance(slow_chance) {
            return latency_ms + self.random.draw_between_ms(500, 8_000);
        }
        latency_ms + self.random.draw_between_ms(1, 4)
    }

    /// Handles a request at etcd. Its effect happens now, even if its answer is lost.
    pub(super) fn deliver_request(
        &mut self,
        sender: Sender,
        token: Token,
        purpose: Purpose,
        request: Request,
    ) {
        if let Request::Keep(_) = &request
            && let Some(resume_ms) = self.deposed_keep_alive_time(&sender.client)
        {
            // The deposed etcd leader answers without its peers, so this answer does not extend the lease.
            let answer = Answer::Kept(Ok(1));
            let delay_ms = self.random.draw_between_ms(1, 3);
            let Sender { client, generation, .. } = sender;
            self.queue
                .push(resume_ms + delay_ms, Event::Answer { client, generation, token, purpose, answer });
            return;
        }
        if !self.is_store_available() || self.sends_to_deposed_leader(&sender.client) {
            return;
        }
        let is_deposed = self.is_deposed_leader_write(&sender.client, sender.term, &request);
        let is_heartbeat = match (&sender.client, &request) {
            (Client::Agent(node), Request::Commit(transaction)) => {
                transaction.writes_key(&self.keys.alive(node))
            }
            (Client::Agent(_) | Client::Controller(_), _) => false,
        };
        let request = match request {
            Request::Commit(transaction) => {
                Request::Commit(self.encoded_transaction(&sender.client, transaction))
            }
            other @ (Request::Read(_)
            | Request::Grant(_)
            | Request::Keep(_)
            | Request::Revoke(_)
            | Request::List(_)) => other,
        };
        let answer = self.execute(request);
        let answer = if self.has_next_version { self.decoded_answer(&sender.client, answer) } else { answer };
        let Sender { client, generation, sent, .. } = sender;
        if matches!(answer, Answer::Outcome(Outcome::Applied(_))) {
            if is_deposed {
                self.record_violation("no write of a deposed leader", format!("{client} is not the leader"));
            }
            if is_heartbeat {
                self.record_heartbeat(client.node(), sent);
            }
        }
        let loss_chance = self.chance_of_loss();
        let is_lost = !self.reaches_store(&client, Direction::Answer) || self.random.draw_chance(loss_chance);
        if !is_lost {
            let delay_ms = self.random.draw_between_ms(1, 3) + self.store_latency_ms;
            self.queue
                .push(self.now + delay_ms, Event::Answer { client, generation, token, purpose, answer });
        }
    }

    fn decoded_answer(&self, client: &Client, answer: Answer) -> Answer {
        match answer {
            Answer::Entries(entries, revision) => {
                Answer::Entries(self.decoded_entries(client, entries), revision)
            }
            Answer::Lists(lists, revision) => {
                let read = |(prefix, entries)| (prefix, self.decoded_entries(client, entries));
                Answer::Lists(lists.into_iter().map(read).collect(), revision)
            }
            other @ (Answer::Outcome(_)
            | Answer::Lease(_)
            | Answer::NoLease
            | Answer::Kept(_)
            | Answer::Revoked) => other,
        }
    }

    fn execute(&mut self, request: Request) -> Answer {
        match request {
            Request::Commit(transaction) => {
                let revision_before = self.store.revision();
                let outcome = self.store.commit(&transaction);
                if matches!(outcome, Outcome::Applied(_)) {
                    self.record_step(&"".into(), || Step::Committed(transaction.clone()));
                }
                if self.store.revision() != revision_before {
                    self.handle_commit(revision_before + 1);
                }
                Answer::Outcome(outcome)
            }
            Request::Read(keys) => {
                let entries = keys.iter().flat_map(|key| self.store.get(key).entries).collect();
                Answer::Entries(entries, self.store.revision())
            }
            Request::Grant(ttl_seconds) => {
                // If etcd has no space, it grants no lease either.
                if self.store.is_full() {
                    return Answer::NoLease;
                }
                let lease = self.store.grant_lease(MonotonicTime(self.now), ttl_seconds);
                self.schedule_expiry();
                Answer::Lease(lease)
            }
            Request::Keep(lease) => Answer::Kept(self.store.keep_alive(MonotonicTime(self.now), lease)),
            Request::Revoke(lease) => {
                let revision_before = self.store.revision();
                // A lease that no longer exists needs no revocation.
                let _ = self.store.revoke_lease(lease);
                if self.store.revision() != revision_before {
                    self.handle_commit(revision_before + 1);
                }
                Answer::Revoked
            }
            Request::List(selectors) => {
                let lists = selectors
                    .into_iter()
                    .map(|prefix| (prefix.clone(), self.store.list(&prefix).entries))
                    .collect();
                Answer::Lists(lists, self.store.revision())
            }
        }
    }

    /// Handles a change of the store: wakes the watchers and checks the invariants.
    pub(super) fn handle_commit(&mut self, from: Revision) {
        let Ok(revisions) = self.store.changes_since(self.keys.root(), from) else { return };
        let mut changes: Vec<Change> = revisions.into_iter().flat_map(|(_, changes)| changes).collect();
        if self.has_next_version {
            changes = super::version::all_decoded_changes(changes);
        }
        self.check_store_changes(&changes);
        for change in &changes {
            if let Some(Key::Candidate(id) | Key::Refresh(id)) = self.keys.parse(change.key()) {
                self.refreshed_at.insert(id, self.now);
            }
        }
        let revision = self.store.revision();
        self.record_words(&changes, revision);
        let mut watchers = Vec::new();
        for (node, process) in &mut self.agents {
            if process.mark_changes(&changes, revision) {
                watchers.push((Client::Agent(node.clone()), process.generation));
            }
        }
        for (node, process) in &mut self.controllers {
            if process.mark_changes(&changes, revision) {
                watchers.push((Client::Controller(node.clone()), process.generation));
            }
        }
        for (client, generation) in watchers {
            // One notification of a watch in a thousand is late.
            let slow_ms =
                if self.random.draw_chance(0.001) { self.random.draw_between_ms(100, 2_000) } else { 0 };
            let delay_ms = self.random.draw_between_ms(1, 6) + slow_ms + self.store_latency_ms;
            self.queue.push(self.now + delay_ms, Event::Watch(client, generation));
        }
    }

    pub(super) fn schedule_expiry(&mut self) {
        if let Some(at) = self.store.next_expiry() {
            self.queue.push(at.0.max(self.now), Event::LeasesExpire);
        }
    }

    /// Delivers an answer, or its timeout, to the process.
    pub(super) fn deliver_answer(
        &mut self,
        client: &Client,
        generation: Generation,
        token: Token,
        purpose: Purpose,
        answer: Option<Answer>,
    ) {
        let is_expected = match client {
            Client::Agent(node) => self.agents.get_mut(node).is_some_and(|process| {
                process.generation == generation && process.outstanding.remove(&token)
            }),
            Client::Controller(node) => self.controllers.get_mut(node).is_some_and(|process| {
                process.generation == generation && process.outstanding.remove(&token)
            }),
        };
        if !is_expected {
            return;
        }
        if matches!(purpose, Purpose::Sync(_)) {
            self.count_syncs(client, |syncs| syncs - 1);
        }
        match client {
            Client::Agent(node) => self.deliver_agent_answer(node, generation, purpose, answer),
            Client::Controller(node) => self.deliver_controller_answer(node, generation, purpose, answer),
        }
    }

    fn deliver_agent_answer(
        &mut self,
        node: &NodeName,
        generation: Generation,
        purpose: Purpose,
        answer: Option<Answer>,
    ) {
        let no_answer = || "no answer in time".to_owned();
        let input = match (purpose, answer) {
            (Purpose::AgentCommit(id), Some(Answer::Outcome(outcome))) => {
                agent::Input::Committed { id, outcome }
            }
            (Purpose::AgentCommit(id), _) => {
                agent::Input::Committed { id, outcome: Outcome::Unknown(no_answer()) }
            }
            (Purpose::AgentRead(id), Some(Answer::Entries(entries, revision))) => {
                agent::Input::Read { id, result: Ok((entries, revision)) }
            }
            (Purpose::AgentRead(id), _) => agent::Input::Read { id, result: Err(no_answer()) },
            (Purpose::AgentLease(id), Some(Answer::Lease(lease))) => {
                agent::Input::LeaseGranted { id, result: Ok(lease) }
            }
            (Purpose::AgentLease(id), _) => agent::Input::LeaseGranted { id, result: Err(no_answer()) },
            (Purpose::Keep(lease), Some(Answer::Kept(Ok(_)))) => {
                agent::Input::LeaseKept { lease, kept: agent::LeaseKept::Kept }
            }
            (Purpose::Keep(lease), Some(Answer::Kept(Err(_)))) => {
                agent::Input::LeaseKept { lease, kept: agent::LeaseKept::Gone }
            }
            (Purpose::Keep(lease), _) => {
                agent::Input::LeaseKept { lease, kept: agent::LeaseKept::Unknown(no_answer()) }
            }
            (Purpose::Sync(_), Some(Answer::Lists(lists, revision))) => {
                if let Some(process) = self.agents.get_mut(node) {
                    process.cursor = Some(revision);
                    process.is_watching = false;
                }
                for (selector, (_, entries)) in AgentSelector::ALL.into_iter().zip(lists) {
                    self.send_to_agent(
                        node,
                        generation,
                        agent::Input::Synced { selector, entries, revision },
                    );
                }
                // The watch must not repeat the changes that the read already contains.
                self.deliver_changes(&Client::Agent(node.to_owned()), generation);
                return;
            }
            (Purpose::Sync(answers), _) => {
                self.schedule_failed_sync(&Client::Agent(node.to_owned()), generation, answers);
                return;
            }
            (Purpose::ControllerCommit(_) | Purpose::ControllerLease | Purpose::Revoke, _) => return,
        };
        self.send_to_agent(node, generation, input);
    }

    fn deliver_controller_answer(
        &mut self,
        node: &NodeName,
        generation: Generation,
        purpose: Purpose,
        answer: Option<Answer>,
    ) {
        let no_answer = || StoreError::Unreachable("no answer in time".to_owned());
        let input = match (purpose, answer) {
            (Purpose::ControllerCommit(id), Some(Answer::Outcome(outcome))) => {
                controller::Input::Committed { id, outcome }
            }
            (Purpose::ControllerCommit(id), _) => {
                controller::Input::Committed { id, outcome: Outcome::Unknown("no answer in time".to_owned()) }
            }
            (Purpose::ControllerLease, Some(Answer::Lease(lease))) => {
                controller::Input::LeaseGranted { result: Ok(lease) }
            }
            (Purpose::ControllerLease, _) => controller::Input::LeaseGranted { result: Err(no_answer()) },
            (Purpose::Keep(lease), Some(Answer::Kept(result))) => {
                controller::Input::LeaseKept { lease, result }
            }
            (Purpose::Keep(lease), _) => controller::Input::LeaseKept { lease, result: Err(no_answer()) },
            (Purpose::Sync(answers), Some(Answer::Lists(lists, revision))) => {
                let client = Client::Controller(node.to_owned());
                if let Some(process) = self.controllers.get_mut(node) {
                    process.cursor = Some(revision);
                    process.is_watching = false;
                    // A read for another refresh may have failed in the meantime.
                    let due_refreshes = process.record_answered_sync(answers);
                    self.schedule_syncs(&client, generation, due_refreshes);
                }
                let entries = lists.into_iter().flat_map(|(_, entries)| entries).collect();
                self.send_to_controller(
                    node,
                    generation,
                    controller::Input::Synced { entries, revision, answers },
                );
                self.deliver_changes(&client, generation);
                return;
            }
            (Purpose::Sync(answers), _) => {
                self.schedule_failed_sync(&Client::Controller(node.to_owned()), generation, answers);
                return;
            }
            (
                Purpose::AgentCommit(_) | Purpose::AgentRead(_) | Purpose::AgentLease(_) | Purpose::Revoke,
                _,
            ) => return,
        };
        self.send_to_controller(node, generation, input);
    }

    /// Reads all keys that a process watches.
    pub(super) fn start_sync(
        &mut self,
        client: &Client,
        generation: Generation,
        answers: controller::FullReadId,
    ) {
        let selectors = match client {
            Client::Agent(node) => agent_selectors(&self.keys, node),
            Client::Controller(_) => vec![self.keys.root().to_owned()],
        };
        self.count_syncs(client, |syncs| syncs + 1);
        self.send_request(client, generation, Purpose::Sync(answers), Request::List(selectors), None);
    }

    /// Changes the number of unanswered full reads of a process.
    fn count_syncs(&mut self, client: &Client, count: fn(u32) -> u32) {
        let syncs = match client {
            Client::Agent(node) => self.agents.get_mut(node).map(|process| &mut process.syncs),
            Client::Controller(node) => self.controllers.get_mut(node).map(|process| &mut process.syncs),
        };
        if let Some(syncs) = syncs {
            *syncs = count(*syncs);
        }
    }

    /// Schedules another full read after a full read failed, or after its watch cannot be resumed.
    fn schedule_failed_sync(
        &mut self,
        client: &Client,
        generation: Generation,
        answers: controller::FullReadId,
    ) {
        let due_refreshes = match client {
            Client::Agent(node) => {
                self.agents.get_mut(node).map(|process| process.record_failed_sync(answers))
            }
            Client::Controller(node) => {
                self.controllers.get_mut(node).map(|process| process.record_failed_sync(answers))
            }
        };
        self.schedule_syncs(client, generation, due_refreshes.unwrap_or_default());
    }

    fn schedule_syncs(
        &mut self,
        client: &Client,
        generation: Generation,
        due_refreshes: Vec<controller::FullReadId>,
    ) {
        for answers in due_refreshes {
            self.queue.push(self.now + 500, Event::SyncAgain(client.clone(), generation, answers));
        }
    }

    /// Delivers the changes of a watch. A broken watch resumes after the last seen revision. If that revision was
    /// compacted, the process reads all keys again.
    pub(super) fn deliver_changes(&mut self, client: &Client, generation: Generation) {
        let cursor = match client {
            Client::Agent(node) => {
                self.agents.get_mut(node).filter(|process| process.generation == generation).map(|process| {
                    process.is_watching = false;
                    process.cursor
                })
            }
            Client::Controller(node) => {
                self.controllers.get_mut(node).filter(|process| process.generation == generation).map(
                    |process| {
                        process.is_watching = false;
                        process.cursor
                    },
                )
            }
        };
        let Some(Some(cursor)) = cursor else { return };
        if let Some(lag_end_ms) =
            self.watch_lag_until.get(client.node()).copied().filter(|lag_end_ms| self.now < *lag_end_ms)
        {
            self.mark_watching(client);
            self.queue.push(lag_end_ms, Event::Watch(client.clone(), generation));
            return;
        }
        let is_connected =
            self.reaches_store(client, Direction::Request) && self.reaches_store(client, Direction::Answer);
        if !is_connected || !self.is_store_available() || self.sends_to_deposed_leader(client) {
            // The watch resumes after the last seen revision. If that revision was compacted, the process reads all
            // keys again.
            self.mark_watching(client);
            self.queue.push(self.now + WATCH_RETRY_MS, Event::Watch(client.clone(), generation));
            return;
        }
        let selectors = match client {
            Client::Agent(node) => self.agents.get(node).map(|process| process.selectors.as_slice()),
            Client::Controller(node) => {
                self.controllers.get(node).map(|process| process.selectors.as_slice())
            }
        };
        let Ok(changes) = self.store.changes_of(selectors.unwrap_or_default(), cursor + 1) else {
            self.set_cursor(client, None);
            self.schedule_failed_sync(client, generation, controller::FullReadId::default());
            return;
        };
        let revision = self.store.revision();
        self.set_cursor(client, Some(revision));
        let mut changes: Vec<Change> = changes.into_iter().flat_map(|(_, changes)| changes).collect();
        if self.has_next_version {
            changes = self.decoded_changes(client, changes);
        }
        match client {
            Client::Agent(node) if changes.is_empty() => {
                self.send_to_agent(node, generation, agent::Input::Progress(revision));
            }
            Client::Agent(node) => {
                self.send_to_agent(node, generation, agent::Input::Changed { changes, revision });
            }
            Client::Controller(node) if changes.is_empty() => {
                self.send_to_controller(node, generation, controller::Input::Progress(revision));
            }
            Client::Controller(node) => {
                self.send_to_controller(node, generation, controller::Input::Changed { changes, revision });
            }
        }
    }

    /// Records that a notification of the watch is already scheduled.
    fn mark_watching(&mut self, client: &Client) {
        match client {
            Client::Agent(node) => {
                if let Some(process) = self.agents.get_mut(node) {
                    process.is_watching = true;
                }
            }
            Client::Controller(node) => {
                if let Some(process) = self.controllers.get_mut(node) {
                    process.is_watching = true;
                }
            }
        }
    }

    /// Handles a timeout; the next attempt goes to another member of etcd.
    pub(super) fn handle_timeout(
        &mut self,
        client: &Client,
        generation: Generation,
        token: Token,
        purpose: &Purpose,
    ) {
        let is_waiting = match client {
            Client::Agent(node) => self.agents.get(node).is_some_and(|process| {
                process.generation == generation && process.outstanding.contains(&token)
            }),
            Client::Controller(node) => self.controllers.get(node).is_some_and(|process| {
                process.generation == generation && process.outstanding.contains(&token)
            }),
        };
        if is_waiting && !matches!(purpose, Purpose::Keep(_)) {
            self.switch_store_member(client);
        }
    }

    fn set_cursor(&mut self, client: &Client, cursor: Option<Revision>) {
        match client {
            Client::Agent(node) => {
                if let Some(process) = self.agents.get_mut(node) {
                    process.cursor = cursor;
                }
            }
            Client::Controller(node) => {
                if let Some(process) = self.controllers.get_mut(node) {
                    process.cursor = cursor;
                }
            }
        }
    }
}
