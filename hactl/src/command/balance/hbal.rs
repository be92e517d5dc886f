//! The program under the name `hbal`: options, output, messages and exit statuses of Ganeti's hbal 3.0.2, so that existing
//! scripts continue to work.

use super::options::Options;
use super::planned::{
    GroupPlan, Source, TIME_LIMIT_MESSAGE, apply_loads_and_offline, cluster_after, find_group, time_limit,
};
use super::{apply, commands, instances, nodes, steps};
use crate::arguments::GlobalFlags;
use crate::config::ConnectionFlags;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::terminal::{ColorChoice, Terminal};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, Parser};
use ha_scheduler::balance::groups::partition::populated_groups;
use ha_scheduler::balance::model::{Cluster, Node};
use ha_scheduler::balance::problem::Placement;
use ha_scheduler::balance::score::{Usage, VALUES, optimum, usages, values, violates_policy};
use ha_scheduler::balance::text;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Balance a cluster read from Ganeti's text format, or the live cluster
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

/// The end of a run that failed: the exit status, and the message for standard error in hbal's form.
struct Abort {
    exit: Exit,
    message: String,
}

impl Abort {
    /// Input that hbal refuses with status 1.
    fn new(message: impl Into<String>) -> Abort {
        Abort { exit: Exit::Failed, message: message.into() }
    }

    fn load_failure(cause: impl std::fmt::Display) -> Abort {
        Abort::new(format!("Error: failed to load data, aborting: {cause}"))
    }
}

impl From<Failure> for Abort {
    fn from(failure: Failure) -> Abort {
        let help = if failure.help.is_empty() { String::new() } else { format!("\nhint: {}", failure.help) };
        Abort { exit: failure.exit, message: format!("Error: {}{help}", failure.message) }
    }
}

/// Runs the program with the arguments after its name.
pub(crate) fn main(arguments_given: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments_given: Vec<OsString> = arguments_given.map(with_equals_sign).collect();
    let result = parse_arguments(arguments_given).and_then(|arguments| {
        let session = Session::new(&arguments.flags());
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Abort::new(format!("Error: cannot start the runtime: {error}")))
            .and_then(|runtime| runtime.block_on(arguments.run(&session)))
    });
    match result {
        Ok(exit) => exit.into(),
        Err(Abort { exit, message }) => {
            if !message.is_empty() {
                Terminal::new(ColorChoice::Never, false, 0).error_line(&message);
            }
            exit.into()
        }
    }
}

/// Parses the arguments, and handles those that only print something.
fn parse_arguments(arguments_given: Vec<OsString>) -> Result<Arguments, Abort> {
    if let Some(message) = unsupported_source(&arguments_given) {
        return Err(Abort::new(message));
    }
    let arguments_given = std::iter::once(OsString::from("hbal")).chain(arguments_given);
    let mut arguments = Arguments::try_parse_from(arguments_given).map_err(|error| {
        let argument = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(argument)) => argument.clone(),
            Some(_) | None => String::new(),
        };
        let kind = error.kind();
        if kind == ErrorKind::DisplayHelp || kind == ErrorKind::DisplayVersion {
            // A failure to print the help cannot be reported in another way.
            let _ = error.print();
            return Abort { exit: Exit::Done, message: String::new() };
        }
        if kind != ErrorKind::UnknownArgument {
            let text = error.to_string();
            let text = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            return Abort::new(format!("Error while parsing command line arguments:\n{text}"));
        }
        if !argument.starts_with('-') {
            return Abort::new("Error: This program doesn't take any arguments.");
        }
        let usage = Arguments::command().render_help();
        let message = format!("Command line error: unrecognized option `{argument}'\n\n{usage}");
        Abort { exit: Exit::Usage, message }
    })?;
    if let Some(priority) = &arguments.priority
        && !["low", "normal", "high"].contains(&priority.as_str())
    {
        let message = format!("Error while parsing command line arguments:\nUnknown priority '{priority}'");
        return Err(Abort::new(message));
    }
    arguments.options.keeps_single_steps = true;
    Ok(arguments)
}

/// Inserts the equals sign that is missing before the value in `-CFILE`, `-pFIELDS` and `-LPATH`.
fn with_equals_sign(argument: OsString) -> OsString {
    let Some(text) = argument.to_str() else { return argument };
    // Programs of Ganeti accept abbreviated long options, and existing scripts use this abbreviation.
    if text == "--prio" {
        return "--priority".into();
    }
    if let Some(value) = text.strip_prefix("--prio=") {
        return format!("--priority={value}").into();
    }
    for (short, long) in [("-C", "--print-commands="), ("-p", "--print-nodes="), ("-L", "--luxi=")] {
        match text.strip_prefix(short) {
            Some(value) if !value.is_empty() && !value.starts_with('=') => {
                return format!("{long}{value}").into();
            }
            Some(_) | None => {}
        }
    }
    argument
}

/// Returns the error message if the arguments name an unsupported source of data, or several sources.
fn unsupported_source(arguments_given: &[OsString]) -> Option<String> {
    let has_option = |sources: &[&str]| {
        arguments_given.iter().filter_map(|argument| argument.to_str()).any(|argument| {
            sources.iter().any(|source| {
                argument == *source
                    || (argument.starts_with(source) && !source.starts_with("--"))
                    || argument.starts_with(&format!("{source}="))
            })
        })
    };
    let (rapi, luxi, file) =
        (has_option(&["-m", "--master"]), has_option(&["-L", "--luxi"]), has_option(&["-t", "--text-data"]));
    if [rapi, luxi, file].into_iter().filter(|is_given| *is_given).count() > 1 {
        return Some("Error: Only one of the rapi, luxi, and data files options should be given.".to_owned());
    }
    let cause = if rapi {
        "-m: RAPI access to a Ganeti cluster is not supported"
    } else if has_option(&["-I", "--ialloc-src"]) {
        "-I: iallocator requests are not supported"
    } else {
        return None;
    };
    Some(format!("Error: {cause}\nhint: add -t FILE, or -L for the live cluster"))
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

    fn verbosity(&self) -> i16 {
        1 + i16::from(self.verbose) - i16::from(self.quiet)
    }

    async fn run(&self, session: &Session) -> Result<Exit, Abort> {
        let (options, terminal) = (&self.options, session.terminal());
        if self.help_completion {
            terminal.print(&completion());
            return Ok(Exit::Done);
        }
        let mut source = match (&options.text_data, &self.luxi) {
            (Some(path), _) => read_cluster(path)?,
            (None, Some(_)) => Source::read_live_cluster(session.client()?).await?,
            (None, None) => return Err(Abort::load_failure("No backend selected! Exiting.")),
        };
        self.apply_loads_and_offline_nodes(&mut source)?;
        if self.verbosity() > 0 {
            warn_of_unaccounted_usage(terminal, &source.cluster);
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
        let suffix = common_suffix(cluster);
        if self.verbosity() > 1 && !suffix.is_empty() {
            terminal.print_line(&format!("Note: Stripping common suffix of '{suffix}' from names"));
        }
        let group = self.group(cluster)?;
        let group_plan = GroupPlan::new(
            &source,
            options,
            group,
            &time_limit(cluster, Instant::now(), options.budget, (0, 1)),
        );
        if group_plan.has_reached_time_limit {
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
        if options.apply {
            if options.text_data.is_some() {
                return Err(Abort::new("Error: hbal: Execution of commands possible only on LUXI"));
            }
            let applied = apply::apply(session, options.execution_settings(), &source, &chosen).await?;
            return applied.failure.map_or(Ok(Exit::Done), |failure| Err(failure.into()));
        }
        Ok(Exit::Done)
    }

    /// Applies the options about nodes and instances to the cluster, and checks the names in them.
    fn apply_loads_and_offline_nodes(&self, source: &mut Source) -> Result<(), Abort> {
        let (options, cluster) = (&self.options, &mut source.cluster);
        if let Some(path) = &options.dynu_file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Abort::load_failure(format!("{}: {error}", path.display())))?;
            apply_utilization(cluster, &text)
                .map_err(|error| Abort::new(format!("Error: can't parse utilisation data: {error}")))?;
        }
        let unknown: Vec<&str> = options
            .offline
            .iter()
            .map(String::as_str)
            .filter(|name| !cluster.nodes.iter().any(|node| node.name == *name))
            .collect();
        if !unknown.is_empty() {
            let message = format!("Error: wrong node name(s) set as offline: {}\n", unknown.join(","));
            return Err(Abort::new(message));
        }
        apply_loads_and_offline(cluster, None, &options.offline)?;
        let unknown: Vec<&String> = options
            .select_instances
            .iter()
            .chain(&options.exclude_instances)
            .filter(|name| !cluster.instances.iter().any(|instance| instance.name == options.name(name)))
            .collect();
        if !unknown.is_empty() {
            return Err(Abort::load_failure(format!("Unknown instance(s): {unknown:?}")));
        }
        Ok(())
    }

    /// Returns the group to balance.
    fn group(&self, cluster: &Cluster) -> Result<usize, Abort> {
        let list = |groups: &mut dyn Iterator<Item = usize>| -> String {
            groups.map(|group| format!("  {}\n", cluster.groups[group].name)).collect()
        };
        if let Some(name) = &self.options.group {
            return find_group(cluster, name).map_err(|_| {
                let known_groups = list(&mut (0..cluster.groups.len()));
                Abort::new(format!(
                    "Node group {name} not found. Node group list is:\n{known_groups}Error: Aborting."
                ))
            });
        }
        let groups: Vec<usize> = populated_groups(cluster).collect();
        match groups.as_slice() {
            [group] => Ok(*group),
            several => Err(Abort::new(format!(
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
            terminal.print(&coefficients(group_plan, &problem.start_placements));
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
            terminal.print(&coefficients(group_plan, &plan.placements(problem)));
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
fn coefficients(group_plan: &GroupPlan, placements: &[Placement]) -> String {
    let mut text = format!("   {:24} {:>10} {:>6}\n", "Field", "Value", "Weight");
    for (value, amount) in VALUES.iter().zip(values(&group_plan.problem, placements)) {
        let weight = format!("x{:.2}", value.weight);
        text += &format!("   {:24} {amount:.8} {weight:>6}\n", value.name);
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

/// Returns the options, one a line, for the completion of shells.
fn completion() -> String {
    let mut text = String::new();
    for option in Arguments::command().get_arguments() {
        let Some(long) = option.get_long() else { continue };
        let short = option.get_short().map_or(String::new(), |short| format!("-{short},"));
        let kind = match option.get_id().as_str() {
            "text_data" | "luxi" | "dynu_file" => "file",
            "group" => "onegroup",
            "max_length" => "integer",
            "offline" => "onenode",
            "min_score" | "max_cpu" | "min_disk" | "min_gain" | "min_gain_limit" => "float",
            "select_instances" | "exclude_instances" => "manyinstances",
            "exclusion_tags" => "string",
            "priority" => "choices=low,normal,high",
            _ => "none",
        };
        text += &format!("{short}--{long} {kind}\n");
    }
    text
}

/// Reads the cluster from a file.
fn read_cluster(path: &Path) -> Result<Source, Abort> {
    let contents = std::fs::read_to_string(path)
        .map_err(|error| Abort::load_failure(format!("{}: {error}", path.display())))?;
    Source::from_text(&contents).map_err(|error| match error.unknown_node() {
        Some(node) => {
            let line = contents.lines().nth(error.line.saturating_sub(1)).unwrap_or_default();
            let instance = line.split('|').next().unwrap_or_default();
            Abort::load_failure(format!("Unknown node '{node}' for instance {instance}"))
        }
        None => Abort::load_failure(format!("{}: {error}", path.display())),
    })
}

/// Reads measured usage. As in hbal, lines about unknown instances are ignored.
fn apply_utilization(cluster: &mut Cluster, text: &str) -> Result<(), String> {
    let mut known_lines = String::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, amounts @ ..] = fields.as_slice() else { continue };
        if amounts.len() != 4 {
            return Err(format!("Cannot parse line {line}"));
        }
        if let Some(invalid_amount) = amounts.iter().find(|amount| amount.parse::<f64>().is_err()) {
            return Err(format!("{name}: cannot parse string '{invalid_amount}'"));
        }
        if cluster.instances.iter().any(|instance| instance.name == *name) {
            known_lines += &format!("{line}\n");
        }
    }
    text::read_utilization(cluster, &known_lines).map_err(|error| error.to_string())
}

/// Warns about nodes whose used memory or disk exceeds the sum of the node's usage and the usage of its instances.
fn warn_of_unaccounted_usage(terminal: &Terminal, cluster: &Cluster) {
    let mut used_by_node: BTreeMap<usize, (i64, i64)> = BTreeMap::new();
    for instance in cluster.instances.iter().filter(|instance| !instance.forthcoming) {
        if instance.status.is_running() {
            used_by_node.entry(instance.primary).or_default().0 += instance.memory;
        }
        // hbal counts every disk here, even on shared storage.
        for node in [Some(instance.primary), instance.secondary].into_iter().flatten() {
            used_by_node.entry(node).or_default().1 += instance.disk;
        }
    }
    let missing = |(node_index, node): (usize, &Node)| {
        let (memory, disk) = used_by_node.get(&node_index).copied().unwrap_or_default();
        let memory = node.memory_total - node.memory_own - node.memory_free - memory;
        let disk = node.disk_total - node.disk_free - disk;
        (memory > 512 || disk > 1024).then(|| {
            format!("  - node {} is missing {memory} MB ram and {} GB disk\n", node.name, disk / 1024)
        })
    };
    let lines: String = cluster.nodes.iter().enumerate().filter_map(missing).collect();
    if !lines.is_empty() {
        terminal.error_line(&format!("Warning: cluster has inconsistent data:\n{lines}"));
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

/// Returns the longest common suffix of the names of all nodes and instances that begins with a dot; empty if there is
/// none.
fn common_suffix(cluster: &Cluster) -> String {
    let mut names = cluster
        .nodes
        .iter()
        .map(|node| node.name.as_str())
        .chain(cluster.instances.iter().map(|instance| instance.name.as_str()));
    let first_name = names.next().unwrap_or_default();
    let other_names: Vec<&str> = names.collect();
    first_name
        .match_indices('.')
        .map(|(start, _)| &first_name[start..])
        .find(|suffix| other_names.iter().all(|name| name.ends_with(suffix)))
        .unwrap_or_default()
        .to_owned()
}
