//! `hactl balance`: a plan of moves that balances a cluster, from a file in Ganeti's text format.

mod commands;
pub(crate) mod hbal;
mod instances;
mod nodes;
mod options;
mod planned;
mod steps;

use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::session::Session;
use clap::Args;
use options::Options;
use planned::{Planned, Source};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Plan moves that balance a cluster read from a file
#[derive(Args, Debug)]
#[command(
    after_help = "Options mean what they do in Ganeti's hbal. Exit status: 0 also when nothing is to be done; 2 bad input.\n\n\
        Called under the name hbal, the program takes that tool's options and prints in its manner."
)]
pub(crate) struct Balance {
    #[command(flatten)]
    options: Options,
}

impl Balance {
    pub(crate) fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Json])?;
        let source = Source::read(&self.options)?;
        let begun = Instant::now();
        let plans = plans(&source, &self.options, begun);
        let seconds = begun.elapsed().as_secs_f64();
        if format.is_some() {
            session.print_value(format, &document(&source, &plans, seconds))?;
        } else {
            for (index, planned) in plans.iter().enumerate() {
                let gap = if index == 0 { "" } else { "\n" };
                session.terminal().out(&format!("{gap}{}", text(&source, planned, &self.options)));
            }
        }
        self.options.save(&source.cluster, &planned::after(&source, &plans))?;
        let commands: String = plans.iter().map(|planned| commands::text(&source, planned)).collect();
        if let Some(file) = &self.options.print_commands
            && format.is_none()
        {
            match options::written(file) {
                None => {
                    let heading = "\nCommands to run to reach the above solution:\n";
                    session.terminal().out(&format!("{heading}{commands}"));
                }
                Some(path) => options::save_text(path, &commands::script(&commands))?,
            }
        }
        Ok(Exit::Done)
    }
}

/// The plans of all chosen groups, the one that improves most first.
fn plans(source: &Source, options: &Options, begun: Instant) -> Vec<Planned> {
    let budget = Duration::from_secs_f64(options.budget);
    let count = u32::try_from(source.groups.len().max(1)).unwrap_or(u32::MAX);
    let mut plans: Vec<Planned> = source
        .groups
        .iter()
        .zip(1..)
        .map(|(&group, nth)| {
            // What one group leaves of its time is the next one's.
            let (first, last) = (begun.elapsed().as_secs_f64(), (budget * nth / count).as_secs_f64());
            let mut used = || (begun.elapsed().as_secs_f64() - first) / (last - first).max(1e-9);
            Planned::new(source, options, group, &mut used)
        })
        .collect();
    plans.sort_by(|one, other| other.gain().total_cmp(&one.gain()));
    plans
}

/// A group's plan for people.
fn text(source: &Source, planned: &Planned, options: &Options) -> String {
    let (cluster, problem, plan) = (&source.cluster, &planned.problem, &planned.plan);
    let group = &cluster.groups[planned.group].name;
    let mut text =
        format!("Group {group}: {} nodes, {} instances\n", problem.hosts.len(), problem.guests.len());
    if options.print_nodes.is_some() {
        text += "\nInitial cluster status:\n";
        text += &nodes::table(cluster, problem, &problem.start, &options.node_fields());
        text += "\n";
    }
    if options.print_instances {
        text += "\nInitial instance map:\n";
        text += &instances::table(cluster, problem, &problem.start);
        text += "\n";
    }
    text += &format!("Score before: {:.8}\n", plan.start);
    text += &steps::text(source, planned);
    text += &format!("Score after:  {:.8}\n", plan.end());
    text += &format!(
        "{} moves in {} job sets: {} disk copies ({} MiB), {} migrations\n",
        plan.steps.len(),
        planned.job_sets().len(),
        plan.copies(),
        plan.copied_mib(problem),
        plan.migrations()
    );
    let spots = plan.spots(problem);
    if options.print_nodes.is_some() {
        text += "\nFinal cluster status:\n";
        text += &nodes::table(cluster, problem, &spots, &options.node_fields());
    }
    if options.print_instances {
        text += "\nFinal instance map:\n";
        text += &instances::table(cluster, problem, &spots);
    }
    text
}

/// Plans for programs: one group's as it is, several in a list.
fn document(source: &Source, plans: &[Planned], seconds: f64) -> Value {
    let one = |planned: &Planned| {
        let (problem, plan) = (&planned.problem, &planned.plan);
        let moves: Vec<Value> =
            plan.steps.iter().map(|step| steps::document(source, planned, step)).collect();
        json!({
            "group": source.cluster.groups[planned.group].name,
            "initialScore": plan.start,
            "finalScore": plan.end(),
            "moves": moves,
            "diskCopies": plan.copies(),
            "copiedMiB": plan.copied_mib(problem),
            "migrations": plan.migrations(),
            "seconds": seconds,
        })
    };
    match plans {
        [planned] => one(planned),
        several => json!({ "groups": several.iter().map(one).collect::<Vec<_>>(), "seconds": seconds }),
    }
}
