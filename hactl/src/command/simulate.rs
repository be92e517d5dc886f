//! `hactl simulate`: runs a whole cluster under a virtual clock, from a scenario file or the default scenario.

mod random;
mod serve;

use super::support::STATE_FILE;
use super::why;
use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::render::columns::state_style;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use crate::terminal::Style;
use clap::{Args, ValueHint};
use ha_api_types::id::ResourceName;
use ha_api_types::view::Explanation;
use ha_api_types::{lenient, names};
use ha_simulator::dump::Dump;
use ha_simulator::scenario::Scenario;
use ha_simulator::world::{Violation, World};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Simulate a cluster from a scenario file
#[derive(Args, Debug)]
#[command(
    after_help = "Without a file, the default cluster runs: three nodes with six services, and one node fails.\n\n\
        Exit status: 0 all expectations and invariants hold; 1 some do not; 2 invalid file. \
        For a directory: one line for each file, and the worst status.\n\n\
        With --from-dump, the simulation starts from the cluster state in a support dump, with every agent and controller restarted. Example: hactl support dump d; hactl simulate --from-dump d --why web\n\n\
        With --serve, the cluster runs live with the web console: isolate a node, move a service, and save the steps as a scenario.\n\n\
        With --random, each seed defines a cluster and faults. A failed seed is printed as a scenario file that reproduces \
        the failure: `hactl simulate --random --seeds 7 > seed-7.yaml; hactl simulate seed-7.yaml`."
)]
pub(crate) struct Simulate {
    /// Scenario file, or directory of scenario files
    #[arg(value_name = "FILE|DIR", value_hint = ValueHint::AnyPath, conflicts_with = "random")]
    path: Option<PathBuf>,
    /// Print the default scenario for editing, without simulating it
    #[arg(long, conflicts_with_all = ["path", "random"])]
    print_default: bool,
    /// Simulate random clusters and faults, and check the invariants
    #[arg(long)]
    random: bool,
    /// Start from the cluster state in a support dump
    ///
    /// FILE may contain steps and expectations, but no nodes and no objects.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["random", "print_default"])]
    from_dump: Option<PathBuf>,
    /// Explain where this resource runs
    ///
    /// With --from-dump: at the time of the dump, and at the end.
    #[arg(long, value_name = "RESOURCE", requires = "from_dump")]
    why: Option<String>,
    #[command(flatten)]
    runs: random::RandomFlags,
    #[command(flatten)]
    live: serve::ServeFlags,
}

impl Simulate {
    pub(crate) fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Json, Format::Yaml])?;
        if self.live.serve {
            let dump = self.from_dump.as_deref().map(read_dump).transpose()?;
            return self.live.run(session, self.path.as_deref(), dump);
        }
        if let Some(dump) = &self.from_dump {
            return self.replay(session, format, dump);
        }
        match &self.path {
            None if self.random => self.runs.run(session, format),
            None if self.print_default => {
                session.terminal().print(DEFAULT_SCENARIO_YAML);
                Ok(Exit::Done)
            }
            None => run_default_scenario(session, format),
            Some(path) if path.is_dir() => run_directory(session, path, format),
            Some(path) => run_file(session, path, format),
        }
    }

    /// Continues a dumped cluster, with the steps of a file.
    fn replay(&self, session: &Session, format: Option<&Format>, dump: &Path) -> Outcome {
        let path = dump.join(STATE_FILE);
        let dump = read_dump(dump)?;
        let mut world = match &self.path {
            None => World::of_dump(&dump, "the dump", "", Path::new(".")),
            Some(file) => {
                World::of_dump(&dump, &file.display().to_string(), &read(file)?, parent_directory(file))
            }
        }
        .map_err(Failure::usage)?;
        let require_explanation = |explanation: Option<Explanation>, name: &str| {
            explanation
                .ok_or_else(|| Failure::failed(format!("resource {name:?} not found in {}", path.display())))
        };
        let resource_to_explain =
            self.why.as_deref().map(|name| (name, ResourceName::from(names::without_type(name))));
        let before = resource_to_explain
            .as_ref()
            .map(|(name, resource)| require_explanation(dump.explain(resource), name))
            .transpose()?;
        world.run();
        let after = resource_to_explain.as_ref().and_then(|(_, resource)| world.explain(resource));
        let mut summary = world.summary();
        if let Some(before) = &before {
            summary["why"] = json!({"before": before, "after": after});
        }
        let mut details = String::new();
        if before.is_none() {
            details = format!("\nAt the end:\n{}", services_table(session, &summary));
        }
        for (when, explanation) in [("At the time of the dump", &before), ("At the end", &after)] {
            if let Some(explanation) = explanation {
                details += &format!("\n{when}:\n{}", why::text(session, explanation));
            }
        }
        print_run(session, format, &world, &summary, &details)
    }
}

/// The parts of a summary that are shown as text.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Summary {
    services: BTreeMap<String, Service>,
    expect: Vec<Expectation>,
}

#[derive(Deserialize)]
struct Service {
    state: String,
    running: Vec<String>,
}

#[derive(Deserialize)]
struct Expectation {
    check: String,
    ok: bool,
    #[serde(rename = "got")]
    actual: String,
}

/// Returns where each service is at the end of a run, as a table.
fn services_table(session: &Session, summary: &Value) -> String {
    let mut table = Table::new(&["NAME", "STATE", "RUNNING ON"]);
    for (name, Service { state, running }) in &lenient::read_part::<Summary>(summary).services {
        table.add_row(vec![
            Cell::plain(name),
            Cell::styled(state, state_style(state)),
            Cell::plain(&running.join(", ")),
        ]);
    }
    table.render(session.terminal(), 2)
}

/// Scenario that runs if no file is given.
const DEFAULT_SCENARIO_YAML: &str = include_str!("simulate/default.yaml");

fn run_default_scenario(session: &Session, format: Option<&Format>) -> Outcome {
    let world = run("the default scenario", DEFAULT_SCENARIO_YAML, Path::new("."))?;
    let exit = print_run(session, format, &world, &world.summary(), "")?;
    if format.is_none() {
        session.terminal().print_line(
            "This was the default cluster: three nodes, six services, and node2 failed.\n\
             To change it:  hactl simulate --print-default > cluster.yaml\n\
             To run it:     hactl simulate cluster.yaml\n\
             Random faults: hactl simulate --random",
        );
    }
    Ok(exit)
}

fn run_file(session: &Session, path: &Path, format: Option<&Format>) -> Outcome {
    let world = simulate_file(path)?;
    print_run(session, format, &world, &world.summary(), "")
}

/// Prints the summary of a run in the requested format. Without a format, prints the timeline, the verdict and
/// `details`.
fn print_run(
    session: &Session,
    format: Option<&Format>,
    world: &World,
    summary: &Value,
    details: &str,
) -> Outcome {
    if !session.print_value(format, summary)? {
        for line in world.timeline() {
            session.terminal().print_line(line);
        }
        session.terminal().print(&verdict(session, world, summary));
        session.terminal().print(details);
    }
    Ok(exit(world))
}

fn run_directory(session: &Session, path: &Path, format: Option<&Format>) -> Outcome {
    let mut files = Vec::new();
    collect_scenario_files(path, &mut files)?;
    files.sort();
    if files.is_empty() {
        return Err(Failure::usage(format!("{}: no .yaml or .yml file found", path.display())));
    }
    let mut worst = Exit::Done;
    let mut summaries = Vec::new();
    for file in &files {
        let (word, style, exit) = match simulate_file(file) {
            Ok(world) => {
                summaries.push(world.summary());
                let word = if world.has_passed() { ("ok", Style::Good) } else { ("failed", Style::Bad) };
                (word.0, word.1, exit(&world))
            }
            Err(failure) => {
                session.terminal().failure(&failure);
                ("wrong", Style::Bad, failure.exit)
            }
        };
        worst = worst.max(exit);
        if format.is_none() {
            session.terminal().print_line(&format!(
                "{}: {}",
                file.display(),
                session.terminal().paint(style, word)
            ));
        }
    }
    session.print_value(format, &Value::Array(summaries))?;
    Ok(worst)
}

/// Collects the scenario files in a directory and its subdirectories.
fn collect_scenario_files(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let unreadable =
        |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", directory.display()));
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        // Links to directories are not followed, because they may form a cycle.
        if entry.file_type().map_err(unreadable)?.is_dir() {
            collect_scenario_files(&entry.path(), files)?;
        } else if entry.path().extension().is_some_and(|end| end == "yaml" || end == "yml") {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Reads a scenario and runs it to its end.
fn simulate_file(path: &Path) -> Result<World, Failure> {
    run(&path.display().to_string(), &read(path)?, parent_directory(path))
}

/// Returns the directory to which paths in a scenario file are relative.
fn parent_directory(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("."))
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

fn run(name: &str, text: &str, directory: &Path) -> Result<World, Failure> {
    let scenario = Scenario::parse(name, text, directory).map_err(Failure::usage)?;
    let mut world = World::new(scenario).map_err(|message| Failure::usage(format!("{name}: {message}")))?;
    world.run();
    Ok(world)
}

fn read_dump(directory: &Path) -> Result<Dump, Failure> {
    let path = directory.join(STATE_FILE);
    Dump::read(&read(&path)?).map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
}

fn exit(world: &World) -> Exit {
    if world.has_passed() { Exit::Done } else { Exit::Failed }
}

/// Returns the violations and the expectations as text; empty if there are none.
fn verdict(session: &Session, world: &World, summary: &Value) -> String {
    let terminal = session.terminal();
    let mut lines = String::new();
    for Violation { at, invariant, detail } in world.violations() {
        let word = terminal.paint(Style::Bad, "violated");
        lines += &format!("{word} at {:?} s: {invariant}: {detail}\n", *at as f64 / 1000.0);
    }
    for Expectation { check, ok, actual } in lenient::read_part::<Summary>(summary).expect {
        let (style, word) = if ok { (Style::Good, "ok") } else { (Style::Bad, "not met") };
        let actual = if ok { String::new() } else { format!("; found: {actual}") };
        lines += &format!("{}: {check}{actual}\n", terminal.paint(style, word));
    }
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}
