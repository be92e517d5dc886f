//! The program under the name `hail`: the allocator of Ganeti 3.0.2, with a request as JSON in a file and the answer as JSON.

mod answer;
mod haskell_text;
mod request;

use super::units::parse_integer;
use super::{EarlyExit, NodeTable, simulation};
use crate::failure::Exit;
use crate::terminal::{ColorChoice, Terminal};
use answer::Answer;
use clap::{ArgAction, CommandFactory, Parser};
use ha_scheduler::balance::htools::allocation::{AllocationRules, add};
use ha_scheduler::balance::htools::evacuation::{
    allocate_secondary, change_group, evacuate, relocate_instance,
};
use ha_scheduler::balance::htools::group_choice::{
    Refusal, RequestedInstance, choose, choose_each, node_names,
};
use ha_scheduler::balance::model::Cluster;
use ha_scheduler::balance::problem::Settings;
use request::{HailRequest, Question};
use serde_json::json;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Answer an allocator request of Ganeti
#[derive(Parser, Debug)]
#[command(
    name = "hail",
    version,
    disable_version_flag = true,
    max_term_width = 110,
    infer_long_args = true,
    after_help = "Exit status: 0 answered, also if the request failed; 1 invalid input; 2 unknown option."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate option")]
struct Arguments {
    /// File with the request in JSON, or - for standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the nodes before and after; with +, add fields
    #[arg(long, short = 'p', value_name = "FIELDS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    print_nodes: Option<String>,
    /// Save the cluster to FILE.pre-ialloc and FILE.post-ialloc
    #[arg(long, short = 'S', value_name = "FILE")]
    save: Option<PathBuf>,
    /// Read the cluster from this text file instead of the request
    #[arg(long, short = 't', value_name = "FILE")]
    text_data: Option<PathBuf>,
    /// Simulate an empty group instead of the cluster; repeatable
    ///
    /// POLICY,NODES,DISK,MEMORY,CPUS[,SPINDLES]
    #[arg(long, value_name = "SPEC")]
    simulate: Vec<String>,
    /// Increase verbosity; repeatable
    #[arg(long, short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Count the usage of the instances of --text-data as 0
    #[arg(long)]
    ignore_dynu: bool,
    /// Ignore N+1, exclusion tags, and the ratios of CPUs and spindles
    #[arg(long)]
    ignore_soft_errors: bool,
    /// Do not require that each node can be evacuated after an allocation
    #[arg(long)]
    no_capacity_checks: bool,
    /// Place new instances only on these nodes, separated by commas
    #[arg(long, value_name = "NODE,...")]
    restrict_allocation_to: Option<String>,
    /// Query monitoring daemons: yes is refused
    #[arg(long, value_name = "CHOICE", num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    mond: Option<String>,
    /// Use collectors of Xen with --mond; accepted and ignored
    #[arg(long)]
    mond_xen: bool,
    /// Memory in MiB that a KVM node itself uses; 0 for the reported one
    #[arg(long, value_name = "N", default_value = "4096", allow_hyphen_values = true)]
    static_kvm_node_memory: String,
    /// Print the options for shell completion
    #[arg(long)]
    help_completion: bool,
    /// Print the version
    #[arg(long, short = 'V', action = ArgAction::Version)]
    version: Option<bool>,
}

/// Runs the program with the arguments after its name.
pub(super) fn main(arguments_given: impl Iterator<Item = OsString>) -> ExitCode {
    let terminal = Terminal::new(ColorChoice::Never, false, 0);
    super::finish(parse_arguments(arguments_given.collect()).and_then(|arguments| run(&terminal, &arguments)))
}

fn parse_arguments(arguments_given: Vec<OsString>) -> Result<Arguments, EarlyExit> {
    let arguments_given = super::with_equals_signs(arguments_given, &[("-p", "--print-nodes=")]);
    let (arguments, _): (Arguments, _) = super::parse(&mut Arguments::command(), arguments_given)?;
    if let Some(choice) = &arguments.mond
        && super::parse_choice(choice)?
    {
        return Err(EarlyExit::new("Error: --mond: monitoring daemons of Ganeti are not supported"));
    }
    Ok(arguments)
}

fn run(terminal: &Terminal, arguments: &Arguments) -> Result<Exit, EarlyExit> {
    if arguments.help_completion {
        terminal.print(&(super::completion(&Arguments::command(), &["files"]) + "file 1 1\n"));
        return Ok(Exit::Done);
    }
    let mut received = read_request(terminal, arguments)?;
    if arguments.verbose > 0 {
        terminal.error_line(&format!("Received request: {}", haskell_text::question(&received)));
    }
    if arguments.verbose > 1 {
        terminal.error_line(&format!("Received cluster data: {}", haskell_text::cluster(&received)));
    }
    let settings = Settings {
        ignore_soft_errors: arguments.ignore_soft_errors,
        copies_from_down_nodes: true,
        ..Settings::default()
    };
    let rules = AllocationRules {
        checks_capacity: !arguments.no_capacity_checks,
        disk_sizes: received.disk_sizes(),
        networks: received.networks(),
        restricted_to: restriction(arguments, &received.question),
        settings,
        ..AllocationRules::default()
    };
    let is_dedicated = received.is_for_dedicated_nodes();
    if is_dedicated && arguments.verbose > 0 {
        terminal.error_line("Allocation on a dedicated cluster; using lost-allocations metrics.");
    }
    let reported = std::mem::take(&mut received.cluster);
    print_nodes(terminal, arguments, &rules, "Initial cluster", (&reported, &reported));
    save(terminal, arguments, "pre-ialloc", "before iallocator run", &reported)?;
    let answer = answered(&reported, received.question, &rules, is_dedicated);
    terminal.print_line(&answer::line(answer.as_ref()));
    let last = answer.as_ref().map_or(&reported, |answer| &answer.cluster);
    print_nodes(terminal, arguments, &rules, "Final cluster", (last, &reported));
    let saved = super::with_reported_memory(last, &reported);
    save(terminal, arguments, "post-ialloc", "after iallocator run", &saved)?;
    Ok(Exit::Done)
}

fn restriction(arguments: &Arguments, question: &Question) -> Option<BTreeSet<String>> {
    let option = arguments.restrict_allocation_to.as_ref();
    let option = option.map(|names| names.split(',').map(str::to_owned).collect());
    option.or_else(|| match question {
        Question::Allocate { restricted_to, .. } => {
            restricted_to.as_ref().map(|names| names.iter().cloned().collect())
        }
        Question::Relocate { .. }
        | Question::ChangeGroup { .. }
        | Question::Evacuate { .. }
        | Question::AllocateEach(_)
        | Question::AllocateSecondary(_) => None,
    })
}

/// Reads the request. If an option names another cluster, that cluster replaces the cluster of the request.
fn read_request(terminal: &Terminal, arguments: &Arguments) -> Result<HailRequest, EarlyExit> {
    let node_memory = parse_integer(&arguments.static_kvm_node_memory)
        .map_err(|cause| EarlyExit::invalid_value(format!("static node memory: {cause}")))?;
    let path = match arguments.files.as_slice() {
        [] => return Err(EarlyExit::new("Error: This program needs an input file.")),
        [path] => path,
        [_, _, ..] => {
            return Err(EarlyExit::new("Error: Only one argument is accepted (the input file)"));
        }
    };
    let text =
        read_input(path).map_err(|error| EarlyExit::new(format!("hail: {}: {error}", path.display())))?;
    let mut received =
        request::read(&text, node_memory).map_err(|cause| EarlyExit::new(format!("Error: {cause}")))?;
    super::warn_of_unaccounted_usage(terminal, &received.cluster);
    let mut replaced = match &arguments.text_data {
        Some(path) => super::read_cluster(path)?.cluster,
        None if arguments.simulate.is_empty() => return Ok(received),
        None => simulation::cluster(&arguments.simulate).map_err(EarlyExit::load_failure)?,
    };
    super::warn_of_unaccounted_usage(terminal, &replaced);
    if arguments.ignore_dynu {
        for instance in &mut replaced.instances {
            instance.load = [0; 4];
        }
    }
    if replaced.policies.iter().all(|policy| !policy.owner.is_empty()) {
        replaced.policies.push(simulation::default_policy(""));
    }
    received.replace_cluster(replaced).map_err(|cause| EarlyExit::new(format!("Error: {cause}")))?;
    Ok(received)
}

fn read_input(path: &Path) -> std::io::Result<String> {
    if path.as_os_str() != "-" {
        return std::fs::read_to_string(path);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

/// Computes the answer to the question of a request.
fn answered(
    cluster: &Cluster,
    question: Question,
    rules: &AllocationRules,
    is_dedicated: bool,
) -> Result<Answer, String> {
    match question {
        Question::Allocate { wanted, .. } => {
            let choice = choose(cluster, &wanted, rules, is_dedicated).map_err(Refusal::into_text)?;
            let mut filled = cluster.clone();
            add(&mut filled, &wanted.request.instance, choice.nodes);
            // hail lists the new instance first.
            filled.instances.rotate_right(1);
            let result = json!(node_names(cluster, choice.nodes));
            Ok(Answer { cluster: filled, information: choice.log.join(", "), result })
        }
        Question::AllocateEach(wanted) => allocate_each(cluster, &wanted, rules, is_dedicated),
        Question::Relocate { instance, node_count, excluded } => {
            let (cluster, node) = relocate_instance(cluster, instance, node_count, &excluded, rules)?;
            let result = json!([cluster.nodes[node].name]);
            Ok(Answer { cluster, information: "success".to_owned(), result })
        }
        Question::ChangeGroup { instances, groups } => {
            Ok(answer::moves(cluster, change_group(cluster, &instances, &groups, rules)))
        }
        Question::Evacuate { instances, mode } => {
            Ok(answer::moves(cluster, evacuate(cluster, &instances, mode, rules)))
        }
        Question::AllocateSecondary(instance) => {
            let (tried, after) = allocate_secondary(cluster, instance, rules)?;
            let information = tried.describe(cluster);
            match tried.best {
                Some(((_, Some(secondary)), _)) => {
                    let result = json!(cluster.nodes[secondary].name);
                    Ok(Answer { cluster: after, information, result })
                }
                Some(_) | None => Err(information),
            }
        }
    }
}

fn allocate_each(
    cluster: &Cluster,
    wanted: &[RequestedInstance],
    rules: &AllocationRules,
    is_dedicated: bool,
) -> Result<Answer, String> {
    let (filled, allocated) = choose_each(cluster, wanted, rules, is_dedicated)?;
    let (mut placed, mut failed) = (Vec::new(), Vec::new());
    for (wanted, result) in wanted.iter().zip(allocated) {
        let name = &wanted.request.instance.name;
        match result {
            Ok(nodes) => placed.push(json!([name, node_names(cluster, nodes)])),
            Err(reason) => failed.push(json!([name, reason])),
        }
    }
    let information = format!(
        "{} instances failed to allocate and {} were allocated successfully",
        failed.len(),
        placed.len()
    );
    Ok(Answer { cluster: filled, information, result: json!([placed, failed]) })
}

fn print_nodes(
    terminal: &Terminal,
    arguments: &Arguments,
    rules: &AllocationRules,
    when: &str,
    (cluster, reported): (&Cluster, &Cluster),
) {
    let Some(fields) = &arguments.print_nodes else { return };
    let suffix = super::common_suffix(cluster);
    let table = NodeTable { fields, settings: &rules.settings, reported, suffix: &suffix };
    table.print(terminal, when, cluster);
}

fn save(
    terminal: &Terminal,
    arguments: &Arguments,
    extension: &str,
    when: &str,
    cluster: &Cluster,
) -> Result<(), EarlyExit> {
    let Some(path) = &arguments.save else { return Ok(()) };
    super::save_cluster(terminal, path, extension, when, cluster)
}
