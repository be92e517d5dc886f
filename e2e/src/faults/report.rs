//! What a campaign did and saw, as text.

use super::kind::Kind;
use crate::timeline::Change;
use std::collections::BTreeMap;
use std::fmt;

/// A time in which a service ran nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The service.
    pub service: String,
    /// When it began, in milliseconds from the first fault.
    pub at_ms: u64,
    /// How long it was.
    pub lasted_ms: u64,
}

/// The result of a campaign in which everything held.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How often each kind of fault was done.
    pub done: BTreeMap<Kind, usize>,
    /// Faults that were due when what they break was down already.
    pub impossible: usize,
    /// Machines that their watchdog reset.
    pub resets: usize,
    /// Writes that the API acknowledged; all of them were there in the end.
    pub acknowledged: u64,
    /// Writes that it refused, or that got no answer.
    pub failed: u64,
    /// From the end of the last fault until everything ran, in milliseconds.
    pub back_ms: u64,
    /// The longest time in which each service ran nowhere, longest first.
    pub gaps: Vec<Gap>,
}

impl Report {
    /// How many faults were done.
    pub fn faults(&self) -> usize {
        self.done.values().sum()
    }

    /// Takes in where a service was seen.
    pub(super) fn note_gaps(&mut self, service: &str, changes: &[Change], began_ns: u64) {
        let pairs = changes.windows(2).filter(|pair| pair[0].places.is_empty());
        let longest = pairs.max_by_key(|pair| pair[1].at_ns - pair[0].at_ns);
        if let Some([from, to]) = longest {
            self.gaps.push(Gap {
                service: service.to_owned(),
                at_ms: from.at_ns.saturating_sub(began_ns) / 1_000_000,
                lasted_ms: (to.at_ns - from.at_ns) / 1_000_000,
            });
        }
        self.gaps.sort_by_key(|gap| std::cmp::Reverse(gap.lasted_ms));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ms: u64| ms as f64 / 1e3;
        writeln!(out, "{:<36} {:>6}", "fault", "times")?;
        for (kind, times) in &self.done {
            writeln!(out, "{:<36} {times:>6}", kind.title())?;
        }
        writeln!(out, "{:<36} {:>6}", "all", self.faults())?;
        writeln!(out, "{:<36} {:>6}", "not possible when due", self.impossible)?;
        writeln!(out)?;
        writeln!(out, "resets by the watchdog: {}", self.resets)?;
        writeln!(
            out,
            "writes: {} acknowledged, all there; {} refused or unanswered",
            self.acknowledged, self.failed
        )?;
        writeln!(out, "everything back {:.1} s after the last fault", seconds(self.back_ms))?;
        for gap in &self.gaps {
            let (service, at, lasted) = (&gap.service, seconds(gap.at_ms), seconds(gap.lasted_ms));
            writeln!(out, "longest time without {service}: {lasted:.1} s, from {at:.1} s on")?;
        }
        write!(out, "never two held throughout")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_longest_gap_is_kept() {
        let change = |at_ms: u64, places: &[&str]| Change {
            at_ns: at_ms * 1_000_000,
            places: places.iter().map(|place| (*place).to_owned()).collect::<BTreeSet<_>>(),
        };
        let mut report = Report::default();
        let changes =
            [change(10, &["a"]), change(20, &[]), change(25, &["b"]), change(40, &[]), change(70, &["a"])];
        report.note_gaps("one", &changes, 5_000_000);
        report.note_gaps("none", &changes[..1], 5_000_000);
        assert_eq!(report.gaps, [Gap { service: "one".to_owned(), at_ms: 35, lasted_ms: 30 }]);
    }
}
