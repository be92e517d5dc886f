//! What counts in the reservation check: stopped services as if they ran, and amounts by the basis that is asked for.

use crate::view::{ServiceFacts, View};
use ha_api_types::cluster::ReservationBasis;
use ha_api_types::quantity::Amounts;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// A service as the reservation check counts it.
pub fn counted<'a>(view: &View, name: &str, facts: &'a ServiceFacts) -> Cow<'a, ServiceFacts> {
    let mut counted = Cow::Borrowed(facts);
    if facts.stopped && view.reservation.count_stopped {
        if !facts.uses.is_empty() {
            counted.to_mut().wanted = true;
        } else if let Some(home) = home_of_stopped(view, name, facts) {
            let counted = counted.to_mut();
            counted.uses = BTreeSet::from([home.to_owned()]);
            counted.node = Some(home.to_owned());
            (counted.wanted, counted.movable) = (true, true);
        }
    }
    let amounts = amounts(view.reservation.basis, &counted);
    if amounts != counted.requests {
        counted.to_mut().requests = amounts;
    }
    counted
}

/// Where a stopped service would run: with those that must be with it and run, else with the first of them that has a
/// node, itself included.
fn home_of_stopped<'v>(view: &'v View, name: &str, facts: &'v ServiceFacts) -> Option<&'v str> {
    let mut set = view.rules.companions(name);
    if set.is_empty() {
        return facts.node.as_deref();
    }
    set.insert(name.to_owned());
    let members = || set.iter().filter_map(|member| view.services.get(member));
    members()
        .find_map(ServiceFacts::heading)
        .or_else(|| members().filter(|member| member.stopped).find_map(|member| member.node.as_deref()))
        .or(facts.node.as_deref())
}

/// What a service counts with. What was not measured counts by its requests.
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
