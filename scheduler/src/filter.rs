//! Whether a node may take a service: every reason against it, with what would help.

use crate::view::{NodeFacts, Refusal, ServiceFacts, View};
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::reason::Reason;

/// Every reason against a node; none: it may take the service.
pub fn refusals(
    view: &View,
    name: &str,
    service: &ServiceFacts,
    node_name: &str,
    node: &NodeFacts,
) -> Vec<Refusal> {
    let mut found = Vec::new();
    let mut refuse = |reason: Reason, message: String, remedy: String| {
        found.push(Refusal { reason, message, remedy });
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
    placement_refusals(view, name, service, node_name, &mut refuse);
    storage_refusals(service, node_name, node, &mut refuse);
    for (reason, what, lack) in capacity_lacks(view, name, service, node_name, node) {
        refuse(
            reason,
            format!("not enough {what}: {lack}"),
            format!("free {what} on {node_name} or lower the request"),
        );
    }
    found
}

fn placement_refusals(
    view: &View,
    name: &str,
    service: &ServiceFacts,
    node_name: &str,
    refuse: &mut impl FnMut(Reason, String, String),
) {
    if let Some(group_name) = &service.group
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
            .filter(|other| partners.resources.contains(*other))
            .collect();
        if !there.is_empty() {
            refuse(
                Reason::NegativePartner,
                format!("{} uses the node and rule {} keeps them apart", there.join(", "), partners.name),
                format!("move {} away", there.join(", ")),
            );
        }
    }
    for partners in view.rules.together_with(name).filter(|partners| partners.strict) {
        let elsewhere: Vec<&str> = partners
            .resources
            .iter()
            .filter(|other| other.as_str() != name)
            .filter(|other| {
                view.services
                    .get(other.as_str())
                    .is_some_and(|facts| !facts.uses.is_empty() && !facts.uses.contains(node_name))
            })
            .map(String::as_str)
            .collect();
        if !elsewhere.is_empty() {
            refuse(
                Reason::PositivePartner,
                format!(
                    "{} is elsewhere and rule {} keeps them together",
                    elsewhere.join(", "),
                    partners.name
                ),
                format!("move {} there; they move together", elsewhere.join(", ")),
            );
        }
    }
    for prefix in &view.settings.exclusion_tags {
        for tag in service.tags.iter().filter(|tag| tag.starts_with(prefix.as_str())) {
            if let Some((other, _)) =
                view.users_of(node_name, name).find(|(_, facts)| facts.tags.contains(tag))
            {
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

/// What a node lacks for a service: reason, what, and by how much.
fn capacity_lacks(
    view: &View,
    name: &str,
    service: &ServiceFacts,
    node_name: &str,
    node: &NodeFacts,
) -> Vec<(Reason, &'static str, String)> {
    type Pick = fn(&Amounts) -> Option<Quantity>;
    let kinds: [(Reason, &'static str, Pick, f64); 3] = [
        (Reason::NotEnoughMemory, "memory", |amounts| amounts.memory, view.settings.overcommit),
        (Reason::NotEnoughDisk, "disk", |amounts| amounts.disk, view.settings.overcommit),
        (Reason::NotEnoughCpu, "cpu", |amounts| amounts.cpu, view.settings.max_cpu_ratio),
    ];
    let mut lacks = Vec::new();
    for (reason, what, pick, factor) in kinds {
        let (Some(wanted), Some(capacity)) = (pick(&service.requests), pick(&node.capacity)) else {
            continue;
        };
        let limit = scale(capacity, factor).milli() - pick(&node.reserved).unwrap_or_default().milli();
        let used: i128 = view
            .users_of(node_name, name)
            .filter_map(|(_, facts)| pick(&facts.requests))
            .map(Quantity::milli)
            .sum();
        let free = limit - used;
        if wanted.milli() > free {
            let free = Quantity::from_milli(free.max(0));
            lacks.push((reason, what, format!("asks for {wanted}, {free} of {capacity} is free")));
        }
    }
    lacks
}

#[allow(clippy::cast_possible_truncation, reason = "a float beyond i128 saturates, which is no limit at all")]
fn scale(capacity: Quantity, factor: f64) -> Quantity {
    if (factor - 1.0).abs() < f64::EPSILON {
        return capacity;
    }
    Quantity::from_milli((capacity.milli() as f64 * factor.max(0.0)) as i128)
}
