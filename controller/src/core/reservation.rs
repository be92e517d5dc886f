//! The leader's N+1 check: whether every service could be scheduled if a node failed now.
//!
//! The check runs between plans in bounded steps, and never delays a plan. Its result is published once every node
//! has been checked.

use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_scheduler::View;
use ha_scheduler::reservation::{Certificate, FailedCheck, Unplaced, Verdict, VerdictCache};

/// Number of candidates that are examined in one step, which takes some milliseconds.
const STEP_EFFORT: u64 = 200_000;
/// Pause between two steps, in milliseconds.
const PAUSE_MS: Millis = 20;
/// Maximum number of services in a message, and of reasons for each service.
const MAX_NAMED_SERVICES: usize = 10;
const MAX_NAMED_REASONS: usize = 4;

/// Result of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `true` if every service could be scheduled; `None` if undecided.
    pub has_capacity: Option<bool>,
    /// Reason of the condition: `FailoverCapacityAvailable`, `InsufficientFailoverCapacity` or
    /// `FailoverCapacityUnknown`.
    pub reason: Reason,
    /// Summary sentence with the nodes.
    pub headline: String,
    /// Sentences about the services and their unmet requirements.
    pub details: Vec<String>,
}

/// Progress of the check.
#[derive(Clone, Debug, Default)]
pub(super) struct FailoverCapacityCheck {
    verdicts: Option<VerdictCache>,
    /// Time at which the last complete check began, and the interval of complete checks in milliseconds.
    check_began_at: MonotonicTime,
    interval_ms: Millis,
    next_step_at: Option<MonotonicTime>,
    finding: Option<Finding>,
}

impl FailoverCapacityCheck {
    pub(super) fn finding(&self) -> Option<&Finding> {
        self.finding.as_ref()
    }

    pub(super) fn deadline(&self) -> Option<MonotonicTime> {
        self.next_step_at
    }

    /// Passes the current state of the cluster to the check, and begins a complete check if one is due.
    pub(super) fn update_view(&mut self, view: View, now: MonotonicTime) {
        self.interval_ms = Millis::from(view.reservation.interval_seconds) * 1_000;
        let is_due = now >= self.check_began_at + self.interval_ms;
        match &mut self.verdicts {
            Some(verdicts) if !is_due => verdicts.update(view),
            Some(_) | None => {
                self.verdicts = Some(VerdictCache::new(view));
                self.check_began_at = now;
            }
        }
        self.next_step_at.get_or_insert(now);
    }

    /// Runs the next step if it is due. Returns `true` if the result has changed.
    pub(super) fn advance(&mut self, now: MonotonicTime, cluster: &str) -> bool {
        if self.next_step_at.is_none_or(|at| now < at) {
            return false;
        }
        let Some(verdicts) = &mut self.verdicts else { return false };
        if !verdicts.compute_missing(STEP_EFFORT) {
            self.next_step_at = Some(now + PAUSE_MS);
            return false;
        }
        self.next_step_at = None;
        let finding = finding(cluster, verdicts.not_survived());
        let is_new = self.finding.as_ref() != Some(&finding);
        self.finding = Some(finding);
        is_new
    }
}

fn finding<'a>(cluster: &str, not_survived: impl Iterator<Item = (&'a NodeName, &'a Verdict)>) -> Finding {
    let mut failing = Vec::new();
    let mut undecided = Vec::new();
    for (node, verdict) in not_survived {
        match verdict {
            Verdict::Survives(_) => {}
            Verdict::Fails(fails) => failing.push((node, fails)),
            Verdict::Unknown(unplaced_services) => undecided.push((node, unplaced_services)),
        }
    }
    let mut details: Vec<String> =
        failing.iter().flat_map(|(node, fails)| failure_lines(node, fails)).collect();
    let undecided_nodes = nodes_named(undecided.iter().map(|(node, _)| node.as_str()));
    if !failing.is_empty() {
        if !undecided.is_empty() {
            details.push(format!("{undecided_nodes}: {}", Reason::FailoverCapacityUnknown.sentence()));
        }
        let nodes = nodes_named(failing.iter().map(|(node, _)| node.as_str()));
        return Finding {
            has_capacity: Some(false),
            reason: Reason::InsufficientFailoverCapacity,
            headline: check_failed_message(cluster, &nodes),
            details,
        };
    }
    if !undecided.is_empty() {
        let headline = format!(
            "Failover capacity (N+1) check of cluster {cluster} is inconclusive for failures of {undecided_nodes}"
        );
        let unplaced_services =
            undecided.iter().flat_map(|(_, unplaced_services)| unplaced_services.iter().map(unplaced_line));
        let details = unplaced_services.collect();
        return Finding { has_capacity: None, reason: Reason::FailoverCapacityUnknown, headline, details };
    }
    let headline = Reason::FailoverCapacityAvailable.sentence().to_owned();
    Finding { has_capacity: Some(true), reason: Reason::FailoverCapacityAvailable, headline, details }
}

/// Returns nodes as part of a sentence: `node a`, or `nodes a, b`.
pub fn nodes_named<'a>(nodes: impl IntoIterator<Item = &'a str>) -> String {
    let nodes: Vec<&str> = nodes.into_iter().collect();
    format!("{} {}", if nodes.len() == 1 { "node" } else { "nodes" }, nodes.join(", "))
}

/// Returns the sentence of the condition, the event and the alert. `failures` names what fails, such as `node a`.
pub fn check_failed_message(cluster: &str, failures: &str) -> String {
    format!(
        "Failover capacity (N+1) check of cluster {cluster} failed: services of {failures} cannot be restarted \
         elsewhere after a failure; add capacity or stop unused services"
    )
}

/// Returns the message of the condition: the summary, then the services and their unmet requirements.
pub fn message_of(finding: &Finding) -> String {
    if finding.details.is_empty() {
        return finding.headline.clone();
    }
    let mut parts: Vec<&str> = finding.details.iter().take(MAX_NAMED_SERVICES).map(String::as_str).collect();
    let omitted = finding.details.len().saturating_sub(MAX_NAMED_SERVICES);
    let more_text = format!("and {omitted} more");
    if omitted > 0 {
        parts.push(&more_text);
    }
    format!("{}: {}", finding.headline, parts.join("; "))
}

/// Returns the part of a message that names the nodes.
pub fn headline(message: &str) -> &str {
    let suffix = "stop unused services";
    message.find(suffix).map_or(message, |index| message.get(..index + suffix.len()).unwrap_or(message))
}

/// Returns why the cluster does not survive the failure: each service and its unmet requirements.
pub fn failure_lines(node: &NodeName, failing: &FailedCheck) -> Vec<String> {
    let mut lines: Vec<String> = failing.services.iter().map(unplaced_line).collect();
    match &failing.certificate {
        Certificate::Capacity { message, .. } | Certificate::AntiAffinity { message } => {
            lines.push(format!("all services of {node}: {message}"));
        }
        Certificate::NoNode | Certificate::Exhausted => {}
    }
    lines
}

/// Returns a service and its unmet requirements as text.
fn unplaced_line(service: &Unplaced) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for blocked in &service.blocked_nodes {
        match reasons.iter_mut().find(|(message, _)| *message == blocked.message) {
            Some((_, nodes)) => nodes.push(&blocked.node),
            None => reasons.push((&blocked.message, vec![&blocked.node])),
        }
    }
    let mut listed = 0;
    let parts: Vec<String> = reasons
        .into_iter()
        .take(MAX_NAMED_REASONS)
        .map(|(message, nodes)| {
            listed += nodes.len();
            format!("{message} ({})", nodes.join(", "))
        })
        .collect();
    let omitted = service.omitted + service.blocked_nodes.len() - listed;
    let more_text = if omitted > 0 { format!(", and {omitted} more") } else { String::new() };
    let parts = if parts.is_empty() { "no other node".to_owned() } else { parts.join(", ") };
    format!("{} on {}: {parts}{more_text}", service.service, service.node)
}

#[cfg(test)]
mod tests;
