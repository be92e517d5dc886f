//! `hactl restore`: prepares a backup of etcd from which a cluster can safely start (FENCING, section 10).

mod backup_facts;
mod credentials;
mod private_etcd;

use crate::duration::{now, since_1970};
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use backup_facts::{BackupFacts, WARNING, confirm};
use clap::{Args, ValueHint};
use ha_api_types::id::Revision;
use ha_api_types::keys::{ALL_CLUSTERS, Keys, cluster_of};
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::record::{Incarnation, RestoreMarker, keys_deleted_by_restore, revision_raise};
use private_etcd::{PrivateEtcd, Programs};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
    /// Backup file written by `etcdctl snapshot save`
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
    /// Accept a backup without a checksum: a copy of the file `member/snap/db`
    #[arg(long)]
    skip_hash_check: bool,
}

/// The content of the backup, and the number of removed keys.
struct ClusterSummary {
    cluster: String,
    resources: usize,
    nodes: usize,
    deleted_keys: usize,
}

impl Restore {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        self.check()?;
        let programs = Programs::find(self.programs.as_deref())?;
        // The scratch directory is next to the output file, so that the last step is a rename within one file system.
        let directory =
            self.prepared.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let scratch = tempfile::Builder::new()
            .prefix(".hactl-restore-")
            .tempdir_in(directory)
            .map_err(|error| Failure::refused(format!("{}: {error}", directory.display())))?;
        tokio::select! {
            outcome = self.prepare(session, &programs, scratch.path()) => outcome,
            _ = tokio::signal::ctrl_c() => Err(Failure::refused("interrupted: nothing was written")),
        }
    }

    /// Checks the arguments before any step begins.
    fn check(&self) -> Result<(), Failure> {
        if let Some(backup) = &self.from {
            match std::fs::metadata(backup) {
                Err(error) => return Err(Failure::usage(format!("{}: {error}", backup.display()))),
                Ok(metadata) if !metadata.is_file() => {
                    return Err(Failure::usage(format!("{}: not a file", backup.display()))
                        .help("specify a file written by `etcdctl snapshot save`"));
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
        terminal.progress("restoring the backup into a temporary etcd");
        let data = scratch.join("data");
        let backup = match &self.from {
            Some(backup) => backup.clone(),
            None => empty_backup(programs, scratch).await?,
        };
        let revision_increase = revision_raise(i128::try_from(since_1970().as_micros()).unwrap_or_default());
        let revision = programs.restore(&backup, &data, revision_increase, self.skip_hash_check).await?;
        let etcd = PrivateEtcd::start(programs, scratch, &data).await?;
        let keys = etcd.keys(ALL_CLUSTERS).await?;
        let clusters: BTreeSet<&str> =
            keys.iter().filter_map(|key| cluster_of(key)).chain(self.empty.as_deref()).collect();
        if clusters.is_empty() {
            let message = format!("{}: no hactl cluster found", backup.display());
            return Err(Failure::usage(message).help(format!(
                "no key begins with {ALL_CLUSTERS}; check that the backup is of the right etcd"
            )));
        }
        let mut summaries = Vec::new();
        for cluster in clusters {
            terminal.progress(&format!("preparing cluster {cluster}"));
            summaries.push(self.confirm_and_rewrite(session, &etcd, cluster, revision).await?);
        }
        terminal.progress("saving");
        let saved = scratch.join("prepared");
        etcd.save(&saved).await?;
        etcd.stop().await?;
        std::fs::rename(&saved, &self.prepared)
            .map_err(|error| Failure::refused(format!("{}: {error}", self.prepared.display())))?;
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

impl Restore {
    /// Asks the questions that only an operator can answer, then rewrites the data.
    async fn confirm_and_rewrite(
        &self,
        session: &Session,
        etcd: &PrivateEtcd,
        cluster: &str,
        revision: i64,
    ) -> Result<ClusterSummary, Failure> {
        let keys = Keys::new(cluster);
        let mut values = Vec::new();
        for part in [keys.candidates(), keys.fences(), keys.reports(), keys.incarnation()] {
            values.extend(etcd.values(&part).await?);
        }
        let facts = BackupFacts::collect(&keys, &values);
        let questions = facts.questions(cluster, self.empty.is_some());
        if !self.yes && !questions.is_empty() {
            session.terminal().warn(WARNING);
        }
        confirm(self.yes, &questions)?;
        rewrite_keys(etcd, cluster, revision, facts).await
    }
}

/// Returns a backup of an empty etcd.
async fn empty_backup(programs: &Programs, scratch: &Path) -> Result<PathBuf, Failure> {
    let directory = scratch.join("empty");
    std::fs::create_dir(&directory)
        .map_err(|error| Failure::refused(format!("{}: {error}", directory.display())))?;
    let etcd = PrivateEtcd::start(programs, &directory, &directory.join("data")).await?;
    let saved = directory.join("backup");
    etcd.save(&saved).await?;
    etcd.stop().await?;
    Ok(saved)
}

/// Deletes the keys of agents and their assignments, and writes the marker last, which invalidates all older data.
async fn rewrite_keys(
    etcd: &PrivateEtcd,
    cluster: &str,
    revision: i64,
    facts: BackupFacts,
) -> Result<ClusterSummary, Failure> {
    let keys = Keys::new(cluster);
    let existing_keys = etcd.keys(keys.root()).await?;
    let count = |prefix: &str| existing_keys.iter().filter(|key| key.starts_with(prefix)).count();
    let keys_deleted_by_restore = keys_deleted_by_restore(&keys);
    let summary = ClusterSummary {
        cluster: cluster.to_owned(),
        resources: count(&keys.specs_of(Kind::Resource)),
        nodes: count(&keys.fences()),
        deleted_keys: keys_deleted_by_restore
            .iter()
            .filter(|part| part.ends_with('/'))
            .map(|part| count(part))
            .sum(),
    };
    for part in &keys_deleted_by_restore {
        etcd.delete(part).await?;
    }
    let incarnation = Incarnation::restored(uuid::Uuid::new_v4().to_string(), facts.incarnation);
    let value = serde_json::to_string(&incarnation).map_err(|error| Failure::refused(error.to_string()))?;
    etcd.put(&keys.incarnation(), &value).await?;
    let marker = RestoreMarker {
        at: now(),
        backup_revision: Revision(revision),
        longest_fencing_delay_ms: facts.longest_fencing_delay_ms,
    };
    let value = serde_json::to_string(&marker).map_err(|error| Failure::refused(error.to_string()))?;
    etcd.put(&keys.restore_marker(), &value).await?;
    Ok(summary)
}
