//! One service's domain on this node: how it stands, and what makes it run and end.

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

/// How long a question may take that libvirt answers from what it knows.
pub(super) const QUICK: Duration = Duration::from_secs(10);
/// How long libvirt may take to destroy a domain before its QEMU is killed without it.
const DESTROY: Duration = Duration::from_secs(3);
/// How long a kill is tried.
const KILL: Duration = Duration::from_secs(20);
/// From one look at what is ending to the next.
const LOOK: Duration = Duration::from_millis(300);
/// The guest is asked again to switch off after so long: one that is booting hears nothing.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// A service's domain.
pub(super) struct Domain {
    pub(super) context: Arc<Context>,
    pub(super) virsh: Virsh,
    pub(super) name: String,
    pub(super) service: ServiceDefinition,
    pub(super) spec: LibvirtSpec,
}

/// What was seen of it.
#[derive(Debug)]
pub(super) struct Seen {
    /// Its uuid: what looks like a name may be taken for a number. Empty when libvirt does not know it.
    pub(super) uuid: String,
    pub(super) standing: Standing,
}

impl Domain {
    /// The domain of a service.
    ///
    /// # Errors
    /// When its name cannot be told; what is applied is checked before.
    pub(super) fn of(context: &Arc<Context>, service: &ServiceDefinition) -> Result<Domain, DriverFailure> {
        let spec = service.driver.libvirt.clone().ok_or_else(|| nowhere("spec.driver.libvirt is missing"))?;
        let name =
            spec.domain_name().map_err(|error| nowhere(format!("spec.driver.libvirt.xml: {error}")))?;
        let virsh = Virsh::new(spec.uri(), &context.folder);
        Ok(Domain { context: Arc::clone(context), virsh, name, service: service.clone(), spec })
    }

    /// How it stands.
    pub(super) async fn look(&self) -> Result<Seen, VirshError> {
        let Some(uuid) = self.uuid().await? else { return Ok(absent()) };
        let printed = match self.virsh.ask(QUICK, &["domstate", "--reason", &uuid]).await {
            Ok(printed) => printed,
            // It may have gone meanwhile; then the list does not have it any more.
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
            (_, None) => Standing::Changing("what libvirt is at with it cannot be told".to_owned()),
        };
        Ok(Seen { uuid, standing })
    }

    /// Its uuid; `None`: libvirt does not know it.
    pub(super) async fn uuid(&self) -> Result<Option<String>, VirshError> {
        let printed = self.virsh.ask(QUICK, &["list", "--all", "--uuid", "--name"]).await?;
        Ok(answers::domains(&printed).into_iter().find(|listed| listed.name == self.name).map(|it| it.uuid))
    }

    /// What `dominfo` says of it.
    pub(super) async fn info(&self, uuid: &str) -> Result<Info, VirshError> {
        self.virsh.ask(QUICK, &["dominfo", uuid]).await.map(|printed| answers::info(&printed))
    }

    /// Exists from when this node is told to receive it until it is let go on here, or cleared away.
    pub(super) fn receiving(&self) -> PathBuf {
        self.context.folder.join(format!("{}.receiving", self.service.name))
    }

    /// The lock of all that can make it run. Libvirt finishes what it has begun also when nobody waits any more, so who begins
    /// something keeps this until its end.
    pub(super) fn hand(&self) -> Arc<Mutex<()>> {
        self.context.hand(&self.virsh, &self.name)
    }

    pub(super) fn note(&self, runs: bool) {
        self.context.watches.note(&self.virsh, &self.name, &self.service, runs);
    }

    pub(super) fn end_watch(&self) {
        self.context.watches.end(&self.virsh, &self.name);
    }

    /// Whether it runs here.
    pub(super) async fn probe(&self) -> Observed {
        let hand = self.hand();
        let Ok(_held) = hand.try_lock() else {
            return Observed::Unknown("an earlier command for it has not ended yet".to_owned());
        };
        match self.look().await {
            Ok(seen) => {
                let observed = seen.standing.observed();
                match &observed {
                    Observed::Running => self.note(true),
                    Observed::NotRunning => self.note(false),
                    Observed::Remnant(_) | Observed::Unknown(_) => {}
                }
                // One of an earlier agent, for which nobody keeps the time any more.
                if let Standing::Leaving(outgoing) = &seen.standing
                    && outgoing.elapsed_ms > self.service.timeouts.migrate_ms()
                {
                    let aborted = self.virsh.ask(QUICK, &["domjobabort", &seen.uuid]).await;
                    tracing::info!(resource = self.service.name, ?aborted, "its migration took too long");
                }
                observed
            }
            // QEMU lives on without libvirt; only where there is none of both, it runs for certain not.
            Err(error) => match qemu::of_domain(&self.name) {
                Ok(found) if found.is_empty() && error.is_nobody() => Observed::NotRunning,
                Ok(found) if found.is_empty() => Observed::Unknown(error.to_string()),
                Ok(_) => Observed::Unknown(format!("its QEMU lives, and libvirt cannot be asked: {error}")),
                Err(unread) => Observed::Unknown(format!("{error}; the processes cannot be read: {unread}")),
            },
        }
    }

    /// Starts it, or adopts it.
    pub(super) async fn start(self: &Arc<Self>) -> Result<(), DriverFailure> {
        let called_off = CallOff::default();
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
            if off { Err(passing(Reason::Interrupted, "the start was called off")) } else { Ok(()) }
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
        elsewhere(
            Reason::StartFailed,
            format!("{} cannot be written: {error}", self.context.folder.display()),
        )
    }

    /// A file with the definition to create it from; `None`: libvirt has it.
    pub(super) async fn definition(&self, seen: &Seen) -> Result<Option<PathBuf>, DriverFailure> {
        if seen.standing == Standing::Off
            && self.info(&seen.uuid).await.map_err(|error| failure::of_start(&error))?.autostart
        {
            let message = format!(
                "libvirt starts it by itself when this node boots, also while it runs elsewhere: virsh -c {} autostart --disable {}",
                self.virsh.uri(),
                self.name
            );
            return Err(elsewhere(Reason::BadConfiguration, message));
        }
        let xml = match Source::of(&self.spec) {
            Source::Libvirt if seen.standing == Standing::Absent => {
                let message =
                    format!("no domain {} is defined in {} of this node", self.name, self.virsh.uri());
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

    /// What the definition asks for goes to the leader where it cannot read that itself.
    pub(super) fn tell_asked(&self, amounts: ha_api_types::quantity::Amounts) {
        if self.spec.xml.is_empty() {
            // The receiver is gone only when the agent is ending.
            let _ = self.context.events.send(DriverEvent::Asks {
                name: self.service.name.clone(),
                uid: self.service.uid.clone(),
                amounts,
            });
        }
    }

    /// Asks the guest to switch off, for so long; then destroys it.
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
                                tracing::debug!(resource = self.service.name, %error, "not asked to switch off");
                            }
                        }
                    }
                    Standing::Leaving(_) => {
                        // It ends or it does not, but it no longer leaves.
                        let _ = self.virsh.ask(QUICK, &["domjobabort", &seen.uuid]).await;
                    }
                    // What stands still hears nothing.
                    Standing::Absent
                    | Standing::Off
                    | Standing::Paused { .. }
                    | Standing::Arriving
                    | Standing::Broken(_) => break,
                },
                Err(error) if error.is_nobody() => break,
                Err(error) => {
                    tracing::debug!(resource = self.service.name, %error, "libvirt does not answer");
                }
            }
            sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
        }
        self.kill().await
    }

    /// Destroys it, with its QEMU if libvirt does not, until nothing is left that could run or be about to.
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
                // Nobody else could begin anything between the look and now.
                None if held_before => {
                    self.forget_receiving()?;
                    self.note(false);
                    return Ok(());
                }
                None if held.is_some() => continue,
                None => "a start of it has not ended yet".to_owned(),
                Some(why) => why,
            };
            if Instant::now() >= until {
                return Err(passing(Reason::StopFailed, why));
            }
            sleep(LOOK).await;
        }
    }

    /// One try; `None`: nothing is left, otherwise what is.
    async fn destroy_once(&self) -> Option<String> {
        let seen = match self.look().await {
            Ok(Seen { standing: Standing::Absent | Standing::Off, .. }) => return None,
            Ok(seen) => Ok(seen),
            Err(error) => match qemu::of_domain(&self.name) {
                Ok(found) if found.is_empty() && error.is_nobody() => return None,
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
            return Some(format!("its QEMU cannot be killed: {error}"));
        }
        Some(error.to_string())
    }
}

fn absent() -> Seen {
    Seen { uuid: String::new(), standing: Standing::Absent }
}

/// For people, what a probe would say.
fn said(observed: &Observed) -> String {
    match observed {
        Observed::Running => "it runs".to_owned(),
        Observed::NotRunning => "it does not run after its start".to_owned(),
        Observed::Remnant(message) | Observed::Unknown(message) => message.clone(),
    }
}

/// Tells what goes on without its caller that the caller has gone.
#[derive(Default)]
struct CallOff(Arc<AtomicBool>);

impl Drop for CallOff {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
