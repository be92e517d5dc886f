//! The preparation of a backup: the backup is restored into a private etcd, changed there, and saved again.

use super::backup_facts::BackupFacts;
use super::private_etcd::{PrivateEtcd, Programs};
use crate::duration::{now, since_1970};
use crate::failure::Failure;
use crate::terminal::Terminal;
use ha_api_types::id::Revision;
use ha_api_types::keys::{ALL_CLUSTERS, Keys, cluster_of};
use ha_api_types::kind::Kind;
use ha_api_types::record::{Incarnation, RestoreMarker, keys_deleted_by_restore, revision_raise};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A backup to prepare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// File with a snapshot of etcd, not encrypted.
    pub(crate) backup: &'a Path,
    /// Whether the file may lack a checksum.
    pub(crate) skip_hash_check: bool,
    /// Name of a cluster to prepare that has no keys in the backup.
    pub(crate) empty: Option<&'a str>,
}

#[derive(Debug)]
pub(crate) struct PreparedBackup {
    /// Snapshot of the prepared data.
    pub(crate) file: PathBuf,
    /// Revision of etcd in the backup, before the preparation.
    pub(crate) revision: Revision,
    pub(crate) summaries: Vec<ClusterSummary>,
}

/// The content of a backup about one cluster, and the number of removed keys.
#[derive(Debug)]
pub(crate) struct ClusterSummary {
    pub(crate) cluster: String,
    pub(crate) resources: usize,
    pub(crate) nodes: usize,
    pub(crate) deleted_keys: usize,
}

impl Source<'_> {
    /// Prepares the backup in a scratch directory. `confirm` gets the questions that only an operator can answer.
    ///
    /// # Errors
    /// Fails if the backup is damaged, contains no cluster, or is not confirmed.
    pub(crate) async fn prepare(
        &self,
        terminal: &Terminal,
        programs: &Programs,
        scratch: &Path,
        confirm: &(dyn Fn(&[String]) -> Result<(), Failure> + Sync),
    ) -> Result<PreparedBackup, Failure> {
        terminal.progress("restoring the backup into a temporary etcd");
        let data = scratch.join("data");
        let revision_increase = revision_raise(i128::try_from(since_1970().as_micros()).unwrap_or_default());
        let revision = programs.restore(self.backup, &data, revision_increase, self.skip_hash_check).await?;
        let etcd = PrivateEtcd::start(programs, scratch, &data).await?;
        let keys = etcd.keys(ALL_CLUSTERS).await?;
        let clusters: BTreeSet<&str> =
            keys.iter().filter_map(|key| cluster_of(key)).chain(self.empty).collect();
        if clusters.is_empty() {
            let message = format!("{}: no hactl cluster found", self.backup.display());
            return Err(Failure::usage(message).help(format!(
                "no key begins with {ALL_CLUSTERS}; check that the backup is of the right etcd"
            )));
        }
        let mut summaries = Vec::new();
        for cluster in clusters {
            terminal.progress(&format!("preparing cluster {cluster}"));
            let facts = read_facts(&etcd, cluster).await?;
            confirm(&facts.questions(cluster, self.empty.is_some()))?;
            summaries.push(rewrite_keys(&etcd, cluster, revision, facts).await?);
        }
        terminal.progress("saving");
        let file = scratch.join("prepared");
        etcd.save(&file).await?;
        etcd.stop().await?;
        Ok(PreparedBackup { file, revision: Revision(revision), summaries })
    }
}

async fn read_facts(etcd: &PrivateEtcd, cluster: &str) -> Result<BackupFacts, Failure> {
    let keys = Keys::new(cluster);
    let mut values = Vec::new();
    for part in [keys.candidates(), keys.fences(), keys.reports(), keys.incarnation()] {
        values.extend(etcd.values(&part).await?);
    }
    Ok(BackupFacts::collect(&keys, &values))
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
    let value = serde_json::to_string(&incarnation).map_err(|error| Failure::failed(error.to_string()))?;
    etcd.put(&keys.incarnation(), &value).await?;
    let marker = RestoreMarker {
        at: now(),
        backup_revision: Revision(revision),
        longest_fencing_delay_ms: facts.longest_fencing_delay_ms,
    };
    let value = serde_json::to_string(&marker).map_err(|error| Failure::failed(error.to_string()))?;
    etcd.put(&keys.restore_marker(), &value).await?;
    Ok(summary)
}
