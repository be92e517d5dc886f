//! The problems of the cluster, worst first, with suggested actions.

use super::ready_reason;
use crate::api::error::ApiError;
use crate::api::{ApiOptions, AuthorizationMode};
use crate::core::stored_view::status_of;
use crate::core::world::ClusterView;
use ha_api_types::check::{Check, Verdict};
use ha_api_types::cluster::OnEtcdLoss;
use ha_api_types::id::{ControllerId, NodeName};
use ha_api_types::keys::Key;
use ha_api_types::meta::{Condition, ConditionStatus};
use ha_api_types::node::NodeState;
use ha_api_types::reason::Reason;
use ha_api_types::record::FenceState;
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_api_types::view::{ControllerState, Overview, Problem, Severity};
use ha_store::etcd_version::is_too_old;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Returns the problem that etcd cannot be read.
pub(super) fn etcd_problem(error: &ApiError) -> Problem {
    problem(
        Severity::Failed,
        "etcd".to_owned(),
        Reason::Unknown,
        error.to_string(),
        "check etcd: a majority of its members must run and reach each other",
    )
}

/// Returns the problem that every certificate has all permissions.
pub(super) fn authorization_problem(options: &ApiOptions) -> Option<Problem> {
    match options.authorization {
        AuthorizationMode::Roles => None,
        AuthorizationMode::AlwaysAllow => Some(problem(
            Severity::Degraded,
            format!("controller/{}", options.id),
            Reason::Unknown,
            "every client certificate has all permissions, including those of nodes".to_owned(),
            "issue certificates with roles, then set --authorization Roles: see \"Enable roles\" in \
             docs/concepts/security.md",
        )),
    }
}

pub(super) fn list_problems(cluster_view: &ClusterView, overview: &Overview) -> Vec<Problem> {
    let mut problems = Vec::new();
    if overview.leader.is_none() {
        problems.push(problem(
            Severity::Failed,
            "leader".to_owned(),
            Reason::LostLeadership,
            "no controller is leader: no service is started, moved or recovered".to_owned(),
            "start ha-controller, or wait a few seconds if one was just stopped",
        ));
    }
    add_service_problems(cluster_view, &mut problems);
    for member in overview.store.members.iter().filter(|member| !member.healthy || !member.problem.is_empty())
    {
        let name = if member.name.is_empty() { &member.url } else { &member.name };
        let message = if member.problem.is_empty() {
            format!("etcd member {name} does not respond")
        } else {
            format!("etcd member {name}: {}", member.problem)
        };
        problems.push(problem(
            Severity::Degraded,
            "etcd".to_owned(),
            Reason::Unknown,
            message,
            "check etcd on that machine",
        ));
    }
    for member in overview.store.members.iter().filter(|member| is_too_old(&member.version)) {
        let name = if member.name.is_empty() { &member.url } else { &member.name };
        let message =
            format!("etcd member {name} runs version {}: {}", member.version, Reason::EtcdTooOld.sentence());
        problems.push(problem(
            Severity::Degraded,
            "etcd".to_owned(),
            Reason::EtcdTooOld,
            message,
            "upgrade etcd to 3.5.30 or later in the 3.5 series, or to 3.6.11 or later, one member at a time",
        ));
    }
    for controller in
        overview.controllers.iter().filter(|controller| controller.state == ControllerState::Lost)
    {
        let consequence = match cluster_view.settings().fencing.on_etcd_loss {
            OnEtcdLoss::Hold => ": an etcd outage stops services until the controller runs or is deleted",
            OnEtcdLoss::Stop => "",
        };
        let message = format!("controller {} is not running{consequence}", controller.id);
        let about = format!("controller/{}", controller.id);
        problems.push(problem(
            Severity::Degraded,
            about,
            Reason::Unknown,
            message,
            &format!(
                "start the controller again; if it was removed permanently, run \"hactl delete \
                 controller/{}\"",
                controller.id
            ),
        ));
    }
    add_node_problems(cluster_view, overview, &mut problems);
    add_failed_checks(cluster_view, overview, &mut problems);
    add_rule_problems(cluster_view, &mut problems);
    if cluster_view.settings().disarmed.is_some() {
        let message = format!("cluster is {}: no node is fenced for missed heartbeats", overview.arming);
        problems.push(problem(
            Severity::Degraded,
            "cluster/default".to_owned(),
            Reason::Disarmed,
            message,
            "hactl arm",
        ));
    }
    for (key, decode_error) in &cluster_view.unreadable {
        let writer = writer_of(cluster_view, key);
        let message =
            format!("key {key}, written by {writer}, cannot be read by this version: {decode_error}");
        problems.push(problem(
            Severity::Degraded,
            "etcd".to_owned(),
            Reason::Unreadable,
            message,
            Reason::Unreadable.help(),
        ));
    }
    problems.sort_by_key(|problem| (Reverse(problem.severity), problem.about.clone()));
    problems
}

/// Adds desired services that do not run.
fn add_service_problems(cluster_view: &ClusterView, problems: &mut Vec<Problem>) {
    for (name, resource) in &cluster_view.resources {
        let status = status_of(cluster_view, &resource.value);
        let is_moving = matches!(status.state, ServiceState::Migrate | ServiceState::Relocate);
        let missing = resource.value.spec.state == RequestedState::Started && !status.running && !is_moving;
        let failed = status.state == ServiceState::Error;
        if !(missing || failed) || resource.value.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let (reason, message) = ready_reason(&status.conditions);
        let message = format!("{name} is {:?}: {message}", status.state);
        let help = if failed {
            format!("hactl why {name}, then hactl clear-error {name}")
        } else {
            format!("hactl why {name}")
        };
        problems.push(problem(Severity::Failed, format!("resource/{name}"), reason, message, &help));
    }
}

fn add_node_problems(cluster_view: &ClusterView, overview: &Overview, problems: &mut Vec<Problem>) {
    for node in &overview.nodes {
        let about = format!("node/{}", node.name);
        match node.state {
            NodeState::Unknown | NodeState::Fence => {
                let message = format!("{} is {:?}: {}", node.name, node.state, node.message);
                let help = if node.reason == Reason::DuplicateNode {
                    format!(
                        "stop one of the two agents; if the previous machine is permanently powered off, run \"hactl \
                         node confirm-fenced {}\"",
                        node.name
                    )
                } else if awaits_confirmation(cluster_view, &node.name) {
                    format!(
                        "check the machine; if it is powered off, run \"hactl node confirm-fenced {}\"",
                        node.name
                    )
                } else if node.reason == Reason::FenceDeviceStarted {
                    "wait until the fence device has ended; the node then registers".to_owned()
                } else {
                    "check the machine and start it; its agent registers again".to_owned()
                };
                problems.push(problem(Severity::Degraded, about, node.reason, message, &help));
            }
            NodeState::Online | NodeState::Maintenance => {
                problems.extend(fence_device_problem(cluster_view, &node.name));
                let kind = node.watchdog.as_ref().map_or("None", |watchdog| watchdog.kind.as_str());
                if kind == "None" {
                    let message = format!(
                        "{} has no working watchdog, so exclusive services cannot run there",
                        node.name
                    );
                    let help = format!(
                        "run \"hactl doctor {}\" and check the log of ha-watchdogd on that node",
                        node.name
                    );
                    problems.push(problem(
                        Severity::Degraded,
                        about,
                        Reason::WatchdogMissing,
                        message,
                        &help,
                    ));
                }
            }
            // The machine of a deleted node registers again.
            NodeState::Gone if node.reason == Reason::NotFound => {
                let help = format!(
                    "hactl create node {}, or remove the agent from the machine (apt remove ha-node-agent)",
                    node.name
                );
                problems.push(problem(Severity::Degraded, about, node.reason, node.message.clone(), &help));
            }
            // The node left on purpose.
            NodeState::Offline | NodeState::Gone => {}
        }
    }
}

/// Returns the problem that a fence device of a node does not respond, or was refuted.
fn fence_device_problem(cluster_view: &ClusterView, node: &NodeName) -> Option<Problem> {
    let conditions = &cluster_view.node_statuses.get(node)?.value.conditions;
    let condition = conditions.iter().find(|condition| condition.kind == "FenceDevicesHealthy")?;
    let is_failed = condition.status == ConditionStatus::False;
    is_failed.then(|| {
        problem(
            Severity::Degraded,
            format!("node/{node}"),
            condition.reason,
            format!("{node}: {}", condition.message),
            condition.reason.help(),
        )
    })
}

/// Returns `true` if no evidence (since a restore, if any) shows that the services of the node do not run. An
/// operator's confirmation that the node is powered off may then end a wait.
fn awaits_confirmation(cluster_view: &ClusterView, node: &NodeName) -> bool {
    cluster_view.is_known_only_from_backup(node)
        || cluster_view.fences.get(node).is_none_or(|fence| match fence.value.state {
            FenceState::Open | FenceState::Fencing => true,
            FenceState::Fenced | FenceState::Closed => false,
        })
}

/// Adds failed checks of `hactl doctor`, of the cluster and of each node, unless a problem already covers them.
fn add_failed_checks(cluster_view: &ClusterView, overview: &Overview, problems: &mut Vec<Problem>) {
    let reported: BTreeSet<String> = problems.iter().map(|problem| problem.about.clone()).collect();
    let fails = |check: &&Check| check.verdict == Verdict::Fail;
    for check in overview.checks.iter().filter(fails) {
        // Each node without a watchdog is reported as a separate problem.
        if check.name != "watchdogs" {
            let about = if check.name.starts_with("etcd") { "etcd" } else { "cluster/default" };
            let (finding, help) = (check.finding.clone(), &check.help);
            problems.push(problem(
                Severity::Degraded,
                about.to_owned(),
                Reason::HealthCheckFailed,
                finding,
                help,
            ));
        }
    }
    for node in &overview.nodes {
        let about = format!("node/{}", node.name);
        let checks = cluster_view.node_statuses.get(&node.name).map(|status| &status.value.checks);
        for check in checks.into_iter().flatten().filter(fails) {
            let is_reported = check.name == "watchdog" && reported.contains(&about);
            if !is_reported && node.state != NodeState::Gone {
                let message = format!("{}: {}", node.name, check.finding);
                problems.push(problem(
                    Severity::Degraded,
                    about.clone(),
                    Reason::HealthCheckFailed,
                    message,
                    &check.help,
                ));
            }
        }
    }
}

fn add_rule_problems(cluster_view: &ClusterView, problems: &mut Vec<Problem>) {
    let groups =
        cluster_view.group_statuses.iter().map(|(name, status)| ("group", name, &status.value.conditions));
    let rules = cluster_view
        .rule_statuses
        .iter()
        .map(|(name, status)| ("affinityrule", name, &status.value.conditions));
    for (kind, name, conditions) in groups.chain(rules) {
        let is_not_ready =
            |condition: &&Condition| condition.kind == "Ready" && condition.status == ConditionStatus::False;
        if let Some(condition) = conditions.iter().find(is_not_ready) {
            let message = format!("{name} is not applied: {}", condition.message);
            let help = format!("hactl describe {kind} {name}");
            problems.push(problem(
                Severity::Degraded,
                format!("{kind}/{name}"),
                condition.reason,
                message,
                &help,
            ));
        }
    }
}

fn problem(severity: Severity, about: String, reason: Reason, message: String, help: &str) -> Problem {
    Problem { severity, about, reason, message, help: help.to_owned() }
}

/// Returns the process that writes a key, and its version, in words for an operator.
fn writer_of(cluster_view: &ClusterView, key: &str) -> String {
    match cluster_view.keys.parse(key) {
        Some(
            Key::Spec(..)
            | Key::LogRequest(..)
            | Key::JoinToken(..)
            | Key::IssuedCertificate(..)
            | Key::Backup,
        ) => "the API or another etcd client".to_owned(),
        Some(
            Key::Alive(node)
            | Key::NodeReport(node)
            | Key::DoctorReport(node)
            | Key::UsageReport(node)
            | Key::ServiceReport(node, _)
            | Key::LogAnswer(node, _),
        ) => {
            let report = cluster_view.node_reports.get(&node).map(|report| report.value.version.as_str());
            format!("the agent of node {node}{}", version_text(report))
        }
        Some(Key::Candidate(id) | Key::Refresh(id)) => controller_text(cluster_view, &id),
        Some(
            Key::Status(..)
            | Key::Assignment(_)
            | Key::Tombstone(_)
            | Key::Fence(_)
            | Key::NotificationRecord
            | Key::RestoreMarker
            | Key::Incarnation
            | Key::Leader
            | Key::Event(..),
        ) => match cluster_view.cluster_status.as_ref().and_then(|status| status.value.leader.as_ref()) {
            Some(leader) => format!("a leader (most recently {})", controller_text(cluster_view, leader)),
            None => "a leader".to_owned(),
        },
        None => "an unknown process".to_owned(),
    }
}

fn controller_text(cluster_view: &ClusterView, id: &ControllerId) -> String {
    let candidate = cluster_view
        .candidates()
        .find(|(candidate_id, _)| *candidate_id == id)
        .map(|(_, candidate)| candidate);
    format!("controller {id}{}", version_text(candidate.as_ref().map(|candidate| candidate.version.as_str())))
}

fn version_text(version: Option<&str>) -> String {
    version.filter(|version| !version.is_empty()).map(|version| format!(" ({version})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::id::Revision;
    use ha_api_types::keys::Keys;
    use ha_api_types::kind::Kind;
    use ha_api_types::node::WatchdogStatus;
    use ha_api_types::time::MonotonicTime;
    use ha_api_types::view::{EtcdMember, NodeOverview};
    use ha_store::Entry;

    fn reasons(cluster_view: &ClusterView, overview: &Overview) -> Vec<(Reason, String)> {
        list_problems(cluster_view, overview)
            .into_iter()
            .map(|problem| (problem.reason, problem.message))
            .collect()
    }

    #[test]
    fn outdated_etcd_member_is_named() {
        let check = |version: &str, expected: bool| {
            let member = EtcdMember {
                name: "member1".to_owned(),
                healthy: true,
                version: version.to_owned(),
                ..EtcdMember::default()
            };
            let mut overview = Overview::default();
            overview.store.members = vec![member];
            let reasons_and_messages = reasons(&ClusterView::new(Keys::new("test")), &overview);
            let summary = |(reason, message): &(Reason, String)| {
                *reason == Reason::EtcdTooOld && message.contains("member1") && message.contains(version)
            };
            assert_eq!(
                reasons_and_messages.iter().any(summary),
                expected,
                "{version}: {reasons_and_messages:?}"
            );
        };
        check("3.4.23", true);
        check("3.5.29", true);
        check("3.6.12", false);
        check("", false);
    }

    #[test]
    fn confirm_fenced_is_suggested_until_the_node_is_fenced() {
        let check = |state: FenceState, is_restored: bool, expected: bool| {
            let keys = Keys::new("test");
            let entry = |key: String, value: serde_json::Value, revision| Entry {
                key,
                value: value.to_string().into_bytes().into(),
                create_revision: revision,
                mod_revision: revision,
                lease: ha_store::LeaseId::NONE,
            };
            let fence = serde_json::json!({"epoch": 3, "state": state, "proof": {"kind": "silence", "waitedMs": 13_200}});
            let mut entries = vec![entry(keys.fence(&"node1".into()), fence, Revision(1))];
            if is_restored {
                entries.push(entry(keys.restore_marker(), serde_json::json!({}), Revision(2)));
            }
            let mut cluster_view = ClusterView::new(keys);
            cluster_view.replace(entries, Revision(2), MonotonicTime(0));
            let node =
                NodeOverview { name: "node1".into(), state: NodeState::Unknown, ..NodeOverview::default() };
            let overview = Overview { nodes: vec![node], ..Overview::default() };
            let problems = list_problems(&cluster_view, &overview);
            let problem = problems.iter().find(|problem| problem.about == "node/node1").expect("a problem");
            let suggested = problem.help.contains("hactl node confirm-fenced node1");
            assert_eq!(suggested, expected, "{state:?}, restored {is_restored}: {}", problem.help);
        };
        check(FenceState::Open, false, true);
        check(FenceState::Fencing, false, true);
        check(FenceState::Fenced, false, false);
        check(FenceState::Closed, false, false);
        // The records of the node in the backup prove nothing.
        check(FenceState::Fenced, true, true);
    }

    /// FENCING R3.18: the machine of a deleted node registers again.
    #[test]
    fn deleted_node_that_registers_is_a_problem() {
        for (reason, expected) in [(Reason::NotFound, true), (Reason::ShutdownComplete, false)] {
            let node = NodeOverview {
                name: "node1".into(),
                state: NodeState::Gone,
                reason,
                ..NodeOverview::default()
            };
            let overview = Overview { nodes: vec![node], ..Overview::default() };
            let problems = list_problems(&ClusterView::new(Keys::new("test")), &overview);
            let problem = problems.iter().find(|problem| problem.about == "node/node1");
            assert_eq!(problem.is_some(), expected, "{reason:?}");
            assert!(problem.is_none_or(|problem| problem.help.contains("hactl create node node1")));
        }
    }

    #[test]
    fn failed_checks_of_the_doctor_are_problems() {
        let keys = Keys::new("test");
        let status = |name: &str, check: &Check| Entry {
            key: keys.status(Kind::Node, name),
            value: serde_json::json!({"state": "Online", "checks": [check]}).to_string().into_bytes().into(),
            create_revision: Revision(1),
            mod_revision: Revision(1),
            lease: ha_store::LeaseId::NONE,
        };
        let failed_check = Check::fail("reboot-watchdog", "ten minutes at reboot", "set it to 0");
        let entries = vec![
            status("node1", &failed_check),
            status("node2", &Check { verdict: Verdict::Warn, ..failed_check.clone() }),
            status("node3", &Check::fail("watchdog", "there is none", "load one")),
        ];
        let mut cluster_view = ClusterView::new(keys.clone());
        cluster_view.replace(entries, Revision(1), MonotonicTime(0));
        let of_node = |name: &str, kind: &str| NodeOverview {
            name: name.into(),
            state: NodeState::Online,
            watchdog: Some(WatchdogStatus { kind: kind.to_owned(), ..WatchdogStatus::default() }),
            ..NodeOverview::default()
        };
        let overview = Overview {
            nodes: vec![of_node("node1", "Kernel"), of_node("node2", "Kernel"), of_node("node3", "None")],
            checks: vec![
                Check::fail("etcd-members", "the store has 1", "add members"),
                Check::fail("watchdogs", "node3 has none", "see there"),
                Check::warn("versions", "two", "upgrade"),
            ],
            ..Overview::default()
        };
        let reason_by_subject: Vec<(String, Reason)> = list_problems(&cluster_view, &overview)
            .into_iter()
            .filter(|problem| problem.about != "leader")
            .map(|problem| (problem.about, problem.reason))
            .collect();
        // Node3's missing watchdog is reported once, under its own reason.
        let expected = [
            ("etcd", Reason::HealthCheckFailed),
            ("node/node1", Reason::HealthCheckFailed),
            ("node/node3", Reason::WatchdogMissing),
        ];
        assert_eq!(reason_by_subject, expected.map(|(about, reason)| (about.to_owned(), reason)));
    }

    #[test]
    fn unreadable_etcd_key_is_named() {
        let keys = Keys::new("test");
        let key = keys.status(Kind::Resource, "web");
        let entry = Entry {
            key: key.clone(),
            value: br#"{"state": "Dreaming"}"#.to_vec().into(),
            create_revision: Revision(1),
            mod_revision: Revision(1),
            lease: ha_store::LeaseId::NONE,
        };
        let entry_with = |key: String, value: &str| Entry {
            key,
            value: value.as_bytes().to_vec().into(),
            ..entry.clone()
        };
        let entries = vec![
            entry_with(keys.status(Kind::Cluster, "default"), r#"{"leader": "c1"}"#),
            entry_with(keys.candidate(&"c1".into()), r#"{"version": "0.9.1"}"#),
            entry,
        ];
        let mut cluster_view = ClusterView::new(keys);
        cluster_view.replace(entries, Revision(1), MonotonicTime(0));
        let reasons_and_messages = reasons(&cluster_view, &Overview::default());
        let summary = |(reason, message): &(Reason, String)| {
            *reason == Reason::Unreadable
                && [&key, "Dreaming", "controller c1", "0.9.1"].iter().all(|part| message.contains(*part))
        };
        assert!(reasons_and_messages.iter().any(summary), "{reasons_and_messages:?}");
    }
}
