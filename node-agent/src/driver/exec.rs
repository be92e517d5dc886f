//! Driver `exec`: programs; either a supervised foreground process, or start, stop and monitor commands.
//!
//! Between the agent and a supervised process stands a supervisor (`ha-exec-shim`), so that the agent may end and the
//! service goes on: the next agent finds it by the record in the service's folder. The supervisor adopts whatever the
//! service's processes leave behind, and ends only when nothing is left.

mod cgroup;
mod folder;
mod launch;
mod measure;
mod order;
mod output;
mod process;
mod remains;
mod script;
mod supervised;
mod supervisor;
mod watch;

use super::{Driver, DriverEvent, DriverFailure, Sample};
use cgroup::CgroupRoot;
use folder::ServiceFolder;
use futures::future::BoxFuture;
use ha_api_types::driver::ExecDriver as ExecSpec;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, Mono};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use watch::Watches;

/// Where and how the driver works.
#[derive(Clone, Debug)]
pub struct ExecSettings {
    /// This node's name: `HA_NODE`.
    pub node: String,
    /// The boot, from `bootIdFile`: what an earlier one left in the folders runs no more.
    pub boot_id: String,
    /// The agent's state directory, on a local disk; the driver keeps a folder per service in its `exec`.
    pub state_directory: PathBuf,
    /// The program `ha-exec-shim`; [`ExecSettings::shim_beside_this_program`] by default.
    pub shim: PathBuf,
    /// Whether to use control groups where this machine has writable ones.
    pub cgroups: bool,
    /// A service's log is rotated when it is longer; one older file is kept.
    pub log_bytes_max: u64,
    /// How often a running service's monitor command is asked.
    pub monitor_interval: Duration,
    /// Whether the services' output also goes to the journal of systemd.
    pub journal: bool,
}

impl ExecSettings {
    /// The usual settings.
    pub fn new(node: String, boot_id: String, state_directory: PathBuf) -> io::Result<ExecSettings> {
        Ok(ExecSettings {
            node,
            boot_id,
            state_directory,
            shim: ExecSettings::shim_beside_this_program()?,
            cgroups: true,
            log_bytes_max: 8 * 1024 * 1024,
            monitor_interval: Duration::from_secs(10),
            journal: ha_runtime::notify::logs_to_journal(),
        })
    }

    /// The shim in the folder of the running program.
    pub fn shim_beside_this_program() -> io::Result<PathBuf> {
        Ok(std::env::current_exe()?.with_file_name("ha-exec-shim"))
    }
}

/// The driver. Dropping it stops watching; services go on.
#[derive(Debug)]
pub struct ExecDriver {
    context: Arc<Context>,
}

/// What every part of the driver needs.
#[derive(Debug)]
struct Context {
    settings: ExecSettings,
    /// The folder of all services.
    folder: PathBuf,
    cgroups: Option<CgroupRoot>,
    events: UnboundedSender<DriverEvent>,
    watches: Watches,
}

impl ExecDriver {
    /// Makes the driver; what it notices by itself goes to `events`.
    ///
    /// # Errors
    /// When its folder in the state directory cannot be made.
    pub fn new(settings: ExecSettings, events: UnboundedSender<DriverEvent>) -> io::Result<ExecDriver> {
        let folder = settings.state_directory.join("exec");
        std::fs::create_dir_all(&folder)?;
        // The marks in the services' environments must be the same for the next agent, however it names the folder.
        let folder = folder.canonicalize()?;
        let owner = format!("{}\n{}", settings.node, folder.display());
        let cgroups = settings.cgroups.then(|| CgroupRoot::make(&owner)).flatten();
        tracing::debug!(folder = %folder.display(), cgroups = cgroups.is_some(), "exec driver");
        Ok(ExecDriver {
            context: Arc::new(Context { settings, folder, cgroups, events, watches: Watches::default() }),
        })
    }

    /// The file with what the service printed.
    pub fn log(&self, resource: &str) -> PathBuf {
        self.context.folder_of(resource).log()
    }

    /// How the service's main process ended last, as its supervisor noted it, also while no agent ran; `None`: it never
    /// did, or it runs.
    pub fn last_ending(&self, resource: &str) -> Option<String> {
        let folder = self.context.folder_of(resource);
        let record = folder.record().ok()??;
        folder.ending(&record).ok()?.map(|ending| ending.message)
    }
}

/// What a definition asks for.
enum Mode<'a> {
    Supervised(&'a ExecSpec),
    Scripts(&'a ExecSpec),
    /// Nothing that could be started; what runs of an earlier definition is found and stopped all the same.
    Neither,
}

fn mode(service: &ServiceDefinition) -> Mode<'_> {
    match &service.driver.exec {
        Some(exec) if !exec.command.is_empty() => Mode::Supervised(exec),
        Some(exec) if !exec.start.is_empty() => Mode::Scripts(exec),
        Some(_) | None => Mode::Neither,
    }
}

/// Nothing to start.
fn nothing_given() -> DriverFailure {
    DriverFailure {
        class: FailureClass::ConfigurationWrong,
        reason: Reason::BadConfiguration,
        message: "spec.driver.exec has neither command nor start".to_owned(),
    }
}

impl Driver for ExecDriver {
    fn name(&self) -> &'static str {
        "exec"
    }

    fn able(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { self.context.able() })
    }

    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed> {
        Box::pin(async move {
            match mode(service) {
                Mode::Supervised(_) | Mode::Neither => supervised::probe(&self.context, service).await,
                Mode::Scripts(exec) => script::probe(&self.context, service, exec).await,
            }
        })
    }

    fn start<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            match mode(service) {
                Mode::Supervised(exec) => supervised::start(&self.context, service, exec).await,
                Mode::Scripts(exec) => script::start(&self.context, service, exec).await,
                Mode::Neither => Err(nothing_given()),
            }
        })
    }

    fn stop<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        graceful_ms: Millis,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            match mode(service) {
                Mode::Supervised(exec) => {
                    supervised::stop(&self.context, service, &exec.stop, graceful_ms).await
                }
                Mode::Scripts(exec) => script::stop(&self.context, service, exec, graceful_ms).await,
                Mode::Neither => supervised::stop(&self.context, service, &[], graceful_ms).await,
            }
        })
    }

    fn kill<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            match mode(service) {
                Mode::Supervised(_) | Mode::Neither => supervised::kill(&self.context, service).await,
                Mode::Scripts(exec) => script::kill(&self.context, service, exec).await,
            }
        })
    }

    fn receive<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        // The migrate command of the source brings the service; nothing is prepared here.
        Box::pin(async move {
            match mode(service) {
                Mode::Supervised(_) | Mode::Scripts(_) => Ok(()),
                Mode::Neither => Err(nothing_given()),
            }
        })
    }

    fn migrate<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        target: &'a str,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            match mode(service) {
                Mode::Scripts(exec) if !exec.migrate.is_empty() => {
                    script::migrate(&self.context, service, exec, target).await
                }
                Mode::Supervised(_) | Mode::Scripts(_) | Mode::Neither => Err(DriverFailure {
                    class: FailureClass::RetryHere,
                    reason: Reason::MoveFailed,
                    message: "it has no migrate command beside start and stop, so it cannot move live"
                        .to_owned(),
                }),
            }
        })
    }

    fn measure<'a>(&'a self, service: &'a ServiceDefinition, at: Mono) -> BoxFuture<'a, Option<Sample>> {
        Box::pin(async move {
            let (context, service) = (Arc::clone(&self.context), service.clone());
            // Reading files may block. The group that was recorded at the launch comes last, and is the one that it is in.
            let read = move || {
                let search = context.search(&service);
                let of_group = search.cgroups.iter().rev().find_map(|cgroup| measure::sample(cgroup, at));
                let supervisor = search.record.map(|record| record.supervisor);
                of_group.or_else(|| {
                    let supervisor =
                        supervisor.filter(|supervisor| supervisor.is_alive().unwrap_or(false))?;
                    measure::of_processes(Path::new("/proc"), supervisor.pid, at)
                })
            };
            tokio::task::spawn_blocking(read).await.ok().flatten()
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(root) = &self.cgroups {
            root.tidy();
        }
    }
}

impl Context {
    fn folder_of(&self, resource: &str) -> ServiceFolder {
        ServiceFolder::at(self.folder.join(file_name(resource)))
    }

    /// Whether services can be run at all, and found again.
    fn able(&self) -> Result<(), String> {
        let shim = &self.settings.shim;
        nix::unistd::access(shim, nix::unistd::AccessFlags::X_OK)
            .map_err(|error| format!("{} cannot be executed: {error}", shim.display()))?;
        nix::unistd::access(&self.folder, nix::unistd::AccessFlags::W_OK)
            .map_err(|error| format!("{} is not writable: {error}", self.folder.display()))?;
        let seen =
            std::fs::read_link("/proc/self").map_err(|error| format!("/proc cannot be read: {error}"))?;
        if seen.as_os_str() != std::process::id().to_string().as_str() {
            return Err("/proc is that of another pid namespace: mount the own one".to_owned());
        }
        Ok(())
    }
}

/// A file name for a resource; names that are fit stay as they are.
fn file_name(resource: &str) -> String {
    let mut name = String::new();
    for (index, byte) in resource.bytes().enumerate() {
        let plain =
            byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' || (byte == b'.' && index > 0);
        if plain {
            name.push(char::from(byte));
        } else {
            // Writing into a string does not fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name
}

/// A failure of the machine rather than of the service: it may pass.
fn broken(what: &str, error: &io::Error) -> DriverFailure {
    DriverFailure {
        class: FailureClass::RetryHere,
        reason: Reason::StartFailed,
        message: format!("{what}: {error}"),
    }
}

/// The first argument that makes the shim a supervisor.
const SUPERVISE: &str = "supervise";
/// The first argument that makes the shim a launcher.
const LAUNCH: &str = "launch";

/// What `ha-exec-shim` does: it is this driver's half that outlives the agent.
///
/// # Errors
/// When it was not started by the driver, or the kernel refuses what it needs.
pub fn shim(role: Option<&str>) -> io::Result<()> {
    match role {
        Some(SUPERVISE) => supervisor::run(),
        Some(LAUNCH) => launch::run(),
        Some(_) | None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this program is started by ha-node-agent and does nothing by hand",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_safe_and_differ() {
        for (name, expected) in [
            ("web", "web"),
            ("vm:100", "vm%3a100"),
            ("..", "%2e."),
            ("a/b", "a%2fb"),
            ("a.b", "a.b"),
            ("a%b", "a%25b"),
        ] {
            assert_eq!(file_name(name), expected);
        }
    }
}
