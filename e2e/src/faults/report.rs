//! The report of a campaign.

use super::kind::FaultKind;
use crate::timeline::Change;
use std::collections::BTreeMap;
use std::fmt;

/// A period in which a service ran on no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interruption {
    /// Name of the service.
    pub service: String,
    /// Start of the gap, in milliseconds after the first fault.
    pub at_ms: u64,
    /// Length of the gap, in milliseconds.
    pub duration_ms: u64,
}

/// The result of a campaign without a violation.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Number of injected faults by kind.
    pub injected: BTreeMap<FaultKind, usize>,
    /// Number of faults that were impossible when due, for example because the target was down.
    pub impossible: usize,
    /// Number of nodes that a watchdog reset.
    pub resets: usize,
    /// Number of writes that the API acknowledged. All of them were found at the end.
    pub acknowledged: u64,
    /// Number of writes that the API refused or did not respond to.
    pub failed: u64,
    /// Time from the end of the last fault until all services ran, in milliseconds.
    pub recovery_ms: u64,
    /// Longest gap of each service, longest first.
    pub interruptions: Vec<Interruption>,
}

impl Report {
    /// Returns the number of injected faults.
    pub fn faults(&self) -> usize {
        self.injected.values().sum()
    }

    /// Adds the longest gap of a service, from the changes that the checker saw.
    pub(super) fn add_longest_interruption(&mut self, service: &str, changes: &[Change], start_ns: u64) {
        let pairs = changes.windows(2).filter(|pair| pair[0].machines.is_empty());
        let longest = pairs.max_by_key(|pair| pair[1].at_ns - pair[0].at_ns);
        if let Some([from, to]) = longest {
            self.interruptions.push(Interruption {
                service: service.to_owned(),
                at_ms: from.at_ns.saturating_sub(start_ns) / 1_000_000,
                duration_ms: (to.at_ns - from.at_ns) / 1_000_000,
            });
        }
        self.interruptions.sort_by_key(|interruption| std::cmp::Reverse(interruption.duration_ms));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ms: u64| ms as f64 / 1e3;
        writeln!(out, "{:<36} {:>6}", "fault", "times")?;
        for (kind, times) in &self.injected {
            writeln!(out, "{:<36} {times:>6}", kind.title())?;
        }
        writeln!(out, "{:<36} {:>6}", "all", self.faults())?;
        writeln!(out, "{:<36} {:>6}", "not possible when due", self.impossible)?;
        writeln!(out)?;
        writeln!(out, "resets by the watchdog: {}", self.resets)?;
        writeln!(
            out,
            "writes: {} acknowledged, none lost; {} refused or unanswered",
            self.acknowledged, self.failed
        )?;
        writeln!(out, "cluster recovered {:.1} s after the last fault", seconds(self.recovery_ms))?;
        for interruption in &self.interruptions {
            let (service, at, lasted) =
                (&interruption.service, seconds(interruption.at_ms), seconds(interruption.duration_ms));
            writeln!(out, "longest time without {service}: {lasted:.1} s, from {at:.1} s on")?;
        }
        write!(out, "No service ran twice")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn report_keeps_the_longest_gap() {
        let change = |at_ms: u64, machines: &[&str]| Change {
            at_ns: at_ms * 1_000_000,
            machines: machines.iter().map(|machine| (*machine).to_owned()).collect::<BTreeSet<_>>(),
        };
        let mut report = Report::default();
        let changes =
            [change(10, &["a"]), change(20, &[]), change(25, &["b"]), change(40, &[]), change(70, &["a"])];
        report.add_longest_interruption("one", &changes, 5_000_000);
        report.add_longest_interruption("none", &changes[..1], 5_000_000);
        assert_eq!(
            report.interruptions,
            [Interruption { service: "one".to_owned(), at_ms: 35, duration_ms: 30 }]
        );
    }
}
