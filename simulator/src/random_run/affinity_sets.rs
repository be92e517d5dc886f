//! The check of services that a strict rule keeps together, without the scheduler: the sets, and whether one node could run them.

use super::progress::stop_fails;
use crate::world::World;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::placement::{Affinity, AffinityRule};
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// Returns a sentence for each set of running services that is split against active strict Positive rules, although
    /// one node could run the whole set now.
    pub(super) fn separation_problems(
        &self,
        rules: &[AffinityRule],
        running: &BTreeMap<ResourceName, Vec<NodeName>>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        for set in affinity_sets(rules) {
            let members: Vec<(ResourceName, Resource)> =
                set.into_iter().filter_map(|name| self.settled_member(&name)).collect();
            let nodes: BTreeSet<&NodeName> =
                members.iter().filter_map(|(name, _)| running.get(name)).flatten().collect();
            if nodes.len() < 2 {
                continue;
            }
            if let Some(node) =
                self.machines.keys().find(|node| self.accepts_all(node, &members, rules, running))
            {
                let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
                problems.push(format!(
                    "{} must be together, are on {nodes:?}, and could all run on {node}",
                    names.join(", ")
                ));
            }
        }
        problems
    }

    /// Returns a member if it runs as desired and its driver can stop it.
    fn settled_member(&self, name: &ResourceName) -> Option<(ResourceName, Resource)> {
        let resource: Resource = self.read_object(Kind::Resource, name)?;
        let status: ResourceStatus = self.status_of(Kind::Resource, name)?;
        (resource.spec.state == RequestedState::Started
            && status.state == ServiceState::Started
            && !stop_fails(&resource))
        .then(|| (name.to_owned(), resource))
    }

    fn accepts_all(
        &self,
        node: &NodeName,
        members: &[(ResourceName, Resource)],
        rules: &[AffinityRule],
        running: &BTreeMap<ResourceName, Vec<NodeName>>,
    ) -> bool {
        let is_member = |name: &ResourceName| members.iter().any(|(member, _)| member == name);
        let other_services: Vec<ResourceName> = running
            .iter()
            .filter(|(name, nodes)| !is_member(name) && nodes.iter().any(|host| host == node))
            .map(|(name, _)| name.clone())
            .collect();
        let all_may_start = members.iter().all(|(name, resource)| {
            let mut kept_away = World::separation_rules(rules, name);
            // If a start fails on the node, the set cannot be brought together there either.
            let can_start = resource
                .spec
                .driver
                .simulated
                .as_ref()
                .is_none_or(|simulated| !simulated.fail_on.iter().any(|failing| failing == node));
            can_start && !kept_away.any(|(_, other)| other_services.contains(&other))
        });
        all_may_start && self.unit_fits(node, members, rules, &other_services)
    }
}

/// Returns the set of services that strict Positive rules keep with a service, including itself. Rules also join through a
/// resource that does not exist (yet).
pub(super) fn affinity_set_of(rules: &[AffinityRule], name: &ResourceName) -> BTreeSet<ResourceName> {
    let set = affinity_sets(rules).into_iter().find(|set| set.contains(name));
    set.unwrap_or_else(|| BTreeSet::from([name.to_owned()]))
}

/// Returns the sets of services that strict Positive rules keep together; rules that share a service form one set.
fn affinity_sets(rules: &[AffinityRule]) -> Vec<BTreeSet<ResourceName>> {
    let mut sets: Vec<BTreeSet<ResourceName>> = Vec::new();
    for rule in rules {
        let Some(affinity_spec) = &rule.spec.resource_affinity else { continue };
        if !affinity_spec.strict || affinity_spec.affinity != Affinity::Positive {
            continue;
        }
        let mut merged: BTreeSet<ResourceName> = affinity_spec
            .resources
            .iter()
            .map(|name| ha_api_types::names::without_type(name).into())
            .collect();
        sets.retain(|set| {
            let separate = set.is_disjoint(&merged);
            if !separate {
                merged.extend(set.iter().cloned());
            }
            separate
        });
        sets.push(merged);
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use serde_json::{Value, json};
    use std::path::Path;

    /// Places two services on two nodes with this much memory each, adds a rule that keeps them on one node, and
    /// returns the problems.
    fn separation_with_memory(memory: &str) -> Vec<String> {
        let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "hactl.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        let service = |name: &str| {
            object(
                "Resource",
                name,
                json!({"driver": {"simulated": {"type": "vm"}}, "requests": {"memory": "3Gi"}}),
            )
        };
        let scenario = json!({
            "duration": "1m",
            "nodes": [{"name": "node1", "capacity": {"memory": memory}}, {"name": "node2", "capacity": {"memory": memory}}],
            "objects": [service("a"), service("b")],
            "place": {"a": {"node": "node1", "running": true}, "b": {"node": "node2", "running": true}},
        });
        let scenario = Scenario::parse("a test", &scenario.to_string(), Path::new(".")).expect("a scenario");
        let mut world = World::new(scenario).expect("a world");
        world.run();
        assert_eq!(world.violations(), [], "all is well before");
        let rule = object(
            "AffinityRule",
            "together",
            json!({"resourceAffinity": {"resources": ["a", "b"], "affinity": "Positive", "strict": true}}),
        );
        let rules = [serde_json::from_value(rule).expect("a rule")];
        world.separation_problems(&rules, &world.running_nodes_by_service())
    }

    #[test]
    fn split_affinity_set_is_detected_if_avoidable() {
        assert_eq!(
            separation_with_memory("8Gi"),
            ["a, b must be together, are on {\"node1\", \"node2\"}, and could all run on node1"]
        );
        assert_eq!(separation_with_memory("4Gi"), [""; 0], "no node has room for both");
    }

    #[test]
    fn affinity_rules_sharing_a_service_merge() {
        let rule = |names: [&str; 2]| {
            let affinity_spec = json!({"resources": names, "affinity": "Positive", "strict": true});
            serde_json::from_value(json!({"apiVersion": "hactl.io/v1", "kind": "AffinityRule", "metadata": {"name": names[0]}, "spec": {"resourceAffinity": affinity_spec}})).expect("a rule")
        };
        let rules = [rule(["a", "b"]), rule(["c", "d"]), rule(["d", "a"])];
        let sets = affinity_sets(&rules);
        let expected: BTreeSet<ResourceName> = ["a", "b", "c", "d"].map(ResourceName::from).into();
        assert_eq!(sets, std::slice::from_ref(&expected));
        assert_eq!(affinity_set_of(&rules, &"c".into()), expected);
        assert_eq!(affinity_set_of(&rules, &"e".into()), BTreeSet::from(["e".into()]), "no rule names it");
    }
}
