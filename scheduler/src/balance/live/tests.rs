//! Tests of the model of the live cluster, and invariants of its plans.

mod copies;

use super::{ANTI_AFFINITY_TAG_PREFIX, cluster, drained_nodes};
use crate::balance::model::{Cluster, LOAD_UNIT, Role, Status, Template};
use crate::balance::problem::{Placement, Problem, Settings};
use crate::balance::search::{Goal, search};
use crate::balance::state::State;
use crate::balance::text;
use crate::balance::time_limit::TimeLimit;
use crate::rules::{RuleInput, Rules};
use crate::services::ServiceGuard;
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::placement::{
    Affinity, AffinityRuleSpec, GroupSpec, NodeAffinity, NodePriorities, ResourceAffinity,
};
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::reason::Reason;
use ha_api_types::usage::Usage;
use ha_api_types::view::{NodeUsage, ResourceUsage, UsageOverview};
use std::collections::BTreeSet;

#[expect(clippy::unnecessary_wraps, reason = "compared with amounts that may not be known")]
fn gib(count: i128) -> Option<Quantity> {
    Some(Quantity::from_units(count << 30))
}

#[expect(clippy::unnecessary_wraps, reason = "compared with amounts that may not be known")]
fn cores(milli: i128) -> Option<Quantity> {
    Some(Quantity::from_milli(milli))
}

fn names<N: Ord + for<'n> From<&'n str>>(names: &[&str]) -> BTreeSet<N> {
    names.iter().copied().map(N::from).collect()
}

/// Returns a view of three nodes with 4 cores, 16 GiB and a storage pool.
fn view(services: &[(&str, &str)]) -> View {
    let node = || NodeFacts {
        capacity: Amounts { cpu: cores(4000), memory: gib(16), disk: gib(100) },
        storage_pools: names(&["pool"]),
        ..NodeFacts::default()
    };
    let mut view = View::default();
    view.settings.exclusion_tags = vec!["only".to_owned()];
    view.nodes = ["n1", "n2", "n3"].map(|name| (name.into(), node())).into();
    view.services = services.iter().map(|(name, node)| ((*name).into(), service(node))).collect();
    view
}

/// Returns a running service of half a core and 2 GiB.
fn service(node: &str) -> ServiceFacts {
    ServiceFacts {
        node: Some(node.into()),
        used_nodes: names(&[node]),
        driver: Some("exec".to_owned()),
        requests: Amounts { cpu: cores(500), memory: gib(2), disk: None },
        is_desired: true,
        movable: true,
        ..ServiceFacts::default()
    }
}

fn with_rules(mut view: View, rules: &[(&str, AffinityRuleSpec)]) -> View {
    let declared = RuleInput {
        rules: rules.iter().map(|(name, rule)| ((*name).to_owned(), rule.clone())).collect(),
        nodes: view.nodes.keys().cloned().collect(),
        ..RuleInput::default()
    };
    let (rules, conflicts) = Rules::compile(&declared);
    assert_eq!(conflicts, Vec::new());
    view.rules = rules;
    view
}

fn resource_rule(resources: &[&str], affinity: Affinity, strict: bool) -> AffinityRuleSpec {
    AffinityRuleSpec {
        resource_affinity: Some(ResourceAffinity {
            resources: resources.iter().map(|name| (*name).to_owned()).collect(),
            affinity,
            strict,
        }),
        ..AffinityRuleSpec::default()
    }
}

fn live(view: &View) -> Cluster {
    cluster(view, &UsageOverview::default())
}

fn problem(view: &View) -> Problem {
    let settings = Settings { drained: drained_nodes(view), ..Settings::default() };
    Problem::new(&live(view), 0, &settings)
}

/// Checks the nodes to which a service may move in one step.
#[track_caller]
fn check(view: &View, service: &str, expected: &[&str]) {
    let cluster = live(view);
    let problem = problem(view);
    let problem_service = problem
        .services
        .iter()
        .position(|problem_service| {
            problem_service.instances().any(|instance| cluster.instances[instance].name == service)
        })
        .expect("the service");
    let from = problem.start_placements[problem_service];
    let mut state = State::new(&problem, &problem.start_placements);
    let mut destinations = Vec::new();
    for (problem_node, node) in
        problem.nodes.iter().map(|problem_node| &cluster.nodes[problem_node.cluster_node].name).enumerate()
    {
        let to = match from.secondary {
            Some(secondary) if secondary == problem_node => {
                Placement { primary: problem_node, secondary: Some(from.primary) }
            }
            Some(_) | None => Placement { primary: problem_node, ..from },
        };
        if crate::balance::moves::execute(&mut state, problem_service, to).is_some() {
            destinations.push(node.as_str());
            state.restore(problem_service, from);
        }
    }
    assert_eq!(destinations, expected, "{service}");
}

#[test]
fn balance_amounts_equal_scheduler_amounts() {
    let mut view = view(&[("a", "n1"), ("b", "n1"), ("c", "n1")]);
    view.settings.overcommit = 1.5;
    let n1 = view.nodes.get_mut("n1").unwrap();
    n1.reserved = Amounts { cpu: cores(250), memory: gib(1), disk: gib(10) };
    view.services.get_mut(&"b".into()).unwrap().used_nodes = names(&["n1", "n2"]);
    stop(&mut view, "c");
    view.services.get_mut(&"a".into()).unwrap().requests.disk = gib(5);
    let cluster = live(&view);
    let sizes = |index: usize| {
        let node = &cluster.nodes[index];
        (node.memory_total, node.memory_own, node.memory_free, node.disk_total, node.disk_free)
    };
    assert_eq!(
        sizes(0),
        (24 * 1024, 1024, 24 * 1024 - 1024 - 4096, 150 * 1024, 150 * 1024 - 10 * 1024 - 5 * 1024)
    );
    assert_eq!(sizes(1), (24 * 1024, 0, 22 * 1024, 150 * 1024, 150 * 1024));
    let cpus = |index: usize| (cluster.nodes[index].cpus, cluster.nodes[index].cpus_own);
    assert_eq!((cpus(0), cpus(1), cpus(2)), ((4000, 250), (4000, 500), (4000, 0)));
    let problem = problem(&view);
    assert_eq!(problem.nodes[0].memory_base, 23 * 1024);
    assert_eq!(problem.nodes[0].disk_base, 140 * 1024);
    assert_eq!(problem.nodes[0].vcpus_max, 16_000);
    let state = State::new(&problem, &problem.start_placements);
    assert!((state.score() - crate::balance::score::score(&problem, &problem.start_placements)).abs() < 1e-9);
}

#[test]
fn a_node_of_unknown_capacity_is_not_limited() {
    let mut view = view(&[("a", "n1"), ("b", "n1")]);
    for node in view.nodes.values_mut() {
        node.capacity = Amounts::default();
    }
    let cluster = live(&view);
    let node = &cluster.nodes[1];
    assert_eq!((node.cpus, node.memory_total, node.disk_total), (1001, 4097, 1));
    check(&view, "a", &["n2", "n3"]);
}

#[test]
fn status_and_template_follow_state_and_storage() {
    let check = |change: fn(&mut ServiceFacts), expected: (Status, Template, Option<usize>)| {
        let mut view = view(&[("a", "n2")]);
        change(&mut view.services.get_mut(&"a".into()).unwrap());
        let cluster = live(&view);
        let instance = &cluster.instances[0];
        assert_eq!((instance.status, instance.template, instance.secondary), expected);
    };
    check(|_| {}, (Status::Running, Template::Diskless, None));
    check(|a| a.storage_pool = Some("pool".to_owned()), (Status::Running, Template::External, None));
    check(|a| a.storage_nodes = Some(names(&["n2"])), (Status::Running, Template::Plain, None));
    check(|a| a.storage_nodes = Some(names(&["n1", "n2"])), (Status::Running, Template::Drbd, Some(0)));
    let not_running = |a: &mut ServiceFacts| a.used_nodes = BTreeSet::new();
    check(not_running, (Status::ErrorDown, Template::Diskless, None));
    check(
        |a| (a.used_nodes, a.is_desired, a.stopped) = (BTreeSet::new(), false, true),
        (Status::AdminDown, Template::Diskless, None),
    );
    check(
        |a| (a.used_nodes, a.is_desired) = (BTreeSet::new(), false),
        (Status::AdminOffline, Template::Diskless, None),
    );
}

fn a(view: &mut View) -> ServiceGuard<'_> {
    view.services.get_mut(&"a".into()).unwrap()
}

fn stop(view: &mut View, name: &str) {
    let mut facts = view.services.get_mut(&name.into()).unwrap();
    (facts.used_nodes, facts.stopped, facts.is_desired) = (BTreeSet::new(), true, false);
}

fn n3(view: &mut View) -> &mut NodeFacts {
    view.nodes.get_mut("n3").unwrap()
}

#[test]
fn a_service_moves_only_to_nodes_that_the_scheduler_allows() {
    let base = || view(&[("a", "n1"), ("b", "n2")]);
    let view_with = |change: fn(&mut View)| {
        let mut view = base();
        change(&mut view);
        view
    };
    let member = |view: &mut View, nodes: &[(&str, i64)], restricted: bool| {
        let nodes =
            NodePriorities(nodes.iter().map(|(name, priority)| ((*name).into(), *priority)).collect());
        view.groups.insert("g".to_owned(), GroupSpec { nodes, restricted, ..GroupSpec::default() });
        a(view).group = Some("g".to_owned());
    };
    check(&base(), "a", &["n2", "n3"]);
    check(&view_with(|view| n3(view).online = Err(Reason::HeartbeatMissed)), "a", &["n2"]);
    check(&view_with(|view| n3(view).maintenance = true), "a", &["n2"]);
    check(&view_with(|view| n3(view).schedulable = false), "a", &["n2"]);
    check(&view_with(|view| n3(view).capacity.memory = gib(1)), "a", &["n2"]);
    check(&view_with(|view| n3(view).drivers = names(&["podman"])), "a", &["n2"]);
    check(&view_with(|view| a(view).incompatible_nodes = names(&["n2"])), "a", &["n3"]);
    check(&view_with(|view| a(view).failed_nodes = names(&["n2"])), "a", &["n3"]);
    check(
        &view_with(|view| {
            a(view).exclusive = true;
            n3(view).fenceable = Err(Reason::WatchdogMissing);
        }),
        "a",
        &["n2"],
    );
    check(
        &view_with(|view| {
            a(view).storage_pool = Some("pool".to_owned());
            n3(view).storage_pools.clear();
        }),
        "a",
        &["n2"],
    );
    // Local data cannot move. Replicated data can move only to the node of the second copy, because no disk is copied.
    check(&view_with(|view| a(view).storage_nodes = Some(names(&["n1"]))), "a", &[]);
    check(&view_with(|view| a(view).storage_nodes = Some(names(&["n1", "n3"]))), "a", &["n3"]);
    // A restricted group admits its members only, and no lower priority tiers.
    let grouped = |nodes: &[(&str, i64)], restricted: bool| {
        let mut view = base();
        member(&mut view, nodes, restricted);
        view
    };
    check(&grouped(&[("n1", 0), ("n3", 0)], true), "a", &["n3"]);
    check(&grouped(&[("n1", 1), ("n2", 2), ("n3", 0)], true), "a", &["n2"]);
    check(&grouped(&[("n1", 0)], false), "a", &[]);
    check(&grouped(&[("n3", 0)], false), "a", &["n2", "n3"]);
}

#[test]
fn services_with_an_action_in_progress_are_not_moved() {
    let check_is_immovable = |change: fn(&mut View, &mut ServiceFacts), stays: bool| {
        let mut view = view(&[("a", "n1")]);
        let mut facts = view.services["a"].clone();
        change(&mut view, &mut facts);
        view.services.insert("a".into(), facts);
        check(&view, "a", if stays { &[] } else { &["n2", "n3"] });
    };
    check_is_immovable(|_, _| {}, false);
    check_is_immovable(
        |_, a| (a.used_nodes, a.is_desired, a.stopped) = (BTreeSet::new(), false, true),
        false,
    );
    check_is_immovable(|_, a| a.movable = false, true);
    check_is_immovable(|_, a| a.used_nodes = names(&["n1", "n2"]), true);
    check_is_immovable(|_, a| a.used_nodes = BTreeSet::new(), true);
    check_is_immovable(|_, a| (a.used_nodes, a.is_desired) = (BTreeSet::new(), false), true);
    check_is_immovable(|_, a| a.maintenance_node = Some("n3".into()), true);
    check_is_immovable(|view, _| view.nodes.get_mut("n1").unwrap().online = Err(Reason::Fencing), true);
    // A service may leave a drained node.
    check_is_immovable(|view, _| view.nodes.get_mut("n1").unwrap().schedulable = false, false);
}

#[test]
fn affinity_rules_hold_after_every_step() {
    let three = || view(&[("a", "n1"), ("b", "n2"), ("c", "n1")]);
    for strict in [true, false] {
        let anti_affinity = resource_rule(&["a", "b"], Affinity::Negative, strict);
        check(&with_rules(three(), &[("apart", anti_affinity)]), "a", &["n3"]);
        let affinity = resource_rule(&["a", "c"], Affinity::Positive, strict);
        let united = with_rules(three(), &[("pair", affinity)]);
        check(&united, "a", &["n2", "n3"]);
        let problem = problem(&united);
        let unit = &problem.services[0];
        assert_eq!((problem.services.len(), unit.count(), unit.memory_used), (2, 2, 4096));
        let state = State::new(&problem, &problem.start_placements);
        assert!(
            (state.score() - crate::balance::score::score(&problem, &problem.start_placements)).abs() < 1e-9
        );
    }
    // A unit moves only to nodes that are eligible for all members and have capacity for all of them.
    let pair = || resource_rule(&["a", "c"], Affinity::Positive, true);
    let mut tight = with_rules(three(), &[("pair", pair())]);
    tight.nodes.get_mut("n3").unwrap().capacity.memory = gib(3);
    check(&tight, "a", &["n2"]);
    tight.services.get_mut(&"c".into()).unwrap().incompatible_nodes = names(&["n2"]);
    check(&tight, "a", &[]);
    // A member that cannot be moved now keeps the others on their node, and so does a member on another node.
    let mut constrained = with_rules(three(), &[("pair", pair())]);
    constrained.services.get_mut(&"c".into()).unwrap().movable = false;
    check(&constrained, "a", &[]);
    let split = resource_rule(&["a", "b"], Affinity::Positive, true);
    check(&with_rules(three(), &[("split", split)]), "a", &[]);
    // A preferred rule with partners on other nodes does not limit the service.
    let wish = resource_rule(&["a", "b"], Affinity::Positive, false);
    check(&with_rules(three(), &[("wish", wish)]), "a", &["n2", "n3"]);
    for (strict, expected) in [(true, &["n3"][..]), (false, &["n3"][..])] {
        let nodes = NodePriorities([("n1".into(), 0), ("n3".into(), 1)].into());
        let affinity = NodeAffinity { resources: vec!["a".to_owned()], nodes, strict };
        let rule = AffinityRuleSpec { node_affinity: Some(affinity), ..AffinityRuleSpec::default() };
        check(&with_rules(three(), &[("home", rule)]), "a", expected);
    }
}

/// A preference does not keep a service on a node that a plan empties.
#[test]
fn a_service_leaves_a_cordoned_node_for_one_that_it_prefers_less() {
    let nodes = NodePriorities([("n1".into(), 2), ("n2".into(), 1)].into());
    let affinity = NodeAffinity { resources: vec!["a".to_owned()], nodes, strict: false };
    let home = AffinityRuleSpec { node_affinity: Some(affinity), ..AffinityRuleSpec::default() };
    let mut view = with_rules(view(&[("a", "n1"), ("b", "n2")]), &[("home", home)]);
    check(&view, "a", &[]);
    view.nodes.get_mut("n1").unwrap().schedulable = false;
    check(&view, "a", &["n2", "n3"]);
}

#[test]
fn exclusion_tags_of_the_cluster_apply() {
    let mut view = view(&[("a", "n1"), ("b", "n2"), ("c", "n1")]);
    for name in ["a", "b"] {
        view.services.get_mut(&name.into()).unwrap().tags = names(&["only-one", "tier:web"]);
    }
    check(&view, "a", &["n3"]);
    // A stopped service uses no node and excludes no other service.
    stop(&mut view, "b");
    check(&view, "a", &["n2", "n3"]);
}

#[test]
fn groups_follow_the_node_groups() {
    let mut view = view(&[("a", "n1")]);
    view.nodes.get_mut("n2").unwrap().node_group = Some("default".to_owned());
    view.nodes.get_mut("n3").unwrap().node_group = Some("racks".to_owned());
    let cluster = live(&view);
    let groups: Vec<&str> = cluster.groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(groups, ["default", "racks", "without-group"]);
    assert_eq!(cluster.nodes.iter().map(|node| node.group).collect::<Vec<_>>(), [2, 0, 1]);
}

#[test]
fn measured_use_becomes_a_share_of_node_capacity() {
    let mut view = view(&[("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n3")]);
    view.services.get_mut(&"c".into()).unwrap().requests = Amounts::default();
    stop(&mut view, "d");
    let measured = |name: &str, cpu: i128, rate: i128| ResourceUsage {
        name: name.into(),
        usage: Some(Usage {
            cpu: cores(cpu),
            disk_rate: Some(Quantity::from_units(rate)),
            ..Usage::default()
        }),
        ..ResourceUsage::default()
    };
    let busy = Usage { disk_rate: Some(Quantity::from_units(200 << 20)), ..Usage::default() };
    let usage = UsageOverview {
        nodes: vec![NodeUsage { name: "n2".into(), usage: Some(busy), ..NodeUsage::default() }],
        resources: vec![measured("a", 1000, 50 << 20), measured("x", 1, 1)],
    };
    let cluster = cluster(&view, &usage);
    let quarter = LOAD_UNIT / 4;
    let loads: Vec<[i64; 4]> = cluster.instances.iter().map(|instance| instance.load).collect();
    assert_eq!(
        loads,
        [
            [quarter, LOAD_UNIT, quarter, LOAD_UNIT],
            // This service has the same requests as the measured one; the next one requests nothing.
            [quarter, LOAD_UNIT, quarter, LOAD_UNIT],
            [quarter, LOAD_UNIT, quarter, LOAD_UNIT],
            [0; 4],
        ]
    );
}

#[test]
fn the_live_cluster_is_balanced_and_written_as_text() {
    let mut view = view(&[("a", "n1"), ("b", "n1"), ("c", "n1"), ("d", "n1"), ("e", "n1"), ("f", "n1")]);
    let anti_affinity = resource_rule(&["a", "b"], Affinity::Negative, true);
    view.services.get_mut(&"f".into()).unwrap().tags = names(&["tier:web"]);
    let view = with_rules(view, &[("apart", anti_affinity)]);
    let problem = problem(&view);
    let plan = search(&problem, &Goal::default(), &TimeLimit::unlimited());
    assert_eq!((plan.steps.len(), plan.end_score() < 1e-6), (4, true));
    let cluster = live(&view);
    assert!(cluster.nodes.iter().all(|node| node.role == Role::Member));
    let read = text::read(&text::write(&cluster)).expect("the written cluster is readable");
    assert_eq!(
        read,
        Cluster {
            live_constraints: read.live_constraints.clone(),
            has_forthcoming_field: false,
            cpus_in_thousandths: false,
            instances: cluster
                .instances
                .iter()
                .cloned()
                .map(|instance| crate::balance::model::Instance {
                    load: crate::balance::model::DEFAULT_LOAD,
                    ..instance
                })
                .collect(),
            ..cluster
        }
    );
    assert!(read.instances[0].tags.contains(&format!("{ANTI_AFFINITY_TAG_PREFIX}:rule:apart")));
    let problem_from_text = Problem::new(&read, 0, &Settings::default());
    assert!(
        (State::new(&problem_from_text, &problem_from_text.start_placements).score() - plan.start_score)
            .abs()
            < 1e-9
    );
}

#[test]
fn the_view_is_unchanged_by_serialization() {
    let mut view = view(&[("a", "n1"), ("b", "n2")]);
    view.nodes.get_mut("n3").unwrap().online = Err(Reason::Fencing);
    view.nodes.get_mut("n2").unwrap().fenceable = Err(Reason::WatchdogMissing);
    view.services.get_mut(&"a".into()).unwrap().storage_nodes = Some(names(&["n1"]));
    let anti_affinity = resource_rule(&["a", "b"], Affinity::Negative, true);
    let view = with_rules(view, &[("apart", anti_affinity)]);
    let sent = serde_json::to_value(&view).expect("the view can be serialized");
    assert_eq!(sent["nodes"]["n3"]["notOnline"], "Fencing");
    assert_eq!(serde_json::from_value::<View>(sent).expect("the view can be deserialized"), view);
}
