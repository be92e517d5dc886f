//! `hactl restore`: prepares a backup of etcd from which a cluster can safely start (FENCING, section 10).

mod backup_facts;
mod credentials;
mod preparation;
mod private_etcd;

use crate::atomic_file::scratch_directory;
use crate::encryption;
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use backup_facts::{WARNING, confirm};
use clap::{Args, ValueHint};
use ha_api_types::names;
use private_etcd::PrivateEtcd;
use std::path::{Path, PathBuf};

pub(crate) use preparation::{PreparedBackup, Source};
pub(crate) use private_etcd::Programs;

/// Prepare an etcd backup for the restore of a cluster
#[derive(Args, Debug)]
#[command(
    after_help = "WARNING: data loss if members are started from the unprepared backup, because services could run twice.\n\n\
        Stop all members of the old etcd, then run the command once, on any host with the etcd programs. The command restores the \
        backup into a temporary etcd, and deletes the state of agents and leader (heartbeats, assignments, reports). The command then \
        raises the revision above all former revisions, and writes a marker. Because of the marker, the leader locates every service \
        before any start. The result is saved as PREPARED. Restore every member from PREPARED. See docs/operations.md for the procedure.\n\n\
        Exit status: 0 written; 1 failed, nothing was written; 2 invalid usage or backup."
)]
pub(crate) struct Restore {
    /// File to write; must not exist
    #[arg(value_name = "PREPARED", value_hint = ValueHint::FilePath)]
    prepared: PathBuf,
    /// Backup file written by `hactl backup` or `etcdctl snapshot save`
    #[arg(long, value_name = "BACKUP", value_hint = ValueHint::FilePath, required_unless_present = "empty")]
    from: Option<PathBuf>,
    /// Prepare an empty etcd for this cluster; you apply all objects afterward
    #[arg(long, value_name = "CLUSTER", conflicts_with_all = ["from", "skip_hash_check"])]
    empty: Option<String>,
    /// Directory of etcd, etcdctl and etcdutl; default: search PATH
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    programs: Option<PathBuf>,
    /// WARNING: data loss if wrong. Confirm that all old controllers and nodes are stopped or can reach the new etcd
    #[arg(long, short = 'y')]
    yes: bool,
    /// Private key file of age, for an encrypted backup; repeatable
    #[arg(long = "identity", value_name = "FILE", value_hint = ValueHint::FilePath, requires = "from")]
    identities: Vec<PathBuf>,
    /// Accept a backup without a checksum: a copy of the file `member/snap/db`
    #[arg(long)]
    skip_hash_check: bool,
}

impl Restore {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        self.check()?;
        let programs = Programs::find(self.programs.as_deref())?;
        let scratch = scratch_directory(&self.prepared, ".hactl-restore-")?;
        tokio::select! {
            outcome = self.prepare(session, &programs, scratch.path()) => outcome,
            _ = tokio::signal::ctrl_c() => Err(Failure::failed("interrupted: nothing was written")),
        }
    }

    /// Checks the arguments before any step begins.
    fn check(&self) -> Result<(), Failure> {
        if let Some(backup) = &self.from {
            match std::fs::metadata(backup) {
                Err(error) => return Err(Failure::usage(format!("{}: {error}", backup.display()))),
                Ok(metadata) if !metadata.is_file() => {
                    return Err(Failure::usage(format!("{}: not a file", backup.display()))
                        .help("specify a file written by `hactl backup` or `etcdctl snapshot save`"));
                }
                Ok(_) => {}
            }
        }
        if let Some(cluster) = &self.empty
            && (cluster.is_empty() || cluster.contains(|letter: char| letter == '/' || letter.is_control()))
        {
            return Err(Failure::usage(format!("--empty: {cluster:?} is not a valid cluster name"))
                .help("use the --cluster name of the controllers; the default name is \"default\""));
        }
        if self.prepared.symlink_metadata().is_ok() {
            return Err(Failure::usage(format!("{}: already exists", self.prepared.display()))
                .help("specify a file that does not exist; existing files are not overwritten"));
        }
        Ok(())
    }

    async fn prepare(&self, session: &Session, programs: &Programs, scratch: &Path) -> Outcome {
        let terminal = session.terminal();
        let backup = match &self.from {
            Some(backup) => encryption::decrypted(backup, &self.identities, scratch).await?,
            None => empty_backup(programs, scratch).await?,
        };
        let source =
            Source { backup: &backup, skip_hash_check: self.skip_hash_check, empty: self.empty.as_deref() };
        let confirm = |questions: &[String]| {
            if !self.yes && !questions.is_empty() {
                terminal.warn(WARNING);
            }
            confirm(self.yes, questions)
        };
        let PreparedBackup { file, summaries, .. } =
            source.prepare(terminal, programs, scratch, &confirm).await?;
        std::fs::rename(&file, &self.prepared)
            .map_err(|error| Failure::failed(format!("{}: {error}", self.prepared.display())))?;
        for summary in &summaries {
            terminal.print_line(&format!(
                "cluster {}: kept {} and {}; deleted heartbeats, assignments and reports: {}",
                summary.cluster,
                names::count_with_noun(summary.resources, "resource"),
                names::count_with_noun(summary.nodes, "node"),
                summary.deleted_keys
            ));
        }
        let prepared = self.prepared.display();
        terminal.print_line(&format!(
            "{prepared} written. On each member, move the old data directory away, then run:"
        ));
        terminal.print_line(&format!(
            "  etcdutl snapshot restore {prepared} --name NAME --data-dir DIR \\\n    \
             --initial-cluster NAME=URL,… --initial-advertise-peer-urls URL"
        ));
        terminal.print_line("Then start the members, the controllers and the agents, and run \"hactl status\" to see the progress.");
        Ok(Exit::Done)
    }
}

/// Returns a backup of an empty etcd.
async fn empty_backup(programs: &Programs, scratch: &Path) -> Result<PathBuf, Failure> {
    let directory = scratch.join("empty");
    std::fs::create_dir(&directory)
        .map_err(|error| Failure::failed(format!("{}: {error}", directory.display())))?;
    let etcd = PrivateEtcd::start(programs, &directory, &directory.join("data")).await?;
    let saved = directory.join("backup");
    etcd.save(&saved).await?;
    etcd.stop().await?;
    Ok(saved)
}
