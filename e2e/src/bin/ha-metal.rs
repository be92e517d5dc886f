//! The metal suite: injects faults into whole machines with real watchdogs and prints a table of the outcomes.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use ha_e2e::plan::Plan;
use ha_e2e::program::{exit_code_of_suite, fnv1a_hash, print_line};
use ha_e2e::qemu_nodes::case::{Case, Outcome};
use ha_e2e::qemu_nodes::cases::{ALL, SHORT};
use ha_e2e::qemu_nodes::hardware::{Accelerator, Hardware, Watchdog};
use ha_e2e::qemu_nodes::rig::Rig;
use ha_e2e::qemu_nodes::{measure, run, table};
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
    exit_code_of_suite(run_suite(&Arguments::parse()))
}

/// Runs the chosen cases; returns `true` if all passed.
fn run_suite(arguments: &Arguments) -> Result<bool> {
    let cases = selected_cases(arguments)?;
    if arguments.list {
        cases.iter().try_for_each(|case| print_line(case.name))?;
        return Ok(true);
    }
    let hardware = Hardware::find()?;
    let profile = match (&arguments.profile, hardware.accelerator) {
        (Some(profile), _) => profile.clone(),
        (None, Accelerator::Kvm) => "Default".to_owned(),
        (None, Accelerator::Emulation) => "Conservative".to_owned(),
    };
    print_line(&format!("virtual machines: {}, profile {profile}", hardware.accelerator.name()))?;
    if !hardware.accelerator.are_times_checked(&profile) {
        print_line("Times are not checked: emulated machines are too slow for this profile")?;
    }
    let mut rig = start(&profile, &hardware)?;
    if let Some(times) = arguments.measure {
        return measure_watchdogs(rig, times);
    }
    print_line(&table::header())?;
    let mut passed = true;
    for case in &cases {
        let attempts = if arguments.short { 1 } else { arguments.attempts };
        let (outcome, usable) = run_with_retries(&mut rig, case, attempts)?;
        passed &= if arguments.short { outcome.meets_requirements() } else { outcome.has_passed() };
        if !usable {
            // The cluster may be in any state, so the next case gets a new cluster. The logs stay.
            print_line(&format!(
                "    logs: {}; starting a new cluster for the next case",
                rig.directory().display()
            ))?;
            drop(rig);
            rig = start(&profile, &hardware)?;
        }
    }
    if passed {
        rig.finish()?;
        print_line("All cases passed")?;
    } else {
        print_line(&format!("Some cases failed; logs: {}", rig.directory().display()))?;
    }
    Ok(passed)
}

/// Measures each kind of watchdog `times` times.
fn measure_watchdogs(rig: Rig, times: u32) -> Result<bool> {
    for watchdog in [Watchdog::Softdog, Watchdog::I6300esb] {
        let name = |round: u32| format!("measure-{}-{round}", watchdog.module());
        let measures: Vec<_> =
            (1..=times).map(|round| measure::measure(&rig, watchdog, &name(round))).collect::<Result<_>>()?;
        print_line(&measure::line(watchdog, &measures))?;
    }
    rig.finish()?;
    Ok(true)
}

/// Starts a cluster of machines in its own directory.
fn start(profile: &str, hardware: &Hardware) -> Result<Rig> {
    let name = format!("metal-{}", monotonic_ns() / 1_000_000_000);
    let mut plan = Plan::test(&scratch::directory(&name)?);
    profile.clone_into(&mut plan.profile);
    plan.hardware = Some(hardware.clone());
    Rig::start(plan)
}

/// Runs a case, and repeats it if its times are invalid. Also returns `true` if the cluster can run another case.
fn run_with_retries(rig: &mut Rig, case: &Case, attempts: u32) -> Result<(Outcome, bool)> {
    let mut last = Outcome::default();
    for attempt in 1..=attempts {
        let result = run::run(rig, case, &format!("{}-{attempt}", case.name));
        let usable = result.is_ok();
        last = result
            .unwrap_or_else(|error| Outcome { failures: vec![format!("{error:#}")], ..Outcome::default() });
        print_line(&table::line(case, &last))?;
        if !usable {
            return Ok((last, false));
        }
        // A service that ran twice at the same time is never the host's fault.
        if last.invalid_reason.is_none() || !last.double_runs.is_empty() {
            break;
        }
    }
    Ok((last, true))
}

/// Returns a case outside the short form, chosen by the hash of a text.
fn drawn_case(text: &str) -> Option<&'static str> {
    let candidates: Vec<&str> =
        ALL.iter().map(|case| case.name).filter(|name| !SHORT.contains(name)).collect();
    candidates
        .get(usize::try_from(fnv1a_hash(text) % u64::try_from(candidates.len()).ok()?.max(1)).ok()?)
        .copied()
}

fn selected_cases(arguments: &Arguments) -> Result<Vec<&'static Case>> {
    let names: Vec<&str> = match arguments {
        Arguments { short: true, drawn, .. } => {
            SHORT.iter().copied().chain(drawn.as_deref().and_then(drawn_case)).collect()
        }
        Arguments { cases, .. } if !cases.is_empty() => cases.iter().map(String::as_str).collect(),
        _ => ALL.iter().map(|case| case.name).collect(),
    };
    if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|case| case.name == **name)) {
        let case_names: Vec<&str> = ALL.iter().map(|case| case.name).collect();
        bail!("case {unknown} not found; cases: {}", case_names.join(", "));
    }
    Ok(ALL.iter().filter(|case| names.contains(&case.name)).collect())
}
