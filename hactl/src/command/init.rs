//! `hactl init`: writes the first configuration of a machine, from flags or answers.

mod files;
mod questions;
mod settings;

use super::timing::ProfileName;
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use clap::{Args, ValueEnum, ValueHint};
use files::{Fate, File};
use questions::Questions;
use settings::Settings;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Directory in which ha-controller and ha-node-agent look for their settings, as their units are installed.
const FOLDER: &str = "/etc/hactl";

/// Write the first configuration of a machine
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Without --etcd-endpoints, and on a terminal, it asks. It changes nothing but the files, and needs no cluster.\n\n\
        Examples:\n  hactl init --etcd-endpoints http://127.0.0.1:2379\n  \
        hactl init --etcd-endpoints https://c1:2379,https://c2:2379,https://c3:2379 \\\n    \
        --etcd-ca /etc/hactl/ca.pem --etcd-cert /etc/hactl/c1.pem --etcd-key /etc/hactl/c1.key \\\n    \
        --server https://c1:7443,https://c2:7443,https://c3:7443 --watchdog iTCO_wdt"
)]
pub(crate) struct Init {
    /// What this machine is to be; both by default
    #[arg(long = "role", value_enum, value_delimiter = ',', value_name = "ROLE")]
    roles: Vec<Role>,
    /// Client URLs of the store's members, in the order of preference
    #[arg(long, value_delimiter = ',', value_name = "URL", help_heading = "Store")]
    etcd_endpoints: Vec<String>,
    /// Certificate authority of the members (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Store")]
    etcd_ca: Option<PathBuf>,
    /// This machine's certificate as a client of the store (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Store")]
    etcd_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Store")]
    etcd_key: Option<PathBuf>,
    /// The cluster, if several use one store [default: default]
    #[arg(long, value_name = "NAME", help_heading = "Store")]
    cluster: Option<String>,
    /// This node's name; default the host's name in lower case
    #[arg(long, value_name = "NAME", help_heading = "Node")]
    node: Option<String>,
    /// The kernel module of this machine's watchdog, loaded when it has no watchdog device; empty: none [default: softdog]
    #[arg(long, value_name = "MODULE", help_heading = "Node")]
    watchdog: Option<String>,
    /// Where the controller serves its API; default every address if there are certificates, else 127.0.0.1:7443
    #[arg(long, value_name = "ADDRESS", help_heading = "Controller")]
    listen: Option<String>,
    /// Where others reach that API; default made from --listen, or from the host's name
    #[arg(long, value_name = "URL", help_heading = "Controller")]
    advertise_url: Option<String>,
    /// The API's certificate (PEM); default --etcd-cert
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Controller")]
    tls_cert: Option<PathBuf>,
    /// Its key (PEM); default --etcd-key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Controller")]
    tls_key: Option<PathBuf>,
    /// Certificate authority of the API's clients (PEM); default --etcd-ca
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Controller")]
    client_ca: Option<PathBuf>,
    /// The timings of the cluster [default: default]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<ProfileName>,
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = FOLDER, value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// Overwrite files that say something else
    #[arg(long)]
    force: bool,
    /// Print the files, write nothing
    #[arg(long)]
    dry_run: bool,
}

/// What a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Decides where services run, and serves the API.
    Controller,
    /// Runs services.
    Node,
}

impl Init {
    pub(crate) fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let mut flags = self.clone();
        if flags.etcd_endpoints.is_empty() {
            if !std::io::stdin().is_terminal() {
                return Err(Failure::usage("it is not known where the store is").help(
                    "give --etcd-endpoints URL,URL,URL, and --etcd-ca, --etcd-cert and --etcd-key for https; on a terminal it asks",
                ));
            }
            Questions::new(std::io::stdin().lock(), std::io::stderr()).ask(&mut flags)?;
        }
        let settings = Settings::of(&flags, &session.flags().connection)?;
        let folder = std::path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let files = files::of(&settings, &folder)?;
        if self.dry_run {
            let shown = |file: &File| format!("# {}\n{}", file.path.display(), file.text);
            session.terminal().out(&files.iter().map(shown).collect::<Vec<_>>().join("---\n"));
            return Ok(Exit::Done);
        }
        let fates = files.iter().map(File::fate).collect::<Result<Vec<_>, _>>()?;
        let kept: Vec<String> = files
            .iter()
            .zip(&fates)
            .filter(|(_, fate)| **fate == Fate::Overwritten && !self.force)
            .map(|(file, _)| format!("{} is there already and says something else", file.path.display()))
            .collect();
        if !kept.is_empty() {
            return Err(Failure::refused(kept.join("\n"))
                .help("nothing was written; --dry-run shows what would be, --force overwrites"));
        }
        for (file, fate) in files.iter().zip(&fates) {
            file.write(*fate)?;
            session.terminal().say(&format!("{} {}", file.path.display(), fate.word()));
        }
        session.terminal().say(&format!("\nnext:\n{}", settings.next_steps(&folder)));
        Ok(Exit::Done)
    }
}
