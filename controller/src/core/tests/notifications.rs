//! Tests of notifications: each change is reported once, even after changes of leader, lost commits and failing
//! targets.

use super::fencing::{TH, put};
use super::lab::Lab;
use super::services::operation;
use crate::core::counted::Counted;
use crate::core::notifications::deliveries::{DeliveryOutcome, NotificationResult};
use ha_api_types::cluster::{ClusterSpec, NotificationsSpec, SmtpSpec, Webhook};
use ha_api_types::id::Epoch;
use ha_api_types::notification::{Notification, NotificationKind};
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, FenceState, Leave, Mode, NodeReport, Notified};
use ha_api_types::resource::ServiceState;
use ha_api_types::time::Millis;
use ha_store::{Guard, Transaction};

const HOOK: &str = "webhook https://hooks.example.org/hactl";
/// Time in milliseconds after which changes have certainly been collected.
const GATHERED: Millis = 8_000;

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
    lab.settle();
    lab
}

/// Returns the delivered notifications, as kind and names.
fn got(lab: &Lab) -> Vec<(NotificationKind, String)> {
    let names = |items: &[ha_api_types::notification::NotificationItem]| {
        items.iter().map(|item| item.object.name.as_str()).collect::<Vec<_>>().join(",")
    };
    lab.delivered.iter().map(|(_, told)| (told.kind, names(&told.items))).collect()
}

fn queue(lab: &Lab) -> usize {
    lab.read::<Notified>(&lab.keys.notified()).unwrap_or_default().queue.len()
}

fn leader(lab: &Lab) -> usize {
    lab.members.iter().position(|member| member.running && member.core.term().is_some()).expect("a leader")
}

/// Ends the leader's process without a shutdown.
fn kill_leader(lab: &mut Lab) {
    let at = leader(lab);
    lab.members[at].running = false;
    lab.until(60_000, "another leads", |lab| {
        lab.members.iter().any(|member| member.running && member.core.term().is_some())
    });
}

fn fail_everywhere(lab: &mut Lab, name: &str) {
    for node in ["node1", "node2", "node3"] {
        lab.agent(node).faults.fails_start.insert(name.into(), FailureClass::RetryHere);
    }
    lab.resource(name);
}

fn mend(lab: &mut Lab) {
    for node in ["node1", "node2", "node3"] {
        lab.agent(node).faults.fails_start.clear();
    }
}

fn into_error(lab: &mut Lab, names: &[&str]) {
    for name in names {
        fail_everywhere(lab, name);
    }
    lab.until(20_000, "errors", |lab| names.iter().all(|name| lab.is(name, ServiceState::Error)));
}

fn counted(lab: &Lab, result: NotificationResult) -> usize {
    let wanted = Counted::Notification { target: "webhook", result };
    lab.counted.iter().filter(|found| **found == wanted).count()
}

#[test]
fn a_fence_is_told_once_with_what_to_do() {
    let mut lab = lab();
    lab.start("web");
    let node = lab.status("web").node.unwrap();
    lab.agent(&node).die();
    lab.until(60_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    lab.run(GATHERED);
    lab.agent(&node).boot();
    lab.run(60_000);
    assert_eq!(got(&lab), [(NotificationKind::NodeFenced, node.to_string())]);
    let told = &lab.delivered[0].1;
    assert_eq!(told.summary, format!("node {node} was fenced"));
    assert!(told.items[0].message.contains("no heartbeat for"), "{told:?}");
    assert!(told.items[0].action.contains(&format!("hactl describe node {node}")), "{told:?}");
    assert!(told.items[0].since.is_some());
    assert_eq!(queue(&lab), 0);
    assert_eq!(counted(&lab, NotificationResult::Sent), 1);
}

#[test]
fn a_node_that_leaves_in_order_or_begins_anew_is_no_fence() {
    let mut lab = lab();
    lab.start("web");
    let home = lab.status("web").node.unwrap();
    let idle = super::services::other(&lab, &home);
    // The agent leaves without services to stop.
    lab.agent(&idle).power = false;
    let key = lab.keys.node_report(&idle);
    let mut report: NodeReport = lab.read(&key).unwrap();
    (report.mode, report.armed) = (Mode::Left(Leave::Reboot), false);
    put(&mut lab, &key, &report);
    let alive = lab.keys.alive(&idle);
    let entry = lab.state.get(&alive).entries[0].clone();
    lab.state.commit(&Transaction::new().delete(alive, Guard::Unchanged(entry.mod_revision)));
    lab.until(3_000, "gone", |lab| lab.fence(&idle).state == FenceState::Fenced);
    lab.agent(&idle).boot();
    lab.run(30_000);
    assert_eq!(got(&lab), [], "{}", lab.show());
}

#[test]
fn errors_of_many_resources_are_one_message_and_their_end_is_told_once() {
    let mut lab = lab();
    into_error(&mut lab, &["a", "b", "c", "d"]);
    lab.run(GATHERED);
    assert_eq!(got(&lab), [(NotificationKind::ResourceError, "a,b,c,d".to_owned())]);
    let told = lab.delivered[0].1.clone();
    assert_eq!(told.summary, "4 resources are in Error: a, b, c and 1 more");
    let item = &told.items[0];
    assert!(item.node.is_some() && item.since.is_some() && !item.message.is_empty(), "{item:?}");
    assert!(item.action.contains("hactl why a") && item.action.contains("hactl clear-error a"), "{item:?}");
    mend(&mut lab);
    lab.operate(
        "clear",
        ha_api_types::operation::OperationSpec {
            resource: Some("b".to_owned()),
            ..operation(OperationAction::ClearError, None)
        },
    );
    lab.until(10_000, "started", |lab| lab.is("b", ServiceState::Started));
    lab.run(GATHERED);
    assert_eq!(got(&lab)[1..], [(NotificationKind::ResourceRecovered, "b".to_owned())]);
    lab.delete("c");
    lab.run(GATHERED * 2);
    assert_eq!(got(&lab)[2..], [(NotificationKind::ResourceRecovered, "c".to_owned())]);
}

#[test]
fn what_is_over_before_it_was_gathered_is_not_told() {
    let mut lab = lab();
    into_error(&mut lab, &["web"]);
    mend(&mut lab);
    lab.operate("clear", operation(OperationAction::ClearError, None));
    lab.until(4_000, "started", |lab| lab.is("web", ServiceState::Started));
    lab.run(GATHERED * 2);
    assert_eq!(got(&lab), []);
}

#[test]
fn a_fence_that_is_not_confirmed_is_told_and_then_its_end() {
    let mut lab = lab();
    lab.start("web");
    let node = lab.status("web").node.unwrap();
    lab.agent(&node).is_virtual = true;
    lab.run(2_000);
    lab.agent(&node).die();
    lab.run(TH + 30_000);
    assert_eq!(got(&lab), [], "the notification is not due yet");
    lab.run(60_000);
    assert_eq!(got(&lab), [(NotificationKind::FenceUnconfirmed, node.to_string())]);
    let item = lab.delivered[0].1.items[0].clone();
    assert_eq!(item.reason, Reason::FencingUnavailable);
    assert!(item.action.contains(&format!("hactl node confirm-fenced {node}")), "{item:?}");
    lab.operate_node(OperationAction::ConfirmFenced, &node);
    lab.until(20_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    lab.run(120_000);
    assert_eq!(got(&lab)[1..], [(NotificationKind::NodeFenced, node.to_string())]);
}

#[test]
fn a_fence_that_a_failed_watchdog_cannot_confirm_is_told() {
    let mut lab = Lab::new(1, &["node1"]);
    notify(&mut lab, Some(webhook()));
    lab.settle();
    lab.start("web");
    lab.agent("node1").watchdog_failed = true;
    lab.run(2_000);
    lab.agent("node1").die();
    lab.run(TH + 90_000);
    assert!(got(&lab).contains(&(NotificationKind::FenceUnconfirmed, "node1".to_owned())), "{:?}", got(&lab));
    let ready = lab.status("web").conditions.into_iter().find(|condition| condition.kind == "Ready").unwrap();
    assert_eq!(ready.reason, Reason::WatchdogFailed);
    assert!(ready.message.contains("hactl node confirm-fenced node1"), "{}", ready.message);
}

#[test]
fn a_node_that_is_heard_again_without_having_been_fenced_is_told() {
    let mut lab = lab();
    let key = lab.keys.notified();
    lab.until(10_000, "begun", |lab| lab.read::<Notified>(&lab.keys.notified()).is_some());
    let mut known: Notified = lab.read(&key).unwrap();
    known.told.unconfirmed.insert("node1".into(), Epoch(1));
    put(&mut lab, &key, &known);
    lab.run(GATHERED * 2);
    assert_eq!(got(&lab), [(NotificationKind::NodeReturned, "node1".to_owned())]);
    assert_eq!(lab.read::<Notified>(&key).unwrap().told.unconfirmed.len(), 0);
}

#[test]
fn a_change_of_leader_tells_nothing_twice() {
    let mut lab = lab();
    into_error(&mut lab, &["web"]);
    lab.run(GATHERED);
    kill_leader(&mut lab);
    lab.run(GATHERED * 2);
    assert_eq!(got(&lab), [(NotificationKind::ResourceError, "web".to_owned())]);
}

#[test]
fn what_a_dead_leader_had_stored_is_delivered_by_the_next_under_the_same_id() {
    let mut lab = lab();
    lab.sink = DeliveryOutcome::Failed("connection refused".to_owned());
    into_error(&mut lab, &["web"]);
    lab.until(GATHERED, "queued", |lab| queue(lab) == 1);
    let stored = lab.read::<Notified>(&lab.keys.notified()).unwrap().queue.remove(0).notification;
    kill_leader(&mut lab);
    lab.run(GATHERED);
    lab.sink = DeliveryOutcome::Delivered("204".to_owned());
    lab.run(60_000);
    assert_eq!(lab.delivered, [(HOOK.to_owned(), stored)]);
    assert_eq!(queue(&lab), 0);
}

#[test]
fn what_was_delivered_and_not_recorded_is_delivered_again_under_the_same_id() {
    let mut lab = lab();
    lab.dies_of_delivery = true;
    into_error(&mut lab, &["web"]);
    lab.until(GATHERED, "delivered", |lab| !lab.delivered.is_empty());
    assert_eq!(queue(&lab), 1);
    lab.run(60_000);
    let ids: Vec<&str> = lab.delivered.iter().map(|(_, told)| told.id.as_str()).collect();
    assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
    assert_eq!(queue(&lab), 0);
}

#[test]
fn commits_whose_outcome_is_unknown_lose_and_repeat_nothing() {
    for applied in [true, false] {
        let mut lab = lab();
        into_error(&mut lab, &["web"]);
        lab.run(4_000);
        lab.lose = vec![applied; 6];
        lab.run(GATHERED * 2);
        assert_eq!(got(&lab), [(NotificationKind::ResourceError, "web".to_owned())], "applied: {applied}");
    }
}

#[test]
fn a_target_that_is_down_gets_everything_later_in_order_and_is_not_pestered() {
    let mut lab = lab();
    lab.sink = DeliveryOutcome::Failed("connection refused".to_owned());
    into_error(&mut lab, &["a"]);
    lab.run(GATHERED);
    into_error(&mut lab, &["b"]);
    lab.run(600_000);
    let tried = counted(&lab, NotificationResult::Failed);
    assert!((5..12).contains(&tried), "{tried} attempts in ten minutes");
    lab.sink = DeliveryOutcome::Delivered("204".to_owned());
    lab.run(330_000);
    let error = NotificationKind::ResourceError;
    assert_eq!(got(&lab), [(error, "a".to_owned()), (error, "b".to_owned())]);
}

#[test]
fn what_a_target_refuses_is_given_up_with_an_event() {
    let mut lab = lab();
    lab.sink = DeliveryOutcome::Refused("server returned 422".to_owned());
    into_error(&mut lab, &["web"]);
    lab.run(GATHERED);
    assert_eq!((queue(&lab), counted(&lab, NotificationResult::GivenUp)), (0, 1));
    let told: Vec<&str> = lab
        .events
        .iter()
        .filter(|event| event.reason == Reason::NotificationFailed)
        .map(|event| event.message.as_str())
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains(HOOK) && told[0].ends_with("discarded (attempts: 1): server returned 422"),
        "{told:?}"
    );
}

#[test]
fn who_is_named_later_is_told_what_stands_and_not_what_is_over() {
    let mut lab = Lab::new(1, &["node1", "node2", "node3"]);
    lab.settle();
    lab.start("web");
    let node = lab.status("web").node.unwrap();
    lab.agent(&node).die();
    lab.until(60_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    lab.run(1_000);
    fail_everywhere(&mut lab, "db");
    lab.until(20_000, "an error", |lab| lab.is("db", ServiceState::Error));
    lab.run(GATHERED);
    assert_eq!(lab.state.get(&lab.keys.notified()).entries, []);
    notify(&mut lab, Some(webhook()));
    lab.run(GATHERED);
    assert_eq!(got(&lab), [(NotificationKind::ResourceError, "db".to_owned())]);
    notify(&mut lab, None);
    lab.run(1_000);
    assert_eq!(
        lab.state.get(&lab.keys.notified()).entries,
        [],
        "without a target, no notification is stored"
    );
}

#[test]
fn what_is_not_chosen_is_not_told_later_either() {
    let mut lab = lab();
    notify(&mut lab, Some(NotificationsSpec { kinds: vec![NotificationKind::NodeFenced], ..webhook() }));
    into_error(&mut lab, &["web"]);
    lab.run(GATHERED);
    notify(&mut lab, Some(webhook()));
    lab.run(GATHERED);
    assert_eq!(got(&lab), []);
}

#[test]
fn a_url_that_is_mended_gets_what_waited_for_it() {
    let mut lab = lab();
    lab.sink = DeliveryOutcome::Failed("no such host".to_owned());
    into_error(&mut lab, &["web"]);
    lab.run(GATHERED);
    lab.sink = DeliveryOutcome::Delivered("204".to_owned());
    let url = "https://right.example.org/".to_owned();
    notify(
        &mut lab,
        Some(NotificationsSpec { webhooks: vec![Webhook::Url(url)], ..NotificationsSpec::default() }),
    );
    lab.run(2_000);
    let targets: Vec<&str> = lab.delivered.iter().map(|(target, _)| target.as_str()).collect();
    assert_eq!((targets, queue(&lab)), (vec!["webhook https://right.example.org/"], 0));
}

/// Returns a notification that waits for an unreachable target, followed by `count` modified copies of it.
fn with_waiting(count: usize, change: impl Fn(&mut Notification)) -> (Lab, Notification) {
    let mut lab = lab();
    lab.sink = DeliveryOutcome::Failed("connection refused".to_owned());
    into_error(&mut lab, &["a"]);
    lab.until(GATHERED, "queued", |lab| queue(lab) == 1);
    let key = lab.keys.notified();
    let mut known: Notified = lab.read(&key).unwrap();
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
fn a_queue_that_is_full_drops_the_oldest_and_says_so() {
    let (mut lab, first) = with_waiting(49, |_| {});
    into_error(&mut lab, &["b", "c"]);
    lab.run(GATHERED);
    assert_eq!((queue(&lab), counted(&lab, NotificationResult::Dropped)), (50, 1));
    let found = lab.events.iter().filter(|event| event.reason == Reason::NotificationFailed);
    let messages: Vec<&str> = found.map(|event| event.message.as_str()).collect();
    assert!(messages.len() == 1 && messages[0].contains(&first.id), "{messages:?}");
    assert!(messages[0].ends_with(&format!("not delivered to {HOOK}")), "{messages:?}");
}

#[test]
fn what_waits_is_bounded_by_size_too_so_that_the_store_takes_it() {
    // The largest possible notification: every item has a message of maximum length, in three-byte characters.
    let (mut lab, _) = with_waiting(30, |large| {
        large.items = vec![large.items[0].clone(); 20];
        for item in &mut large.items {
            item.message = "語".repeat(600);
        }
    });
    into_error(&mut lab, &["b"]);
    lab.run(GATHERED);
    let kept: Notified = lab.read(&lab.keys.notified()).unwrap();
    let ids: Vec<&str> = kept.queue.iter().map(|queued| queued.notification.id.as_str()).collect();
    assert!(serde_json::to_vec(&kept).unwrap().len() < 800 << 10, "{} wait", ids.len());
    assert!(serde_json::to_vec(&kept).unwrap().len() > 700 << 10, "{} wait", ids.len());
    assert_eq!(ids[ids.len() - 2], "more-29", "the oldest are dropped: {ids:?}");
    assert_eq!(counted(&lab, NotificationResult::Dropped), 32 - ids.len());
}

#[test]
fn a_test_goes_to_every_target_and_says_what_became_of_each() {
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
    lab.operate("good", spec());
    lab.until(2_000, "ended", |lab| lab.operation("good").phase.is_final());
    let status = lab.operation("good");
    assert_eq!(status.phase, OperationPhase::Succeeded, "{}", status.message);
    assert_eq!(status.message, format!("smtp mail.example.org: delivered (204)\n{HOOK}: delivered (204)"));
    assert_eq!(lab.delivered.len(), 2);
    assert!(
        lab.delivered.iter().all(|(_, told)| told.id == "test-good" && told.kind == NotificationKind::Test)
    );
    lab.sink = DeliveryOutcome::Failed("connection refused".to_owned());
    lab.operate("bad", spec());
    lab.until(2_000, "ended", |lab| lab.operation("bad").phase.is_final());
    assert_eq!(lab.operation("bad").phase, OperationPhase::Failed);
    notify(&mut lab, None);
    lab.run(500);
    lab.operate("none", spec());
    lab.until(2_000, "ended", |lab| lab.operation("none").phase.is_final());
    assert_eq!(lab.operation("none").phase, OperationPhase::Refused);
}
