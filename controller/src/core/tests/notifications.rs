//! Tests of notifications: each change is reported once, even after changes of leader, lost commits and failing
//! targets.

use super::fencing::{TH, put};
use super::lab::Lab;
use super::services::operation;
use crate::core::metric_event::MetricEvent;
use crate::core::notifications::deliveries::{DeliveryOutcome, NotificationResult};
use ha_api_types::cluster::{ClusterSpec, NotificationsSpec, SmtpSpec, Webhook};
use ha_api_types::id::Epoch;
use ha_api_types::notification::{Notification, NotificationKind};
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, FenceState, Leave, Mode, NodeReport, NotificationRecord};
use ha_api_types::resource::ServiceState;
use ha_api_types::time::Millis;
use ha_store::{Guard, Transaction};

const WEBHOOK_TARGET: &str = "webhook https://hooks.example.org/hactl";
/// Time in milliseconds after which changes have certainly been collected.
const COLLECTED_MS: Millis = 8_000;

fn webhook() -> NotificationsSpec {
    let url = "https://hooks.example.org/hactl".to_owned();
    NotificationsSpec { webhooks: vec![Webhook::Url(url)], ..NotificationsSpec::default() }
}

fn notify(lab: &mut Lab, spec: Option<NotificationsSpec>) {
    lab.edit::<ClusterSpec>("default", |cluster| cluster.spec.notifications = spec);
}

/// Returns two controllers, three nodes and one target.
fn lab() -> Lab {
    let mut lab = Lab::new(2, &["node1", "node2", "node3"]);
    notify(&mut lab, Some(webhook()));
    lab.wait_until_nodes_online();
    lab
}

/// Returns the delivered notifications, as kind and names.
fn delivered(lab: &Lab) -> Vec<(NotificationKind, String)> {
    let names = |items: &[ha_api_types::notification::NotificationItem]| {
        items.iter().map(|item| item.object.name.as_str()).collect::<Vec<_>>().join(",")
    };
    lab.delivered.iter().map(|(_, notification)| (notification.kind, names(&notification.items))).collect()
}

fn queue_length(lab: &Lab) -> usize {
    lab.read::<NotificationRecord>(&lab.keys.notification_record()).unwrap_or_default().queue.len()
}

fn leader(lab: &Lab) -> usize {
    lab.members.iter().position(|member| member.running && member.core.term().is_some()).expect("a leader")
}

/// Ends the leader's process without a shutdown.
fn kill_leader(lab: &mut Lab) {
    let at = leader(lab);
    lab.members[at].running = false;
    lab.run_until(60_000, "another leads", |lab| {
        lab.members.iter().any(|member| member.running && member.core.term().is_some())
    });
}

fn fail_everywhere(lab: &mut Lab, name: &str) {
    for node in ["node1", "node2", "node3"] {
        lab.agent(node).faults.fails_start.insert(name.into(), FailureClass::RetryHere);
    }
    lab.create_resource(name);
}

fn repair(lab: &mut Lab) {
    for node in ["node1", "node2", "node3"] {
        lab.agent(node).faults.fails_start.clear();
    }
}

fn bring_into_error(lab: &mut Lab, names: &[&str]) {
    for name in names {
        fail_everywhere(lab, name);
    }
    lab.run_until(20_000, "errors", |lab| {
        names.iter().all(|name| lab.is_in_state(name, ServiceState::Error))
    });
}

fn count_results(lab: &Lab, result: NotificationResult) -> usize {
    let expected_event = MetricEvent::Notification { target: "webhook", result };
    lab.metric_events.iter().filter(|found| **found == expected_event).count()
}

#[test]
fn a_fence_is_notified_once_with_instructions() {
    let mut lab = lab();
    lab.start("web");
    let node = lab.status("web").node.unwrap();
    lab.agent(&node).power_off();
    lab.run_until(60_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    lab.run(COLLECTED_MS);
    lab.agent(&node).boot_again();
    lab.run(60_000);
    assert_eq!(delivered(&lab), [(NotificationKind::NodeFenced, node.to_string())]);
    let notification = &lab.delivered[0].1;
    assert_eq!(notification.summary, format!("node {node} was fenced"));
    assert!(notification.items[0].message.contains("no heartbeat for"), "{notification:?}");
    assert!(
        notification.items[0].action.contains(&format!("hactl describe node {node}")),
        "{notification:?}"
    );
    assert!(notification.items[0].since.is_some());
    assert_eq!(queue_length(&lab), 0);
    assert_eq!(count_results(&lab, NotificationResult::Sent), 1);
}

#[test]
fn clean_leave_causes_no_fencing_notification() {
    let mut lab = lab();
    lab.start("web");
    let assigned_node = lab.status("web").node.unwrap();
    let idle = super::services::other(&lab, &assigned_node);
    // The agent leaves without services to stop.
    lab.agent(&idle).is_powered_on = false;
    let key = lab.keys.node_report(&idle);
    let mut report: NodeReport = lab.read(&key).unwrap();
    (report.mode, report.armed) = (Mode::Left(Leave::Reboot), false);
    put(&mut lab, &key, &report);
    let alive = lab.keys.alive(&idle);
    let entry = lab.state.get(&alive).entries[0].clone();
    lab.state.commit(&Transaction::new().delete(alive, Guard::Unchanged(entry.mod_revision)));
    lab.run_until(3_000, "gone", |lab| lab.fence(&idle).state == FenceState::Fenced);
    lab.agent(&idle).boot_again();
    lab.run(30_000);
    assert_eq!(delivered(&lab), [], "{}", lab.show());
}

#[test]
fn many_resource_errors_become_one_notification() {
    let mut lab = lab();
    bring_into_error(&mut lab, &["a", "b", "c", "d"]);
    lab.run(COLLECTED_MS);
    assert_eq!(delivered(&lab), [(NotificationKind::ResourceError, "a,b,c,d".to_owned())]);
    let notification = lab.delivered[0].1.clone();
    assert_eq!(notification.summary, "4 resources are in Error: a, b, c and 1 more");
    let item = &notification.items[0];
    assert!(item.node.is_some() && item.since.is_some() && !item.message.is_empty(), "{item:?}");
    assert!(item.action.contains("hactl why a") && item.action.contains("hactl clear-error a"), "{item:?}");
    repair(&mut lab);
    lab.create_operation(
        "clear",
        ha_api_types::operation::OperationSpec {
            resource: Some("b".to_owned()),
            ..operation(OperationAction::ClearError, None)
        },
    );
    lab.run_until(10_000, "started", |lab| lab.is_in_state("b", ServiceState::Started));
    lab.run(COLLECTED_MS);
    assert_eq!(delivered(&lab)[1..], [(NotificationKind::ResourceRecovered, "b".to_owned())]);
    lab.delete("c");
    lab.run(COLLECTED_MS * 2);
    assert_eq!(delivered(&lab)[2..], [(NotificationKind::ResourceRecovered, "c".to_owned())]);
}

#[test]
fn short_problems_are_not_notified() {
    let mut lab = lab();
    bring_into_error(&mut lab, &["web"]);
    repair(&mut lab);
    lab.create_operation("clear", operation(OperationAction::ClearError, None));
    lab.run_until(4_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    lab.run(COLLECTED_MS * 2);
    assert_eq!(delivered(&lab), []);
}

#[test]
fn unconfirmed_fencing_and_its_end_are_notified() {
    let mut lab = lab();
    lab.start("web");
    let node = lab.status("web").node.unwrap();
    lab.agent(&node).is_virtual = true;
    lab.run(2_000);
    lab.agent(&node).power_off();
    lab.run(TH + 30_000);
    assert_eq!(delivered(&lab), [], "the notification is not due yet");
    lab.run(60_000);
    assert_eq!(delivered(&lab), [(NotificationKind::FenceUnconfirmed, node.to_string())]);
    let item = lab.delivered[0].1.items[0].clone();
    assert_eq!(item.reason, Reason::FencingUnavailable);
    assert!(item.action.contains(&format!("hactl node confirm-fenced {node}")), "{item:?}");
    lab.operate_node(OperationAction::ConfirmFenced, &node);
    lab.run_until(20_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    lab.run(120_000);
    assert_eq!(delivered(&lab)[1..], [(NotificationKind::NodeFenced, node.to_string())]);
}

#[test]
fn fencing_without_working_watchdog_is_notified() {
    let mut lab = Lab::new(1, &["node1"]);
    notify(&mut lab, Some(webhook()));
    lab.wait_until_nodes_online();
    lab.start("web");
    lab.agent("node1").watchdog_failed = true;
    lab.run(2_000);
    lab.agent("node1").power_off();
    lab.run(TH + 90_000);
    assert!(
        delivered(&lab).contains(&(NotificationKind::FenceUnconfirmed, "node1".to_owned())),
        "{:?}",
        delivered(&lab)
    );
    let ready = lab.status("web").conditions.into_iter().find(|condition| condition.kind == "Ready").unwrap();
    assert_eq!(ready.reason, Reason::WatchdogFailed);
    assert!(ready.message.contains("hactl node confirm-fenced node1"), "{}", ready.message);
}

#[test]
fn return_of_an_unfenced_node_is_notified() {
    let mut lab = lab();
    let key = lab.keys.notification_record();
    lab.run_until(10_000, "begun", |lab| {
        lab.read::<NotificationRecord>(&lab.keys.notification_record()).is_some()
    });
    let mut known: NotificationRecord = lab.read(&key).unwrap();
    known.sent.unconfirmed.insert("node1".into(), Epoch(1));
    put(&mut lab, &key, &known);
    lab.run(COLLECTED_MS * 2);
    assert_eq!(delivered(&lab), [(NotificationKind::NodeReturned, "node1".to_owned())]);
    assert_eq!(lab.read::<NotificationRecord>(&key).unwrap().sent.unconfirmed.len(), 0);
}

#[test]
fn a_change_of_leader_repeats_no_notification() {
    let mut lab = lab();
    bring_into_error(&mut lab, &["web"]);
    lab.run(COLLECTED_MS);
    kill_leader(&mut lab);
    lab.run(COLLECTED_MS * 2);
    assert_eq!(delivered(&lab), [(NotificationKind::ResourceError, "web".to_owned())]);
}

#[test]
fn next_leader_delivers_with_the_same_id() {
    let mut lab = lab();
    lab.delivery_outcome = DeliveryOutcome::Failed("connection refused".to_owned());
    bring_into_error(&mut lab, &["web"]);
    lab.run_until(COLLECTED_MS, "queued", |lab| queue_length(lab) == 1);
    let stored =
        lab.read::<NotificationRecord>(&lab.keys.notification_record()).unwrap().queue.remove(0).notification;
    kill_leader(&mut lab);
    lab.run(COLLECTED_MS);
    lab.delivery_outcome = DeliveryOutcome::Delivered("204".to_owned());
    lab.run(60_000);
    assert_eq!(lab.delivered, [(WEBHOOK_TARGET.to_owned(), stored)]);
    assert_eq!(queue_length(&lab), 0);
}

#[test]
fn an_unrecorded_delivery_is_repeated_under_the_same_id() {
    let mut lab = lab();
    lab.dies_on_delivery = true;
    bring_into_error(&mut lab, &["web"]);
    lab.run_until(COLLECTED_MS, "delivered", |lab| !lab.delivered.is_empty());
    assert_eq!(queue_length(&lab), 1);
    lab.run(60_000);
    let ids: Vec<&str> = lab.delivered.iter().map(|(_, notification)| notification.id.as_str()).collect();
    assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
    assert_eq!(queue_length(&lab), 0);
}

#[test]
fn unknown_commits_lose_no_notification() {
    for applied in [true, false] {
        let mut lab = lab();
        bring_into_error(&mut lab, &["web"]);
        lab.run(4_000);
        lab.lost_commits = vec![applied; 6];
        lab.run(COLLECTED_MS * 2);
        assert_eq!(
            delivered(&lab),
            [(NotificationKind::ResourceError, "web".to_owned())],
            "applied: {applied}"
        );
    }
}

#[test]
fn unreachable_target_is_retried_in_order() {
    let mut lab = lab();
    lab.delivery_outcome = DeliveryOutcome::Failed("connection refused".to_owned());
    bring_into_error(&mut lab, &["a"]);
    lab.run(COLLECTED_MS);
    bring_into_error(&mut lab, &["b"]);
    lab.run(600_000);
    let tried = count_results(&lab, NotificationResult::Failed);
    assert!((5..12).contains(&tried), "{tried} attempts in ten minutes");
    lab.delivery_outcome = DeliveryOutcome::Delivered("204".to_owned());
    lab.run(330_000);
    let error = NotificationKind::ResourceError;
    assert_eq!(delivered(&lab), [(error, "a".to_owned()), (error, "b".to_owned())]);
}

#[test]
fn a_refused_notification_is_dropped_with_an_event() {
    let mut lab = lab();
    lab.delivery_outcome = DeliveryOutcome::Refused("server returned 422".to_owned());
    bring_into_error(&mut lab, &["web"]);
    lab.run(COLLECTED_MS);
    assert_eq!((queue_length(&lab), count_results(&lab, NotificationResult::GivenUp)), (0, 1));
    let messages: Vec<&str> = lab
        .events
        .iter()
        .filter(|event| event.reason == Reason::NotificationFailed)
        .map(|event| event.message.as_str())
        .collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].contains(WEBHOOK_TARGET)
            && messages[0].ends_with("discarded (attempts: 1): server returned 422"),
        "{messages:?}"
    );
}

#[test]
fn a_new_target_gets_current_problems_but_no_past_ones() {
    let mut lab = Lab::new(1, &["node1", "node2", "node3"]);
    lab.wait_until_nodes_online();
    lab.start("web");
    let node = lab.status("web").node.unwrap();
    lab.agent(&node).power_off();
    lab.run_until(60_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    lab.run(1_000);
    fail_everywhere(&mut lab, "db");
    lab.run_until(20_000, "an error", |lab| lab.is_in_state("db", ServiceState::Error));
    lab.run(COLLECTED_MS);
    assert_eq!(lab.state.get(&lab.keys.notification_record()).entries, []);
    notify(&mut lab, Some(webhook()));
    lab.run(COLLECTED_MS);
    assert_eq!(delivered(&lab), [(NotificationKind::ResourceError, "db".to_owned())]);
    notify(&mut lab, None);
    lab.run(1_000);
    assert_eq!(
        lab.state.get(&lab.keys.notification_record()).entries,
        [],
        "without a target, no notification is stored"
    );
}

#[test]
fn a_problem_of_an_unselected_kind_is_not_notified_later() {
    let mut lab = lab();
    notify(&mut lab, Some(NotificationsSpec { kinds: vec![NotificationKind::NodeFenced], ..webhook() }));
    bring_into_error(&mut lab, &["web"]);
    lab.run(COLLECTED_MS);
    notify(&mut lab, Some(webhook()));
    lab.run(COLLECTED_MS);
    assert_eq!(delivered(&lab), []);
}

#[test]
fn a_corrected_url_gets_the_queued_notifications() {
    let mut lab = lab();
    lab.delivery_outcome = DeliveryOutcome::Failed("no such host".to_owned());
    bring_into_error(&mut lab, &["web"]);
    lab.run(COLLECTED_MS);
    lab.delivery_outcome = DeliveryOutcome::Delivered("204".to_owned());
    let url = "https://right.example.org/".to_owned();
    notify(
        &mut lab,
        Some(NotificationsSpec { webhooks: vec![Webhook::Url(url)], ..NotificationsSpec::default() }),
    );
    lab.run(2_000);
    let targets: Vec<&str> = lab.delivered.iter().map(|(target, _)| target.as_str()).collect();
    assert_eq!((targets, queue_length(&lab)), (vec!["webhook https://right.example.org/"], 0));
}

/// Returns a notification that waits for an unreachable target, followed by `count` modified copies of it.
fn with_waiting(count: usize, change: impl Fn(&mut Notification)) -> (Lab, Notification) {
    let mut lab = lab();
    lab.delivery_outcome = DeliveryOutcome::Failed("connection refused".to_owned());
    bring_into_error(&mut lab, &["a"]);
    lab.run_until(COLLECTED_MS, "queued", |lab| queue_length(lab) == 1);
    let key = lab.keys.notification_record();
    let mut known: NotificationRecord = lab.read(&key).unwrap();
    let first = known.queue[0].clone();
    let mut more = first.clone();
    change(&mut more.notification);
    for number in 0..count {
        more.notification.id = format!("more-{number}");
        known.queue.push(more.clone());
    }
    put(&mut lab, &key, &known);
    (lab, first.notification)
}

#[test]
fn a_full_queue_drops_the_oldest_notification_and_reports_it() {
    let (mut lab, first) = with_waiting(49, |_| {});
    bring_into_error(&mut lab, &["b", "c"]);
    lab.run(COLLECTED_MS);
    assert_eq!((queue_length(&lab), count_results(&lab, NotificationResult::Dropped)), (50, 1));
    let found = lab.events.iter().filter(|event| event.reason == Reason::NotificationFailed);
    let messages: Vec<&str> = found.map(|event| event.message.as_str()).collect();
    assert!(messages.len() == 1 && messages[0].contains(&first.id), "{messages:?}");
    assert!(messages[0].ends_with(&format!("not delivered to {WEBHOOK_TARGET}")), "{messages:?}");
}

#[test]
fn notification_queue_fits_into_an_etcd_value() {
    // The largest possible notification: every item has a message of maximum length, in three-byte characters.
    let (mut lab, _) = with_waiting(30, |large| {
        large.items = vec![large.items[0].clone(); 20];
        for item in &mut large.items {
            item.message = "語".repeat(600);
        }
    });
    bring_into_error(&mut lab, &["b"]);
    lab.run(COLLECTED_MS);
    let stored_queue: NotificationRecord = lab.read(&lab.keys.notification_record()).unwrap();
    let ids: Vec<&str> = stored_queue.queue.iter().map(|queued| queued.notification.id.as_str()).collect();
    assert!(serde_json::to_vec(&stored_queue).unwrap().len() < 800 << 10, "{} wait", ids.len());
    assert!(serde_json::to_vec(&stored_queue).unwrap().len() > 700 << 10, "{} wait", ids.len());
    assert_eq!(ids[ids.len() - 2], "more-29", "the oldest are dropped: {ids:?}");
    assert_eq!(count_results(&lab, NotificationResult::Dropped), 32 - ids.len());
}

#[test]
fn a_test_notification_reports_the_outcome_for_every_target() {
    let mut lab = lab();
    let smtp: SmtpSpec = serde_json::from_value(serde_json::json!({
        "server": "mail.example.org", "from": "hactl@example.org", "to": "ops@example.org",
    }))
    .unwrap();
    notify(&mut lab, Some(NotificationsSpec { smtp: Some(smtp), ..webhook() }));
    let spec = || ha_api_types::operation::OperationSpec {
        action: OperationAction::TestNotifications,
        ..ha_api_types::operation::OperationSpec::default()
    };
    lab.create_operation("good", spec());
    lab.run_until(2_000, "ended", |lab| lab.operation("good").phase.is_final());
    let status = lab.operation("good");
    assert_eq!(status.phase, OperationPhase::Succeeded, "{}", status.message);
    assert_eq!(
        status.message,
        format!("smtp mail.example.org: delivered (204)\n{WEBHOOK_TARGET}: delivered (204)")
    );
    assert_eq!(lab.delivered.len(), 2);
    assert!(lab.delivered.iter().all(
        |(_, notification)| notification.id == "test-good" && notification.kind == NotificationKind::Test
    ));
    lab.delivery_outcome = DeliveryOutcome::Failed("connection refused".to_owned());
    lab.create_operation("bad", spec());
    lab.run_until(2_000, "ended", |lab| lab.operation("bad").phase.is_final());
    assert_eq!(lab.operation("bad").phase, OperationPhase::Failed);
    notify(&mut lab, None);
    lab.run(500);
    lab.create_operation("none", spec());
    lab.run_until(2_000, "ended", |lab| lab.operation("none").phase.is_final());
    assert_eq!(lab.operation("none").phase, OperationPhase::Refused);
}
