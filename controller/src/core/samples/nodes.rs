//! Metrics about nodes.

use super::{Seen, amount, flag, users};
use ha_api_types::meta::ConditionStatus;
use ha_api_types::metric::{Sample, leader};
use ha_api_types::node::{NodeState, NodeStatus};
use ha_api_types::record::{FenceState, Mode};
use ha_scheduler::View;

/// Adds the metrics of nodes. A node has one series per state, because nodes are few.
pub(super) fn add(seen: &Seen<'_>, view: &View, samples: &mut Vec<Sample>) {
    let world = seen.world;
    for (name, node) in &world.nodes {
        let status = world.node_statuses.get(name).map(|known| &known.value);
        let state = status.map(|status| status.state).unwrap_or_default();
        for one in NodeState::ALL {
            samples.push(leader::NODE_STATE.sample([name, &format!("{one:?}")], flag(one == state)));
        }
        if let Some(fence) = world.fences.get(name) {
            for one in FenceState::ALL {
                let is_so = flag(one == fence.value.state);
                samples.push(leader::NODE_FENCE_STATE.sample([name, one.name()], is_so));
            }
        }
        samples.push(leader::NODE_MAINTENANCE.sample([name], flag(node.value.spec.maintenance)));
        if let Some(heard) = world.observations.get(name).filter(|heard| heard.revision.is_some()) {
            let age_ms = seen.now.raw.since(heard.since);
            samples.push(leader::NODE_HEARTBEAT_AGE.sample([name], age_ms as f64 / 1000.0));
        }
        if let Some(report) = world.node_reports.get(name).map(|known| &known.value) {
            samples.push(leader::NODE_WATCHDOG_ARMED.sample([name], flag(report.armed)));
            let is_open = world.fences.get(name).is_some_and(|fence| fence.value.state == FenceState::Open);
            let is_away = is_open && report.mode == Mode::Restart;
            samples.push(leader::NODE_AGENT_AWAY.sample([name], flag(is_away)));
        }
        if let Some(usable) = status.and_then(is_fenceable) {
            samples.push(leader::NODE_WATCHDOG_USABLE.sample([name], flag(usable)));
        }
        let capacity = view.nodes.get(name).map(|facts| facts.capacity).unwrap_or_default();
        let allocated = status.map(|status| status.allocated).unwrap_or_default();
        samples.extend(amount(leader::NODE_CAPACITY_CPU, name, capacity.cpu));
        samples.extend(amount(leader::NODE_CAPACITY_MEMORY, name, capacity.memory));
        samples.extend(amount(leader::NODE_CAPACITY_DISK, name, capacity.disk));
        samples.extend(amount(leader::NODE_ALLOCATED_CPU, name, Some(allocated.cpu.unwrap_or_default())));
        samples.extend(amount(
            leader::NODE_ALLOCATED_MEMORY,
            name,
            Some(allocated.memory.unwrap_or_default()),
        ));
        samples.extend(amount(leader::NODE_ALLOCATED_DISK, name, Some(allocated.disk.unwrap_or_default())));
        samples.push(leader::NODE_SERVICES.sample([name], users(view, name) as f64));
    }
}

fn is_fenceable(status: &NodeStatus) -> Option<bool> {
    let condition = status.conditions.iter().find(|condition| condition.kind == "Fenceable")?;
    Some(condition.status == ConditionStatus::True)
}
