//! The libvirt suite: guests live-migrate between real libvirt daemons while nodes, agents and daemons are killed.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Parser;
use ha_e2e::libvirt::cases::{ALL, Case, SHORT};
use ha_e2e::libvirt::rig::Rig;
use ha_e2e::program::{exit_code_of_suite, print_line};

/// Migrate virtual machines and inject node failures
#[derive(Parser)]
struct Arguments {
    /// Names of the cases to run
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Run the short form, as ./dev/test does
    #[arg(long, conflicts_with = "cases")]
    short: bool,
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
        cases.iter().try_for_each(|case| print_line(&format!("{:20} {}", case.name, case.requirement)))?;
        return Ok(true);
    }
    let (mut passed, mut failed) = (0, 0);
    let mut rig = Rig::start()?;
    for case in cases {
        let begin = Instant::now();
        let outcome = (case.run)(&mut rig);
        let seconds = begin.elapsed().as_secs();
        match outcome {
            Ok(()) => {
                passed += 1;
                print_line(&format!("{:20} {seconds:4} s  {}", case.name, case.requirement))?;
            }
            Err(error) => {
                failed += 1;
                print_line(&format!("{:20} {seconds:4} s  FAILED: {error:#}", case.name))?;
                print_line(&format!(
                    "    logs: {}; starting a new cluster for the next case",
                    rig.directory().display()
                ))?;
                // The cluster may be in any state, so the next case gets a new cluster.
                drop(rig);
                rig = Rig::start()?;
            }
        }
    }
    rig.finish()?;
    // The format is the same as cargo's, for scripts that count results.
    print_line(&format!("test result: {passed} passed; {failed} failed"))?;
    Ok(failed == 0)
}

fn selected_cases(arguments: &Arguments) -> Result<Vec<&'static Case>> {
    let names: Vec<&str> = match arguments {
        Arguments { short: true, .. } => SHORT.to_vec(),
        Arguments { cases, .. } if !cases.is_empty() => cases.iter().map(String::as_str).collect(),
        _ => ALL.iter().map(|case| case.name).collect(),
    };
    if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|case| case.name == **name)) {
        let case_names: Vec<&str> = ALL.iter().map(|case| case.name).collect();
        bail!("case {unknown} not found; cases: {}", case_names.join(", "));
    }
    Ok(ALL.iter().filter(|case| names.contains(&case.name)).collect())
}
