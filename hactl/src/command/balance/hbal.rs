//! The program under the name `hbal`: that tool's options and output, so that existing scripts continue to work.

use super::options::Options;
use super::planned::{Planned, Source, after};
use super::{apply, commands, instances, nodes, plans, steps};
use crate::arguments::GlobalFlags;
use crate::config::ConnectionFlags;
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use crate::terminal::{ColorChoice, Terminal};
use clap::error::ErrorKind;
use clap::{ArgAction, Parser};
use ha_scheduler::balance::score::{VALUES, usages, values};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

/// Cluster balancer for Ganeti's text format
#[derive(Parser, Debug)]
#[command(name = "hbal", version, disable_version_flag = true, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Print one line: score before, steps, score after, and their ratio
    #[arg(long, short = 'o')]
    oneline: bool,
    /// Increase verbosity; repeatable
    #[arg(long, short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Decrease verbosity
    #[arg(long, short = 'q', action = ArgAction::Count)]
    quiet: u8,
    /// Balance the live cluster; the path is ignored
    #[arg(long, short = 'L', value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "text_data", required_unless_present = "text_data")]
    luxi: Option<String>,
    #[command(flatten)]
    connection: ConnectionFlags,
    /// Print the version
    #[arg(long, short = 'V', action = ArgAction::Version)]
    version: Option<bool>,
}

/// Runs the program with the arguments after its name.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let terminal = Terminal::new(ColorChoice::Never, false, 0);
    let words: Vec<OsString> = words.map(attached).collect();
    if let Some(failure) = refused(&words) {
        terminal.failure(&failure);
        return failure.exit.into();
    }
    match Arguments::try_parse_from(std::iter::once(OsString::from("hbal")).chain(words)) {
        Ok(arguments) => {
            let session = Session::new(&arguments.flags());
            let outcome = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| Failure::refused(format!("cannot start the runtime: {error}")))
                .and_then(|runtime| runtime.block_on(arguments.run(&session)));
            match outcome {
                Ok(exit) => exit.into(),
                Err(failure) => {
                    terminal.failure(&failure);
                    failure.exit.into()
                }
            }
        }
        Err(error) => {
            // The help cannot be printed, and there is no other way to report that.
            let _ = error.print();
            let asked_for = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion].contains(&error.kind());
            if asked_for { Exit::Done.into() } else { Exit::Usage.into() }
        }
    }
}

/// Inserts the equals sign that `-CFILE`, `-pFIELDS` and `-LPATH` lack before their value.
fn attached(word: OsString) -> OsString {
    let Some(text) = word.to_str() else { return word };
    for (short, long) in [("-C", "--print-commands="), ("-p", "--print-nodes="), ("-L", "--luxi=")] {
        match text.strip_prefix(short) {
            Some(value) if !value.is_empty() && !value.starts_with('=') => {
                return format!("{long}{value}").into();
            }
            Some(_) | None => {}
        }
    }
    word
}

/// Returns the failure for a data source that this program does not support.
fn refused(words: &[OsString]) -> Option<Failure> {
    let sources = [
        ("-m", "RAPI access to a Ganeti cluster is not supported"),
        ("--master", "RAPI access to a Ganeti cluster is not supported"),
        ("-I", "iallocator requests are not supported"),
    ];
    let word = words.iter().filter_map(|word| word.to_str()).find_map(|word| {
        let is = |source: &str| {
            word == source
                || (word.starts_with(source) && !source.starts_with("--"))
                || word.starts_with(&format!("{source}="))
        };
        sources.iter().find(|(source, _)| is(source))
    });
    word.map(|(source, why)| {
        Failure::usage(format!("{source}: {why}")).help("add -t FILE, or -L for the live cluster")
    })
}

impl Arguments {
    /// Returns the equivalent global flags of hactl.
    fn flags(&self) -> GlobalFlags {
        GlobalFlags {
            connection: self.connection.clone(),
            output: None,
            color: ColorChoice::Never,
            quiet: self.quiet > 0,
            verbose: 0,
        }
    }

    async fn run(&self, session: &Session) -> Outcome {
        let (options, terminal) = (&self.options, session.terminal());
        let source = match &options.text_data {
            Some(path) => Source::of_file(path, options)?,
            None => Source::live(session.client()?, options).await?,
        };
        let [_group] = source.groups.as_slice() else {
            let names: Vec<&str> =
                source.groups.iter().map(|&group| source.cluster.groups[group].name.as_str()).collect();
            return Err(Failure::usage(format!("found {} node groups: {}", names.len(), names.join(", ")))
                .help("add -G GROUP"));
        };
        let chosen = plans(&source, options, Instant::now());
        for planned in &chosen {
            let (plan, level) = (&planned.plan, 1 + i16::from(self.verbose) - i16::from(self.quiet));
            if self.oneline {
                let ratio = if plan.end() == 0.0 { 1.0 } else { plan.start / plan.end() };
                let line = format!("{:.8} {} {:.8} {ratio:8.3}\n", plan.start, plan.steps.len(), plan.end());
                terminal.out(&line);
            } else {
                terminal.out(&self.beginning(&source, planned, level));
                terminal.out(&self.end(&source, planned, level));
            }
        }
        options.save(&source.cluster, &after(&source, &chosen))?;
        if let Some(file) = &options.print_commands {
            let text: String = chosen.iter().map(|planned| commands::text(&source, planned)).collect();
            commands::give(terminal, file, &text)?;
        }
        if options.apply {
            let applied = apply::apply(session, options.conditions(), &source, &chosen).await?;
            return applied.failure.map_or(Ok(Exit::Done), Err);
        }
        Ok(Exit::Done)
    }

    /// Returns the output before the steps.
    fn beginning(&self, source: &Source, planned: &Planned, level: i16) -> String {
        let (cluster, problem, plan) = (&source.cluster, &planned.problem, &planned.plan);
        let usages = usages(problem, &problem.start);
        let bad: Vec<bool> = problem
            .hosts
            .iter()
            .zip(&usages)
            .map(|(host, usage)| !host.offline && usage.fails_n1())
            .collect();
        let mut text = String::new();
        if level > 0 {
            text += &format!("Loaded {} nodes, {} instances\n", cluster.nodes.len(), cluster.instances.len());
        }
        if level > 0 && bad.contains(&true) {
            text += "Cluster is not N+1 happy, continuing but no guarantee that the cluster will end N+1 happy.\n";
        }
        if self.options.print_instances {
            text += "\nInitial instance map:\n";
            text += &instances::table(cluster, problem, &problem.start);
        }
        if self.options.print_nodes.is_some() {
            text += "\nInitial cluster status:\n";
            text += &nodes::table(cluster, problem, &problem.start, &self.options.node_fields());
            text += "\n";
        }
        if plan.start < self.options.min_score {
            return text
                + &format!(
                    "Cluster is already well balanced (initial score {:.6},\nminimum score {:.6}).\nNothing to do, exiting\n",
                    plan.start, self.options.min_score
                );
        }
        if level > 2 {
            text += &format!("Initial coefficients: overall {:.8}\n", plan.start);
            for (value, amount) in VALUES.iter().zip(values(problem, &problem.start)) {
                let weight = format!("x{:.2}", value.weight);
                text += &format!("   {:24} {amount:.8} {weight:>6}\n", value.name);
            }
        } else {
            text += &format!("Initial score: {:.8}\n", plan.start);
        }
        text + "Trying to minimize the CV...\n"
    }

    /// Returns the steps and the output after them.
    fn end(&self, source: &Source, planned: &Planned, level: i16) -> String {
        let (cluster, problem, plan) = (&source.cluster, &planned.problem, &planned.plan);
        if plan.start < self.options.min_score {
            return String::new();
        }
        let mut text = steps::text(source, planned);
        if plan.steps.is_empty() {
            text += "No solution found\n";
        } else {
            text += &format!("Cluster score improved from {:.8} to {:.8}\n", plan.start, plan.end());
        }
        if level > 0 {
            text += &format!("Solution length={}\n", plan.steps.len());
        }
        let spots = plan.spots(problem);
        if self.options.print_instances {
            text += "\nFinal instance map:\n";
            text += &instances::table(cluster, problem, &spots);
        }
        if self.options.print_nodes.is_some() {
            text += "\nFinal cluster status:\n";
            text += &nodes::table(cluster, problem, &spots, &self.options.node_fields());
        }
        text
    }
}
