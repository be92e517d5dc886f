//! The results of a run: met and missed expectations, and the summary in JSON.

use crate::world::World;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::resource::{RequestedState, ServiceState};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The result of one expectation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Description of the expectation.
    pub check: String,
    /// `true` if the expectation was met.
    pub ok: bool,
    /// Description of the actual result.
    #[serde(rename = "got")]
    pub actual: String,
}

impl World {
    /// Compares the final state with the scenario's expectations, and stores the result in `checks`.
    pub(crate) fn check_expectations(&mut self) {
        let expect = self.scenario.expect.clone();
        let running = self.running_nodes_by_service();
        let mut checks = Vec::new();
        let mut check = |description: String, ok: bool, actual: String| {
            checks.push(Check { check: description, ok, actual });
        };
        let state_of_service = |name: &ResourceName| {
            let state_and_node =
                self.service_states.get(name).cloned().unwrap_or((ServiceState::Queued, None));
            self.resource_exists(name).then_some(state_and_node)
        };
        let node_of_service = |name: &ResourceName| state_of_service(name).and_then(|(_, node)| node);
        for (name, expected) in &expect.services {
            let state_and_node = state_of_service(name);
            if let Some(state) = expected.state {
                let actual = state_and_node.as_ref().map(|(state, _)| *state);
                let actual_text = actual.map_or_else(|| "missing".to_owned(), |state| format!("{state:?}"));
                check(format!("service {name} is {state:?}"), actual == Some(state), actual_text);
            }
            if let Some(node) = &expected.node {
                let actual = state_and_node.and_then(|(_, node)| node);
                let expected_value = node.as_deref().unwrap_or("no node");
                check(
                    format!("service {name} on {expected_value}"),
                    actual == *node,
                    node_text(actual.as_ref()),
                );
            }
            if let Some(expected_value) = expected.running {
                let actual = running.contains_key(name);
                check(
                    format!("service {name} running: {expected_value}"),
                    actual == expected_value,
                    actual.to_string(),
                );
            }
        }
        let node_set = |names: &[NodeName]| names.iter().cloned().collect::<BTreeSet<_>>();
        let fenced: BTreeSet<NodeName> = self.fenced.iter().map(|(node, _)| node.clone()).collect();
        if let Some(expected_value) = &expect.fenced {
            check(
                format!("fenced {expected_value:?}"),
                node_set(expected_value) == fenced,
                format!("{fenced:?}"),
            );
        }
        let resets: BTreeSet<NodeName> = self
            .machines
            .iter()
            .filter(|(_, machine)| !machine.resets.is_empty())
            .map(|(node, _)| node.clone())
            .collect();
        if let Some(expected_value) = &expect.watchdog_resets {
            check(
                format!("watchdog resets {expected_value:?}"),
                node_set(expected_value) == resets,
                format!("{resets:?}"),
            );
        }
        if let Some(expected_value) = &expect.maintenance {
            let is_in_maintenance = |node: &&NodeName| {
                self.node_states.get(*node) == Some(&ha_api_types::node::NodeState::Maintenance)
                    || self
                        .spec_of(Kind::Node, node)
                        .is_some_and(|object| object.pointer("/spec/maintenance") == Some(&json!(true)))
            };
            let actual: BTreeSet<NodeName> =
                self.machines.keys().filter(is_in_maintenance).cloned().collect();
            check(
                format!("in maintenance {expected_value:?}"),
                node_set(expected_value) == actual,
                format!("{actual:?}"),
            );
        }
        if let Some(limit) = expect.max_moves {
            let actual = self.moves.len() as u64;
            check(format!("at most {limit} moves"), actual <= limit, actual.to_string());
        }
        for names in &expect.affinity_sets {
            let nodes_of_services: BTreeSet<Option<NodeName>> = names.iter().map(node_of_service).collect();
            let ok = nodes_of_services.len() == 1 && !nodes_of_services.contains(&None);
            check(format!("together {names:?}"), ok, format!("{nodes_of_services:?}"));
        }
        for names in &expect.anti_affinity_sets {
            let nodes_of_services: Vec<Option<NodeName>> = names.iter().map(node_of_service).collect();
            let different: BTreeSet<&NodeName> = nodes_of_services.iter().flatten().collect();
            check(
                format!("apart {names:?}"),
                different.len() == names.len(),
                format!("{nodes_of_services:?}"),
            );
        }
        for (name, nodes) in &expect.on_one_of {
            let actual = node_of_service(name);
            let ok = actual.as_ref().is_some_and(|node| nodes.contains(node));
            check(format!("{name} on one of {nodes:?}"), ok, format!("{actual:?}"));
        }
        if let Some(limit) = expect.max_per_node {
            let mut counts: BTreeMap<&NodeName, u64> = BTreeMap::new();
            for node in running.values().flatten() {
                *counts.entry(node).or_default() += 1;
            }
            let ok = counts.values().all(|count| *count <= limit);
            check(format!("at most {limit} a node"), ok, format!("{counts:?}"));
        }
        if let Some(expected_value) = &expect.notified {
            let actual = self.received_notifications();
            check(format!("notified {expected_value:?}"), actual == expected_value, format!("{actual:?}"));
        }
        if let Some(expected_value) = &expect.refused {
            let requested_actions = self.scenario.requested_actions();
            for text in expected_value.iter().filter(|text| !requested_actions.contains(*text)) {
                check(format!("refused {text:?}"), false, "no step requests it".to_owned());
            }
            let actual = self.refusals();
            let ok = expected_value.iter().all(|text| actual.contains(text));
            check(format!("refused {expected_value:?}"), ok, format!("{actual:?}"));
        }
        self.checks.extend(checks);
    }

    /// Returns `true` if all expectations were met and no invariant was violated.
    pub fn has_passed(&self) -> bool {
        self.violations.is_empty() && self.checks.iter().all(|check| check.ok)
    }

    /// Returns the timeline, one line per event.
    pub fn timeline(&self) -> &[String] {
        &self.timeline
    }

    /// Returns the results of the run as JSON.
    pub fn summary(&self) -> Value {
        let running = self.running_nodes_by_service();
        let seconds = |ms: u64| self.elapsed_ms(ms) as f64 / 1000.0;
        let services: BTreeMap<ResourceName, Value> = self
            .resource_names()
            .into_iter()
            .map(|name| {
                let state_and_node = self.service_states.get(&name).cloned();
                let (state, node) = state_and_node.unwrap_or((ServiceState::Queued, None));
                let value = json!({
                    "state": state, "requested": self.requested_state(&name), "node": node,
                    "running": running.get(&name).cloned().unwrap_or_default(),
                });
                (name, value)
            })
            .collect();
        let nodes: BTreeMap<&NodeName, Value> = self
            .machines
            .iter()
            .map(|(name, machine)| {
                let watchdog = match (machine.watchdog.fires_at, machine.watchdog_expired) {
                    (_, true) => "expired",
                    (Some(_), false) => "armed",
                    (None, false) => "idle",
                };
                let state = self.node_states.get(name).copied().unwrap_or_default();
                let power = if machine.is_powered { "on" } else { "off" };
                (name, json!({"state": state, "power": power, "watchdog": watchdog}))
            })
            .collect();
        let fenced: Vec<Value> =
            self.fenced.iter().map(|(node, at)| json!({"node": node, "at": seconds(*at)})).collect();
        let resets: Vec<Value> = self
            .machines
            .iter()
            .flat_map(|(node, machine)| {
                machine.resets.iter().map(move |at| json!({"node": node, "at": seconds(*at)}))
            })
            .collect();
        let moves: Vec<Value> = self
            .moves
            .iter()
            .map(|service_move| {
                let kind = if service_move.kind == ServiceState::Migrate { "migrate" } else { "relocate" };
                json!({"service": service_move.service, "kind": kind, "from": service_move.from, "to": service_move.to, "at": seconds(service_move.at)})
            })
            .collect();
        let failovers: Vec<Value> = self
            .failovers
            .iter()
            .map(|failover| {
                json!({
                    "service": failover.service, "from": failover.from, "to": failover.to,
                    "lostAt": seconds(failover.lost_at), "runningAt": seconds(failover.running_at),
                })
            })
            .collect();
        let violations: Vec<Value> = self
            .violations
            .iter()
            .map(
                |violation| json!({"at": violation.at as f64 / 1000.0, "invariant": violation.invariant, "detail": violation.detail}),
            )
            .collect();
        json!({
            "services": services, "nodes": nodes, "fenced": fenced, "watchdogResets": resets, "moves": moves,
            "failovers": failovers, "refused": self.refusals(), "violations": violations, "expect": self.checks,
        })
    }

    pub(crate) fn resource_exists(&self, name: &ResourceName) -> bool {
        self.is_stored(Kind::Resource, name)
    }

    fn requested_state(&self, name: &ResourceName) -> RequestedState {
        let object = self.spec_of(Kind::Resource, name);
        let state = object.and_then(|object| object.pointer("/spec/state").cloned());
        state.and_then(|state| serde_json::from_value(state).ok()).unwrap_or_default()
    }
}

fn node_text(node: Option<&NodeName>) -> String {
    node.map_or("no node", NodeName::as_str).to_owned()
}
