//! Tests of notifications: each change is reported once, even after changes of leader, lost commits and failing
//! targets.

use super::fencing::{TH, put};
use super::services::operation;
use super::test_cluster::TestCluster;
use crate::core::metric_event::MetricEvent;
use crate::core::notifications::deliveries::{DeliveryOutcome, NotificationResult};
use ha_api_types::cluster::{ClusterSpec, NotificationsSpec, SmtpSpec, Webhook};
use ha_api_types::id::Epoch;
use ha_api_types::notification::{Notification, NotificationKind};
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, FenceState, Mode, NodeReport, NotificationRecord, ShutdownKind};
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

fn notify(cluster: &mut TestCluster, spec: Option<NotificationsSpec>) {
    cluster.edit::<ClusterSpec>("default", |settings| settings.spec.notifications = spec);
}

/// Returns a cluster with two controllers, three nodes and one target.
fn notifying_cluster() -> TestCluster {
    let mut cluster = TestCluster::new(2, &["node1", "node2", "node3"]);
    notify(&mut cluster, Some(webhook()));
    cluster.wait_until_nodes_online();
    cluster
}

/// Returns the delivered notifications, as kind and names.
fn delivered(cluster: &TestCluster) -> Vec<(NotificationKind, String)> {
    let names = |items: &[ha_api_types::notification::NotificationItem]| {
        items.iter().map(|item| item.object.name.as_str()).collect::<Vec<_>>().join(",")
    };
    cluster
        .delivered_notifications
        .iter()
        .map(|(_, notification)| (notification.kind, names(&notification.items)))
        .collect()
}

fn queue_length(cluster: &TestCluster) -> usize {
    cluster.read::<NotificationRecord>(&cluster.keys.notification_record()).unwrap_or_default().queue.len()
}

fn leader(cluster: &TestCluster) -> usize {
    cluster
        .controllers
        .iter()
        .position(|controller| controller.is_running && controller.core.term().is_some())
        .expect("a leader")
}

/// Ends the leader's process without a shutdown.
fn kill_leader(cluster: &mut TestCluster) {
    let leader_index = leader(cluster);
    cluster.controllers[leader_index].is_running = false;
    cluster.run_until(60_000, "another leads", |cluster| {
        cluster.controllers.iter().any(|controller| controller.is_running && controller.core.term().is_some())
    });
}

fn fail_everywhere(cluster: &mut TestCluster, name: &str) {
    for node in ["node1", "node2", "node3"] {
        cluster.agent(node).faults.fails_start.insert(name.into(), FailureClass::RetryHere);
    }
    cluster.create_resource(name);
}

fn repair(cluster: &mut TestCluster) {
    for node in ["node1", "node2", "node3"] {
        cluster.agent(node).faults.fails_start.clear();
    }
}

fn bring_into_error(cluster: &mut TestCluster, names: &[&str]) {
    for name in names {
        fail_everywhere(cluster, name);
    }
    cluster.run_until(20_000, "errors", |cluster| {
        names.iter().all(|name| cluster.is_in_state(name, ServiceState::Error))
    });
}

fn count_results(cluster: &TestCluster, result: NotificationResult) -> usize {
    let expected_event = MetricEvent::Notification { target: "webhook", result };
    cluster.metric_events.iter().filter(|counted_event| **counted_event == expected_event).count()
}

#[test]
fn a_fence_is_notified_once_with_instructions() {
    let mut cluster = notifying_cluster();
    cluster.start("web");
    let node = cluster.status("web").node.unwrap();
    cluster.agent(&node).power_off();
    cluster.run_until(60_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    cluster.run(COLLECTED_MS);
    cluster.agent(&node).boot_again();
    cluster.run(60_000);
    assert_eq!(delivered(&cluster), [(NotificationKind::NodeFenced, node.to_string())]);
    let notification = &cluster.delivered_notifications[0].1;
    assert_eq!(notification.summary, format!("node {node} was fenced"));
    assert!(notification.items[0].message.contains("no heartbeat for"), "{notification:?}");
    assert!(
        notification.items[0].action.contains(&format!("hactl describe node {node}")),
        "{notification:?}"
    );
    assert!(notification.items[0].since.is_some());
    assert_eq!(queue_length(&cluster), 0);
    assert_eq!(count_results(&cluster, NotificationResult::Sent), 1);
}

#[test]
fn clean_leave_causes_no_fencing_notification() {
    let mut cluster = notifying_cluster();
    cluster.start("web");
    let assigned_node = cluster.status("web").node.unwrap();
    let idle_node = super::services::another_node(&cluster, &assigned_node);
    // The agent leaves without services to stop.
    cluster.agent(&idle_node).is_powered_on = false;
    let key = cluster.keys.node_report(&idle_node);
    let mut report: NodeReport = cluster.read(&key).unwrap();
    (report.mode, report.armed) = (Mode::Left(ShutdownKind::Reboot), false);
    put(&mut cluster, &key, &report);
    let alive = cluster.keys.alive(&idle_node);
    let entry = cluster.state.get(&alive).entries[0].clone();
    cluster.state.commit(&Transaction::new().delete(alive, Guard::Unchanged(entry.mod_revision)));
    cluster.run_until(3_000, "gone", |cluster| cluster.fence(&idle_node).state == FenceState::Fenced);
    cluster.agent(&idle_node).boot_again();
    cluster.run(30_000);
    assert_eq!(delivered(&cluster), [], "{}", cluster.show());
}

#[test]
fn many_resource_errors_become_one_notification() {
    let mut cluster = notifying_cluster();
    bring_into_error(&mut cluster, &["a", "b", "c", "d"]);
    cluster.run(COLLECTED_MS);
    assert_eq!(delivered(&cluster), [(NotificationKind::ResourceError, "a,b,c,d".to_owned())]);
    let notification = cluster.delivered_notifications[0].1.clone();
    assert_eq!(notification.summary, "4 resources are in Error: a, b, c and 1 more");
    let item = &notification.items[0];
    assert!(item.node.is_some() && item.since.is_some() && !item.message.is_empty(), "{item:?}");
    assert!(item.action.contains("hactl why a") && item.action.contains("hactl clear-error a"), "{item:?}");
    repair(&mut cluster);
    cluster.create_operation(
        "clear",
        ha_api_types::operation::OperationSpec {
            resource: Some("b".to_owned()),
            ..operation(OperationAction::ClearError, None)
        },
    );
    cluster.run_until(10_000, "started", |cluster| cluster.is_in_state("b", ServiceState::Started));
    cluster.run(COLLECTED_MS);
    assert_eq!(delivered(&cluster)[1..], [(NotificationKind::ResourceRecovered, "b".to_owned())]);
    cluster.delete("c");
    cluster.run(COLLECTED_MS * 2);
    assert_eq!(delivered(&cluster)[2..], [(NotificationKind::ResourceRecovered, "c".to_owned())]);
}

#[test]
fn short_problems_are_not_notified() {
    let mut cluster = notifying_cluster();
    bring_into_error(&mut cluster, &["web"]);
    repair(&mut cluster);
    cluster.create_operation("clear", operation(OperationAction::ClearError, None));
    cluster.run_until(4_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    cluster.run(COLLECTED_MS * 2);
    assert_eq!(delivered(&cluster), []);
}

#[test]
fn unconfirmed_fencing_and_its_end_are_notified() {
    let mut cluster = notifying_cluster();
    cluster.start("web");
    let node = cluster.status("web").node.unwrap();
    cluster.agent(&node).is_virtual = true;
    cluster.run(2_000);
    cluster.agent(&node).power_off();
    cluster.run(TH + 30_000);
    assert_eq!(delivered(&cluster), [], "the notification is not due yet");
    cluster.run(60_000);
    assert_eq!(delivered(&cluster), [(NotificationKind::FenceUnconfirmed, node.to_string())]);
    let item = cluster.delivered_notifications[0].1.items[0].clone();
    assert_eq!(item.reason, Reason::FencingUnavailable);
    assert!(item.action.contains(&format!("hactl node confirm-fenced {node}")), "{item:?}");
    cluster.operate_node(OperationAction::ConfirmFenced, &node);
    cluster.run_until(20_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    cluster.run(120_000);
    assert_eq!(delivered(&cluster)[1..], [(NotificationKind::NodeFenced, node.to_string())]);
}

#[test]
fn fencing_without_working_watchdog_is_notified() {
    let mut cluster = TestCluster::new(1, &["node1"]);
    notify(&mut cluster, Some(webhook()));
    cluster.wait_until_nodes_online();
    cluster.start("web");
    cluster.agent("node1").watchdog_failed = true;
    cluster.run(2_000);
    cluster.agent("node1").power_off();
    cluster.run(TH + 90_000);
    assert!(
        delivered(&cluster).contains(&(NotificationKind::FenceUnconfirmed, "node1".to_owned())),
        "{:?}",
        delivered(&cluster)
    );
    let ready =
        cluster.status("web").conditions.into_iter().find(|condition| condition.kind == "Ready").unwrap();
    assert_eq!(ready.reason, Reason::WatchdogFailed);
    assert!(ready.message.contains("hactl node confirm-fenced node1"), "{}", ready.message);
}

#[test]
fn return_of_an_unfenced_node_is_notified() {
    let mut cluster = notifying_cluster();
    let key = cluster.keys.notification_record();
    cluster.run_until(10_000, "begun", |cluster| {
        cluster.read::<NotificationRecord>(&cluster.keys.notification_record()).is_some()
    });
    let mut record: NotificationRecord = cluster.read(&key).unwrap();
    record.sent.unconfirmed.insert("node1".into(), Epoch(1));
    put(&mut cluster, &key, &record);
    cluster.run(COLLECTED_MS * 2);
    assert_eq!(delivered(&cluster), [(NotificationKind::NodeReturned, "node1".to_owned())]);
    assert_eq!(cluster.read::<NotificationRecord>(&key).unwrap().sent.unconfirmed.len(), 0);
}

#[test]
fn a_change_of_leader_repeats_no_notification() {
    let mut cluster = notifying_cluster();
    bring_into_error(&mut cluster, &["web"]);
    cluster.run(COLLECTED_MS);
    kill_leader(&mut cluster);
    cluster.run(COLLECTED_MS * 2);
    assert_eq!(delivered(&cluster), [(NotificationKind::ResourceError, "web".to_owned())]);
}

#[test]
fn next_leader_delivers_with_the_same_id() {
    let mut cluster = notifying_cluster();
    cluster.delivery_outcome = DeliveryOutcome::Failed("connection refused".to_owned());
    bring_into_error(&mut cluster, &["web"]);
    cluster.run_until(COLLECTED_MS, "queued", |cluster| queue_length(cluster) == 1);
    let stored = cluster
        .read::<NotificationRecord>(&cluster.keys.notification_record())
        .unwrap()
        .queue
        .remove(0)
        .notification;
    kill_leader(&mut cluster);
    cluster.run(COLLECTED_MS);
    cluster.delivery_outcome = DeliveryOutcome::Delivered("204".to_owned());
    cluster.run(60_000);
    assert_eq!(cluster.delivered_notifications, [(WEBHOOK_TARGET.to_owned(), stored)]);
    assert_eq!(queue_length(&cluster), 0);
}

#[test]
fn an_unrecorded_delivery_is_repeated_under_the_same_id() {
    let mut cluster = notifying_cluster();
    cluster.dies_on_delivery = true;
    bring_into_error(&mut cluster, &["web"]);
    cluster.run_until(COLLECTED_MS, "delivered", |cluster| !cluster.delivered_notifications.is_empty());
    assert_eq!(queue_length(&cluster), 1);
    cluster.run(60_000);
    let ids: Vec<&str> =
        cluster.delivered_notifications.iter().map(|(_, notification)| notification.id.as_str()).collect();
    assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
    assert_eq!(queue_length(&cluster), 0);
}

#[test]
fn unknown_commits_lose_no_notification() {
    for applied in [true, false] {
        let mut cluster = notifying_cluster();
        bring_into_error(&mut cluster, &["web"]);
        cluster.run(4_000);
        cluster.lost_commits = vec![applied; 6];
        cluster.run(COLLECTED_MS * 2);
        assert_eq!(
            delivered(&cluster),
            [(NotificationKind::ResourceError, "web".to_owned())],
            "applied: {applied}"
        );
    }
}

#[test]
fn unreachable_target_is_retried_in_order() {
    let mut cluster = notifying_cluster();
    cluster.delivery_outcome = DeliveryOutcome::Failed("connection refused".to_owned());
    bring_into_error(&mut cluster, &["a"]);
    cluster.run(COLLECTED_MS);
    bring_into_error(&mut cluster, &["b"]);
    cluster.run(600_000);
    let failed_attempts = count_results(&cluster, NotificationResult::Failed);
    assert!((5..12).contains(&failed_attempts), "{failed_attempts} attempts in ten minutes");
    cluster.delivery_outcome = DeliveryOutcome::Delivered("204".to_owned());
    cluster.run(330_000);
    let error = NotificationKind::ResourceError;
    assert_eq!(delivered(&cluster), [(error, "a".to_owned()), (error, "b".to_owned())]);
}

#[test]
fn a_refused_notification_is_dropped_with_an_event() {
    let mut cluster = notifying_cluster();
    cluster.delivery_outcome = DeliveryOutcome::Refused("server returned 422".to_owned());
    bring_into_error(&mut cluster, &["web"]);
    cluster.run(COLLECTED_MS);
    assert_eq!((queue_length(&cluster), count_results(&cluster, NotificationResult::GivenUp)), (0, 1));
    let messages: Vec<&str> = cluster
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
    let mut cluster = TestCluster::new(1, &["node1", "node2", "node3"]);
    cluster.wait_until_nodes_online();
    cluster.start("web");
    let node = cluster.status("web").node.unwrap();
    cluster.agent(&node).power_off();
    cluster.run_until(60_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    cluster.run(1_000);
    fail_everywhere(&mut cluster, "db");
    cluster.run_until(20_000, "an error", |cluster| cluster.is_in_state("db", ServiceState::Error));
    cluster.run(COLLECTED_MS);
    assert_eq!(cluster.state.get(&cluster.keys.notification_record()).entries, []);
    notify(&mut cluster, Some(webhook()));
    cluster.run(COLLECTED_MS);
    assert_eq!(delivered(&cluster), [(NotificationKind::ResourceError, "db".to_owned())]);
    notify(&mut cluster, None);
    cluster.run(1_000);
    assert_eq!(
        cluster.state.get(&cluster.keys.notification_record()).entries,
        [],
        "without a target, no notification is stored"
    );
}

#[test]
fn a_problem_of_an_unselected_kind_is_not_notified_later() {
    let mut cluster = notifying_cluster();
    notify(&mut cluster, Some(NotificationsSpec { kinds: vec![NotificationKind::NodeFenced], ..webhook() }));
    bring_into_error(&mut cluster, &["web"]);
    cluster.run(COLLECTED_MS);
    notify(&mut cluster, Some(webhook()));
    cluster.run(COLLECTED_MS);
    assert_eq!(delivered(&cluster), []);
}

#[test]
fn a_corrected_url_gets_the_queued_notifications() {
    let mut cluster = notifying_cluster();
    cluster.delivery_outcome = DeliveryOutcome::Failed("no such host".to_owned());
    bring_into_error(&mut cluster, &["web"]);
    cluster.run(COLLECTED_MS);
    cluster.delivery_outcome = DeliveryOutcome::Delivered("204".to_owned());
    let url = "https://right.example.org/".to_owned();
    notify(
        &mut cluster,
        Some(NotificationsSpec { webhooks: vec![Webhook::Url(url)], ..NotificationsSpec::default() }),
    );
    cluster.run(2_000);
    let targets: Vec<&str> =
        cluster.delivered_notifications.iter().map(|(target, _)| target.as_str()).collect();
    assert_eq!((targets, queue_length(&cluster)), (vec!["webhook https://right.example.org/"], 0));
}

/// Returns a notification that waits for an unreachable target, followed by `count` modified copies of it.
fn with_queued_notifications(
    count: usize,
    change: impl Fn(&mut Notification),
) -> (TestCluster, Notification) {
    let mut cluster = notifying_cluster();
    cluster.delivery_outcome = DeliveryOutcome::Failed("connection refused".to_owned());
    bring_into_error(&mut cluster, &["a"]);
    cluster.run_until(COLLECTED_MS, "queued", |cluster| queue_length(cluster) == 1);
    let key = cluster.keys.notification_record();
    let mut record: NotificationRecord = cluster.read(&key).unwrap();
    let first = record.queue[0].clone();
    let mut second_notification = first.clone();
    change(&mut second_notification.notification);
    for number in 0..count {
        second_notification.notification.id = format!("more-{number}");
        record.queue.push(second_notification.clone());
    }
    put(&mut cluster, &key, &record);
    (cluster, first.notification)
}

#[test]
fn a_full_queue_drops_the_oldest_notification_and_reports_it() {
    let (mut cluster, first) = with_queued_notifications(49, |_| {});
    bring_into_error(&mut cluster, &["b", "c"]);
    cluster.run(COLLECTED_MS);
    assert_eq!((queue_length(&cluster), count_results(&cluster, NotificationResult::Dropped)), (50, 1));
    let failure_events = cluster.events.iter().filter(|event| event.reason == Reason::NotificationFailed);
    let messages: Vec<&str> = failure_events.map(|event| event.message.as_str()).collect();
    assert!(messages.len() == 1 && messages[0].contains(&first.id), "{messages:?}");
    assert!(messages[0].ends_with(&format!("not delivered to {WEBHOOK_TARGET}")), "{messages:?}");
}

#[test]
fn notification_queue_fits_into_an_etcd_value() {
    // The largest possible notification: every item has a message of maximum length, in three-byte characters.
    let (mut cluster, _) = with_queued_notifications(30, |large| {
        large.items = vec![large.items[0].clone(); 20];
        for item in &mut large.items {
            item.message = "語".repeat(600);
        }
    });
    bring_into_error(&mut cluster, &["b"]);
    cluster.run(COLLECTED_MS);
    let stored_queue: NotificationRecord = cluster.read(&cluster.keys.notification_record()).unwrap();
    let ids: Vec<&str> = stored_queue.queue.iter().map(|queued| queued.notification.id.as_str()).collect();
    assert!(serde_json::to_vec(&stored_queue).unwrap().len() < 800 << 10, "{} wait", ids.len());
    assert!(serde_json::to_vec(&stored_queue).unwrap().len() > 700 << 10, "{} wait", ids.len());
    assert_eq!(ids[ids.len() - 2], "more-29", "the oldest are dropped: {ids:?}");
    assert_eq!(count_results(&cluster, NotificationResult::Dropped), 32 - ids.len());
}

#[test]
fn a_test_notification_reports_the_outcome_for_every_target() {
    let mut cluster = notifying_cluster();
    let smtp: SmtpSpec = serde_json::from_value(serde_json::json!({
        "server": "mail.example.org", "from": "hactl@example.org", "to": "ops@example.org",
    }))
    .unwrap();
    notify(&mut cluster, Some(NotificationsSpec { smtp: Some(smtp), ..webhook() }));
    let spec = || ha_api_types::operation::OperationSpec {
        action: OperationAction::TestNotifications,
        ..ha_api_types::operation::OperationSpec::default()
    };
    cluster.create_operation("good", spec());
    cluster.run_until(2_000, "ended", |cluster| cluster.operation("good").phase.is_final());
    let status = cluster.operation("good");
    assert_eq!(status.phase, OperationPhase::Succeeded, "{}", status.message);
    assert_eq!(
        status.message,
        format!("smtp mail.example.org: delivered (204)\n{WEBHOOK_TARGET}: delivered (204)")
    );
    assert_eq!(cluster.delivered_notifications.len(), 2);
    assert!(cluster.delivered_notifications.iter().all(
        |(_, notification)| notification.id == "test-good" && notification.kind == NotificationKind::Test
    ));
    cluster.delivery_outcome = DeliveryOutcome::Failed("connection refused".to_owned());
    cluster.create_operation("bad", spec());
    cluster.run_until(2_000, "ended", |cluster| cluster.operation("bad").phase.is_final());
    assert_eq!(cluster.operation("bad").phase, OperationPhase::Failed);
    notify(&mut cluster, None);
    cluster.run(500);
    cluster.create_operation("none", spec());
    cluster.run_until(2_000, "ended", |cluster| cluster.operation("none").phase.is_final());
    assert_eq!(cluster.operation("none").phase, OperationPhase::Refused);
}
