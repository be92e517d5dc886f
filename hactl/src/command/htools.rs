//! Ganeti's programs hail, hbal, hcheck and hspace. Under one of these names, the binary has the options and the output
//! of that program.

mod hail;
mod hcheck;
mod hspace;
mod simulation;
mod statistics;
mod units;

use super::balance::hbal;
use super::balance::nodes;
use super::balance::options::{Options, save_text};
use super::balance::planned::Source;
use crate::arguments::GlobalFlags;
use crate::config::ConnectionFlags;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::terminal::{ColorChoice, Terminal};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, FromArgMatches};
use ha_scheduler::balance::model::{Cluster, Node, Role};
use ha_scheduler::balance::problem::{Problem, Settings};
use ha_scheduler::balance::text;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// A program of Ganeti. The name under which the binary runs selects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Hail,
    Hbal,
    Hcheck,
    Hspace,
}

impl Program {
    const NAMES: [(Program, &str); 4] = [
        (Program::Hail, "hail"),
        (Program::Hbal, "hbal"),
        (Program::Hcheck, "hcheck"),
        (Program::Hspace, "hspace"),
    ];

    pub(crate) fn from_name(name: &str) -> Option<Program> {
        Program::NAMES.iter().find(|(_, known)| *known == name).map(|(program, _)| *program)
    }

    /// Runs the program with the arguments after its name.
    pub(crate) fn run(self, arguments: impl Iterator<Item = OsString>) -> ExitCode {
        match self {
            Program::Hail => hail::main(arguments),
            Program::Hbal => hbal::main(arguments),
            Program::Hcheck => hcheck::main(arguments),
            Program::Hspace => hspace::main(arguments),
        }
    }
}

/// The end of a run that failed: the exit status, and the message for standard error in the program's form.
pub(crate) struct EarlyExit {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl EarlyExit {
    /// Creates the failure of a run whose input is refused, with status 1.
    pub(crate) fn new(message: impl Into<String>) -> EarlyExit {
        EarlyExit { exit: Exit::Failed, message: message.into() }
    }

    pub(crate) fn load_failure(cause: impl std::fmt::Display) -> EarlyExit {
        EarlyExit::new(format!("Error: failed to load data, aborting: {cause}"))
    }

    /// Creates the failure of a run with an invalid value of an option.
    pub(crate) fn invalid_value(cause: impl std::fmt::Display) -> EarlyExit {
        EarlyExit::new(format!("Error while parsing command line arguments:\n{cause}"))
    }
}

impl From<Failure> for EarlyExit {
    fn from(failure: Failure) -> EarlyExit {
        let help = if failure.help.is_empty() { String::new() } else { format!("\nhint: {}", failure.help) };
        EarlyExit { exit: failure.exit, message: format!("Error: {}{help}", failure.message) }
    }
}

/// Prints the message of a failed run, and returns the exit status.
pub(crate) fn finish(result: Result<Exit, EarlyExit>) -> ExitCode {
    match result {
        Ok(exit) => exit.into(),
        Err(EarlyExit { exit, message }) => {
            if !message.is_empty() {
                Terminal::new(ColorChoice::Never, false, 0).error_line(&message);
            }
            exit.into()
        }
    }
}

/// Runs a program on a runtime of its own.
pub(crate) fn block_on(run: impl Future<Output = Result<Exit, EarlyExit>>) -> Result<Exit, EarlyExit> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| EarlyExit::new(format!("Error: cannot start the runtime: {error}")))
        .and_then(|runtime| runtime.block_on(run))
}

/// Parses the arguments after the name of the program. Errors have the form of Ganeti's programs.
pub(crate) fn parse<T: FromArgMatches>(
    command: &mut Command,
    arguments_given: Vec<OsString>,
) -> Result<(T, ArgMatches), EarlyExit> {
    let words = std::iter::once(OsString::from(command.get_name())).chain(arguments_given);
    let matches = command.try_get_matches_from_mut(words);
    let parsed = matches.and_then(|matches| T::from_arg_matches(&matches).map(|parsed| (parsed, matches)));
    parsed.map_err(|error| {
        let argument = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(argument)) => argument.clone(),
            Some(_) | None => String::new(),
        };
        let kind = error.kind();
        if kind == ErrorKind::DisplayHelp || kind == ErrorKind::DisplayVersion {
            // A failure to print the help cannot be reported in another way.
            let _ = error.print();
            return EarlyExit { exit: Exit::Done, message: String::new() };
        }
        if kind != ErrorKind::UnknownArgument {
            let text = error.to_string();
            return EarlyExit::invalid_value(
                text.lines().next().unwrap_or_default().trim_start_matches("error: "),
            );
        }
        if !argument.starts_with('-') {
            return EarlyExit::new("Error: This program doesn't take any arguments.");
        }
        unrecognized(command, &argument)
    })
}

/// Returns the error about an option that the program does not have.
pub(crate) fn unrecognized(command: &mut Command, option: &str) -> EarlyExit {
    let message = format!("Command line error: unrecognized option `{option}'\n\n{}", command.render_help());
    EarlyExit { exit: Exit::Usage, message }
}

/// Hint if the arguments name no cluster.
pub(crate) const LIVE_HINT: &str = "add -t FILE, or -L for the live cluster";

/// Inserts the equals sign that is missing before the value of some short options, such as `-CFILE`.
pub(crate) fn with_equals_signs(arguments: Vec<OsString>, options: &[(&str, &str)]) -> Vec<OsString> {
    let with_equals_sign = |argument: OsString| {
        let text = argument.to_str()?;
        options.iter().find_map(|(short, long)| match text.strip_prefix(short) {
            Some(value) if !value.is_empty() && !value.starts_with('=') => {
                Some(format!("{long}{value}").into())
            }
            Some(_) | None => None,
        })
    };
    arguments.into_iter().map(|argument| with_equals_sign(argument.clone()).unwrap_or(argument)).collect()
}

/// Parses `yes` or `no`, the values of `--machine-readable` and similar options.
pub(crate) fn parse_choice(choice: &str) -> Result<bool, EarlyExit> {
    match choice {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(EarlyExit::invalid_value(format!("Invalid choice '{choice}', pass one of 'yes' or 'no'"))),
    }
}

/// Quotes a value for shells, unless it is a word or a number.
pub(crate) fn quoted(value: &str) -> String {
    let is_number = value.parse::<f64>().is_ok_and(|number| number >= 0.0 && !value.starts_with('-'));
    let is_word = value.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    if is_number || is_word { value.to_owned() } else { format!("'{value}'") }
}

/// Returns the options for shell completion, one per line, without the `hidden` ones.
pub(crate) fn completion(command: &Command, hidden: &[&str]) -> String {
    let mut text = String::new();
    for option in command.get_arguments().filter(|option| !hidden.contains(&option.get_id().as_str())) {
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

/// Marks nodes as offline, and checks their names.
pub(crate) fn set_offline(cluster: &mut Cluster, names: &[String]) -> Result<(), EarlyExit> {
    let is_unknown = |name: &&str| !cluster.nodes.iter().any(|node| node.name == *name);
    let unknown: Vec<&str> = names.iter().map(String::as_str).filter(is_unknown).collect();
    if !unknown.is_empty() {
        return Err(EarlyExit::new(format!(
            "Error: wrong node name(s) set as offline: {}\n",
            unknown.join(",")
        )));
    }
    for node in cluster.nodes.iter_mut().filter(|node| names.contains(&node.name)) {
        node.role = Role::Offline;
    }
    Ok(())
}

/// Applies the options about nodes and instances to the cluster, and checks the names in them.
fn apply_options(options: &Options, source: &mut Source) -> Result<(), EarlyExit> {
    let cluster = &mut source.cluster;
    if let Some(path) = &options.dynu_file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| EarlyExit::load_failure(format!("{}: {error}", path.display())))?;
        apply_utilization(cluster, &text)
            .map_err(|error| EarlyExit::new(format!("Error: can't parse utilisation data: {error}")))?;
    }
    set_offline(cluster, &options.offline)?;
    let unknown: Vec<&String> = options
        .select_instances
        .iter()
        .chain(&options.exclude_instances)
        .filter(|name| !cluster.instances.iter().any(|instance| instance.name == options.name(name)))
        .collect();
    if !unknown.is_empty() {
        return Err(EarlyExit::load_failure(format!("Unknown instance(s): {unknown:?}")));
    }
    Ok(())
}

/// Returns `true` if the arguments contain one of these options.
pub(crate) fn has_option(arguments_given: &[OsString], options: &[&str]) -> bool {
    arguments_given.iter().filter_map(|argument| argument.to_str()).any(|argument| {
        options.iter().any(|option| {
            argument == *option
                || (argument.starts_with(option) && !option.starts_with("--"))
                || argument.starts_with(&format!("{option}="))
        })
    })
}

/// Returns the error message if the arguments name an unsupported source of data, or several sources.
pub(crate) fn unsupported_source(arguments_given: &[OsString], hint: &str) -> Option<String> {
    let has = |options: &[&str]| has_option(arguments_given, options);
    let (rapi, luxi, file) = (has(&["-m", "--master"]), has(&["-L", "--luxi"]), has(&["-t", "--text-data"]));
    if [rapi, luxi, file].into_iter().filter(|is_given| *is_given).count() > 1 {
        return Some("Error: Only one of the rapi, luxi, and data files options should be given.".to_owned());
    }
    let cause = if rapi {
        "-m: RAPI access to a Ganeti cluster is not supported"
    } else if has(&["-I", "--ialloc-src"]) {
        "-I: iallocator requests are not supported"
    } else {
        return None;
    };
    Some(format!("Error: {cause}\nhint: {hint}"))
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

/// Returns the equivalent global flags of hactl.
pub(crate) fn global_flags(connection: &ConnectionFlags, is_quiet: bool) -> GlobalFlags {
    GlobalFlags {
        connection: connection.clone(),
        output: None,
        color: ColorChoice::Never,
        quiet: is_quiet,
        verbose: 0,
    }
}

/// Reads the cluster from the file of the options, or the live cluster, and applies the options.
pub(crate) async fn read_source(
    options: &Options,
    is_live: bool,
    session: &Session,
) -> Result<Source, EarlyExit> {
    let mut source = match &options.text_data {
        Some(path) => read_cluster(path)?,
        None if is_live => Source::read_live_cluster(session.client()?).await?,
        None => return Err(EarlyExit::load_failure("No backend selected! Exiting.")),
    };
    apply_options(options, &mut source)?;
    Ok(source)
}

/// Reads the cluster from a file.
pub(crate) fn read_cluster(path: &Path) -> Result<Source, EarlyExit> {
    let contents = std::fs::read_to_string(path)
        .map_err(|error| EarlyExit::load_failure(format!("{}: {error}", path.display())))?;
    Source::from_text(&contents).map_err(|error| match error.unknown_node() {
        Some(node) => {
            let line = contents.lines().nth(error.line.saturating_sub(1)).unwrap_or_default();
            let instance = line.split('|').next().unwrap_or_default();
            EarlyExit::load_failure(format!("Unknown node '{node}' for instance {instance}"))
        }
        None => EarlyExit::load_failure(format!("{}: {error}", path.display())),
    })
}

/// Warns about nodes whose used memory or disk exceeds the sum of the node's usage and the usage of its instances.
pub(crate) fn warn_of_unaccounted_usage(terminal: &Terminal, cluster: &Cluster) {
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

/// Returns the longest common suffix of the names of all nodes and instances that begins with a dot; empty if there is
/// none.
pub(crate) fn common_suffix(cluster: &Cluster) -> String {
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

/// Returns a cluster in which each node has the free memory that was reported for it, as Ganeti's programs show and save it.
pub(crate) fn with_reported_memory(cluster: &Cluster, reported: &Cluster) -> Cluster {
    let mut cluster = cluster.clone();
    for (node, reported) in cluster.nodes.iter_mut().zip(&reported.nodes) {
        node.memory_free = reported.memory_free;
    }
    cluster
}

/// A table of nodes as the programs print it with `--print-nodes`.
struct NodeTable<'a> {
    fields: &'a str,
    /// Settings of scores and limits.
    settings: &'a Settings,
    /// The cluster as it was read, with the reported memory of the nodes.
    reported: &'a Cluster,
    /// Suffix that is removed from all names in the table.
    suffix: &'a str,
}

impl NodeTable<'_> {
    /// Prints the nodes of all groups to standard error.
    fn print(&self, terminal: &Terminal, when: &str, cluster: &Cluster) {
        let groups: Vec<usize> = (0..cluster.groups.len()).collect();
        let problem = Problem::of_groups(cluster, &groups, self.settings);
        let mut shown = with_reported_memory(cluster, self.reported);
        for node in &mut shown.nodes {
            node.name = node.name.strip_suffix(self.suffix).unwrap_or(&node.name).to_owned();
        }
        let table = nodes::table(&shown, &problem, &problem.start_placements, self.fields);
        terminal.error_line(&format!("\n{when} status:\n{table}"));
    }
}

/// Saves a cluster in the text format. The file name is the path of the option with the extension appended.
fn save_cluster(
    terminal: &Terminal,
    path: &Path,
    extension: &str,
    when: &str,
    cluster: &Cluster,
) -> Result<(), EarlyExit> {
    let mut path = path.as_os_str().to_owned();
    path.push(format!(".{extension}"));
    let path = Path::new(&path);
    save_text(path, &text::write(cluster))?;
    terminal.error_line(&format!("The cluster state {when} has been written to file '{}'", path.display()));
    Ok(())
}
