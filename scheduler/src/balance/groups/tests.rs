//! Properties that must hold for every cluster of several groups.

use super::all_groups::{AllGroups, PlannedMove, steps};
use super::allocate::allocate;
use super::balance_load::balance_load;
use super::capacity::{NPlusOneFailure, capacity};
use super::check::{Health, health};
use super::compress::{Verdict, best, compress};
use super::evacuate::{EvacuatedCopies, evacuate};
use super::new_service::NewService;
use super::partition::{check_move, permits};
use super::redistribute::{RedistributionFailure, redistribute};
use super::samples::sample_with_several_groups;
use super::{failover, partition};
use crate::balance::model::{Allocation, Cluster, Template};
use crate::balance::plan::Step;
use crate::balance::problem::{Placement, Problem, Settings};
use crate::balance::random::Random;
use crate::balance::score::{score, usages};
use crate::balance::state::State;
use crate::balance::text::read;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Checks that every operation of every step keeps the limits, by the plain definition, and that the steps lead to the
/// placements of the moves.
fn keeps_limits(all_groups: &AllGroups<'_>, moved: &[PlannedMove]) -> Vec<Placement> {
    let problem = &all_groups.problem;
    let mut placements = problem.start_placements.clone();
    let mut before = usages(problem, &placements);
    for Step { service, from, to, kind, .. } in steps(moved) {
        assert_eq!(placements[service], from, "{}", all_groups.service_name(service));
        for placement in kind.placements(from, to) {
            let old = std::mem::replace(&mut placements[service], placement);
            let after = usages(problem, &placements);
            for (index, node) in problem.nodes.iter().enumerate() {
                let (usage_before, usage_after) = (&before[index], &after[index]);
                let is_forced =
                    placement.contains(index) && (problem.must_leave(old) || problem.must_leave(from));
                assert!(
                    is_forced || node.is_offline || usage_before.fails_n1() || !usage_after.fails_n1(),
                    "{} fails N+1",
                    all_groups.node_name(index)
                );
                if placement.primary == index && old.primary != index {
                    let problem_service = &problem.services[service];
                    assert!(
                        !node.is_offline && (usage_after.memory_free > 0 || problem_service.memory_used == 0)
                    );
                    assert!(is_forced || usage_after.vcpus <= node.vcpus_max || problem_service.vcpus == 0);
                }
                if usage_after.disk_free < usage_before.disk_free {
                    assert!(
                        !node.is_offline && usage_after.disk_free > 0,
                        "{} has no disk",
                        all_groups.node_name(index)
                    );
                }
            }
            before = after;
        }
        assert_eq!(placements[service], to);
    }
    for service_move in moved {
        assert_eq!(placements[service_move.service], service_move.to);
        assert_eq!(
            (all_groups.group_of(service_move.from.primary), all_groups.group_of(service_move.to.primary)),
            (service_move.source, service_move.target)
        );
        if service_move.is_between_groups() {
            let instance = problem.services[service_move.service].instance;
            assert_eq!(check_move(all_groups.cluster, instance, service_move.target), Ok(()));
            assert!(
                service_move.to.secondary.is_none_or(|node| all_groups.group_of(node) == service_move.target)
            );
            assert!(all_groups.inter_group_moves);
        }
    }
    placements
}

fn size(random: &mut Random) -> NewService {
    let memory = [64, 300, 1000, 3000][random.draw_below(4)];
    NewService {
        memory,
        disk: memory * [1, 4, 20][random.draw_below(3)],
        vcpus: 1 + i64::try_from(random.draw_below(4)).unwrap(),
        template: [Template::Drbd, Template::Rbd, Template::Plain][random.draw_below(3)],
        spindle_use: 1,
        tags: if random.draw_below(4) == 0 { vec!["web:1".to_owned()] } else { Vec::new() },
        nodes: None,
    }
}

/// Returns the cluster with a new service and its score in its group; `None` if limits or N+1 do not hold by the plain
/// definitions.
fn add_within_limits(
    cluster: &Cluster,
    size: &NewService,
    placement: (usize, Option<usize>),
    keeps_n1: bool,
) -> Option<(Cluster, f64)> {
    let mut after = cluster.clone();
    size.add_to(&mut after, placement);
    let group = cluster.nodes[placement.0].group;
    let problem = Problem::new(&after, group, &Settings::default());
    let usages = usages(&problem, &problem.start_placements);
    let problem_node = |cluster_node: usize| problem.position(cluster_node).unwrap();
    let new = problem.services.last().unwrap();
    let tags = |service: usize| {
        problem.start_placements[service].primary == problem_node(placement.0)
            && problem.services[service].exclusion.iter().any(|tag| new.exclusion.contains(tag))
    };
    let has_conflict = (0..problem.services.len() - 1).any(tags);
    let fits = [Some(placement.0), placement.1].into_iter().flatten().all(|node| {
        let (node, usage) = (&problem.nodes[problem_node(node)], &usages[problem_node(node)]);
        let disk = new.disk_used == 0 || usage.disk_free > 0;
        !node.is_offline && disk && !(keeps_n1 && usage.fails_n1())
    });
    let (node, usage) = (&problem.nodes[problem_node(placement.0)], &usages[problem_node(placement.0)]);
    let fits = fits && !has_conflict && usage.memory_free > 0 && usage.vcpus <= node.vcpus_max;
    fits.then(|| (after, score(&problem, &problem.start_placements)))
}

fn possible_placements(cluster: &Cluster, size: &NewService, group: usize) -> Vec<(usize, Option<usize>)> {
    let nodes: Vec<usize> =
        (0..cluster.nodes.len()).filter(|&node| cluster.nodes[node].group == group).collect();
    let pairs = nodes.iter().flat_map(|&primary| {
        nodes
            .iter()
            .filter(move |&&secondary| secondary != primary)
            .map(move |&secondary| (primary, Some(secondary)))
    });
    if size.template == Template::Drbd {
        pairs.collect()
    } else {
        nodes.iter().map(|&node| (node, None)).collect()
    }
}

/// Returns `true` if every node of a group survives a peer's failure, and all shared services fit on other nodes if one
/// fails.
fn is_kept(cluster: &Cluster, group: usize) -> bool {
    let problem = Problem::new(cluster, group, &Settings::default());
    let mut state = State::new(&problem, &problem.start_placements);
    (0..problem.nodes.len()).all(|node| !state.fails_n1(node))
        && failover::first_fatal_failure(&mut state, &[]).is_none()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn redistribute_repairs_all_groups_or_moves_nothing(seed in any::<u64>(), closed in 0..5_u8) {
        let cluster = sample_with_several_groups(seed);
        let all_groups = AllGroups::new(&cluster, &Settings::default(), closed > 0);
        let redistribution = redistribute(&all_groups);
        let Ok(moved) = &redistribution.result else { return Ok(()) };
        let placements = keeps_limits(&all_groups, moved);
        let state = State::new(&all_groups.problem, &placements);
        let was_offline = |(_, health): &(usize, Health)| matches!(health, Health::Unhealthy { .. });
        for group in all_groups.groups() {
            let is_skipped = redistribution.skipped.iter().any(|(skipped_group, _)| *skipped_group == group);
            let remains = redistribution.remaining.iter().find(|(remaining_group, _)| *remaining_group == group);
            let now = health(&all_groups, &state, group);
            prop_assert_eq!(remains.is_none(), is_skipped || now.is_healthy());
            // Only an instance that must leave an offline node may cause other nodes to fail N+1.
            prop_assert!(remains.is_none() || redistribution.unhealthy.iter().any(was_offline));
            prop_assert!(is_skipped || !matches!(now, Health::Unhealthy { .. }), "{now:?}");
        }
        prop_assert!(redistribution.unhealthy.is_empty() <= moved.is_empty());
    }

    #[test]
    fn compress_empties_a_group(seed in any::<u64>()) {
        let cluster = sample_with_several_groups(seed);
        let all_groups = AllGroups::new(&cluster, &Settings::default(), true);
        let candidates = compress(&all_groups);
        for candidate in &candidates {
            let Verdict::CanBeEmptied(moved) = &candidate.verdict else { continue };
            let placements = keeps_limits(&all_groups, moved);
            let is_emptied = placements.iter().all(|placement| {
                all_groups.group_of(placement.primary) != candidate.group
                    && placement.secondary.is_none_or(|node| all_groups.group_of(node) != candidate.group)
            });
            prop_assert!(is_emptied && !moved.is_empty());
        }
        let nodes = |group: usize| all_groups.nodes_of(group).len();
        if let Some((chosen, _)) = best(&all_groups, &candidates) {
            for other in &candidates {
                let can = matches!(other.verdict, Verdict::CanBeEmptied(_));
                prop_assert!(!can || nodes(other.group) <= nodes(chosen.group));
            }
        }
    }

    #[test]
    fn balancing_lowers_the_deviation(seed in any::<u64>()) {
        let cluster = sample_with_several_groups(seed);
        let all_groups = AllGroups::new(&cluster, &Settings::default(), true);
        let balanced = balance_load(&all_groups, 0.01, 50);
        let placements = keeps_limits(&all_groups, &balanced.moves);
        prop_assert!(balanced.deviation_after <= balanced.deviation_before - 0.01 * balanced.moves.len() as f64 + 1e-9);
        for moved in &balanced.moves {
            let demoted = all_groups.allocation(moved.source) == Allocation::Preferred
                && all_groups.allocation(moved.target) != Allocation::Preferred;
            prop_assert!(moved.is_between_groups() && !demoted);
        }
        // The reported result must equal a new computation.
        let mut problem = all_groups.problem.clone();
        problem.start_placements = placements;
        let second_result = balance_load(&AllGroups { problem, ..all_groups.clone() }, f64::INFINITY, 0);
        prop_assert!((second_result.deviation_before - balanced.deviation_after).abs() < 1e-9);
    }

    #[test]
    fn evacuated_nodes_keep_only_stuck_instances(seed in any::<u64>(), which in any::<u64>()) {
        let cluster = sample_with_several_groups(seed);
        let mut random = Random::new(which);
        let names: BTreeSet<String> =
            (0..=random.draw_below(2)).map(|_| cluster.nodes[random.draw_below(cluster.nodes.len())].name.clone()).collect();
        let all_groups = AllGroups::new(&cluster, &Settings { drained: names.clone(), ..Settings::default() }, true);
        let nodes: Vec<usize> = (0..all_groups.problem.nodes.len()).filter(|&node| names.contains(all_groups.node_name(node))).collect();
        let evacuation = evacuate(&all_groups, &nodes, EvacuatedCopies::All);
        let planned_moves: Vec<PlannedMove> = evacuation.inside.iter().chain(&evacuation.outside).cloned().collect();
        // The moves inside groups must be executable alone.
        keeps_limits(&all_groups, &evacuation.inside);
        let placements = keeps_limits(&all_groups, &planned_moves);
        for (service, placement) in placements.iter().enumerate() {
            let stays = [Some(placement.primary), placement.secondary].into_iter().flatten().any(|node| nodes.contains(&node));
            prop_assert_eq!(stays, evacuation.immovable.iter().any(|stuck| stuck.service == service));
        }
        prop_assert!(evacuation.inside.iter().all(|moved| !moved.is_between_groups()));
        prop_assert!(evacuation.outside.iter().all(PlannedMove::is_between_groups));
        prop_assert!(cluster.groups.len() > 1 || evacuation.outside.is_empty());
    }

    #[test]
    fn the_first_candidate_has_the_best_score(seed in any::<u64>()) {
        let cluster = sample_with_several_groups(seed);
        let size = size(&mut Random::new(seed));
        let offers = allocate(&cluster, &Settings::default(), &size);
        let mut best: Option<(u8, f64)> = None;
        for group in partition::populated_groups(&cluster) {
            let class = match cluster.groups[group].allocation {
                Allocation::Preferred => 0,
                Allocation::LastResort => 1,
                Allocation::Unallocable => continue,
            };
            let group_policy = cluster.policies.iter().find(|policy| policy.owner == cluster.groups[group].name);
            let min_disk = group_policy.map_or(0, |policy| policy.ranges[0].0.disk);
            if !permits(&cluster, group, size.template) || size.disk < min_disk {
                continue;
            }
            for placement in possible_placements(&cluster, &size, group) {
                if let Some((_, score)) = add_within_limits(&cluster, &size, placement, true)
                    && best.is_none_or(|best| (class, score) < best)
                {
                    best = Some((class, score));
                }
            }
        }
        let first = offers.first().and_then(|offer| Some((offer, offer.best()?)));
        prop_assert_eq!(first.is_some(), best.is_some());
        if let (Some((offer, placement)), Some((class, score))) = (first, best) {
            prop_assert!((placement.score - score).abs() < 1e-9, "{} instead of {score}", placement.score);
            prop_assert_eq!(offer.allocation == Allocation::Preferred, class == 0);
        }
    }

    #[test]
    fn exactly_the_counted_number_of_services_fits(seed in any::<u64>()) {
        let cluster = sample_with_several_groups(seed);
        let mut size = size(&mut Random::new(seed));
        size.memory = size.memory.max(300);
        for group in capacity(&cluster, &Settings::default(), &size, None) {
            if group.refusal.is_some() {
                prop_assert_eq!(group.within_limits.count() + group.with_n_plus_one.count(), 0);
                continue;
            }
            prop_assert_eq!(group.n_plus_one_failure.is_none(), is_kept(&cluster, group.group));
            let broken = matches!(group.n_plus_one_failure, Some(NPlusOneFailure::Reserve(_) | NPlusOneFailure::Failover(_)));
            for (filled, keeps_n1) in [(&group.within_limits, false), (&group.with_n_plus_one, true)] {
                if keeps_n1 && broken {
                    prop_assert_eq!(filled.count(), 0);
                    continue;
                }
                let mut full = cluster.clone();
                for &placement in &filled.placements {
                    let after = add_within_limits(&full, &size, placement, keeps_n1);
                    prop_assert!(after.is_some(), "{placement:?} does not fit");
                    full = after.unwrap().0;
                    prop_assert!(!keeps_n1 || is_kept(&full, group.group));
                }
                for placement in possible_placements(&full, &size, group.group) {
                    let one_more = add_within_limits(&full, &size, placement, keeps_n1)
                        .filter(|(after, _)| !keeps_n1 || is_kept(after, group.group));
                    prop_assert!(one_more.is_none(), "{placement:?} fits after {}", filled.count());
                }
            }
        }
    }
}

#[test]
fn smaller_tiers_use_the_capacity_that_the_first_tier_leaves() {
    let cluster = read(
        "g|u|preferred||\n\na|4000|0|3000|99999|99999|8|N|u|1||N|0|0|1.0\nb|4000|0|1500|99999|99999|8|N|u|1||N|0|0|1.0\n\n\n\n",
    )
    .unwrap();
    let size = NewService {
        memory: 2000,
        disk: 10,
        vcpus: 1,
        template: Template::Plain,
        spindle_use: 1,
        tags: Vec::new(),
        nodes: None,
    };
    let group_capacities = capacity(&cluster, &Settings::default(), &size, Some(&size));
    let tiers: Vec<(i64, usize)> =
        group_capacities[0].tiers.iter().map(|tier| (tier.size.memory, tier.count)).collect();
    // One service of 2000 MiB fits on a. The next sizes grow in steps of 64 MiB: 1472 on b and 960 on a, which leaves
    // 28 and 40.
    assert_eq!(tiers, [(2000, 1), (1472, 1), (960, 1)]);
}

/// The instance on a needs 6000 MiB, and b and c have 5000 and 4000 MiB free. It fits on b after small has moved to c.
#[test]
fn evacuation_moves_another_instance_to_make_room() {
    let plan = |small: &str, medium: &str, drained: &str| {
        let cluster = read(&format!(
            "g|u|preferred||\n\n\
             a|9000|0|3000|99999|99999|8|N|u|1||N|0|0|1.0\n\
             b|8000|0|5000|99999|99999|8|N|u|1||N|0|0|1.0\n\
             c|8000|0|4000|99999|99999|8|N|u|1||N|0|0|1.0\n\n\
             big|6000|10|1|running|Y|a||rbd||1|-|\n\
             small|3000|10|1|running|Y|b||{small}||1|-|\n\
             medium|4000|10|1|running|Y|c||{medium}||1|-|\n\n\n",
        ))
        .unwrap();
        let settings = Settings { drained: BTreeSet::from([drained.to_owned()]), ..Settings::default() };
        let all_groups = AllGroups::new(&cluster, &settings, true);
        let node = (0..3).find(|&node| all_groups.node_name(node) == drained).expect("the node exists");
        let evacuation = evacuate(&all_groups, &[node], EvacuatedCopies::All);
        let moves = evacuation.inside.iter().map(|moved| all_groups.service_name(moved.service).clone());
        (moves.collect::<Vec<_>>(), evacuation.immovable.len())
    };
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(plan("rbd", "rbd", "a"), (names(&["small", "big"]), 0));
    // Instances on local storage stay, and nothing moves in vain.
    assert_eq!(plan("plain", "rbd", "a"), (names(&["medium", "big"]), 0));
    assert_eq!(plan("plain", "plain", "a"), (names(&[]), 1));
    // No other instance moves if there is capacity.
    assert_eq!(plan("rbd", "rbd", "b"), (names(&["small"]), 0));
}

/// Two groups; node b of the first is offline and holds a replicated and a shared instance.
const UNHEALTHY_CLUSTER_TEXT: &str = "g1|u1|preferred||\ng2|u2|preferred||\n\n\
    a|1000|0|800|1000|900|4|N|u1|1||N|0|0|1.0\n\
    b|1000|0|1000|1000|900|4|Y|u1|1||N|0|0|1.0\n\
    c|1000|0|1000|1000|1000|4|N|u2|1||N|0|0|1.0\n\
    d|1000|0|1000|1000|1000|4|N|u2|1||N|0|0|1.0\n\n\
    i|200|100|1|running|Y|a|b|drbd||1\nj|100|100|1|ERROR_nodeoffline|Y|b||rbd||1\n\n\n";

#[test]
fn redistribution_reports_blocking_reasons() {
    let blocked = |text: &str| {
        let cluster = read(text).unwrap();
        let all_groups = AllGroups::new(&cluster, &Settings::default(), true);
        let redistribution = redistribute(&all_groups);
        let skipped: Vec<String> =
            redistribution.skipped.iter().map(|(_, cause)| cause.to_string()).collect();
        (redistribution.result.map(|moved| moved.len()), skipped)
    };
    assert_eq!(blocked(UNHEALTHY_CLUSTER_TEXT), (Ok(2), Vec::new()));
    let unallocable = UNHEALTHY_CLUSTER_TEXT.replace("u2|preferred", "u2|unallocable");
    assert_eq!(blocked(&unallocable), (Err(RedistributionFailure::NothingHealthy), Vec::new()));
    let without_common_network = UNHEALTHY_CLUSTER_TEXT.replace("g1|u1|preferred||", "g1|u1|preferred||lan");
    assert_eq!(
        blocked(&without_common_network),
        (Ok(0), vec!["no other group reaches the storage of its instances".to_owned()])
    );
    let full = UNHEALTHY_CLUSTER_TEXT
        .replace("c|1000|0|1000", "c|1000|0|150")
        .replace("d|1000|0|1000", "d|1000|0|150");
    assert!(matches!(blocked(&full), (Err(RedistributionFailure::NoEligibleGroup { group: 0, .. }), _)));
    let local = UNHEALTHY_CLUSTER_TEXT.replace("b||rbd", "b||plain");
    assert!(matches!(blocked(&local), (Err(RedistributionFailure::NoEligibleGroup { group: 0, .. }), _)));
}
