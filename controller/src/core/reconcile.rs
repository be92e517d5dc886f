//! The leader's plan: nodes first, then services, then their statuses.

use super::candidates;
use super::fencing;
use super::health::{NodeTable, node_table};
use super::incarnation;
use super::notifications;
use super::operations;
use super::placement;
use super::plan::Plan;
use super::plan_input::PlanInput;
use super::restored;
use super::service::{self, JointPlacement, Planner};
use super::status;
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_scheduler::View;

/// Returns the leader's plan.
///
/// Guarantees: the plan depends only on its input. Every action guards the keys that it writes and the facts on which
/// it depends. Each subject has at most one action, and none while a write is in progress.
pub fn reconcile(input: &PlanInput<'_>) -> Plan {
    if !input.cluster_view.has_readable_settings() {
        let mut plan = Plan::default();
        let message =
            "Cluster object and its active settings cannot be read by this version; finish the upgrade";
        plan.add_wait(Kind::Cluster, CLUSTER_NAME, Reason::Unreadable, message.to_owned());
        return plan;
    }
    let nodes: NodeTable = node_table(input);
    let (view, conflicts) = placement::view(input, &nodes);
    let mut planner = plan_with_placements(input, &nodes, view, JointPlacement::default());
    if let Some(joint_placement) = planner.find_joint_placement() {
        let (view, _) = placement::view(input, &nodes);
        planner = plan_with_placements(input, &nodes, view, joint_placement);
    }
    let mut plan = planner.plan;
    let nodes_incomplete =
        placement::nodes_incomplete_until(input).is_some_and(|until| input.now.monotonic_raw < until);
    plan.view = (!nodes_incomplete && !planner.view.nodes.is_empty()).then_some(planner.view);
    incarnation::plan(input, &mut plan);
    restored::plan(input, &nodes, &mut plan);
    candidates::plan(input, &mut plan);
    status::plan(input, &nodes, &conflicts, &mut plan);
    notifications::plan(input, &nodes, &mut plan);
    plan.actions.retain(|action| !input.busy.contains(&action.subject));
    plan
}

/// Plans nodes and services, with the given placements for services that are being scheduled.
fn plan_with_placements<'a>(
    input: &PlanInput<'a>,
    nodes: &'a NodeTable,
    view: View,
    joint_placement: JointPlacement,
) -> Planner<'a> {
    let mut planner = Planner::new(*input, nodes, view, Plan::default(), joint_placement);
    if let Some(until) = placement::nodes_incomplete_until(input) {
        planner.plan.wake_at(input, until, "the set of nodes is considered complete");
    }
    operations::plan(input, nodes, &mut planner.plan);
    fencing::plan(input, nodes, &mut planner.plan);
    service::plan(&mut planner);
    planner
}
