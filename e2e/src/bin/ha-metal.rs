//! The metal suite: faults done to whole machines with real watchdogs, and a table of what came of them.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use ha_e2e::metal::case::{Case, Outcome};
use ha_e2e::metal::cases::{ALL, SHORT};
use ha_e2e::metal::hardware::{Accelerator, Hardware};
use ha_e2e::metal::rig::Rig;
use ha_e2e::metal::{run, table};
use ha_e2e::plan::Plan;
use ha_e2e::scratch;

/// How often a case is run whose time says nothing because the host let a machine wait.
const ATTEMPTS: u32 = 3;

/// Does to machines what happens to machines, and judges what comes of it.
#[derive(Parser)]
struct Arguments {
    /// Timing profile: Fast, Default or Conservative; without KVM times are only judged with Conservative
    #[arg(long)]
    profile: Option<String>,
    /// Only these cases
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// The short form that ./dev/test runs
    #[arg(long, conflicts_with = "cases")]
    short: bool,
    /// List the cases and end
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match suite(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the chosen cases; tells whether all passed.
fn suite(arguments: &Arguments) -> Result<bool> {
    let chosen = chosen(arguments)?;
    if arguments.list {
        chosen.iter().try_for_each(|case| say(case.name))?;
        return Ok(true);
    }
    let hardware = Hardware::find()?;
    let profile = match (&arguments.profile, hardware.accelerator) {
        (Some(profile), _) => profile.clone(),
        (None, Accelerator::Kvm) => "Default".to_owned(),
        (None, Accelerator::Emulation) => "Conservative".to_owned(),
    };
    say(&format!("machines run by {}, profile {profile}", hardware.accelerator.name()))?;
    let mut plan = Plan::test(&scratch::folder("metal")?);
    plan.profile = profile;
    plan.hardware = Some(hardware);
    let mut rig = Rig::start(plan)?;
    say(&table::head())?;
    let mut passed = true;
    for case in &chosen {
        passed &= attempt(&mut rig, case)?.passed();
    }
    if passed {
        rig.finish()?;
        say("all cases passed")?;
    } else {
        say(&format!("not all cases passed; logs are in {}", rig.folder().display()))?;
    }
    Ok(passed)
}

/// Runs a case, again when it is void.
fn attempt(rig: &mut Rig, case: &Case) -> Result<Outcome> {
    let mut last = Outcome::default();
    for attempt in 1..=ATTEMPTS {
        last = run::run(rig, case, &format!("{}-{attempt}", case.name))?;
        say(&table::line(case, &last))?;
        // Two at once is never the host's fault.
        if last.void.is_none() || !last.two.is_empty() {
            break;
        }
    }
    Ok(last)
}

fn chosen(arguments: &Arguments) -> Result<Vec<&'static Case>> {
    let names: Vec<&str> = match arguments {
        Arguments { short: true, .. } => SHORT.to_vec(),
        Arguments { cases, .. } if !cases.is_empty() => cases.iter().map(String::as_str).collect(),
        _ => ALL.iter().map(|case| case.name).collect(),
    };
    if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|case| case.name == **name)) {
        let all: Vec<&str> = ALL.iter().map(|case| case.name).collect();
        bail!("no case is called {unknown}; there are {}", all.join(", "));
    }
    Ok(ALL.iter().filter(|case| names.contains(&case.name)).collect())
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("standard output is closed")
}
