//! The check of references: every node, resource and text that a scenario refers to must be defined.

use super::reader::{Reader, suggested_names};
use super::step::{Moment, StepCommand};
use super::{Power, Scenario};
use crate::scenario::action::{Action, Command};
use crate::scenario::condition::Condition;
use ha_api_types::id::{NodeName, ResourceName};
use serde_json::Value;
use std::borrow::Borrow;
use std::collections::BTreeSet;

/// The names that a scenario defines.
struct KnownNames {
    nodes: BTreeSet<NodeName>,
    placed: BTreeSet<ResourceName>,
    later: BTreeSet<ResourceName>,
    resources: BTreeSet<ResourceName>,
}

fn resource_names_in(objects: &[Value]) -> BTreeSet<ResourceName> {
    let name = |object: &Value| {
        (object["kind"] == "Resource").then(|| object["metadata"]["name"].as_str().map(ResourceName::from))?
    };
    objects.iter().filter_map(name).collect()
}

/// Reports every reference to an undefined name.
pub(super) fn check_names(reader: &mut Reader<'_>, scenario: &Scenario) {
    let names = known_names(scenario);
    if scenario.nodes.is_empty() {
        reader.add_problem("nodes", "at least one node is required");
    }
    check_place(reader, scenario, &names);
    for (index, node) in scenario.store.iter().enumerate() {
        require_known_node(reader, &names, node, &format!("store.on[{index}]"));
    }
    for (index, step) in scenario.steps.iter().enumerate() {
        if let Moment::When { condition, .. } = &step.moment {
            check_condition(reader, &names, condition, &format!("steps[{index}].when"));
        }
        for condition in &step.only_if {
            check_condition(reader, &names, condition, &format!("steps[{index}].if"));
        }
        if let Some((_, condition)) = &step.check {
            check_condition(reader, &names, condition, &format!("steps[{index}].check"));
        }
        for (position, command) in step.commands.iter().enumerate() {
            if let StepCommand::Verb(_, action) = command {
                check_action(reader, &names, action, &format!("steps[{index}].do[{position}]"));
            }
        }
    }
    check_expectations(reader, scenario, &names);
}

fn known_names(scenario: &Scenario) -> KnownNames {
    let placed = resource_names_in(&scenario.objects);
    let later = resource_names_in(&scenario.later);
    let mut resources: BTreeSet<ResourceName> = placed.union(&later).cloned().collect();
    for command in scenario.steps.iter().flat_map(|step| &step.commands) {
        match command {
            StepCommand::Verb(..) => {}
            StepCommand::Apply(object) => resources.extend(resource_names_in(std::slice::from_ref(object))),
            StepCommand::Write(values) => {
                resources.extend(
                    values
                        .values()
                        .flatten()
                        .flat_map(|object| resource_names_in(std::slice::from_ref(object))),
                );
            }
        }
    }
    let nodes = scenario.nodes.iter().map(|machine| machine.name.clone()).collect();
    KnownNames { nodes, placed, later, resources }
}

impl Scenario {
    /// Returns the texts of all actions and applies in the steps, in the form of `expect.refused`.
    pub(crate) fn requested_actions(&self) -> BTreeSet<String> {
        let commands = self.steps.iter().flat_map(|step| &step.commands);
        let text = |command: &StepCommand| match command {
            StepCommand::Verb(text, _) => Some(text.clone()),
            StepCommand::Apply(object) => {
                Some(format!("apply {}", object["metadata"]["name"].as_str().unwrap_or_default()))
            }
            StepCommand::Write(_) => None,
        };
        commands.filter_map(text).collect()
    }
}

fn require_known<N: Ord + Borrow<str>>(
    reader: &mut Reader<'_>,
    names: &BTreeSet<N>,
    object_kind: &str,
    name: &str,
    path: &str,
) {
    if !names.contains(name) {
        let accepted = suggested_names(name, names.iter().map(Borrow::borrow));
        reader.add_problem(path, format!("{object_kind} {name:?} not found, {accepted}"));
    }
}

fn require_known_node(reader: &mut Reader<'_>, names: &KnownNames, name: &str, path: &str) {
    require_known(reader, &names.nodes, "node", name, path);
}

fn check_place(reader: &mut Reader<'_>, scenario: &Scenario, names: &KnownNames) {
    for (name, initial_placement) in &scenario.initial_placements {
        let path = format!("place.{name}");
        require_known(reader, &names.placed, "resource under `objects`", name, &path);
        if !initial_placement.node.is_empty() {
            require_known_node(reader, names, &initial_placement.node, &format!("{path}.node"));
        }
        if let Some(target) = &initial_placement.target {
            require_known_node(reader, names, target, &format!("{path}.target"));
        }
        let is_off =
            |machine: &&super::Machine| machine.name == initial_placement.node && machine.power == Power::Off;
        if initial_placement.running && scenario.nodes.iter().any(|machine| is_off(&machine)) {
            reader.add_problem(
                &format!("{path}.running"),
                format!("no service can run on {}, which is powered off", initial_placement.node),
            );
        }
    }
}

fn check_condition(reader: &mut Reader<'_>, names: &KnownNames, condition: &Condition, path: &str) {
    if let Some(resource) = condition.resource() {
        require_known(reader, &names.resources, "resource", resource, path);
    }
    if let Some(node) = condition.node() {
        require_known_node(reader, names, node, path);
    }
}

fn check_action(reader: &mut Reader<'_>, names: &KnownNames, action: &Action, path: &str) {
    let (machine, service) = action.node_and_resource();
    for node in machine.into_iter().chain(action.other_end_node()).filter(|node| *node != "leader") {
        require_known_node(reader, names, node, path);
    }
    if let Some(resource) = service {
        require_known(reader, &names.resources, "resource", resource, path);
    }
    if let Action::Command(Command::Add { resource, .. }) = action {
        require_known(reader, &names.later, "resource under `later`", resource, path);
    }
}

fn check_expectations(reader: &mut Reader<'_>, scenario: &Scenario, names: &KnownNames) {
    let expect = &scenario.expect;
    for (name, service) in &expect.services {
        let path = format!("expect.services.{name}");
        require_known(reader, &names.resources, "resource", name, &path);
        if let Some(Some(node)) = &service.node {
            require_known_node(reader, names, node, &format!("{path}.node"));
        }
    }
    let lists = [
        ("fenced", &expect.fenced),
        ("watchdogResets", &expect.watchdog_resets),
        ("maintenance", &expect.maintenance),
    ];
    for (index, node) in expect.broken.iter().enumerate() {
        require_known_node(reader, names, node, &format!("expect.broken[{index}]"));
    }
    for (key, nodes) in lists {
        for (index, node) in nodes.iter().flatten().enumerate() {
            require_known_node(reader, names, node, &format!("expect.{key}[{index}]"));
        }
    }
    for (key, sets) in [("together", &expect.affinity_sets), ("apart", &expect.anti_affinity_sets)] {
        for (index, set) in sets.iter().enumerate() {
            for (position, name) in set.iter().enumerate() {
                let path = format!("expect.{key}[{index}][{position}]");
                require_known(reader, &names.resources, "resource", name, &path);
            }
        }
    }
    for (name, nodes) in &expect.on_one_of {
        let path = format!("expect.onOneOf.{name}");
        require_known(reader, &names.resources, "resource", name, &path);
        for (index, node) in nodes.iter().enumerate() {
            require_known_node(reader, names, node, &format!("{path}[{index}]"));
        }
    }
}
