//! Checks of `Cluster.spec.notifications`.

use super::context::Context;
use crate::cluster::{NotificationsSpec, SmtpSpec, SmtpTls, Webhook};
use crate::notification::NotificationKind;
use crate::problem::{element_path, field_path};

const NOTIFICATIONS_PATH: &str = "spec.notifications";
/// Maximum number of webhooks, and of mail addresses.
const MAX_ELEMENTS: usize = 32;

pub(super) fn check(spec: &NotificationsSpec, context: &mut Context) {
    for (index, kind) in spec.kinds.iter().enumerate() {
        if *kind == NotificationKind::Test {
            let path = element_path(&field_path(NOTIFICATIONS_PATH, "kinds"), index);
            context.add_invalid(&path, "not a valid kind: run \"hactl notify test\" to send a test");
        }
    }
    let webhooks = field_path(NOTIFICATIONS_PATH, "webhooks");
    if spec.webhooks.len() > MAX_ELEMENTS {
        context.add_invalid(
            &webhooks,
            format!("has {} elements, at most {MAX_ELEMENTS} are allowed", spec.webhooks.len()),
        );
    }
    for (index, webhook) in spec.webhooks.iter().enumerate() {
        check_webhook(&element_path(&webhooks, index), webhook, context);
    }
    if let Some(smtp) = &spec.smtp {
        check_smtp(&field_path(NOTIFICATIONS_PATH, "smtp"), smtp, context);
    }
}

fn check_webhook(path: &str, webhook: &Webhook, context: &mut Context) {
    let settings = webhook.settings();
    let url = &settings.url;
    let at = match webhook {
        Webhook::Url(_) => path.to_owned(),
        Webhook::Settings(_) => field_path(path, "url"),
    };
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let has_host = |rest: &str| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        !host.is_empty() && !url.chars().any(|c| c.is_whitespace() || c.is_control())
    };
    if !rest.is_some_and(has_host) {
        context.add_invalid(&at, format!("{url:?} is not a valid http or https URL"));
    }
    if settings.bearer_token_file.is_some() && !url.starts_with("https://") {
        let message = "the token would be sent unencrypted: use an https URL, or hmacKeyFile";
        context.add_invalid(&field_path(path, "bearerTokenFile"), message);
    }
    check_file(path, "bearerTokenFile", settings.bearer_token_file.as_deref(), context);
    check_file(path, "hmacKeyFile", settings.hmac_key_file.as_deref(), context);
    check_file(path, "caFile", settings.ca_file.as_deref(), context);
}

fn check_smtp(path: &str, smtp: &SmtpSpec, context: &mut Context) {
    let server = field_path(path, "server");
    if smtp.server.is_empty() {
        context.add_required(&server, "required: the mail server, such as mail.example.org:587");
    } else if smtp.host_and_port().is_none() {
        context
            .add_invalid(&server, format!("{:?} is not a valid server: use host or host:port", smtp.server));
    }
    let from = field_path(path, "from");
    if smtp.from.is_empty() {
        context.add_required(&from, "required: the address of the sender");
    } else {
        check_address(&from, &smtp.from, context);
    }
    let to = field_path(path, "to");
    let addresses = smtp.to.addresses();
    if addresses.is_empty() {
        context.add_required(&to, "required: at least one recipient");
    }
    if addresses.len() > MAX_ELEMENTS {
        context.add_invalid(
            &to,
            format!("has {} elements, at most {MAX_ELEMENTS} are allowed", addresses.len()),
        );
    }
    for (index, text) in addresses.iter().enumerate() {
        check_address(&element_path(&to, index), text, context);
    }
    match (&smtp.user, &smtp.password_file) {
        (Some(_), None) => {
            context.add_required(
                &field_path(path, "passwordFile"),
                "required with user: a file on the controllers",
            );
        }
        (None, Some(_)) => context.add_required(&field_path(path, "user"), "required with passwordFile"),
        (Some(_), Some(_)) if smtp.tls == SmtpTls::None => {
            let message = "the password would be sent unencrypted: use StartTLS or TLS";
            context.add_invalid(&field_path(path, "tls"), message);
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    check_file(path, "passwordFile", smtp.password_file.as_deref(), context);
    check_file(path, "caFile", smtp.ca_file.as_deref(), context);
}

/// Checks the name of a file on the controllers: a path, or a name in their secrets directory.
pub(super) fn check_file(path: &str, field: &str, name: Option<&str>, context: &mut Context) {
    let is_plain = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    let is_valid = |name: &str| (name.starts_with('/') || is_plain(name)) && !name.contains(char::is_control);
    if name.is_some_and(|name| !is_valid(name)) {
        let message =
            "must be the name of a file in the secrets directory of the controllers, or an absolute path";
        context.add_invalid(&field_path(path, field), message);
    }
}

fn check_address(path: &str, text: &str, context: &mut Context) {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.chars().any(|c| c.is_whitespace() || c.is_control() || "<>,;\"@".contains(c))
    };
    let fits = text.split_once('@').is_some_and(|(user, domain)| plain(user) && plain(domain));
    if !fits || text.len() > 254 {
        context.add_invalid(
            path,
            format!(
                "{text:?} is not a valid mail address: use the form ops@example.org, without a display \
                 name"
            ),
        );
    }
}
