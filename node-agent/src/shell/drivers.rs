//! The drivers of this node: they run each command as a task that can be canceled.

use super::Inputs;
use super::machine_usage;
use super::options::Options;
use crate::core::{Command, CommandId, CommandResult, DriverFailure, Input, UsageReadId, UsageReadings};
use crate::driver::Driver;
use crate::driver::exec::{ExecDriver, ExecSettings};
use crate::driver::external::{ExternalDriver, ExternalSettings};
use crate::driver::libvirt::LibvirtDriver;
use crate::driver::lxc::{LxcDriver, LxcSettings};
use crate::driver::ocf::{OcfDriver, OcfSettings};
use crate::driver::podman::{PodmanDriver, PodmanSettings};
use crate::driver::program::ProgramSettings;
use crate::driver::simulated::SimulatedDriver;
use crate::driver::systemd::{SystemdDriver, SystemdSettings};
use anyhow::Context;
use ha_api_types::id::BootId;
use ha_api_types::node_policy::NodePolicy;
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;
use ha_api_types::resource::ServiceDefinition;
use ha_runtime::clock::{Clock, SystemClock};
use ha_runtime::local_values::LocalValues;
use ha_runtime::problems::Problems;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Interval at which the agent determines the drivers that this node can serve.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum time to wait for a driver to read the usage of a service.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(5);

/// All drivers and the commands in progress.
#[derive(Clone)]
pub(super) struct Drivers {
    pub(super) by_name: BTreeMap<&'static str, Arc<dyn Driver>>,
    inputs: Inputs,
    cancels: Arc<Mutex<BTreeMap<CommandId, oneshot::Sender<()>>>>,
    policy: Option<NodePolicy>,
    /// The drivers that this node cannot serve, with the reason.
    unusable: Arc<Problems<&'static str>>,
}

impl Drivers {
    /// Creates the drivers of this version. Their events become inputs.
    pub(super) fn new(options: &Options, boot_id: &BootId, inputs: &Inputs) -> anyhow::Result<Drivers> {
        let (events, mut driver_events) = mpsc::unbounded_channel();
        let directory =
            || format!("cannot create the driver directories in --state-dir {}", options.state_dir.display());
        let values = LocalValues::new(options.secrets_directory.clone());
        let programs = ProgramSettings::new(
            options.node.clone(),
            boot_id.to_owned(),
            options.state_dir.clone(),
            values.clone(),
        )
        .context("cannot determine the directory of this program")?;
        let ocf = OcfSettings {
            programs: programs.clone(),
            root: options.ocf_root.clone(),
            run: options.ocf_run_dir.clone(),
        };
        let ocf = OcfDriver::new(ocf, events.clone()).with_context(directory)?;
        let external = ExternalSettings {
            programs: programs.clone(),
            directories: std::env::split_paths(&options.driver_path).collect(),
            monitor_interval: Duration::from_secs(10),
        };
        let external = ExternalDriver::new(external, events.clone()).with_context(directory)?;
        let exec = ExecDriver::new(ExecSettings::new(programs), events.clone()).with_context(directory)?;
        let simulated_directory =
            options.simulated_dir.clone().unwrap_or_else(|| options.state_dir.join("simulated"));
        let simulated = SimulatedDriver::new(options.node.clone(), boot_id.to_owned(), simulated_directory)
            .with_context(directory)?;
        let libvirt = LibvirtDriver::new(&options.state_dir, events.clone()).with_context(directory)?;
        let systemd = SystemdDriver::new(SystemdSettings::new(options.node.clone()), events.clone())
            .context("cannot read the mounts of this machine")?;
        let lxc = LxcSettings::new(options.node.clone(), options.lxc_path.clone(), &options.state_dir);
        let lxc = LxcDriver::new(lxc, events.clone()).context("cannot read the mounts of this machine")?;
        let podman = PodmanSettings::new(options.node.clone(), values, options.podman_socket.clone());
        let podman = PodmanDriver::new(podman, events);
        let drivers: [Arc<dyn Driver>; 8] = [
            Arc::new(exec),
            Arc::new(external),
            Arc::new(libvirt),
            Arc::new(lxc),
            Arc::new(ocf),
            Arc::new(podman),
            Arc::new(simulated),
            Arc::new(systemd),
        ];
        let forwarded = inputs.clone();
        tokio::spawn(async move {
            while let Some(event) = driver_events.recv().await {
                if forwarded.send(Input::Driver(event)).is_err() {
                    return;
                }
            }
        });
        let by_name = drivers.into_iter().map(|driver| (driver.name(), driver)).collect();
        Ok(Drivers {
            by_name,
            inputs: inputs.clone(),
            cancels: Arc::default(),
            policy: options.policy.clone(),
            unusable: Arc::default(),
        })
    }

    /// Returns the names of the drivers that this node can serve, sorted. Logs the others when they change.
    pub(super) async fn usable_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut unusable = BTreeMap::new();
        for (name, driver) in &self.by_name {
            match driver.published_capabilities().await {
                Ok(served) => names.extend(served),
                Err(cause) => {
                    unusable.insert(*name, cause);
                }
            }
        }
        for (driver, cause) in self.unusable.update(unusable) {
            tracing::info!(driver, why = cause, "driver is not available on this node");
        }
        names
    }

    /// Starts periodic checks of the drivers, because a package may be installed while the agent runs.
    pub(super) fn spawn_checks(&self) {
        let drivers = self.clone();
        tokio::spawn(async move {
            let mut previous_facts = None;
            loop {
                tokio::time::sleep(CHECK_INTERVAL).await;
                let facts = (drivers.usable_names().await, super::identity::hardware());
                if previous_facts.as_ref() != Some(&facts) {
                    previous_facts = Some(facts.clone());
                    let (usable_drivers, hardware) = facts;
                    if drivers.inputs.send(Input::Facts { drivers: usable_drivers, hardware }).is_err() {
                        return;
                    }
                }
            }
        });
    }

    /// Runs a command and answers it exactly once.
    pub(super) fn run(&self, id: CommandId, command: Command, service: ServiceDefinition) {
        let driver = service.driver.kind().and_then(|kind| self.by_name.get(kind.name()).cloned());
        let Some(driver) = driver else {
            return self.answer(id, CommandResult::without_driver(&command, service.driver.kind()));
        };
        let (cancel, canceled) = oneshot::channel();
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner).insert(id, cancel);
        let drivers = self.clone();
        tokio::spawn(async move {
            let permitted = async {
                match drivers.refusal(&command, &service).await {
                    Some(failure) => CommandResult::Failed(failure),
                    None => execute_with_timeout(&*driver, &command, &service).await,
                }
            };
            let result = tokio::select! {
                biased;
                result = permitted => result,
                Ok(()) = canceled => CommandResult::Canceled,
            };
            drivers.cancels.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            drivers.answer(id, result);
        });
    }

    pub(super) fn answer(&self, id: CommandId, result: CommandResult) {
        // Sending fails only once the loop has ended.
        let _ = self.inputs.send(Input::Ended { id, result });
    }

    /// Returns why the node's policy forbids a command, with the paths and users of this machine. The core compared only
    /// the text, because links and other names of root are resolved here.
    async fn refusal(&self, command: &Command, service: &ServiceDefinition) -> Option<DriverFailure> {
        let policy = self.policy.clone().filter(|_| command.starts_service())?;
        let mut driver = service.driver.clone();
        let resolve = |path: &str| {
            std::fs::canonicalize(path)
                .map_or_else(|_| path.to_owned(), |path| path.to_string_lossy().into_owned())
        };
        let refusal = tokio::task::spawn_blocking(move || {
            let exec_user = driver.exec.as_mut().map(|exec| &mut exec.user);
            let unit_user = driver.systemd.as_mut().map(|unit| &mut unit.user);
            for user in exec_user.into_iter().chain(unit_user) {
                normalize_root_name(user);
            }
            policy.refusal_on_node(&driver, &resolve)
        })
        .await;
        let message =
            refusal.unwrap_or_else(|error| Some(format!("node cannot check its policy: {error}")))?;
        Some(DriverFailure { class: FailureClass::NeverHere, reason: Reason::NodePolicy, message })
    }

    /// Cancels a command. The command is still answered.
    pub(super) fn cancel(&self, id: CommandId) {
        let cancel = self.cancels.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(cancel) = cancel {
            // Sending fails if the command has just ended, which needs no cancellation.
            let _ = cancel.send(());
        }
    }

    /// Reads the usage of services and of the machine once, outside the loop. Figures that cannot be read are omitted.
    pub(super) fn measure(&self, clock: SystemClock, id: UsageReadId, services: Vec<ServiceDefinition>) {
        let drivers = self.clone();
        tokio::spawn(async move {
            let machine_sample = tokio::task::spawn_blocking(move || {
                machine_usage::sample(Path::new("/"), clock.now().monotonic_raw)
            });
            let mut samples = BTreeMap::new();
            for service in &services {
                let Some(kind) = service.driver.kind() else { continue };
                let Some(driver) = drivers.by_name.get(kind.name()) else { continue };
                let read =
                    tokio::time::timeout(MEASURE_TIMEOUT, driver.measure(service, clock.now().monotonic_raw))
                        .await;
                if let Some(sample) = read.ok().flatten() {
                    samples.insert(service.name.clone(), sample);
                }
            }
            let machine = machine_sample.await.ok().flatten();
            let measured = UsageReadings { machine, services: samples };
            // Sending fails only once the loop has ended.
            let _ = drivers.inputs.send(Input::UsageReadings { id, measured });
        });
    }
}

/// Replaces another name of root, which is a user with id 0, by `root`.
fn normalize_root_name(user: &mut Option<String>) {
    let account = user.as_deref().and_then(|name| nix::unistd::User::from_name(name).ok().flatten());
    if account.is_some_and(|account| account.uid.is_root()) {
        *user = Some("root".to_owned());
    }
}

/// Time beyond a command's own limit after which the command counts as failed. Drivers enforce the limits themselves.
const TIMEOUT_GRACE: Duration = Duration::from_secs(30);

/// Executes a command with a time limit, so that a command that hangs does not block its service indefinitely.
async fn execute_with_timeout(
    driver: &dyn Driver,
    command: &Command,
    service: &ServiceDefinition,
) -> CommandResult {
    let timeouts = driver.timeouts(service).await;
    let limit_ms = match command {
        Command::Probe => timeouts.monitor_ms(),
        Command::Start | Command::Receive => timeouts.start_ms(),
        // The driver's limit applies, unless the operator specified a limit for this stop.
        Command::Stop { graceful_ms } if *graceful_ms == service.timeouts.stop_ms() => timeouts.stop_ms(),
        Command::Stop { graceful_ms } => *graceful_ms,
        Command::Kill | Command::EndReplacement | Command::EndMigration | Command::CloseReception => 0,
        Command::Arrive { .. } | Command::Migrate { .. } => timeouts.migrate_ms(),
        Command::ReplaceSecondary { .. } => timeouts.replace_ms(),
    };
    let limit = Duration::from_millis(limit_ms) + TIMEOUT_GRACE;
    tokio::time::timeout(limit, execute(driver, command, service)).await.unwrap_or_else(|_| {
        CommandResult::Failed(DriverFailure {
            class: FailureClass::RetryHere,
            reason: Reason::TimedOut,
            message: format!("{} timed out after {} s", command.name(), limit.as_secs()),
        })
    })
}

async fn execute(driver: &dyn Driver, command: &Command, service: &ServiceDefinition) -> CommandResult {
    let result = match command {
        Command::Probe => return CommandResult::Observed(driver.probe(service).await),
        Command::Start => driver.start(service).await,
        Command::Stop { graceful_ms } => driver.stop(service, *graceful_ms).await,
        Command::Kill => driver.kill(service).await,
        Command::Receive => driver.receive(service).await,
        Command::Arrive { source } => driver.arrive(service, source).await,
        Command::Migrate { target } => driver.migrate(service, target).await,
        Command::EndMigration => driver.end_migration(service).await,
        Command::CloseReception => driver.confirm_no_incoming_copy(service).await,
        Command::ReplaceSecondary { current_secondary, node } => {
            driver.replace_secondary(service, current_secondary.as_ref(), node).await
        }
        Command::EndReplacement => driver.end_replacement(service).await,
    };
    match result {
        Ok(()) => CommandResult::Done,
        Err(failure) => CommandResult::Failed(failure),
    }
}
