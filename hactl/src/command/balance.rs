//! `hactl balance`: plans moves that balance the live cluster, or one read from a file in Ganeti's text format.

mod actions;
pub(crate) mod apply;
mod arrival;
pub(crate) mod commands;
mod expected;
pub(crate) mod hbal;
pub(crate) mod instances;
pub(crate) mod nodes;
pub(crate) mod options;
pub(crate) mod planned;
pub(crate) mod search_end;
mod signals;
pub(crate) mod steps;

use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::session::Session;
use clap::Args;
use ha_api_types::names::count_with_noun;
use ha_scheduler::balance::plan::Step;
use ha_scheduler::balance::problem::ProblemService;
use options::Options;
use planned::{GroupPlan, Source, TIME_LIMIT_MESSAGE, time_limit};
use serde_json::{Value, json};
use std::time::Instant;

/// Plan and apply moves that balance the load of the nodes
#[derive(Args, Debug)]
#[command(
    after_help = "The options are those of Ganeti's hbal. Exit status: 0 done or nothing to move; 1 a job failed, or the command was \
        interrupted; 2 invalid input.\n\n\
        SIGINT (Ctrl-C) or SIGTERM ends the search, and the command prints the moves found so far. \
        With --apply, SIGINT then stops after the current job set, and SIGTERM stops immediately.\n\n\
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
            Some(path) => Source::from_file(path, options)?,
            None => Source::from_live_cluster(session.client()?, options).await?,
        };
        let started_at = Instant::now();
        let plans = search_end::run_search(|| plans(&source, options, started_at));
        let seconds = started_at.elapsed().as_secs_f64();
        if format.is_none() {
            self.print(session, &source, &plans)?;
        }
        options.save(&source.cluster, &planned::cluster_after(&source, &plans))?;
        let steps: usize = plans.iter().map(|group_plan| group_plan.plan.steps.len()).sum();
        let mut document = json_output(&source, &plans, seconds);
        let mut failure = None;
        if options.apply && steps > 0 && !search_end::has_received_signal() {
            apply::confirm(self.yes, steps)?;
            let applied = apply::apply(session, options.execution_settings(), &source, &plans).await?;
            document["applied"] = applied.jobs.into();
            failure = applied.failure;
        }
        session.print_value(format, &document)?;
        if search_end::has_received_signal() {
            session.terminal().error_line(search_end::MESSAGE);
            return Ok(Exit::Failed);
        }
        failure.map_or(Ok(Exit::Done), Err)
    }

    /// Prints the plans as text, and the commands if requested.
    fn print(&self, session: &Session, source: &Source, plans: &[GroupPlan]) -> Result<(), Failure> {
        if plans.is_empty() {
            session.terminal().print_line("No nodes.");
        }
        for (index, group_plan) in plans.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            session.terminal().print(&format!("{separator}{}", text(source, group_plan, &self.options)));
        }
        let Some(file) = &self.options.print_commands else { return Ok(()) };
        let commands: String = plans.iter().map(|group_plan| commands::text(source, group_plan)).collect();
        commands::output_commands(session.terminal(), file, &commands)
    }
}

/// Returns the plans of all chosen groups, ordered by improvement.
fn plans(source: &Source, options: &Options, started_at: Instant) -> Vec<GroupPlan> {
    let groups = source.groups.iter().enumerate();
    let mut plans: Vec<GroupPlan> = groups
        .map(|(index, &group)| {
            let position = (index, source.groups.len());
            GroupPlan::new(
                source,
                options,
                group,
                &time_limit(&source.cluster, started_at, options.budget, position),
            )
        })
        .collect();
    plans.sort_by(|left, right| right.score_gain().total_cmp(&left.score_gain()));
    plans
}

/// Returns a group's plan as text.
fn text(source: &Source, group_plan: &GroupPlan, options: &Options) -> String {
    let (cluster, problem, plan) = (&source.cluster, &group_plan.problem, &group_plan.plan);
    let group = &cluster.groups[group_plan.group].name;
    let instances = problem.services.iter().flat_map(ProblemService::instances).count();
    let (nodes, instances) =
        (count_with_noun(problem.nodes.len(), "node"), count_with_noun(instances, "instance"));
    let mut text = format!("Group {group}: {nodes}, {instances}\n");
    if options.print_nodes.is_some() {
        text += "\nInitial cluster status:\n";
        text += &nodes::table(cluster, problem, &problem.start_placements, &options.node_fields());
        text += "\n";
    }
    if options.print_instances {
        text += "\nInitial instance map:\n";
        text += &instances::table(cluster, problem, &problem.start_placements);
        text += "\n";
    }
    if plan.steps.is_empty() {
        text += &format!("Score: {:.8}\nNothing to move.\n", plan.start_score);
    } else {
        text += &format!("Score before: {:.8}\n", plan.start_score);
        text += &steps::text(source, group_plan);
        text += &format!("Score after:  {:.8}\n", plan.end_score());
        text += &summary(source, group_plan);
    }
    if group_plan.has_reached_time_limit && !search_end::has_received_signal() {
        text += TIME_LIMIT_MESSAGE;
        text += "\n";
    }
    let placements = plan.placements(problem);
    if options.print_nodes.is_some() {
        text += "\nFinal cluster status:\n";
        text += &nodes::table(cluster, problem, &placements, &options.node_fields());
    }
    if options.print_instances {
        text += "\nFinal instance map:\n";
        text += &instances::table(cluster, problem, &placements);
    }
    text
}

/// Returns the number of moves and their cost, as text.
pub(crate) fn cost(group_plan: &GroupPlan, moves: usize) -> String {
    let plan = &group_plan.plan;
    format!(
        "{} in {}: {} ({} MiB), {}",
        count_with_noun(moves, "move"),
        count_with_noun(group_plan.job_sets().len(), "job set"),
        count_with_noun(plan.copies(), "disk copy"),
        plan.copied_mib(&group_plan.problem),
        count_with_noun(plan.migrations(), "migration"),
    )
}

/// Returns a one-line summary of the plan's moves.
fn summary(source: &Source, group_plan: &GroupPlan) -> String {
    let (problem, plan) = (&group_plan.problem, &group_plan.plan);
    let mut text = cost(group_plan, plan.steps.len());
    let is_stopped = |step: &&Step| {
        let mut instances = problem.services[step.service].instances();
        source.is_live
            && instances.any(|instance_index| {
                let can_live_migrate = source
                    .cluster
                    .live_constraints
                    .get(&instance_index)
                    .is_some_and(|constraints| constraints.can_live_migrate);
                !can_live_migrate && source.cluster.instances[instance_index].status.is_running()
            })
    };
    let stopped = plan.steps.iter().filter(is_stopped).map(|step| step.kind.migrations()).sum::<usize>();
    if stopped > 0 {
        text += &format!(", {stopped} of them by relocation");
    }
    text + "\n"
}

/// Returns the plans as JSON: one plan as an object, several as a list.
fn json_output(source: &Source, plans: &[GroupPlan], seconds: f64) -> Value {
    let plan_document = |group_plan: &GroupPlan| {
        let (problem, plan) = (&group_plan.problem, &group_plan.plan);
        let moves: Vec<Value> =
            plan.steps.iter().map(|step| steps::json_output(source, group_plan, step)).collect();
        json!({
            "group": source.cluster.groups[group_plan.group].name,
            "initialScore": plan.start_score,
            "finalScore": plan.end_score(),
            "moves": moves,
            "diskCopies": plan.copies(),
            "copiedMiB": plan.copied_mib(problem),
            "migrations": plan.migrations(),
            "timeLimited": group_plan.has_reached_time_limit,
            "seconds": seconds,
        })
    };
    match plans {
        [group_plan] => plan_document(group_plan),
        several => {
            json!({ "groups": several.iter().map(plan_document).collect::<Vec<_>>(), "seconds": seconds })
        }
    }
}
