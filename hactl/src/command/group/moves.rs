//! Moves between groups as text and as values, their commands, and the files with the cluster before and after.

use super::input::Read;
use crate::command::balance::options::{save_text, written};
use crate::command::balance::planned::{Planned, Source};
use crate::command::balance::{commands, steps};
use crate::failure::Failure;
use crate::session::Session;
use clap::{Args, ValueHint};
use ha_scheduler::balance::groups::Span;
use ha_scheduler::balance::groups::span::{Moved, steps as all_steps};
use ha_scheduler::balance::model::Cluster;
use ha_scheduler::balance::problem::Spot;
use ha_scheduler::balance::text;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What is done with a plan.
#[derive(Args, Clone, Debug)]
pub(crate) struct Output {
    /// Print the commands, or write them into a script
    #[arg(long, short = 'C', value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    print_commands: Option<String>,
    /// Save the cluster to FILE.original, and after the plan to FILE.balanced
    #[arg(long, short = 'S', value_name = "FILE", value_hint = ValueHint::FilePath)]
    save: Option<PathBuf>,
}

/// Moves with what is needed to print them.
pub(crate) struct Moves<'a> {
    source: Source,
    planned: Planned,
    span: &'a Span<'a>,
    moved: &'a [Moved],
}

impl<'a> Moves<'a> {
    /// These moves, in their order from the start.
    pub(crate) fn new(read: &Read, span: &'a Span<'a>, moved: &'a [Moved]) -> Moves<'a> {
        let source = Source {
            cluster: span.cluster.clone(),
            groups: span.groups(),
            drained: read.settings.drained.clone(),
            is_live: read.is_live,
            inter_group_moves: span.inter_group_moves,
        };
        let plan = span.plan(all_steps(moved));
        Moves { source, planned: Planned { group: 0, problem: span.problem.clone(), plan }, span, moved }
    }

    /// A numbered line for each: instance, where it was, the group and the nodes where it goes, and the operations.
    pub(crate) fn text(&self) -> String {
        let rows: Vec<[String; 4]> = self
            .moved
            .iter()
            .map(|moved| {
                let to = self.nodes(moved.to).join(":");
                let to = if moved.between_groups() {
                    format!("({}, {to})", self.span.cluster.groups[moved.target].name)
                } else {
                    to
                };
                let name = self.span.name(moved.guest);
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

    /// How many, and what they cost.
    pub(crate) fn cost(&self) -> String {
        let (problem, plan) = (&self.planned.problem, &self.planned.plan);
        format!(
            "{} moves in {} job sets: {} disk copies ({} MiB), {} migrations\n",
            self.moved.len(),
            self.planned.job_sets().len(),
            plan.copies(),
            plan.copied_mib(problem),
            plan.migrations()
        )
    }

    /// Each as a value.
    pub(crate) fn values(&self) -> Vec<Value> {
        let value = |moved: &Moved| {
            json!({
                "instance": self.span.name(moved.guest),
                "fromGroup": self.span.cluster.groups[moved.source].name,
                "toGroup": self.span.cluster.groups[moved.target].name,
                "interGroup": moved.between_groups(),
                "from": self.nodes(moved.from),
                "to": self.nodes(moved.to),
                "ops": self.operations(moved),
            })
        };
        self.moved.iter().map(value).collect()
    }

    /// Adds the moves and their cost to a value.
    pub(crate) fn with_moves(&self, mut value: Value) -> Value {
        let plan = &self.planned.plan;
        value["moves"] = self.values().into();
        value["diskCopies"] = plan.copies().into();
        value["copiedMiB"] = plan.copied_mib(&self.planned.problem).into();
        value["migrations"] = plan.migrations().into();
        value
    }

    fn nodes(&self, spot: Spot) -> Vec<&str> {
        [Some(spot.primary), spot.secondary].into_iter().flatten().map(|host| self.span.node(host)).collect()
    }

    fn operations(&self, moved: &Moved) -> Vec<String> {
        moved.steps.iter().flat_map(|step| steps::operations(&self.source, &self.planned, step)).collect()
    }

    /// Prints or writes what was asked for; `quiet` leaves out what is for people.
    pub(crate) fn write(&self, session: &Session, output: &Output, quiet: bool) -> Result<(), Failure> {
        let commands = commands::text(&self.source, &self.planned);
        match output.print_commands.as_deref().map(written) {
            Some(None) if !quiet && !self.moved.is_empty() => {
                session
                    .terminal()
                    .out(&format!("\nCommands to run to reach the above solution:\n{commands}"));
            }
            Some(Some(path)) => save_text(path, &commands::script(&commands))?,
            Some(None) | None => {}
        }
        let after = || self.planned.plan.applied(&self.source.cluster, &self.planned.problem);
        output.save(&self.source.cluster, after)
    }
}

impl Output {
    fn save(&self, before: &Cluster, after: impl Fn() -> Cluster) -> Result<(), Failure> {
        let Some(base) = &self.save else { return Ok(()) };
        for (end, cluster) in [(".original", before), (".balanced", &after())] {
            let mut name = base.clone().into_os_string();
            name.push(end);
            save_text(Path::new(&name), &text::write(cluster))?;
        }
        Ok(())
    }
}
