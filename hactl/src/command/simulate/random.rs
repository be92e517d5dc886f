//! `hactl simulate --random`: runs random clusters with random faults, and shrinks failing seeds.

use crate::failure::{Exit, Failure, Outcome};
use crate::render::{self, Format};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::names;
use ha_simulator::random_run::{Campaign, CampaignResult, FailedSeed, SeedRange, Size};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of failing seeds that are shrunk. Shrinking takes as long as hundreds of seeds, so the others are only listed.
const MAX_SHRUNK_SEEDS: usize = 3;
/// Largest number of nodes or resources of a random run.
const MAX_COUNT: u32 = 1_000;
/// Longest simulated duration of a random run.
const MAX_DURATION: Duration = Duration::from_secs(1_000 * 3600);

/// Flags of random runs.
#[derive(Args, Debug)]
pub(crate) struct RandomFlags {
    /// Seeds to run: a number, or a range that excludes its end
    #[arg(long, value_name = "A..B", requires = "random", default_value = "0..100")]
    seeds: String,
    /// Maximum number of nodes of a run
    #[arg(long, value_name = "COUNT", requires = "random", default_value_t = 5)]
    nodes: u32,
    /// Maximum number of resources of a run
    #[arg(long, value_name = "COUNT", requires = "random", default_value_t = 20)]
    resources: u32,
    /// Maximum simulated duration of the faults of a run
    #[arg(long, value_name = "DURATION", requires = "random", default_value = "4h", value_parser = crate::duration::parse)]
    duration: Duration,
    /// The same as --duration, as a number of hours
    #[arg(long, value_name = "COUNT", requires = "random", conflicts_with = "duration", hide = true)]
    hours: Option<f64>,
}

impl RandomFlags {
    pub(super) fn run(&self, session: &Session, format: Option<&Format>) -> Outcome {
        let campaign = self.campaign()?;
        let count = campaign.seeds.count();
        let reported_percent = AtomicU64::new(0);
        let terminal = session.terminal();
        let progress = |ran: u64, failed: usize| {
            let percent = ran * 100 / count.max(1);
            if reported_percent.fetch_max(percent, Ordering::Relaxed) / 5 < percent / 5 {
                terminal.progress(&format!("{ran} of {count} seeds, {failed} failed"));
            }
        };
        let result = campaign
            .run(&progress)
            .map_err(|problem| Failure::failed(format!("the random generator failed: {problem}")))?;
        if !session.print_value(format, &summary(campaign.seeds, &result))? {
            terminal.print(&text(session, &result)?);
        }
        Ok(if result.failed.is_empty() { Exit::Done } else { Exit::Failed })
    }

    fn campaign(&self) -> Result<Campaign, Failure> {
        let seeds =
            SeedRange::parse(&self.seeds).map_err(|problem| Failure::usage(format!("--seeds: {problem}")))?;
        let number = |flag: &str, value: u32| match value {
            1..=MAX_COUNT => Ok(value as usize),
            _ => Err(Failure::usage(format!("{flag}: {value} must be from 1 to {MAX_COUNT}"))),
        };
        let duration = match self.hours {
            None => self.duration,
            Some(hours) => Duration::try_from_secs_f64(hours * 3_600.0)
                .map_err(|problem| Failure::usage(format!("--hours: {problem}")))?,
        };
        if duration.is_zero() || duration > MAX_DURATION {
            return Err(Failure::usage("--duration must be greater than 0 and at most 1000h"));
        }
        let size = Size {
            nodes: number("--nodes", self.nodes)?,
            resources: number("--resources", self.resources)?,
            faults_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1_000),
        };
        Ok(Campaign { seeds, size, stop_at_first_failure: false, max_shrunk_seeds: MAX_SHRUNK_SEEDS })
    }
}

fn hours(result: &CampaignResult) -> f64 {
    result.simulated_ms as f64 / 3_600_000.0
}

fn summary(seeds: SeedRange, result: &CampaignResult) -> Value {
    let violations = |failed: &FailedSeed| -> Vec<Value> {
        let document = |at: u64, invariant: &str, detail: &str| json!({"at": at as f64 / 1000.0, "invariant": invariant, "detail": detail});
        failed
            .violations
            .iter()
            .map(|violation| document(violation.at, violation.invariant, &violation.detail))
            .collect()
    };
    let failed: Vec<Value> = result
        .failed
        .iter()
        .map(|failed| json!({"seed": failed.seed, "violations": violations(failed), "scenario": failed.scenario}))
        .collect();
    json!({
        "seeds": {"from": seeds.from, "to": seeds.to}, "ran": result.seeds_run, "simulatedHours": hours(result),
        "failed": failed,
    })
}

/// Returns every failing seed as a scenario file, with other output as comments, so that standard output is a valid file.
fn text(session: &Session, result: &CampaignResult) -> Result<String, Failure> {
    let terminal = session.terminal();
    let mut text = String::new();
    for (index, failed) in result.failed.iter().enumerate() {
        let first_violation = failed.violations.first();
        let violation_text = first_violation.map_or_else(String::new, |violation| {
            format!("{} at {} s: {}", violation.invariant, violation.at as f64 / 1000.0, violation.detail)
        });
        text +=
            &format!("# seed {}: {}: {violation_text}\n", failed.seed, terminal.paint(Style::Bad, "failed"));
        if index < MAX_SHRUNK_SEEDS {
            text += &format!("{}---\n", render::yaml(&failed.scenario)?);
        }
    }
    let count = result.failed.len();
    let (style, seeds) = (if count == 0 { Style::Good } else { Style::Bad }, result.seeds_run);
    let verdict = terminal.paint(style, &format!("{count} failed"));
    text += &format!(
        "# {}, {verdict}; {:.1} simulated hours\n",
        names::count_with_noun(seeds, "seed"),
        hours(result)
    );
    Ok(text)
}
