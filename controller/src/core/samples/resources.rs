//! Metrics about resources.

use super::{MetricsInput, flag};
use crate::core::stored_view::status_of;
use ha_api_types::driver::DriverKind;
use ha_api_types::metric::{Sample, leader};
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use ha_api_types::time::Timestamp;

/// Windows of the availability metrics, in days.
const WINDOWS: [(&str, u32); 2] = [("30d", 30), ("365d", 365)];

/// Adds the metrics of resources. A resource has a series only for its current state, because there may be many
/// resources.
pub(super) fn add(input: &MetricsInput<'_>, samples: &mut Vec<Sample>) {
    let cluster_view = input.cluster_view;
    let now = input.now.timestamp();
    for (name, stored) in &cluster_view.resources {
        let resource = &stored.value;
        let status = status_of(cluster_view, resource);
        let driver = resource.spec.driver.kind().map_or("", DriverKind::name);
        let group = resource.spec.group.as_deref().unwrap_or_default();
        samples.push(leader::RESOURCE_INFO.sample([name, driver, group], 1.0));
        let state = format!("{:?}", status.state);
        samples.push(leader::RESOURCE_STATE.sample([name, &state], 1.0));
        let desired = format!("{:?}", resource.spec.state);
        samples.push(leader::RESOURCE_DESIRED_STATE.sample([name, &desired], 1.0));
        samples.push(leader::RESOURCE_RUNNING.sample([name], flag(status.running)));
        if let Some(node) = &status.node {
            samples.push(leader::RESOURCE_NODE.sample([name, node], 1.0));
            let report =
                cluster_view.service_report(name, node).filter(|report| report.value.uid == status.uid);
            let restarts = report.map_or(0, |report| report.value.restarts);
            samples.push(leader::RESOURCE_RESTARTS.sample([name], f64::from(restarts)));
        }
        let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
        let since = ready.and_then(|ready| ready.last_transition_time.as_ref());
        if let Some(seconds) = since.and_then(Timestamp::unix_seconds) {
            samples.push(leader::RESOURCE_LAST_TRANSITION.sample([name], seconds as f64));
        }
        for (window, days) in WINDOWS {
            let ratio = status.availability.as_ref().and_then(|availability| availability.ratio(days, &now));
            samples.extend(ratio.map(|ratio| leader::RESOURCE_AVAILABILITY.sample([name, window], ratio)));
            let down =
                status.availability.as_ref().and_then(|availability| availability.down_seconds(days, &now));
            samples.extend(down.map(|down| leader::RESOURCE_DOWNTIME.sample([name, window], down)));
        }
        if let Some(reason) = unschedulable_reason(resource, &status) {
            samples.push(leader::RESOURCE_UNPLACED.sample([name, reason.as_str()], 1.0));
        }
    }
    for ((name, reason), count) in input.relocations {
        if cluster_view.resources.contains_key(name) {
            samples.push(leader::RESOURCE_RELOCATIONS.sample([name, reason.as_str()], *count as f64));
        }
    }
}

/// Returns why a service that is requested to run has no eligible node.
fn unschedulable_reason(resource: &Resource, status: &ResourceStatus) -> Option<Reason> {
    let is_being_scheduled = matches!(status.state, ServiceState::RequestStart | ServiceState::Recovery);
    let is_start_requested = resource.spec.state == RequestedState::Started;
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready")?;
    (is_being_scheduled && is_start_requested).then_some(ready.reason)
}
