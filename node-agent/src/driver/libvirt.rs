//! Driver `libvirt`: virtual machines, by libvirt's own client `virsh`.
//!
//! Domains are created without being defined wherever the definition is the resource's: nothing stays behind on a node that libvirt
//! could start by itself. What a domain is and does is always asked of libvirt; this driver keeps one fact, that a domain is
//! being received.

mod answers;
mod definition;
mod domain;
mod events;
mod failure;
mod migration;
mod qemu;
mod standing;
mod virsh;
mod watch;

use super::{Driver, DriverEvent, DriverFailure, Sample};
use definition::Source;
use domain::{Domain, QUICK};
use futures::future::BoxFuture;
use ha_api_types::driver::DomainDefinition;
use ha_api_types::driver::LibvirtDriver as LibvirtSpec;
use ha_api_types::record::Observed;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, Mono};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedSender;
use virsh::Virsh;
use watch::Watches;

/// The driver. Dropping it stops watching; domains go on.
#[derive(Debug)]
pub struct LibvirtDriver {
    context: Arc<Context>,
}

/// Whoever has it may make a domain run.
type Hand = Arc<tokio::sync::Mutex<()>>;

/// What every part of the driver needs.
#[derive(Debug)]
struct Context {
    folder: PathBuf,
    events: UnboundedSender<DriverEvent>,
    watches: Watches,
    /// By libvirt and domain: who may make it run.
    hands: Mutex<BTreeMap<(Virsh, String), Hand>>,
    /// By resource: the definition, elsewhere than in the resource, of which was told what it asks for.
    told: Mutex<BTreeMap<String, LibvirtSpec>>,
}

impl Context {
    fn hand(&self, virsh: &Virsh, domain: &str) -> Hand {
        let mut hands = self.hands.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(hands.entry((virsh.clone(), domain.to_owned())).or_default())
    }
}

impl LibvirtDriver {
    /// Makes the driver; what it notices by itself goes to `events`. It keeps a folder in the agent's state directory.
    ///
    /// # Errors
    /// When that cannot be made.
    pub fn new(state_directory: &Path, events: UnboundedSender<DriverEvent>) -> io::Result<LibvirtDriver> {
        let folder = state_directory.join("libvirt");
        std::fs::create_dir_all(&folder)?;
        // The mark in the environment of each virsh must be the same for the next agent, however it names the folder.
        let folder = folder.canonicalize()?;
        virsh::end_left_behind(&folder)?;
        let watches = Watches::new(events.clone());
        let (hands, told) = (Mutex::default(), Mutex::default());
        Ok(LibvirtDriver { context: Arc::new(Context { folder, events, watches, hands, told }) })
    }

    fn domain(&self, service: &ServiceDefinition) -> Result<Arc<Domain>, DriverFailure> {
        Domain::of(&self.context, service).map(Arc::new)
    }

    /// Once for each definition that the leader cannot read: what it asks for, so that it is placed by that also before it was ever
    /// started.
    fn tell_asked(&self, domain: &Arc<Domain>) {
        let source = Source::of(&domain.spec);
        if matches!(source, Source::Resource(_)) {
            return;
        }
        let mut told = self.context.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(&domain.service.name) == Some(&domain.spec) {
            return;
        }
        told.insert(domain.service.name.clone(), domain.spec.clone());
        let domain = Arc::clone(domain);
        // Storage that hangs must not keep a probe from its answer.
        tokio::spawn(async move {
            let amounts = match Source::of(&domain.spec) {
                Source::Resource(_) => return,
                Source::File(path) => {
                    let Ok(xml) = definition::read(path, QUICK).await else { return };
                    let Ok(read) = DomainDefinition::parse(&xml) else { return };
                    read.amounts
                }
                Source::Libvirt => {
                    let Ok(Some(uuid)) = domain.uuid().await else { return };
                    let Ok(info) = domain.info(&uuid).await else { return };
                    info.amounts
                }
            };
            domain.tell_asked(amounts);
        });
    }
}

impl Driver for LibvirtDriver {
    fn name(&self) -> &'static str {
        "libvirt"
    }

    fn able(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let virsh = Virsh::new(LibvirtSpec::default().uri(), &self.context.folder);
            virsh.ask(QUICK, &["uri"]).await.map(|_| ()).map_err(|error| error.to_string())
        })
    }

    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed> {
        Box::pin(async move {
            match self.domain(service) {
                Ok(domain) => {
                    let observed = domain.probe().await;
                    self.tell_asked(&domain);
                    observed
                }
                Err(failure) => Observed::Unknown(failure.message),
            }
        })
    }

    fn start<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.domain(service)?.start().await })
    }

    fn stop<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        graceful_ms: Millis,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.domain(service)?.stop(graceful_ms).await })
    }

    fn kill<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.domain(service)?.kill().await })
    }

    fn receive<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.domain(service)?.receive().await })
    }

    fn migrate<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        target: &'a str,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.domain(service)?.migrate(target).await })
    }

    fn end_migration<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.domain(service)?.end_migration().await })
    }

    fn close_reception<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.domain(service)?.close_reception().await })
    }

    fn measure<'a>(&'a self, service: &'a ServiceDefinition, at: Mono) -> BoxFuture<'a, Option<Sample>> {
        Box::pin(async move {
            let domain = self.domain(service).ok()?;
            let uuid = domain.uuid().await.ok()??;
            let arguments = ["domstats", "--cpu-total", "--balloon", "--block", "--interface", &uuid];
            let printed = domain.virsh.ask(QUICK, &arguments).await.ok()?;
            Some(answers::sample(&printed, at))
        })
    }
}
