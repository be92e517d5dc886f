//! One service's domain on this node: its state, its start and its end.

use super::answers::{self, Info};
use super::definition::{self, Source};
use super::failure::{self, elsewhere, nowhere, passing};
use super::standing::Standing;
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
pub(super) const QUICK: Duration = Duration::from_secs(10);
/// Time limit for libvirt to destroy a domain before the driver kills its QEMU directly.
const DESTROY: Duration = Duration::from_secs(3);
/// Time limit of a kill.
const KILL: Duration = Duration::from_secs(20);
/// Interval between checks of a domain that is ending.
const LOOK: Duration = Duration::from_millis(300);
/// Delay before the guest is asked again to switch off: a guest that is booting ignores the request.
const ASK_AGAIN: Duration = Duration::from_secs(10);

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
pub(super) struct Seen {
    /// Uuid of the domain, used in commands because virsh may take a name for a number. Empty if the domain does not
    /// exist in libvirt.
    pub(super) uuid: String,
    pub(super) standing: Standing,
}

impl Domain {
    /// Returns the domain of a service.
    ///
    /// # Errors
    /// Fails if the domain's name cannot be determined. The API checks objects when they are applied, so this is rare.
    pub(super) fn of(context: &Arc<Context>, service: &ServiceDefinition) -> Result<Domain, DriverFailure> {
        let spec = service.driver.libvirt.clone().ok_or_else(|| nowhere("spec.driver.libvirt is missing"))?;
        let name =
            spec.domain_name().map_err(|error| nowhere(format!("spec.driver.libvirt.xml: {error}")))?;
        let virsh = Virsh::new(spec.uri(), &context.folder);
        Ok(Domain { context: Arc::clone(context), virsh, name, service: service.clone(), spec })
    }

    /// Queries the state of the domain.
    pub(super) async fn look(&self) -> Result<Seen, VirshError> {
        let Some(uuid) = self.uuid().await? else { return Ok(absent()) };
        let printed = match self.virsh.ask(QUICK, &["domstate", "--reason", &uuid]).await {
            Ok(printed) => printed,
            // The domain may have ended since the list was read.
            Err(error) if error.is_answer() && self.uuid().await?.is_none() => return Ok(absent()),
            Err(error) => return Err(error),
        };
        let state = answers::state(&printed)
            .ok_or_else(|| VirshError::Said(format!("virsh domstate printed {printed:?}")))?;
        let job = match self.virsh.ask(QUICK, &["domjobinfo", &uuid]).await {
            Ok(printed) => answers::job(Ok(&printed)),
            Err(error) if error.is_answer() => answers::job(Err(&error.to_string())),
            Err(error) => return Err(error),
        };
        let standing = match (state.state.as_str(), job) {
            ("shut off", _) => Standing::Off,
            (_, Some(job)) => Standing::of_active(&state, &job, self.receiving().exists()),
            (_, None) => Standing::Changing("state of the domain in libvirt is unclear".to_owned()),
        };
        Ok(Seen { uuid, standing })
    }

    /// Returns the domain's uuid, or `None` if the domain does not exist in libvirt.
    pub(super) async fn uuid(&self) -> Result<Option<String>, VirshError> {
        let printed = self.virsh.ask(QUICK, &["list", "--all", "--uuid", "--name"]).await?;
        Ok(answers::domains(&printed).into_iter().find(|listed| listed.name == self.name).map(|it| it.uuid))
    }

    /// Returns the domain's `dominfo`.
    pub(super) async fn info(&self, uuid: &str) -> Result<Info, VirshError> {
        self.virsh.ask(QUICK, &["dominfo", uuid]).await.map(|printed| answers::info(&printed))
    }

    /// Returns the path of the marker file of a reception. It exists from the time at which this node prepares to
    /// receive the domain until the domain is started here or removed.
    pub(super) fn receiving(&self) -> PathBuf {
        self.context.folder.join(format!("{}.receiving", self.service.name))
    }

    /// Returns the lock for commands that can make the domain run. Libvirt completes a command even if its caller has
    /// gone, so the lock is held until the command ends.
    pub(super) fn hand(&self) -> Arc<Mutex<()>> {
        self.context.hand(&self.virsh, &self.name)
    }

    pub(super) fn note(&self, runs: bool) {
        self.context.watches.note(&self.virsh, &self.name, &self.service, runs);
    }

    pub(super) fn end_watch(&self) {
        self.context.watches.end(&self.virsh, &self.name);
    }

    /// Reports whether the domain runs here.
    pub(super) async fn probe(&self) -> Observed {
        let hand = self.hand();
        let Ok(_held) = hand.try_lock() else {
            return Observed::Unknown("an earlier command for the domain is still in progress".to_owned());
        };
        match self.look().await {
            Ok(seen) => {
                let observed = seen.standing.observed();
                match &observed {
                    Observed::Running => self.note(true),
                    Observed::NotRunning => self.note(false),
                    Observed::Remnant(_) | Observed::Unknown(_) => {}
                }
                // A migration that an earlier agent started has no other time limit.
                if let Standing::Leaving(outgoing) = &seen.standing
                    && outgoing.elapsed_ms > self.service.timeouts.migrate_ms()
                {
                    let aborted = self.virsh.ask(QUICK, &["domjobabort", &seen.uuid]).await;
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
                Ok(found) if found.is_empty() && error.is_not_running() => Observed::NotRunning,
                Ok(found) if found.is_empty() => Observed::Unknown(error.to_string()),
                Ok(_) => Observed::Unknown(format!("QEMU runs, but libvirt cannot be queried: {error}")),
                Err(unread) => Observed::Unknown(format!("{error}; cannot read the processes: {unread}")),
            },
        }
    }

    /// Starts the domain, or adopts it if it already runs.
    pub(super) async fn start(self: &Arc<Self>) -> Result<(), DriverFailure> {
        let called_off = CancelFlag::default();
        let (domain, asked) = (Arc::clone(self), called_off.0.clone());
        let begun = tokio::spawn(async move {
            let held = domain.hand().lock_owned().await;
            domain.start_it(&asked, held).await
        });
        begun.await.unwrap_or_else(|error| Err(passing(Reason::StartFailed, error.to_string())))
    }

    async fn start_it(
        &self,
        called_off: &AtomicBool,
        _held: OwnedMutexGuard<()>,
    ) -> Result<(), DriverFailure> {
        let mut seen = self.look().await.map_err(|error| failure::of_start(&error))?;
        if matches!(seen.standing, Standing::Arriving | Standing::Broken(_)) {
            let destroyed = self.virsh.ask(KILL, &["destroy", &seen.uuid]).await;
            destroyed.map_err(|error| failure::of_start(&error))?;
            seen = self.look().await.map_err(|error| failure::of_start(&error))?;
        }
        let may_begin = || {
            let off = called_off.load(Ordering::SeqCst);
            if off { Err(passing(Reason::Interrupted, "start canceled")) } else { Ok(()) }
        };
        match &seen.standing {
            Standing::Runs | Standing::Paused { by_migration: false } => {}
            Standing::Paused { by_migration: true } => {
                may_begin()?;
                let resumed = self.virsh.ask(self.start_limit(), &["resume", &seen.uuid]).await;
                resumed.map_err(|error| failure::of_start(&error))?;
            }
            Standing::Absent | Standing::Off => {
                let xml = self.definition(&seen).await?;
                may_begin()?;
                let begun = match &xml {
                    Some(path) => {
                        let path = path.to_string_lossy();
                        self.virsh.ask(self.start_limit(), &["create", &path]).await
                    }
                    None => self.virsh.ask(self.start_limit(), &["start", &seen.uuid]).await,
                };
                if let Some(path) = xml {
                    let _ = std::fs::remove_file(path);
                }
                begun.map_err(|error| failure::of_start(&error))?;
            }
            Standing::Arriving | Standing::Broken(_) | Standing::Leaving(_) | Standing::Changing(_) => {
                return Err(passing(Reason::StartFailed, said(&seen.standing.observed())));
            }
        }
        self.forget_receiving()?;
        let seen = self.look().await.map_err(|error| failure::of_start(&error))?;
        match seen.standing.observed() {
            Observed::Running => {
                self.note(true);
                Ok(())
            }
            observed @ (Observed::NotRunning | Observed::Remnant(_) | Observed::Unknown(_)) => {
                Err(passing(Reason::StartFailed, said(&observed)))
            }
        }
    }

    fn start_limit(&self) -> Duration {
        Duration::from_millis(self.service.timeouts.start_ms())
    }

    fn forget_receiving(&self) -> Result<(), DriverFailure> {
        match std::fs::remove_file(self.receiving()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.unwritable(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(super) fn unwritable(&self, error: &io::Error) -> DriverFailure {
        elsewhere(Reason::StartFailed, format!("cannot write {}: {error}", self.context.folder.display()))
    }

    /// Writes the definition to a file and returns its path, or returns `None` if libvirt has the definition.
    pub(super) async fn definition(&self, seen: &Seen) -> Result<Option<PathBuf>, DriverFailure> {
        if seen.standing == Standing::Off
            && self.info(&seen.uuid).await.map_err(|error| failure::of_start(&error))?.autostart
        {
            let message = format!(
                "libvirt starts the domain automatically when this node boots, even while it runs on another node: run virsh -c {} autostart --disable {}",
                self.virsh.uri(),
                self.name
            );
            return Err(elsewhere(Reason::BadConfiguration, message));
        }
        let xml = match Source::of(&self.spec) {
            Source::Libvirt if seen.standing == Standing::Absent => {
                let message =
                    format!("domain {} is not defined in {} of this node", self.name, self.virsh.uri());
                let class = FailureClass::NeverHere;
                return Err(DriverFailure { class, reason: Reason::NotInstalled, message });
            }
            Source::Libvirt => return Ok(None),
            Source::Resource(xml) => xml.to_owned(),
            Source::File(path) => definition::read(path, QUICK).await?,
        };
        let (read, xml) = definition::prepare(&xml, &self.name, &self.service.uid)?;
        self.tell_asked(read.amounts);
        let path = self.context.folder.join(format!("{}.xml", self.service.name));
        std::fs::write(&path, xml).map_err(|error| self.unwritable(&error))?;
        Ok(Some(path))
    }

    /// Reports the definition's requests to the leader, if the leader cannot read the definition itself.
    pub(super) fn tell_asked(&self, amounts: ha_api_types::quantity::Amounts) {
        if self.spec.xml.is_empty() {
            // Sending fails only when the agent is ending.
            let _ = self.context.events.send(DriverEvent::Asks {
                name: self.service.name.clone(),
                uid: self.service.uid.clone(),
                amounts,
            });
        }
    }

    /// Asks the guest to switch off, waits at most `graceful_ms`, then destroys the domain.
    pub(super) async fn stop(&self, graceful_ms: Millis) -> Result<(), DriverFailure> {
        self.end_watch();
        let until = Instant::now() + Duration::from_millis(graceful_ms);
        let mut ask_at = Instant::now();
        while Instant::now() < until {
            match self.look().await {
                Ok(seen) => match seen.standing {
                    Standing::Runs | Standing::Changing(_) => {
                        if Instant::now() >= ask_at {
                            ask_at = Instant::now() + ASK_AGAIN;
                            let asked = self
                                .virsh
                                .ask(QUICK, &["shutdown", &seen.uuid, "--mode", "acpi,agent"])
                                .await;
                            if let Err(error) = asked {
                                tracing::debug!(resource = self.service.name.as_str(), %error, "cannot request a shutdown of the guest");
                            }
                        }
                    }
                    Standing::Leaving(_) => {
                        // The domain may survive the abort, but the migration must not complete.
                        let _ = self.virsh.ask(QUICK, &["domjobabort", &seen.uuid]).await;
                    }
                    // A guest that does not run cannot handle the request.
                    Standing::Absent
                    | Standing::Off
                    | Standing::Paused { .. }
                    | Standing::Arriving
                    | Standing::Broken(_) => break,
                },
                Err(error) if error.is_not_running() => break,
                Err(error) => {
                    tracing::debug!(resource = self.service.name.as_str(), %error, "cannot query libvirt");
                }
            }
            sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
        }
        self.kill().await
    }

    /// Destroys the domain, and kills its QEMU if libvirt does not answer, until nothing is left that runs or could
    /// start to.
    pub(super) async fn kill(&self) -> Result<(), DriverFailure> {
        self.end_watch();
        let until = Instant::now() + KILL;
        let hand = self.hand();
        let mut held = None;
        loop {
            let held_before = held.is_some();
            let left = self.destroy_once().await;
            if held.is_none() {
                held = hand.try_lock().ok();
            }
            let why = match left {
                // This loop held the lock before the check, so no other command could start the domain since.
                None if held_before => {
                    self.forget_receiving()?;
                    self.note(false);
                    return Ok(());
                }
                None if held.is_some() => continue,
                None => "a start of the domain is still in progress".to_owned(),
                Some(why) => why,
            };
            if Instant::now() >= until {
                return Err(passing(Reason::StopFailed, why));
            }
            sleep(LOOK).await;
        }
    }

    /// Tries once to destroy the domain. Returns `None` if nothing is left, otherwise the reason.
    async fn destroy_once(&self) -> Option<String> {
        let seen = match self.look().await {
            Ok(Seen { standing: Standing::Absent | Standing::Off, .. }) => return None,
            Ok(seen) => Ok(seen),
            Err(error) => match qemu::of_domain(&self.name) {
                Ok(found) if found.is_empty() && error.is_not_running() => return None,
                Ok(_) | Err(_) => Err(error),
            },
        };
        let destroyed = match seen {
            Ok(seen) => self.virsh.ask(DESTROY, &["destroy", &seen.uuid]).await.map(|_| ()),
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

fn absent() -> Seen {
    Seen { uuid: String::new(), standing: Standing::Absent }
}

/// Returns the observed state as text for a message.
fn said(observed: &Observed) -> String {
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
