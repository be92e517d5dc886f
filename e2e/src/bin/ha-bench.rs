//! Benchmark of failover and start times: median, minimum and maximum, compared with the limits that the timing settings imply.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use ha_e2e::measure::{NodeLoss, Series, apply_to_running, crash_to_running, loss_to_running};
use ha_e2e::plan::Plan;
use ha_e2e::program::{exit_code_of, print_line};
use ha_e2e::scenario::Scenario;
use ha_e2e::scratch;
use serde_json::json;

/// Measure failover and start times of a cluster on this host
#[derive(Parser)]
struct Arguments {
    /// Timing profiles to measure
    #[arg(long, value_delimiter = ',', default_value = "Fast,Default")]
    profiles: Vec<String>,
    /// Number of measurements of each kind of node failure
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Number of measurements of each other operation
    #[arg(long, default_value_t = 15)]
    quick_rounds: usize,
    /// File to which the measurements are written as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit_code_of("error", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut profile_results = Vec::new();
    for profile in &arguments.profiles {
        let mut plan = Plan::test(&scratch::directory(&format!("bench-{profile}"))?);
        plan.profile.clone_from(profile);
        print_line(&format!("profile {profile}"))?;
        print_line(&format!(
            "{:<66} {:>8} {:>8} {:>8} {:>8} {:>6}",
            "seconds", "median", "min", "max", "allowed", "ratio"
        ))?;
        let mut scenario = Scenario::start_with(plan)?;
        let mut measured = Vec::new();
        print_and_collect(&mut measured, apply_to_running(&scenario, arguments.quick_rounds)?)?;
        print_and_collect(&mut measured, crash_to_running(&scenario, arguments.quick_rounds)?)?;
        // Losses with fence devices come last, because configured devices would also fence the nodes of all later
        // losses.
        for loss in
            [NodeLoss::Power, NodeLoss::Network, NodeLoss::PowerAndLeader, NodeLoss::NetworkWithFenceDevice]
        {
            print_and_collect(&mut measured, loss_to_running(&mut scenario, loss, arguments.rounds)?)?;
        }
        scenario.finish()?;
        print_line("No service ran twice\n")?;
        profile_results.push(
            json!({"profile": profile, "series": measured.iter().map(series_json).collect::<Vec<_>>()}),
        );
    }
    if let Some(path) = &arguments.json {
        std::fs::write(path, serde_json::to_vec_pretty(&profile_results)?)
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn print_and_collect(measured: &mut Vec<Series>, series: Vec<Series>) -> Result<()> {
    for measured_series in &series {
        let Some((min, median, max)) = measured_series.summary() else { continue };
        let (allowed, ratio) = match measured_series.allowed_ms {
            Some(allowed) => (format!("{:.2}", allowed / 1e3), format!("{:.2}", median / allowed)),
            None => ("-".to_owned(), "-".to_owned()),
        };
        print_line(&format!(
            "{:<66} {:>8.2} {:>8.2} {:>8.2} {allowed:>8} {ratio:>6}",
            measured_series.name,
            median / 1e3,
            min / 1e3,
            max / 1e3
        ))?;
    }
    measured.extend(series);
    Ok(())
}

fn series_json(series: &Series) -> serde_json::Value {
    let (min, median, max) = series.summary().unwrap_or_default();
    json!({"name": series.name, "allowedMs": series.allowed_ms, "timesMs": series.times_ms,
        "minMs": min, "medianMs": median, "maxMs": max})
}
