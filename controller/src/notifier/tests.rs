//! Tests of notifications that are sent to loopback servers. Where receivers depend on the bytes, the tests compare
//! bytes.

use super::deliver;
use super::mail::message;
use super::webhook::signature;
use crate::core::notifications::deliveries::{Delivery, DeliveryId, DeliveryOutcome};
use crate::policy::{ControllerPolicy, Limits};
use ha_api_types::cluster::{Recipients, SmtpSpec, SmtpTls, Target, WebhookSpec};
use ha_api_types::notification::{Notification, NotificationKind, Severity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn notification() -> Notification {
    Notification {
        id: "c1-7".to_owned(),
        cluster: "default".to_owned(),
        kind: NotificationKind::NodeFenced,
        severity: Severity::Critical,
        summary: "node node1 was fenced".to_owned(),
        ..Notification::default()
    }
}

/// Starts a server that answers one request. Returns its URL, and the task that returns the request.
async fn serve_one_request(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let request_task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        // The client keeps the connection open, so the request is read up to the last brace of its document.
        while !received.ends_with(b"}") {
            let count = stream.read(&mut buffer).await.unwrap();
            received.extend_from_slice(&buffer[..count]);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        String::from_utf8(received).unwrap()
    });
    (format!("http://{address}/hook"), request_task)
}

async fn delivery_outcome(target: Target) -> DeliveryOutcome {
    limited_outcome(&Limits::default(), target).await
}

async fn limited_outcome(limits: &Limits, target: Target) -> DeliveryOutcome {
    deliver(limits, &Delivery { id: DeliveryId(1), target, notification: notification(), operation: None })
        .await
}

#[tokio::test]
async fn webhook_gets_document_id_and_signature() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "secret\n").unwrap();
    let (url, request_task) = serve_one_request("HTTP/1.1 204 No Content\r\n\r\n").await;
    let spec = WebhookSpec {
        url,
        hmac_key_file: Some(key.to_string_lossy().into_owned()),
        ..WebhookSpec::default()
    };
    assert_eq!(delivery_outcome(Target::Webhook(spec)).await, DeliveryOutcome::Delivered("204".to_owned()));
    let request = request_task.await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let lowercase_head = head.to_ascii_lowercase();
    assert!(lowercase_head.starts_with("post /hook http/1.1"), "{head}");
    assert!(lowercase_head.contains("\r\nx-hactl-notification: c1-7"), "{head}");
    assert!(
        lowercase_head.contains(&format!("\r\nx-hactl-signature: {}", signature(b"secret", body.as_bytes()))),
        "{head}"
    );
    assert_eq!(serde_json::from_str::<Notification>(body).unwrap(), notification());
}

#[tokio::test]
async fn limits_apply_to_addresses_and_files() {
    let policy = ControllerPolicy::parse("notificationAddresses: [127.0.0.0/8]").unwrap();
    let limits = Limits::new(Some(policy));
    let (url, request_task) = serve_one_request("HTTP/1.1 204 No Content\r\n\r\n").await;
    // The name is not listed, but its address is.
    let spec = WebhookSpec { url: url.replace("127.0.0.1", "localhost"), ..WebhookSpec::default() };
    let outcome = limited_outcome(&limits, Target::Webhook(spec.clone())).await;
    assert_eq!(outcome, DeliveryOutcome::Delivered("204".to_owned()));
    assert!(request_task.await.unwrap().contains("host: localhost"));
    let smtp = SmtpSpec {
        server: "localhost:25".to_owned(),
        tls: SmtpTls::Tls,
        from: "ha@example.org".to_owned(),
        to: Recipients::One("ops@example.org".to_owned()),
        ca_file: Some("/etc/shadow".to_owned()),
        ..SmtpSpec::default()
    };
    let file = WebhookSpec { hmac_key_file: Some("/etc/shadow".to_owned()), ..spec.clone() };
    let other = WebhookSpec { url: "http://192.0.2.1/".to_owned(), ..spec };
    for (target, expected) in [
        (Target::Webhook(file), "hmacKeyFile /etc/shadow is not in /etc/hactl/secrets"),
        (Target::Webhook(other), "does not allow notifications to 192.0.2.1"),
        (Target::Mail(smtp.clone()), "caFile /etc/shadow is not in /etc/hactl/secrets"),
        (
            Target::Mail(SmtpSpec { server: "192.0.2.1".to_owned(), ca_file: None, ..smtp }),
            "does not allow notifications to 192.0.2.1",
        ),
    ] {
        let outcome = limited_outcome(&limits, target).await;
        let DeliveryOutcome::Failed(cause) = &outcome else { panic!("{outcome:?}") };
        assert!(cause.contains(expected), "{cause}");
    }
}

#[test]
fn a_signature_is_hmac_sha256_in_hexadecimal() {
    // RFC 4231, test case 2.
    assert_eq!(
        signature(b"Jefe", b"what do ya want for nothing?"),
        "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

#[tokio::test]
async fn the_response_of_a_webhook_decides_whether_to_retry() {
    for (answer, refused) in [
        ("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy", false),
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", false),
        ("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n", false),
        ("HTTP/1.1 422 Unprocessable Entity\r\n\r\n", true),
    ] {
        let (url, _request_task) = serve_one_request(answer).await;
        let outcome = delivery_outcome(Target::Webhook(WebhookSpec { url, ..WebhookSpec::default() })).await;
        match outcome {
            DeliveryOutcome::Failed(cause) => {
                assert!(!refused && cause.starts_with("server returned"), "{cause}");
            }
            DeliveryOutcome::Refused(cause) => assert!(refused, "{cause}"),
            DeliveryOutcome::Delivered(response) => panic!("{answer}: {response}"),
        }
    }
}

#[tokio::test]
async fn missing_secret_files_are_reported_and_retried() {
    let check = async |target: Target, expected: &str| match delivery_outcome(target).await {
        DeliveryOutcome::Failed(cause) => assert!(cause.contains(expected), "{cause}"),
        other @ (DeliveryOutcome::Delivered(_) | DeliveryOutcome::Refused(_)) => panic!("{other:?}"),
    };
    let absent = Some("/nonexistent/secret".to_owned());
    let webhook = WebhookSpec {
        url: "http://127.0.0.1:9/".to_owned(),
        hmac_key_file: absent.clone(),
        ..WebhookSpec::default()
    };
    check(Target::Webhook(webhook), "hmacKeyFile /nonexistent/secret cannot be read").await;
    let smtp = SmtpSpec {
        server: "127.0.0.1:9".to_owned(),
        tls: SmtpTls::Tls,
        from: "hactl@example.org".to_owned(),
        to: Recipients::One("ops@example.org".to_owned()),
        ca_file: absent,
        ..SmtpSpec::default()
    };
    check(Target::Mail(smtp), "caFile /nonexistent/secret cannot be read").await;
}

#[test]
fn a_mail_has_the_headers_that_receivers_need() {
    let smtp = SmtpSpec {
        from: "hactl@example.org".to_owned(),
        to: Recipients::Several(vec!["ops@example.org".to_owned(), "oncall@example.com".to_owned()]),
        ..SmtpSpec::default()
    };
    let mail = String::from_utf8(message(&smtp, &notification()).unwrap().formatted()).unwrap();
    for line in [
        "From: \"hactl default\" <hactl@example.org>",
        "To: ops@example.org, oncall@example.com",
        "Subject: [hactl default] CRITICAL: node node1 was fenced",
        "Message-ID: <c1-7.default@example.org>",
        "Auto-Submitted: auto-generated",
        "Content-Type: text/plain; charset=utf-8",
    ] {
        assert!(mail.split("\r\n").any(|mail_line| mail_line == line), "{line} is missing in:\n{mail}");
    }
    assert!(mail.contains("\r\nDate: "), "{mail}");
}
