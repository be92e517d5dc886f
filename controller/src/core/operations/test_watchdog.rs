//! Test of a node's watchdog: a real reset of a node without active services. The agent records the result.

use super::{NewStatus, OperationRequest, new_status, write};
use crate::core::health::{Health, NodeHealth, NodeTable, check_watchdog};
use crate::core::plan::Plan;
use crate::core::plan_input::PlanInput;
use ha_api_types::id::ResourceName;
use ha_api_types::operation::OperationPhase;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, NodeReport, WatchdogKind, WatchdogReport};
use ha_api_types::time::Millis;

/// Time in milliseconds to wait for a machine to return from the reset, with a slow watchdog and a slow boot.
const RESET_TIMEOUT_MS: Millis = 900_000;

/// Starts the test and follows its progress. The agent acts only on a test that is Running.
pub(super) fn plan(
    input: &PlanInput<'_>,
    nodes: &NodeTable,
    request: &OperationRequest<'_>,
    plan: &mut Plan,
) {
    let cluster_view = input.cluster_view;
    let spec = &request.operation.value.spec;
    let name = &spec.node.clone().unwrap_or_default();
    let is_running = request.is_running();
    let boot = cluster_view.fences.get(name).map(|fence| &fence.value.boot_id);
    let same_boot = boot == spec.boot_id.as_ref();
    let report = cluster_view.node_reports.get(name).map(|report| &report.value);
    let outcome = match (nodes.get(name), report) {
        (None, _) | (_, None) => {
            new_status(OperationPhase::Refused, Reason::NotFound, format!("Node {name} not found"))
        }
        (Some(node), Some(report)) if is_running && !same_boot => {
            result_after_reboot(request, name, node, report)
        }
        (Some(_), Some(report)) if is_running => {
            let over_at = request.operation.first_seen_at + RESET_TIMEOUT_MS;
            let has_reported_since = request.status.map(|status| status.mod_revision)
                < cluster_view.node_reports.get(name).map(|report| report.mod_revision);
            if has_reported_since && !report.watchdog.problem.is_empty() {
                let message = format!("{name}: {}", report.watchdog.problem);
                new_status(OperationPhase::Failed, Reason::WatchdogFailed, message)
            } else if input.now.monotonic_raw >= over_at {
                let message = format!("{name} was not reset: check the log of its agent");
                new_status(OperationPhase::Failed, Reason::TimedOut, message)
            } else {
                plan.wake_at(input, over_at, "the time in which the watchdog must reset the node has passed");
                in_progress(name)
            }
        }
        (Some(_), Some(_)) if !same_boot => new_status(
            OperationPhase::Refused,
            Reason::Outdated,
            format!("Node {name} has rebooted since the request: run the command again"),
        ),
        (Some(node), Some(report)) => match refusal(input, name, node, report) {
            Some((reason, message)) => new_status(OperationPhase::Refused, reason, message),
            None => in_progress(name),
        },
    };
    write(input, request, &outcome, plan);
}

/// Returns the reason and the message if the node's watchdog cannot be tested now.
fn refusal(
    input: &PlanInput<'_>,
    name: &str,
    node: &NodeHealth,
    report: &NodeReport,
) -> Option<(Reason, String)> {
    let cluster_view = input.cluster_view;
    if !cluster_view.nodes.get(name).is_some_and(|node| node.value.spec.maintenance) {
        let message =
            format!("{name} is not in maintenance: run \"hactl node maintenance enable {name} --wait\"");
        return Some((Reason::Refused, message));
    }
    if cluster_view.settings().disarmed.is_some() {
        return Some((Reason::Disarmed, "Cluster is disarmed: run \"hactl arm\"".to_owned()));
    }
    if node.health != Health::Online {
        return Some((Reason::NodeNotOnline, format!("{name} is not online")));
    }
    let mut services = node.active.clone();
    services.extend(cluster_view.assignments.iter().filter_map(|(service, assignment)| {
        let is_starting = match assignment.value.action {
            Action::Start | Action::Restart | Action::Migrate { .. } => assignment.value.node == name,
            Action::Stop { .. } | Action::DoNothing => false,
        };
        is_starting.then(|| service.clone())
    }));
    if !services.is_empty() {
        let services: Vec<&str> = services.iter().map(ResourceName::as_str).collect();
        let message = format!(
            "Services are still active on {name} ({}): run \"hactl node maintenance enable {name} \
             --wait\" to see why",
            services.join(", ")
        );
        return Some((Reason::Refused, message));
    }
    // Earlier test results do not matter here, and the agent itself checks whether the watchdog can be armed.
    let watchdog =
        WatchdogReport { tested: true, problem: String::new(), reason: None, ..report.watchdog.clone() };
    let reason = check_watchdog(cluster_view, &NodeReport { watchdog, ..report.clone() }).err()?;
    Some((reason, format!("{name}: {}", reason.sentence())))
}

fn in_progress(name: &str) -> NewStatus {
    let message = format!("Waiting for the watchdog of {name} to reset the node");
    new_status(OperationPhase::Running, Reason::InProgress, message)
}

/// Returns the result after another boot has registered.
fn result_after_reboot(
    request: &OperationRequest<'_>,
    name: &str,
    node: &NodeHealth,
    report: &NodeReport,
) -> NewStatus {
    let passed = report.watchdog.last_test.as_ref().filter(|test| test.operation == *request.name);
    if let Some(test) = passed {
        let seconds = test.lasted_ms.div_ceil(1000);
        let message = format!(
            "Watchdog {} reset {name} {seconds} s after it was armed. To finish, run \"hactl node \
             maintenance disable {name}\"",
            report.watchdog.identity
        );
        return new_status(OperationPhase::Succeeded, Reason::Completed, message);
    }
    if !node.is_reachable() || report.watchdog.kind == WatchdogKind::None {
        let message = format!("{name} has rebooted and is checking its watchdog");
        return new_status(OperationPhase::Running, Reason::InProgress, message);
    }
    let message = format!(
        "{name} rebooted, but its agent has no record of this test: --state-dir must be on a persistent \
         disk, and nothing else may reset the node during the test"
    );
    new_status(OperationPhase::Failed, Reason::WatchdogFailed, message)
}
