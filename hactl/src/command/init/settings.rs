//! The validated settings of a machine, completed with derived values.

use super::{CONTROLLER_GROUP, Init, Role};
use crate::config::{ConnectionFlags, LOCAL_SERVER};
use crate::failure::Failure;
use ha_api_types::names::{MAX_NODE_NAME_LENGTH, invalid_reason};
use ha_api_types::timing::Profile;
use nix::unistd::{Gid, Group};
use reqwest::Url;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Default port of the API.
const API_PORT: u16 = 7443;

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) etcd: Etcd,
    pub(super) cluster: Option<String>,
    pub(super) node: Option<Node>,
    pub(super) controller: Option<Controller>,
    pub(super) profile: Profile,
    pub(super) client: Option<Client>,
}

/// Connection to etcd.
#[derive(Debug)]
pub(super) struct Etcd {
    pub(super) endpoints: Vec<String>,
    pub(super) tls: Tls,
}

/// Files with the certificate authority, and with a certificate and its key.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls {
    pub(super) authority: Option<PathBuf>,
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

/// Settings of a machine that runs services.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) watchdog: String,
}

/// Settings of a machine with a controller.
#[derive(Debug)]
pub(super) struct Controller {
    /// Address and URL of the API; `None` if the API is served on the Unix socket only.
    pub(super) tcp: Option<(SocketAddr, String)>,
    /// Certificates of the API; `None` if the API is served without TLS.
    pub(super) tls: Option<Tls>,
    /// File with revoked client certificates.
    pub(super) client_crl: Option<PathBuf>,
    /// Directory with the authority for certificates of nodes.
    pub(super) join_authority: Option<PathBuf>,
}

/// Connection of `hactl` to the controllers.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) servers: Vec<String>,
    pub(super) tls: Tls,
}

impl Settings {
    /// Validates the flags or answers.
    ///
    /// # Errors
    /// Fails with the invalid or missing flag.
    pub(super) fn from_flags(flags: &Init, connection: &ConnectionFlags) -> Result<Settings, Failure> {
        let includes_role = |role| flags.roles.is_empty() || flags.roles.contains(&role);
        let etcd = etcd(flags)?;
        if let Some(cluster) = &flags.cluster {
            check_name("--cluster", cluster)?;
        }
        let node = if includes_role(Role::Node) { Some(node(flags)?) } else { None };
        let controller =
            if includes_role(Role::Controller) { Some(controller(flags, &etcd.tls)?) } else { None };
        let client = client(connection, controller.as_ref(), &etcd.tls)?;
        let profile = flags.profile.map_or_else(Profile::default, super::ProfileName::profile);
        Ok(Settings { etcd, cluster: flags.cluster.clone(), node, controller, profile, client })
    }

    /// Returns the steps that remain after the files are written, one per line.
    pub(super) fn next_steps(&self, directory: &Path) -> String {
        let mut steps = Vec::new();
        let mut keys: Vec<&PathBuf> = Vec::new();
        for tls in [
            Some(&self.etcd.tls),
            self.controller.as_ref().and_then(|own_controller| own_controller.tls.as_ref()),
        ] {
            let Some(tls) = tls else { continue };
            for file in tls
                .authority
                .iter()
                .chain(tls.identity.iter().flat_map(|(certificate, key)| [certificate, key]))
            {
                if !file.exists() {
                    steps.push(format!("copy the certificate or key to {}", file.display()));
                }
            }
            keys.extend(tls.identity.as_ref().map(|(_, key)| key));
        }
        keys.sort();
        keys.dedup();
        if self.controller.is_some() {
            for key in keys.into_iter().filter(|key| !controller_may_read(key)) {
                let key = key.display();
                steps.push(format!(
                    "chgrp {CONTROLLER_GROUP} {key} && chmod 640 {key}    (ha-controller reads this file)"
                ));
            }
            steps.push("systemctl start ha-controller".to_owned());
            let cluster = directory.join("cluster.yaml");
            steps.push(format!(
                "hactl apply -f {}    (once, on one host, after a controller has started)",
                cluster.display()
            ));
        }
        if let Some(node) = &self.node {
            steps.push("systemctl start ha-watchdogd ha-node-agent".to_owned());
            steps.push(format!(
                "hactl doctor {}    (checks the watchdog and the other requirements of this node)",
                node.name
            ));
        }
        if self.client.is_none() {
            steps.push(
                "hactl config set-context NAME --server URL,URL,URL    (to use hactl on this host)"
                    .to_owned(),
            );
        }
        steps.dedup();
        steps.iter().map(|step| format!("  {step}\n")).collect()
    }
}

fn etcd(flags: &Init) -> Result<Etcd, Failure> {
    for endpoint in &flags.etcd_endpoints {
        let secure = is_https_url("--etcd-endpoints", endpoint)?;
        if secure && flags.etcd_ca.is_none() {
            return Err(Failure::usage(format!(
                "--etcd-endpoints {endpoint}: https requires a CA certificate to verify etcd"
            ))
            .help("add --etcd-ca FILE"));
        }
    }
    let identity = certificate_and_key(
        "--etcd-cert",
        flags.etcd_cert.as_deref(),
        "--etcd-key",
        flags.etcd_key.as_deref(),
    )?;
    let tls = Tls { authority: flags.etcd_ca.as_deref().map(absolute), identity };
    Ok(Etcd { endpoints: flags.etcd_endpoints.clone(), tls })
}

fn node(flags: &Init) -> Result<Node, Failure> {
    let name = flags.node.clone().unwrap_or_else(node_name);
    // The agent accepts more names, but the API would not find a node with such a name.
    if let Some(problem) = invalid_reason(&name, MAX_NODE_NAME_LENGTH) {
        let name_source = if flags.node.is_some() { "--node" } else { "the host name" };
        return Err(Failure::usage(format!("{name_source} is not a valid node name: {problem}"))
            .help("add --node NAME"));
    }
    let watchdog = flags.watchdog.clone().unwrap_or_else(|| "softdog".to_owned());
    if !watchdog.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        return Err(Failure::usage(format!("--watchdog {watchdog:?} is not the name of a kernel module"))
            .help("specify a module such as iTCO_wdt, sp5100_tco, ipmi_watchdog or softdog; '' loads none"));
    }
    Ok(Node { name, watchdog })
}

fn controller(flags: &Init, etcd_tls: &Tls) -> Result<Controller, Failure> {
    let given_flag =
        certificate_and_key("--tls-cert", flags.tls_cert.as_deref(), "--tls-key", flags.tls_key.as_deref())?;
    let authority = flags.client_ca.as_deref().map(absolute).or_else(|| etcd_tls.authority.clone());
    let tls = match (authority, given_flag.or_else(|| etcd_tls.identity.clone())) {
        (Some(authority), Some(identity)) => {
            Some(Tls { authority: Some(authority), identity: Some(identity) })
        }
        (Some(_) | None, Some(_) | None) => None,
    };
    // If no flag for the API is given, missing certificates only mean that the API has no TLS. If one is given, it must
    // not be ignored silently.
    if tls.is_none() && (flags.tls_cert.is_some() || flags.client_ca.is_some()) {
        let (given_flag, missing) = if flags.tls_cert.is_some() {
            ("--tls-cert", "--client-ca FILE (or --etcd-ca)")
        } else {
            ("--client-ca", "--tls-cert FILE and --tls-key FILE (or --etcd-cert and --etcd-key)")
        };
        return Err(Failure::usage(format!("{given_flag} alone does not enable https"))
            .help(format!("add {missing}")));
    }
    let listen: Option<SocketAddr> = match &flags.listen {
        Some(text) => Some(text.parse().map_err(|_| {
            Failure::usage(format!("--listen: {text:?} is not an address with a port"))
                .help("specify 10.0.0.1:7443, [::]:7443 or 0.0.0.0:7443")
        })?),
        None if tls.is_some() => Some(SocketAddr::from(([0, 0, 0, 0], API_PORT))),
        None if flags.insecure_loopback => Some(SocketAddr::from(([127, 0, 0, 1], API_PORT))),
        None => None,
    };
    let (client_crl, join_authority) =
        (flags.client_crl.as_deref().map(absolute), flags.join_authority.as_deref().map(absolute));
    let Some(listen) = listen else { return Ok(Controller { tcp: None, tls, client_crl, join_authority }) };
    if listen.port() == 0 {
        return Err(Failure::usage(format!("--listen: {listen} selects a different port at each start"))
            .help("specify a fixed port, such as 127.0.0.1:7443"));
    }
    if tls.is_none() && !listen.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "--listen: {listen} is reachable from other hosts, but no certificates are specified"
        ))
        .help("add --tls-cert, --tls-key and --client-ca"));
    }
    if tls.is_none() && !flags.insecure_loopback {
        return Err(Failure::usage(format!(
            "--listen: without certificates, every local user who can connect to {listen} is an administrator"
        ))
        .help("add --tls-cert, --tls-key and --client-ca; omit --listen to use the Unix socket; or add --insecure-loopback"));
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    let advertise_url = match &flags.advertise_url {
        Some(url) => {
            is_https_url("--advertise-url", url)?;
            url.clone()
        }
        None if listen.ip().is_unspecified() => format!("{scheme}://{}:{}", host_name(), listen.port()),
        None => format!("{scheme}://{listen}"),
    };
    Ok(Controller { tcp: Some((listen, advertise_url)), tls, client_crl, join_authority })
}

/// Returns the connection to the machine's own controller on its Unix socket, unless other servers are given.
fn client(
    flags: &ConnectionFlags,
    own_controller: Option<&Controller>,
    etcd_tls: &Tls,
) -> Result<Option<Client>, Failure> {
    let servers = match (flags.server.as_slice(), own_controller) {
        ([], None) => return Ok(None),
        ([], Some(_)) => vec![LOCAL_SERVER.to_owned()],
        (given_values, _) => given_values.to_vec(),
    };
    let identity = certificate_and_key(
        "--client-certificate",
        flags.client_certificate.as_deref(),
        "--client-key",
        flags.client_key.as_deref(),
    )?;
    let mut secure = false;
    for server in servers.iter().filter(|server| !server.starts_with("unix:")) {
        secure |= is_https_url("--server", server)?;
    }
    if !secure {
        return Ok(Some(Client { servers, tls: Tls::default() }));
    }
    let tls = Tls {
        authority: flags
            .certificate_authority
            .as_deref()
            .map(absolute)
            .or_else(|| etcd_tls.authority.clone()),
        identity: identity.or_else(|| etcd_tls.identity.clone()),
    };
    Ok(Some(Client { servers, tls }))
}

fn certificate_and_key(
    certificate_flag: &str,
    certificate: Option<&Path>,
    key_flag: &str,
    key: Option<&Path>,
) -> Result<Option<(PathBuf, PathBuf)>, Failure> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((absolute(certificate), absolute(key)))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Failure::usage(format!("{certificate_flag} requires {key_flag}"))
            .help(format!("add {key_flag} FILE"))),
        (None, Some(_)) => Err(Failure::usage(format!("{key_flag} requires {certificate_flag}"))
            .help(format!("add {certificate_flag} FILE"))),
    }
}

/// Returns `true` for an https URL and `false` for an http URL with a host.
///
/// # Errors
/// Fails for any other text.
pub(super) fn is_https_url(flag: &str, text: &str) -> Result<bool, Failure> {
    let url = Url::parse(text).ok().filter(|url| url.host_str().is_some_and(|host| !host.is_empty()));
    match url.as_ref().map(Url::scheme) {
        Some("https") => Ok(true),
        Some("http") => Ok(false),
        Some(_) | None => {
            Err(Failure::usage(format!("{flag}: {text:?} is not an http or https URL with a host"))
                .help("specify https://HOST:PORT"))
        }
    }
}

/// Validates a name that becomes part of etcd keys, with the daemons' rules.
fn check_name(flag: &str, name: &str) -> Result<(), Failure> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if name.is_empty() || name.len() > 253 || !name.bytes().all(allowed) {
        return Err(Failure::usage(format!("{flag}: {name:?} is not a valid name"))
            .help("use 1 to 253 letters, digits, '-', '.' or '_'"));
    }
    Ok(())
}

pub(super) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Returns the host name in lower case, because node names have no upper-case letters.
pub(super) fn node_name() -> String {
    host_name().to_ascii_lowercase()
}

/// Returns an absolute path, which is valid from every directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns `true` if the user of ha-controller's unit can read a key. Also returns `true` for a missing key, which
/// another step reports.
fn controller_may_read(key: &Path) -> bool {
    let Ok(metadata) = std::fs::metadata(key) else { return true };
    let group = Group::from_name(CONTROLLER_GROUP).ok().flatten().map(|group| group.gid);
    let by_group = metadata.mode() & 0o040 != 0 && group == Some(Gid::from_raw(metadata.gid()));
    by_group || metadata.mode() & 0o004 != 0
}
