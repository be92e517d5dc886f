//! Programs that a driver runs on this node: the directories and control groups of their services, their environment,
//! and the search for their processes.

pub(in crate::driver) mod cgroup;
pub(in crate::driver) mod clearing;
pub(in crate::driver) mod directory;
pub(in crate::driver) mod launch;
pub(in crate::driver) mod leftovers;
pub(in crate::driver) mod measure;
pub(in crate::driver) mod order;
pub(in crate::driver) mod output;
pub(in crate::driver) mod process;
pub(in crate::driver) mod run;
mod start_marker;

use crate::core::DriverFailure;
use cgroup::{CgroupRoot, ServiceCgroup};
use directory::ServiceDirectory;
use ha_api_types::id::{BootId, NodeName};
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;
use ha_api_types::resource::ServiceDefinition;
use ha_runtime::local_values::LocalValues;
use leftovers::{ProcessSearch, SERVICE_MARK_VARIABLE};
use order::ProcessRecord;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::PathBuf;

/// Settings of the programs that drivers run; the same for every driver.
#[derive(Clone, Debug)]
pub struct ProgramSettings {
    /// Name of this node, passed to programs as `HA_NODE`.
    pub node: NodeName,
    /// Boot id, read from `bootIdFile`. Records of an earlier boot are about processes that no longer exist.
    pub boot_id: BootId,
    /// The agent's state directory, on a local disk. It contains a directory for each driver, with one directory for
    /// each service.
    pub state_directory: PathBuf,
    /// Path of the program `ha-exec-shim`; [`ProgramSettings::shim_beside_this_program`] by default.
    pub shim_path: PathBuf,
    /// `true` to use control groups if the agent can create them on this machine.
    pub cgroups: bool,
    /// Size in bytes above which a service's log is rotated; one older file is kept.
    pub log_bytes_max: u64,
    /// Locations of the values that services get from this node.
    pub values: LocalValues,
}

impl ProgramSettings {
    /// Returns the default settings.
    pub fn new(
        node: NodeName,
        boot_id: BootId,
        state_directory: PathBuf,
        values: LocalValues,
    ) -> io::Result<ProgramSettings> {
        Ok(ProgramSettings {
            node,
            boot_id,
            state_directory,
            shim_path: ProgramSettings::shim_beside_this_program()?,
            cgroups: true,
            log_bytes_max: 8 * 1024 * 1024,
            values,
        })
    }

    /// Returns the shim's path: in the directory of the running program or, as packages install it, in `libexec/hactl`
    /// next to that directory.
    pub fn shim_beside_this_program() -> io::Result<PathBuf> {
        let adjacent_shim = std::env::current_exe()?.with_file_name("ha-exec-shim");
        let installed =
            adjacent_shim.ancestors().nth(2).map(|directory| directory.join("libexec/hactl/ha-exec-shim"));
        Ok(installed.filter(|file| !adjacent_shim.exists() && file.exists()).unwrap_or(adjacent_shim))
    }
}

/// The programs of one driver's services.
#[derive(Debug)]
pub(in crate::driver) struct Programs {
    pub(in crate::driver) settings: ProgramSettings,
    /// Directory that contains the directories of all services.
    directory: PathBuf,
    cgroups: Option<CgroupRoot>,
}

impl Programs {
    /// Prepares the directory and the control groups of a driver.
    ///
    /// # Errors
    /// Fails if the driver's directory in the state directory cannot be created.
    pub(in crate::driver) fn new(settings: ProgramSettings, driver: &str) -> io::Result<Programs> {
        let directory = settings.state_directory.join(driver);
        std::fs::create_dir_all(&directory)?;
        // The marks in the services' environments contain this path. The next agent must use the same marks, even if it
        // reaches the directory by another path.
        let directory = directory.canonicalize()?;
        let owner = format!("{}\n{}", settings.node, directory.display());
        let cgroups = settings.cgroups.then(|| CgroupRoot::make(&owner)).flatten();
        tracing::debug!(driver, directory = %directory.display(), cgroups = cgroups.is_some(), "opened the state directory of a driver");
        Ok(Programs { settings, directory, cgroups })
    }

    pub(in crate::driver) fn directory_of(&self, resource: &str) -> ServiceDirectory {
        ServiceDirectory::at(self.directory.join(file_name(resource)))
    }

    /// Returns the control group of a service; `None` if this machine has no usable control groups.
    pub(in crate::driver) fn cgroup_of(&self, resource: &str) -> Option<ServiceCgroup> {
        self.cgroups.as_ref().map(|root| root.service_cgroup(&file_name(resource)))
    }

    /// Creates the control group of a service; `None` if this machine has no usable control groups.
    pub(in crate::driver) fn make_cgroup(&self, resource: &str) -> io::Result<Option<ServiceCgroup>> {
        let cgroup = self.cgroup_of(resource);
        if let Some(cgroup) = &cgroup {
            cgroup.make()?;
        }
        Ok(cgroup)
    }

    /// Checks that programs can be run and found again. The error contains the reason if not.
    pub(in crate::driver) fn check_usable(&self) -> Result<(), String> {
        let shim = &self.settings.shim_path;
        nix::unistd::access(shim, nix::unistd::AccessFlags::X_OK)
            .map_err(|error| format!("cannot execute {}: {error}", shim.display()))?;
        nix::unistd::access(&self.directory, nix::unistd::AccessFlags::W_OK)
            .map_err(|error| format!("{} is not writable: {error}", self.directory.display()))?;
        let own_pid =
            std::fs::read_link("/proc/self").map_err(|error| format!("cannot read /proc: {error}"))?;
        if own_pid.as_os_str() != std::process::id().to_string().as_str() {
            return Err(
                "/proc belongs to another PID namespace: mount the /proc of this namespace".to_owned()
            );
        }
        Ok(())
    }

    /// Returns the whole environment of a service's program: the given variables, and those that hactl sets.
    pub(in crate::driver) fn environment(
        &self,
        service: &ServiceDefinition,
        spec_variables: &BTreeMap<String, String>,
        target: Option<&str>,
    ) -> Vec<(String, String)> {
        let mut variables = BTreeMap::from([("PATH".to_owned(), DEFAULT_PATH_VARIABLE.to_owned())]);
        variables.extend(spec_variables.clone());
        let directory = self.directory_of(&service.name).path().display().to_string();
        let agent_variables = [
            ("HA_RESOURCE", service.name.as_str()),
            ("HA_RESOURCE_UID", &service.uid),
            ("HA_NODE", &self.settings.node),
            (SERVICE_MARK_VARIABLE, &directory),
        ];
        let agent_variables = agent_variables.into_iter().chain(target.map(|target| ("HA_TARGET", target)));
        variables.extend(agent_variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
        variables.into_iter().collect()
    }

    /// Returns the environment of a program that does not belong to a service.
    pub(in crate::driver) fn plain_environment(&self) -> Vec<(String, String)> {
        let agent_variables = [("PATH", DEFAULT_PATH_VARIABLE), ("HA_NODE", &self.settings.node)];
        agent_variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// Returns the record of the service's supervised process of this boot, running or ended.
    pub(in crate::driver) fn record(&self, service: &ServiceDefinition) -> Option<ProcessRecord> {
        let record = self.directory_of(&service.name).record();
        let record =
            record.inspect_err(|error| tracing::warn!(resource = service.name.as_str(), %error, "cannot read the record of the service's processes"));
        record.ok().flatten().filter(|record| record.boot_id == self.settings.boot_id)
    }

    /// Returns the criteria by which the service's processes are found.
    pub(in crate::driver) fn search(&self, service: &ServiceDefinition) -> ProcessSearch {
        let record = self.record(service);
        let mut cgroups: Vec<ServiceCgroup> = self.cgroup_of(&service.name).into_iter().collect();
        if let Some(path) = record.as_ref().and_then(|record| record.cgroup.clone()) {
            let recorded = ServiceCgroup::at(path);
            if !cgroups.contains(&recorded) {
                cgroups.push(recorded);
            }
        }
        let mark = self.directory_of(&service.name).path().display().to_string();
        ProcessSearch { variable: SERVICE_MARK_VARIABLE, mark, cgroups, record }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        if let Some(root) = &self.cgroups {
            root.remove_empty_cgroups();
        }
    }
}

/// Removes the mark from the environment of a program that only queries, so that it does not count as a process of the
/// service.
pub(in crate::driver) fn without_mark(mut environment: Vec<(String, String)>) -> Vec<(String, String)> {
    environment.retain(|(name, _)| name != SERVICE_MARK_VARIABLE);
    environment
}

/// Default search path for programs; the resource can set another one.
const DEFAULT_PATH_VARIABLE: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// First argument of `ha-exec-shim` that makes it a launcher.
pub(in crate::driver) const LAUNCH: &str = "launch";

/// Returns a file name for a resource. A name that is a valid file name is not changed.
fn file_name(resource: &str) -> String {
    let mut name = String::new();
    for (index, byte) in resource.bytes().enumerate() {
        let is_unreserved =
            byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' || (byte == b'.' && index > 0);
        if is_unreserved {
            name.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name
}

/// Returns a failure of the machine rather than of the service; a retry on this node may resolve it.
pub(in crate::driver) fn io_failure(operation: &str, error: &io::Error) -> DriverFailure {
    failed(Reason::StartFailed, &format!("{operation}: {error}"))
}

/// Returns a failure that a retry on this node may resolve.
pub(in crate::driver) fn failed(reason: Reason, message: &str) -> DriverFailure {
    DriverFailure { class: FailureClass::RetryHere, reason, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_file_names_are_safe_and_unique() {
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
