//! Connection settings: contexts from files, overridden by the environment and by flags.

mod file;

pub(crate) use file::{ConfigFile, Context, user_file};

use crate::failure::Failure;
use clap::Args;
use clap::ValueHint;
use reqwest::Url;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Configuration file for all users of a machine.
pub(crate) const SYSTEM_FILE: &str = "/etc/hactl/config.yaml";

/// Default server: the controller on this machine, which root can reach without a certificate.
pub(crate) const LOCAL_SERVER: &str = "unix:/run/hactl-controller/api.sock";

/// Returns the path of the socket in [`LOCAL_SERVER`], which is in the directory that the unit of ha-controller creates.
pub(crate) fn local_socket() -> &'static str {
    LOCAL_SERVER.trim_start_matches("unix:")
}

/// Flags that select the cluster.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionFlags {
    /// URLs of the controllers, in order; default: the one on this machine
    #[arg(long, short = 's', global = true, env = "HACTL_SERVER", value_delimiter = ',', value_name = "URL")]
    pub(crate) server: Vec<String>,
    /// Context to use instead of the current one
    #[arg(long, global = true, env = "HACTL_CONTEXT", value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// CA certificate file used to verify the controllers (PEM)
    #[arg(long, global = true, env = "HACTL_CERTIFICATE_AUTHORITY", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Client certificate file (PEM)
    #[arg(long, global = true, env = "HACTL_CLIENT_CERTIFICATE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) client_certificate: Option<PathBuf>,
    /// Private key file of the client certificate (PEM)
    #[arg(long, global = true, env = "HACTL_CLIENT_KEY", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) client_key: Option<PathBuf>,
    /// Bearer token of the user; other users of this machine can see it
    #[arg(
        long,
        global = true,
        env = "HACTL_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        conflicts_with = "token_file"
    )]
    pub(crate) token: Option<String>,
    /// File with the bearer token of the user
    #[arg(long, global = true, env = "HACTL_TOKEN_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// Timeout of one request, across all controllers
    #[arg(long, global = true, default_value = "30s", value_name = "DURATION", value_parser = crate::duration::parse)]
    pub(crate) request_timeout: Duration,
}

/// The resolved connection to one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    /// Controllers in order of preference; at least one.
    pub(crate) servers: Vec<ServerAddress>,
    /// Certificate authority; `None`: the system's authorities.
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Certificate and key of the user; `None` means no client certificate.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    /// Bearer token of the user. It has priority over the client certificate.
    pub(crate) token: Option<String>,
    /// Timeout of one request, across all controllers.
    pub(crate) request_timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerAddress {
    /// An http or https URL with a host.
    Url(Url),
    /// A Unix socket on this machine.
    Unix(PathBuf),
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Url(url) => url.fmt(f),
            ServerAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl ConnectionFlags {
    /// Resolves the connection: flags and environment have priority over the chosen or current context.
    ///
    /// # Errors
    /// Fails if no server is known, a URL is invalid, or a file cannot be read. Each error states how to correct it.
    pub(crate) fn resolve(&self) -> Result<Connection, Failure> {
        let context = if self.server.is_empty() || self.context.is_some() {
            chosen_context(self.context.as_deref())?
        } else {
            Context::default()
        };
        let local = [LOCAL_SERVER.to_owned()];
        let texts = match (self.server.as_slice(), context.servers.as_slice()) {
            ([], []) => &local[..],
            ([], known) => known,
            (given_name, _) => given_name,
        };
        let servers = texts.iter().map(|text| server_address(text)).collect::<Result<Vec<_>, _>>()?;
        let token_file = self.token_file.clone().or(context.token_file);
        let token = match (&self.token, token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => Some(read_token(&path)?),
            (None, None) => None,
        };
        let certificate = self.client_certificate.clone().or(context.client_certificate);
        let key = self.client_key.clone().or(context.client_key);
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(Failure::usage("missing key: a client certificate requires its key")
                    .help("add --client-key FILE"));
            }
            (None, Some(_)) => {
                return Err(Failure::usage("missing certificate: a client key requires its certificate")
                    .help("add --client-certificate FILE"));
            }
        };
        Ok(Connection {
            servers,
            certificate_authority: self.certificate_authority.clone().or(context.certificate_authority),
            identity,
            token,
            request_timeout: self.request_timeout,
        })
    }
}

fn chosen_context(name: Option<&str>) -> Result<Context, Failure> {
    let files = files()?;
    let chosen = match name {
        Some(name) => Some(name.to_owned()),
        None => files.iter().find_map(|(_, file)| file.current_context.clone()),
    };
    let Some(chosen) = chosen else {
        // If only one context exists, it is used even if the user has not selected it.
        let mut contexts = files.into_iter().flat_map(|(_, file)| file.contexts);
        return Ok(match (contexts.next(), contexts.next()) {
            (Some(only_context), None) => only_context,
            (Some(_), Some(_)) => {
                return Err(Failure::usage("no current context: several contexts exist")
                    .help("run \"hactl config use-context NAME\", or add --context NAME"));
            }
            (None, _) => Context::default(),
        });
    };
    let mut names = Vec::new();
    for (_, file) in files {
        for context in file.contexts {
            if context.name == chosen {
                return Ok(context);
            }
            names.push(context.name);
        }
    }
    Err(Failure::usage(format!("context {chosen:?} not found")).help(if names.is_empty() {
        "run \"hactl config set-context NAME --server URL\"".to_owned()
    } else {
        format!("known contexts: {}", names.join(", "))
    }))
}

/// Returns the existing configuration files, the user's first, with absolute paths.
pub(crate) fn files() -> Result<Vec<(PathBuf, ConfigFile)>, Failure> {
    let mut files = Vec::new();
    for path in [user_file(), Some(PathBuf::from(SYSTEM_FILE))].into_iter().flatten() {
        if let Some(file) = ConfigFile::read(&path)? {
            files.push((path, file));
        }
    }
    Ok(files)
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let invalid = |message: &str| Failure::usage(format!("token file {}: {message}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| invalid(&error.to_string()))?;
    match text.trim() {
        "" => Err(invalid("the file is empty")),
        token => Ok(token.to_owned()),
    }
}

fn server_address(text: &str) -> Result<ServerAddress, Failure> {
    let invalid_url = |cause: &str| {
        Failure::usage(format!("server {text:?}: {cause}")).help(
            "specify https://HOST:PORT, unix:PATH for a controller on this machine, or http://HOST:PORT on loopback only",
        )
    };
    if let Some(path) = text.trim().strip_prefix("unix:") {
        let path = PathBuf::from(path);
        let error = "expected the absolute path of a socket";
        return if path.is_absolute() { Ok(ServerAddress::Unix(path)) } else { Err(invalid_url(error)) };
    }
    let url = Url::parse(text.trim()).map_err(|error| invalid_url(&error.to_string()))?;
    match url.scheme() {
        "http" | "https" if url.host_str().is_some_and(|host| !host.is_empty()) => {
            Ok(ServerAddress::Url(url))
        }
        _ => Err(invalid_url("expected an http or https URL with a host, or unix:PATH")),
    }
}

/// Returns a path relative to the directory of a configuration file.
fn relative_to(file: &Path, path: &Path) -> PathBuf {
    match file.parent() {
        Some(directory) if path.is_relative() => directory.join(path),
        Some(_) | None => path.to_owned(),
    }
}
