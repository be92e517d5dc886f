//! Settings of the etcd client (members, certificates, user, time limits), and the command-line flags for them, which
//! are the same for all daemons.

use crate::store::StoreError;
use ha_api_types::timing::ATTEMPT_MS;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Connection settings for etcd, from a section of a daemon's configuration file or from flags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// Client URLs of the members in the order of preference: `http://HOST:PORT` or `https://HOST:PORT`.
    pub endpoints: Vec<String>,
    /// File with the certificate authority of the members, PEM; required for https. Read again when it changes.
    pub ca: Option<PathBuf>,
    /// File with the client's certificate chain, PEM; requires `key`. Read again when it changes.
    pub cert: Option<PathBuf>,
    /// File with the client's private key, PEM.
    pub key: Option<PathBuf>,
    /// Name of the etcd user; requires `password_file`.
    pub user: Option<String>,
    /// File with the user's password; read at each authentication.
    pub password_file: Option<PathBuf>,
    /// Time limit of one attempt in milliseconds (heartbeatIntervalSeconds), after which another member is tried.
    pub attempt_timeout_ms: u64,
    /// `true` to accept an etcd version with known defects.
    pub allow_old_store: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            endpoints: Vec::new(),
            ca: None,
            cert: None,
            key: None,
            user: None,
            password_file: None,
            attempt_timeout_ms: ATTEMPT_MS,
            allow_old_store: false,
        }
    }
}

impl Config {
    /// Returns settings for connections to these members without TLS or authentication.
    pub fn new<S: Into<String>>(endpoints: impl IntoIterator<Item = S>) -> Config {
        Config { endpoints: endpoints.into_iter().map(Into::into).collect(), ..Config::default() }
    }

    /// Checks the settings as far as possible without a connection.
    pub(super) fn validate(&self) -> Result<(), StoreError> {
        let invalid = |text: String| Err(StoreError::Configuration(text));
        if self.endpoints.is_empty() {
            return invalid(
                "no etcd endpoint specified: set --etcd-endpoints http://HOST:PORT or https://HOST:PORT"
                    .to_owned(),
            );
        }
        for endpoint in &self.endpoints {
            if !is_url(endpoint) {
                return invalid(format!(
                    "invalid etcd endpoint {endpoint:?}: expected http://HOST:PORT or https://HOST:PORT"
                ));
            }
            if endpoint.starts_with("https://") && self.ca.is_none() {
                return invalid(format!("etcd endpoint {endpoint} requires a CA certificate: set --etcd-ca"));
            }
        }
        if self.cert.is_some() != self.key.is_some() {
            return invalid(
                "etcd certificate and key are required together: set --etcd-cert and --etcd-key, or neither"
                    .to_owned(),
            );
        }
        if self.user.is_some() != self.password_file.is_some() {
            return invalid("etcd user and password file are required together: set --etcd-user and --etcd-password-file, or neither".to_owned());
        }
        if self.attempt_timeout_ms == 0 {
            return invalid("invalid etcd attempt timeout 0 ms: must be at least 1 ms".to_owned());
        }
        Ok(())
    }
}

fn is_url(endpoint: &str) -> bool {
    let authority = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    let Some((host, port)) = authority.and_then(|authority| authority.rsplit_once(':')) else {
        return false;
    };
    let is_valid_host =
        !host.is_empty() && !host.contains(['/', '@', ' ']) && (!host.contains(':') || host.starts_with('['));
    is_valid_host && port.trim_end_matches('/').parse::<u16>().is_ok_and(|port| port > 0)
}

/// Connection to etcd, as given by the flags `--etcd-…`.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreOptions {
    /// Client URLs of the etcd members, in order of preference
    #[arg(long, value_delimiter = ',', required = true, value_name = "URL", help_heading = "etcd")]
    pub etcd_endpoints: Vec<String>,
    /// CA certificate of the etcd members (PEM)
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_ca: Option<PathBuf>,
    /// Client certificate for etcd (PEM)
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_cert: Option<PathBuf>,
    /// Client key for etcd (PEM)
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_key: Option<PathBuf>,
    /// User name for etcd
    #[arg(long, value_name = "NAME", help_heading = "etcd")]
    pub etcd_user: Option<String>,
    /// File with the password of the etcd user
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    pub etcd_password_file: Option<PathBuf>,
    /// WARNING: services may run twice. Allow etcd versions with known defects
    #[arg(long, help_heading = "etcd")]
    pub allow_old_store: bool,
}

impl StoreOptions {
    /// Returns the settings of the etcd client.
    pub fn config(&self) -> Config {
        Config {
            endpoints: self.etcd_endpoints.clone(),
            ca: self.etcd_ca.clone(),
            cert: self.etcd_cert.clone(),
            key: self.etcd_key.clone(),
            user: self.etcd_user.clone(),
            password_file: self.etcd_password_file.clone(),
            allow_old_store: self.allow_old_store,
            ..Config::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &Config, expected: Result<(), &str>) {
        let result = config.validate();
        match expected {
            Ok(()) => assert_eq!(result, Ok(()), "{config:?}"),
            Err(part) => {
                let text = result.expect_err("refused").to_string();
                assert!(text.contains(part), "{text} has no {part}");
            }
        }
    }

    #[test]
    fn invalid_etcd_setting_is_named() {
        check(&Config::new(["http://127.0.0.1:2379"]), Ok(()));
        check(&Config::new(["http://[::1]:2379"]), Ok(()));
        check(&Config::new(Vec::<String>::new()), Err("no etcd endpoint"));
        check(&Config::new(["127.0.0.1:2379"]), Err("\"127.0.0.1:2379\": expected http"));
        check(&Config::new(["http://127.0.0.1"]), Err("expected http"));
        check(&Config::new(["http://a:0"]), Err("expected http"));
        check(&Config::new(["http://a:b:1"]), Err("expected http"));
        check(&Config::new(["https://a:1"]), Err("--etcd-ca"));
        let valid_config = Config::new(["http://a:1"]);
        check(&Config { cert: Some("c".into()), ..valid_config.clone() }, Err("certificate and key"));
        check(&Config { user: Some("u".into()), ..valid_config.clone() }, Err("--etcd-password-file"));
        check(&Config { attempt_timeout_ms: 0, ..valid_config }, Err("attempt timeout 0 ms"));
    }
}
