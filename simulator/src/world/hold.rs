//! Agents that ask controllers to hold their node, over the network between machines (FENCING, section 9).

use super::World;
use super::event::Event;
use super::process::Generation;
use super::recorded::Step;
use ha_api_types::keys::Key;
use ha_api_types::record::{HoldAnswer, HoldRequest, NodeReport};
use ha_api_types::time::Millis;
use ha_controller::core as controller;
use ha_node_agent::core as agent;
use std::collections::{BTreeMap, BTreeSet};

/// A question of an agent to one controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    /// The agent's node.
    pub(crate) node: String,
    /// Which process of that agent.
    pub(crate) generation: Generation,
    /// The agent's number of it; the same for all controllers that it asks.
    pub(crate) id: agent::HoldId,
    /// The controller, by the node that it is on.
    pub(crate) candidate: String,
    /// When it was asked, virtual time.
    pub(crate) asked_at: Millis,
}

/// Questions under way, and what was granted.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Their agent still waits.
    waiting: BTreeSet<Question>,
    /// With a controller, by its number of it.
    with_controller: BTreeMap<controller::HoldId, Question>,
    /// Who has granted, by node, process and question.
    granted: BTreeMap<(String, Generation, agent::HoldId), BTreeSet<String>>,
}

impl World {
    /// An agent asks a controller; the question or its answer may be lost.
    pub(super) fn ask_hold(&mut self, question: Question, request: HoldRequest, patience_ms: Millis) {
        self.note_step(&question.node, || Step::AsksToHold);
        self.holding.waiting.insert(question.clone());
        let none = Err("no answer in time".to_owned());
        self.queue
            .push(self.now + patience_ms, Event::HoldAnswered { question: question.clone(), answer: none });
        if !self.is_lost() && self.asks_controller(&question.node, &question.candidate) {
            let delay_ms = self.random.between_ms(1, 4);
            self.queue.push(self.now + delay_ms, Event::HoldAsked { question, request: Box::new(request) });
        }
    }

    /// Whether a message is lost on its way.
    fn is_lost(&mut self) -> bool {
        self.random.chance(0.0005)
    }

    /// A question reaches a controller.
    pub(super) fn hold_asked(&mut self, question: Question, request: HoldRequest) {
        if self.is_lost() || !self.asks_controller(&question.node, &question.candidate) {
            return;
        }
        let candidate = question.candidate.clone();
        let Some(generation) = self.controllers.get(&candidate).map(|process| process.generation) else {
            return;
        };
        self.tokens += 1;
        let id = self.tokens;
        let node = question.node.clone();
        self.holding.with_controller.insert(id, question);
        self.tell_controller(&candidate, generation, controller::Input::HoldAsked { id, node, request });
    }

    /// A controller has answered.
    pub(super) fn answer_hold(&mut self, id: controller::HoldId, answer: HoldAnswer) {
        let Some(question) = self.holding.with_controller.remove(&id) else { return };
        if answer.granted {
            self.note_step(&question.candidate, || Step::Grants { node: question.node.clone() });
            self.note_grant(&question);
        }
        if !self.is_lost() && self.hears_controller(&question.candidate, &question.node) {
            let delay_ms = self.random.between_ms(1, 4);
            self.queue.push(self.now + delay_ms, Event::HoldAnswered { question, answer: Ok(answer) });
        }
    }

    /// The answer, or that there was none in time, reaches the agent.
    pub(super) fn hold_answered(&mut self, question: Question, answer: Result<HoldAnswer, String>) {
        if !self.holding.waiting.remove(&question) {
            return;
        }
        let Question { node, generation, id, candidate, .. } = question;
        self.tell_agent(&node, generation, agent::Input::HoldAnswered { id, candidate, answer });
    }

    /// Once every controller that may take the node's silence for anything has granted, what runs on it may go on until D,
    /// counted from the asking. Those are the ones whose key is there, and not newer than the node's report says it knows.
    fn note_grant(&mut self, question: &Question) {
        let Question { node, generation, id, candidate, asked_at } = question;
        let report: Option<NodeReport> = self.record(&self.keys.node_report(node));
        let terms = report.and_then(|report| report.hold_terms());
        self.holding.granted.retain(|(known, _, newest), _| known != node || newest == id);
        let granted = self.holding.granted.entry((node.clone(), *generation, *id)).or_default();
        granted.insert(candidate.clone());
        let candidates = self.store.list(&self.keys.candidates()).entries;
        let all = terms.is_some_and(|terms| {
            candidates.iter().filter(|entry| terms.include(entry.create_revision)).all(|entry| {
                matches!(self.keys.parse(&entry.key), Some(Key::Candidate(id)) if granted.contains(id))
            })
        });
        if all {
            self.note_heartbeat(node, *asked_at);
        }
    }
}
