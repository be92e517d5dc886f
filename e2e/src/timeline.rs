//! The observed machines of each service over time, and queries for tests and the benchmark.

use std::collections::{BTreeMap, BTreeSet};

/// The machines on which a service was seen from a time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Time of the change on `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// Machines with a living process of the service.
    pub machines: BTreeSet<String>,
}

/// The changes of all services, in order of time.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    services: BTreeMap<String, Vec<Change>>,
}

impl Timeline {
    /// Adds a sample: the machines of every service at `at_ns`. A service that is missing in the sample runs nowhere.
    pub fn add_sample(&mut self, at_ns: u64, machines_by_service: &BTreeMap<String, BTreeSet<String>>) {
        for service in machines_by_service.keys() {
            self.services.entry(service.clone()).or_default();
        }
        for (service, changes) in &mut self.services {
            let machines = machines_by_service.get(service).cloned().unwrap_or_default();
            if changes.last().map_or(!machines.is_empty(), |last| last.machines != machines) {
                changes.push(Change { at_ns, machines });
            }
        }
    }

    /// Returns the changes of a service, in order.
    pub fn changes(&self, service: &str) -> &[Change] {
        self.services.get(service).map_or(&[], Vec::as_slice)
    }

    /// Returns the machines on which a service was last seen; empty if it ran nowhere.
    pub fn machines_running(&self, service: &str) -> BTreeSet<String> {
        self.changes(service).last().map(|change| change.machines.clone()).unwrap_or_default()
    }

    /// Returns the time of the first start of a service on `machine` after `after_ns`. A service that already ran there does not
    /// count.
    pub fn started_on(&self, service: &str, machine: &str, after_ns: u64) -> Option<u64> {
        let mut was_running = false;
        for change in self.changes(service) {
            let is_running = change.machines.contains(machine);
            if is_running && !was_running && change.at_ns > after_ns {
                return Some(change.at_ns);
            }
            was_running = is_running;
        }
        None
    }

    /// Returns the time of the first end of a service on `machine` after `after_ns`.
    pub fn ended_on(&self, service: &str, machine: &str, after_ns: u64) -> Option<u64> {
        let mut was_running = false;
        for change in self.changes(service) {
            let is_running = change.machines.contains(machine);
            if was_running && !is_running && change.at_ns > after_ns {
                return Some(change.at_ns);
            }
            was_running = is_running;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(samples: &[(u64, &[&str])]) -> Timeline {
        let mut timeline = Timeline::default();
        for (at_ns, machines) in samples {
            let machines: BTreeSet<String> = machines.iter().map(|machine| (*machine).to_owned()).collect();
            let mut machines_by_service = BTreeMap::new();
            if !machines.is_empty() {
                machines_by_service.insert("web".to_owned(), machines);
            }
            timeline.add_sample(*at_ns, &machines_by_service);
        }
        timeline
    }

    #[test]
    fn timeline_keeps_only_changes() {
        let timeline = timeline(&[(1, &[]), (2, &["a"]), (3, &["a"]), (4, &[]), (5, &[]), (6, &["b"])]);
        let times: Vec<u64> = timeline.changes("web").iter().map(|change| change.at_ns).collect();
        assert_eq!(times, [2, 4, 6]);
        assert_eq!(timeline.machines_running("web"), BTreeSet::from(["b".to_owned()]));
        assert!(timeline.changes("other").is_empty());
    }

    #[test]
    fn timeline_finds_starts_and_ends() {
        let timeline = timeline(&[(2, &["a"]), (4, &[]), (6, &["a"]), (8, &["a", "b"]), (9, &["b"])]);
        assert_eq!(timeline.started_on("web", "a", 0), Some(2));
        assert_eq!(timeline.started_on("web", "a", 2), Some(6));
        assert_eq!(timeline.started_on("web", "a", 6), None);
        assert_eq!(timeline.ended_on("web", "a", 5), Some(9));
        assert_eq!(timeline.ended_on("web", "b", 0), None);
    }
}
