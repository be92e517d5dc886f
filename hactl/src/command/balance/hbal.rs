//! The program under the name `hbal`: options, output, messages and exit statuses of Ganeti's hbal 3.0.2, so that existing
//! scripts continue to work.

use super::options::Options;
use super::planned::{GroupPlan, Source, TIME_LIMIT_MESSAGE, cluster_after, find_group, time_limit};
use super::{apply, commands, instances, nodes, search_end, steps};
use crate::command::htools::{self, EarlyExit};
use crate::config::ConnectionFlags;
use crate::failure::Exit;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{ArgAction, CommandFactory, Parser};
use ha_scheduler::balance::groups::partition::populated_groups;
use ha_scheduler::balance::model::Cluster;
use ha_scheduler::balance::problem::{Placement, Problem};
use ha_scheduler::balance::score::{SCORE_COMPONENTS, Usage, optimum, usages, values, violates_policy};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

/// Balance a cluster read from Ganeti's text format, or the live cluster
#[derive(Parser, Debug)]
#[command(name = "hbal", version, disable_version_flag = true, max_term_width = 110, infer_long_args = true)]
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
    /// Priority of jobs: low, normal or high; accepted and ignored
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<String>,
    /// Balance the live cluster; the path is ignored
    #[arg(long, short = 'L', value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    luxi: Option<String>,
    /// Print the options for shell completion
    #[arg(long)]
    help_completion: bool,
    #[command(flatten)]
    connection: ConnectionFlags,
    /// Print the version
    #[arg(long, short = 'V', action = ArgAction::Version)]
    version: Option<bool>,
}

/// Runs the program with the arguments after its name.
pub(crate) fn main(arguments_given: impl Iterator<Item = OsString>) -> ExitCode {
    let values = [("-C", "--print-commands="), ("-p", "--print-nodes="), ("-L", "--luxi=")];
    let arguments_given = htools::with_equals_signs(arguments_given.collect(), &values);
    htools::finish(parse_arguments(arguments_given).and_then(|arguments| {
        let session = Session::new(&htools::global_flags(&arguments.connection, arguments.quiet > 0));
        htools::block_on(arguments.run(&session))
    }))
}

/// Parses the arguments, and handles those that only print something.
fn parse_arguments(arguments_given: Vec<OsString>) -> Result<Arguments, EarlyExit> {
    if let Some(message) = htools::unsupported_source(&arguments_given, htools::LIVE_HINT) {
        return Err(EarlyExit::new(message));
    }
    let (mut arguments, _): (Arguments, _) = htools::parse(&mut Arguments::command(), arguments_given)?;
    if let Some(priority) = &arguments.priority
        && !["low", "normal", "high"].contains(&priority.as_str())
    {
        return Err(EarlyExit::invalid_value(format!("Unknown priority '{priority}'")));
    }
    arguments.options.keeps_single_steps = true;
    Ok(arguments)
}

impl Arguments {
    fn verbosity(&self) -> i16 {
        1 + i16::from(self.verbose) - i16::from(self.quiet)
    }

    async fn run(&self, session: &Session) -> Result<Exit, EarlyExit> {
        let (options, terminal) = (&self.options, session.terminal());
        if self.help_completion {
            terminal.print(&htools::completion(&Arguments::command(), &[]));
            return Ok(Exit::Done);
        }
        let source = htools::read_source(options, self.luxi.is_some(), session).await?;
        if self.verbosity() > 0 {
            htools::warn_of_unaccounted_usage(terminal, &source.cluster);
        }
        let cluster = &source.cluster;
        if cluster.instances.is_empty() {
            terminal.print_line("Cluster is empty, exiting.");
            return Ok(Exit::Done);
        }
        if self.verbosity() > 1 {
            warn_of_split_instances(terminal, cluster);
            terminal.print_line(&format!("Loaded cluster tags: {}", cluster.tags.join(",")));
        }
        terminal.print_line(&format!(
            "Loaded {} nodes, {} instances",
            cluster.nodes.len(),
            cluster.instances.len()
        ));
        let suffix = htools::common_suffix(cluster);
        if self.verbosity() > 1 && !suffix.is_empty() {
            terminal.print_line(&format!("Note: Stripping common suffix of '{suffix}' from names"));
        }
        let group = self.group(cluster)?;
        let time = time_limit(cluster, Instant::now(), options.budget, (0, 1));
        let group_plan = search_end::run_search(|| GroupPlan::new(&source, options, group, &time));
        if search_end::has_received_signal() {
            terminal.error_line(search_end::MESSAGE);
        } else if group_plan.has_reached_time_limit {
            terminal.error_line(TIME_LIMIT_MESSAGE);
        }
        // The output has short names; commands and files have full names.
        let short_names = source.without_suffix(&suffix);
        if self.oneline {
            let plan = &group_plan.plan;
            let ratio = if plan.end_score() == 0.0 { 1.0 } else { plan.start_score / plan.end_score() };
            terminal.print(&format!(
                "{:.8} {} {:.8} {ratio:8.3}\n",
                plan.start_score,
                plan.steps.len(),
                plan.end_score()
            ));
        } else {
            self.print(terminal, &short_names, &group_plan);
        }
        let chosen = [group_plan];
        options.save(&source.cluster, &cluster_after(&source, &chosen))?;
        let [group_plan] = &chosen;
        if self.is_balanced(group_plan) {
            return Ok(Exit::Done);
        }
        if let Some(file) = &options.print_commands {
            commands::output_commands(terminal, file, &commands::text(&source, group_plan))?;
        }
        if !self.oneline {
            self.print_tables(
                terminal,
                "Final",
                &short_names,
                group_plan,
                &group_plan.plan.placements(&group_plan.problem),
            );
        }
        if search_end::has_received_signal() {
            return Ok(Exit::Failed);
        }
        if options.apply {
            if options.text_data.is_some() {
                return Err(EarlyExit::new("Error: hbal: Execution of commands possible only on LUXI"));
            }
            let applied = apply::apply(session, options.execution_settings(), &source, &chosen).await?;
            if applied.is_terminated {
                // hbal ends with this message and status at SIGTERM.
                terminal.print_line("Double cancel request, exiting now...");
                return Err(EarlyExit {
                    exit: Exit::Usage,
                    ..applied.failure.map_or(EarlyExit::new(""), EarlyExit::from)
                });
            }
            return applied.failure.map_or(Ok(Exit::Done), |failure| Err(failure.into()));
        }
        Ok(Exit::Done)
    }

    fn group(&self, cluster: &Cluster) -> Result<usize, EarlyExit> {
        let list = |groups: &mut dyn Iterator<Item = usize>| -> String {
            groups.map(|group| format!("  {}\n", cluster.groups[group].name)).collect()
        };
        if let Some(name) = &self.options.group {
            return find_group(cluster, name).map_err(|_| {
                let known_groups = list(&mut (0..cluster.groups.len()));
                EarlyExit::new(format!(
                    "Node group {name} not found. Node group list is:\n{known_groups}Error: Aborting."
                ))
            });
        }
        let groups: Vec<usize> = populated_groups(cluster).collect();
        match groups.as_slice() {
            [group] => Ok(*group),
            several => Err(EarlyExit::new(format!(
                "Found multiple node groups:\n{}Error: Aborting.",
                list(&mut several.iter().copied())
            ))),
        }
    }

    /// Returns `true` if the score exceeds the optimum by less than the requested amount. No instance is moved then.
    fn is_balanced(&self, group_plan: &GroupPlan) -> bool {
        group_plan.plan.start_score - optimum(&group_plan.problem) < self.options.min_score
    }

    fn print(&self, terminal: &Terminal, source: &Source, group_plan: &GroupPlan) {
        let (cluster, problem, plan, verbosity) =
            (&source.cluster, &group_plan.problem, &group_plan.plan, self.verbosity());
        let at_start = usages(problem, &problem.start_placements);
        terminal.print_line(&format!(
            "Group size {} nodes, {} instances\nSelected node group: {}",
            problem.nodes.len(),
            problem.services.len(),
            cluster.groups[group_plan.group].name
        ));
        let problem_nodes = || problem.nodes.iter().zip(&at_start);
        let n1_failing_nodes: BTreeSet<usize> = problem_nodes()
            .enumerate()
            .filter(|(_, (problem_node, usage))| !problem_node.is_offline && usage.fails_n1())
            .map(|(index, _)| index)
            .collect();
        let is_on_failing_node = |placement: &&Placement| {
            placement.nodes().any(|problem_node| n1_failing_nodes.contains(&problem_node))
        };
        if verbosity > 0 {
            terminal.print_line(&format!(
                "Initial check done: {} bad nodes, {} bad instances.",
                n1_failing_nodes.len(),
                problem.start_placements.iter().filter(is_on_failing_node).count()
            ));
        }
        if !n1_failing_nodes.is_empty() {
            terminal.print_line(
                "Cluster is not N+1 happy, continuing but no guarantee that the cluster will end N+1 happy.",
            );
        }
        let violating =
            problem_nodes().filter(|(problem_node, usage)| violates_policy(problem_node, usage)).count();
        if violating > 0 {
            let effect = if self.options.ignore_soft_errors {
                "ignoring soft errors."
            } else {
                "but the set of moves might be too restricted; consider using the --ignore-soft-errors option."
            };
            terminal.print_line(&format!(
                "The cluster contains {violating} policy-violating nodes.\nContinuing, {effect}"
            ));
        }
        self.print_tables(terminal, "Initial", source, group_plan, &problem.start_placements);
        if verbosity > 2 {
            terminal.print_line(&format!("Initial coefficients: overall {:.8}", plan.start_score));
            terminal.print(&coefficients(problem, &problem.start_placements));
        } else {
            terminal.print_line(&format!("Initial score: {:.8}", plan.start_score));
        }
        if self.is_balanced(group_plan) {
            terminal.print_line(&format!(
                "Cluster is already well balanced (initial score {},\noptimum score due to N+1 reservations \
                 {},\nminimum score {}).\nNothing to do, exiting",
                six_digits(plan.start_score),
                six_digits(optimum(problem)),
                six_digits(self.options.min_score)
            ));
            return;
        }
        terminal.print_line("Trying to minimize the CV...");
        terminal.print(&steps::text(source, group_plan));
        if plan.steps.is_empty() {
            terminal.print_line("No solution found");
        } else if verbosity > 2 {
            terminal.print_line(&format!("Final coefficients:   overall {:.8}", plan.end_score()));
            terminal.print(&coefficients(problem, &plan.placements(problem)));
        } else {
            terminal.print_line(&format!(
                "Cluster score improved from {:.8} to {:.8}",
                plan.start_score,
                plan.end_score()
            ));
        }
        if verbosity > 0 {
            terminal.print_line(&format!("Solution length={}", plan.steps.len()));
        }
        if verbosity > 3 {
            let free = |usages: &[Usage]| {
                let sum = |amount: fn(&Usage) -> i64| usages.iter().map(amount).sum::<i64>();
                (sum(|usage| usage.memory_free), sum(|usage| usage.disk_free))
            };
            let at_end = usages(problem, &plan.placements(problem));
            let ((memory, disk), (memory_after, disk_after)) = (free(&at_start), free(&at_end));
            terminal.print_line(&format!(
                "Original: mem={memory} disk={disk}\nFinal:    mem={memory_after} disk={disk_after}"
            ));
        }
    }

    /// Prints the requested tables to standard error, as hbal does.
    fn print_tables(
        &self,
        terminal: &Terminal,
        when: &str,
        source: &Source,
        group_plan: &GroupPlan,
        placements: &[Placement],
    ) {
        let (cluster, problem) = (&source.cluster, &group_plan.problem);
        if self.options.print_instances {
            let table = instances::table(cluster, problem, placements);
            terminal.error_line(&format!("\n{when} instance map:\n{}", table.trim_end()));
        }
        if self.options.print_nodes.is_some() {
            let table = nodes::table(cluster, problem, placements, &self.options.node_fields());
            terminal.error_line(&format!("\n{when} cluster status:\n{table}"));
        }
    }
}

/// Returns every value of the score with its weight.
pub(crate) fn coefficients(problem: &Problem, placements: &[Placement]) -> String {
    let amounts: Vec<String> =
        values(problem, placements).into_iter().map(|amount| format!("{amount:.8}")).collect();
    // As in hbal, the longest value determines the width.
    let width = amounts.iter().map(String::len).max().unwrap_or_default();
    let mut text = format!("   {:24} {:>width$} {:>6}\n", "Field", "Value", "Weight");
    for (value, amount) in SCORE_COMPONENTS.iter().zip(amounts) {
        let weight = format!("x{:.2}", value.weight);
        text += &format!("   {:24} {amount:>width$} {weight:>6}\n", value.name);
    }
    text
}

/// Formats a number as `%.6g` of Haskell: six decimals from 0.1 on, otherwise with an exponent.
fn six_digits(number: f64) -> String {
    if number == 0.0 || (0.1..1e7).contains(&number) {
        format!("{number:.6}")
    } else {
        format!("{number:.6e}")
    }
}

/// Warns about instances whose nodes are in different groups, because such instances are not moved.
fn warn_of_split_instances(terminal: &Terminal, cluster: &Cluster) {
    let group = |node: usize| cluster.nodes[node].group;
    let split: String = cluster
        .instances
        .iter()
        .filter(|instance| instance.secondary.is_some_and(|node| group(node) != group(instance.primary)))
        .map(|instance| format!("  {}\n", instance.name))
        .collect();
    if !split.is_empty() {
        terminal.error_line(&format!(
            "Found instances belonging to multiple node groups:\n{split}These instances will not be moved."
        ));
    }
}
