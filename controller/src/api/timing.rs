//! `/apis/hactl.io/v1/timing`: the longest failover times with some timing settings, without changing the settings.

use super::ApiState;
use super::error::ApiError;
use super::facts;
use super::request::read_body;
use crate::core::world::ClusterView;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use ha_api_types::id::NodeName;
use ha_api_types::node::NodeStatus;
use ha_api_types::time::{DecimalSeconds, Millis};
use ha_api_types::timing::{
    MAX_PPM, RATE_SETTINGS, SETTING_BOUNDS, StoreTimes, Timings, WatchdogBounds, failover_parts, named_parts,
    problems,
};
use ha_api_types::view::{
    FailoverTimePart, FailoverTimes, TimingProblem, TimingReport, TimingRequest, TimingSetting,
};
use ha_store::Store;

/// Handles POST of a [`TimingRequest`] and answers with a [`TimingReport`].
pub(crate) async fn handler<S: Store>(
    State(state): State<ApiState<S>>,
    request: Request,
) -> Result<Response, ApiError> {
    let bytes = read_body(request.into_body()).await?;
    let request: TimingRequest = serde_json::from_slice(&bytes).map_err(|error| {
        ApiError::bad_request(format!("request body is not a valid timing request: {error}"))
    })?;
    let cluster_view = facts::cluster_view(&state).await?;
    Ok(Json(report(&request, &cluster_view)).into_response())
}

fn report(request: &TimingRequest, cluster_view: &ClusterView) -> TimingReport {
    let timings = Timings::from(&request.timing);
    let mut failovers: Vec<(WatchdogBounds, FailoverTimes)> = Vec::new();
    let mut unreported_nodes = Vec::new();
    for name in cluster_view.nodes.keys() {
        let status = cluster_view.node_statuses.get(name).map(|status| &status.value);
        let Some(watchdog) = status.and_then(|status| watchdog_with(status, &timings)) else {
            unreported_nodes.push(name.clone());
            continue;
        };
        match failovers.iter_mut().find(|(other, _)| *other == watchdog) {
            Some((_, times)) => times.nodes.push(name.clone()),
            None => failovers.push((watchdog, failover_times(name, &timings, &watchdog))),
        }
    }
    TimingReport {
        settings: settings(&timings, &Timings::of_profile(request.timing.profile)),
        problems: problems(&timings)
            .into_iter()
            .map(|(field, message)| TimingProblem { field: field.to_owned(), message })
            .collect(),
        failovers: failovers.into_iter().map(|(_, times)| times).collect(),
        unreported_nodes,
    }
}

/// Returns the watchdog of a node as it would be with the settings; `None` if the agent has not reported a watchdog. The
/// timeout that the driver reported counts as long as the same timeout is requested.
fn watchdog_with(status: &NodeStatus, timings: &Timings) -> Option<WatchdogBounds> {
    let watchdog = status.watchdog.as_ref().filter(|watchdog| watchdog.timeout_seconds.ms() > 0)?;
    let requested_ms = status.timing.map(|active| Timings::from(active).watchdog_timeout_ms);
    let is_unchanged = requested_ms == Some(timings.watchdog_timeout_ms);
    Some(WatchdogBounds {
        timeout_ms: if is_unchanged { watchdog.timeout_seconds.ms() } else { timings.watchdog_timeout_ms },
        sliding: watchdog.sliding,
        descriptor_retained: watchdog.descriptor_retained,
    })
}

fn failover_times(name: &NodeName, timings: &Timings, watchdog: &WatchdogBounds) -> FailoverTimes {
    let parts = |leader_dies| failover_parts(timings, watchdog, &StoreTimes::HEALTHY, leader_dies);
    let (node, leader_node) = (parts(false), parts(true));
    FailoverTimes {
        nodes: vec![name.clone()],
        fencing_delay_seconds: DecimalSeconds(node.wait.total_ms()),
        total_seconds: DecimalSeconds(node.total_ms()),
        leader_node_total_seconds: DecimalSeconds(leader_node.total_ms()),
        parts: named_parts(&node, &leader_node, watchdog)
            .into_iter()
            .map(|part| FailoverTimePart {
                name: part.name.to_owned(),
                node_seconds: DecimalSeconds(part.node_ms),
                leader_node_seconds: DecimalSeconds(part.leader_node_ms),
                is_sum: part.is_sum,
            })
            .collect(),
    }
}

/// Returns the settings with their allowed values.
fn settings(timings: &Timings, profile: &Timings) -> Vec<TimingSetting> {
    let seconds = |ms: Millis| ms as f64 / 1_000.0;
    let percent = |ppm: u64| ppm as f64 / 10_000.0;
    let times = SETTING_BOUNDS.iter().map(|bounds| TimingSetting {
        field: bounds.field.to_owned(),
        value: seconds((bounds.value_ms)(timings)),
        profile_value: seconds((bounds.value_ms)(profile)),
        min: seconds(bounds.min_ms),
        max: bounds.max_ms.map(seconds),
    });
    let rates = RATE_SETTINGS.iter().map(|(field, ppm)| TimingSetting {
        field: (*field).to_owned(),
        value: percent(ppm(timings)),
        profile_value: percent(ppm(profile)),
        min: 0.0,
        max: Some(percent(MAX_PPM)),
    });
    times.chain(rates).collect()
}
