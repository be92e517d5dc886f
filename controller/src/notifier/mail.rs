//! Delivery of a notification by mail: plain text, with a message id that stays the same when the mail is sent again.

use super::{read_file, read_secret, root_cause};
use crate::core::notifications::deliveries::DeliveryOutcome;
use crate::policy::Limits;
use ha_api_types::cluster::{SmtpSpec, SmtpTls};
use ha_api_types::notification::{Notification, Severity};
use lettre::address::Envelope;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use std::time::Duration;

/// Timeout of one SMTP command.
const SMTP_TIMEOUT: Duration = Duration::from_secs(10);
/// Status codes by which a server permanently refuses the mail: the mailbox, its name, its size. Other errors can be
/// caused by the server or the login, which an operator can correct.
const REFUSAL_CODES: [u16; 5] = [550, 551, 552, 553, 556];

type Transport = AsyncSmtpTransport<Tokio1Executor>;

pub(super) async fn send(limits: &Limits, smtp: &SmtpSpec, notification: &Notification) -> DeliveryOutcome {
    let prepared = async {
        let message = message(smtp, notification)?;
        Ok::<_, String>((message.envelope().clone(), message.formatted(), transport(limits, smtp).await?))
    };
    let (envelope, mail, transport) = match prepared.await {
        Ok(prepared) => prepared,
        Err(cause) => return DeliveryOutcome::Failed(cause),
    };
    match transport.send_raw(&envelope, &mail).await {
        Ok(answer) => {
            let lines: Vec<&str> = answer.message().collect();
            DeliveryOutcome::Delivered(format!("{} {}", answer.code(), lines.join(" ")))
        }
        Err(error) if is_refusal(&error) && envelope.to().len() > 1 => {
            send_separately(&transport, &envelope, &mail).await
        }
        Err(error) if is_refusal(&error) => DeliveryOutcome::Refused(error_text(&error)),
        Err(error) => DeliveryOutcome::Failed(error_text(&error)),
    }
}

/// Sends the mail to each address separately, so that a refused address does not affect the other addresses.
async fn send_separately(transport: &Transport, envelope: &Envelope, mail: &[u8]) -> DeliveryOutcome {
    let mut refused = Vec::new();
    for address in envelope.to() {
        let single_envelope = match Envelope::new(envelope.from().cloned(), vec![address.clone()]) {
            Ok(single_envelope) => single_envelope,
            Err(error) => return DeliveryOutcome::Failed(error.to_string()),
        };
        match transport.send_raw(&single_envelope, mail).await {
            Ok(_) => {}
            Err(error) if is_refusal(&error) => refused.push(format!("{address}: {}", error_text(&error))),
            Err(error) => return DeliveryOutcome::Failed(error_text(&error)),
        }
    }
    let recipient_count = envelope.to().len();
    DeliveryOutcome::Refused(format!(
        "refused for {} of {recipient_count} addresses: {}",
        refused.len(),
        refused.join(", ")
    ))
}

fn is_refusal(error: &Error) -> bool {
    let code = error.status().and_then(|code| code.to_string().parse::<u16>().ok());
    code.is_some_and(|code| REFUSAL_CODES.contains(&code))
}

/// Returns the text of an error: the server's answer from the error itself, a network failure from its cause.
fn error_text(error: &Error) -> String {
    if error.status().is_some() { error.to_string() } else { root_cause(error) }
}

async fn transport(limits: &Limits, smtp: &SmtpSpec) -> Result<Transport, String> {
    let (host, port) =
        smtp.host_and_port().ok_or_else(|| format!("{:?} is not a valid server", smtp.server))?;
    let tls = match smtp.tls {
        SmtpTls::None => Tls::None,
        SmtpTls::StartTls => Tls::Required(parameters(limits, smtp, &host).await?),
        SmtpTls::Tls => Tls::Wrapper(parameters(limits, smtp, &host).await?),
    };
    let host_name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // The transport connects to the address that was checked, and does not look the name up again.
    let server = match limits.addresses(&host, port).await?.as_deref() {
        Some([address, ..]) => address.ip().to_string(),
        Some([]) | None => host,
    };
    let mut builder = Transport::builder_dangerous(server).port(port).tls(tls).timeout(Some(SMTP_TIMEOUT));
    if !host_name.trim().is_empty() {
        builder = builder.hello_name(ClientId::Domain(host_name.trim().to_owned()));
    }
    if let (Some(user), Some(path)) = (&smtp.user, &smtp.password_file) {
        builder = builder
            .credentials(Credentials::new(user.clone(), read_secret(limits, "passwordFile", path).await?));
    }
    Ok(builder.build())
}

async fn parameters(limits: &Limits, smtp: &SmtpSpec, host: &str) -> Result<TlsParameters, String> {
    let mut builder = TlsParameters::builder(host.to_owned());
    if let Some(path) = &smtp.ca_file {
        let authority = Certificate::from_pem(&read_file(limits, "caFile", path).await?)
            .map_err(|_| format!("caFile {path} does not contain a PEM certificate"))?;
        builder = builder.certificate_store(CertificateStore::None).add_root_certificate(authority);
    }
    builder.build_rustls().map_err(|error| {
        let cause = root_cause(&error);
        format!("TLS setup failed: {cause}; set caFile to the CA certificate")
    })
}

/// Builds the mail. It is marked as sent by a program, so that automatic responders do not answer it.
pub(super) fn message(smtp: &SmtpSpec, notification: &Notification) -> Result<Message, String> {
    let address = |text: &str| text.parse::<Address>().map_err(|error| format!("{text}: {error}"));
    let from = address(&smtp.from)?;
    let id = format!("<{}.{}@{}>", notification.id, notification.cluster, from.domain());
    let mut builder = Message::builder()
        .from(Mailbox::new(Some(format!("hactl {}", notification.cluster)), from))
        .subject(notification.subject())
        .message_id(Some(id))
        .date_now()
        .raw_header(raw_header("Auto-Submitted", "auto-generated"))
        .raw_header(raw_header("X-Hactl-Notification", &notification.id));
    if notification.severity == Severity::Critical {
        builder = builder.raw_header(raw_header("Importance", "high"));
    }
    for to in smtp.to.addresses() {
        builder = builder.to(Mailbox::new(None, address(to)?));
    }
    builder.header(ContentType::TEXT_PLAIN).body(notification.text()).map_err(|error| error.to_string())
}

fn raw_header(name: &'static str, value: &str) -> HeaderValue {
    HeaderValue::new(HeaderName::new_from_ascii_str(name), value.to_owned())
}
