//! The targets of notifications about fencing and errors.

use crate::notification::NotificationKind;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Targets of notifications about fencing, errors and failover capacity. Secrets are read from files on the
/// controllers, and are never part of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NotificationsSpec {
    /// Kinds of notifications to send. Default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<NotificationKind>,
    /// Webhooks that receive a JSON document by POST: URLs, or URLs with settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<Webhook>,
    /// Mail server, sender and recipients. Default: no mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smtp: Option<SmtpSpec>,
}

/// Webhook that receives a JSON document by POST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Webhook {
    /// The URL only.
    Url(String),
    /// A URL with settings.
    Settings(WebhookSpec),
}

/// A webhook with authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookSpec {
    /// URL of the webhook, with scheme http or https.
    pub url: String,
    /// File in the secrets directory of the controllers with a token for `Authorization: Bearer`. Requires https.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token_file: Option<String>,
    /// File in the secrets directory of the controllers with a key: the header `X-Hactl-Signature` becomes `sha256=` and
    /// the HMAC of the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hmac_key_file: Option<String>,
    /// File in the secrets directory of the controllers with the CA of the server's certificate (PEM). Default: the CAs
    /// of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
}

/// Mail server, sender and recipients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SmtpSpec {
    /// Address of the server: `host` or `host:port`. The default port is 587 with StartTLS, 465 with TLS, 25
    /// with None.
    pub server: String,
    /// Encryption of the connection.
    pub tls: SmtpTls,
    /// Address of the sender.
    pub from: String,
    /// Addresses of the recipients.
    pub to: Recipients,
    /// User name for login. Default: no login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// File in the secrets directory of the controllers with the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// File in the secrets directory of the controllers with the CA of the server's certificate (PEM). Default: the CAs
    /// of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
}

/// Encryption of the connection to the mail server. A value for "if supported" does not exist, because an attacker on
/// the network could then disable encryption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum SmtpTls {
    /// Unencrypted first, then STARTTLS.
    #[default]
    #[schemars(rename = "StartTLS")]
    StartTls,
    /// Encrypted from the first byte.
    #[schemars(rename = "TLS")]
    Tls,
    /// Unencrypted, for a server on the same machine.
    None,
}

impl<'de> Deserialize<'de> for SmtpTls {
    /// Reads an unknown value as StartTLS. An earlier version stored values without a check, and such a value must not
    /// make the whole Cluster unreadable. The API checks the values that users write against the schema.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SmtpTls, D::Error> {
        Ok(match String::deserialize(deserializer)?.as_str() {
            "Tls" | "TLS" => SmtpTls::Tls,
            "None" => SmtpTls::None,
            _ => SmtpTls::StartTls,
        })
    }
}

/// One address or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Recipients {
    /// One address.
    One(String),
    /// Several addresses.
    Several(Vec<String>),
}

impl Default for Recipients {
    fn default() -> Recipients {
        Recipients::Several(Vec::new())
    }
}

impl Recipients {
    /// Returns the mail addresses of all recipients.
    pub fn addresses(&self) -> &[String] {
        match self {
            Recipients::One(address) => std::slice::from_ref(address),
            Recipients::Several(addresses) => addresses,
        }
    }
}

impl Webhook {
    /// Returns the URL with its settings.
    pub fn settings(&self) -> WebhookSpec {
        match self {
            Webhook::Url(url) => WebhookSpec { url: url.clone(), ..WebhookSpec::default() },
            Webhook::Settings(settings) => settings.clone(),
        }
    }
}

impl SmtpSpec {
    /// Returns host and port; an IPv6 host has no brackets. `None` if the server is not valid.
    pub fn host_and_port(&self) -> Option<(String, u16)> {
        let default_port = match self.tls {
            SmtpTls::StartTls => 587,
            SmtpTls::Tls => 465,
            SmtpTls::None => 25,
        };
        let (host, port) = match self.server.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
                (host, port)
            }
            None => match self.server.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (self.server.as_str(), None),
            },
        };
        let is_host_character = |c: char| c.is_ascii_alphanumeric() || ".:-_".contains(c);
        let port = port.map_or(Some(default_port), |port| port.parse().ok().filter(|port| *port != 0))?;
        (!host.is_empty() && host.chars().all(is_host_character)).then(|| (host.to_owned(), port))
    }
}

/// A target of notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An HTTP endpoint that receives notifications by POST.
    Webhook(WebhookSpec),
    /// A mail server with sender and recipients.
    Mail(SmtpSpec),
}

impl NotificationsSpec {
    /// Returns the targets without duplicates. Incomplete settings, stored in the form of an earlier version, are
    /// omitted.
    pub fn targets(&self) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for webhook in self.webhooks.iter().map(Webhook::settings) {
            let target = Target::Webhook(webhook);
            if targets.iter().all(|existing| existing.key() != target.key()) {
                targets.push(target);
            }
        }
        let is_complete = |smtp: &&SmtpSpec| {
            smtp.host_and_port().is_some() && !smtp.from.is_empty() && !smtp.to.addresses().is_empty()
        };
        targets.extend(self.smtp.as_ref().filter(is_complete).map(|smtp| Target::Mail(smtp.clone())));
        targets
    }

    /// Returns `true` if notifications of this kind are sent.
    pub fn sends(&self, kind: NotificationKind) -> bool {
        self.kinds.is_empty() || kind == NotificationKind::Test || self.kinds.contains(&kind)
    }
}

impl Target {
    /// Returns the identity of the target, which stays the same when its settings change.
    pub fn key(&self) -> String {
        match self {
            Target::Webhook(webhook) => webhook.url.clone(),
            Target::Mail(_) => "smtp".to_owned(),
        }
    }

    /// Returns the target for messages, without parts of the URL that may be secret.
    pub fn name(&self) -> String {
        match self {
            Target::Webhook(webhook) => {
                let url = webhook.url.split(['?', '#']).next().unwrap_or_default();
                let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let host = authority.rsplit('@').next().unwrap_or_default();
                format!("webhook {scheme}://{host}{path}")
            }
            Target::Mail(smtp) => format!("smtp {}", smtp.server),
        }
    }

    /// Returns the label of the target in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Target::Webhook(_) => "webhook",
            Target::Mail(_) => "smtp",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn earlier_formats_are_still_read() {
        let read: NotificationsSpec = serde_json::from_value(json!({
            "webhooks": ["https://a.example/x", {"url": "https://b.example"}, "https://a.example/x"],
            "smtp": {"server": "mail:25", "from": "a@b.c", "to": "d@e.f", "tls": "yes", "port": "25"},
        }))
        .unwrap();
        let names: Vec<String> = read.targets().iter().map(Target::name).collect();
        assert_eq!(names, ["webhook https://a.example/x", "webhook https://b.example", "smtp mail:25"]);
        let incomplete: NotificationsSpec =
            serde_json::from_value(json!({"smtp": {"host": "mail"}})).unwrap();
        assert_eq!(incomplete.targets(), []);
    }

    #[test]
    fn smtp_server_is_host_with_optional_port() {
        let check = |server: &str, tls: SmtpTls, expected: Option<(&str, u16)>| {
            let spec = SmtpSpec { server: server.to_owned(), tls, ..SmtpSpec::default() };
            assert_eq!(
                spec.host_and_port(),
                expected.map(|(host, port)| (host.to_owned(), port)),
                "{server}"
            );
        };
        check("mail.example.org", SmtpTls::StartTls, Some(("mail.example.org", 587)));
        check("mail.example.org", SmtpTls::Tls, Some(("mail.example.org", 465)));
        check("127.0.0.1:2525", SmtpTls::None, Some(("127.0.0.1", 2525)));
        check("[::1]", SmtpTls::None, Some(("::1", 25)));
        check("[::1]:2525", SmtpTls::None, Some(("::1", 2525)));
        for invalid_server in
            ["", ":25", "mail:", "mail:0", "mail:99999", "::1", "smtp://mail", "[::1", "[::1]25", "a b"]
        {
            check(invalid_server, SmtpTls::None, None);
        }
    }

    #[test]
    fn secrets_in_urls_are_not_shown() {
        let check = |url: &str, expected: &str| {
            let spec = WebhookSpec { url: url.to_owned(), ..WebhookSpec::default() };
            assert_eq!(Target::Webhook(spec).name(), expected);
        };
        check("https://me:word@a.example:8443/x?token=1#y", "webhook https://a.example:8443/x");
        check("https://a.example?token=1", "webhook https://a.example");
        check("https://a.example/x@y", "webhook https://a.example/x@y");
    }
}
