//! The commands that execute a plan, grouped by job set.

use super::actions::{Action, actions};
use super::options::{output_path, save_text};
use super::planned::{GroupPlan, Source};
use crate::failure::Failure;
use crate::terminal::Terminal;
use ha_scheduler::balance::moves::Operation;
use ha_scheduler::balance::plan::Step;

/// Returns the commands of a plan. The jobs of a set can run in parallel.
pub(crate) fn text(source: &Source, group_plan: &GroupPlan) -> String {
    let mut text = String::new();
    for (set, number) in group_plan.job_sets().iter().zip(1..) {
        text += &format!("\n  echo jobset {number}, {} jobs\n", set.len());
        for (step, job) in set.iter().zip(1..) {
            text += &format!("    echo job {number}/{job}\n");
            let commands: Vec<String> = if source.is_live {
                actions(source, group_plan, step).iter().map(Action::command).collect()
            } else {
                gnt_commands(source, group_plan, step)
            };
            for command in commands {
                text += &format!("    {command}\n");
            }
        }
    }
    text
}

/// Prints commands as text, or writes them to a file as a script.
pub(crate) fn output_commands(terminal: &Terminal, file: &str, commands: &str) -> Result<(), Failure> {
    match output_path(file) {
        None => {
            terminal.print(&format!("\nCommands to run to reach the above solution:\n{commands}"));
            Ok(())
        }
        Some(path) => save_text(path, &script(commands)),
    }
}

/// Returns the commands as a script that stops at the first failure.
fn script(commands: &str) -> String {
    format!("#!/bin/sh\n# Executes a plan of moves, job set by job set.\n\nset -e\n{commands}")
}

fn gnt_commands(source: &Source, group_plan: &GroupPlan, step: &Step) -> Vec<String> {
    let problem = &group_plan.problem;
    let instance = &source.cluster.instances[problem.services[step.service].instance];
    let name = &instance.name;
    let mut placements = step.kind.placements(step.from, step.to).into_iter();
    let mut current_node = step.from.primary;
    let mut commands = Vec::new();
    for operation in step.kind.operations(step.from, step.to) {
        // An instance that does not run, or whose node is off, cannot be migrated.
        let migrates = instance.status.is_running() && !problem.nodes[current_node].is_down;
        let verb = if migrates { "migrate" } else { "failover" };
        commands.push(match operation {
            Operation::Failover => format!("gnt-instance {verb} -f {name}"),
            Operation::Replace(node) => {
                format!("gnt-instance replace-disks -n {} {name}", source.node_name(problem, node))
            }
            Operation::MoveTo(node) => {
                format!("gnt-instance {verb} -f -n {} {name}", source.node_name(problem, node))
            }
        });
        current_node = placements.next().map_or(current_node, |placement| placement.primary);
    }
    commands
}
