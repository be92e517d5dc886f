//! The script: when a step is due, what it does, and what must hold.

use super::World;
use super::event::Event;
use crate::report::Check;
use crate::scenario::action::{Action, ProcessVerb};
use crate::scenario::condition::Condition;
use crate::scenario::{Doing, Moment};
use ha_api_types::kind::Kind;
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_api_types::record::{Leader, Leave};
use ha_api_types::resource::ServiceState;
use serde_json::{Value, json};

/// How often a condition is looked at, milliseconds.
const LOOK_MS: u64 = 100;

impl World {
    /// Does what is due and looks when the next step is.
    pub(super) fn steps(&mut self) {
        while let Some(step) = self.scenario.steps.get(self.step).cloned() {
            let Ok(moment) = step.moment() else { return };
            let due = match &moment {
                Moment::At(at) => at.0,
                Moment::After(after) => self.step_began + after.0,
                Moment::When(condition, within) => {
                    if self.holds(condition) {
                        self.now
                    } else if self.now >= self.step_began + within.0 {
                        let got = format!("not reached within {} s", within.0 / 1000);
                        self.checks.push(Check {
                            check: format!("when: {}", step.when.clone().unwrap_or_default()),
                            ok: false,
                            got,
                        });
                        self.log("script", "", "a condition was not reached");
                        self.now
                    } else {
                        self.now + LOOK_MS
                    }
                }
            };
            if due > self.now {
                self.queue.push(due, Event::Step);
                return;
            }
            self.step += 1;
            self.step_began = self.now;
            for doing in step.doings().unwrap_or_default() {
                self.do_one(doing);
            }
            if let (Some(text), Ok(Some(condition))) = (&step.check, step.checked()) {
                let ok = self.holds(&condition);
                self.checks.push(Check { check: format!("check: {text}"), ok, got: ok.to_string() });
            }
        }
    }

    fn do_one(&mut self, doing: Doing) {
        match doing {
            Doing::Apply(object) => {
                let name =
                    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
                self.log("script", "", &format!("apply {name}"));
                if let Err(problem) = self.apply(&object) {
                    self.log("script", "", &format!("apply {name} is refused: {problem}"));
                    self.refused.push(format!("apply {name}"));
                }
            }
            Doing::Verb(text, action) => {
                self.log("script", "", &text);
                if let Err(problem) = self.act(&text, action) {
                    self.log("script", "", &format!("{text} is refused: {problem}"));
                    self.refused.push(text);
                }
            }
        }
    }

    /// `leader` stands for the node whose controller leads.
    fn machine_named(&self, name: &str) -> Result<String, String> {
        let name = if name == "leader" { self.leader().unwrap_or_default() } else { name.to_owned() };
        if self.machines.contains_key(&name) { Ok(name) } else { Err(format!("there is no node {name:?}")) }
    }

    fn act(&mut self, text: &str, action: Action) -> Result<(), String> {
        match action {
            Action::Power { node, on } => {
                let node = self.machine_named(&node)?;
                self.power(&node, on);
            }
            Action::Network { node, on } => {
                let node = self.machine_named(&node)?;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.network = on;
                }
            }
            Action::Agent { node, verb } => {
                let node = self.machine_named(&node)?;
                self.agent_process(&node, verb);
            }
            Action::Controller { node, verb } => {
                let node = self.machine_named(&node)?;
                self.controller_process(&node, verb);
            }
            Action::Suspend { node, length_ms } => {
                let node = self.machine_named(&node)?;
                self.suspend(&node, length_ms);
            }
            Action::ClockRate { node, rate } => {
                let node = self.machine_named(&node)?;
                let now = self.now;
                if let Some(machine) = self.machines.get_mut(&node) {
                    machine.clock.set_rate(now, rate);
                }
            }
            Action::StoreOutage { length_ms } => {
                self.store_down_until = self.store_down_until.max(self.now + length_ms);
                self.queue.push(self.store_down_until, Event::StoreBack);
            }
            Action::StoreLeaderChange => {
                // As long as etcd takes to elect a new leader.
                self.store_down_until = self.store_down_until.max(self.now + 1_200);
                self.queue.push(self.store_down_until, Event::StoreBack);
            }
            Action::StoreLeaderPause { length_ms } => {
                self.store_down_until = self.now + length_ms.min(5_000);
                self.queue.push(self.store_down_until, Event::StoreBack);
            }
            Action::StoreCompact => {
                let revision = self.store.revision();
                self.store.compact(revision);
            }
            Action::StoreLatency { length_ms } => self.store_latency_ms = length_ms,
            Action::Set { resource, fields } => {
                let fields: Vec<(String, Value)> = fields
                    .into_iter()
                    .map(|(name, text)| (name, serde_yaml::from_str(&text).unwrap_or(json!(text))))
                    .collect();
                self.change_spec(Kind::Resource, &resource, &fields)?;
            }
            Action::Add { resource, node, running } => {
                let object = self
                    .scenario
                    .later
                    .iter()
                    .find(|object| {
                        object.pointer("/metadata/name").and_then(Value::as_str) == Some(resource.as_str())
                    })
                    .cloned()
                    .ok_or_else(|| format!("{resource} is not under `later`"))?;
                if let Some(node) = node.filter(|_| running) {
                    self.place_running(&object, &node)?;
                }
                self.apply(&object)?;
            }
            Action::Delete { resource } => self.delete(&resource)?,
            Action::Migrate { resource, node } => {
                self.operate_on(text, OperationAction::Migrate, &resource, Some(&node));
            }
            Action::Relocate { resource, node } => {
                self.operate_on(text, OperationAction::Relocate, &resource, Some(&node));
            }
            Action::Stop { resource, timeout_ms } => {
                if let Some(timeout_ms) = timeout_ms {
                    let spec = OperationSpec {
                        action: OperationAction::Stop,
                        resource: Some(resource.clone()),
                        timeout_seconds: u32::try_from(timeout_ms / 1000).ok(),
                        ..OperationSpec::default()
                    };
                    self.operate(text, spec);
                }
                self.change_spec(Kind::Resource, &resource, &[("state".to_owned(), json!("Stopped"))])?;
            }
            Action::Start { resource } => {
                self.change_spec(Kind::Resource, &resource, &[("state".to_owned(), json!("Started"))])?;
            }
            Action::Restart { resource } => self.operate_on(text, OperationAction::Restart, &resource, None),
            Action::ClearError { resource } => {
                self.operate_on(text, OperationAction::ClearError, &resource, None);
            }
            Action::Maintenance { node, enable } => {
                let node = self.machine_named(&node)?;
                self.change_spec(Kind::Node, &node, &[("maintenance".to_owned(), json!(enable))])?;
            }
            Action::Crash { resource } => self.crash(&resource),
        }
        Ok(())
    }

    /// A service ends by itself; its agent notices at once.
    fn crash(&mut self, name: &str) {
        let found: Vec<(String, String)> = self
            .machines
            .iter_mut()
            .filter_map(|(node, machine)| {
                let runs = machine
                    .services
                    .get(name)
                    .is_some_and(|present| present.doing == super::machine::Doing::Runs);
                let present = if runs { machine.services.remove(name) } else { None };
                present.map(|present| (node.clone(), present.definition.uid))
            })
            .collect();
        for (node, uid) in found {
            let event = ha_node_agent::core::DriverEvent::Exited {
                name: name.to_owned(),
                uid,
                message: "exit status 1".to_owned(),
                by_hand: false,
            };
            if let Some(generation) = self.agents.get(&node).map(|process| process.generation) {
                self.tell_agent(&node, generation, ha_node_agent::core::Input::Driver(event));
            }
        }
    }

    /// Shuts a machine down in order; used by tests of the policies.
    pub fn leave(&mut self, node: &str, reboot: bool) {
        self.shut_down(node, if reboot { Leave::Reboot } else { Leave::Poweroff });
    }

    /// Stops or starts an agent's process from outside a script.
    pub fn agent(&mut self, node: &str, verb: ProcessVerb) {
        self.agent_process(node, verb);
    }

    /// The node whose controller leads.
    pub fn leader(&self) -> Option<String> {
        let reading = self.store.get(&self.keys.leader());
        let leader = reading.entries.first()?;
        serde_json::from_slice::<Leader>(&leader.value).ok().map(|leader| leader.id)
    }

    /// Whether something is true now.
    pub fn holds(&self, condition: &Condition) -> bool {
        let at = |name: &str| self.states.get(name).and_then(|(_, node)| node.clone());
        let runs = |name: &str| self.running().get(name).cloned().unwrap_or_default();
        match condition {
            Condition::ServiceIs(name, state) => {
                self.states.get(name).map_or(ServiceState::Queued, |(state, _)| *state) == *state
            }
            Condition::ServiceOn(name, node) => at(name).as_deref() == Some(node.as_str()),
            Condition::ServiceRunning(name) => !runs(name).is_empty(),
            Condition::NodeIs(node, state) => {
                self.node_states.get(node).copied().unwrap_or_default() == *state
            }
            Condition::LeaderIs(node) => self.leader().as_deref() == Some(node.as_str()),
            Condition::NoServiceOn(node) => {
                self.machines.get(node).is_none_or(|machine| machine.services.is_empty())
            }
            Condition::Not(condition) => !self.holds(condition),
        }
    }

    /// Whether a worker, a move, a fence or a back-off is under way. A Recovery that only waits is not.
    pub(super) fn is_pending(&self) -> bool {
        let busy = |state: ServiceState| match state {
            ServiceState::Queued
            | ServiceState::RequestStart
            | ServiceState::Starting
            | ServiceState::RequestStop
            | ServiceState::Stopping
            | ServiceState::Migrate
            | ServiceState::Relocate
            | ServiceState::Fence
            | ServiceState::Deleting => true,
            ServiceState::Started
            | ServiceState::Stopped
            | ServiceState::Recovery
            | ServiceState::Freeze
            | ServiceState::Error
            | ServiceState::Disabled
            | ServiceState::Ignored => false,
        };
        self.step < self.scenario.steps.len()
            || self.states.values().any(|(state, _)| busy(*state))
            || self.machines.values().any(|machine| !machine.commands.is_empty() || machine.suspended)
            || self.operations_pending()
            || self.store_down_until > self.now
    }
}
