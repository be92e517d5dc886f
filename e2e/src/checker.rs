//! The outside checker: looks at every machine, forty times a second, and proves "never two".
//!
//! It knows nothing of the product. A service instance is a living process that executes one of the given programs with
//! `HA_RESOURCE` in its environment; its place is the pid namespace that the kernel says it is in. Two places for one
//! service at one instant is a violation. The witness ([`Witness`]) is a second, independent observer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::background::Background;
use crate::process::{self, ProcessId};
use crate::timeline::Timeline;
use crate::wait::monotonic_ns;

/// Time from one sample to the next.
const PERIOD: Duration = Duration::from_millis(25);
/// With fewer samples a second on average than this, the checker has not seen enough to prove anything.
const RATE_FLOOR_HZ: f64 = 20.0;

/// The pid namespaces that have been machines of the cluster, and their names. Shared, because a power cycle adds one.
#[derive(Debug, Clone, Default)]
pub struct Places(Arc<Mutex<BTreeMap<u64, String>>>);

impl Places {
    /// Makes a namespace known as a machine.
    pub fn add(&self, namespace: u64, machine: &str) {
        locked(&self.0).insert(namespace, machine.to_owned());
    }

    fn all(&self) -> BTreeMap<u64, String> {
        locked(&self.0).clone()
    }
}

/// Samples in the background until it is finished or dropped.
pub struct Checker {
    shared: Arc<Mutex<Observed>>,
    background: Background,
    begin: Instant,
}

#[derive(Default)]
struct Observed {
    timeline: Timeline,
    violations: Vec<String>,
    samples: u32,
    instances: Instances,
}

impl Checker {
    /// Begins to sample processes that execute one of `programs` (file names).
    pub fn start(places: Places, programs: &[&str]) -> Self {
        let shared = Arc::new(Mutex::new(Observed::default()));
        let programs: BTreeSet<String> = programs.iter().map(|program| (*program).to_owned()).collect();
        let background = Background::start({
            let shared = Arc::clone(&shared);
            move |stop| {
                let mut due = Instant::now();
                while !stop.is_asked() {
                    sample(&places.all(), &programs, &shared);
                    due += PERIOD;
                    let now = Instant::now();
                    // After a stall it does not hurry to catch up: samples in a bunch prove nothing.
                    due = due.max(now);
                    thread::sleep(due - now);
                }
            }
        });
        Self { shared, background, begin: Instant::now() }
    }

    /// What has been seen so far.
    pub fn timeline(&self) -> Timeline {
        locked(&self.shared).timeline.clone()
    }

    /// Where a service runs now.
    pub fn places(&self, service: &str) -> BTreeSet<String> {
        locked(&self.shared).timeline.places(service)
    }

    /// A process of a service on a machine, as last seen.
    pub fn process(&self, service: &str, machine: &str) -> Option<ProcessId> {
        locked(&self.shared).instances.get(service)?.get(machine).copied()
    }

    /// Ends sampling and gives the whole timeline.
    ///
    /// # Errors
    /// When a service was ever seen in two places at once, or too few samples were taken to say.
    pub fn finish(mut self) -> Result<Timeline> {
        let seconds = self.begin.elapsed().as_secs_f64();
        // A panic in there leaves too few samples.
        self.background.end();
        let observed = locked(&self.shared);
        if !observed.violations.is_empty() {
            bail!("never two is broken:\n  {}", observed.violations.join("\n  "));
        }
        let rate = f64::from(observed.samples) / seconds;
        if rate < RATE_FLOOR_HZ {
            bail!(
                "only {rate:.1} samples a second were taken; {RATE_FLOOR_HZ} are needed to say that never two held"
            );
        }
        Ok(observed.timeline.clone())
    }
}

/// The living instances: service, then machine, then one process there.
type Instances = BTreeMap<String, BTreeMap<String, ProcessId>>;

fn sample(places: &BTreeMap<u64, String>, programs: &BTreeSet<String>, shared: &Mutex<Observed>) {
    let instances = instances(places, programs);
    let at_ns = monotonic_ns();
    let mut violations = Vec::new();
    for (service, machines) in &instances {
        let found: Vec<_> = machines.iter().collect();
        for (index, (first, one)) in found.iter().enumerate() {
            for (second, other) in &found[index + 1..] {
                // A scan takes a while, so the first may have ended before the second began. Alive, alive, and the
                // first still alive: only then were they alive together.
                if one.is_alive() && other.is_alive() && one.is_alive() {
                    violations.push(format!(
                        "{service} on {first} (process {}) and on {second} (process {}) at {at_ns} ns",
                        one.pid, other.pid
                    ));
                }
            }
        }
    }
    let seen = instances
        .iter()
        .map(|(service, machines)| (service.clone(), machines.keys().cloned().collect::<BTreeSet<_>>()))
        .collect();
    let mut observed = locked(shared);
    observed.samples += 1;
    observed.violations.extend(violations);
    observed.timeline.sample(at_ns, &seen);
    observed.instances = instances;
}

fn instances(places: &BTreeMap<u64, String>, programs: &BTreeSet<String>) -> Instances {
    let mut instances = Instances::new();
    for pid in process::all() {
        let Some(machine) = process::pid_namespace(pid).and_then(|namespace| places.get(&namespace)) else {
            continue;
        };
        if !process::program(pid).is_some_and(|program| programs.contains(&program)) {
            continue;
        }
        let Some(service) = process::environment(pid).remove("HA_RESOURCE") else { continue };
        let Some(process) = ProcessId::of(pid) else { continue };
        instances.entry(service).or_default().insert(machine.clone(), process);
    }
    instances
}

/// The record that the program `ha-witness` keeps in the shared folder while it runs as a service.
///
/// It holds an exclusive lock and appends a line every few milliseconds, so two of them at once show as a refused lock and as
/// lines that interleave, also when the checker was between two samples.
#[derive(Debug, Clone)]
pub struct Witness {
    path: PathBuf,
}

/// One line of a witness: this process on this node was running at this instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// What the service was told as `HA_NODE`.
    pub node: String,
    /// The number inside its pid namespace.
    pub pid: i32,
    /// On `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
}

impl Witness {
    /// The witness that writes to `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Its lines in order.
    ///
    /// # Errors
    /// When there is no file, or a line cannot be read.
    pub fn beats(&self) -> Result<Vec<Beat>> {
        let text = fs::read_to_string(&self.path).with_context(|| self.path.display().to_string())?;
        // The last line may be in the making.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| parse(line).with_context(|| format!("{}: {line:?}", self.path.display())))
            .collect()
    }

    /// When the first line after `after_ns` was written, and on which node.
    pub fn first_after(&self, after_ns: u64) -> Option<Beat> {
        self.beats().ok()?.into_iter().find(|beat| beat.at_ns > after_ns)
    }

    /// Fails when two instances wrote at the same time or one found the lock taken.
    ///
    /// # Errors
    /// Naming the two.
    pub fn check(&self) -> Result<()> {
        let refused = self.path.with_extension("violations");
        if let Ok(text) = fs::read_to_string(&refused) {
            bail!("a second witness ran while the first held the lock: {}", text.trim());
        }
        match interleaved(&self.beats()?) {
            Some((one, other)) => bail!("two witnesses wrote in turns: {one:?} and {other:?}"),
            None => Ok(()),
        }
    }
}

fn parse(line: &str) -> Option<Beat> {
    let mut fields = line.split_whitespace();
    let beat = Beat {
        node: fields.next()?.to_owned(),
        pid: fields.next()?.parse().ok()?,
        at_ns: fields.next()?.parse().ok()?,
    };
    fields.next().is_none().then_some(beat)
}

/// Two writers of which one comes back after the other has written.
///
/// A number can be used again after a reboot of the node, so a writer is one uninterrupted number on a node, and one that comes
/// back with a gap of less than a second has not been away.
fn interleaved(beats: &[Beat]) -> Option<(Beat, Beat)> {
    let mut last: BTreeMap<(&str, i32), usize> = BTreeMap::new();
    for (index, beat) in beats.iter().enumerate() {
        if let Some(earlier) = last.insert((&beat.node, beat.pid), index) {
            let between = &beats[earlier + 1..index];
            let away_ns = beat.at_ns.saturating_sub(beats[earlier].at_ns);
            if let Some(other) = between.first().filter(|_| away_ns < 1_000_000_000) {
                return Some((beat.clone(), other.clone()));
            }
        }
    }
    None
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is only ever replaced as a whole, so a panic elsewhere leaves it usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &str, expected: bool) {
        let beats: Vec<Beat> = lines.lines().map(|line| parse(line.trim()).unwrap()).collect();
        assert_eq!(interleaved(&beats).is_some(), expected, "{lines}");
    }

    #[test]
    fn interleaved_writers_are_found() {
        check("node1 7 10\nnode1 7 30\nnode2 9 50\nnode2 9 70", false);
        check("node1 7 10\nnode2 9 20\nnode1 7 30", true);
        check("node1 7 10\nnode1 8 20\nnode1 7 30", true);
        // The same number after a reboot, much later.
        check("node1 7 10\nnode2 9 20\nnode1 7 9000000000", false);
    }

    #[test]
    fn a_running_program_is_seen_where_it_is() {
        // A name of its own: other tests of this process start programs, too.
        let mut child =
            std::process::Command::new("sleep").arg("60").env("HA_RESOURCE", "checked").spawn().unwrap();
        let places = Places::default();
        places.add(ProcessId::own().unwrap().pid_namespace().unwrap(), "here");
        let checker = Checker::start(places, &["sleep"]);
        let seen = crate::wait::wait_until("the service to be seen", Duration::from_secs(20), || {
            checker.places("checked").contains("here")
        });
        child.kill().unwrap();
        child.wait().unwrap();
        seen.unwrap();
        crate::wait::wait_until("its end to be seen", Duration::from_secs(20), || {
            checker.places("checked").is_empty()
        })
        .unwrap();
        assert_eq!(checker.timeline().changes("checked").len(), 2);
    }
}
