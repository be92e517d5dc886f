//! `hactl sync`: applies the objects of a Git repository at regular intervals, and reports the outcome.

mod drift;
mod git;
mod metrics;
mod report;

use super::apply::{apply_entry, inventory};
use crate::client::{Client, WriteMode};
use crate::failure::{Exit, Failure, Outcome};
use crate::manifest::{self, Completeness, FileFlags, ManifestObject};
use crate::session::Session;
use clap::{Args, ValueHint};
use drift::{MANAGER, drift_of};
use git::short;
use ha_api_types::git_sync::Drift;
use ha_api_types::reason::Reason;
use metrics::SyncMetrics;
use report::PublishedStatus;
use serde_json::Value;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Apply the objects of a Git repository at regular intervals
#[derive(Args, Debug)]
#[command(
    after_help = "The objects become one inventory: a pass deletes objects that are no longer in the files, and undoes \
        changes that others made to fields in the files. All files are checked on the server before the first change, \
        so an invalid commit changes nothing. The GitSync object NAME shows the outcome: hactl describe gitsync NAME.\n\n\
        Exit status of --once: 0 applied; 1 not fetched, not signed, or refused; 2 usage; 3 unreachable; 4 permission \
        denied.\n\n\
        Examples:\n  hactl sync site1 --git https://git.example.org/ha.git --path cluster\n  \
        hactl sync site1 --git /srv/git/ha.git --verify-signatures --allowed-signers /etc/hactl/signers --once"
)]
pub(crate) struct Sync {
    /// Name of the GitSync object and of the inventory
    name: String,
    /// URL or directory of the repository
    #[arg(long, value_name = "URL", value_parser = git::parse_url)]
    git: String,
    /// Branch; default: the default branch of the repository
    #[arg(long, value_name = "BRANCH")]
    branch: Option<String>,
    /// Directory of the files within the repository
    #[arg(long, value_name = "PATH", default_value = ".", value_parser = git::parse_path)]
    path: String,
    /// Time between two passes
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = crate::duration::parse, conflicts_with = "once")]
    interval: Duration,
    /// Make one pass and exit
    #[arg(long)]
    once: bool,
    /// Refuse commits without a valid signature
    #[arg(long)]
    verify_signatures: bool,
    /// File with the allowed SSH keys; default: the configuration of git
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "verify_signatures")]
    allowed_signers: Option<PathBuf>,
    /// Directory for the clone of the repository
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "/var/lib/hactl/sync")]
    directory: PathBuf,
    /// Address at which metrics are served, such as 127.0.0.1:9744
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "once")]
    metrics_address: Option<SocketAddr>,
}

/// Shortest interval between two passes.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Outcome of a pass.
#[derive(Debug, Default)]
struct SyncPass {
    /// Commit that was fetched; empty if none was.
    revision: String,
    /// Commit whose objects are applied; empty if none is known.
    applied_revision: String,
    /// Number of objects in the files of the applied commit.
    objects: usize,
    /// Objects that others had changed.
    drift: Vec<Drift>,
    /// Cause of a failed pass.
    failure: Option<(Reason, Failure)>,
}

impl Sync {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        if !self.once && self.interval < MIN_INTERVAL {
            return Err(Failure::usage("--interval: must be at least 1s"));
        }
        inventory::check_name("NAME", &self.name)?;
        let _lock = self.lock()?;
        let metrics = SyncMetrics::new(&self.name)?;
        if let Some(address) = self.metrics_address {
            metrics.serve(address).await?;
        }
        let handler =
            |kind| signal(kind).map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")));
        let (mut interrupt, mut terminate) =
            (handler(SignalKind::interrupt())?, handler(SignalKind::terminate())?);
        let mut last_failure = None;
        loop {
            // Every object of an interrupted pass is applied as a whole, and the next pass applies the others.
            let failure = tokio::select! {
                failure = self.pass(session, &metrics) => failure,
                _ = interrupt.recv() => return Ok(Exit::Done),
                _ = terminate.recv() => return Ok(Exit::Done),
            };
            if self.once {
                return failure.map_or(Ok(Exit::Done), Err);
            }
            match &failure {
                // A failure is shown once, not in every pass.
                Some(failure) if last_failure.as_ref() != Some(failure) => {
                    session.terminal().failure(failure);
                }
                None if last_failure.is_some() => session.terminal().report("pass succeeded again"),
                Some(_) | None => {}
            }
            last_failure = failure;
            tokio::select! {
                () = tokio::time::sleep(self.interval) => {}
                _ = interrupt.recv() => return Ok(Exit::Done),
                _ = terminate.recv() => return Ok(Exit::Done),
            }
        }
    }

    /// Locks the directory of this object, so that two processes do not change the same clone.
    fn lock(&self) -> Result<File, Failure> {
        let path = self.directory.join(format!("{}.lock", self.name));
        let unusable = |error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(&self.directory).map_err(unusable)?;
        let file = File::create(&path).map_err(unusable)?;
        file.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => {
                Failure::failed(format!("another hactl sync of {} is running", self.name))
                    .help("stop the other process, or specify another --directory")
            }
            std::fs::TryLockError::Error(error) => unusable(error),
        })?;
        Ok(file)
    }

    /// Makes a pass, and publishes its outcome. Returns the failure of the pass, or of the report.
    async fn pass(&self, session: &Session, metrics: &SyncMetrics) -> Option<Failure> {
        // A new client reads certificates and tokens again, which may have been renewed.
        let client = match session.client_as(MANAGER) {
            Ok(client) => client,
            Err(failure) => {
                metrics.record(false, 0, "");
                return Some(failure);
            }
        };
        let published = match PublishedStatus::read(&client, self).await {
            Ok(published) => published,
            Err(failure) => {
                metrics.record(false, 0, "");
                return Some(failure);
            }
        };
        let mut pass =
            SyncPass { applied_revision: published.applied_revision().to_owned(), ..SyncPass::default() };
        pass.objects = published.objects();
        if let Err(failed) = self.synchronize(session, &client, &mut pass).await {
            pass.failure = Some(failed);
        }
        metrics.record(pass.failure.is_none(), pass.drift.len(), &pass.applied_revision);
        let reported = published.report(&client, &pass).await;
        pass.failure.map(|(_, failure)| failure).or(reported.err())
    }

    /// Fetches, checks and applies the last commit.
    async fn synchronize(
        &self,
        session: &Session,
        client: &Client,
        pass: &mut SyncPass,
    ) -> Result<(), (Reason, Failure)> {
        let fetch_failed = |failure| (Reason::FetchFailed, failure);
        let refused = |failure| (Reason::CommitRefused, failure);
        let repository =
            git::Repository::open(self.directory.join(&self.name)).await.map_err(fetch_failed)?;
        pass.revision = repository.fetch(&self.git, self.branch.as_deref()).await.map_err(fetch_failed)?;
        let commit = &pass.revision;
        if self.verify_signatures {
            let signers = self.allowed_signers.as_deref();
            repository
                .verify(commit, signers)
                .await
                .map_err(|failure| (Reason::CommitNotVerified, failure))?;
        }
        let is_new = pass.applied_revision != *commit;
        if is_new && !pass.applied_revision.is_empty() && repository.has(&pass.applied_revision).await {
            pass.drift = self.drift_before(session, client, &repository, &pass.applied_revision).await;
        }
        let mut entries = self.load(&repository, commit).await.map_err(refused)?;
        let live_objects = live_objects(client, &entries).await.map_err(refused)?;
        inventory::add_to_inventory(&self.name, &mut entries, &live_objects).map_err(refused)?;
        // The server checks all changes before the first one is stored. Its warnings are shown when they are stored.
        session.terminal().hold_warnings();
        let planned = plan(client, &entries, &live_objects).await;
        session.terminal().retain_warnings(|_| false);
        session.terminal().release_warnings(|_| true);
        let planned = planned.map_err(refused)?;
        if !is_new {
            let objects = entries.iter().zip(&live_objects).zip(&planned);
            pass.drift = objects
                .filter_map(|((entry, live), after)| drift_of(entry, live.as_ref(), Some(after)))
                .collect();
        }
        for drift in &pass.drift {
            let message = format!("{}/{}: {}", drift.kind.singular(), drift.name, drift.sentence());
            session.terminal().warn(&message);
        }
        let obsolete = inventory::prune_candidates(client, &self.name, &entries, session.terminal())
            .await
            .map_err(refused)?;
        for write_mode in [WriteMode::DryRun, WriteMode::Persist] {
            if write_mode == WriteMode::Persist {
                apply(session, client, &entries, &live_objects, commit).await.map_err(refused)?;
            }
            for object in &obsolete {
                let name = format!("{}/{}", object.kind.singular(), object.name);
                client.delete(object.kind, &object.name, &object.uid, write_mode).await.map_err(|error| {
                    refused(Failure::from(error).with_context(&format!("pruning {name}")))
                })?;
                if write_mode == WriteMode::Persist {
                    session.terminal().report(&format!("{name} pruned (commit {})", short(commit)));
                }
            }
        }
        repository.record_applied(commit).await.map_err(fetch_failed)?;
        pass.objects = entries.len();
        pass.applied_revision.clone_from(commit);
        Ok(())
    }

    /// Reads the objects in the files of a commit.
    async fn load(&self, repository: &git::Repository, commit: &str) -> Result<Vec<ManifestObject>, Failure> {
        repository.check_out(commit).await?;
        let files = repository.directory().join(&self.path);
        let flags = FileFlags { files: vec![files.display().to_string()], recursive: true };
        let loaded = manifest::load(&flags, Completeness::Whole);
        let loaded = loaded.and_then(|entries| {
            let empty = || Failure::usage(format!("{}: no object found in the files", self.path));
            if entries.is_empty() { Err(empty()) } else { Ok(entries) }
        });
        loaded.map_err(|failure| {
            let message = relative(&failure.message, repository.directory());
            Failure::failed(format!("commit {}: {message}", short(commit)))
                .help("correct the files and push another commit; the objects of the previous commit stay")
        })
    }

    /// Returns the drift from a commit that was applied earlier. Drift that cannot be determined is omitted: the commit
    /// may be invalid for this version.
    async fn drift_before(
        &self,
        session: &Session,
        client: &Client,
        repository: &git::Repository,
        commit: &str,
    ) -> Vec<Drift> {
        let Ok(mut entries) = self.load(repository, commit).await else { return Vec::new() };
        let Ok(live_objects) = live_objects(client, &entries).await else { return Vec::new() };
        if inventory::add_to_inventory(&self.name, &mut entries, &live_objects).is_err() {
            return Vec::new();
        }
        session.terminal().hold_warnings();
        let mut drift = Vec::new();
        for (entry, live) in entries.iter().zip(&live_objects) {
            let after = apply_entry(client, entry, live.as_ref(), Some(WriteMode::DryRun)).await;
            let after = after.ok().map(|(_, after)| after);
            drift.extend(drift_of(entry, live.as_ref(), after.as_ref()));
        }
        session.terminal().retain_warnings(|_| false);
        session.terminal().release_warnings(|_| true);
        drift
    }
}

async fn live_objects(client: &Client, entries: &[ManifestObject]) -> Result<Vec<Option<Value>>, Failure> {
    let mut live_objects = Vec::with_capacity(entries.len());
    for entry in entries {
        live_objects.push(client.get(entry.kind, &entry.name).await?);
    }
    Ok(live_objects)
}

/// Returns the objects after an apply, as checked and changed by the server. Nothing is stored.
async fn plan(
    client: &Client,
    entries: &[ManifestObject],
    live_objects: &[Option<Value>],
) -> Result<Vec<Value>, Failure> {
    let mut planned = Vec::with_capacity(entries.len());
    for (entry, live) in entries.iter().zip(live_objects) {
        let after = apply_entry(client, entry, live.as_ref(), Some(WriteMode::DryRun)).await;
        let (_, after) = after.map_err(|error| Failure::from(error).with_context(&entry.display_name()))?;
        planned.push(after);
    }
    Ok(planned)
}

async fn apply(
    session: &Session,
    client: &Client,
    entries: &[ManifestObject],
    live_objects: &[Option<Value>],
    commit: &str,
) -> Result<(), Failure> {
    for (entry, live) in entries.iter().zip(live_objects) {
        let applied = apply_entry(client, entry, live.as_ref(), Some(WriteMode::Persist)).await;
        let (change, _) =
            applied.map_err(|error| Failure::from(error).with_context(&entry.display_name()))?;
        if change.is_change() {
            let text = format!("{} {} (commit {})", entry.display_name(), change.name(), short(commit));
            session.terminal().report(&text);
        }
    }
    Ok(())
}

/// Returns a message with paths relative to the clone.
fn relative(message: &str, directory: &Path) -> String {
    message
        .replace(&format!("{}/./", directory.display()), "")
        .replace(&format!("{}/", directory.display()), "")
}
