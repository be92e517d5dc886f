//! `/apis/hactl.io/v1/balance`: moves that would balance the load of the nodes, without making them.

use super::ApiState;
use super::error::ApiError;
use super::facts;
use crate::core::{stored_view, usage};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ha_api_types::view::{
    BalanceMove, BalanceOperation, BalancePlan, GroupBalancePlan, NodeBalance, NodeLoad,
};
use ha_scheduler::balance::actions::{MoveAction, actions};
use ha_scheduler::balance::groups::partition::populated_groups;
use ha_scheduler::balance::live;
use ha_scheduler::balance::model::Cluster;
use ha_scheduler::balance::plan::{Plan, Step, job_sets};
use ha_scheduler::balance::problem::{Placement, Problem, Settings};
use ha_scheduler::balance::score::optimum;
use ha_scheduler::balance::search::{Goal, search};
use ha_scheduler::balance::time_limit::TimeLimit;
use ha_store::Store;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Maximum time of the search for all groups, because it uses the processors of the controller. `hactl balance` searches
/// on the machine of the user, and longer.
const SEARCH_LIMIT: Duration = Duration::from_secs(3);

/// Handles GET and answers with a [`BalancePlan`].
pub(crate) async fn handler<S: Store>(State(state): State<ApiState<S>>) -> Result<Response, ApiError> {
    let permit = state.balance_permit()?;
    let cluster_view = facts::cluster_view(&state).await?;
    let usage = usage::overview(&cluster_view);
    let view = stored_view::view(&cluster_view).0;
    let plan = tokio::task::spawn_blocking(move || {
        let plan = plan(&live::cluster(&view, &usage), live::drained_nodes(&view), SEARCH_LIMIT);
        drop(permit);
        plan
    });
    let plan = plan.await.map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(Json(plan).into_response())
}

/// Returns the plans of all groups, with the largest improvement first.
fn plan(cluster: &Cluster, drained: BTreeSet<String>, search_limit: Duration) -> BalancePlan {
    let settings = Settings { drained, ..Settings::default() };
    let started_at = Instant::now();
    let groups: Vec<usize> = populated_groups(cluster).collect();
    let group_count = groups.len().max(1);
    let mut plans: Vec<GroupBalancePlan> = groups
        .into_iter()
        .zip(1..)
        .map(|(group, number)| {
            let begin = started_at.elapsed().as_secs_f64();
            let end = search_limit.as_secs_f64() * f64::from(number) / group_count as f64;
            let time = TimeLimit::new(move || {
                (started_at.elapsed().as_secs_f64() - begin) / (end - begin).max(1e-9)
            });
            group_plan(cluster, group, &settings, &time)
        })
        .collect();
    plans.sort_by(|left, right| {
        let gain = |plan: &GroupBalancePlan| plan.score_before - plan.score_after;
        gain(right).total_cmp(&gain(left))
    });
    BalancePlan { groups: plans }
}

fn group_plan(
    cluster: &Cluster,
    group: usize,
    settings: &Settings,
    time: &TimeLimit<'_>,
) -> GroupBalancePlan {
    let problem = Problem::new(cluster, group, settings);
    let goal = Goal::default();
    let goal = Goal { min_score: goal.min_score + optimum(&problem), ..goal };
    let plan = search(&problem, &goal, time);
    let sets = job_sets(&plan.steps);
    GroupBalancePlan {
        group: cluster.groups[group].name.clone(),
        score_before: plan.start_score,
        score_after: plan.end_score(),
        time_limited: time.has_reached_limit(),
        batches: sets
            .iter()
            .map(|set| set.iter().map(|step| balance_move(cluster, &problem, step)).collect())
            .collect(),
        nodes: node_loads(cluster, &problem, &plan),
    }
}

fn balance_move(cluster: &Cluster, problem: &Problem, step: &Step) -> BalanceMove {
    let service = &problem.services[step.service];
    let name = |index: usize| cluster.instances[index].name.as_str().into();
    let nodes = |placement: Placement| {
        placement.nodes().map(|problem_node| problem.node_name(cluster, problem_node).into()).collect()
    };
    BalanceMove {
        resource: name(service.instance),
        with: service.partners.iter().map(|&partner| name(partner)).collect(),
        from: nodes(step.from),
        to: nodes(step.to),
        score: step.score,
        operations: actions(cluster, problem, step)
            .into_iter()
            .map(|MoveAction { kind, resource, node }| BalanceOperation {
                action: kind,
                resource: resource.into(),
                node: node.into(),
            })
            .collect(),
    }
}

/// Returns the load of each node of the group, before and after the plan.
fn node_loads(cluster: &Cluster, problem: &Problem, plan: &Plan) -> Vec<NodeBalance> {
    let after = plan.applied(cluster, problem);
    let load = |cluster: &Cluster, node: usize| {
        let on_node = cluster.instances.iter().filter(|instance| instance.primary == node);
        on_node.fold(NodeLoad::default(), |load, instance| NodeLoad {
            services: load.services + 1,
            memory_mebibytes: load.memory_mebibytes + instance.memory,
            cpu_milli: load.cpu_milli + instance.vcpus,
        })
    };
    let positions = problem.nodes.iter().map(|node| node.cluster_node);
    positions
        .map(|node| NodeBalance {
            node: cluster.nodes[node].name.as_str().into(),
            before: load(cluster, node),
            after: load(&after, node),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_scheduler::balance::text;

    const CLUSTER: &str = "g1|u1|preferred||\n\n\
        a|1000|0|600|1000|1000|4|N|u1|1||N|0|0|1.0\n\
        b|1000|0|1000|1000|1000|4|N|u1|1||N|0|0|1.0\n\n\
        i0|100|10|1|running|Y|a||rbd||1\ni1|100|10|1|running|Y|a||rbd||1\n\
        i2|100|10|1|running|Y|a||rbd||1\ni3|100|10|1|running|Y|a||rbd||1\n\n\n";

    #[test]
    fn a_plan_shows_the_nodes_before_and_after_its_moves() {
        let cluster = text::read(CLUSTER).expect("a valid cluster");
        let plan = plan(&cluster, BTreeSet::new(), Duration::MAX);
        let [group] = plan.groups.as_slice() else { panic!("{plan:?}") };
        assert!(group.score_after < group.score_before && !group.time_limited, "{group:?}");
        let moves: Vec<&BalanceMove> = group.batches.iter().flatten().collect();
        assert_eq!(moves.len(), 2);
        for step in moves {
            assert_eq!((step.from[0].as_str(), step.to[0].as_str()), ("a", "b"));
            assert_eq!(step.operations.len(), 1);
            assert_eq!(
                (step.operations[0].node.as_str(), &step.operations[0].resource),
                ("b", &step.resource)
            );
        }
        let loads: Vec<_> = group
            .nodes
            .iter()
            .map(|node| {
                (node.node.as_str(), node.before.services, node.after.services, node.after.memory_mebibytes)
            })
            .collect();
        assert_eq!(loads, [("a", 4, 2, 200), ("b", 0, 2, 200)]);
    }

    #[test]
    fn a_drained_node_is_emptied() {
        let cluster = text::read(CLUSTER).expect("a valid cluster");
        let plan = plan(&cluster, BTreeSet::from(["a".to_owned()]), Duration::MAX);
        assert_eq!(plan.groups[0].nodes[0].after.services, 0);
    }
}
