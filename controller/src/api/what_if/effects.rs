//! Comparison of two views of the cluster: which services would start, stop or move. Pure.

use crate::core::placement::{has_fence_device, may_move_live, ungated_note, used_nodes};
use crate::core::stored_view::{status_of, view};
use crate::core::world::ClusterView;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use ha_api_types::view::{EffectKind, Plan, PlannedEffect};
use ha_scheduler::{Verdict, View, choose, place};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Returns the effects of the change from `before` to `after`.
///
/// Only differences count: actions that would happen without the change are omitted. Services are placed one at a time
/// in the order of recovery (higher priority first). Each placement takes the earlier placements into account.
pub(crate) fn planned_effects(before: &ClusterView, after: &ClusterView) -> Plan {
    let (view_before, conflicts_before) = view(before);
    let (view_after, conflicts_after) = view(after);
    let mut comparison = Comparison { before, after, view_before, view_after, plan: Plan::default() };
    comparison.compare_all(before.resources.keys().chain(after.resources.keys()).collect());
    let mut plan = comparison.plan;
    plan.effects.sort_by(|left, right| left.resource.cmp(&right.resource));
    for conflict in conflicts_after.iter().filter(|conflict| !conflicts_before.contains(conflict)) {
        plan.warnings.push(format!("rule {} would not be applied: {}", conflict.rule, conflict.message));
    }
    plan
}

/// Maximum number of resources up to which all of them are simulated. In larger clusters, a change that names no
/// resource moves none.
const MAX_SIMULATED: usize = 300;

/// Returns the placement of services once the cluster has settled after a change. With `only_resource`, no other
/// resource changes.
pub(crate) fn view_after_moves(
    before: &ClusterView,
    after: &ClusterView,
    only_resource: Option<&ResourceName>,
) -> View {
    let (view_before, _) = view(before);
    let (view_after, _) = view(after);
    let mut comparison = Comparison { before, after, view_before, view_after, plan: Plan::default() };
    let companions = only_resource
        .map(|name| comparison.view_after.rules.strict_affinity_partners(name))
        .unwrap_or_default();
    let names: BTreeSet<&ResourceName> = match only_resource {
        Some(name) => companions.iter().chain([name]).collect(),
        None if after.resources.len() <= MAX_SIMULATED => {
            before.resources.keys().chain(after.resources.keys()).collect()
        }
        None => BTreeSet::new(),
    };
    comparison.compare_all(names.clone());
    // A stopped service without a node gets one too.
    for name in names {
        let facts = comparison.view_after.services.get(name);
        let Some(facts) = facts.filter(|facts| facts.stopped && facts.node.is_none()).cloned() else {
            continue;
        };
        let chosen_node = choose(&comparison.view_after, name, &facts).0.cloned();
        if let Some(mut facts) = comparison.view_after.services.get_mut(name) {
            facts.node = chosen_node;
        }
    }
    comparison.view_after
}

struct Comparison<'a> {
    before: &'a ClusterView,
    after: &'a ClusterView,
    view_before: View,
    view_after: View,
    plan: Plan,
}

/// Returns a resource that is managed and not being deleted.
fn managed<'w>(cluster_view: &'w ClusterView, name: &ResourceName) -> Option<&'w Resource> {
    cluster_view
        .resources
        .get(name)
        .map(|resource| &resource.value)
        .filter(|resource| resource.metadata.deletion_timestamp.is_none())
}

impl Comparison<'_> {
    /// Compares services of higher priority first, in the order of recovery.
    fn compare_all(&mut self, names: BTreeSet<&ResourceName>) {
        let mut order: Vec<&ResourceName> = names.into_iter().collect();
        order.sort_by_key(|name| {
            let priority = self.after.resources.get(*name).map_or(0, |resource| resource.value.spec.priority);
            (Reverse(priority), (*name).clone())
        });
        for name in order {
            self.compare(name);
        }
    }

    fn compare(&mut self, name: &ResourceName) {
        let old = managed(self.before, name);
        let new = managed(self.after, name);
        let status = old.map(|old| status_of(self.before, old)).unwrap_or_default();
        // The node where the service runs or may run.
        let current_node = status.node.clone().filter(|_| status.running || !used_nodes(&status).is_empty());
        let state_before = old.map(|old| old.spec.state);
        match (new.map(|new| new.spec.state), current_node) {
            (None | Some(RequestedState::Ignored), Some(node)) => {
                if state_before.is_some_and(|state_before| state_before != RequestedState::Ignored) {
                    self.add_effect(name, EffectKind::Release, Some(node), None, Reason::Deleted);
                }
                self.remove_from_node(name);
            }
            (Some(RequestedState::Stopped | RequestedState::Disabled), Some(node)) => {
                if state_before == Some(RequestedState::Started) {
                    let reason = Reason::Stopped;
                    self.add_effect(name, EffectKind::Stop, Some(node), None, reason);
                }
                self.remove_from_node(name);
            }
            (Some(RequestedState::Started), Some(node)) => {
                if status.state != ServiceState::Error {
                    self.compare_running(name, &node);
                }
            }
            (Some(RequestedState::Started), None) => self.compare_stopped(name, state_before, &status),
            (
                None | Some(RequestedState::Ignored | RequestedState::Stopped | RequestedState::Disabled),
                None,
            ) => {}
        }
    }

    /// Records the effect on a service that does not run and is requested to run.
    fn compare_stopped(
        &mut self,
        name: &ResourceName,
        state_before: Option<RequestedState>,
        status: &ResourceStatus,
    ) {
        let was_requested = state_before == Some(RequestedState::Started);
        if was_requested && status.state == ServiceState::Error {
            return;
        }
        let chosen = self.choose(name);
        let had_eligible_node = was_requested
            && self
                .view_before
                .services
                .get(name)
                .is_some_and(|facts| choose(&self.view_before, name, facts).0.is_some());
        match chosen {
            Some(node) if !had_eligible_node => {
                self.add_effect(name, EffectKind::Start, None, Some(node.clone()), Reason::Scheduled);
                self.place_on(name, &node);
            }
            // The service starts there with or without the change.
            Some(node) => self.place_on(name, &node),
            None if had_eligible_node || !was_requested => {
                self.add_effect(name, EffectKind::Wait, None, None, Reason::Unschedulable);
                self.plan.warnings.push(format!("{name}: {}", Reason::Unschedulable.sentence()));
            }
            None => {}
        }
    }

    /// Records the effect on a service that runs and is still requested to run.
    fn compare_running(&mut self, name: &ResourceName, node: &NodeName) {
        let before = movement(&self.view_before, name, node);
        let after = movement(&self.view_after, name, node);
        match after {
            Movement::Stay => {}
            Movement::Move(target, reason) => {
                if before != Movement::Move(target.clone(), reason) {
                    let has_device =
                        self.after.nodes.get(&target).is_some_and(|node| has_fence_device(&node.value));
                    let new = managed(self.after, name);
                    let live = new.is_some_and(|new| {
                        let spec = &new.spec;
                        spec.driver.can_migrate() && may_move_live(&spec.driver, spec, has_device)
                    });
                    if let Some(note) = new.and_then(|new| ungated_note(&new.spec, &target, has_device)) {
                        self.plan.warnings.push(format!("{name} would move {node} → {target}, {note}"));
                    }
                    let kind = if live { EffectKind::Migrate } else { EffectKind::Relocate };
                    self.add_effect(name, kind, Some(node.to_owned()), Some(target.clone()), reason);
                }
                self.place_on(name, &target);
            }
            Movement::Stuck => {
                if before != Movement::Stuck {
                    let text =
                        format!("{name} would no longer be allowed on {node}, and no other node is eligible");
                    self.plan.warnings.push(text);
                }
            }
        }
    }

    fn choose(&self, name: &ResourceName) -> Option<NodeName> {
        let facts = self.view_after.services.get(name)?;
        choose(&self.view_after, name, facts).0.cloned()
    }

    /// Assigns the service to this node, and counts it only there.
    fn place_on(&mut self, name: &ResourceName, node: &NodeName) {
        if let Some(mut facts) = self.view_after.services.get_mut(name) {
            facts.node = Some(node.to_owned());
            facts.used_nodes = BTreeSet::from([node.to_owned()]);
        }
    }

    /// Stops counting the service on any node.
    fn remove_from_node(&mut self, name: &ResourceName) {
        if let Some(mut facts) = self.view_after.services.get_mut(name) {
            facts.used_nodes.clear();
        }
    }

    fn add_effect(
        &mut self,
        name: &ResourceName,
        kind: EffectKind,
        from: Option<NodeName>,
        to: Option<NodeName>,
        reason: Reason,
    ) {
        let mut planned =
            PlannedEffect { resource: name.clone(), effect: kind, from, to, reason, message: String::new() };
        planned.message = planned.sentence();
        self.plan.effects.push(planned);
    }
}

/// Automatic movement of a running service.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Movement {
    Stay,
    Move(NodeName, Reason),
    /// Leave the node, but no other node is eligible.
    Stuck,
}

/// Returns the movement of a service that runs on this node, by the leader's rules.
fn movement(view: &View, name: &ResourceName, node: &NodeName) -> Movement {
    let Some(facts) = view.services.get(name) else { return Movement::Stay };
    let placement = place(view, name, facts);
    let must_leave = match placement.verdicts.get(node) {
        Some(Verdict::Allowed(_)) => false,
        Some(Verdict::Refused(refusals)) => {
            if !refusals.iter().any(|refusal| refusal.evicts_running) {
                return Movement::Stay;
            }
            true
        }
        None => return Movement::Stay,
    };
    match placement.node {
        None if must_leave => Movement::Stuck,
        Some(target) if target != *node => {
            Movement::Move(target, if must_leave { Reason::PlacementChanged } else { placement.reason })
        }
        Some(_) | None => Movement::Stay,
    }
}
