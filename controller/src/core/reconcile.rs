//! The leader's plan: nodes first, then services, then their statuses.

use super::candidates;
use super::fencing;
use super::health::{NodeTable, node_table};
use super::incarnation;
use super::notifications;
use super::operations;
use super::placement;
use super::plan::Plan;
use super::restored;
use super::service::{self, Arranged, Planner};
use super::situation::Situation;
use super::status;
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_scheduler::View;

/// Returns the leader's plan.
///
/// Guarantees: the plan depends on nothing but its input. Every action guards the keys that it writes and the facts on
/// which it depends. Each subject has at most one action, and none while a write is in progress.
pub fn reconcile(situation: &Situation<'_>) -> Plan {
    if !situation.world.knows_settings() {
        let mut plan = Plan::default();
        let message =
            "Cluster object and its active settings cannot be read by this version; finish the upgrade";
        plan.wait(Kind::Cluster, CLUSTER_NAME, Reason::Unreadable, message.to_owned());
        return plan;
    }
    let nodes: NodeTable = node_table(situation);
    let (view, conflicts) = placement::view(situation, &nodes);
    let mut planner = planned(situation, &nodes, view, Arranged::default());
    if let Some(arranged) = planner.arrange() {
        let (view, _) = placement::view(situation, &nodes);
        planner = planned(situation, &nodes, view, arranged);
    }
    let mut plan = planner.plan;
    let settles = placement::settling_until(situation).is_some_and(|until| situation.now.raw < until);
    plan.view = (!settles && !planner.view.nodes.is_empty()).then_some(planner.view);
    incarnation::plan(situation, &mut plan);
    restored::plan(situation, &nodes, &mut plan);
    candidates::plan(situation, &mut plan);
    status::plan(situation, &nodes, &conflicts, &mut plan);
    notifications::plan(situation, &nodes, &mut plan);
    plan.actions.retain(|action| !situation.busy.contains(&action.subject));
    plan
}

/// Plans nodes and services, with the given placements for services that are being scheduled.
fn planned<'a>(
    situation: &Situation<'a>,
    nodes: &'a NodeTable,
    view: View,
    arranged: Arranged,
) -> Planner<'a> {
    let mut planner = Planner::new(*situation, nodes, view, Plan::default(), arranged);
    if let Some(until) = placement::settling_until(situation) {
        planner.plan.wake(situation, until, "the set of nodes is considered complete");
    }
    operations::plan(situation, nodes, &mut planner.plan);
    fencing::plan(situation, nodes, &mut planner.plan);
    service::plan(&mut planner);
    planner
}
