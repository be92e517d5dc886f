//! Live migration, peer to peer: the source's libvirt connects to the target's, and the driver uses only this node's
//! libvirt.
//!
//! By default, libvirt resumes the guest at the target, and at the source again if the target's reply is lost. A link
//! failure at that moment makes the guest run twice. So the guest arrives paused, and the target resumes it only after
//! the source has committed that nothing is left there.

use super::answers::{self, Job, Outgoing};
use super::domain::{Domain, QUICK};
use super::failure::{elsewhere, passing};
use super::standing::Standing;
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
const LOOK: Duration = Duration::from_secs(1);
/// Interval between progress reports.
const TELL: Duration = Duration::from_secs(5);
/// Time limit for libvirt to cancel a migration: it detects a lost connection after half a minute.
const CALL_OFF: Duration = Duration::from_secs(90);
/// Time limit of one attempt to end a migration of an earlier agent; the caller retries.
const END: Duration = Duration::from_secs(20);

impl Domain {
    /// Prepares to receive the domain.
    pub(super) async fn receive(&self) -> Result<(), DriverFailure> {
        let hand = self.hand();
        let _held = hand.lock().await;
        self.end_watch();
        let mut seen = self.look().await.map_err(|error| elsewhere(Reason::MoveFailed, error.to_string()))?;
        if matches!(seen.standing, Standing::Arriving | Standing::Broken(_)) {
            let destroyed = self.virsh.ask(QUICK, &["destroy", &seen.uuid]).await;
            destroyed.map_err(|error| elsewhere(Reason::MoveFailed, error.to_string()))?;
            seen = self.look().await.map_err(|error| elsewhere(Reason::MoveFailed, error.to_string()))?;
        }
        match &seen.standing {
            Standing::Absent | Standing::Off => {}
            Standing::Runs | Standing::Paused { .. } => {
                return Err(elsewhere(
                    Reason::MoveFailed,
                    format!("domain {} already runs on this node", self.name),
                ));
            }
            Standing::Leaving(_) | Standing::Changing(_) | Standing::Arriving | Standing::Broken(_) => {
                let message = format!(
                    "domain {} already exists on this node, and a libvirt operation on it is in progress",
                    self.name
                );
                return Err(elsewhere(Reason::MoveFailed, message));
            }
        }
        // Write the definition once as a test: a start from scratch on this node must be possible.
        if let Some(path) = self.definition(&seen).await? {
            let _ = std::fs::remove_file(path);
        }
        std::fs::write(self.receiving(), "").map_err(|error| self.unwritable(&error))
    }

    /// Moves the domain to a node. Dropping the future cancels the migration; until libvirt has ended it, probes
    /// report that it is in progress.
    pub(super) async fn migrate(self: &Arc<Self>, target: &NodeName) -> Result<(), DriverFailure> {
        // Dropped with this future, which cancels the migration.
        let (_goes_on, called_off) = oneshot::channel();
        let (domain, target) = (Arc::clone(self), target.to_owned());
        let moving = tokio::spawn(async move { domain.migrate_it(&target, called_off).await });
        moving.await.unwrap_or_else(|error| Err(failed(error.to_string())))
    }

    async fn migrate_it(
        &self,
        target: &NodeName,
        mut called_off: oneshot::Receiver<()>,
    ) -> Result<(), DriverFailure> {
        let _held = self.hand().lock_owned().await;
        let seen = self.look().await.map_err(|error| failed(error.to_string()))?;
        match seen.standing {
            Standing::Runs => {}
            Standing::Paused { .. } => {
                return Err(failed(format!("domain is paused: run virsh resume {}", self.name)));
            }
            Standing::Leaving(_) => {
                return Err(failed("another migration of the domain is in progress".to_owned()));
            }
            Standing::Absent | Standing::Off => {
                return Err(failed("domain does not run on this node".to_owned()));
            }
            Standing::Arriving | Standing::Broken(_) | Standing::Changing(_) => {
                return Err(failed(format!("libvirt reports the state {:?}", seen.standing)));
            }
        }
        self.end_watch();
        if called_off.try_recv() != Err(oneshot::error::TryRecvError::Empty) {
            return Err(failed("migration canceled".to_owned()));
        }
        let arguments = arguments(&self.spec.migration, &seen.uuid, target);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let running = self.virsh.begin(&arguments).map_err(|error| failed(error.to_string()))?;
        let moved = running.end();
        tokio::pin!(moved);
        let mut guide = Guide::new(self, &seen.uuid);
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let limit = sleep(Duration::from_millis(self.service.timeouts.migrate_ms()));
        tokio::pin!(limit);
        let why = loop {
            tokio::select! {
                ended = &mut moved => return ended.map(|_| ()).map_err(|error| failed(error.to_string())),
                _ = looks.tick() => guide.look().await,
                _ = &mut called_off => break failed("migration canceled".to_owned()),
                () = &mut limit => break DriverFailure {
                    reason: Reason::TimedOut,
                    ..failed(format!(
                        "migration canceled after {} s (spec.timeouts.migrateSeconds)",
                        self.service.timeouts.migrate_seconds
                    ))
                },
            }
        };
        let until = Instant::now() + CALL_OFF;
        while Instant::now() < until {
            let aborted = self.virsh.ask(QUICK, &["domjobabort", &seen.uuid]).await;
            if let Err(error) = aborted {
                tracing::debug!(resource = self.service.name.as_str(), %error, "cannot cancel the migration yet");
            }
            match tokio::time::timeout(LOOK, &mut moved).await {
                // The migration completed before it could be canceled.
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(_)) => break,
                Err(_) => {}
            }
        }
        Err(why)
    }
}

impl Domain {
    /// Cancels a migration from this node, until libvirt has no job for it and no command of this agent is left.
    pub(super) async fn end_migration(&self) -> Result<(), DriverFailure> {
        let until = Instant::now() + END;
        let hand = self.hand();
        loop {
            let why = match self.look().await {
                Ok(seen) => match seen.standing {
                    Standing::Leaving(outgoing) => {
                        let aborted = self.virsh.ask(QUICK, &["domjobabort", &seen.uuid]).await;
                        let why = aborted.err().map_or_else(String::new, |error| format!(": {error}"));
                        format!("migration from this node is still in progress ({outgoing}){why}")
                    }
                    Standing::Absent
                    | Standing::Off
                    | Standing::Runs
                    | Standing::Paused { .. }
                    | Standing::Arriving
                    | Standing::Broken(_)
                    | Standing::Changing(_) => {
                        if hand.try_lock().is_ok() {
                            return Ok(());
                        }
                        "an earlier command for the domain is still in progress".to_owned()
                    }
                },
                Err(error) => error.to_string(),
            };
            if Instant::now() >= until {
                return Err(failed(why));
            }
            sleep(LOOK).await;
        }
    }

    /// Confirms that no domain is left here. A domain that arrives later is paused, and only [`Domain::start`] resumes
    /// it. With post-copy the domain runs as soon as it arrives, and libvirt cannot refuse it.
    pub(super) async fn close_reception(&self) -> Result<(), DriverFailure> {
        if self.spec.migration.post_copy_after_seconds.is_some() {
            return Err(DriverFailure {
                class: FailureClass::NeverHere,
                ..failed("libvirt cannot reject a migration that changes to post-copy".to_owned())
            });
        }
        match self.look().await.map_err(|error| failed(error.to_string()))?.standing {
            Standing::Absent | Standing::Off => Ok(()),
            found @ (Standing::Runs
            | Standing::Paused { .. }
            | Standing::Arriving
            | Standing::Broken(_)
            | Standing::Leaving(_)
            | Standing::Changing(_)) => Err(failed(format!("domain still exists on this node: {found:?}"))),
        }
    }
}

/// Supervision of a migration in progress: reports progress, sets the downtime, changes to post-copy.
struct Guide<'a> {
    domain: &'a Domain,
    uuid: &'a str,
    begin: Instant,
    tell_at: Instant,
    is_downtime_set: bool,
    is_post_copy: bool,
}

impl Guide<'_> {
    fn new<'a>(domain: &'a Domain, uuid: &'a str) -> Guide<'a> {
        let now = Instant::now();
        Guide { domain, uuid, begin: now, tell_at: now, is_downtime_set: false, is_post_copy: false }
    }

    async fn look(&mut self) {
        let Ok(printed) = self.ask(&["domjobinfo", self.uuid]).await else { return };
        let Some(Job::Outgoing(outgoing)) = answers::job(Ok(&printed)) else { return };
        self.tell(&outgoing);
        let migration = &self.domain.spec.migration;
        if let Some(milliseconds) = migration.max_downtime_ms().filter(|_| !self.is_downtime_set) {
            let set = self.ask(&["migrate-setmaxdowntime", self.uuid, &milliseconds.to_string()]).await;
            self.is_downtime_set = set.is_ok();
        }
        let after = migration.post_copy_after_seconds.map(Duration::from_secs);
        if !self.is_post_copy && after.is_some_and(|after| self.begin.elapsed() >= after) {
            self.is_post_copy = self.ask(&["migrate-postcopy", self.uuid]).await.is_ok();
            if self.is_post_copy {
                tracing::info!(
                    resource = self.domain.service.name.as_str(),
                    "changed a migration to post-copy"
                );
            }
        }
    }

    async fn ask(&self, arguments: &[&str]) -> Result<String, VirshError> {
        let answer = self.domain.virsh.ask(QUICK, arguments).await;
        answer.inspect_err(|error| {
            tracing::debug!(resource = self.domain.service.name.as_str(), %error, "cannot change the migration");
        })
    }

    fn tell(&mut self, outgoing: &Outgoing) {
        if Instant::now() < self.tell_at {
            return;
        }
        self.tell_at = Instant::now() + TELL;
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
    // Libvirt cannot combine the two: after the change to post-copy, the domain must run at the target to get the rest
    // of its memory.
    arguments.push(match migration.post_copy_after_seconds {
        None => "--suspend".to_owned(),
        Some(_) => "--postcopy".to_owned(),
    });
    arguments
}

fn failed(message: String) -> DriverFailure {
    passing(Reason::MoveFailed, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::time::Seconds;

    fn check(migration: &LibvirtMigration, expected: &str) {
        assert_eq!(
            arguments(migration, "u", &"node2".into()).join(" "),
            format!("migrate --live --p2p --domain u {expected}")
        );
    }

    #[test]
    fn what_virsh_is_asked() {
        check(&LibvirtMigration::default(), "--desturi qemu+tls://node2/system --suspend");
        let all = LibvirtMigration {
            uri: Some("qemu+tcp://{node}.example.com/system".to_owned()),
            data_uri: Some("tcp://{node}".to_owned()),
            bandwidth_mebibytes_per_second: Some(8),
            max_downtime_seconds: Some(Seconds(100)),
            downtime_milliseconds: None,
            post_copy_after_seconds: Some(30),
        };
        check(
            &all,
            "--desturi qemu+tcp://node2.example.com/system --migrateuri tcp://node2 --bandwidth 8 --postcopy",
        );
    }
}
