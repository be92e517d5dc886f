//! `hactl balance`: plans moves that balance the live cluster, or one read from a file in Ganeti's text format.

mod actions;
pub(crate) mod apply;
mod arrival;
pub(crate) mod commands;
pub(crate) mod hbal;
pub(crate) mod instances;
mod nodes;
pub(crate) mod options;
pub(crate) mod planned;
mod signals;
pub(crate) mod steps;
mod still;

use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::session::Session;
use clap::Args;
use ha_api_types::names::count;
use ha_scheduler::balance::plan::Step;
use ha_scheduler::balance::problem::Guest;
use options::Options;
use planned::{Planned, Source, time_used};
use serde_json::{Value, json};
use std::time::Instant;

/// Plan and apply moves that balance the load of the nodes
#[derive(Args, Debug)]
#[command(
    after_help = "The options are those of Ganeti's hbal. Exit status: 0 done or nothing to move; 1 a job failed, or the command was \
        interrupted; 2 invalid input.\n\n\
        With --apply, SIGINT (Ctrl-C) stops after the current job set, and SIGTERM stops immediately.\n\n\
        When invoked as hbal, the program accepts the options of hbal and has its output format."
)]
pub(crate) struct Balance {
    #[command(flatten)]
    options: Options,
    /// Apply without confirmation; implied without a terminal
    #[arg(long, short = 'y', requires = "apply")]
    yes: bool,
}

impl Balance {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Json])?;
        let options = &self.options;
        if options.apply && options.text_data.is_some() {
            return Err(Failure::usage("the argument '--apply' cannot be used with '--text-data <FILE>'"));
        }
        let source = match &options.text_data {
            Some(path) => Source::of_file(path, options)?,
            None => Source::live(session.client()?, options).await?,
        };
        let begun = Instant::now();
        let plans = plans(&source, options, begun);
        let seconds = begun.elapsed().as_secs_f64();
        if format.is_none() {
            self.print(session, &source, &plans)?;
        }
        options.save(&source.cluster, &planned::after(&source, &plans))?;
        let steps: usize = plans.iter().map(|planned| planned.plan.steps.len()).sum();
        let mut document = document(&source, &plans, seconds);
        let mut failure = None;
        if options.apply && steps > 0 {
            apply::confirm(self.yes, steps)?;
            let applied = apply::apply(session, options.conditions(), &source, &plans).await?;
            document["applied"] = applied.jobs.into();
            failure = applied.failure;
        }
        session.print_value(format, &document)?;
        failure.map_or(Ok(Exit::Done), Err)
    }

    /// Prints the plans as text, and the commands if requested.
    fn print(&self, session: &Session, source: &Source, plans: &[Planned]) -> Result<(), Failure> {
        if plans.is_empty() {
            session.terminal().line("No nodes.");
        }
        for (index, planned) in plans.iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            session.terminal().out(&format!("{gap}{}", text(source, planned, &self.options)));
        }
        let Some(file) = &self.options.print_commands else { return Ok(()) };
        let commands: String = plans.iter().map(|planned| commands::text(source, planned)).collect();
        commands::give(session.terminal(), file, &commands)
    }
}

/// Returns the plans of all chosen groups, ordered by improvement.
fn plans(source: &Source, options: &Options, begun: Instant) -> Vec<Planned> {
    let groups = source.groups.iter().enumerate();
    let mut plans: Vec<Planned> = groups
        .map(|(nth, &group)| {
            let mut used = time_used(begun, options.budget, (nth, source.groups.len()));
            Planned::new(source, options, group, &mut used)
        })
        .collect();
    plans.sort_by(|one, other| other.gain().total_cmp(&one.gain()));
    plans
}

/// Returns a group's plan as text.
fn text(source: &Source, planned: &Planned, options: &Options) -> String {
    let (cluster, problem, plan) = (&source.cluster, &planned.problem, &planned.plan);
    let group = &cluster.groups[planned.group].name;
    let instances = problem.guests.iter().flat_map(Guest::instances).count();
    let (nodes, instances) = (count(problem.hosts.len(), "node"), count(instances, "instance"));
    let mut text = format!("Group {group}: {nodes}, {instances}\n");
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
    if plan.steps.is_empty() {
        text += &format!("Score: {:.8}\nNothing to move.\n", plan.start);
    } else {
        text += &format!("Score before: {:.8}\n", plan.start);
        text += &steps::text(source, planned);
        text += &format!("Score after:  {:.8}\n", plan.end());
        text += &summary(source, planned);
    }
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

/// Returns the number of moves and their cost, as text.
pub(crate) fn cost(planned: &Planned, moves: usize) -> String {
    let plan = &planned.plan;
    format!(
        "{} in {}: {} ({} MiB), {}",
        count(moves, "move"),
        count(planned.job_sets().len(), "job set"),
        count(plan.copies(), "disk copy"),
        plan.copied_mib(&planned.problem),
        count(plan.migrations(), "migration"),
    )
}

/// Returns a one-line summary of the plan's moves.
fn summary(source: &Source, planned: &Planned) -> String {
    let (problem, plan) = (&planned.problem, &planned.plan);
    let mut text = cost(planned, plan.steps.len());
    let is_stopped = |step: &&Step| {
        let mut instances = problem.guests[step.guest].instances();
        source.is_live
            && instances.any(|at| {
                let live = source.cluster.bindings.get(&at).is_some_and(|binding| binding.live);
                !live && source.cluster.instances[at].status.is_running()
            })
    };
    let stopped = plan.steps.iter().filter(is_stopped).map(|step| step.kind.migrations()).sum::<usize>();
    if stopped > 0 {
        text += &format!(", {stopped} of them by relocation");
    }
    text + "\n"
}

/// Returns the plans as JSON: one plan as an object, several as a list.
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
