//! Draws Grafana's dashboards: starts a cluster and a Prometheus, causes events, runs every query and draws the results.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use ha_e2e::dashboard::history;
use ha_e2e::dashboard::model::Dashboard;
use ha_e2e::dashboard::picture::draw;
use ha_e2e::dashboard::rig::Rig;
use ha_e2e::program::{end, say};
use ha_e2e::scratch;

/// Number of events, which spreads them over the available time.
const EVENTS: u32 = 8;

/// Run all queries of manifests/grafana and draw the dashboards
#[derive(Parser)]
struct Arguments {
    /// Duration of the simulated events
    #[arg(long, default_value_t = 8)]
    minutes: u32,
    /// Target directory of the pictures
    #[arg(long)]
    pictures: PathBuf,
}

fn main() -> ExitCode {
    end("error", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let pause = Duration::from_secs(60 * u64::from(arguments.minutes)) / EVENTS;
    let dashboards = Dashboard::all()?;
    let mut rig = Rig::start(&scratch::folder("pictures")?, 2)?;
    say("Cluster started and scraped; running events")?;
    let chosen = history::happen(&mut rig, pause)?;
    thread::sleep(pause);
    history::recover(&mut rig, &chosen)?;
    thread::sleep(pause);
    let asker = rig.asker(150);
    fs::create_dir_all(&arguments.pictures).with_context(|| arguments.pictures.display().to_string())?;
    let mut missing = Vec::new();
    for (name, dashboard) in &dashboards {
        let answers = asker.ask(dashboard, &chosen)?;
        let path = arguments.pictures.join(format!("dashboard-{name}.svg"));
        fs::write(&path, draw(dashboard, &answers, asker.span))
            .with_context(|| path.display().to_string())?;
        say(&path.display().to_string())?;
        missing.extend(answers.missing);
    }
    rig.finish()?;
    if !missing.is_empty() {
        bail!("queries without a result:\n{}", missing.join("\n"));
    }
    Ok(())
}
