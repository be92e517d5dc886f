//! The program under the name `hcheck`: options, output and exit statuses of Ganeti's hcheck 3.0.2.

use super::EarlyExit;
use crate::command::balance::options::Options;
use crate::command::balance::planned::{GroupPlan, Source, TIME_LIMIT_MESSAGE, cluster_after, time_limit};
use crate::config::ConnectionFlags;
use crate::failure::Exit;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, CommandFactory, Parser};
use ha_scheduler::balance::groups::partition::populated_groups;
use ha_scheduler::balance::htools::global_failover::fatal_nodes;
use ha_scheduler::balance::model::Cluster;
use ha_scheduler::balance::problem::Problem;
use ha_scheduler::balance::score::{score, usages};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

/// Check a cluster read from Ganeti's text format, or the live cluster
#[derive(Parser, Debug)]
#[command(
    name = "hcheck",
    version,
    disable_version_flag = true,
    max_term_width = 110,
    infer_long_args = true,
    after_help = "Exit status: 0 healthy, made healthy by balancing, or --no-simulation; 1 not healthy after balancing, or \
        invalid input; 2 unknown option."
)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Print KEY=VALUE lines: yes or no
    #[arg(long, value_name = "CHOICE", num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    machine_readable: Option<String>,
    /// Skip the simulation of balancing
    #[arg(long)]
    no_simulation: bool,
    /// Skip the N+1 check of services on shared storage
    #[arg(long)]
    no_capacity_checks: bool,
    /// Increase verbosity; repeatable
    #[arg(long, short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Decrease verbosity
    #[arg(long, short = 'q', action = ArgAction::Count)]
    quiet: u8,
    /// Check the live cluster; the path is ignored
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

/// Options of hbal that hcheck does not have.
const HBAL_OPTIONS: [&str; 8] = [
    "apply",
    "timeout",
    "save",
    "group",
    "print_commands",
    "print_nodes",
    "print_instances",
    "restricted_migration",
];

/// Runs the program with the arguments after its name.
pub(super) fn main(arguments_given: impl Iterator<Item = OsString>) -> ExitCode {
    super::finish(parse_arguments(arguments_given.collect()).and_then(|arguments| {
        let session = Session::new(&super::global_flags(&arguments.connection, false));
        super::block_on(arguments.run(&session))
    }))
}

fn parse_arguments(arguments_given: Vec<OsString>) -> Result<Arguments, EarlyExit> {
    if let Some(message) = super::unsupported_source(&arguments_given, super::LIVE_HINT) {
        return Err(EarlyExit::new(message));
    }
    let arguments_given = super::with_equals_signs(arguments_given, &[("-L", "--luxi=")]);
    let mut command = Arguments::command();
    for name in HBAL_OPTIONS {
        command = command.mut_arg(name, |argument| argument.hide(true));
    }
    let (mut arguments, matches): (Arguments, ArgMatches) = super::parse(&mut command, arguments_given)?;
    for name in HBAL_OPTIONS {
        if matches.value_source(name) == Some(ValueSource::CommandLine) {
            return Err(super::unrecognized(&mut command, &format!("--{}", name.replace('_', "-"))));
        }
    }
    if let Some(choice) = &arguments.machine_readable {
        super::parse_choice(choice)?;
    }
    arguments.options.keeps_single_steps = true;
    // By default, the simulation makes the steps of Ganeti's hbal, so that the result equals that of hcheck.
    arguments.options.evaluations.get_or_insert(0);
    Ok(arguments)
}

impl Arguments {
    async fn run(&self, session: &Session) -> Result<Exit, EarlyExit> {
        let (options, terminal) = (&self.options, session.terminal());
        if self.help_completion {
            terminal.print(&super::completion(&Arguments::command(), &HBAL_OPTIONS));
            return Ok(Exit::Done);
        }
        let source = super::read_source(options, self.luxi.is_some(), session).await?;
        if self.verbose >= self.quiet {
            super::warn_of_unaccounted_usage(terminal, &source.cluster);
        }
        let output_options = OutputOptions {
            is_machine_readable: self.machine_readable.as_deref() == Some("yes"),
            is_quiet: self.verbose < self.quiet,
            checks_capacity: !self.no_capacity_checks,
        };
        let initial = output_options.check(&source.cluster, options, &source.drained);
        let is_simulated = !self.no_simulation && initial.is_unhealthy();
        let rebalanced = is_simulated.then(|| self.rebalanced(terminal, &source));
        let last = match &rebalanced {
            Some(cluster) => output_options.check(cluster, options, &source.drained),
            None => initial.clone(),
        };
        let text = output_options.text(&source.cluster, &initial, &last, self.no_simulation, is_simulated);
        terminal.print(&text);
        // Without a simulation, the result is only a report.
        Ok(if is_simulated && last.is_unhealthy() { Exit::Failed } else { Exit::Done })
    }

    /// Plans each group, and returns the cluster after all plans.
    fn rebalanced(&self, terminal: &Terminal, source: &Source) -> Cluster {
        let groups: Vec<usize> = populated_groups(&source.cluster).collect();
        let started_at = Instant::now();
        let plans: Vec<GroupPlan> = groups
            .iter()
            .enumerate()
            .map(|(index, &group)| {
                let limit =
                    time_limit(&source.cluster, started_at, self.options.budget, (index, groups.len()));
                GroupPlan::new(source, &self.options, group, &limit)
            })
            .collect();
        if plans.iter().any(|plan| plan.has_reached_time_limit) {
            terminal.error_line(TIME_LIMIT_MESSAGE);
        }
        cluster_after(source, &plans)
    }
}

/// Counts that make a group unhealthy, each with its key and its label.
const COUNT_LABELS: [(&str, &str); 5] = [
    ("N1_FAIL", "Nodes not N+1 happy"),
    ("CONFLICT_TAGS", "Nodes with conflicting instances"),
    ("OFFLINE_PRI", "Instances having the primary node offline"),
    ("OFFLINE_SEC", "Instances having a secondary node offline"),
    ("GN1_FAIL", "Nodes not directly evacuateable"),
];

/// The state of a cluster: its groups with nodes, by position, and their statistics.
#[derive(Clone)]
struct ClusterStatistics {
    groups: Vec<(usize, Statistics)>,
}

#[derive(Clone)]
struct Statistics {
    /// The counts in the order of [`COUNT_LABELS`]. The last one is missing without capacity checks.
    counts: Vec<usize>,
    score: f64,
}

impl Statistics {
    fn with_score(&self) -> Vec<String> {
        self.counts.iter().map(usize::to_string).chain([format!("{:.8}", self.score)]).collect()
    }
}

impl ClusterStatistics {
    /// Returns the sums over all groups.
    fn totals(&self) -> Vec<usize> {
        let length = self.groups.first().map_or(0, |(_, statistics)| statistics.counts.len());
        let total = |index: usize| self.groups.iter().map(|(_, statistics)| statistics.counts[index]).sum();
        (0..length).map(total).collect()
    }

    fn is_unhealthy(&self) -> bool {
        self.totals().iter().any(|count| *count > 0)
    }
}

/// The options that determine the output.
struct OutputOptions {
    is_machine_readable: bool,
    is_quiet: bool,
    checks_capacity: bool,
}

impl OutputOptions {
    fn check(&self, cluster: &Cluster, options: &Options, drained: &BTreeSet<String>) -> ClusterStatistics {
        let settings = options.settings(drained);
        let groups = populated_groups(cluster).map(|group| {
            let problem = Problem::new(cluster, group, &settings);
            (group, self.statistics(cluster, &problem))
        });
        ClusterStatistics { groups: groups.collect() }
    }

    fn statistics(&self, cluster: &Cluster, problem: &Problem) -> Statistics {
        let placements = &problem.start_placements;
        let usages = usages(problem, placements);
        let failing =
            problem.nodes.iter().zip(&usages).filter(|(node, usage)| !node.is_offline && usage.fails_n1());
        let primaries = placements.iter().filter(|placement| problem.nodes[placement.primary].is_offline);
        let mut counts = vec![
            failing.count(),
            conflicting_nodes(problem),
            primaries.count(),
            // hcheck 3.0.2 prints the number of offline nodes here, with or without secondaries.
            problem.nodes.iter().filter(|node| node.is_offline).count(),
        ];
        if self.checks_capacity {
            counts.push(fatal_nodes(cluster, problem).len());
        }
        Statistics { counts, score: score(problem, placements) }
    }

    /// Returns the whole output.
    fn text(
        &self,
        cluster: &Cluster,
        initial: &ClusterStatistics,
        last: &ClusterStatistics,
        is_simulation_skipped: bool,
        is_simulated: bool,
    ) -> String {
        if self.is_machine_readable {
            let groups = cluster.groups.iter().enumerate();
            let uuids: String = groups
                .map(|(number, group)| format!("HCHECK_GROUP_UUID_{number}={}\n", super::quoted(&group.uuid)))
                .collect();
            return uuids
                + &machine_readable_lines("INIT", initial)
                + &machine_readable_lines("FINAL", last)
                + "HCHECK_OK=1\n";
        }
        if self.is_quiet {
            return String::new();
        }
        let verdict = match (is_simulation_skipped, is_simulated) {
            (true, _) => "Running in no-simulation mode.",
            (false, true) => "Cluster needs rebalancing.",
            (false, false) => "No need to rebalance cluster, no problems found.",
        };
        let mut text = format!("{verdict}\n{}", statistics_tables(cluster, initial, "initially"));
        if is_simulated {
            text += &statistics_tables(cluster, last, "after rebalancing");
        }
        text
    }
}

/// Returns the number of nodes that run several instances with the same exclusion tag.
fn conflicting_nodes(problem: &Problem) -> usize {
    let mut tags = BTreeSet::new();
    let mut nodes = BTreeSet::new();
    for (service, placement) in problem.services.iter().zip(&problem.start_placements) {
        for tag in &service.exclusion {
            if !tags.insert((placement.primary, *tag)) {
                nodes.insert(placement.primary);
            }
        }
    }
    nodes.len()
}

/// Returns the counts, followed by the health. Without groups, only the health is returned, as in hcheck.
fn with_health(checked: &ClusterStatistics, health: &str) -> Vec<String> {
    checked.totals().iter().map(usize::to_string).chain([health.to_owned()]).collect()
}

/// Returns the labels of the counts, and the label of the last value.
fn labels(
    checked: &ClusterStatistics,
    label: fn(&(&'static str, &'static str)) -> &'static str,
    last: &'static str,
) -> Vec<&'static str> {
    let count = checked.groups.first().map_or(COUNT_LABELS.len(), |(_, statistics)| statistics.counts.len());
    COUNT_LABELS.iter().take(count).map(label).chain([last]).collect()
}

fn lines(prefix: &str, labels: &[&str], separator: &str, values: &[String]) -> String {
    labels.iter().zip(values).map(|(label, value)| format!("{prefix}{label}{separator}{value}\n")).collect()
}

/// Formats the result as `KEY=VALUE` lines for `--machine-readable`.
fn machine_readable_lines(phase: &str, checked: &ClusterStatistics) -> String {
    let labels_with = |last| labels(checked, |(key, _)| key, last);
    let mut text = String::new();
    for (number, (_, statistics)) in checked.groups.iter().enumerate() {
        let values = statistics.with_score();
        text += &lines(&format!("HCHECK_{phase}_GROUP_{number}_"), &labels_with("SCORE"), "=", &values);
    }
    let health = u8::from(checked.is_unhealthy()).to_string();
    text + &lines(
        &format!("HCHECK_{phase}_CLUSTER_"),
        &labels_with("NEED_REBALANCE"),
        "=",
        &with_health(checked, &health),
    )
}

/// Formats the result as tables, the output without `--machine-readable`.
fn statistics_tables(cluster: &Cluster, checked: &ClusterStatistics, when: &str) -> String {
    let labels_with = |last| labels(checked, |(_, text)| text, last);
    let mut text = String::new();
    for (group, statistics) in &checked.groups {
        text += &format!("\nStatistics for group {} {when}\n", cluster.groups[*group].name);
        text += &lines("    ", &labels_with("Group score"), ": ", &statistics.with_score());
    }
    let health = if checked.is_unhealthy() { "True" } else { "False" };
    text += &format!("\nCluster statistics {when}\n");
    text + &lines("    ", &labels_with("Cluster is not healthy"), ": ", &with_health(checked, health))
}
