//! What services of a live cluster load their nodes with: measured use as a share of what the node has.

use crate::balance::model::{DEFAULT_LOAD, LOAD_UNIT};
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::usage::Usage;
use ha_api_types::view::UsageOverview;
use std::collections::BTreeMap;

/// What a node is taken to bear on its disks, and on its network, where nothing busier was measured: 100 MiB a second.
const LEAST_RATE: f64 = 104_857_600.0;

/// How busy disks and networks are at most: nobody knows what they could bear.
struct Rates {
    disk: f64,
    network: f64,
}

/// The loads of every service that uses a node: cpu, memory, disk, network.
///
/// Cpu and memory are shares of the node's capacity, disk and network shares of the busiest node's, at least of 100 MiB/s. A
/// service that was not measured, as one that was moved just now, is taken to use as much of its requests as the others do, else
/// their mean. A kind of which nothing was measured
/// loads every node with 1 for each service, as without measurements. What does not run loads nothing.
pub(super) fn loads<'a>(view: &'a View, usage: &UsageOverview) -> BTreeMap<&'a str, [i64; 4]> {
    let measured: BTreeMap<&str, Usage> =
        usage.resources.iter().filter_map(|each| Some((each.name.as_str(), each.usage?))).collect();
    let busiest = |rate: fn(&Usage) -> Option<Quantity>| {
        let rates = usage.nodes.iter().filter_map(|node| rate(node.usage.as_ref()?));
        rates.map(Quantity::as_f64).fold(LEAST_RATE, f64::max)
    };
    let rates =
        Rates { disk: busiest(|usage| usage.disk_rate), network: busiest(|usage| usage.network_rate) };
    let running: Vec<(&str, &ServiceFacts, &NodeFacts)> = view
        .services
        .iter()
        .filter(|(_, facts)| !facts.uses.is_empty())
        .filter_map(|(name, facts)| Some((name.as_str(), facts, view.nodes.get(facts.node.as_ref()?)?)))
        .collect();
    let mut loads: BTreeMap<&str, [i64; 4]> =
        running.iter().map(|(name, _, _)| (*name, DEFAULT_LOAD)).collect();
    for kind in 0..4 {
        let known: Vec<Option<f64>> = running
            .iter()
            .map(|(name, _, node)| shares(measured.get(name)?, &node.capacity, &rates)[kind])
            .collect();
        let count = known.iter().flatten().count();
        if count == 0 {
            continue;
        }
        let asked: Vec<Option<f64>> =
            running.iter().map(|(_, facts, node)| requested(&facts.requests, &node.capacity)[kind]).collect();
        let used = share_used(known.iter().copied().zip(asked.iter().copied()));
        let mean = known.iter().flatten().sum::<f64>() / count as f64;
        for (((name, _, _), known), asked) in running.iter().zip(known).zip(asked) {
            let estimate = asked.zip(used).map_or(mean, |(asked, used)| asked * used);
            if let Some(load) = loads.get_mut(name) {
                load[kind] = in_units(known.unwrap_or(estimate));
            }
        }
    }
    loads
}

/// Which share of their requests services use, those that were measured and asked for any.
fn share_used(services: impl Iterator<Item = (Option<f64>, Option<f64>)>) -> Option<f64> {
    let pairs = services.filter_map(|(known, asked)| known.zip(asked));
    let (known, asked) = pairs.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    (asked > 0.0).then_some(known / asked)
}

/// What was measured, as far as there is something to compare it with.
fn shares(usage: &Usage, capacity: &Amounts, rates: &Rates) -> [Option<f64>; 4] {
    [
        share(usage.cpu, capacity.cpu),
        share(usage.memory, capacity.memory),
        usage.disk_rate.map(|rate| rate.as_f64() / rates.disk),
        usage.network_rate.map(|rate| rate.as_f64() / rates.network),
    ]
}

fn requested(requests: &Amounts, capacity: &Amounts) -> [Option<f64>; 4] {
    [share(requests.cpu, capacity.cpu), share(requests.memory, capacity.memory), None, None]
}

fn share(part: Option<Quantity>, whole: Option<Quantity>) -> Option<f64> {
    let whole = whole.filter(|whole| whole.milli() > 0)?;
    Some(part?.as_f64() / whole.as_f64())
}

#[expect(clippy::cast_possible_truncation, reason = "the share is at most 100")]
fn in_units(share: f64) -> i64 {
    (share.clamp(0.0, 100.0) * LOAD_UNIT as f64).round() as i64
}
