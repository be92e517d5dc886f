//! Tests of notifications from a real cluster, received by another project's mail server and by a web server.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use ha_api_types::notification::{Notification, NotificationKind};
use ha_api_types::record::NotificationRecord;
use ha_e2e::certificates::Authority;
use ha_e2e::command::output_text;
use ha_e2e::notification_receivers::{Mailbox, NotificationReceivers};
use ha_e2e::plan::Plan;
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS};
use ha_e2e::scratch;
use ha_e2e::wait::wait_until;
use serde_json::{Value, json};

const USER: &str = "hactl";
const PASSWORD: &str = "sesame";

/// Returns the notifications of a kind that the web server received.
fn posted_notifications(
    receivers: &NotificationReceivers,
    kind: NotificationKind,
) -> Result<Vec<Notification>> {
    let notifications: Result<Vec<Notification>, _> = receivers
        .requests("http")?
        .iter()
        .map(|request| serde_json::from_str(request["text"].as_str().unwrap_or_default()))
        .collect();
    Ok(notifications?.into_iter().filter(|notification| notification.kind == kind).collect())
}

/// Returns the mails whose subject contains a text.
fn mails_with_subject(receivers: &NotificationReceivers, subject: &str) -> Result<Vec<Value>> {
    let has_subject =
        |request: &Value| request["headers"]["Subject"].as_str().is_some_and(|text| text.contains(subject));
    Ok(receivers.requests("smtp")?.into_iter().filter(has_subject).collect())
}

fn queue_length(scenario: &Scenario) -> Result<usize> {
    let entry = scenario.cluster.etcdctl().get(&scenario.cluster.keys().notification_record())?;
    let stored_record: NotificationRecord =
        serde_json::from_value(entry.context("no notification is stored")?.value)?;
    Ok(stored_record.queue.len())
}

#[test]
fn notifications_survive_leader_and_receiver_failures() -> Result<()> {
    let mut plan = Plan::test(&scratch::directory("notifications")?);
    let directory = plan.directory.join("receivers");
    let policy = json!({"secretsDirectory": directory, "notificationAddresses": ["198.18.0.0/15"]});
    for index in 1..=plan.controllers {
        plan.policies.insert(format!("controller{index}"), policy.to_string());
    }
    let mut scenario = Scenario::start_with(plan)?;
    let address = scenario.cluster.host_address();
    Authority::create(&directory)?.issue("mail", "mail", &[address.into()])?;
    let password = directory.join("password");
    fs::write(&password, format!("{PASSWORD}\n"))?;
    let mailbox = Mailbox {
        certificate: directory.join("mail.pem"),
        key: directory.join("mail.key"),
        user: USER.to_owned(),
        password: PASSWORD.to_owned(),
    };
    let mut receivers = NotificationReceivers::start(&directory, address, &mailbox, None)?;
    scenario.apply(
        "clusters",
        "default",
        &json!({"notifications": {
            "webhooks": [{"url": receivers.url(), "hmacKeyFile": "password"}],
            "smtp": {"server": receivers.server(), "tls": "StartTLS", "caFile": directory.join("ca.pem"),
                "from": "hactl@example.org", "to": ["ops@example.org", "oncall@example.org"],
                "user": USER, "passwordFile": "password"},
        }}),
    )?;
    let forbidden_webhooks = json!([{"url": "http://192.0.2.1/", "hmacKeyFile": "/etc/shadow"}]).to_string();
    let refused_output = scenario.cluster.hactl(&[
        "set",
        "cluster/default",
        &format!("notifications.webhooks={forbidden_webhooks}"),
    ])?;
    let message = output_text(&refused_output);
    assert!(!refused_output.status.success(), "{message}");
    for part in ["hmacKeyFile /etc/shadow is not in", "does not allow notifications to 192.0.2.1"] {
        assert!(message.contains(part), "{message}");
    }
    let test = scenario.cluster.hactl(&["notify", "test"])?;
    let output_text =
        String::from_utf8_lossy(&test.stdout).into_owned() + &String::from_utf8_lossy(&test.stderr);
    assert_eq!(test.status.code(), Some(0), "{output_text}");
    assert_eq!(
        (
            mails_with_subject(&receivers, "test notification")?.len(),
            posted_notifications(&receivers, NotificationKind::Test)?.len()
        ),
        (1, 1)
    );

    let active_node = scenario.wait_until_started(WITNESS)?;
    scenario.cluster.power_off(&active_node)?;
    scenario.wait_until_moved_from(WITNESS, &active_node)?;
    wait_until("the notification of the fencing to reach both targets", STEP_TIMEOUT, || {
        mails_with_subject(&receivers, "was fenced").is_ok_and(|mails| !mails.is_empty())
            && posted_notifications(&receivers, NotificationKind::NodeFenced)
                .is_ok_and(|posts| !posts.is_empty())
    })?;
    let posts = receivers.requests("http")?;
    let signature = posts[0]["headers"]["x-hactl-signature"].as_str().unwrap_or_default();
    assert!(signature.starts_with("sha256=") && signature.len() == 71, "{signature}");
    let mail = mails_with_subject(&receivers, "was fenced")?.remove(0);
    let notification = posted_notifications(&receivers, NotificationKind::NodeFenced)?.remove(0);
    assert_eq!(
        mail["headers"]["Subject"],
        format!("[hactl default] CRITICAL: node {active_node} was fenced")
    );
    assert_eq!(mail["headers"]["Message-ID"], format!("<{}.default@example.org>", notification.id));
    assert_eq!(mail["headers"]["Auto-Submitted"], "auto-generated");
    assert_eq!(mail["to"], json!(["ops@example.org", "oncall@example.org"]));
    assert_eq!((&mail["tls"], &mail["user"]), (&json!(true), &json!(USER)));
    let text = mail["text"].as_str().unwrap_or_default();
    for part in [
        format!("node {active_node}"),
        "no heartbeat for".to_owned(),
        format!("hactl describe node {active_node}"),
    ] {
        assert!(text.contains(&part), "{part} is missing:\n{text}");
    }

    // Both servers are down when a service enters the state Error, and the leader fails before they are up again.
    let ports = (receivers.http, receivers.smtp);
    drop(receivers);
    let test = scenario.cluster.hactl(&["notify", "test"])?;
    assert_eq!(test.status.code(), Some(1), "{}", String::from_utf8_lossy(&test.stderr));
    scenario.apply(
        "resources",
        "broken",
        &json!({"driver": {"exec": {"command": ["/bin/false"]}}, "maxRestart": 0, "maxRelocate": 0}),
    )?;
    wait_until("the error to be stored", STEP_TIMEOUT, || {
        queue_length(&scenario).is_ok_and(|length| length == 1)
    })?;
    assert_eq!(scenario.state("broken"), "Error");
    let old_leader = scenario.cluster.leader()?;
    scenario.cluster.power_off(&old_leader)?;
    wait_until("another leader", STEP_TIMEOUT, || {
        scenario.cluster.leader().is_ok_and(|leader| leader != old_leader)
    })?;
    receivers = NotificationReceivers::start(&directory, address, &mailbox, Some(ports))?;
    wait_until("the notification of the error to reach both targets", STEP_TIMEOUT, || {
        queue_length(&scenario).is_ok_and(|length| length == 0)
    })?;

    // A leader may fail between a delivery and its record. The next leader then delivers again, with the same id.
    let ids = |kind: NotificationKind| -> Result<BTreeSet<String>> {
        Ok(posted_notifications(&receivers, kind)?.into_iter().map(|notification| notification.id).collect())
    };
    for (kind, subject) in [
        (NotificationKind::NodeFenced, "was fenced"),
        (NotificationKind::ResourceError, "resource broken is in Error"),
    ] {
        let mails: BTreeSet<String> = mails_with_subject(&receivers, subject)?
            .iter()
            .map(|mail| mail["headers"]["Message-ID"].to_string())
            .collect();
        assert_eq!((ids(kind)?.len(), mails.len()), (1, 1), "{kind:?}");
    }
    assert_eq!(
        mails_with_subject(&receivers, "was fenced")?.len(),
        1,
        "the fencing must be notified exactly once"
    );
    drop(receivers);
    scenario.finish()
}
