//! Checks whether a node is eligible for a service, and reports every blocking reason with its suggested action.

use crate::placement_query::{
    AffinityPartners, AntiAffinityPartners, Candidate, ExclusionTagUsers, Member, OutsideUse, PlacementQuery,
};
use crate::unit::PlacementUnit;
use crate::view::{NodeFacts, Refusal, ServiceFacts, View};
use crate::words::{joined, with_verb};
use ha_api_types::cluster::SchedulerSpec;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::reason::Reason;

/// Returns `true` if a running service leaves its node for this reason. All other reasons only prevent new placements.
pub fn evicts(reason: Reason) -> bool {
    [
        Reason::NodeInMaintenance,
        Reason::NotInGroup,
        Reason::NodeAffinity,
        Reason::NegativePartner,
        Reason::PositivePartner,
    ]
    .contains(&reason)
}

/// Returns `true` if a running service leaves this node for this reason.
///
/// Exclusive services leave a node whose watchdog can no longer be renewed. A watchdog that cannot be armed only
/// prevents new placements.
pub fn evicts_from(node: &NodeFacts, reason: Reason) -> bool {
    evicts(reason) || (node.watchdog_failed && reason == Reason::WatchdogFailed)
}

/// Returns every reason that blocks a node for a unit: those of the service, of its partners, and of their summed
/// requests.
/// An empty list means that the node is eligible.
pub fn refusals(
    view: &View,
    unit: &PlacementUnit<'_>,
    node_name: &NodeName,
    node: &NodeFacts,
) -> Vec<Refusal> {
    query_refusals(&PlacementQuery::of(view, unit), node_name, node)
}

/// Returns every reason that blocks a node, with message and suggested action.
pub(crate) fn query_refusals(
    query: &PlacementQuery<'_>,
    node_name: &NodeName,
    node: &NodeFacts,
) -> Vec<Refusal> {
    let mut refusals: Vec<Refusal> = Vec::new();
    let mut all_use_node = true;
    for (index, member) in query.members.iter().enumerate() {
        let uses_node = member.facts.used_nodes.contains(node_name);
        all_use_node &= uses_node;
        check_member(member, node_name, node, &mut |reason, describe| {
            let Some(evicts_running) = eviction_by_reason(node, index == 0, uses_node, reason) else {
                return;
            };
            let (message, remedy) = describe();
            let is_same = |refusal: &&mut Refusal| refusal.reason == reason && refusal.message == message;
            if index == 0 {
                refusals.push(Refusal { reason, message, remedy, evicts_running });
            } else if let Some(refusal) = refusals.iter_mut().find(is_same) {
                refusal.evicts_running = true;
            } else {
                let message = format!("{} (strict affinity): {message}", member.name);
                refusals.push(Refusal { reason, message, remedy, evicts_running });
            }
        });
    }
    report_shortages(query, node_name, node, query.outside_use(node_name), &mut |shortage| {
        let CapacityShortage { reason, amount_name, requested, free, capacity } = shortage;
        let free = Quantity::from_milli(free.max(0));
        let request = if query.members.len() > 1 {
            "requested together with services that have strict affinity"
        } else {
            "requested"
        };
        refusals.push(Refusal {
            reason,
            message: format!("not enough {amount_name}: {requested} {request}, {free} of {capacity} free"),
            remedy: format!("free {amount_name} on {node_name}, or lower the request"),
            evicts_running: !all_use_node,
        });
    });
    refusals
}

/// Returns `true` if a node is eligible for a unit, that is, if [`query_refusals`] would return an empty list.
pub(crate) fn is_eligible(query: &PlacementQuery<'_>, candidate: &Candidate<'_>) -> bool {
    let Candidate { name: node_name, node, outside_use } = candidate;
    let mut allowed = true;
    for (index, member) in query.members.iter().enumerate() {
        check_member(member, node_name, node, &mut |reason, _| {
            let uses_node = member.facts.used_nodes.contains(*node_name);
            allowed &= eviction_by_reason(node, index == 0, uses_node, reason).is_none();
        });
        if !allowed {
            return false;
        }
    }
    report_shortages(query, node_name, node, *outside_use, &mut |_| allowed = false);
    allowed
}

/// Returns `None` if a reason does not block the node for a member; otherwise returns `Some(true)` if the member leaves
/// for this reason, and `Some(false)` if not. A reason that only prevents new placements does not count for a partner
/// that already uses the node.
fn eviction_by_reason(node: &NodeFacts, is_first: bool, uses_node: bool, reason: Reason) -> Option<bool> {
    let evicts_running = evicts_from(node, reason) || (!is_first && !uses_node);
    (is_first || evicts_running).then_some(evicts_running)
}

/// A callback for a reason, with a function that returns its message and its suggested action.
type ReportRefusal<'t> = &'t mut dyn FnMut(Reason, &dyn Fn() -> (String, String));

fn check_member(member: &Member<'_>, node_name: &NodeName, node: &NodeFacts, refuse: ReportRefusal<'_>) {
    let Member { name, facts: service, .. } = member;
    if let Err(reason) = node.online {
        refuse(Reason::NodeNotOnline, &|| {
            (format!("node is not online: {}", reason.sentence()), format!("start {node_name} or its agent"))
        });
    }
    if node.maintenance {
        refuse(Reason::NodeInMaintenance, &|| {
            ("node is in maintenance".to_owned(), format!("hactl node maintenance disable {node_name}"))
        });
    }
    if !node.schedulable {
        refuse(Reason::NodeUnschedulable, &|| {
            ("node is unschedulable".to_owned(), format!("hactl uncordon {node_name}"))
        });
    }
    if service.exclusive && node.disarmed {
        refuse(Reason::Disarmed, &|| (Reason::Disarmed.sentence().to_owned(), "hactl arm".to_owned()));
    } else if service.exclusive
        && let Err(reason) = node.fenceable
    {
        refuse(reason, &|| {
            let remedy = if reason == Reason::NodeUnverified {
                reason.help().to_owned()
            } else {
                format!("hactl doctor {node_name}")
            };
            (reason.sentence().to_owned(), remedy)
        });
    }
    match &service.driver {
        None => refuse(Reason::BadConfiguration, &|| {
            (
                "resource does not name exactly one driver".to_owned(),
                "set exactly one key under spec.driver".to_owned(),
            )
        }),
        Some(driver) if !node.drivers.is_empty() && !node.drivers.contains(driver) => {
            refuse(Reason::DriverMissing, &|| {
                (
                    format!("driver {driver} is not available on the node"),
                    format!("install the programs of driver {driver} on {node_name}"),
                )
            });
        }
        Some(_) => {}
    }
    if let Some(refusal) = service.policy_refusal(node) {
        refuse(Reason::NodePolicy, &|| {
            (
                refusal.to_owned(),
                format!("change policy in /etc/hactl/agent.yaml on {node_name}, or change the resource"),
            )
        });
    }
    if service.incompatible_nodes.contains(node_name) {
        refuse(Reason::NotInstalled, &|| {
            (
                "program or configuration of the service is missing on the node".to_owned(),
                format!("install the program on {node_name}, then run hactl clear-error {name}"),
            )
        });
    }
    check_node_constraints(member, node_name, refuse);
    check_partners(member, node_name, refuse);
    check_storage(name, service, node_name, node, refuse);
}

/// Reports the reasons that follow from the group and the node-affinity rule.
fn check_node_constraints(member: &Member<'_>, node_name: &NodeName, refuse: ReportRefusal<'_>) {
    if let Some((group_name, group)) = member.group
        && group.restricted
        && !group.nodes.0.contains_key(node_name)
    {
        refuse(Reason::NotInGroup, &|| {
            (
                format!("node is not a member of the restricted group {group_name}"),
                format!("add {node_name} to group {group_name}, or set restricted of the group to false"),
            )
        });
    }
    if let Some(rule) = member.node_rule
        && rule.strict
        && !rule.nodes.0.contains_key(node_name)
    {
        refuse(Reason::NodeAffinity, &|| {
            (
                format!("node is excluded by rule {}", rule.name),
                format!("add {node_name} to rule {}, or set strict of the rule to false", rule.name),
            )
        });
    }
}

/// Reports the reasons that follow from the nodes of other services.
fn check_partners(member: &Member<'_>, node_name: &NodeName, refuse: ReportRefusal<'_>) {
    for AntiAffinityPartners { rule, by_node } in
        member.anti_affinity.iter().filter(|partners| partners.rule.strict)
    {
        let Some(partners_on_node) = by_node.get(node_name) else { continue };
        refuse(Reason::NegativePartner, &|| {
            let (use_it, partners_on_node, rule) =
                (with_verb(partners_on_node, "uses", "use"), joined(partners_on_node), &rule.name);
            (
                format!("{use_it} the node (anti-affinity rule {rule})"),
                format!("move or stop {partners_on_node}, or set strict of rule {rule} to false"),
            )
        });
    }
    for AffinityPartners { rule, running } in member.affinity.iter().filter(|partners| partners.rule.strict) {
        let is_elsewhere = |facts: &ServiceFacts| {
            facts.current_or_target_node().is_some_and(|target_node| target_node != node_name)
        };
        if !running.iter().any(|(_, facts)| is_elsewhere(facts)) {
            continue;
        }
        refuse(Reason::PositivePartner, &|| {
            let elsewhere = running.iter().filter(|(_, facts)| is_elsewhere(facts));
            let elsewhere = elsewhere.map(|(other, _)| *other).collect::<Vec<_>>();
            let (are, elsewhere, rule) = (with_verb(&elsewhere, "is", "are"), joined(&elsewhere), &rule.name);
            (
                format!("{are} on another node and cannot move now (affinity rule {rule})"),
                format!("wait until {elsewhere} can move; all services of the rule move together"),
            )
        });
    }
    for ExclusionTagUsers { tag, by_node } in &member.exclusion_tags {
        let Some(other) = by_node.get(node_name) else { continue };
        refuse(Reason::ExclusionTag, &|| {
            (format!("{other} with the same exclusion tag {tag} uses the node"), format!("move {other} away"))
        });
    }
}

fn check_storage(
    name: &ResourceName,
    service: &ServiceFacts,
    node_name: &NodeName,
    node: &NodeFacts,
    refuse: ReportRefusal<'_>,
) {
    if let Some(pool) = &service.storage_pool
        && !node.storage_pools.contains(pool)
    {
        refuse(Reason::StorageUnreachable, &|| {
            (
                format!("storage pool {pool} is not connected to the node"),
                format!("connect {pool} to {node_name}, then add {pool} to spec.storagePools of the node"),
            )
        });
    }
    if let Some(nodes) = &service.storage_nodes
        && !nodes.contains(node_name)
    {
        refuse(Reason::StorageUnreachable, &|| {
            let remedy = if service.replaces_secondary {
                format!("hactl replace-secondary {name} {node_name}")
            } else {
                format!("replicate the data to {node_name} first")
            };
            ("node has no copy of the data".to_owned(), remedy)
        });
    }
}

/// An amount that a unit requests and that a node does not have free.
struct CapacityShortage {
    reason: Reason,
    amount_name: &'static str,
    requested: Quantity,
    /// Free amount in thousandths; negative if services already request more than the node has.
    free: i128,
    capacity: Quantity,
}

/// Reports the amounts that a unit lacks on a node. An amount that only members already on the node request does not
/// count for the members that join them.
fn report_shortages(
    query: &PlacementQuery<'_>,
    node_name: &NodeName,
    node: &NodeFacts,
    outside_use: OutsideUse<'_>,
    report: &mut dyn FnMut(CapacityShortage),
) {
    let amounts = |amounts: &Amounts| [amounts.cpu, amounts.memory, amounts.disk];
    let (requests, capacity) = (amounts(&query.requests), amounts(&node.capacity));
    let newcomers = || query.members.iter().filter(|member| !member.facts.used_nodes.contains(node_name));
    let requested_by_newcomers =
        |index: usize| newcomers().any(|member| amounts(&member.facts.requests)[index].is_some());
    for (index, kind) in AMOUNT_KINDS.into_iter().enumerate() {
        let (Some(requested), Some(capacity)) = (requests[index], capacity[index]) else { continue };
        let Some(limit) = limit(&query.view.settings, node, kind) else { continue };
        let free = limit.saturating_sub(outside_use.requested(index));
        let adds_use = requested_by_newcomers(index) || newcomers().next().is_none();
        if requested.milli() > free && adds_use {
            let (reason, amount_name) = match kind {
                AmountKind::Cpu => (Reason::NotEnoughCpu, "CPU"),
                AmountKind::Memory => (Reason::NotEnoughMemory, "memory"),
                AmountKind::Disk => (Reason::NotEnoughDisk, "disk"),
            };
            report(CapacityShortage { reason, amount_name, requested, free, capacity });
        }
    }
}

/// The kinds of amounts that a service can request.
#[derive(Clone, Copy, Debug)]
enum AmountKind {
    Cpu,
    Memory,
    Disk,
}

const AMOUNT_KINDS: [AmountKind; 3] = [AmountKind::Cpu, AmountKind::Memory, AmountKind::Disk];

/// Returns the maximum of all requests on a node: cpu, memory and disk in thousandths. `None` means
/// unlimited.
pub fn limits(settings: &SchedulerSpec, node: &NodeFacts) -> [Option<i128>; 3] {
    AMOUNT_KINDS.map(|kind| limit(settings, node, kind))
}

fn limit(settings: &SchedulerSpec, node: &NodeFacts, kind: AmountKind) -> Option<i128> {
    let (capacity, reserved) = (&node.capacity, &node.reserved);
    let (capacity, reserved, factor) = match kind {
        AmountKind::Cpu => (capacity.cpu, reserved.cpu, settings.max_cpu_ratio),
        AmountKind::Memory => (capacity.memory, reserved.memory, settings.overcommit),
        AmountKind::Disk => (capacity.disk, reserved.disk, settings.overcommit),
    };
    Some(scale(capacity?, factor).milli().saturating_sub(reserved.unwrap_or_default().milli()))
}

#[allow(clippy::cast_possible_truncation, reason = "a float beyond i128 saturates, which is no limit at all")]
fn scale(capacity: Quantity, factor: f64) -> Quantity {
    if (factor - 1.0).abs() < f64::EPSILON {
        return capacity;
    }
    // Most amounts fit into 64 bits, whose conversion is much faster and gives the same result.
    let milli = i64::try_from(capacity.milli()).map_or(capacity.milli() as f64, |milli| milli as f64);
    let scaled = milli * factor.max(0.0);
    let max_milli = (i64::MAX / 2) as f64;
    Quantity::from_milli(if scaled < max_milli { i128::from(scaled as i64) } else { scaled as i128 })
}
