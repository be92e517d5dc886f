//! The load of services on a live cluster: measured use as a share of the node's capacity.

use crate::balance::model::{DEFAULT_LOAD, LOAD_UNIT};
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::id::ResourceName;
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::usage::Usage;
use ha_api_types::view::UsageOverview;
use std::collections::BTreeMap;

/// Minimum assumed rate of a node's disks, and of its network, in bytes per second: 100 MiB/s.
const MIN_RATE: f64 = 104_857_600.0;

/// Highest rates of disks and networks, in bytes per second. They replace capacities, which are unknown.
struct Rates {
    disk: f64,
    network: f64,
}

/// Returns the loads of every service that uses a node: cpu, memory, disk, network.
///
/// - Cpu and memory are shares of the node's capacity. Disk and network are shares of the rate of the busiest node, which
///   counts as at least 100 MiB/s.
/// - A service without a measurement, such as one that has just moved, is estimated. Its estimate is the same share of its
///   requests that the measured services use, or else their mean.
/// - If nothing was measured for a kind, each service counts as 1, as without measurements.
/// - A service that does not run has no load.
pub(super) fn loads<'a>(view: &'a View, usage: &UsageOverview) -> BTreeMap<&'a ResourceName, [i64; 4]> {
    let measured: BTreeMap<&ResourceName, Usage> =
        usage.resources.iter().filter_map(|resource| Some((&resource.name, resource.usage?))).collect();
    let busiest = |rate: fn(&Usage) -> Option<Quantity>| {
        let rates = usage.nodes.iter().filter_map(|node| rate(node.usage.as_ref()?));
        rates.map(Quantity::as_f64).fold(MIN_RATE, f64::max)
    };
    let rates =
        Rates { disk: busiest(|usage| usage.disk_rate), network: busiest(|usage| usage.network_rate) };
    let running: Vec<(&ResourceName, &ServiceFacts, &NodeFacts)> = view
        .services
        .iter()
        .filter(|(_, facts)| !facts.used_nodes.is_empty())
        .filter_map(|(name, facts)| Some((name, facts, view.nodes.get(facts.node.as_ref()?)?)))
        .collect();
    let mut loads: BTreeMap<&ResourceName, [i64; 4]> =
        running.iter().map(|(name, _, _)| (*name, DEFAULT_LOAD)).collect();
    for kind in 0..4 {
        let measured_shares: Vec<Option<f64>> = running
            .iter()
            .map(|(name, _, node)| shares(measured.get(name)?, &node.capacity, &rates)[kind])
            .collect();
        let count = measured_shares.iter().flatten().count();
        if count == 0 {
            continue;
        }
        let requested_shares: Vec<Option<f64>> = running
            .iter()
            .map(|(_, facts, node)| request_shares(&facts.requests, &node.capacity)[kind])
            .collect();
        let use_per_requested =
            use_per_request(measured_shares.iter().copied().zip(requested_shares.iter().copied()));
        let mean = measured_shares.iter().flatten().sum::<f64>() / count as f64;
        for (((name, _, _), measured_share), requested_share) in
            running.iter().zip(measured_shares).zip(requested_shares)
        {
            let estimate = requested_share
                .zip(use_per_requested)
                .map_or(mean, |(requested, use_per_requested)| requested * use_per_requested);
            if let Some(load) = loads.get_mut(name) {
                load[kind] = in_units(measured_share.unwrap_or(estimate));
            }
        }
    }
    loads
}

/// Returns the ratio of use to requests over the services that have both.
fn use_per_request(services: impl Iterator<Item = (Option<f64>, Option<f64>)>) -> Option<f64> {
    let pairs = services.filter_map(|(measured, requested)| measured.zip(requested));
    let (measured, requested) = pairs.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    (requested > 0.0).then_some(measured / requested)
}

/// Returns measured use as shares; `None` where the use or the capacity is unknown.
fn shares(usage: &Usage, capacity: &Amounts, rates: &Rates) -> [Option<f64>; 4] {
    [
        share(usage.cpu, capacity.cpu),
        share(usage.memory, capacity.memory),
        usage.disk_rate.map(|rate| rate.as_f64() / rates.disk),
        usage.network_rate.map(|rate| rate.as_f64() / rates.network),
    ]
}

fn request_shares(requests: &Amounts, capacity: &Amounts) -> [Option<f64>; 4] {
    [share(requests.cpu, capacity.cpu), share(requests.memory, capacity.memory), None, None]
}

fn share(used: Option<Quantity>, capacity: Option<Quantity>) -> Option<f64> {
    let capacity = capacity.filter(|capacity| capacity.milli() > 0)?;
    Some(used?.as_f64() / capacity.as_f64())
}

#[expect(clippy::cast_possible_truncation, reason = "the share is at most 100")]
fn in_units(share: f64) -> i64 {
    (share.clamp(0.0, 100.0) * LOAD_UNIT as f64).round() as i64
}
