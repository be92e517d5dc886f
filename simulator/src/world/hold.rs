//! Requests for hold, which agents send to controllers over the network between machines (FENCING, section 9).

use super::World;
use super::event::Event;
use super::process::Generation;
use super::recorded::Step;
use ha_api_types::id::NodeName;
use ha_api_types::keys::Key;
use ha_api_types::record::{HoldAnswer, HoldRequest, NodeReport};
use ha_api_types::time::Millis;
use ha_controller::core as controller;
use ha_node_agent::core as agent;
use std::collections::{BTreeMap, BTreeSet};

/// A request of an agent to one controller for hold of the agent's node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HoldQuestion {
    /// Node of the agent.
    pub(crate) node: NodeName,
    /// Generation of the agent's process.
    pub(crate) generation: Generation,
    /// Number that the agent gave the question. The agent sends the question with this number to all controllers.
    pub(crate) id: agent::HoldId,
    /// Node of the controller.
    pub(crate) candidate: NodeName,
    /// Virtual time at which the agent asked.
    pub(crate) asked_at: Millis,
}

/// Unanswered questions, and grants.
#[derive(Debug, Default)]
pub(super) struct HoldRequests {
    /// Questions for whose answers an agent still waits.
    unanswered: BTreeSet<HoldQuestion>,
    /// Questions that a controller has received, by the controller's number.
    received: BTreeMap<controller::HoldId, HoldQuestion>,
    /// Controllers that have granted, by node, process and question.
    granted: BTreeMap<(NodeName, Generation, agent::HoldId), BTreeSet<NodeName>>,
}

impl World {
    /// Sends a question from an agent to a controller. The question or its answer may be lost.
    pub(super) fn send_hold_question(
        &mut self,
        question: HoldQuestion,
        request: HoldRequest,
        timeout_ms: Millis,
    ) {
        self.record_step(&question.node, || Step::RequestsHold);
        self.hold_requests.unanswered.insert(question.clone());
        let no_answer = Err("no answer in time".to_owned());
        self.queue.push(
            self.now + timeout_ms,
            Event::HoldAnswered { question: question.clone(), answer: no_answer },
        );
        if !self.draw_message_loss() && self.can_ask_controller(&question.node, &question.candidate) {
            let delay_ms = self.random.draw_between_ms(1, 4);
            self.queue.push(self.now + delay_ms, Event::HoldAsked { question, request: Box::new(request) });
        }
    }

    /// Draws whether a message is lost.
    fn draw_message_loss(&mut self) -> bool {
        self.random.draw_chance(0.0005)
    }

    /// Delivers a question to a controller.
    pub(super) fn deliver_hold_question(&mut self, question: HoldQuestion, request: HoldRequest) {
        if self.draw_message_loss() || !self.can_ask_controller(&question.node, &question.candidate) {
            return;
        }
        let candidate = question.candidate.clone();
        let Some(generation) = self.controllers.get(&candidate).map(|process| process.generation) else {
            return;
        };
        self.token_count += 1;
        let id = controller::HoldId(self.token_count);
        let node = question.node.clone();
        self.hold_requests.received.insert(id, question);
        self.send_to_controller(
            &candidate,
            generation,
            controller::Input::HoldRequested { id, node, request },
        );
    }

    /// Records a controller's answer and sends it to the agent.
    pub(super) fn send_hold_answer(&mut self, id: controller::HoldId, answer: HoldAnswer) {
        let Some(question) = self.hold_requests.received.remove(&id) else { return };
        if answer.granted {
            self.record_step(&question.candidate, || Step::Grants { node: question.node.clone() });
            self.record_grant(&question);
        }
        if !self.draw_message_loss()
            && self.receives_answer_of_controller(&question.candidate, &question.node)
        {
            let delay_ms = self.random.draw_between_ms(1, 4);
            self.queue.push(self.now + delay_ms, Event::HoldAnswered { question, answer: Ok(answer) });
        }
    }

    /// Delivers the answer, or the timeout, to the agent.
    pub(super) fn deliver_hold_answer(&mut self, question: HoldQuestion, answer: Result<HoldAnswer, String>) {
        if !self.hold_requests.unanswered.remove(&question) {
            return;
        }
        let HoldQuestion { node, generation, id, candidate, .. } = question;
        self.send_to_agent(
            &node,
            generation,
            agent::Input::HoldAnswered { id, candidate: candidate.to_string().into(), answer },
        );
    }

    /// Records a grant. Once every candidate that counts has granted, services on the node may continue until D,
    /// measured from the time of the question. A candidate counts if its key is not newer than the newest generation in
    /// the node's report.
    fn record_grant(&mut self, question: &HoldQuestion) {
        let HoldQuestion { node, generation, id, candidate, asked_at } = question;
        let report: Option<NodeReport> = self.read_record(&self.keys.node_report(node));
        let terms = report.and_then(|report| report.hold_terms());
        self.hold_requests
            .granted
            .retain(|(granted_node, _, newest), _| granted_node != node || newest == id);
        let granted = self.hold_requests.granted.entry((node.clone(), *generation, *id)).or_default();
        granted.insert(candidate.clone());
        let candidates = self.store.list(&self.keys.candidates()).entries;
        let all_granted = terms.is_some_and(|terms| {
            candidates.iter().filter(|entry| terms.includes_candidate(entry.create_revision)).all(|entry| {
                matches!(self.keys.parse(&entry.key), Some(Key::Candidate(id)) if granted.contains(id.as_str()))
            })
        });
        if all_granted {
            self.record_heartbeat(node, *asked_at);
        }
    }
}
