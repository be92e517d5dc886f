//! Evening the load of nodes by moves of running services: when that is time for, and which services take part.
//!
//! It acts only while nothing else goes on, and moves only from nodes that carried more than the mean for `holdSeconds` of such
//! rest, to nodes that carried less for as long: a load that swings moves nothing. After each move the time begins anew, so that
//! the next one is judged by what the last one has brought about.

use super::{Draft, Planner, Service, moves, operation};
use crate::core::health::Health;
use crate::core::placement::settling_until;
use crate::core::plan::Subject;
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::reason::Reason;
use ha_api_types::resource::ServiceState;
use ha_api_types::time::Millis;
use ha_scheduler::rebalance::{Loads, best_move};
use ha_scheduler::{Placement, ServiceFacts, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// What runs for so long on a node was measured there, or will not be.
const MEASURED_AFTER_MS: Millis = 60_000;

/// Decides which services are moved now.
pub(super) fn plan(planner: &mut Planner<'_>, operations: &BTreeMap<&str, operation::Request<'_>>) {
    let situation = planner.situation;
    let settings = planner.view.settings.auto_rebalance.clone();
    if !settings.enabled || !is_at_rest(planner) {
        return;
    }
    let loads = Loads::of(&planner.view);
    if loads.unevenness() <= settings.threshold {
        return;
    }
    planner.plan.uneven = loads.sides().map(|(node, above)| (node.to_owned(), above)).collect();
    let now = situation.now.raw;
    let mut lasting: BTreeMap<String, bool> = BTreeMap::new();
    for (node, above) in planner.plan.uneven.clone() {
        let known = situation.uneven.get(&node).filter(|side| side.above == above);
        let due = known.map_or(now, |side| side.since) + u64::from(settings.hold_seconds) * 1000;
        if now >= due {
            lasting.insert(node, above);
        } else {
            planner.plan.wake(&situation, due, "the load of nodes has been uneven for long enough");
        }
    }
    let suits = |from: &str, to: &str| lasting.get(from) == Some(&true) && lasting.get(to) == Some(&false);
    if lasting.is_empty() {
        return;
    }
    let mut services: BTreeSet<&str> = situation
        .world
        .resources
        .keys()
        .map(String::as_str)
        .filter(|name| !operations.contains_key(name) && is_ready(planner, name))
        .collect();
    let mut view = planner.view.clone();
    for _ in 0..settings.max_moves {
        let Some(planned) = best_move(&view, &services, suits) else { break };
        services.remove(planned.service.as_str());
        if let Some(mut facts) = view.services.get_mut(&planned.service) {
            facts.node = Some(planned.to.clone());
            facts.uses = BTreeSet::from([planned.to.clone()]);
        }
        planner.rebalances.insert(planned.service.clone(), planned);
        if Loads::of(&view).unevenness() <= settings.threshold {
            break;
        }
    }
}

/// Whether nothing else goes on: no node comes or goes, no service starts or moves, no write is under way, and in mode Dynamic
/// what has just come to run was measured.
fn is_at_rest(planner: &Planner<'_>) -> bool {
    let situation = planner.situation;
    let writes = situation.busy.iter().any(|subject| matches!(subject, Subject::Service(_)));
    let settles = settling_until(&situation).is_some_and(|until| situation.now.raw < until);
    let nodes_rest = planner.nodes.values().all(|node| match node.health {
        Health::Unregistered | Health::Online | Health::Down(_) => true,
        Health::Registering
        | Health::Late
        | Health::ShuttingDown(_)
        | Health::Restarting
        | Health::Leaving(_)
        | Health::Fencing => false,
    });
    let disarmed = situation.world.settings().disarmed.is_some();
    !writes
        && !settles
        && nodes_rest
        && !disarmed
        && planner.view.services.iter().all(|(name, facts)| rests(planner, name, facts))
}

fn rests(planner: &Planner<'_>, name: &str, facts: &ServiceFacts) -> bool {
    let Some(status) = planner.situation.world.resource_statuses.get(name) else { return true };
    match status.value.state {
        ServiceState::Started => {
            let is_measured = match planner.view.settings.mode {
                SchedulerMode::Basic | SchedulerMode::Static => true,
                SchedulerMode::Dynamic => facts.measured.cpu.is_some() && facts.measured.memory.is_some(),
            };
            is_measured || planner.situation.now.raw >= status.seen + MEASURED_AFTER_MS
        }
        // Such a one may wait for long, and uses no node.
        ServiceState::Queued
        | ServiceState::RequestStart
        | ServiceState::Recovery
        | ServiceState::Stopped
        | ServiceState::Error
        | ServiceState::Disabled
        | ServiceState::Ignored => true,
        ServiceState::Starting
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Freeze
        | ServiceState::Fence
        | ServiceState::Deleting => false,
    }
}

/// Whether it could be moved now, as it was last assigned, and no failed move is to be waited for.
fn is_ready(planner: &Planner<'_>, name: &str) -> bool {
    let world = planner.situation.world;
    let Some(status) = world.resource_statuses.get(name) else { return false };
    let Some(assignment) = world.assignments.get(name) else { return false };
    let failures = status.value.move_failures;
    let paused = failures > 0 && planner.situation.now.raw < status.seen + moves::pause_ms(failures);
    status.value.running && assignment.value.definition.driver.can_migrate() && !paused
}

/// Begins the move of a service that evens the load, if there is one and its node may still take it. `true`: it is begun.
pub(super) fn carry_out(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    placement: &Placement,
) -> bool {
    let Some(planned) = planner.rebalances.remove(service.name) else { return false };
    if !matches!(placement.verdicts.get(&planned.to), Some(Verdict::Allowed(_))) {
        return false;
    }
    if !moves::begin(planner, service, draft, &planned.to, true, Reason::Rebalanced) {
        return false;
    }
    draft.status.operation = None;
    let (before, after) = (planned.before, planned.after);
    let message = format!("{}, unevenness {before:.2} becomes {after:.2}", draft.message);
    if let Some((_, _, told)) = draft.told.last_mut() {
        told.clone_from(&message);
    }
    draft.message = message;
    true
}
