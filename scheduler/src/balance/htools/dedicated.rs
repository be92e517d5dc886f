//! The choice of nodes with exclusive storage for a new instance, by the rules of Ganeti's hail: those on which the fewest
//! instances of the sizes in the policy no longer fit.

use super::allocation::{AllocationRules, InstanceNodes, Request, Trial, TrialProblems, add, nodes_of};
use super::group_choice::{GroupTrial, Metric};
use crate::balance::model::{Cluster, DEFAULT_LOAD, Instance, Specification, Status, Template};
use crate::balance::problem::{Placement, Problem};
use crate::balance::state::State;
use crate::balance::state::checked::Checks;

/// Number of lost allocations of each size, the largest disk first, and the free disk that remains in MiB.
pub type Loss = (Vec<i64>, i64);

/// Tries nodes or pairs of nodes of a group.
pub(super) fn attempt(
    cluster: &Cluster,
    request: &Request,
    group: usize,
    candidates: impl Iterator<Item = InstanceNodes>,
    rules: &AllocationRules,
) -> GroupTrial {
    let rules = AllocationRules { checks_capacity: false, ..rules.clone() };
    let problems = TrialProblems::new(cluster, request, &rules, &[group]);
    let mut trial = Trial::new(cluster, &rules, &problems);
    let sizes = smallest_instances(cluster, group);
    let mut tried = GroupTrial::default();
    for nodes in candidates {
        tried.add(trial.try_nodes(request, nodes).map(|_| {
            let mut filled = cluster.clone();
            add(&mut filled, &request.instance, nodes);
            let used: Vec<usize> = nodes_of(nodes).collect();
            let mut changed = rules.clone();
            changed.changed_nodes.extend(&used);
            let lost = sizes.iter().map(|size| {
                count_fitting_instances(cluster, size, group, &used, &rules)
                    - count_fitting_instances(&filled, size, group, &used, &changed)
            });
            let disk = used.iter().map(|node| filled.nodes[*node].disk_free).sum();
            (nodes, Metric::Loss((lost.collect(), disk)))
        }));
    }
    tried
}

/// Returns the smallest instance of each range of sizes in the policy of a group, that with the largest disk first.
fn smallest_instances(cluster: &Cluster, group: usize) -> Vec<Instance> {
    let ranges = cluster.policy(group).map(|policy| policy.ranges.clone()).unwrap_or_default();
    let mut sizes: Vec<Specification> = ranges.into_iter().map(|(smallest, _)| smallest).collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(size.disk));
    let instance = |size: Specification| Instance {
        name: "minimalspecinstance".to_owned(),
        memory: size.memory,
        disk: size.disk,
        vcpus: size.cpus,
        status: Status::Running,
        auto_balance: false,
        primary: 0,
        secondary: None,
        template: Template::Plain,
        tags: Vec::new(),
        spindle_use: size.spindles,
        disk_spindles: Some(0),
        forthcoming: false,
        load: DEFAULT_LOAD,
    };
    sizes.into_iter().map(instance).collect()
}

/// Returns the number of instances of a size that fit on each of these nodes, in total.
fn count_fitting_instances(
    cluster: &Cluster,
    size: &Instance,
    group: usize,
    nodes: &[usize],
    rules: &AllocationRules,
) -> i64 {
    let problem = Problem::with_new_instance(cluster, &[group], &rules.settings, Some((size, None)));
    let mut state = State::new(&problem, &problem.start_placements);
    state.load_as_ganeti(cluster, &rules.changed_nodes);
    let service = problem.services.len() - 1;
    let mut count = 0;
    for node in nodes {
        let Some(primary) = problem.position(*node) else { continue };
        let placement = Placement { primary, secondary: None };
        while state.add_checked(service, placement, Checks::default()).is_ok() {
            count += 1;
        }
    }
    count
}
