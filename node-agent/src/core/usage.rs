//! Usage figures from samples: rates over about a minute, and the changes that are large enough to be written.

use ha_api_types::quantity::Quantity;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_api_types::usage::Usage;
use std::collections::VecDeque;

/// Longest window of a rate.
pub(super) const RATE_WINDOW_MS: Millis = 60_000;
/// Shortest interval between two samples that makes a rate.
const MIN_RATE_INTERVAL_MS: Millis = 1_000;
/// A figure is written again if it has changed by more than the written value divided by this number, and also by more
/// than an absolute amount.
const MIN_CHANGE_DIVISOR: i128 = 5;
/// Absolute amount for CPU: 0.05 cores.
const MIN_CHANGE_CPU: Quantity = Quantity::from_milli(50);
/// Absolute amount for memory: 32 MiB.
const MIN_CHANGE_MEMORY: Quantity = Quantity::from_units(32 << 20);
/// Absolute amount for rates: 1 MiB per second.
const MIN_CHANGE_RATE: Quantity = Quantity::from_units(1 << 20);

/// The usage of a service or of the machine at one moment. Figures that could not be read are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Time of the reading, on this machine's monotonic clock.
    pub at: MonotonicTime,
    /// Processor time, microseconds.
    pub cpu: Option<Meter>,
    /// Memory in use, bytes.
    pub memory: Option<u64>,
    /// Bytes read from and written to disks.
    pub disk: Option<Meter>,
    /// Bytes received and sent over the network.
    pub network: Option<Meter>,
}

/// The reading of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// Total so far. The total only grows, until the counter restarts.
    Total(u64),
    /// Amount per second.
    Rate(u64),
}

/// The samples of the last minute, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    samples: VecDeque<Sample>,
}

impl History {
    /// Adds a sample. A sample that is not newer than the last one is ignored.
    pub(super) fn push(&mut self, sample: Sample) {
        if let Some(last) = self.samples.back() {
            if sample.at <= last.at {
                return;
            }
            if has_counter_reset(last, &sample) {
                self.samples.clear();
            }
        }
        self.samples.push_back(sample);
        // The oldest sample kept is the last one that is a whole window old, so the window is full.
        while self.samples.get(1).is_some_and(|next| sample.at.since(next.at) >= RATE_WINDOW_MS) {
            self.samples.pop_front();
        }
    }

    /// Returns the figures as of the newest sample.
    pub(super) fn usage(&self) -> Usage {
        let Some(newest) = self.samples.back() else { return Usage::default() };
        let bytes =
            |count: u64, unit: u64| Quantity::from_units(i128::from(count.div_ceil(unit)) * i128::from(unit));
        Usage {
            cpu: self.rate(|sample| sample.cpu).map(|us| Quantity::from_milli(i128::from(us.div_ceil(1000)))),
            memory: newest.memory.map(|memory| bytes(memory, 1 << 20)),
            disk_rate: self.rate(|sample| sample.disk).map(|rate| bytes(rate, 1 << 10)),
            network_rate: self.rate(|sample| sample.network).map(|rate| bytes(rate, 1 << 10)),
        }
    }

    /// Returns the amount per second; `None` if the amount is missing in the last sample, or if the samples span too
    /// short a time.
    fn rate(&self, pick: fn(&Sample) -> Option<Meter>) -> Option<u64> {
        let newest = self.samples.back()?;
        let now = match pick(newest)? {
            Meter::Rate(rate) => return Some(rate),
            Meter::Total(total) => total,
        };
        let (oldest, oldest_total) = self.samples.iter().find_map(|sample| match pick(sample)? {
            Meter::Total(total) => Some((sample, total)),
            Meter::Rate(_) => None,
        })?;
        let passed_ms = newest.at.since(oldest.at);
        if passed_ms < MIN_RATE_INTERVAL_MS {
            return None;
        }
        let per_second = u128::from(now.saturating_sub(oldest_total)) * 1000 / u128::from(passed_ms);
        Some(u64::try_from(per_second).unwrap_or(u64::MAX))
    }
}

/// Returns `true` if a counter has decreased, which means that it was restarted.
fn has_counter_reset(last: &Sample, sample: &Sample) -> bool {
    let has_decreased = |before: Option<Meter>, now: Option<Meter>| match (before, now) {
        (Some(Meter::Total(before)), Some(Meter::Total(now))) => now < before,
        (Some(Meter::Rate(_)) | None, _) | (_, Some(Meter::Rate(_)) | None) => false,
    };
    has_decreased(last.cpu, sample.cpu)
        || has_decreased(last.disk, sample.disk)
        || has_decreased(last.network, sample.network)
}

/// Returns `true` if a figure differs enough from the written figure to be written.
pub(super) fn has_changed_enough(reported: &Usage, measured: &Usage) -> bool {
    amount_changed_enough(reported.cpu, measured.cpu, MIN_CHANGE_CPU)
        || amount_changed_enough(reported.memory, measured.memory, MIN_CHANGE_MEMORY)
        || amount_changed_enough(reported.disk_rate, measured.disk_rate, MIN_CHANGE_RATE)
        || amount_changed_enough(reported.network_rate, measured.network_rate, MIN_CHANGE_RATE)
}

fn amount_changed_enough(
    reported: Option<Quantity>,
    measured: Option<Quantity>,
    min_change: Quantity,
) -> bool {
    match (reported, measured) {
        (Some(before), Some(now)) => {
            let change_milli = now.milli().saturating_sub(before.milli()).saturating_abs();
            change_milli > min_change.milli() && change_milli > before.milli() / MIN_CHANGE_DIVISOR
        }
        (None, None) => false,
        (None, Some(_)) | (Some(_), None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, cpu: Meter, memory: u64) -> Sample {
        Sample { at: MonotonicTime(at_ms), cpu: Some(cpu), memory: Some(memory), ..Sample::default() }
    }

    fn check(samples: &[Sample], cpu: Option<i128>, memory: Option<i128>) {
        let mut history = History::default();
        for sample in samples {
            history.push(*sample);
        }
        let usage = history.usage();
        assert_eq!(usage.cpu.map(Quantity::milli), cpu, "{samples:?}");
        assert_eq!(usage.memory.map(|memory| memory.units() >> 20), memory, "{samples:?}");
    }

    #[test]
    fn cpu_rate_needs_two_samples() {
        use Meter::{Rate, Total};
        check(&[], None, None);
        check(&[sample(1_000, Total(5_000_000), 1 << 30)], None, Some(1024));
        check(&[sample(1_000, Total(5_000_000), 0), sample(1_500, Total(6_000_000), 0)], None, Some(0));
        // One and a half cores for two seconds.
        check(&[sample(1_000, Total(5_000_000), 0), sample(3_000, Total(8_000_000), 1)], Some(1500), Some(1));
        check(&[sample(1_000, Rate(2_000_000), 4 << 30)], Some(2000), Some(4096));
        // A sample of the same or an earlier time is ignored.
        let first_sample = sample(3_000, Total(1_000_000), 0);
        check(
            &[first_sample, sample(3_000, Total(9_000_000), 0), sample(2_000, Total(9_000_000), 0)],
            None,
            Some(0),
        );
    }

    #[test]
    fn counter_reset_starts_a_new_rate() {
        use Meter::Total;
        let samples_before = [sample(0, Total(60_000_000), 0), sample(15_000, Total(75_000_000), 0)];
        check(&samples_before, Some(1000), Some(0));
        let sample_after_reset = sample(30_000, Total(100_000), 0);
        check(&[samples_before[0], samples_before[1], sample_after_reset], None, Some(0));
        check(
            &[samples_before[0], samples_before[1], sample_after_reset, sample(40_000, Total(5_100_000), 0)],
            Some(500),
            Some(0),
        );
    }

    #[test]
    fn usage_rate_is_averaged_over_one_minute() {
        // Idle for ten minutes, then one core for fifteen seconds: a quarter of a core in the last minute.
        let mut samples: Vec<Sample> =
            (0..40).map(|number| sample(number * 15_000, Meter::Total(0), 0)).collect();
        samples.push(sample(40 * 15_000, Meter::Total(15_000_000), 0));
        check(&samples, Some(250), Some(0));
        let mut history = History::default();
        for sample in samples {
            history.push(sample);
        }
        assert_eq!(history.samples.len(), 5, "no more is kept than is needed");
    }

    #[test]
    fn usage_is_reported_after_significant_change() {
        let check = |reported: Option<i128>, measured: Option<i128>, expected: bool| {
            let milli = |amount: Option<i128>| amount.map(Quantity::from_milli);
            assert_eq!(
                amount_changed_enough(milli(reported), milli(measured), MIN_CHANGE_CPU),
                expected,
                "{reported:?} {measured:?}"
            );
        };
        check(None, None, false);
        check(None, Some(10), true);
        check(Some(10), None, true);
        // A change of 0.05 cores is too small, even if it is a large share of the figure.
        check(Some(10), Some(60), false);
        check(Some(10), Some(61), true);
        // A change of 20 % of a large value counts.
        check(Some(4000), Some(4800), false);
        check(Some(4000), Some(4801), true);
        check(Some(4000), Some(3199), true);
        check(Some(4000), Some(0), true);
        // The figures in etcd may have any value.
        check(Some(i128::MIN), Some(i128::MAX), true);
    }
}
