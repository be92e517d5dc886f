//! The process that writes a key, and its version, for reports about unreadable values.

use crate::core::world::World;
use ha_api_types::keys::Key;

/// Returns the writer of a key, in words for an operator.
pub(super) fn of(world: &World, key: &str) -> String {
    match world.keys.parse(key) {
        Some(Key::Spec(..) | Key::LogRequest(..)) => "the API or another etcd client".to_owned(),
        Some(
            Key::Alive(node)
            | Key::NodeReport(node)
            | Key::DoctorReport(node)
            | Key::UsageReport(node)
            | Key::ServiceReport(node, _)
            | Key::LogAnswer(node, _),
        ) => {
            let report = world.node_reports.get(node).map(|report| report.value.version.as_str());
            format!("the agent of node {node}{}", version(report))
        }
        Some(Key::Candidate(id) | Key::Refresh(id)) => controller(world, id),
        Some(
            Key::Status(..)
            | Key::Assignment(_)
            | Key::Tombstone(_)
            | Key::Fence(_)
            | Key::Notified
            | Key::Restored
            | Key::Incarnation
            | Key::Leader
            | Key::Event(..),
        ) => match world.cluster_status.as_ref().and_then(|status| status.value.leader.as_deref()) {
            Some(leader) => format!("a leader, last {}", controller(world, leader)),
            None => "a leader".to_owned(),
        },
        None => "an unknown process".to_owned(),
    }
}

fn controller(world: &World, id: &str) -> String {
    let candidate = world.candidates().find(|(known, _)| *known == id).map(|(_, candidate)| candidate);
    format!("controller {id}{}", version(candidate.as_ref().map(|candidate| candidate.version.as_str())))
}

fn version(version: Option<&str>) -> String {
    version.filter(|version| !version.is_empty()).map(|version| format!(" ({version})")).unwrap_or_default()
}
