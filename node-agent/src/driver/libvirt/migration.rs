//! Live migration, peer to peer: the source's libvirt connects to the target's, and the driver uses only this node's
//! libvirt.
//!
//! By default, libvirt resumes the guest at the target, and also at the source if the target's reply is lost. A link
//! failure at that moment would make the guest run twice. The guest therefore arrives paused, and the target resumes it
//! only after the source has committed that no part of the guest remains there.

use super::answers::{self, Job, OutgoingMigration};
use super::domain::{Domain, QUERY_TIMEOUT};
use super::domain_state::DomainState;
use super::failure::{retry_here, try_elsewhere};
use super::virsh::VirshError;
use crate::core::{DriverEvent, DriverFailure};
use ha_api_types::driver::LibvirtMigration;
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// Interval between queries of the migration's progress.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit for libvirt to cancel a migration: it detects a lost connection after half a minute.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(90);
/// Time limit of one attempt to end a migration of an earlier agent; the caller retries.
const END_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);

impl Domain {
    /// Prepares to receive the domain.
    pub(super) async fn receive(&self) -> Result<(), DriverFailure> {
        let start_lock = self.start_lock();
        let _held = start_lock.lock().await;
        self.end_watch();
        let mut observation =
            self.query_state().await.map_err(|error| try_elsewhere(Reason::MoveFailed, error.to_string()))?;
        if matches!(observation.state, DomainState::Arriving | DomainState::Broken(_)) {
            let destroyed = self.virsh.run(QUERY_TIMEOUT, &["destroy", &observation.uuid]).await;
            destroyed.map_err(|error| try_elsewhere(Reason::MoveFailed, error.to_string()))?;
            observation = self
                .query_state()
                .await
                .map_err(|error| try_elsewhere(Reason::MoveFailed, error.to_string()))?;
        }
        match &observation.state {
            DomainState::Absent | DomainState::Off => {}
            DomainState::Runs | DomainState::Paused { .. } => {
                return Err(try_elsewhere(
                    Reason::MoveFailed,
                    format!("domain {} already runs on this node", self.name),
                ));
            }
            DomainState::Leaving(_)
            | DomainState::Changing(_)
            | DomainState::Arriving
            | DomainState::Broken(_) => {
                let message = format!(
                    "domain {} already exists on this node, and a libvirt operation on it is in progress",
                    self.name
                );
                return Err(try_elsewhere(Reason::MoveFailed, message));
            }
        }
        // Write the definition once as a test, because a later start on this node must be possible.
        if let Some(path) = self.definition(&observation).await? {
            let _ = std::fs::remove_file(path);
        }
        std::fs::write(self.reception_marker(), "").map_err(|error| self.unwritable(&error))
    }

    /// Moves the domain to a node. Dropping the future cancels the migration. Until libvirt has ended the migration,
    /// probes report that it is in progress.
    pub(super) async fn migrate(self: &Arc<Self>, target: &NodeName) -> Result<(), DriverFailure> {
        // The sender is dropped with this future, which cancels the migration.
        let (_cancel_on_drop, canceled) = oneshot::channel();
        let (domain, target) = (Arc::clone(self), target.to_owned());
        let moving = tokio::spawn(async move { domain.migrate_locked(&target, canceled).await });
        moving.await.unwrap_or_else(|error| Err(failed(error.to_string())))
    }

    async fn migrate_locked(
        &self,
        target: &NodeName,
        mut canceled: oneshot::Receiver<()>,
    ) -> Result<(), DriverFailure> {
        let _held = self.start_lock().lock_owned().await;
        let observation = self.query_state().await.map_err(|error| failed(error.to_string()))?;
        match observation.state {
            DomainState::Runs => {}
            DomainState::Paused { .. } => {
                return Err(failed(format!("domain is paused: run virsh resume {}", self.name)));
            }
            DomainState::Leaving(_) => {
                return Err(failed("another migration of the domain is in progress".to_owned()));
            }
            DomainState::Absent | DomainState::Off => {
                return Err(failed("domain does not run on this node".to_owned()));
            }
            DomainState::Arriving | DomainState::Broken(_) | DomainState::Changing(_) => {
                return Err(failed(format!("libvirt reports the state {:?}", observation.state)));
            }
        }
        self.end_watch();
        if canceled.try_recv() != Err(oneshot::error::TryRecvError::Empty) {
            return Err(failed("migration canceled".to_owned()));
        }
        let arguments = arguments(&self.spec.migration, &observation.uuid, target);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let running = self.virsh.begin(&arguments).map_err(|error| failed(error.to_string()))?;
        let moved = running.end();
        tokio::pin!(moved);
        let mut supervisor = MigrationSupervisor::new(self, &observation.uuid);
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let limit = sleep(Duration::from_millis(self.service.timeouts.migrate_ms()));
        tokio::pin!(limit);
        let cause = loop {
            tokio::select! {
                ended = &mut moved => return ended.map(|_| ()).map_err(|error| failed(error.to_string())),
                _ = ticks.tick() => supervisor.update().await,
                _ = &mut canceled => break failed("migration canceled".to_owned()),
                () = &mut limit => break DriverFailure {
                    reason: Reason::TimedOut,
                    ..failed(format!(
                        "migration canceled after {} s (spec.timeouts.migrateSeconds)",
                        self.service.timeouts.migrate_seconds
                    ))
                },
            }
        };
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        while Instant::now() < deadline {
            let aborted = self.virsh.run(QUERY_TIMEOUT, &["domjobabort", &observation.uuid]).await;
            if let Err(error) = aborted {
                tracing::debug!(resource = self.service.name.as_str(), %error, "cannot cancel the migration yet");
            }
            match tokio::time::timeout(POLL_INTERVAL, &mut moved).await {
                // The migration completed before it could be canceled.
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(_)) => break,
                Err(_) => {}
            }
        }
        Err(cause)
    }
}

impl Domain {
    /// Cancels a migration from this node, until libvirt has no job for it and no command of this agent remains.
    pub(super) async fn end_migration(&self) -> Result<(), DriverFailure> {
        let deadline = Instant::now() + END_ATTEMPT_TIMEOUT;
        let start_lock = self.start_lock();
        loop {
            let cause = match self.query_state().await {
                Ok(observation) => match observation.state {
                    DomainState::Leaving(outgoing) => {
                        let aborted =
                            self.virsh.run(QUERY_TIMEOUT, &["domjobabort", &observation.uuid]).await;
                        let abort_failure =
                            aborted.err().map_or_else(String::new, |error| format!(": {error}"));
                        format!("migration from this node is still in progress ({outgoing}){abort_failure}")
                    }
                    DomainState::Absent
                    | DomainState::Off
                    | DomainState::Runs
                    | DomainState::Paused { .. }
                    | DomainState::Arriving
                    | DomainState::Broken(_)
                    | DomainState::Changing(_) => {
                        if start_lock.try_lock().is_ok() {
                            return Ok(());
                        }
                        "an earlier command for the domain is still in progress".to_owned()
                    }
                },
                Err(error) => error.to_string(),
            };
            if Instant::now() >= deadline {
                return Err(failed(cause));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Confirms that no domain remains on this node. A domain that arrives later is paused, and only [`Domain::start`]
    /// resumes it. With post-copy, this confirmation is not possible: the domain runs as soon as it arrives, and
    /// libvirt cannot refuse the arrival.
    pub(super) async fn confirm_no_incoming_copy(&self) -> Result<(), DriverFailure> {
        if self.spec.migration.post_copy_after_seconds.is_some() {
            return Err(DriverFailure {
                class: FailureClass::NeverHere,
                ..failed("libvirt cannot reject a migration that changes to post-copy".to_owned())
            });
        }
        match self.query_state().await.map_err(|error| failed(error.to_string()))?.state {
            DomainState::Absent | DomainState::Off => Ok(()),
            found @ (DomainState::Runs
            | DomainState::Paused { .. }
            | DomainState::Arriving
            | DomainState::Broken(_)
            | DomainState::Leaving(_)
            | DomainState::Changing(_)) => {
                Err(failed(format!("domain still exists on this node: {found:?}")))
            }
        }
    }
}

/// Supervision of a migration in progress: reports progress, sets the downtime, changes to post-copy.
struct MigrationSupervisor<'a> {
    domain: &'a Domain,
    uuid: &'a str,
    begin: Instant,
    report_progress_at: Instant,
    is_downtime_set: bool,
    is_post_copy: bool,
}

impl MigrationSupervisor<'_> {
    fn new<'a>(domain: &'a Domain, uuid: &'a str) -> MigrationSupervisor<'a> {
        let now = Instant::now();
        MigrationSupervisor {
            domain,
            uuid,
            begin: now,
            report_progress_at: now,
            is_downtime_set: false,
            is_post_copy: false,
        }
    }

    async fn update(&mut self) {
        let Ok(printed) = self.run_virsh(&["domjobinfo", self.uuid]).await else { return };
        let Some(Job::Outgoing(outgoing)) = answers::parse_job(Ok(&printed)) else { return };
        self.report_progress(&outgoing);
        let migration = &self.domain.spec.migration;
        if let Some(milliseconds) = migration.max_downtime_ms().filter(|_| !self.is_downtime_set) {
            let result =
                self.run_virsh(&["migrate-setmaxdowntime", self.uuid, &milliseconds.to_string()]).await;
            self.is_downtime_set = result.is_ok();
        }
        let post_copy_after = migration.post_copy_after_seconds.map(Duration::from_secs);
        if !self.is_post_copy
            && post_copy_after.is_some_and(|post_copy_after| self.begin.elapsed() >= post_copy_after)
        {
            self.is_post_copy = self.run_virsh(&["migrate-postcopy", self.uuid]).await.is_ok();
            if self.is_post_copy {
                tracing::info!(
                    resource = self.domain.service.name.as_str(),
                    "switched a migration to post-copy"
                );
            }
        }
    }

    async fn run_virsh(&self, arguments: &[&str]) -> Result<String, VirshError> {
        let answer = self.domain.virsh.run(QUERY_TIMEOUT, arguments).await;
        answer.inspect_err(|error| {
            tracing::debug!(resource = self.domain.service.name.as_str(), %error, "cannot change the parameters of the migration");
        })
    }

    fn report_progress(&mut self, outgoing: &OutgoingMigration) {
        if Instant::now() < self.report_progress_at {
            return;
        }
        self.report_progress_at = Instant::now() + PROGRESS_INTERVAL;
        let service = &self.domain.service;
        let message = outgoing.to_string();
        tracing::info!(resource = service.name.as_str(), progress = message, "migrating a service");
        // Sending fails only when the agent is ending.
        let _ = self.domain.context.events.send(DriverEvent::Progress {
            name: service.name.clone(),
            uid: service.uid.clone(),
            message,
        });
    }
}

/// Returns the arguments of `virsh` for the migration.
fn arguments(migration: &LibvirtMigration, uuid: &str, target: &NodeName) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["migrate", "--live", "--p2p", "--domain", uuid, "--desturi"].map(str::to_owned).to_vec();
    arguments.push(migration.uri_of(target));
    if let Some(uri) = migration.data_uri_of(target) {
        arguments.extend(["--migrateuri".to_owned(), uri]);
    }
    if let Some(mebibytes) = migration.bandwidth_mebibytes_per_second {
        arguments.extend(["--bandwidth".to_owned(), mebibytes.to_string()]);
    }
    // libvirt cannot combine post-copy with a paused arrival: after the change to post-copy, the domain must run at the
    // target to receive the rest of its memory.
    arguments.push(match migration.post_copy_after_seconds {
        None => "--suspend".to_owned(),
        Some(_) => "--postcopy".to_owned(),
    });
    arguments
}

fn failed(message: String) -> DriverFailure {
    retry_here(Reason::MoveFailed, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::time::DecimalSeconds;

    fn check(migration: &LibvirtMigration, expected: &str) {
        assert_eq!(
            arguments(migration, "u", &"node2".into()).join(" "),
            format!("migrate --live --p2p --domain u {expected}")
        );
    }

    #[test]
    fn virsh_migration_arguments_follow_the_settings() {
        check(&LibvirtMigration::default(), "--desturi qemu+tls://node2/system --suspend");
        let all_options = LibvirtMigration {
            uri: Some("qemu+tcp://{node}.example.com/system".to_owned()),
            data_uri: Some("tcp://{node}".to_owned()),
            bandwidth_mebibytes_per_second: Some(8),
            max_downtime_seconds: Some(DecimalSeconds(100)),
            downtime_milliseconds: None,
            post_copy_after_seconds: Some(30),
        };
        check(
            &all_options,
            "--desturi qemu+tcp://node2.example.com/system --migrateuri tcp://node2 --bandwidth 8 --postcopy",
        );
    }
}
