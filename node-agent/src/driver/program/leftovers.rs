//! Search for all processes of a service on this machine, including those that have detached themselves.

use super::cgroup::ServiceCgroup;
use super::order::ProcessRecord;
use super::process::{ProcessIdentity, ProcessStatus};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io;

/// Environment variable that marks every process of a service with the service's directory, which is unique.
pub(in crate::driver) const SERVICE_MARK_VARIABLE: &str = "HA_SERVICE_FOLDER";
/// Environment variable that marks a supervisor.
pub(in crate::driver) const SUPERVISOR_MARK_VARIABLE: &str = "HA_SUPERVISOR_FOLDER";

/// Environment variable that marks the program of a live migration, and the processes that it has started.
pub(in crate::driver) const MIGRATION_MARK_VARIABLE: &str = "HA_MIGRATION_FOLDER";

/// Criteria by which a service's processes are found.
///
/// A process belongs to the service if one of these conditions holds:
///
/// - It is in the service's control group.
/// - It is a descendant of the service's supervisor, which adopts orphaned processes.
/// - It is in the session of the main process.
/// - It has the mark in its environment, or is a descendant of a process with the mark.
#[derive(Clone, Debug)]
pub(in crate::driver) struct ProcessSearch {
    /// Environment variable that contains the mark.
    pub(in crate::driver) variable: &'static str,
    /// Directory of the service, which is the mark.
    pub(in crate::driver) mark: String,
    /// Control groups of the service: the current group, and the group in the record.
    pub(in crate::driver) cgroups: Vec<ServiceCgroup>,
    /// Record of the supervised process of this boot.
    pub(in crate::driver) record: Option<ProcessRecord>,
}

/// Processes that a search has found.
#[derive(Clone, Debug, Default)]
pub(in crate::driver) struct LeftoverProcesses {
    /// Processes of the service that still run, without supervisors.
    pub(in crate::driver) processes: Vec<ProcessStatus>,
    /// Supervisors of the service: at most one.
    pub(in crate::driver) supervisors: Vec<ProcessStatus>,
}

impl ProcessSearch {
    /// Searches all processes of the machine.
    pub(in crate::driver) fn run(&self) -> io::Result<LeftoverProcesses> {
        let all_processes = ProcessStatus::all()?;
        let own_pid = i32::try_from(std::process::id()).ok();
        let mut pids = BTreeSet::new();
        for cgroup in &self.cgroups {
            pids.extend(cgroup.members()?);
        }
        let marks =
            [format!("{}={}", self.variable, self.mark), format!("{SUPERVISOR_MARK_VARIABLE}={}", self.mark)];
        let recorded_supervisor = self.record.as_ref().map(|record| record.supervisor);
        let mut supervisors = Vec::new();
        for process in &all_processes {
            let [has_service_mark, has_supervisor_mark] = process.has_variables([&marks[0], &marks[1]]);
            if has_supervisor_mark || Some(process.identity) == recorded_supervisor {
                supervisors.push(process.clone());
            } else if has_service_mark {
                pids.insert(process.identity.pid);
                // A daemon may overwrite the environment of its children with their titles.
                pids.extend(descendants(&all_processes, process.identity.pid));
            }
        }
        for supervisor in &supervisors {
            pids.extend(descendants(&all_processes, supervisor.identity.pid));
        }
        pids.extend(self.session_members(&all_processes));
        supervisors.retain(|supervisor| !supervisor.ended);
        let is_supervisor = |process: &ProcessStatus| {
            supervisors.iter().any(|supervisor| supervisor.identity == process.identity)
        };
        let is_leftover = |process: &&ProcessStatus| {
            let pid = process.identity.pid;
            pids.contains(&pid) && !process.ended && Some(pid) != own_pid && !is_supervisor(process)
        };
        let processes = all_processes.iter().filter(is_leftover).cloned().collect();
        Ok(LeftoverProcesses { processes, supervisors })
    }

    /// Sends SIGKILL to all processes of the service except its supervisor. The next search finds processes that
    /// survive.
    pub(in crate::driver) fn kill(&self, leftovers: &LeftoverProcesses) -> io::Result<()> {
        for cgroup in &self.cgroups {
            cgroup.kill()?;
        }
        for process in &leftovers.processes {
            process.identity.signal(Signal::KILL)?;
        }
        Ok(())
    }

    /// Returns the pids in the main process's session; none if the session's pid was reused by another process.
    fn session_members(&self, all_processes: &[ProcessStatus]) -> Vec<i32> {
        let Some(ProcessIdentity { pid: session, started_ticks }) =
            self.record.as_ref().map(|record| record.main)
        else {
            return Vec::new();
        };
        let reused = |process: &ProcessStatus| {
            process.identity.pid == session && process.identity.started_ticks != started_ticks
        };
        if all_processes.iter().any(reused) {
            return Vec::new();
        }
        all_processes
            .iter()
            .filter(|process| process.session == session)
            .map(|process| process.identity.pid)
            .collect()
    }
}

impl LeftoverProcesses {
    /// Returns `true` if no process of the service remains; a supervisor does not count.
    pub(in crate::driver) fn has_no_service_processes(&self) -> bool {
        self.processes.is_empty()
    }

    /// Returns the processes as text for a message, such as `12 (redis-server), 14 (sh)`.
    pub(in crate::driver) fn describe(&self) -> String {
        let list: Vec<String> = self
            .processes
            .iter()
            .take(8)
            .map(|process| format!("{} ({})", process.identity.pid, process.name))
            .collect();
        let ellipsis = if self.processes.len() > list.len() { ", …" } else { "" };
        format!("{}{ellipsis}", list.join(", "))
    }
}

/// Returns the pids of all descendants of a process.
pub(in crate::driver) fn descendants(processes: &[ProcessStatus], ancestor: i32) -> BTreeSet<i32> {
    let mut pids = BTreeSet::new();
    let mut unvisited = vec![ancestor];
    while let Some(parent) = unvisited.pop() {
        for child in processes.iter().filter(|process| process.parent == parent) {
            if pids.insert(child.identity.pid) {
                unvisited.push(child.identity.pid);
            }
        }
    }
    pids
}
