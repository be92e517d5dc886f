//! Periods in which the host did not run a machine. Times measured in such a period are not valid.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::background::BackgroundThread;
use crate::process::ProcessId;
use crate::wait::monotonic_ns;

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// A period in which a machine was ready to run, but did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// Name of the machine; `host` if this recorder itself did not run.
    pub machine: String,
    /// End of the stall on the host's `CLOCK_MONOTONIC`, in nanoseconds.
    pub until_ns: u64,
    /// Length of the stall, in milliseconds.
    pub duration_ms: u64,
}

/// The processes that run the machines. Each power cycle replaces one.
#[derive(Debug, Clone, Default)]
pub struct MachineProcesses(Arc<Mutex<Vec<(String, ProcessId)>>>);

impl MachineProcesses {
    /// Sets the process of a machine, and replaces an earlier process.
    pub fn set(&self, machine: &str, process: ProcessId) {
        let mut watched_processes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched_processes.retain(|(name, _)| name != machine);
        watched_processes.push((machine.to_owned(), process));
    }
}

/// The stalls and waits so far.
#[derive(Default)]
struct StallRecord {
    stalls: Vec<Stall>,
    /// Waits of machines: name, end of the period, and waiting time in it, both in nanoseconds.
    waits: Vec<(String, u64, u64)>,
}

/// A recorder of stalls that runs until it is dropped.
pub struct Stalls {
    record: Arc<Mutex<StallRecord>>,
    /// Thread of the recorder. If it panics, stalls are missing, so runs are judged more strictly.
    _background: BackgroundThread,
}

impl Stalls {
    /// Starts to record the stalls of these machines.
    pub fn start(machines: MachineProcesses) -> Self {
        let record = Arc::new(Mutex::new(StallRecord::default()));
        let background = BackgroundThread::start({
            let record = Arc::clone(&record);
            move |stop| {
                let mut watched: Vec<WatchedProcess> = Vec::new();
                let mut host = WaitStreak::default();
                let mut last_ns = monotonic_ns();
                while !stop.is_requested() {
                    thread::sleep(SAMPLE_INTERVAL);
                    let now_ns = monotonic_ns();
                    let passed_ns = now_ns - last_ns;
                    last_ns = now_ns;
                    let late_ns = passed_ns.saturating_sub(2 * nanoseconds(SAMPLE_INTERVAL));
                    let mut ended: Vec<Stall> =
                        host.add("host", now_ns, passed_ns, late_ns).into_iter().collect();
                    let current = machines.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    watched.retain(|watched_process| {
                        current.contains(&(watched_process.machine.clone(), watched_process.process))
                    });
                    for (machine, process) in current {
                        if !watched.iter().any(|watched_process| watched_process.process == process) {
                            watched.extend(WatchedProcess::new(&machine, process));
                        }
                    }
                    let mut waits = Vec::new();
                    for watched_process in &mut watched {
                        let Some(waited_ns) = watched_process.sample() else { continue };
                        waits.push((watched_process.machine.clone(), now_ns, waited_ns));
                        ended.extend(watched_process.run.add(
                            &watched_process.machine,
                            now_ns,
                            passed_ns,
                            waited_ns,
                        ));
                    }
                    let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
                    record.stalls.extend(ended);
                    record.waits.extend(waits);
                }
            }
        });
        Self { record, _background: background }
    }

    /// Returns the longest stall that ended after `after_ns`.
    pub fn longest(&self, after_ns: u64) -> Option<Stall> {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let later_stalls = record.stalls.iter().filter(|stall| stall.until_ns > after_ns);
        later_stalls.max_by_key(|stall| stall.duration_ms).cloned()
    }

    /// Returns the total time for which a machine waited for a processor between two times, in milliseconds.
    pub fn waited_ms(&self, machine: &str, from_ns: u64, to_ns: u64) -> u64 {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let within = record
            .waits
            .iter()
            .filter(|(name, at_ns, _)| name == machine && (from_ns..=to_ns).contains(at_ns));
        within.map(|(_, _, waited_ns)| waited_ns).sum::<u64>() / 1_000_000
    }
}

/// The processor of a machine: the QEMU thread that executes it.
struct WatchedProcess {
    machine: String,
    process: ProcessId,
    schedule: PathBuf,
    waited_ns: u64,
    run: WaitStreak,
}

impl WatchedProcess {
    fn new(machine: &str, process: ProcessId) -> Option<Self> {
        let tasks = fs::read_dir(format!("/proc/{}/task", process.pid)).ok()?;
        let task = tasks.flatten().map(|task| task.path()).find(|task| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("CPU 0/"))
        })?;
        let schedule = task.join("schedstat");
        let waited_ns = waited_ns(&schedule)?;
        Some(Self { machine: machine.to_owned(), process, schedule, waited_ns, run: WaitStreak::default() })
    }

    /// Returns the waiting time since the last call, in nanoseconds; `None` if the process has ended.
    fn sample(&mut self) -> Option<u64> {
        let waited_ns = waited_ns(&self.schedule)?;
        let since_ns = waited_ns.saturating_sub(self.waited_ns);
        self.waited_ns = waited_ns;
        Some(since_ns)
    }
}

/// Returns the total waiting time of a thread, in nanoseconds: the second number of its schedule statistics.
fn waited_ns(schedule: &Path) -> Option<u64> {
    fs::read_to_string(schedule).ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Consecutive periods that consist of waiting.
#[derive(Default)]
struct WaitStreak {
    length_ns: u64,
}

impl WaitStreak {
    /// Adds a period. Returns the stall that ended with it, if any.
    fn add(&mut self, machine: &str, now_ns: u64, passed_ns: u64, waited_ns: u64) -> Option<Stall> {
        // The kernel counts a wait when it ends, so one period may include the waiting of many.
        if waited_ns * 10 >= passed_ns * 9 {
            self.length_ns += waited_ns;
            return None;
        }
        let duration_ms = std::mem::take(&mut self.length_ns) / 1_000_000;
        (duration_ms > 0).then(|| Stall { machine: machine.to_owned(), until_ns: now_ns, duration_ms })
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(periods: &[(u64, u64)], expected_ms: &[u64]) {
        let mut run = WaitStreak::default();
        let mut now_ns = 0;
        let mut lengths_ms = Vec::new();
        for (passed_ms, waited_ms) in periods {
            now_ns += passed_ms * 1_000_000;
            let stall = run.add("m", now_ns, passed_ms * 1_000_000, waited_ms * 1_000_000);
            lengths_ms.extend(stall.map(|stall| stall.duration_ms));
        }
        assert_eq!(lengths_ms, expected_ms, "{periods:?}");
    }

    #[test]
    fn consecutive_waits_are_one_stall() {
        check(&[(100, 0), (100, 50), (100, 10)], &[]);
        check(&[(100, 95), (100, 100), (100, 20)], &[195]);
        // The kernel reports the wait only when it has ended.
        check(&[(100, 0), (100, 0), (100, 290), (100, 0)], &[290]);
        check(&[(100, 95), (100, 0), (100, 95), (100, 0)], &[95, 95]);
    }
}
