//! The metal suite: injects faults into whole machines with real watchdogs and prints a table of the outcomes.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use ha_e2e::metal::case::{Case, Outcome};
use ha_e2e::metal::cases::{ALL, SHORT};
use ha_e2e::metal::hardware::{Accelerator, Hardware, Watchdog};
use ha_e2e::metal::rig::Rig;
use ha_e2e::metal::{measure, run, table};
use ha_e2e::plan::Plan;
use ha_e2e::program::{end, number, say};
use ha_e2e::scratch;
use ha_e2e::wait::monotonic_ns;

/// Inject failures into virtual machines and check the results
#[derive(Parser)]
struct Arguments {
    /// Timing profile: Fast, Default or Conservative
    ///
    /// Without KVM, times are checked only with Conservative.
    #[arg(long)]
    profile: Option<String>,
    /// Names of the cases to run
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Run each case once, as ./dev/test does
    ///
    /// Times that the host distorted are not checked.
    #[arg(long, conflicts_with = "cases")]
    short: bool,
    /// Also run one case, chosen by this text, such as a commit hash
    #[arg(long, value_name = "TEXT", requires = "short")]
    drawn: Option<String>,
    /// Maximum number of attempts for a case whose times the host distorted
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3))]
    attempts: u32,
    /// Only measure the reset time of each kind of watchdog, this many times
    #[arg(long, value_name = "TIMES", conflicts_with_all = ["cases", "short", "list"], value_parser = clap::value_parser!(u32).range(1..))]
    measure: Option<u32>,
    /// List the cases
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let passed = suite(&Arguments::parse());
    end("error", passed.map(|passed| if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Runs the chosen cases; returns `true` if all passed.
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
    say(&format!("virtual machines: {}, profile {profile}", hardware.accelerator.name()))?;
    if !hardware.accelerator.times_count(&profile) {
        say("Times are not checked: emulated machines are too slow for this profile")?;
    }
    let mut rig = start(&profile, &hardware)?;
    if let Some(times) = arguments.measure {
        return measured(rig, times);
    }
    say(&table::head())?;
    let mut passed = true;
    for case in &chosen {
        let attempts = if arguments.short { 1 } else { arguments.attempts };
        let (outcome, usable) = attempt(&mut rig, case, attempts)?;
        passed &= if arguments.short { outcome.held() } else { outcome.passed() };
        if !usable {
            // The cluster may be in any state, so the next case gets a new one. The logs stay.
            say(&format!("    logs: {}; starting a new cluster for the next case", rig.folder().display()))?;
            drop(rig);
            rig = start(&profile, &hardware)?;
        }
    }
    if passed {
        rig.finish()?;
        say("All cases passed")?;
    } else {
        say(&format!("Some cases failed; logs: {}", rig.folder().display()))?;
    }
    Ok(passed)
}

/// Measures each kind of watchdog `times` times.
fn measured(rig: Rig, times: u32) -> Result<bool> {
    for watchdog in [Watchdog::Softdog, Watchdog::I6300esb] {
        let name = |turn: u32| format!("measure-{}-{turn}", watchdog.module());
        let measures: Vec<_> =
            (1..=times).map(|turn| measure::measure(&rig, watchdog, &name(turn))).collect::<Result<_>>()?;
        say(&measure::line(watchdog, &measures))?;
    }
    rig.finish()?;
    Ok(true)
}

/// Starts a cluster of machines in its own directory.
fn start(profile: &str, hardware: &Hardware) -> Result<Rig> {
    let name = format!("metal-{}", monotonic_ns() / 1_000_000_000);
    let mut plan = Plan::test(&scratch::folder(&name)?);
    profile.clone_into(&mut plan.profile);
    plan.hardware = Some(hardware.clone());
    Rig::start(plan)
}

/// Runs a case, and repeats it if its times are invalid. Also returns `true` if the cluster can run another case.
fn attempt(rig: &mut Rig, case: &Case, attempts: u32) -> Result<(Outcome, bool)> {
    let mut last = Outcome::default();
    for attempt in 1..=attempts {
        let ran = run::run(rig, case, &format!("{}-{attempt}", case.name));
        let usable = ran.is_ok();
        last = ran
            .unwrap_or_else(|error| Outcome { failures: vec![format!("{error:#}")], ..Outcome::default() });
        say(&table::line(case, &last))?;
        if !usable {
            return Ok((last, false));
        }
        // A service that ran twice at the same time is never the host's fault.
        if last.void.is_none() || !last.two.is_empty() {
            break;
        }
    }
    Ok((last, true))
}

/// Returns a case outside the short form, chosen by the hash of a text.
fn further(text: &str) -> Option<&'static str> {
    let others: Vec<&str> = ALL.iter().map(|case| case.name).filter(|name| !SHORT.contains(name)).collect();
    others.get(usize::try_from(number(text) % u64::try_from(others.len()).ok()?.max(1)).ok()?).copied()
}

fn chosen(arguments: &Arguments) -> Result<Vec<&'static Case>> {
    let names: Vec<&str> = match arguments {
        Arguments { short: true, drawn, .. } => {
            SHORT.iter().copied().chain(drawn.as_deref().and_then(further)).collect()
        }
        Arguments { cases, .. } if !cases.is_empty() => cases.iter().map(String::as_str).collect(),
        _ => ALL.iter().map(|case| case.name).collect(),
    };
    if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|case| case.name == **name)) {
        let all: Vec<&str> = ALL.iter().map(|case| case.name).collect();
        bail!("case {unknown} not found; cases: {}", all.join(", "));
    }
    Ok(ALL.iter().filter(|case| names.contains(&case.name)).collect())
}
