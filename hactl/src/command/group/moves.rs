//! Moves between groups as text and as JSON, their commands, and the files of the cluster before and after the moves.

use super::input::LoadedCluster;
use crate::command::balance::apply::{ExecutionSettings, apply, confirm};
use crate::command::balance::options::{output_path, save_before_and_after};
use crate::command::balance::planned::{GroupPlan, Source};
use crate::command::balance::{commands, cost, steps};
use crate::failure::Failure;
use crate::render::Format;
use crate::session::Session;
use clap::{Args, ValueHint};
use ha_scheduler::balance::groups::AllGroups;
use ha_scheduler::balance::groups::all_groups::{PlannedMove, steps as all_steps};
use ha_scheduler::balance::problem::Placement;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Options for printing, saving and applying a plan.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlanOutput {
    /// Print the commands, or write them to a script
    #[arg(long, short = 'C', value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    print_commands: Option<String>,
    /// Save the cluster to FILE.original, and the result to FILE.balanced
    #[arg(long, short = 'S', value_name = "FILE", value_hint = ValueHint::FilePath)]
    save: Option<PathBuf>,
    /// Apply the plan in job sets (parallel moves), until the first failure
    #[arg(long, short = 'X', conflicts_with = "text_data")]
    apply: bool,
    /// Apply without confirmation; implied without a terminal
    #[arg(long, short = 'y', requires = "apply")]
    yes: bool,
    /// Maximum time of one job set; at expiry, exit with status 124
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = crate::duration::parse)]
    timeout: Duration,
}

/// Planned moves, with the data that is needed to print and apply them.
pub(crate) struct Moves<'a> {
    source: Source,
    group_plan: GroupPlan,
    all_groups: &'a AllGroups<'a>,
    planned: &'a [PlannedMove],
    offline: Vec<String>,
}

impl<'a> Moves<'a> {
    /// Creates the moves, in the order in which they are executed.
    pub(crate) fn new(
        loaded: &LoadedCluster,
        all_groups: &'a AllGroups<'a>,
        planned_moves: &'a [PlannedMove],
    ) -> Moves<'a> {
        let source = Source {
            cluster: all_groups.cluster.clone(),
            groups: all_groups.groups(),
            drained: loaded.settings.drained.clone(),
            is_live: loaded.is_live,
            inter_group_moves: all_groups.inter_group_moves,
            view: None,
        };
        let plan = all_groups.plan(all_steps(planned_moves));
        let group_plan =
            GroupPlan { group: 0, problem: all_groups.problem.clone(), plan, has_reached_time_limit: false };
        Moves { source, group_plan, all_groups, planned: planned_moves, offline: loaded.offline.clone() }
    }

    /// Returns a numbered line per move: instance, source, target group and nodes, and operations.
    pub(crate) fn text(&self) -> String {
        let rows: Vec<[String; 4]> = self
            .planned
            .iter()
            .map(|moved| {
                let to = self.nodes(moved.to).join(":");
                let to = if moved.is_between_groups() {
                    format!("({}, {to})", self.all_groups.cluster.groups[moved.target].name)
                } else {
                    to
                };
                let name = self.all_groups.service_name(moved.service);
                [name, self.nodes(moved.from).join(":"), to, self.operations(moved).join(" ")]
            })
            .collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (names, from, to) = (width(0), width(1), width(2));
        let line = |([name, old, new, operations], number): (&[String; 4], usize)| {
            format!("{number:5}. {name:names$} {old:from$} => {new:to$} a={operations}\n")
        };
        rows.iter().zip(1..).map(line).collect()
    }

    /// Returns the number of moves and their cost, as text.
    pub(crate) fn cost(&self) -> String {
        cost(&self.group_plan, self.planned.len()) + "\n"
    }

    /// Returns the moves as JSON.
    pub(crate) fn move_values(&self) -> Vec<Value> {
        let value = |moved: &PlannedMove| {
            json!({
                "instance": self.all_groups.service_name(moved.service),
                "fromGroup": self.all_groups.cluster.groups[moved.source].name,
                "toGroup": self.all_groups.cluster.groups[moved.target].name,
                "interGroup": moved.is_between_groups(),
                "from": self.nodes(moved.from),
                "to": self.nodes(moved.to),
                "ops": self.operations(moved),
            })
        };
        self.planned.iter().map(value).collect()
    }

    /// Adds the moves and their cost to a JSON value.
    pub(crate) fn with_moves(&self, mut value: Value) -> Value {
        let plan = &self.group_plan.plan;
        value["moves"] = self.move_values().into();
        value["diskCopies"] = plan.copies().into();
        value["copiedMiB"] = plan.copied_mib(&self.group_plan.problem).into();
        value["migrations"] = plan.migrations().into();
        value
    }

    fn nodes(&self, placement: Placement) -> Vec<&str> {
        self.source.nodes(&self.group_plan.problem, placement)
    }

    fn operations(&self, moved: &PlannedMove) -> Vec<String> {
        moved.steps.iter().flat_map(|step| steps::operations(&self.source, &self.group_plan, step)).collect()
    }

    /// Prints the results, writes the requested files, and executes the moves with `--apply`.
    pub(crate) async fn output_and_apply(
        &self,
        session: &Session,
        output: &PlanOutput,
        command: &'static str,
        format: Option<&Format>,
        (text, mut value): (String, Value),
    ) -> Result<(), Failure> {
        if format.is_none() {
            session.terminal().print(&text);
        }
        if let Some(file) = &output.print_commands
            && (output_path(file).is_some() || (format.is_none() && !self.planned.is_empty()))
        {
            commands::output_commands(
                session.terminal(),
                file,
                &commands::text(&self.source, &self.group_plan),
            )?;
        }
        if let Some(base) = &output.save {
            let cluster_before = &self.source.cluster;
            save_before_and_after(
                base,
                cluster_before,
                &self.group_plan.plan.applied(cluster_before, &self.group_plan.problem),
            )?;
        }
        let mut failure = None;
        if output.apply && !self.planned.is_empty() {
            confirm(output.yes, self.planned.len())?;
            let execution_settings =
                ExecutionSettings { timeout: output.timeout, offline: &self.offline, command };
            let plans = std::slice::from_ref(&self.group_plan);
            let applied = apply(session, execution_settings, &self.source, plans).await?;
            value["applied"] = applied.jobs.into();
            failure = applied.failure;
        }
        session.print_value(format, &value)?;
        failure.map_or(Ok(()), Err)
    }
}
