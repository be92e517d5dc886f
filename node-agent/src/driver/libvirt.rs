//! Driver `libvirt`: virtual machines, managed through libvirt's client `virsh`.
//!
//! If the definition comes from the resource or from a file, the domain is created without being defined. No node then
//! keeps a definition that libvirt could start automatically. The driver always reads a domain's state from libvirt.
//! The driver itself stores only one fact: that a domain is being received.

mod answers;
mod definition;
mod domain;
mod domain_state;
mod events;
mod failure;
mod migration;
mod qemu;
mod virsh;
mod watch;

use super::{Driver, DriverEvent, DriverFailure, LogQuery, LogTail, Sample, log};
use definition::Source;
use domain::{Domain, QUERY_TIMEOUT};
use futures::future::BoxFuture;
use ha_api_types::driver::DomainDefinition;
use ha_api_types::driver::{LibvirtDriver as LibvirtSpec, console_log};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::record::{LogFailure, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, MonotonicTime};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedSender;
use virsh::Virsh;
use watch::Watches;

/// Directory in which libvirt's system daemon logs the output of each QEMU.
const QEMU_LOG_DIRECTORY: &str = "/var/log/libvirt/qemu";

/// Driver `libvirt`. Dropping this value ends the monitoring; domains keep running.
#[derive(Debug)]
pub struct LibvirtDriver {
    context: Arc<Context>,
}

/// Lock that permits its holder to make a domain run.
type StartLock = Arc<tokio::sync::Mutex<()>>;

/// State that all parts of the driver share.
#[derive(Debug)]
struct Context {
    directory: PathBuf,
    events: UnboundedSender<DriverEvent>,
    watches: Watches,
    /// Lock of each libvirt connection and domain, held while a command may make the domain run.
    start_locks: Mutex<BTreeMap<(Virsh, String), StartLock>>,
    /// Last driver settings for which the definition's requests were reported, by resource. Only for definitions that
    /// are not in the resource.
    reported_requests: Mutex<BTreeMap<ResourceName, LibvirtSpec>>,
}

impl Context {
    fn start_lock(&self, virsh: &Virsh, domain: &str) -> StartLock {
        let mut start_locks = self.start_locks.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(start_locks.entry((virsh.clone(), domain.to_owned())).or_default())
    }
}

impl LibvirtDriver {
    /// Creates the driver, which sends changes that it detects to `events`.
    ///
    /// # Errors
    /// Fails if the driver's directory in the agent's state directory cannot be created, or if virsh processes of an
    /// earlier agent cannot be ended.
    pub fn new(state_directory: &Path, events: UnboundedSender<DriverEvent>) -> io::Result<LibvirtDriver> {
        let directory = state_directory.join("libvirt");
        std::fs::create_dir_all(&directory)?;
        // The mark in the environment of each virsh contains this path. The next agent must use the same mark, even if
        // it reaches the directory by another path.
        let directory = directory.canonicalize()?;
        virsh::kill_leftovers(&directory)?;
        let watches = Watches::new(events.clone());
        let (start_locks, reported_requests) = (Mutex::default(), Mutex::default());
        Ok(LibvirtDriver {
            context: Arc::new(Context { directory, events, watches, start_locks, reported_requests }),
        })
    }

    fn domain(&self, service: &ServiceDefinition) -> Result<Arc<Domain>, DriverFailure> {
        Domain::of(&self.context, service).map(Arc::new)
    }

    /// Reports the requests of a definition that the leader cannot read, once for each definition. The leader uses
    /// these requests to schedule the service before its first start.
    fn report_requested_amounts(&self, domain: &Arc<Domain>) {
        let source = Source::of(&domain.spec);
        if matches!(source, Source::Resource(_)) {
            return;
        }
        let mut reported_requests =
            self.context.reported_requests.lock().unwrap_or_else(PoisonError::into_inner);
        if reported_requests.get(&domain.service.name) == Some(&domain.spec) {
            return;
        }
        reported_requests.insert(domain.service.name.clone(), domain.spec.clone());
        let domain = Arc::clone(domain);
        // In a separate task, so that storage that hangs does not delay a probe.
        tokio::spawn(async move {
            let amounts = match Source::of(&domain.spec) {
                Source::Resource(_) => return,
                Source::File(path) => {
                    let Ok(xml) = definition::read(path, QUERY_TIMEOUT).await else { return };
                    let Ok(read) = DomainDefinition::parse(&xml) else { return };
                    read.amounts
                }
                Source::Libvirt => {
                    let Ok(Some(uuid)) = domain.uuid().await else { return };
                    let Ok(info) = domain.info(&uuid).await else { return };
                    info.amounts
                }
            };
            domain.report_requested_amounts(amounts);
        });
    }
}

impl Driver for LibvirtDriver {
    fn name(&self) -> &'static str {
        "libvirt"
    }

    fn check_usable(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let virsh = Virsh::new(LibvirtSpec::default().uri(), &self.context.directory);
            virsh.run(QUERY_TIMEOUT, &["uri"]).await.map(|_| ()).map_err(|error| error.to_string())
        })
    }

    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed> {
        Box::pin(async move {
            match self.domain(service) {
                Ok(domain) => {
                    let observed = domain.probe().await;
                    self.report_requested_amounts(&domain);
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
        target: &'a NodeName,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.domain(service)?.migrate(target).await })
    }

    fn end_migration<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.domain(service)?.end_migration().await })
    }

    fn confirm_no_incoming_copy<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.domain(service)?.confirm_no_incoming_copy().await })
    }

    fn measure<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        at: MonotonicTime,
    ) -> BoxFuture<'a, Option<Sample>> {
        Box::pin(async move {
            let domain = self.domain(service).ok()?;
            let uuid = domain.uuid().await.ok()??;
            let arguments = ["domstats", "--cpu-total", "--balloon", "--block", "--interface", &uuid];
            let printed = domain.virsh.run(QUERY_TIMEOUT, &arguments).await.ok()?;
            Some(answers::parse_sample(&printed, at))
        })
    }

    fn read_log<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        query: LogQuery,
    ) -> BoxFuture<'a, Result<LogTail, LogFailure>> {
        Box::pin(async move {
            let domain = self.domain(service).map_err(|failure| LogFailure::Unreadable(failure.message))?;
            // The definition of the running domain names the console. After the domain's end, libvirt still has the log
            // of QEMU.
            let console = match domain.uuid().await {
                Ok(Some(uuid)) => domain.virsh.run(QUERY_TIMEOUT, &["dumpxml", &uuid]).await.ok(),
                Ok(None) | Err(_) => None,
            };
            let console = console.and_then(|xml| console_log(&xml)).map(PathBuf::from);
            log::of_file(console.unwrap_or_else(|| qemu_log(&domain.name)), query).await
        })
    }
}

/// Returns the path at which libvirt's system daemon logs the output of a domain's QEMU.
fn qemu_log(domain: &str) -> PathBuf {
    // A domain's name contains no slash, so the file is in this directory.
    Path::new(QEMU_LOG_DIRECTORY).join(format!("{domain}.log"))
}
