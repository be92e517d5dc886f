//! Everything that is left of a service on this machine, however it tried to get away.

use super::cgroup::ServiceCgroup;
use super::order::Record;
use super::process::{ProcessIdentity, ProcessStatus};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io;

/// The variable that marks every process of a service: the service's folder, which no other service has.
pub(in crate::driver) const MARK: &str = "HA_SERVICE_FOLDER";
/// The variable that marks a supervisor.
pub(in crate::driver) const SUPERVISOR_MARK: &str = "HA_SUPERVISOR_FOLDER";

/// The variable that marks the program that moves a service live, and what it has started.
pub(in crate::driver) const MIGRATION_MARK: &str = "HA_MIGRATION_FOLDER";

/// How a service's processes are recognised.
///
/// Any of these is enough: being in the service's control group; being a descendant of its supervisor, which adopts
/// whatever its parents leave behind; being in the main process's session; carrying the mark in the environment, or
/// being a descendant of who does.
#[derive(Clone, Debug)]
pub(in crate::driver) struct Search {
    /// The variable that holds the mark.
    pub(in crate::driver) variable: &'static str,
    /// The service's folder, which is its mark.
    pub(in crate::driver) mark: String,
    /// Its control groups: of today, and of the record.
    pub(in crate::driver) cgroups: Vec<ServiceCgroup>,
    /// What ran last, in this boot.
    pub(in crate::driver) record: Option<Record>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(in crate::driver) struct Remains {
    /// The service's processes.
    pub(in crate::driver) processes: Vec<ProcessStatus>,
    /// Its supervisors: one, or none.
    pub(in crate::driver) supervisors: Vec<ProcessStatus>,
}

impl Search {
    /// Looks at every process of the machine.
    pub(in crate::driver) fn run(&self) -> io::Result<Remains> {
        let all = ProcessStatus::all()?;
        let own = i32::try_from(std::process::id()).ok();
        let mut pids = BTreeSet::new();
        for cgroup in &self.cgroups {
            pids.extend(cgroup.members()?);
        }
        let marks = [format!("{}={}", self.variable, self.mark), format!("{SUPERVISOR_MARK}={}", self.mark)];
        let recorded = self.record.as_ref().map(|record| record.supervisor);
        let mut supervisors = Vec::new();
        for process in &all {
            let [of_service, of_supervisor] = process.holds([&marks[0], &marks[1]]);
            if of_supervisor || Some(process.identity) == recorded {
                supervisors.push(process.clone());
            } else if of_service {
                pids.insert(process.identity.pid);
                // Daemons write titles over the environment of their children.
                pids.extend(descendants(&all, process.identity.pid));
            }
        }
        for supervisor in &supervisors {
            pids.extend(descendants(&all, supervisor.identity.pid));
        }
        pids.extend(self.session_members(&all));
        supervisors.retain(|supervisor| !supervisor.ended);
        let is_supervisor = |process: &ProcessStatus| {
            supervisors.iter().any(|supervisor| supervisor.identity == process.identity)
        };
        let is_left = |process: &&ProcessStatus| {
            let pid = process.identity.pid;
            pids.contains(&pid) && !process.ended && Some(pid) != own && !is_supervisor(process)
        };
        let processes = all.iter().filter(is_left).cloned().collect();
        Ok(Remains { processes, supervisors })
    }

    /// Sends SIGKILL to everything that was found of the service, not to its supervisor. Failures show in what the
    /// next search finds.
    pub(in crate::driver) fn kill(&self, remains: &Remains) -> io::Result<()> {
        for cgroup in &self.cgroups {
            cgroup.kill()?;
        }
        for process in &remains.processes {
            process.identity.signal(Signal::KILL)?;
        }
        Ok(())
    }

    /// The main process's session, unless its number means another process by now.
    fn session_members(&self, all: &[ProcessStatus]) -> Vec<i32> {
        let Some(ProcessIdentity { pid: session, started_ticks }) =
            self.record.as_ref().map(|record| record.main)
        else {
            return Vec::new();
        };
        let reused = |process: &ProcessStatus| {
            process.identity.pid == session && process.identity.started_ticks != started_ticks
        };
        if all.iter().any(reused) {
            return Vec::new();
        }
        all.iter().filter(|process| process.session == session).map(|process| process.identity.pid).collect()
    }
}

impl Remains {
    /// Whether nothing of the service itself is left.
    pub(in crate::driver) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// For people: `12 (redis-server), 14 (sh)`.
    pub(in crate::driver) fn describe(&self) -> String {
        let list: Vec<String> = self
            .processes
            .iter()
            .take(8)
            .map(|found| format!("{} ({})", found.identity.pid, found.name))
            .collect();
        let more = if self.processes.len() > list.len() { ", …" } else { "" };
        format!("{}{more}", list.join(", "))
    }
}

/// The pids of all processes below one.
pub(in crate::driver) fn descendants(all: &[ProcessStatus], of: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut open = vec![of];
    while let Some(parent) = open.pop() {
        for child in all.iter().filter(|process| process.parent == parent) {
            if found.insert(child.identity.pid) {
                open.push(child.identity.pid);
            }
        }
    }
    found
}
