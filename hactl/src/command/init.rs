//! `hactl init`: writes the first configuration of a machine, from flags or answers.

mod files;
mod join;
mod questions;
mod settings;

use super::timing::ProfileName;
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use clap::{Args, ValueEnum, ValueHint};
use files::{File, WriteEffect};
use join::JoinTarget;
use questions::Questions;
use settings::Settings;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Directory in which ha-controller and ha-node-agent search for their settings, as their units are installed.
const CONFIG_DIRECTORY: &str = "/etc/hactl";
/// Group with which the package runs ha-controller.
pub(super) const CONTROLLER_GROUP: &str = "_hactl";

/// Generate the initial configuration of this host
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Without --etcd-endpoints, the command asks for the values on a terminal. The command only writes files and \
        requires no cluster.\n\n\
        Examples:\n  hactl init --etcd-endpoints http://127.0.0.1:2379\n  \
        hactl init --etcd-endpoints https://c1:2379,https://c2:2379,https://c3:2379 \\\n    \
        --etcd-ca /etc/hactl/ca.pem --etcd-cert /etc/hactl/c1.pem --etcd-key /etc/hactl/c1.key \\\n    \
        --watchdog iTCO_wdt\n  hactl init --join hactl_join_c4_…@c1 --watchdog iTCO_wdt"
)]
pub(crate) struct Init {
    /// Roles of this host; default: both
    #[arg(long = "role", value_enum, value_delimiter = ',', value_name = "ROLE")]
    roles: Vec<Role>,
    /// Join as a node, with a token of "hactl pki join-token"
    #[arg(long, value_name = "TOKEN@HOST[:PORT]", value_parser = JoinTarget::parse, conflicts_with_all = ["etcd_ca", "etcd_cert", "etcd_key", "dry_run"])]
    join: Option<JoinTarget>,
    /// Client URLs of the etcd members, in order of preference
    #[arg(long, value_delimiter = ',', value_name = "URL", help_heading = "etcd")]
    etcd_endpoints: Vec<String>,
    /// CA certificate file used to verify the etcd members (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "etcd")]
    etcd_ca: Option<PathBuf>,
    /// Client certificate file of this host for etcd (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "etcd")]
    etcd_cert: Option<PathBuf>,
    /// Private key file of the client certificate for etcd (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "etcd")]
    etcd_key: Option<PathBuf>,
    /// Name of the cluster, if several clusters share etcd [default: default]
    #[arg(long, value_name = "NAME", help_heading = "etcd")]
    cluster: Option<String>,
    /// Name of this node; default: host name in lower case
    #[arg(long, value_name = "NAME", help_heading = "Node")]
    node: Option<String>,
    /// Module to load if no device exists; empty: none [default: softdog]
    #[arg(long, value_name = "MODULE", help_heading = "Node")]
    watchdog: Option<String>,
    /// Address of the API; default: 0.0.0.0:7443 with certificates
    #[arg(long, value_name = "ADDRESS", help_heading = "Controller")]
    listen: Option<String>,
    /// WARNING: serves the API on loopback, with all permissions for all users
    #[arg(long, help_heading = "Controller", conflicts_with = "tls_cert")]
    insecure_loopback: bool,
    /// URL of the API for other hosts; default: from --listen or host name
    #[arg(long, value_name = "URL", help_heading = "Controller")]
    advertise_url: Option<String>,
    /// Certificate file of the API (PEM); default: --etcd-cert
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Controller")]
    tls_cert: Option<PathBuf>,
    /// Private key file of the API (PEM); default: --etcd-key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Controller")]
    tls_key: Option<PathBuf>,
    /// CA certificate file used to verify API clients (PEM); default: --etcd-ca
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Controller")]
    client_ca: Option<PathBuf>,
    /// File with revoked client certificates, from "hactl pki revoke"
    #[arg(long, value_name = "FILE", requires = "client_ca", value_hint = ValueHint::FilePath, help_heading = "Controller")]
    client_crl: Option<PathBuf>,
    /// Directory with the CA for certificates of nodes, for "hactl init --join"
    #[arg(long, value_name = "DIR", requires = "client_ca", value_hint = ValueHint::DirPath, help_heading = "Controller")]
    join_authority: Option<PathBuf>,
    /// Timing profile of the cluster [default: default]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<ProfileName>,
    /// Target directory
    #[arg(long, alias = "folder", value_name = "DIR", default_value = CONFIG_DIRECTORY, value_hint = ValueHint::DirPath)]
    directory: PathBuf,
    /// WARNING: overwrites existing files with different content
    #[arg(long)]
    force: bool,
    /// Print the files instead of writing them
    #[arg(long)]
    dry_run: bool,
}

/// Role of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Schedule services, and serve the API
    Controller,
    /// Run services
    Node,
}

impl Init {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let mut flags = self.clone();
        if let Some(target) = &self.join {
            join::join(&mut flags, target, session.terminal()).await?;
        }
        if flags.etcd_endpoints.is_empty() {
            if !std::io::stdin().is_terminal() {
                return Err(Failure::usage("no etcd endpoints specified").help(
                    "add --etcd-endpoints URL,URL,URL, and for https --etcd-ca, --etcd-cert and --etcd-key",
                ));
            }
            Questions::new(std::io::stdin().lock(), std::io::stderr()).ask_missing(&mut flags)?;
        }
        let settings = Settings::from_flags(&flags, &session.flags().connection)?;
        let directory = std::path::absolute(&self.directory).unwrap_or_else(|_| self.directory.clone());
        let files = files::configuration_files(&settings, &directory)?;
        if self.dry_run {
            let file_text = |file: &File| format!("# {}\n{}", file.path.display(), file.text);
            session.terminal().print(&files.iter().map(file_text).collect::<Vec<_>>().join("---\n"));
            return Ok(Exit::Done);
        }
        let effects = files.iter().map(File::effect).collect::<Result<Vec<_>, _>>()?;
        let conflicts: Vec<String> = files
            .iter()
            .zip(&effects)
            .filter(|(_, effect)| **effect == WriteEffect::Overwritten && !self.force)
            .map(|(file, _)| format!("{} already exists with different content", file.path.display()))
            .collect();
        if !conflicts.is_empty() {
            return Err(Failure::failed(conflicts.join("\n"))
                .help("nothing was written; add --dry-run to show the files, or --force to overwrite existing files"));
        }
        for (file, effect) in files.iter().zip(&effects) {
            file.write(*effect)?;
            session.terminal().report(&format!("{} {}", file.path.display(), effect.name()));
        }
        session.terminal().report(&format!("\nnext:\n{}", settings.next_steps(&directory)));
        Ok(Exit::Done)
    }
}
