//! The input of the failover capacity check: stopped services count as if they ran, and amounts follow the configured
//! basis.

use crate::view::{ServiceFacts, View};
use ha_api_types::cluster::ReservationBasis;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::quantity::Amounts;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Returns the facts of a service as the failover capacity check counts them.
pub fn counted_facts<'a>(view: &View, name: &ResourceName, facts: &'a ServiceFacts) -> Cow<'a, ServiceFacts> {
    let mut counted = Cow::Borrowed(facts);
    if facts.stopped && view.reservation.count_stopped {
        if !facts.used_nodes.is_empty() {
            counted.to_mut().is_desired = true;
        } else if let Some(assumed_node) = node_of_stopped(view, name, facts) {
            let counted = counted.to_mut();
            counted.used_nodes = BTreeSet::from([assumed_node.to_owned()]);
            counted.node = Some(assumed_node.to_owned());
            (counted.is_desired, counted.movable) = (true, true);
        }
    }
    let amounts = amounts(view.reservation.basis, &counted);
    if amounts != counted.requests {
        counted.to_mut().requests = amounts;
    }
    counted
}

/// Returns the node on which a stopped service would run. It is the node of a running partner, or else the last node of the
/// first stopped member that has one.
fn node_of_stopped<'v>(view: &'v View, name: &ResourceName, facts: &'v ServiceFacts) -> Option<&'v NodeName> {
    let mut affinity_set = view.rules.strict_affinity_partners(name);
    if affinity_set.is_empty() {
        return facts.node.as_ref();
    }
    affinity_set.insert(name.to_owned());
    let members = || affinity_set.iter().filter_map(|member| view.services.get(member));
    members()
        .find_map(ServiceFacts::current_or_target_node)
        .or_else(|| members().filter(|member| member.stopped).find_map(|member| member.node.as_ref()))
        .or(facts.node.as_ref())
}

/// Returns the amounts that count for a service. Amounts without a measurement count as requested.
fn amounts(basis: ReservationBasis, facts: &ServiceFacts) -> Amounts {
    let (measured, requests) = (facts.measured, facts.requests);
    match basis {
        ReservationBasis::Requests => requests,
        ReservationBasis::Measured => Amounts {
            cpu: measured.cpu.or(requests.cpu),
            memory: measured.memory.or(requests.memory),
            disk: requests.disk,
        },
        ReservationBasis::Max => Amounts {
            cpu: measured.cpu.max(requests.cpu),
            memory: measured.memory.max(requests.memory),
            disk: requests.disk,
        },
    }
}
