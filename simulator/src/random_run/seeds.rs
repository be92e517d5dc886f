//! Campaigns of many seeds on all cores. Failing seeds are reported with their violations, and the first few are shrunk.

use super::{Size, run_value, scenario_of, shrink};
use crate::world::Violation;
use ha_api_types::time::Millis;
use serde_json::Value;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A half-open range of seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// First seed.
    pub from: u64,
    /// End of the range, which is not included.
    pub to: u64,
}

impl Seeds {
    /// Parses `0..1000` or `7`.
    ///
    /// Errors: the text is not a range. The message names the accepted forms.
    pub fn parse(text: &str) -> Result<Seeds, String> {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let range = match text.split_once("..") {
            Some((from, to)) => number(from).zip(number(to)),
            None => number(text).and_then(|one| Some((one, one.checked_add(1)?))),
        };
        match range {
            Some((from, to)) if from < to => Ok(Seeds { from, to }),
            Some(_) => {
                Err(format!("{text:?} contains no seed: the end is excluded, so write A..B with A below B"))
            }
            None => Err(format!(
                "{text:?} is not a range of seeds: specify 0..1000 (the end is excluded) or one number"
            )),
        }
    }

    /// Returns the number of seeds.
    pub fn count(&self) -> u64 {
        self.to - self.from
    }
}

/// A campaign of random runs.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// Seeds to run.
    pub seeds: Seeds,
    /// Upper bounds for the size of a run.
    pub size: Size,
    /// Whether the campaign ends with the first failing seed; runs that have begun are finished.
    pub stop_at_first: bool,
    /// Number of failing seeds that are shrunk; the others keep their scenarios.
    pub shrunk: usize,
}

/// A failed seed.
#[derive(Clone, Debug)]
pub struct FailedSeed {
    /// The seed.
    pub seed: u64,
    /// Violations of the run.
    pub violations: Vec<Violation>,
    /// Generated scenario, or a smaller one that violates the same invariant, as the content of a scenario file.
    pub scenario: Value,
}

/// The results of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Campaigned {
    /// Number of seeds that were run.
    pub ran: u64,
    /// Virtual time of all runs together, in milliseconds.
    pub simulated_ms: Millis,
    /// Failed seeds, in order.
    pub failed: Vec<FailedSeed>,
}

impl Campaign {
    /// Runs all seeds on as many threads as the machine has cores. `progress` receives the number of seeds run so far,
    /// and the number of failures among them.
    ///
    /// Guarantees: the result of a seed depends only on the seed and the size.
    /// Errors: the generator made an invalid scenario, which is a defect of the generator.
    pub fn run(&self, progress: &(dyn Fn(u64, usize) + Sync)) -> Result<Campaigned, String> {
        let next = AtomicU64::new(self.seeds.from);
        let gathered = Mutex::new(Campaigned::default());
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let results: Vec<Result<(), String>> = thread::scope(|scope| {
            let workers: Vec<_> =
                (0..cores).map(|_| scope.spawn(|| self.work(&next, &gathered, progress))).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|_| Err("a run panicked".to_owned())))
                .collect()
        });
        results.into_iter().collect::<Result<Vec<()>, String>>()?;
        let mut done = gathered.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        done.failed.sort_by_key(|failed| failed.seed);
        for failed in done.failed.iter_mut().take(self.shrunk) {
            failed.scenario = shrink(&failed.scenario, 200);
        }
        Ok(done)
    }

    fn work(
        &self,
        next: &AtomicU64,
        gathered: &Mutex<Campaigned>,
        progress: &(dyn Fn(u64, usize) + Sync),
    ) -> Result<(), String> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.seeds.to {
                return Ok(());
            }
            let scenario = scenario_of(seed, self.size);
            let world = match run_value(&scenario) {
                Ok(world) => world,
                Err(problem) => {
                    next.store(self.seeds.to, Ordering::Relaxed);
                    return Err(format!("seed {seed}: {problem}"));
                }
            };
            let mut gathered = gathered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            gathered.ran += 1;
            gathered.simulated_ms += world.simulated_ms();
            if !world.is_good() {
                let violations = world.violations().to_vec();
                gathered.failed.push(FailedSeed { seed, violations, scenario });
                if self.stop_at_first {
                    next.store(self.seeds.to, Ordering::Relaxed);
                }
            }
            progress(gathered.ran, gathered.failed.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_seeds_are_read() {
        assert_eq!(Seeds::parse("0..1000"), Ok(Seeds { from: 0, to: 1000 }));
        assert_eq!(Seeds::parse("7"), Ok(Seeds { from: 7, to: 8 }));
        for wrong in ["", "a", "1..", "..2", "5..5", "6..5", "-1..3", "18446744073709551615"] {
            assert!(Seeds::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
