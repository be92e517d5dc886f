//! The script of a scenario: due times of steps, conditions, and the check of whether an action is pending.

use super::World;
use super::event::Event;
use crate::report::Check;
use crate::scenario::condition::Condition;
use crate::scenario::{Moment, StepCommand};
use ha_api_types::cluster::{CLUSTER_NAME, ClusterStatus};
use ha_api_types::id::ResourceName;
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState};
use ha_api_types::resource::{ResourceStatus, ServiceState};
use ha_api_types::time::Millis;

impl World {
    /// Executes the steps that are due, and schedules the next one.
    pub(super) fn run_due_steps(&mut self) {
        while let Some(step) = self.scenario.steps.get(self.step).cloned() {
            let due_ms = match &step.moment {
                Moment::At(at) => self.begun_at.unwrap_or_default() + at.0,
                Moment::After(after) => self.step_begun_at + after.0,
                Moment::When { text, condition, within } => {
                    let deadline_ms = self.step_begun_at + within.0;
                    if !self.is_condition_met(condition) && self.now >= deadline_ms {
                        let actual = format!("not reached within {} s", within.0 as f64 / 1000.0);
                        self.log(&"script".into(), "", &format!("{text}: {actual}"));
                        self.checks.push(Check { check: format!("when: {text}"), ok: false, actual });
                    } else if !self.is_condition_met(condition) {
                        self.schedule_step(deadline_ms);
                        return;
                    }
                    self.now
                }
            };
            if due_ms > self.now {
                self.schedule_step(due_ms);
                return;
            }
            self.step += 1;
            self.next_step_position = None;
            self.step_begun_at = self.now;
            self.record_explanations();
            if !step.only_if.iter().all(|condition| self.is_condition_met(condition)) {
                continue;
            }
            for command in step.commands {
                self.run_command(command);
                self.update_store_leader();
            }
            if let Some((text, condition)) = &step.check {
                let ok = self.is_condition_met(condition);
                self.checks.push(Check { check: format!("check: {text}"), ok, actual: ok.to_string() });
                if !ok {
                    self.log(&"script".into(), "", &format!("does not hold: {text}"));
                }
            }
        }
        // In a replay, the next step is scheduled now.
        self.next_step_position = self.next_step_position.or_else(|| Some(self.queue.reserve()));
    }

    fn schedule_step(&mut self, due_ms: Millis) {
        let position = self.queue.reserve();
        self.next_step_position = Some(position);
        self.queue.push_at_position(due_ms, position, Event::Step);
    }

    /// Executes a step that waits for a condition, as soon as the condition holds.
    pub(super) fn check_when_condition(&mut self) {
        let reached = match self.scenario.steps.get(self.step).map(|step| &step.moment) {
            Some(Moment::When { condition, .. }) => self.is_condition_met(condition),
            Some(Moment::At(_) | Moment::After(_)) | None => false,
        };
        if reached {
            self.run_due_steps();
        }
    }

    fn run_command(&mut self, command: StepCommand) {
        match command {
            StepCommand::Apply(object) => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let text = format!("apply {name}");
                self.log(&"script".into(), "", &text);
                if let Err(problem) = self.apply(&object) {
                    self.record_refused_step(&text, &problem);
                }
            }
            StepCommand::Verb(text, action) => {
                self.log(&"script".into(), "", &text);
                if let Err(problem) = self.run_action(&text, action) {
                    self.record_refused_step(&text, &problem);
                }
            }
            StepCommand::Write(values) => self.write_for_user(&values),
        }
    }

    fn record_refused_step(&mut self, text: &str, problem: &str) {
        self.log(&"script".into(), "", &format!("{text} is refused: {problem}"));
        self.refused_commands.push((text.to_owned(), None));
        self.last_refusal = Some(problem.to_owned());
    }

    /// Returns `true` if the condition holds now.
    pub fn is_condition_met(&self, condition: &Condition) -> bool {
        let node_of =
            |name: &ResourceName| self.service_states.get(name).and_then(|(_, node)| node.as_deref());
        match condition {
            Condition::ServiceIs(name, state) => {
                self.resource_exists(name)
                    && self.service_states.get(name).map_or(ServiceState::Queued, |(state, _)| *state)
                        == *state
            }
            Condition::ServiceOn(name, node) => node_of(name) == Some(node.as_str()),
            Condition::ServiceRunning(name) => {
                self.machines.values().any(|machine| machine.is_up && machine.runs(name))
            }
            Condition::NodeIs(node, state) => {
                self.node_states.get(node).copied().unwrap_or_default() == *state
            }
            Condition::LeaderIs(node) => self.leader().as_deref() == Some(node.as_str()),
            Condition::NoServiceOn(node) => {
                self.machines.get(node).is_none_or(|machine| machine.services.is_empty())
            }
            Condition::ClusterIs(word) => {
                let status = self.status_of::<ClusterStatus>(Kind::Cluster, CLUSTER_NAME).unwrap_or_default();
                // A cluster that never had a leader is armed.
                let arming = if status.arming.is_empty() { "Armed" } else { status.arming.as_str() };
                arming == *word
            }
            Condition::ServiceHasReason(name, reason) => {
                self.has_condition_reason(Kind::Resource, name, *reason)
            }
            Condition::NodeHasReason(node, reason) => self.has_condition_reason(Kind::Node, node, *reason),
            Condition::ClusterHasReason(reason) => {
                self.has_condition_reason(Kind::Cluster, CLUSTER_NAME, *reason)
            }
            Condition::ExplanationHasReason(resource, reason, node) => {
                self.explanation_names_reason(resource, *reason, node)
            }
            Condition::CommandHasReason(text, reason) => self.command_has_reason(text, *reason),
            Condition::EventEmitted(reason, name) => self.emitted_events.contains(&(*reason, name.clone())),
            Condition::Not(condition) => !self.is_condition_met(condition),
        }
    }

    /// Returns `true` if the run can still progress without an operator: steps remain, a service is not settled, a
    /// machine runs a command, boots, ends or is suspended, a node is being fenced, an operation runs, or etcd is down
    /// or has a deposed leader. A wait for an operator does not count.
    pub(super) fn is_pending(&self) -> bool {
        self.step < self.scenario.steps.len()
            || self.resource_names().iter().any(|name| !self.settled_services.contains(name))
            || self.machines.values().any(|machine| {
                !machine.commands.is_empty()
                    || machine.is_suspended
                    || machine.shutdown_in_progress.is_some()
                    || (machine.is_powered && !machine.is_up)
            })
            || self.is_fencing()
            || self.operations_pending()
            || self.store_down_until > self.now
            || self.deposed_etcd_leader.is_some()
    }

    /// Returns `true` if a node's epoch is closed and its proof will come automatically.
    fn is_fencing(&self) -> bool {
        self.machines.keys().any(|node| {
            let fence: Option<Fence> = self.read_record(&self.keys.fence(node));
            fence.is_some_and(|fence| {
                fence.state == FenceState::Fencing
                    && (fence.armed_fencing_delay_ms.is_some() || fence.device.is_some())
            })
        })
    }
}

/// Returns `true` if a service's status shows an action in progress, or an action that will follow.
pub(super) fn is_busy(status: &ResourceStatus) -> bool {
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
    // A dependency that can still start is itself busy.
    let waiting_reasons = [
        Reason::Unschedulable,
        Reason::NotProbed,
        Reason::FencingUnavailable,
        Reason::Frozen,
        Reason::WaitingForDependency,
    ];
    let is_only_waiting = ready.is_some_and(|ready| {
        waiting_reasons.contains(&ready.reason)
            || (ready.reason == Reason::Disarmed && status.state == ServiceState::Queued)
    });
    match status.state {
        ServiceState::Queued
        | ServiceState::RequestStart
        | ServiceState::Starting
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Fence
        | ServiceState::Deleting => !is_only_waiting,
        // A failed move that is still required is retried after a back-off.
        ServiceState::Started => ready.is_some_and(|ready| ready.reason == Reason::MoveFailed),
        ServiceState::Stopped
        | ServiceState::Recovery
        | ServiceState::Freeze
        | ServiceState::Error
        | ServiceState::Disabled
        | ServiceState::Ignored => false,
    }
}
