//! `hactl backup`: saves a snapshot of etcd, and verifies it by preparing a restore from it.

use super::restore::{PreparedBackup, Programs, Source};
use crate::atomic_file::scratch_directory;
use crate::duration::now;
use crate::encryption::AgeProgram;
use crate::etcdctl::{EtcdConnection, Etcdctl};
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use crate::terminal::{Terminal, byte_text};
use clap::{Args, ValueHint};
use ha_api_types::keys::Keys;
use ha_api_types::names;
use ha_api_types::record::BackupRecord;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Save and verify a backup of etcd
#[derive(Args, Debug)]
#[command(
    after_help = "WARNING: the backup contains all secrets in the fields of objects. Encrypt it with --encrypt-to, or restrict \
                  access to it. To restore it, use \"hactl restore\"; etcd must not be started from it directly.\n\n\
        The command saves a snapshot from the first member that responds, and verifies it: it prepares a restore in a temporary \
        etcd. Only then does it replace FILE and record the time and size of the backup in etcd. \"hactl status\" and \
        the alert HactlBackupOld use this record. If etcd has users, only the user root can save a snapshot.\n\n\
        Examples:\n  hactl backup /var/backups/etcd/hactl-$(date +%u).db --etcd-endpoints https://c1:2379 \\\n    \
        --etcd-ca ca.pem --etcd-cert root.pem --etcd-key root.key\n\n\
        Exit status: 0 saved and recorded; 1 failed: FILE is unchanged, unless the message says that it was saved; 2 \
        invalid usage."
)]
pub(crate) struct Backup {
    /// File to write, with mode 600; only a verified backup replaces it
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    etcd: EtcdConnection,
    /// Public key (age or SSH) for which to encrypt; requires age; repeatable
    #[arg(long = "encrypt-to", value_name = "RECIPIENT")]
    recipients: Vec<String>,
}

impl Backup {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let programs = Programs::find(self.etcd.programs.as_deref())?;
        if self.file.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return Err(Failure::usage(format!("{}: not a regular file", self.file.display())));
        }
        let age = if self.recipients.is_empty() { None } else { Some(AgeProgram::find()?) };
        let scratch = scratch_directory(&self.file, ".hactl-backup-")?;
        tokio::select! {
            outcome = self.save(session.terminal(), &programs, age.as_ref(), scratch.path()) => outcome,
            _ = tokio::signal::ctrl_c() => Err(Failure::failed("interrupted: the backup is not recorded in etcd")
                .help("run the command again; FILE was replaced only if this command printed \"saved\"")),
        }
    }

    async fn save(
        &self,
        terminal: &Terminal,
        programs: &Programs,
        age: Option<&AgeProgram>,
        scratch: &Path,
    ) -> Outcome {
        let at = now();
        let snapshot = scratch.join("snapshot");
        let member = self.save_snapshot(terminal, &snapshot).await?;
        let source = Source { backup: &snapshot, skip_hash_check: false, empty: None };
        let prepared = source.prepare(terminal, programs, scratch, &|_| Ok(())).await.map_err(|failure| {
            Failure { exit: Exit::Failed, ..failure }.with_context("the backup cannot be restored")
        })?;
        let file = match age {
            None => snapshot,
            Some(age) => {
                terminal.progress("encrypting");
                let encrypted = scratch.join("encrypted");
                age.encrypt(&snapshot, &self.recipients, &encrypted).await?;
                encrypted
            }
        };
        let size_bytes = self.replace_file(&file)?;
        let record = BackupRecord { at, revision: prepared.revision, size_bytes, encrypted: age.is_some() };
        self.report(terminal, &prepared, &record);
        self.record(&member, &prepared, &record).await.map_err(|failure| {
            let context =
                format!("{} was saved, but the backup is not recorded in etcd", self.file.display());
            failure.with_context(&context)
        })?;
        Ok(Exit::Done)
    }

    /// Saves a snapshot from the first member that responds. Returns etcdctl with this member as its only endpoint,
    /// because etcdctl accepts one endpoint for a snapshot.
    async fn save_snapshot(&self, terminal: &Terminal, snapshot: &Path) -> Result<Etcdctl, Failure> {
        let etcdctl = self.etcd.etcdctl()?;
        let mut last_failure = Failure::usage("--etcd-endpoints contains no URL");
        for endpoint in &self.etcd.etcd_endpoints {
            terminal.progress(&format!("saving a snapshot from {endpoint}"));
            let member = Etcdctl { endpoints: endpoint.clone(), ..etcdctl.clone() };
            // A member that does not respond is skipped after a short time; a large snapshot may take hours.
            let health = [OsStr::new("endpoint"), OsStr::new("status"), OsStr::new("--command-timeout=5s")];
            let save = [
                OsStr::new("snapshot"),
                OsStr::new("save"),
                OsStr::new("--command-timeout=6h"),
                snapshot.as_os_str(),
            ];
            let saved = match member.run(health).await {
                Ok(_) => member.run(save).await,
                Err(failure) => Err(failure),
            };
            match saved {
                Ok(_) => return Ok(member),
                Err(failure) => last_failure = failure.with_context(&format!("no snapshot from {endpoint}")),
            }
        }
        Err(last_failure)
    }

    /// Replaces the output file with the verified backup. Returns the size in bytes.
    fn replace_file(&self, file: &Path) -> Result<u64, Failure> {
        let replace = || {
            std::fs::set_permissions(file, Permissions::from_mode(0o600))?;
            let opened = File::open(file)?;
            opened.sync_all()?;
            std::fs::rename(file, &self.file)?;
            Ok(opened.metadata()?.len())
        };
        replace()
            .map_err(|error: std::io::Error| Failure::failed(format!("{}: {error}", self.file.display())))
    }

    fn report(&self, terminal: &Terminal, prepared: &PreparedBackup, record: &BackupRecord) {
        let encryption = if record.encrypted { "encrypted" } else { "not encrypted" };
        let size = byte_text(record.size_bytes);
        let file = self.file.display();
        terminal.print_line(&format!("{file} saved: {size}, revision {}, {encryption}", record.revision));
        for summary in &prepared.summaries {
            terminal.print_line(&format!(
                "cluster {}: {} and {} can be restored",
                summary.cluster,
                names::count_with_noun(summary.resources, "resource"),
                names::count_with_noun(summary.nodes, "node"),
            ));
        }
        if !record.encrypted {
            terminal.warn("the backup contains secrets: restrict access to it, or use --encrypt-to");
        }
    }

    /// Records the backup in each cluster that it contains.
    async fn record(
        &self,
        member: &Etcdctl,
        prepared: &PreparedBackup,
        record: &BackupRecord,
    ) -> Result<(), Failure> {
        let value = serde_json::to_string(record).map_err(|error| Failure::failed(error.to_string()))?;
        for summary in &prepared.summaries {
            let key = Keys::new(&summary.cluster).backup_record();
            member.run(["put", "--", key.as_str(), value.as_str()]).await?;
        }
        Ok(())
    }
}
