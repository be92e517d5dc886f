//! The outside checker: samples all processes forty times a second and reports every service that runs on two machines
//! at the same time.
//!
//! The checker uses no code of the product. An instance is a living process that executes one of the given programs and has
//! `HA_RESOURCE` in its environment. The kernel's pid namespace of the process identifies the machine. One service on two machines at one
//! instant is a violation. The witness ([`WitnessFile`]) is a second, independent observer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::background::BackgroundThread;
use crate::process::{self, ProcessId};
use crate::timeline::Timeline;
use crate::wait::monotonic_ns;

/// Time from one sample to the next.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);
/// Minimum average rate of samples, in hertz. Below it, the checker has too little evidence for a verdict.
const MIN_SAMPLE_RATE_HZ: f64 = 20.0;

/// Pid namespaces of the cluster's machines, with the machines' names. The map is shared, because each power cycle adds an entry.
#[derive(Debug, Clone, Default)]
pub struct MachineNamespaces(Arc<Mutex<BTreeMap<u64, MachineNamespace>>>);

#[derive(Debug)]
struct MachineNamespace {
    machine: String,
    /// The namespace, kept open after the machine has lost its power. The kernel would otherwise give the inode to
    /// the next namespace, which may belong to a machine of another cluster.
    _namespace: File,
}

impl MachineNamespaces {
    /// Registers the pid namespace of a process as the one of a machine.
    ///
    /// # Errors
    /// Fails if the process has ended.
    pub fn add(&self, process: ProcessId, machine: &str) -> Result<()> {
        let path = format!("/proc/{}/ns/pid", process.pid);
        let namespace = File::open(&path).with_context(|| path.clone())?;
        let inode = namespace.metadata().context(path)?.ino();
        let entry = MachineNamespace { machine: machine.to_owned(), _namespace: namespace };
        locked(&self.0).insert(inode, entry);
        Ok(())
    }

    /// Returns the machine on which a process runs.
    pub fn machine_of(&self, process: ProcessId) -> Option<String> {
        locked(&self.0).get(&process.pid_namespace()?).map(|entry| entry.machine.clone())
    }

    fn all(&self) -> BTreeMap<u64, String> {
        locked(&self.0).iter().map(|(inode, entry)| (*inode, entry.machine.clone())).collect()
    }
}

/// An observer that samples in the background until it is finished or dropped.
pub struct DoubleRunChecker {
    shared: Arc<Mutex<CheckerObservations>>,
    background: BackgroundThread,
    begin: Instant,
}

#[derive(Default)]
struct CheckerObservations {
    timeline: Timeline,
    violations: Vec<String>,
    samples: u32,
    running_services: RunningServices,
}

impl DoubleRunChecker {
    /// Starts to sample processes that execute one of `programs` (file names).
    pub fn start(namespaces: MachineNamespaces, programs: &[&str]) -> Self {
        let shared = Arc::new(Mutex::new(CheckerObservations::default()));
        let programs: BTreeSet<String> = programs.iter().map(|program| (*program).to_owned()).collect();
        let background = BackgroundThread::start({
            let shared = Arc::clone(&shared);
            move |stop| {
                let mut due = Instant::now();
                while !stop.is_requested() {
                    sample(&namespaces.all(), &programs, &shared);
                    due += SAMPLE_INTERVAL;
                    let now = Instant::now();
                    // After a stall the checker does not catch up: samples in quick succession add no evidence.
                    due = due.max(now);
                    thread::sleep(due - now);
                }
            }
        });
        Self { shared, background, begin: Instant::now() }
    }

    /// Returns the observations so far.
    pub fn timeline(&self) -> Timeline {
        locked(&self.shared).timeline.clone()
    }

    /// Returns the machines on which a service runs now.
    pub fn machines_running(&self, service: &str) -> BTreeSet<String> {
        locked(&self.shared).timeline.machines_running(service)
    }

    /// Returns a process of a service on a machine, as of the last sample.
    pub fn process(&self, service: &str, machine: &str) -> Option<ProcessId> {
        locked(&self.shared).running_services.get(service)?.get(machine).copied()
    }

    /// Stops sampling and returns the whole timeline.
    ///
    /// # Errors
    /// Fails if a service ever ran on two machines at the same time, or if there are too few samples for a verdict.
    pub fn finish(mut self) -> Result<Timeline> {
        let seconds = self.begin.elapsed().as_secs_f64();
        // A panic of the thread results in too few samples.
        self.background.end();
        let observed = locked(&self.shared);
        if !observed.violations.is_empty() {
            bail!("a service ran twice:\n  {}", observed.violations.join("\n  "));
        }
        let rate = f64::from(observed.samples) / seconds;
        if rate < MIN_SAMPLE_RATE_HZ {
            bail!(
                "only {rate:.1} samples a second were taken; {MIN_SAMPLE_RATE_HZ} are needed to show that no two copies ran"
            );
        }
        Ok(observed.timeline.clone())
    }
}

/// Living instances: service, then machine, then one process on that machine.
type RunningServices = BTreeMap<String, BTreeMap<String, ProcessId>>;

fn sample(
    namespaces: &BTreeMap<u64, String>,
    programs: &BTreeSet<String>,
    shared: &Mutex<CheckerObservations>,
) {
    let running_services = running_services(namespaces, programs);
    let at_ns = monotonic_ns();
    let mut violations = Vec::new();
    for (service, machines) in &running_services {
        let machine_processes: Vec<_> = machines.iter().collect();
        for (index, (first, one)) in machine_processes.iter().enumerate() {
            for (second, other) in &machine_processes[index + 1..] {
                // A scan takes time, so the first process may have ended before the second started. Both lived at the same time
                // only if the first is still alive after the second was seen alive.
                if one.is_alive() && other.is_alive() && one.is_alive() {
                    violations.push(format!(
                        "{service} on {first} (process {}) and on {second} (process {}) at {at_ns} ns",
                        one.pid, other.pid
                    ));
                }
            }
        }
    }
    let instances_seen = running_services
        .iter()
        .map(|(service, machines)| (service.clone(), machines.keys().cloned().collect::<BTreeSet<_>>()))
        .collect();
    let mut observed = locked(shared);
    observed.samples += 1;
    observed.violations.extend(violations);
    observed.timeline.add_sample(at_ns, &instances_seen);
    observed.running_services = running_services;
}

fn running_services(namespaces: &BTreeMap<u64, String>, programs: &BTreeSet<String>) -> RunningServices {
    let mut running_services = RunningServices::new();
    for pid in process::all_pids() {
        let Some(machine) = process::pid_namespace(pid).and_then(|namespace| namespaces.get(&namespace))
        else {
            continue;
        };
        if !process::program_name(pid).is_some_and(|program| programs.contains(&program)) {
            continue;
        }
        let Some(service) = process::environment(pid).remove("HA_RESOURCE") else { continue };
        let Some(process) = ProcessId::of(pid) else { continue };
        running_services.entry(service).or_default().insert(machine.clone(), process);
    }
    running_services
}

/// The file that the program `ha-witness` writes in the shared directory while it runs as a service.
///
/// The witness holds an exclusive lock and appends a line every few milliseconds. Two witnesses at the same time
/// therefore cause a refused lock and interleaved lines, even between two samples of the checker.
#[derive(Debug, Clone)]
pub struct WitnessFile {
    path: PathBuf,
}

/// One line of a witness: this process was running on this node at this instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessLine {
    /// Value of `HA_NODE` that the service received.
    pub node: String,
    /// Process id inside the node's pid namespace.
    pub pid: i32,
    /// Time on `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
}

impl WitnessFile {
    /// Returns the witness whose file is `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Returns the lines of the file in order.
    ///
    /// # Errors
    /// Fails if the file does not exist or a line is malformed.
    pub fn lines(&self) -> Result<Vec<WitnessLine>> {
        let text = fs::read_to_string(&self.path).with_context(|| self.path.display().to_string())?;
        // The last line may be incomplete.
        let complete_lines = text.rfind('\n').map_or("", |end| &text[..end]);
        complete_lines
            .lines()
            .map(|line| parse(line).with_context(|| format!("{}: {line:?}", self.path.display())))
            .collect()
    }

    /// Returns the first line that was written after `after_ns`.
    pub fn first_line_after(&self, after_ns: u64) -> Option<WitnessLine> {
        self.lines().ok()?.into_iter().find(|line| line.at_ns > after_ns)
    }

    /// Checks that no two witnesses ran at the same time.
    ///
    /// # Errors
    /// Fails with the two witnesses whose lines interleave, or with the witness that found the lock taken.
    pub fn check_one_writer_at_a_time(&self) -> Result<()> {
        let violations_file = self.path.with_extension("violations");
        if let Ok(text) = fs::read_to_string(&violations_file) {
            bail!("a second witness ran while the first held the lock: {}", text.trim());
        }
        match find_interleaving(&self.lines()?) {
            Some((first, second)) => bail!("two witnesses wrote in turns: {first:?} and {second:?}"),
            None => Ok(()),
        }
    }
}

fn parse(line: &str) -> Option<WitnessLine> {
    let mut fields = line.split_whitespace();
    let parsed = WitnessLine {
        node: fields.next()?.to_owned(),
        pid: fields.next()?.parse().ok()?,
        at_ns: fields.next()?.parse().ok()?,
    };
    fields.next().is_none().then_some(parsed)
}

/// Returns two lines of different writers if one writer continues after the other has written.
///
/// A node can reuse a process id after a reboot. A node and id that return after a second or more therefore count as a new
/// writer.
fn find_interleaving(lines: &[WitnessLine]) -> Option<(WitnessLine, WitnessLine)> {
    let mut last: BTreeMap<(&str, i32), usize> = BTreeMap::new();
    for (index, line) in lines.iter().enumerate() {
        if let Some(earlier) = last.insert((&line.node, line.pid), index) {
            let between = &lines[earlier + 1..index];
            let gap_ns = line.at_ns.saturating_sub(lines[earlier].at_ns);
            if let Some(other) = between.first().filter(|_| gap_ns < 1_000_000_000) {
                return Some((line.clone(), other.clone()));
            }
        }
    }
    None
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The content is only replaced as a whole, so a panic elsewhere leaves it consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &str, expected: bool) {
        let parsed: Vec<WitnessLine> = lines.lines().map(|line| parse(line.trim()).unwrap()).collect();
        assert_eq!(find_interleaving(&parsed).is_some(), expected, "{lines}");
    }

    #[test]
    fn checker_detects_interleaved_writers() {
        check("node1 7 10\nnode1 7 30\nnode2 9 50\nnode2 9 70", false);
        check("node1 7 10\nnode2 9 20\nnode1 7 30", true);
        check("node1 7 10\nnode1 8 20\nnode1 7 30", true);
        // The same process id after a reboot, much later.
        check("node1 7 10\nnode2 9 20\nnode1 7 9000000000", false);
    }

    #[test]
    fn checker_finds_running_program_on_machine() {
        // The name of the service is unique: other tests of this process also start programs.
        let mut child =
            std::process::Command::new("sleep").arg("60").env("HA_RESOURCE", "checked").spawn().unwrap();
        let namespaces = MachineNamespaces::default();
        namespaces.add(ProcessId::own().unwrap(), "here").unwrap();
        let checker = DoubleRunChecker::start(namespaces, &["sleep"]);
        let wait_result = crate::wait::wait_until("the service to be seen", Duration::from_secs(20), || {
            checker.machines_running("checked").contains("here")
        });
        child.kill().unwrap();
        child.wait().unwrap();
        wait_result.unwrap();
        crate::wait::wait_until("the end of the process to be seen", Duration::from_secs(20), || {
            checker.machines_running("checked").is_empty()
        })
        .unwrap();
        assert_eq!(checker.timeline().changes("checked").len(), 2);
    }
}
