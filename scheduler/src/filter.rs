//! Whether a node may take a service: every reason against it, with what would help.

use crate::unit::Unit;
use crate::view::{NodeFacts, Refusal, ServiceFacts, View};
use ha_api_types::cluster::SchedulerSpec;
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::reason::Reason;

/// Reasons for which a running service leaves its node. Others only keep new services away.
pub fn drives_away(reason: Reason) -> bool {
    [
        Reason::NodeInMaintenance,
        Reason::NotInGroup,
        Reason::NodeAffinity,
        Reason::NegativePartner,
        Reason::PositivePartner,
    ]
    .contains(&reason)
}

/// Every reason against a node for a unit: of the service itself, of those that go there along with it, and of what all
/// ask for together. None: the node may take them.
pub fn refusals(view: &View, unit: &Unit<'_>, node_name: &str, node: &NodeFacts) -> Vec<Refusal> {
    let mut found: Vec<Refusal> = Vec::new();
    let (mut own, mut all_there) = (true, true);
    for (name, service) in &unit.members {
        let there = service.uses.contains(node_name);
        all_there &= there;
        for (reason, message, remedy) in of_member(view, unit, name, service, node_name, node) {
            let drives = drives_away(reason) || (!own && !there);
            if own {
                found.push(Refusal { reason, message, remedy, drives });
                continue;
            }
            // What only keeps new services away says nothing against a partner that is there.
            if !drives {
                continue;
            }
            let same = |known: &&mut Refusal| known.reason == reason && known.message == message;
            if let Some(known) = found.iter_mut().find(same) {
                known.drives = true;
            } else {
                let message = format!("{name}, which must be with it: {message}");
                found.push(Refusal { reason, message, remedy, drives });
            }
        }
        own = false;
    }
    for (reason, what, lack) in capacity_lacks(view, unit, node_name, node) {
        found.push(Refusal {
            reason,
            message: format!("not enough {what}: {lack}"),
            remedy: format!("free {what} on {node_name} or lower the request"),
            drives: !all_there,
        });
    }
    found
}

type Against = (Reason, String, String);

fn of_member(
    view: &View,
    unit: &Unit<'_>,
    name: &str,
    service: &ServiceFacts,
    node_name: &str,
    node: &NodeFacts,
) -> Vec<Against> {
    let mut found = Vec::new();
    let mut refuse = |reason: Reason, message: String, remedy: String| {
        found.push((reason, message, remedy));
    };
    if let Err(reason) = node.online {
        refuse(
            Reason::NodeNotOnline,
            format!("the node is not online: {}", reason.sentence()),
            format!("bring {node_name} back"),
        );
    }
    if node.maintenance {
        refuse(
            Reason::NodeInMaintenance,
            "the node is in maintenance".to_owned(),
            format!("hactl node maintenance disable {node_name}"),
        );
    }
    if !node.schedulable {
        refuse(
            Reason::NodeUnschedulable,
            "the node is marked unschedulable".to_owned(),
            format!("set spec.schedulable of node {node_name} to true"),
        );
    }
    if service.exclusive
        && let Err(reason) = node.fenceable
    {
        refuse(
            reason,
            reason.sentence().to_owned(),
            format!("give {node_name} a working watchdog or a fence device (Node.spec.fencing)"),
        );
    }
    match service.driver {
        None => refuse(
            Reason::BadConfiguration,
            "the resource names no driver, or more than one".to_owned(),
            "set exactly one key under spec.driver".to_owned(),
        ),
        Some(driver) if !node.drivers.is_empty() && !node.drivers.contains(driver.name()) => refuse(
            Reason::DriverMissing,
            format!("the node's agent cannot serve driver {driver}"),
            format!("install what driver {driver} needs on {node_name}"),
        ),
        Some(_) => {}
    }
    if service.never_nodes.contains(node_name) {
        refuse(
            Reason::NotInstalled,
            "the service can never run there: its program or configuration is missing".to_owned(),
            format!("install it on {node_name}, then hactl clear-error {name}"),
        );
    }
    placement_refusals(view, unit, name, service, node_name, &mut refuse);
    storage_refusals(service, node_name, node, &mut refuse);
    found
}

fn placement_refusals(
    view: &View,
    unit: &Unit<'_>,
    name: &str,
    service: &ServiceFacts,
    node_name: &str,
    refuse: &mut impl FnMut(Reason, String, String),
) {
    // A resource that a node-affinity rule names is placed by that rule, not by its group.
    if view.rules.node_rule(name).is_none()
        && let Some(group_name) = &service.group
        && let Some(group) = view.groups.get(group_name)
        && group.restricted
        && !group.nodes.0.contains_key(node_name)
    {
        refuse(
            Reason::NotInGroup,
            format!("the node is not a member of the restricted group {group_name}"),
            format!("add {node_name} to group {group_name}, or set its restricted to false"),
        );
    }
    if let Some(rule) = view.rules.node_rule(name)
        && rule.strict
        && !rule.nodes.0.contains_key(node_name)
    {
        refuse(
            Reason::NodeAffinity,
            format!("rule {} does not allow the node", rule.name),
            format!("add {node_name} to rule {}, or set its strict to false", rule.name),
        );
    }
    for partners in view.rules.apart_from(name).filter(|partners| partners.strict) {
        let there: Vec<&str> = view
            .users_of(node_name, name)
            .map(|(other, _)| other)
            .filter(|other| partners.resources.contains(*other) && !unit.contains(other))
            .collect();
        if !there.is_empty() {
            refuse(
                Reason::NegativePartner,
                format!("{} uses the node and rule {} keeps them apart", there.join(", "), partners.name),
                format!(
                    "move or stop {}, or set strict of rule {} to false",
                    there.join(", "),
                    partners.name
                ),
            );
        }
    }
    for partners in view.rules.together_with(name).filter(|partners| partners.strict) {
        let elsewhere: Vec<&str> = partners
            .resources
            .iter()
            .filter(|other| !unit.contains(other))
            .filter(|other| {
                view.services
                    .get(other.as_str())
                    .and_then(ServiceFacts::heading)
                    .is_some_and(|heading| heading != node_name)
            })
            .map(String::as_str)
            .collect();
        if !elsewhere.is_empty() {
            refuse(
                Reason::PositivePartner,
                format!(
                    "{} is elsewhere, cannot be moved now, and rule {} keeps them together",
                    elsewhere.join(", "),
                    partners.name
                ),
                format!("wait until {} can be moved; they move together", elsewhere.join(", ")),
            );
        }
    }
    for prefix in &view.settings.exclusion_tags {
        for tag in service.tags.iter().filter(|tag| tag.starts_with(prefix.as_str())) {
            let clashes = |(other, facts): &(&str, &ServiceFacts)| {
                let comes_along = unit.members.iter().any(|(member, _)| member == other && *member != name);
                !comes_along && facts.tags.contains(tag)
            };
            if let Some((other, _)) = view.users_of(node_name, name).find(clashes) {
                refuse(
                    Reason::ExclusionTag,
                    format!("{other} with the same exclusion tag {tag} is there"),
                    format!("move {other} away"),
                );
            }
        }
    }
}

fn storage_refusals(
    service: &ServiceFacts,
    node_name: &str,
    node: &NodeFacts,
    refuse: &mut impl FnMut(Reason, String, String),
) {
    if let Some(pool) = &service.storage_pool
        && !node.storage_pools.contains(pool)
    {
        refuse(
            Reason::StorageUnreachable,
            format!("the node does not reach storage pool {pool}"),
            format!("add {pool} to spec.storagePools of node {node_name} once it is connected"),
        );
    }
    if let Some(nodes) = &service.storage_nodes
        && !nodes.contains(node_name)
    {
        refuse(
            Reason::StorageUnreachable,
            "the node has no copy of its data".to_owned(),
            "replicate the data there first".to_owned(),
        );
    }
}

/// What a node lacks for a unit: reason, what, and by how much.
fn capacity_lacks(
    view: &View,
    unit: &Unit<'_>,
    node_name: &str,
    node: &NodeFacts,
) -> Vec<(Reason, &'static str, String)> {
    let Some((name, _)) = unit.members.first() else { return Vec::new() };
    let requests = unit.requests();
    let amounts = |amounts: &Amounts| [amounts.cpu, amounts.memory, amounts.disk];
    let kinds =
        [(Reason::NotEnoughCpu, "cpu"), (Reason::NotEnoughMemory, "memory"), (Reason::NotEnoughDisk, "disk")];
    let limits = limits(&view.settings, node);
    let mut lacks = Vec::new();
    for (at, (reason, what)) in kinds.into_iter().enumerate() {
        let (Some(wanted), Some(capacity), Some(limit)) =
            (amounts(&requests)[at], amounts(&node.capacity)[at], limits[at])
        else {
            continue;
        };
        let used: i128 = view
            .users_of(node_name, name)
            .filter(|(other, _)| !unit.contains(other))
            .filter_map(|(_, facts)| amounts(&facts.requests)[at])
            .map(Quantity::milli)
            .sum();
        let free = limit - used;
        if wanted.milli() > free {
            let free = Quantity::from_milli(free.max(0));
            let who = if unit.members.len() > 1 { "all that stay together ask" } else { "asks" };
            lacks.push((reason, what, format!("{who} for {wanted}, {free} of {capacity} is free")));
        }
    }
    lacks
}

/// What services may ask of a node altogether: cpu, memory, disk in thousandths; `None`: not limited.
pub fn limits(settings: &SchedulerSpec, node: &NodeFacts) -> [Option<i128>; 3] {
    let limit = |capacity: Option<Quantity>, reserved: Option<Quantity>, factor: f64| {
        Some(scale(capacity?, factor).milli() - reserved.unwrap_or_default().milli())
    };
    let (capacity, reserved) = (&node.capacity, &node.reserved);
    [
        limit(capacity.cpu, reserved.cpu, settings.max_cpu_ratio),
        limit(capacity.memory, reserved.memory, settings.overcommit),
        limit(capacity.disk, reserved.disk, settings.overcommit),
    ]
}

#[allow(clippy::cast_possible_truncation, reason = "a float beyond i128 saturates, which is no limit at all")]
fn scale(capacity: Quantity, factor: f64) -> Quantity {
    if (factor - 1.0).abs() < f64::EPSILON {
        return capacity;
    }
    Quantity::from_milli((capacity.milli() as f64 * factor.max(0.0)) as i128)
}
