//! Campaigns of many seeds on all cores. Failing seeds are reported with their violations, and the first few are shrunk.

use super::{Size, generate_scenario, run_scenario_value, shrink};
use crate::world::Violation;
use ha_api_types::time::Millis;
use serde_json::Value;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A half-open range of seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedRange {
    /// First seed.
    pub from: u64,
    /// End of the range, which is not included.
    pub to: u64,
}

impl SeedRange {
    /// Parses `0..1000` or `7`.
    ///
    /// Errors: the text is not a range. The message names the accepted forms.
    pub fn parse(text: &str) -> Result<SeedRange, String> {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let range = match text.split_once("..") {
            Some((from, to)) => number(from).zip(number(to)),
            None => number(text).and_then(|seed| Some((seed, seed.checked_add(1)?))),
        };
        match range {
            Some((from, to)) if from < to => Ok(SeedRange { from, to }),
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
    /// Seeds, each of which generates one run.
    pub seeds: SeedRange,
    /// Upper bounds for the size of a run.
    pub size: Size,
    /// `true` if the campaign ends with the first failing seed; runs that have begun are finished.
    pub stop_at_first_failure: bool,
    /// Number of failing seeds that are shrunk; the others keep their scenarios.
    pub max_shrunk_seeds: usize,
}

/// A seed with a failed run, and the scenario that reproduces the failure.
#[derive(Clone, Debug)]
pub struct FailedSeed {
    /// Seed that reproduces the failure.
    pub seed: u64,
    /// Violations of the run.
    pub violations: Vec<Violation>,
    /// Generated scenario, or a smaller scenario that violates the same invariant, as the content of a scenario file.
    pub scenario: Value,
}

/// The results of a campaign.
#[derive(Clone, Debug, Default)]
pub struct CampaignResult {
    /// Number of seeds that were run.
    pub seeds_run: u64,
    /// Virtual time of all runs together, in milliseconds.
    pub simulated_ms: Millis,
    /// Failed seeds, in order.
    pub failed: Vec<FailedSeed>,
}

impl Campaign {
    /// Runs all seeds on as many threads as the machine has cores. `progress` receives the number of finished seeds,
    /// and the number of failures among them.
    ///
    /// Guarantees: the result of a seed depends only on the seed and the size.
    /// Errors: the generator made an invalid scenario, which is a defect of the generator.
    pub fn run(&self, progress: &(dyn Fn(u64, usize) + Sync)) -> Result<CampaignResult, String> {
        let next_seed = AtomicU64::new(self.seeds.from);
        let shared_result = Mutex::new(CampaignResult::default());
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let results: Vec<Result<(), String>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..cores)
                .map(|_| scope.spawn(|| self.run_seeds(&next_seed, &shared_result, progress)))
                .collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|_| Err("a run panicked".to_owned())))
                .collect()
        });
        results.into_iter().collect::<Result<Vec<()>, String>>()?;
        let mut result = shared_result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        result.failed.sort_by_key(|failed| failed.seed);
        for failed in result.failed.iter_mut().take(self.max_shrunk_seeds) {
            failed.scenario = shrink(&failed.scenario, 200);
        }
        Ok(result)
    }

    fn run_seeds(
        &self,
        next_seed: &AtomicU64,
        shared_result: &Mutex<CampaignResult>,
        progress: &(dyn Fn(u64, usize) + Sync),
    ) -> Result<(), String> {
        loop {
            let seed = next_seed.fetch_add(1, Ordering::Relaxed);
            if seed >= self.seeds.to {
                return Ok(());
            }
            let scenario = generate_scenario(seed, self.size);
            let world = match run_scenario_value(&scenario) {
                Ok(world) => world,
                Err(problem) => {
                    next_seed.store(self.seeds.to, Ordering::Relaxed);
                    return Err(format!("seed {seed}: {problem}"));
                }
            };
            let mut shared_result = shared_result.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            shared_result.seeds_run += 1;
            shared_result.simulated_ms += world.simulated_ms();
            if !world.has_passed() {
                let violations = world.violations().to_vec();
                shared_result.failed.push(FailedSeed { seed, violations, scenario });
                if self.stop_at_first_failure {
                    next_seed.store(self.seeds.to, Ordering::Relaxed);
                }
            }
            progress(shared_result.seeds_run, shared_result.failed.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_ranges_and_single_seeds_are_parsed() {
        assert_eq!(SeedRange::parse("0..1000"), Ok(SeedRange { from: 0, to: 1000 }));
        assert_eq!(SeedRange::parse("7"), Ok(SeedRange { from: 7, to: 8 }));
        for invalid in ["", "a", "1..", "..2", "5..5", "6..5", "-1..3", "18446744073709551615"] {
            assert!(SeedRange::parse(invalid).is_err(), "{invalid:?}");
        }
    }
}
