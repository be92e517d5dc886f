//! One service's domain on this node: its state, its start and its end.

use super::answers::{self, DomainInfo};
use super::definition::{self, Source};
use super::domain_state::DomainState;
use super::failure::{self, invalid_configuration, retry_here, try_elsewhere};
use super::virsh::{Virsh, VirshError};
use super::{Context, qemu};
use crate::core::{DriverEvent, DriverFailure};
use ha_api_types::driver::LibvirtDriver as LibvirtSpec;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep};

/// Time limit for queries that libvirt answers from memory.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for libvirt to destroy a domain before the driver kills its QEMU directly.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit of a kill.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between checks of a domain that is ending.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Interval between requests to the guest to switch off. They are repeated, because a booting guest ignores them.
const SHUTDOWN_REQUEST_INTERVAL: Duration = Duration::from_secs(10);

/// The domain of a service, with the connection to its libvirt.
pub(super) struct Domain {
    pub(super) context: Arc<Context>,
    pub(super) virsh: Virsh,
    pub(super) name: String,
    pub(super) service: ServiceDefinition,
    pub(super) spec: LibvirtSpec,
}

/// State of a domain as seen by one query.
#[derive(Debug)]
pub(super) struct DomainObservation {
    /// Uuid of the domain, used in commands because virsh may take a name for a number. Empty if the domain does not
    /// exist in libvirt.
    pub(super) uuid: String,
    pub(super) state: DomainState,
}

impl Domain {
    /// Returns the domain of a service.
    ///
    /// # Errors
    /// Fails if the domain's name cannot be determined. This is rare, because the API checks objects when they are
    /// applied.
    pub(super) fn of(context: &Arc<Context>, service: &ServiceDefinition) -> Result<Domain, DriverFailure> {
        let spec = service
            .driver
            .libvirt
            .clone()
            .ok_or_else(|| invalid_configuration("spec.driver.libvirt is missing"))?;
        let name = spec
            .domain_name()
            .map_err(|error| invalid_configuration(format!("spec.driver.libvirt.xml: {error}")))?;
        let virsh = Virsh::new(spec.uri(), &context.directory);
        Ok(Domain { context: Arc::clone(context), virsh, name, service: service.clone(), spec })
    }

    pub(super) async fn query_state(&self) -> Result<DomainObservation, VirshError> {
        let Some(uuid) = self.uuid().await? else { return Ok(absent()) };
        let printed = match self.virsh.run(QUERY_TIMEOUT, &["domstate", "--reason", &uuid]).await {
            Ok(printed) => printed,
            // The domain may have ended since the list was read.
            Err(error) if error.is_answer() && self.uuid().await?.is_none() => return Ok(absent()),
            Err(error) => return Err(error),
        };
        let reported = answers::parse_state(&printed)
            .ok_or_else(|| VirshError::Reported(format!("virsh domstate printed {printed:?}")))?;
        let job = match self.virsh.run(QUERY_TIMEOUT, &["domjobinfo", &uuid]).await {
            Ok(printed) => answers::parse_job(Ok(&printed)),
            Err(error) if error.is_answer() => answers::parse_job(Err(&error.to_string())),
            Err(error) => return Err(error),
        };
        let state = match (reported.state.as_str(), job) {
            ("shut off", _) => DomainState::Off,
            (_, Some(job)) => DomainState::of_active(&reported, &job, self.reception_marker().exists()),
            (_, None) => {
                DomainState::Changing("libvirt does not report a usable state of the domain".to_owned())
            }
        };
        Ok(DomainObservation { uuid, state })
    }

    /// Returns the domain's uuid, or `None` if the domain does not exist in libvirt.
    pub(super) async fn uuid(&self) -> Result<Option<String>, VirshError> {
        let printed = self.virsh.run(QUERY_TIMEOUT, &["list", "--all", "--uuid", "--name"]).await?;
        Ok(answers::parse_domains(&printed)
            .into_iter()
            .find(|listed| listed.name == self.name)
            .map(|listed| listed.uuid))
    }

    /// Returns the domain's `dominfo`.
    pub(super) async fn info(&self, uuid: &str) -> Result<DomainInfo, VirshError> {
        self.virsh.run(QUERY_TIMEOUT, &["dominfo", uuid]).await.map(|printed| answers::parse_info(&printed))
    }

    /// Returns the path of the marker file of a reception. It exists from the time at which this node prepares to
    /// receive the domain until the domain is started here or removed.
    pub(super) fn reception_marker(&self) -> PathBuf {
        self.context.directory.join(format!("{}.receiving", self.service.name))
    }

    /// Returns the lock for commands that can make the domain run. libvirt completes a command even if its caller has
    /// ended, so the lock is held until the command ends.
    pub(super) fn start_lock(&self) -> Arc<Mutex<()>> {
        self.context.start_lock(&self.virsh, &self.name)
    }

    pub(super) fn record_state(&self, is_running: bool) {
        self.context.watches.record_state(&self.virsh, &self.name, &self.service, is_running);
    }

    pub(super) fn end_watch(&self) {
        self.context.watches.end(&self.virsh, &self.name);
    }

    /// Reports whether the domain runs here.
    pub(super) async fn probe(&self) -> Observed {
        let start_lock = self.start_lock();
        let Ok(_held) = start_lock.try_lock() else {
            return Observed::Unknown("an earlier command for the domain is still in progress".to_owned());
        };
        match self.query_state().await {
            Ok(observation) => {
                let observed = observation.state.to_observed();
                match &observed {
                    Observed::Running => self.record_state(true),
                    Observed::NotRunning => self.record_state(false),
                    Observed::Remnant(_) | Observed::Unknown(_) => {}
                }
                // A migration that an earlier agent started has no other time limit.
                if let DomainState::Leaving(outgoing) = &observation.state
                    && outgoing.elapsed_ms > self.service.timeouts.migrate_ms()
                {
                    let aborted = self.virsh.run(QUERY_TIMEOUT, &["domjobabort", &observation.uuid]).await;
                    tracing::info!(
                        resource = self.service.name.as_str(),
                        ?aborted,
                        "canceled a migration that took too long"
                    );
                }
                observed
            }
            // QEMU keeps running without libvirt. Only the absence of both proves that the domain does not run.
            Err(error) => match qemu::of_domain(&self.name) {
                Ok(domains) if domains.is_empty() && error.is_not_running() => Observed::NotRunning,
                Ok(domains) if domains.is_empty() => Observed::Unknown(error.to_string()),
                Ok(_) => Observed::Unknown(format!("QEMU runs, but libvirt cannot be queried: {error}")),
                Err(unread) => Observed::Unknown(format!("{error}; cannot read the processes: {unread}")),
            },
        }
    }

    /// Starts the domain, or adopts it if it already runs.
    pub(super) async fn start(self: &Arc<Self>) -> Result<(), DriverFailure> {
        let canceled = CancelFlag::default();
        let (domain, cancel_flag) = (Arc::clone(self), canceled.0.clone());
        let start_task = tokio::spawn(async move {
            let start_guard = domain.start_lock().lock_owned().await;
            domain.start_locked(&cancel_flag, start_guard).await
        });
        start_task.await.unwrap_or_else(|error| Err(retry_here(Reason::StartFailed, error.to_string())))
    }

    async fn start_locked(
        &self,
        canceled: &AtomicBool,
        _held: OwnedMutexGuard<()>,
    ) -> Result<(), DriverFailure> {
        let mut observation = self.query_state().await.map_err(|error| failure::start_failure(&error))?;
        if matches!(observation.state, DomainState::Arriving | DomainState::Broken(_)) {
            let destroyed = self.virsh.run(KILL_TIMEOUT, &["destroy", &observation.uuid]).await;
            destroyed.map_err(|error| failure::start_failure(&error))?;
            observation = self.query_state().await.map_err(|error| failure::start_failure(&error))?;
        }
        let may_begin = || {
            let is_canceled = canceled.load(Ordering::SeqCst);
            if is_canceled { Err(retry_here(Reason::Interrupted, "start canceled")) } else { Ok(()) }
        };
        match &observation.state {
            DomainState::Runs | DomainState::Paused { by_migration: false } => {}
            DomainState::Paused { by_migration: true } => {
                may_begin()?;
                let resumed = self.virsh.run(self.start_limit(), &["resume", &observation.uuid]).await;
                resumed.map_err(|error| failure::start_failure(&error))?;
            }
            DomainState::Absent | DomainState::Off => {
                let xml = self.definition(&observation).await?;
                may_begin()?;
                let create_result = match &xml {
                    Some(path) => {
                        let path = path.to_string_lossy();
                        self.virsh.run(self.start_limit(), &["create", &path]).await
                    }
                    None => self.virsh.run(self.start_limit(), &["start", &observation.uuid]).await,
                };
                if let Some(path) = xml {
                    let _ = std::fs::remove_file(path);
                }
                create_result.map_err(|error| failure::start_failure(&error))?;
            }
            DomainState::Arriving
            | DomainState::Broken(_)
            | DomainState::Leaving(_)
            | DomainState::Changing(_) => {
                return Err(retry_here(Reason::StartFailed, observed_text(&observation.state.to_observed())));
            }
        }
        self.forget_receiving()?;
        let observation = self.query_state().await.map_err(|error| failure::start_failure(&error))?;
        match observation.state.to_observed() {
            Observed::Running => {
                self.record_state(true);
                Ok(())
            }
            observed @ (Observed::NotRunning | Observed::Remnant(_) | Observed::Unknown(_)) => {
                Err(retry_here(Reason::StartFailed, observed_text(&observed)))
            }
        }
    }

    fn start_limit(&self) -> Duration {
        Duration::from_millis(self.service.timeouts.start_ms())
    }

    fn forget_receiving(&self) -> Result<(), DriverFailure> {
        match std::fs::remove_file(self.reception_marker()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.unwritable(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(super) fn unwritable(&self, error: &io::Error) -> DriverFailure {
        try_elsewhere(
            Reason::StartFailed,
            format!("cannot write {}: {error}", self.context.directory.display()),
        )
    }

    /// Writes the definition to a file and returns its path, or returns `None` if libvirt has the definition.
    pub(super) async fn definition(
        &self,
        observation: &DomainObservation,
    ) -> Result<Option<PathBuf>, DriverFailure> {
        if observation.state == DomainState::Off
            && self.info(&observation.uuid).await.map_err(|error| failure::start_failure(&error))?.autostart
        {
            let message = format!(
                "libvirt starts the domain automatically when this node boots, even while it runs on another node: run virsh -c {} autostart --disable {}",
                self.virsh.uri(),
                self.name
            );
            return Err(try_elsewhere(Reason::BadConfiguration, message));
        }
        let xml = match Source::of(&self.spec) {
            Source::Libvirt if observation.state == DomainState::Absent => {
                let message =
                    format!("domain {} is not defined in {} of this node", self.name, self.virsh.uri());
                let class = FailureClass::NeverHere;
                return Err(DriverFailure { class, reason: Reason::NotInstalled, message });
            }
            Source::Libvirt => return Ok(None),
            Source::Resource(xml) => xml.to_owned(),
            Source::File(path) => definition::read(path, QUERY_TIMEOUT).await?,
        };
        let (read, xml) = definition::prepare(&xml, &self.name, &self.service.uid)?;
        self.report_requested_amounts(read.amounts);
        let path = self.context.directory.join(format!("{}.xml", self.service.name));
        std::fs::write(&path, xml).map_err(|error| self.unwritable(&error))?;
        Ok(Some(path))
    }

    /// Reports the definition's requests to the leader, if the leader cannot read the definition itself.
    pub(super) fn report_requested_amounts(&self, amounts: ha_api_types::quantity::Amounts) {
        if self.spec.xml.is_empty() {
            // Sending fails only when the agent is ending.
            let _ = self.context.events.send(DriverEvent::RequestedAmounts {
                name: self.service.name.clone(),
                uid: self.service.uid.clone(),
                amounts,
            });
        }
    }

    /// Requests a shutdown from the guest, waits at most `graceful_ms`, then destroys the domain.
    pub(super) async fn stop(&self, graceful_ms: Millis) -> Result<(), DriverFailure> {
        self.end_watch();
        let deadline = Instant::now() + Duration::from_millis(graceful_ms);
        let mut ask_at = Instant::now();
        while Instant::now() < deadline {
            match self.query_state().await {
                Ok(observation) => match observation.state {
                    DomainState::Runs | DomainState::Changing(_) => {
                        if Instant::now() >= ask_at {
                            ask_at = Instant::now() + SHUTDOWN_REQUEST_INTERVAL;
                            let shutdown_result = self
                                .virsh
                                .run(QUERY_TIMEOUT, &["shutdown", &observation.uuid, "--mode", "acpi,agent"])
                                .await;
                            if let Err(error) = shutdown_result {
                                tracing::debug!(resource = self.service.name.as_str(), %error, "cannot request a shutdown of the virtual machine");
                            }
                        }
                    }
                    DomainState::Leaving(_) => {
                        // The domain may survive the abort, but the migration must not complete.
                        let _ = self.virsh.run(QUERY_TIMEOUT, &["domjobabort", &observation.uuid]).await;
                    }
                    // A guest that does not run cannot handle the request.
                    DomainState::Absent
                    | DomainState::Off
                    | DomainState::Paused { .. }
                    | DomainState::Arriving
                    | DomainState::Broken(_) => break,
                },
                Err(error) if error.is_not_running() => break,
                Err(error) => {
                    tracing::debug!(resource = self.service.name.as_str(), %error, "cannot query libvirt");
                }
            }
            sleep(POLL_INTERVAL.min(deadline.saturating_duration_since(Instant::now()))).await;
        }
        self.kill().await
    }

    /// Destroys the domain, and kills its QEMU if libvirt does not answer, until no part of the domain runs or can
    /// start.
    pub(super) async fn kill(&self) -> Result<(), DriverFailure> {
        self.end_watch();
        let deadline = Instant::now() + KILL_TIMEOUT;
        let start_lock = self.start_lock();
        let mut start_guard = None;
        loop {
            let was_held = start_guard.is_some();
            let failure_text = self.destroy_once().await;
            if start_guard.is_none() {
                start_guard = start_lock.try_lock().ok();
            }
            let cause = match failure_text {
                // This loop held the lock since before the check, so no other command has started the domain.
                None if was_held => {
                    self.forget_receiving()?;
                    self.record_state(false);
                    return Ok(());
                }
                None if start_guard.is_some() => continue,
                None => "a start of the domain is still in progress".to_owned(),
                Some(cause) => cause,
            };
            if Instant::now() >= deadline {
                return Err(retry_here(Reason::StopFailed, cause));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Tries once to destroy the domain. Returns `None` if no part of the domain remains, otherwise the reason.
    async fn destroy_once(&self) -> Option<String> {
        let observation = match self.query_state().await {
            Ok(DomainObservation { state: DomainState::Absent | DomainState::Off, .. }) => return None,
            Ok(observation) => Ok(observation),
            Err(error) => match qemu::of_domain(&self.name) {
                Ok(domains) if domains.is_empty() && error.is_not_running() => return None,
                Ok(_) | Err(_) => Err(error),
            },
        };
        let destroyed = match observation {
            Ok(observation) => {
                self.virsh.run(DESTROY_TIMEOUT, &["destroy", &observation.uuid]).await.map(|_| ())
            }
            Err(error) => Err(error),
        };
        let error = destroyed.err()?;
        if !error.is_answer()
            && let Err(error) = qemu::kill(&self.name)
        {
            return Some(format!("cannot kill QEMU: {error}"));
        }
        Some(error.to_string())
    }
}

fn absent() -> DomainObservation {
    DomainObservation { uuid: String::new(), state: DomainState::Absent }
}

/// Returns the observed state as text for a message.
fn observed_text(observed: &Observed) -> String {
    match observed {
        Observed::Running => "domain runs".to_owned(),
        Observed::NotRunning => "domain does not run after its start".to_owned(),
        Observed::Remnant(message) | Observed::Unknown(message) => message.clone(),
    }
}

/// Flag, set on drop, that shows a detached task that its caller was canceled.
#[derive(Default)]
struct CancelFlag(Arc<AtomicBool>);

impl Drop for CancelFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
