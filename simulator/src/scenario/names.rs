//! The check of references: every node, resource and text that a scenario refers to must be defined.

use super::reader::{Reader, one_of};
use super::step::{Doing, Moment};
use super::{Power, Scenario};
use crate::scenario::action::{Action, Command};
use crate::scenario::condition::Condition;
use ha_api_types::id::{NodeName, ResourceName};
use serde_json::Value;
use std::borrow::Borrow;
use std::collections::BTreeSet;

/// The names that a scenario defines.
struct Known {
    nodes: BTreeSet<NodeName>,
    placed: BTreeSet<ResourceName>,
    later: BTreeSet<ResourceName>,
    resources: BTreeSet<ResourceName>,
}

fn resources_of(objects: &[Value]) -> BTreeSet<ResourceName> {
    let name = |object: &Value| {
        (object["kind"] == "Resource").then(|| object["metadata"]["name"].as_str().map(ResourceName::from))?
    };
    objects.iter().filter_map(name).collect()
}

/// Reports every reference to an undefined name.
pub(super) fn check(reader: &mut Reader<'_>, scenario: &Scenario) {
    let known = known(scenario);
    if scenario.nodes.is_empty() {
        reader.wrong("nodes", "at least one node is required");
    }
    check_place(reader, scenario, &known);
    for (at, node) in scenario.store.iter().enumerate() {
        node_is_known(reader, &known, node, &format!("store.on[{at}]"));
    }
    for (at, step) in scenario.steps.iter().enumerate() {
        if let Moment::When { condition, .. } = &step.moment {
            check_condition(reader, &known, condition, &format!("steps[{at}].when"));
        }
        for condition in &step.only_if {
            check_condition(reader, &known, condition, &format!("steps[{at}].if"));
        }
        if let Some((_, condition)) = &step.check {
            check_condition(reader, &known, condition, &format!("steps[{at}].check"));
        }
        for (number, doing) in step.doings.iter().enumerate() {
            if let Doing::Verb(_, action) = doing {
                check_action(reader, &known, action, &format!("steps[{at}].do[{number}]"));
            }
        }
    }
    check_expectations(reader, scenario, &known);
}

fn known(scenario: &Scenario) -> Known {
    let placed = resources_of(&scenario.objects);
    let later = resources_of(&scenario.later);
    let mut resources: BTreeSet<ResourceName> = placed.union(&later).cloned().collect();
    for doing in scenario.steps.iter().flat_map(|step| &step.doings) {
        match doing {
            Doing::Verb(..) => {}
            Doing::Apply(object) => resources.extend(resources_of(std::slice::from_ref(object))),
        }
    }
    let nodes = scenario.nodes.iter().map(|machine| machine.name.clone()).collect();
    Known { nodes, placed, later, resources }
}

impl Scenario {
    /// Returns the texts of all actions and applies in the steps, in the form of `expect.refused`.
    pub(crate) fn asked(&self) -> BTreeSet<String> {
        let doings = self.steps.iter().flat_map(|step| &step.doings);
        let text = |doing: &Doing| match doing {
            Doing::Verb(text, _) => text.clone(),
            Doing::Apply(object) => {
                format!("apply {}", object["metadata"]["name"].as_str().unwrap_or_default())
            }
        };
        doings.map(text).collect()
    }
}

fn is_known<N: Ord + Borrow<str>>(
    reader: &mut Reader<'_>,
    known: &BTreeSet<N>,
    what: &str,
    name: &str,
    path: &str,
) {
    if !known.contains(name) {
        let accepted = one_of(name, known.iter().map(Borrow::borrow));
        reader.wrong(path, format!("{what} {name:?} not found, {accepted}"));
    }
}

fn node_is_known(reader: &mut Reader<'_>, known: &Known, name: &str, path: &str) {
    is_known(reader, &known.nodes, "node", name, path);
}

fn check_place(reader: &mut Reader<'_>, scenario: &Scenario, known: &Known) {
    for (name, place) in &scenario.place {
        let path = format!("place.{name}");
        is_known(reader, &known.placed, "resource under `objects`", name, &path);
        if !place.node.is_empty() {
            node_is_known(reader, known, &place.node, &format!("{path}.node"));
        }
        if let Some(target) = &place.target {
            node_is_known(reader, known, target, &format!("{path}.target"));
        }
        let is_off = |machine: &&super::Machine| machine.name == place.node && machine.power == Power::Off;
        if place.running && scenario.nodes.iter().any(|machine| is_off(&machine)) {
            reader.wrong(
                &format!("{path}.running"),
                format!("no service can run on {}, which is powered off", place.node),
            );
        }
    }
}

fn check_condition(reader: &mut Reader<'_>, known: &Known, condition: &Condition, path: &str) {
    if let Some(resource) = condition.resource() {
        is_known(reader, &known.resources, "resource", resource, path);
    }
    if let Some(node) = condition.node() {
        node_is_known(reader, known, node, path);
    }
}

fn check_action(reader: &mut Reader<'_>, known: &Known, action: &Action, path: &str) {
    let (machine, service) = action.objects();
    if let Some(node) = machine.filter(|node| *node != "leader") {
        node_is_known(reader, known, node, path);
    }
    if let Some(node) = action.other_machine() {
        node_is_known(reader, known, node, path);
    }
    if let Some(resource) = service {
        is_known(reader, &known.resources, "resource", resource, path);
    }
    if let Action::Command(Command::Add { resource, .. }) = action {
        is_known(reader, &known.later, "resource under `later`", resource, path);
    }
}

fn check_expectations(reader: &mut Reader<'_>, scenario: &Scenario, known: &Known) {
    let expect = &scenario.expect;
    for (name, service) in &expect.services {
        let path = format!("expect.services.{name}");
        is_known(reader, &known.resources, "resource", name, &path);
        if let Some(Some(node)) = &service.node {
            node_is_known(reader, known, node, &format!("{path}.node"));
        }
    }
    let lists = [
        ("fenced", &expect.fenced),
        ("watchdogResets", &expect.watchdog_resets),
        ("maintenance", &expect.maintenance),
    ];
    for (at, node) in expect.broken.iter().enumerate() {
        node_is_known(reader, known, node, &format!("expect.broken[{at}]"));
    }
    for (key, nodes) in lists {
        for (at, node) in nodes.iter().flatten().enumerate() {
            node_is_known(reader, known, node, &format!("expect.{key}[{at}]"));
        }
    }
    for (key, sets) in [("together", &expect.together), ("apart", &expect.apart)] {
        for (at, set) in sets.iter().enumerate() {
            for (number, name) in set.iter().enumerate() {
                let path = format!("expect.{key}[{at}][{number}]");
                is_known(reader, &known.resources, "resource", name, &path);
            }
        }
    }
    for (name, nodes) in &expect.on_one_of {
        let path = format!("expect.onOneOf.{name}");
        is_known(reader, &known.resources, "resource", name, &path);
        for (at, node) in nodes.iter().enumerate() {
            node_is_known(reader, known, node, &format!("{path}[{at}]"));
        }
    }
}
