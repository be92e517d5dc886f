//! Tests of notifications from a real cluster, received by another project's mail server and by a web server.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use ha_api_types::notification::{Notification, NotificationKind};
use ha_api_types::record::Notified;
use ha_e2e::certificates::Authority;
use ha_e2e::scenario::{CEILING, Scenario, WITNESS};
use ha_e2e::sinks::{Mailbox, Sinks};
use ha_e2e::wait::wait_until;
use serde_json::{Value, json};

const USER: &str = "hactl";
const PASSWORD: &str = "sesame";

/// Returns the notifications of a kind that the web server received.
fn posted(sinks: &Sinks, kind: NotificationKind) -> Result<Vec<Notification>> {
    let all: Result<Vec<Notification>, _> = sinks
        .got("http")?
        .iter()
        .map(|got| serde_json::from_str(got["text"].as_str().unwrap_or_default()))
        .collect();
    Ok(all?.into_iter().filter(|told| told.kind == kind).collect())
}

/// Returns the mails whose subject contains a text.
fn mailed(sinks: &Sinks, subject: &str) -> Result<Vec<Value>> {
    let has = |got: &Value| got["headers"]["Subject"].as_str().is_some_and(|found| found.contains(subject));
    Ok(sinks.got("smtp")?.into_iter().filter(has).collect())
}

fn queue(scenario: &Scenario) -> Result<usize> {
    let entry = scenario.cluster.etcdctl().get(&scenario.cluster.keys().notified())?;
    let notified: Notified = serde_json::from_value(entry.context("no notification is stored")?.value)?;
    Ok(notified.queue.len())
}

#[test]
fn a_fence_and_an_error_reach_mail_and_webhook_although_leader_and_sinks_fail() -> Result<()> {
    let mut scenario = Scenario::start("notifications")?;
    let folder = scenario.cluster.folder().join("sinks");
    let address = scenario.cluster.host_address();
    Authority::create(&folder)?.issue("mail", "mail", &[address.into()])?;
    let password = folder.join("password");
    fs::write(&password, format!("{PASSWORD}\n"))?;
    let mailbox = Mailbox {
        certificate: folder.join("mail.pem"),
        key: folder.join("mail.key"),
        user: USER.to_owned(),
        password: PASSWORD.to_owned(),
    };
    let mut sinks = Sinks::start(&folder, address, &mailbox, None)?;
    scenario.apply(
        "clusters",
        "default",
        &json!({"notifications": {
            "webhooks": [{"url": sinks.url(), "hmacKeyFile": password}],
            "smtp": {"server": sinks.server(), "tls": "StartTls", "caFile": folder.join("ca.pem"),
                "from": "hactl@example.org", "to": ["ops@example.org", "oncall@example.org"],
                "user": USER, "passwordFile": password},
        }}),
    )?;
    let test = scenario.cluster.hactl(&["notify", "test"])?;
    let said = String::from_utf8_lossy(&test.stdout).into_owned() + &String::from_utf8_lossy(&test.stderr);
    assert_eq!(test.status.code(), Some(0), "{said}");
    assert_eq!(
        (mailed(&sinks, "test notification")?.len(), posted(&sinks, NotificationKind::Test)?.len()),
        (1, 1)
    );

    let home = scenario.home(WITNESS)?;
    scenario.cluster.power_off(&home)?;
    scenario.elsewhere(WITNESS, &home)?;
    wait_until("the notification of the fencing to reach both targets", CEILING, || {
        mailed(&sinks, "was fenced").is_ok_and(|mails| !mails.is_empty())
            && posted(&sinks, NotificationKind::NodeFenced).is_ok_and(|posts| !posts.is_empty())
    })?;
    let posts = sinks.got("http")?;
    let signature = posts[0]["headers"]["x-hactl-signature"].as_str().unwrap_or_default();
    assert!(signature.starts_with("sha256=") && signature.len() == 71, "{signature}");
    let mail = mailed(&sinks, "was fenced")?.remove(0);
    let told = posted(&sinks, NotificationKind::NodeFenced)?.remove(0);
    assert_eq!(mail["headers"]["Subject"], format!("[hactl default] CRITICAL: node {home} was fenced"));
    assert_eq!(mail["headers"]["Message-ID"], format!("<{}.default@example.org>", told.id));
    assert_eq!(mail["headers"]["Auto-Submitted"], "auto-generated");
    assert_eq!(mail["to"], json!(["ops@example.org", "oncall@example.org"]));
    assert_eq!((&mail["tls"], &mail["user"]), (&json!(true), &json!(USER)));
    let text = mail["text"].as_str().unwrap_or_default();
    for part in [format!("node {home}"), "no heartbeat for".to_owned(), format!("hactl describe node {home}")]
    {
        assert!(text.contains(&part), "{part} is missing:\n{text}");
    }

    // Both servers are down when a service enters the state Error, and the leader fails before they are up again.
    let ports = (sinks.http, sinks.smtp);
    drop(sinks);
    let test = scenario.cluster.hactl(&["notify", "test"])?;
    assert_eq!(test.status.code(), Some(1), "{}", String::from_utf8_lossy(&test.stderr));
    scenario.apply(
        "resources",
        "broken",
        &json!({"driver": {"exec": {"command": ["/bin/false"]}}, "maxRestart": 0, "maxRelocate": 0}),
    )?;
    wait_until("the error to be stored", CEILING, || queue(&scenario).is_ok_and(|length| length == 1))?;
    assert_eq!(scenario.state("broken"), "Error");
    let old = scenario.cluster.leader()?;
    scenario.cluster.power_off(&old)?;
    wait_until("another leader", CEILING, || scenario.cluster.leader().is_ok_and(|leader| leader != old))?;
    sinks = Sinks::start(&folder, address, &mailbox, Some(ports))?;
    wait_until("the notification of the error to reach both targets", CEILING, || {
        queue(&scenario).is_ok_and(|length| length == 0)
    })?;

    // A leader may fail between a delivery and its record. The next leader then delivers again, with the same id.
    let ids = |kind: NotificationKind| -> Result<BTreeSet<String>> {
        Ok(posted(&sinks, kind)?.into_iter().map(|told| told.id).collect())
    };
    for (kind, subject) in [
        (NotificationKind::NodeFenced, "was fenced"),
        (NotificationKind::ResourceError, "resource broken is in Error"),
    ] {
        let mails: BTreeSet<String> =
            mailed(&sinks, subject)?.iter().map(|mail| mail["headers"]["Message-ID"].to_string()).collect();
        assert_eq!((ids(kind)?.len(), mails.len()), (1, 1), "{kind:?}");
    }
    assert_eq!(mailed(&sinks, "was fenced")?.len(), 1, "the fencing must be notified exactly once");
    drop(sinks);
    scenario.finish()
}
