//! Tables of conflicts between rules, and a property test that compares the result with a brute-force search.

use super::*;
use ha_api_types::id::NodeName;
use ha_api_types::placement::{Affinity, NodeAffinity, ResourceAffinity};
use proptest::prelude::*;

const NODES: [&str; 3] = ["node1", "node2", "node3"];

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn priorities(nodes: &[&str]) -> NodePriorities {
    let entry = |text: &&str| {
        let (node, priority) = text.split_once(':').unwrap_or((text, "0"));
        (node.into(), priority.parse().unwrap_or(0))
    };
    NodePriorities(nodes.iter().map(entry).collect())
}

fn node_rule(resources: &[&str], nodes: &[&str], strict: bool) -> AffinityRuleSpec {
    let rule = NodeAffinity { resources: names(resources), nodes: priorities(nodes), strict };
    AffinityRuleSpec { node_affinity: Some(rule), ..AffinityRuleSpec::default() }
}

fn resource_rule(affinity: Affinity, resources: &[&str], strict: bool) -> AffinityRuleSpec {
    let rule = ResourceAffinity { resources: names(resources), affinity, strict };
    AffinityRuleSpec { resource_affinity: Some(rule), ..AffinityRuleSpec::default() }
}

fn strict_node_rule(resources: &[&str], nodes: &[&str]) -> AffinityRuleSpec {
    node_rule(resources, nodes, true)
}

fn affinity(resources: &[&str]) -> AffinityRuleSpec {
    resource_rule(Affinity::Positive, resources, true)
}

fn anti_affinity(resources: &[&str]) -> AffinityRuleSpec {
    resource_rule(Affinity::Negative, resources, true)
}

fn declared(rules: &[(&str, AffinityRuleSpec)]) -> RuleInput {
    RuleInput {
        rules: rules.iter().map(|(name, spec)| ((*name).to_owned(), spec.clone())).collect(),
        nodes: NODES.iter().map(|node| (*node).into()).collect(),
        ..RuleInput::default()
    }
}

fn grouped(
    mut declared: RuleInput,
    group: &str,
    nodes: &[&str],
    restricted: bool,
    resources: &[&str],
) -> RuleInput {
    let spec = GroupSpec { nodes: priorities(nodes), restricted, ..GroupSpec::default() };
    declared.groups.insert(group.to_owned(), spec);
    declared.group_of.extend(resources.iter().map(|name| ((*name).into(), group.to_owned())));
    declared
}

/// Checks which rules are not applied, and a part of each message.
fn check(declared: &RuleInput, expected: &[(&str, &str)]) {
    let (_, conflicts) = Rules::compile(declared);
    let conflicting_rules: Vec<&str> = conflicts.iter().map(|conflict| conflict.rule.as_str()).collect();
    let rules: Vec<&str> = expected.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(conflicting_rules, rules, "{conflicts:?}");
    for (conflict, (_, part)) in conflicts.iter().zip(expected) {
        assert!(conflict.message.contains(part), "{:?} lacks {part:?}", conflict.message);
    }
}

#[test]
fn affinity_rule_needs_two_resources() {
    check(&declared(&[("a", affinity(&["1"]))]), &[("a", "at least two")]);
    check(&declared(&[("a", anti_affinity(&["1", "vm:1"]))]), &[("a", "at least two")]);
}

#[test]
fn two_node_affinity_rules_conflict_on_resource() {
    let two = declared(&[
        ("a", strict_node_rule(&["1", "2"], &["node1"])),
        ("b", node_rule(&["vm:1"], &["node2"], false)),
    ]);
    check(&two, &[("a", "Resource 1 is in several node-affinity rules (a and b)"), ("b", "b and a")]);
    let (rules, _) = Rules::compile(&two);
    assert_eq!((rules.node_rule(&"1".into()), rules.node_rule(&"2".into())), (None, None));
    let mut disabled = two;
    disabled.rules.get_mut("b").unwrap().disabled = true;
    check(&disabled, &[]);
}

#[test]
fn anti_affinity_set_cannot_exceed_node_count() {
    check(&declared(&[("a", anti_affinity(&["1", "2", "3"]))]), &[]);
    check(
        &declared(&[("a", anti_affinity(&["1", "2", "3", "4"]))]),
        &[("a", "The 4 services of the rule cannot all run")],
    );
    check(&declared(&[("a", resource_rule(Affinity::Negative, &["1", "2", "3", "4"], false))]), &[]);
}

#[test]
fn anti_affinity_detects_shared_only_node() {
    // Three services and three nodes, but two services share the only node that either may use.
    let narrow = [("a", strict_node_rule(&["1", "2"], &["node1"])), ("b", anti_affinity(&["1", "2", "3"]))];
    check(&declared(&narrow), &[("b", "node1")]);
    let wide = [
        ("a", strict_node_rule(&["1"], &["node1"])),
        ("b", strict_node_rule(&["2"], &["node1", "node2"])),
        ("c", anti_affinity(&["1", "2", "3"])),
    ];
    check(&declared(&wide), &[]);
}

#[test]
fn only_restricted_groups_limit_a_set() {
    let rule = [("a", anti_affinity(&["1", "2"]))];
    check(&grouped(declared(&rule), "g", &["node1"], true, &["1", "2"]), &[("a", "cannot all run")]);
    check(&grouped(declared(&rule), "g", &["node1"], false, &["1", "2"]), &[]);
    check(&grouped(declared(&rule), "g", &["node1"], true, &["1"]), &[]);
    // A node-affinity rule replaces the group.
    let rules = [("a", anti_affinity(&["1", "2"])), ("b", strict_node_rule(&["2"], &["node2"]))];
    check(&grouped(declared(&rules), "g", &["node1"], true, &["1", "2"]), &[]);
}

#[test]
fn contradictions_are_found_after_merging_rules() {
    let rules =
        [("a", affinity(&["1", "2"])), ("b", affinity(&["2", "3"])), ("c", anti_affinity(&["1", "3"]))];
    let conflicts =
        "Resources 1 and 3 have affinity by rule a, b and anti-affinity by rule c, none of which is applied";
    check(&declared(&rules), &[("a", conflicts), ("b", conflicts), ("c", conflicts)]);
    let (in_force, conflicts) = Rules::compile(&declared(&rules));
    assert_eq!(in_force, Rules::default(), "neither side is applied");
    let other_rules: Vec<_> =
        conflicts.iter().map(|conflict| conflict.other_rules.iter().collect::<Vec<_>>()).collect();
    assert_eq!(other_rules, [["b", "c"], ["a", "c"], ["a", "b"]]);
    // A rule without a part in the conflict stays active.
    let unrelated_rules = [
        ("a", affinity(&["1", "2"])),
        ("b", anti_affinity(&["1", "2", "3"])),
        ("c", anti_affinity(&["2", "1"])),
        ("d", affinity(&["3", "4"])),
        ("e", anti_affinity(&["1", "4"])),
    ];
    check(
        &declared(&unrelated_rules),
        &[("a", "rule b"), ("b", "rule b"), ("c", "by rule a and anti-affinity by rule c")],
    );
    let (in_force, _) = Rules::compile(&declared(&unrelated_rules));
    assert_eq!(
        (
            in_force.affinity_rules_of(&"3".into()).count(),
            in_force.anti_affinity_rules_of(&"1".into()).count()
        ),
        (1, 1)
    );
    let soft =
        [("a", resource_rule(Affinity::Positive, &["1", "2"], false)), ("c", anti_affinity(&["1", "2"]))];
    check(&declared(&soft), &[]);
}

#[test]
fn an_affinity_set_uses_the_common_nodes() {
    // Together, 1 and 2 may use only node1, which is also the only node of 3.
    let rules = [
        ("a", affinity(&["1", "2"])),
        ("b", strict_node_rule(&["1"], &["node1"])),
        ("c", strict_node_rule(&["3"], &["node1"])),
        ("d", anti_affinity(&["2", "3"])),
    ];
    check(&declared(&rules), &[("d", "cannot all run on different nodes")]);
}

#[test]
fn affinity_set_conflicts_with_node_rules() {
    let several = [
        ("a", strict_node_rule(&["1"], &["node1"])),
        ("b", strict_node_rule(&["2"], &["node1"])),
        ("c", affinity(&["1", "2"])),
    ];
    check(&declared(&several), &[("c", "several node-affinity rules: a, b")]);
    let levels = [("a", node_rule(&["1"], &["node1:2", "node2:1"], false)), ("c", affinity(&["1", "2"]))];
    check(&declared(&levels), &[("c", "node-affinity rule a has several priorities")]);
    let equal_levels =
        [("a", node_rule(&["1"], &["node1:2", "node2:2"], false)), ("c", affinity(&["1", "2"]))];
    check(&declared(&equal_levels), &[]);
    // Of two rules whose sets merge, the later one is not applied.
    let joined = [
        ("a", strict_node_rule(&["1"], &["node1"])),
        ("b", strict_node_rule(&["3"], &["node1"])),
        ("c", affinity(&["1", "2"])),
        ("d", affinity(&["2", "3"])),
    ];
    check(&declared(&joined), &[("d", "(joined with rule c)")]);
    let groups = grouped(declared(&[("c", affinity(&["1", "2"]))]), "g", &["node1"], true, &["1"]);
    check(&groups, &[]);
    check(&grouped(groups, "h", &["node2"], true, &["2"]), &[("c", "no node is eligible for all")]);
}

#[test]
fn overlapping_sets_are_checked_separately() {
    let mut triangle = declared(&[
        ("a", anti_affinity(&["1", "2"])),
        ("b", anti_affinity(&["2", "3"])),
        ("c", anti_affinity(&["1", "3"])),
    ]);
    triangle.nodes.remove("node3");
    check(&triangle, &[]);
}

#[test]
fn too_few_nodes_are_no_conflict_while_nodes_may_join() {
    let mut young = declared(&[("a", anti_affinity(&["1", "2", "3", "4"]))]);
    young.nodes_may_join = true;
    check(&young, &[]);
    young.known_short_of_nodes.insert("a".to_owned());
    check(&young, &[("a", "cannot all run")]);
    young.nodes.clear();
    check(&young, &[]);
}

#[test]
fn overlapping_affinity_rules_form_one_set() {
    let rules = [("a", affinity(&["1", "2"])), ("b", affinity(&["3", "4"])), ("c", affinity(&["2", "3"]))];
    let (rules, _) = Rules::compile(&declared(&rules));
    assert_eq!(
        rules.strict_affinity_partners(&"1".into()).into_iter().collect::<Vec<_>>(),
        names(&["2", "3", "4"])
    );
}

/// Returns `true` if some placement of all services satisfies these rules, by trying all placements.
fn satisfiable(declared: &RuleInput, rules: &[&AffinityRuleSpec], services: &[String]) -> bool {
    let nodes: Vec<&NodeName> = declared.nodes.iter().collect();
    let combinations = nodes.len().pow(u32::try_from(services.len()).unwrap());
    (0..combinations).any(|combination| {
        let place = |service: &str| {
            let index = services.iter().position(|other| other == service).unwrap();
            nodes[combination / nodes.len().pow(u32::try_from(index).unwrap()) % nodes.len()]
        };
        let group_holds = services.iter().all(|service| {
            let ruled = rules
                .iter()
                .any(|rule| rule.node_affinity.as_ref().is_some_and(|rule| rule.resources.contains(service)));
            let group = declared.group_of.get(service.as_str()).and_then(|group| declared.groups.get(group));
            ruled || group.is_none_or(|group| !group.restricted || group.nodes.0.contains_key(place(service)))
        });
        group_holds
            && rules.iter().all(|rule| {
                let by_node = rule.node_affinity.as_ref().is_none_or(|rule| {
                    !rule.strict
                        || rule.resources.iter().all(|resource| rule.nodes.0.contains_key(place(resource)))
                });
                let by_resource = rule.resource_affinity.as_ref().is_none_or(|rule| {
                    let places: BTreeSet<_> = rule.resources.iter().map(|resource| place(resource)).collect();
                    match (rule.strict, rule.affinity) {
                        (false, _) => true,
                        (true, Affinity::Positive) => places.len() == 1,
                        (true, Affinity::Negative) => places.len() == rule.resources.len(),
                    }
                });
                by_node && by_resource
            })
    })
}

prop_compose! {
    fn subset(names: &'static [&'static str], min_count: usize)(list in proptest::sample::subsequence(names, min_count..=names.len())) -> Vec<&'static str> {
        list
    }
}

const SERVICES: &[&str] = &["1", "2", "3", "4", "5"];

fn any_rule() -> impl Strategy<Value = AffinityRuleSpec> {
    prop_oneof![
        (subset(SERVICES, 1), subset(&NODES, 1), any::<bool>())
            .prop_map(|(services, nodes, strict)| node_rule(&services, &nodes, strict)),
        subset(SERVICES, 2).prop_map(|services| affinity(&services)),
        subset(SERVICES, 2).prop_map(|services| anti_affinity(&services)),
        subset(SERVICES, 2).prop_map(|services| anti_affinity(&services)),
    ]
}

proptest! {
    /// A resource rule must be active if and only if it can be satisfied together with the node rules and the active
    /// Positive rules. All active Positive rules must be able to hold at the same time.
    #[test]
    fn rule_conflicts_equal_brute_force(
        rules in proptest::collection::vec(any_rule(), 1..5),
        groups in proptest::collection::btree_map(0..5_usize, subset(&NODES, 1), 0..3),
        nodes in 1..=3_usize,
    ) {
        let mut all = RuleInput {
            rules: rules.into_iter().enumerate().map(|(index, rule)| (format!("r{index}"), rule)).collect(),
            nodes: NODES[..nodes].iter().map(|node| (*node).into()).collect(),
            ..RuleInput::default()
        };
        for (index, members) in groups {
            all = grouped(all, &format!("g{index}"), &members, true, &[SERVICES[index]]);
        }
        let services = names(SERVICES);
        // Skips cases in which node rules alone leave a service without a node; resource rules cannot change that.
        let (_, conflicts) = Rules::compile(&all);
        let refused: BTreeMap<&str, &RuleConflict> =
            conflicts.iter().map(|conflict| (conflict.rule.as_str(), conflict)).collect();
        let in_force = |name: &String| !refused.contains_key(name.as_str());
        let nodes_alone: Vec<&AffinityRuleSpec> = all
            .rules
            .iter()
            .filter(|(name, spec)| in_force(name) && spec.node_affinity.is_some())
            .map(|(_, spec)| spec)
            .collect();
        prop_assume!(satisfiable(&all, &nodes_alone, &services));
        let mut standing = nodes_alone;
        for affinity in [Affinity::Positive, Affinity::Negative] {
            for (name, spec) in &all.rules {
                if spec.resource_affinity.as_ref().is_none_or(|rule| rule.affinity != affinity) {
                    continue;
                }
                let mut extended = standing.clone();
                extended.push(spec);
                match refused.get(name.as_str()) {
                    None => {
                        prop_assert!(satisfiable(&all, &extended, &services), "{name} is applied: {conflicts:?}");
                        if affinity == Affinity::Positive {
                            standing = extended;
                        }
                    }
                    // Several node rules or priorities are a conflict by definition, even if a common node exists.
                    Some(conflict) if conflict.message.contains("node-affinity rule") => {}
                    // Rules of such a conflict have no precedence; they cannot all hold at the same time.
                    Some(conflict) if conflict.message.contains("and anti-affinity by rule") => {
                        let mut conflicting = standing.clone();
                        conflicting.push(spec);
                        conflicting.extend(conflict.other_rules.iter().filter_map(|name| all.rules.get(name)));
                        prop_assert!(!satisfiable(&all, &conflicting, &services), "{name} is refused: {conflict:?}");
                    }
                    Some(conflict) => {
                        prop_assert!(!satisfiable(&all, &extended, &services), "{name} is refused: {conflict:?}");
                    }
                }
            }
        }
    }
}
