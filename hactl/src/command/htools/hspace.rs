//! The program under the name `hspace`: options, output and exit statuses of Ganeti's hspace 3.0.2.

use super::statistics::Statistics;
use super::units::{parse_integer, parse_size};
use super::{EarlyExit, NodeTable, simulation};
use crate::command::balance::hbal::coefficients;
use crate::failure::Exit;
use crate::terminal::{ColorChoice, Terminal};
use clap::{ArgAction, CommandFactory, Parser};
use ha_scheduler::balance::groups::partition::populated_groups;
use ha_scheduler::balance::htools::allocation::{
    AllocationRules, Candidate, Filled, KnownAttempts, Request, allocatable_groups, candidates,
};
use ha_scheduler::balance::htools::global_failover::fatal_nodes;
use ha_scheduler::balance::model::{
    Cluster, DEFAULT_LOAD, Instance, Policy, Specification, Status, Template,
};
use ha_scheduler::balance::problem::{Problem, Settings};
use ha_scheduler::balance::score::usages;
use ha_scheduler::balance::state::checked::FailMode;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Count the instances that fit on a cluster
#[derive(Parser, Debug)]
#[command(
    name = "hspace",
    version,
    disable_version_flag = true,
    max_term_width = 110,
    infer_long_args = true,
    after_help = "For the live cluster, run \"hactl capacity\".\n\nExit status: 0 done; 1 invalid input; 2 unknown option."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate option")]
struct Arguments {
    /// Read the cluster from this file in Ganeti's text format
    #[arg(long, short = 't', value_name = "FILE")]
    text_data: Option<PathBuf>,
    /// Simulate an empty group; repeatable
    ///
    /// POLICY,NODES,DISK,MEMORY,CPUS[,SPINDLES]
    #[arg(long, value_name = "SPEC")]
    simulate: Vec<String>,
    /// Disk template of the instances; default: the first one of the policy
    #[arg(long, value_name = "TEMPLATE")]
    disk_template: Option<String>,
    /// Number of spindles that each instance uses
    #[arg(long, value_name = "SPINDLES", allow_hyphen_values = true)]
    spindle_use: Option<String>,
    /// Size of the standard allocation: disk, memory, CPUs
    #[arg(long, value_name = "SPEC", allow_hyphen_values = true)]
    standard_alloc: Option<String>,
    /// Size of the first tier: disk, memory, CPUs
    #[arg(long, value_name = "SPEC", allow_hyphen_values = true)]
    tiered_alloc: Option<String>,
    /// Ignore groups with nodes that fail N+1
    #[arg(long)]
    independent_groups: bool,
    /// Accept nodes that already fail N+1
    #[arg(long)]
    accept_existing_errors: bool,
    /// Do not require that each node can be evacuated after an allocation
    #[arg(long)]
    no_capacity_checks: bool,
    /// Treat a node as offline; repeatable
    #[arg(long, short = 'O', value_name = "NODE")]
    offline: Vec<String>,
    /// Maximum virtual CPUs per physical CPU; default: that of the policy
    #[arg(long, value_name = "RATIO", allow_hyphen_values = true)]
    max_cpu: Option<String>,
    /// Share of each node's disk that stays free
    #[arg(long, value_name = "RATIO", default_value = "0")]
    min_disk: String,
    /// Maximum number of instances
    #[arg(long, short = 'l', value_name = "N")]
    max_length: Option<String>,
    /// Print KEY=VALUE lines: yes or no
    #[arg(long, value_name = "CHOICE", num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    machine_readable: Option<String>,
    /// Print the nodes before and after; with +, add fields
    #[arg(long, short = 'p', value_name = "FIELDS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    print_nodes: Option<String>,
    /// Save the results to FILE.tiered and FILE.standard
    #[arg(long, short = 'S', value_name = "FILE")]
    save: Option<PathBuf>,
    /// Memory of a node with the hypervisor KVM; accepted and ignored
    #[arg(long, value_name = "N")]
    static_kvm_node_memory: Option<String>,
    /// Increase verbosity; repeatable
    #[arg(long, short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Decrease verbosity
    #[arg(long, short = 'q', action = ArgAction::Count)]
    quiet: u8,
    /// Print the options for shell completion
    #[arg(long)]
    help_completion: bool,
    /// Print the version
    #[arg(long, short = 'V', action = ArgAction::Version)]
    version: Option<bool>,
}

/// Parsed values of the options that have checks of their own.
struct ParsedArguments {
    template: Option<Template>,
    spindle_use: Option<i64>,
    standard: Option<Specification>,
    tiered: Option<Specification>,
    limit: Option<usize>,
    settings: Settings,
    is_machine_readable: bool,
}

/// Runs the program with the arguments after its name.
pub(super) fn main(arguments_given: impl Iterator<Item = OsString>) -> ExitCode {
    super::finish(parse_arguments(arguments_given.collect()).and_then(|(arguments, values)| {
        let terminal = Terminal::new(ColorChoice::Never, false, 0);
        run(&terminal, &arguments, &values)
    }))
}

fn parse_arguments(arguments_given: Vec<OsString>) -> Result<(Arguments, ParsedArguments), EarlyExit> {
    let hint = "add -t FILE; for the live cluster, run \"hactl capacity\"";
    if let Some(message) = super::unsupported_source(&arguments_given, hint) {
        return Err(EarlyExit::new(message));
    }
    if super::has_option(&arguments_given, &["-L", "--luxi"]) {
        return Err(EarlyExit::new(format!(
            "Error: -L: LUXI access to a Ganeti cluster is not supported\nhint: {hint}"
        )));
    }
    let arguments_given = super::with_equals_signs(arguments_given, &[("-p", "--print-nodes=")]);
    let (arguments, _): (Arguments, _) = super::parse(&mut Arguments::command(), arguments_given)?;
    let values = values(&arguments).map_err(EarlyExit::invalid_value)?;
    Ok((arguments, values))
}

fn values(arguments: &Arguments) -> Result<ParsedArguments, String> {
    let template = arguments.disk_template.as_deref().map(parse_template).transpose()?;
    let spindle_use = match arguments.spindle_use.as_deref() {
        None => None,
        Some(text) => {
            let count = parse_integer(text).map_err(|cause| format!("parsing spindle-use: {cause}"))?;
            if count < 0 {
                return Err("Invalid value of the spindle-use (expected >= 0)".to_owned());
            }
            Some(count)
        }
    };
    let specification =
        |text: Option<&str>, kind: &str| text.map(|text| parse_specification(text, kind)).transpose();
    let limit = match arguments.max_length.as_deref() {
        None => None,
        Some(text) => {
            let count = parse_integer(text).map_err(|cause| format!("max solution length: {cause}"))?;
            usize::try_from(count).ok()
        }
    };
    let ratio = |text: &str, what: &str| -> Result<f64, String> {
        text.parse().map_err(|_| format!("{what}: cannot parse string '{text}'"))
    };
    let max_cpu = arguments.max_cpu.as_deref().map(|text| ratio(text, "parsing max-cpu")).transpose()?;
    if max_cpu.is_some_and(|ratio| ratio <= 0.0) {
        return Err("Invalid value of the max-cpu ratio, expected >0".to_owned());
    }
    let min_disk = ratio(&arguments.min_disk, "free disk space")?;
    let choice = arguments.machine_readable.as_deref().map_or(Ok(false), super::parse_choice);
    Ok(ParsedArguments {
        template,
        spindle_use,
        standard: specification(arguments.standard_alloc.as_deref(), "standard")?,
        tiered: specification(arguments.tiered_alloc.as_deref(), "tiered")?,
        limit,
        settings: Settings { max_cpu, min_disk, copies_from_down_nodes: true, ..Settings::default() },
        is_machine_readable: choice.map_err(|abort| abort.message)?,
    })
}

fn parse_template(text: &str) -> Result<Template, String> {
    let known = Template::WORDS.iter().find(|(_, word)| *word == text);
    known
        .map(|(template, _)| *template)
        .ok_or_else(|| format!("Invalid string value for type DiskTemplate: {text:?}"))
}

/// Parses disk, memory, CPUs, and optionally spindles.
fn parse_specification(text: &str, kind: &str) -> Result<Specification, String> {
    let parts: Vec<&str> = text.split(',').collect();
    let [disk, memory, cpus, further @ ..] = parts.as_slice() else {
        return Err(format!("Invalid {kind} specification: '{text}', expected disk,ram,cpu"));
    };
    let size =
        |what: &str, text: &str| parse_size(text).map_err(|cause| format!("{kind} specs {what}: {cause}"));
    let number =
        |what: &str, text: &str| parse_integer(text).map_err(|cause| format!("{kind} specs {what}: {cause}"));
    Ok(Specification {
        disk: size("disk", disk)?,
        memory: size("memory", memory)?,
        cpus: number("cpus", cpus)?,
        spindles: further.first().map_or(Ok(1), |text| number("spindles", text))?,
        disks: 1,
        nics: 0,
    })
}

/// The cluster, and the values that the standard and the tiered allocation share.
struct HspaceRun<'a> {
    terminal: &'a Terminal,
    arguments: &'a Arguments,
    values: &'a ParsedArguments,
    cluster: Cluster,
    /// Common suffix of all names, which tables omit.
    suffix: String,
    rules: AllocationRules,
    initial: Statistics,
    template: Template,
    candidates: Vec<Candidate>,
    /// `true` if nothing can be allocated because nodes fail N+1.
    is_blocked: bool,
    /// `true` if nodes have exclusive spindles, which are then part of the output.
    shows_spindles: bool,
}

fn run(terminal: &Terminal, arguments: &Arguments, values: &ParsedArguments) -> Result<Exit, EarlyExit> {
    if arguments.help_completion {
        terminal.print(&super::completion(&Arguments::command(), &[]));
        return Ok(Exit::Done);
    }
    let mut cluster = match &arguments.text_data {
        Some(path) => super::read_cluster(path)?.cluster,
        None if arguments.simulate.is_empty() => {
            return Err(EarlyExit::load_failure("No backend selected! Exiting."));
        }
        None => simulation::cluster(&arguments.simulate).map_err(EarlyExit::load_failure)?,
    };
    super::set_offline(&mut cluster, &arguments.offline)?;
    if verbosity(arguments) > 0 {
        super::warn_of_unaccounted_usage(terminal, &cluster);
    }
    let policy = cluster.policies.iter().find(|policy| policy.owner.is_empty()).cloned();
    let policy = policy.unwrap_or_else(|| simulation::default_policy(""));
    if !cluster.policies.contains(&policy) {
        cluster.policies.push(policy.clone());
    }
    let template = values.template.or(policy.templates.first().copied()).unwrap_or(Template::Drbd);
    let space = HspaceRun::new(terminal, arguments, values, cluster, template);
    space.print_cluster();
    if space.candidates.iter().all(|(_, secondaries)| secondaries.is_empty() && space.node_count() == 2)
        && !space.is_blocked
    {
        let cause = if space.node_count() == 2 { "Not enough online nodes" } else { "No online nodes" };
        return Err(EarlyExit::new(format!("Error: failure during allocation: {cause}")));
    }
    space.allocate_in_tiers(&policy)?;
    space.allocate_standard(&policy)?;
    if values.is_machine_readable {
        terminal.print_line("HTS_OK=1");
    }
    Ok(Exit::Done)
}

fn verbosity(arguments: &Arguments) -> i16 {
    1 + i16::from(arguments.verbose) - i16::from(arguments.quiet)
}

impl<'a> HspaceRun<'a> {
    fn new(
        terminal: &'a Terminal,
        arguments: &'a Arguments,
        values: &'a ParsedArguments,
        cluster: Cluster,
        template: Template,
    ) -> HspaceRun<'a> {
        let checks_capacity = !arguments.no_capacity_checks;
        let mut bad_nodes = Vec::new();
        let mut bad_groups = BTreeSet::new();
        for group in populated_groups(&cluster) {
            let problem = Problem::new(&cluster, group, &values.settings);
            let usages = usages(&problem, &problem.start_placements);
            let failing = problem.nodes.iter().zip(&usages);
            let failing = failing.filter(|(node, usage)| !node.is_offline && usage.fails_n1());
            let failing: Vec<usize> = failing.map(|(node, _)| node.cluster_node).collect();
            let is_fatal =
                |node: &usize| !(arguments.accept_existing_errors && problem.nodes[*node].is_offline);
            let has_fatal_nodes = checks_capacity && fatal_nodes(&cluster, &problem).iter().any(is_fatal);
            if !failing.is_empty() || has_fatal_nodes {
                bad_groups.insert(group);
            }
            bad_nodes.extend(failing);
        }
        let mut groups = allocatable_groups(&cluster);
        if !arguments.accept_existing_errors {
            let skipped: BTreeSet<usize> = if arguments.independent_groups {
                bad_groups.clone()
            } else {
                bad_nodes.iter().map(|node| cluster.nodes[*node].group).collect()
            };
            groups.retain(|group| !skipped.contains(group));
        }
        let node_count = if template == Template::Drbd { 2 } else { 1 };
        let candidates = candidates(&cluster, &groups, node_count);
        let is_blocked = !bad_nodes.is_empty()
            && !arguments.accept_existing_errors
            && (!arguments.independent_groups || candidates.is_empty());
        let ignored_groups = if arguments.independent_groups { bad_groups.clone() } else { BTreeSet::new() };
        let rules = AllocationRules {
            settings: values.settings.clone(),
            checks_capacity,
            accepts_existing: arguments.accept_existing_errors,
            ignored_groups,
            ..AllocationRules::default()
        };
        let space = HspaceRun {
            initial: Statistics::new(&cluster, &values.settings),
            shows_spindles: cluster.nodes.iter().any(|node| node.exclusive_storage),
            terminal,
            arguments,
            values,
            suffix: super::common_suffix(&cluster),
            cluster,
            rules,
            template,
            candidates,
            is_blocked,
        };
        space.print_state(&bad_nodes, &bad_groups);
        space
    }

    fn node_count(&self) -> usize {
        if self.template == Template::Drbd { 2 } else { 1 }
    }

    /// Prints the nodes and details about them to standard error.
    fn print_state(&self, bad_nodes: &[usize], bad_groups: &BTreeSet<usize>) {
        if verbosity(self.arguments) > 1 && !self.suffix.is_empty() {
            self.terminal
                .error_line(&format!("Note: Stripping common suffix of '{}' from names", self.suffix));
        }
        self.print_nodes("Initial cluster", &self.cluster);
        if verbosity(self.arguments) > 2 {
            let problem = self.problem(&self.cluster);
            let table = if problem.nodes.is_empty() {
                "   Field Value Weight".to_owned()
            } else {
                coefficients(&problem, &problem.start_placements)
            };
            self.terminal.error_line(&format!(
                "Initial coefficients: overall {:.8}\n{}",
                self.initial.score,
                table.trim_end()
            ));
        }
        if verbosity(self.arguments) > 3 {
            let names = |names: Vec<&str>| {
                format!("[{}]", names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(","))
            };
            if !bad_nodes.is_empty() {
                let nodes = bad_nodes.iter().map(|node| self.cluster.nodes[*node].name.as_str());
                self.terminal.error_line(&format!("Bad nodes: {}", names(nodes.collect())));
            }
            if !bad_groups.is_empty() {
                let groups = bad_groups.iter().map(|group| self.cluster.groups[*group].name.as_str());
                self.terminal.error_line(&format!("Bad groups: {}", names(groups.collect())));
            }
            // Ganeti counts simulated nodes from 1, and others from 0.
            let first = usize::from(self.arguments.text_data.is_none());
            let nodes: Vec<String> = self
                .candidates
                .iter()
                .map(|(node, secondaries)| match self.node_count() {
                    2 => {
                        let secondaries: Vec<usize> = secondaries.iter().map(|other| other + first).collect();
                        format!("({},{})", node + first, format!("{secondaries:?}").replace(' ', ""))
                    }
                    _ => (node + first).to_string(),
                })
                .collect();
            let kind = if self.node_count() == 2 { "Right" } else { "Left" };
            self.terminal.error_line(&format!("Allocatable nodes: {kind} [{}]", nodes.join(",")));
        }
    }

    fn problem(&self, cluster: &Cluster) -> Problem {
        let groups: Vec<usize> = (0..cluster.groups.len()).collect();
        Problem::of_groups(cluster, &groups, &self.values.settings)
    }

    fn print_nodes(&self, when: &str, cluster: &Cluster) {
        let Some(fields) = &self.arguments.print_nodes else { return };
        let table = NodeTable {
            fields,
            settings: &self.values.settings,
            reported: &self.cluster,
            suffix: &self.suffix,
        };
        table.print(self.terminal, when, cluster);
    }

    fn print_cluster(&self) {
        let initial = &self.initial;
        if self.values.is_machine_readable {
            self.print_keys(&initial.cluster_keys());
            self.print_keys(&initial.phase_keys("INI"));
            return;
        }
        let spindles =
            if self.shows_spindles { format!(", SPN {}", initial.spindles) } else { String::new() };
        self.terminal.print_line(&format!(
            "The cluster has {} nodes and the following resources:\n  MEM {}, DSK {}, CPU {}, VCPU {}{spindles}.",
            initial.nodes, initial.memory, initial.disk, initial.cpus, initial.vcpus
        ));
        let count = match initial.instances {
            0 => "no".to_owned(),
            count => count.to_string(),
        };
        let opening = "There are";
        self.terminal.print_line(&format!("{opening} {count} initial instances on the cluster."));
    }

    fn print_keys(&self, keys: &[(String, String)]) {
        let lines = keys.iter().map(|(key, value)| format!("HTS_{key}={}\n", super::quoted(value)));
        self.terminal.print(&lines.collect::<String>());
    }

    fn request(&self, size: Specification) -> Request {
        let instance = Instance {
            name: "new".to_owned(),
            memory: size.memory,
            disk: size.disk,
            vcpus: size.cpus,
            status: Status::Running,
            auto_balance: true,
            primary: 0,
            secondary: None,
            template: self.template,
            tags: Vec::new(),
            spindle_use: self.values.spindle_use.unwrap_or(1),
            disk_spindles: Some(size.spindles),
            forthcoming: false,
            load: DEFAULT_LOAD,
        };
        Request { disks: vec![instance.disk], instance }
    }

    /// Returns the keys of a size with their values.
    fn size_keys(&self, prefix: &str, size: Specification) -> Vec<(String, String)> {
        let template = Template::WORDS.iter().find(|(template, _)| *template == self.template);
        let keys = [
            ("MEM", size.memory.to_string()),
            ("DSK", size.disk.to_string()),
            ("CPU", size.cpus.to_string()),
            ("SPN", size.spindles.to_string()),
            ("RQN", self.node_count().to_string()),
            ("DISK_TEMPLATE", template.map_or("", |(_, word)| word).to_owned()),
        ];
        keys.map(|(key, value)| (format!("{prefix}_{key}"), value)).to_vec()
    }

    fn size_text(&self, memory: i64, disk: i64, cpus: i64, spindles: i64) -> String {
        let spindles = if self.shows_spindles { format!(", SPN {spindles}") } else { String::new() };
        format!("MEM {memory}, DSK {disk}, CPU {cpus}{spindles}")
    }

    fn print_size(&self, kind: &str, size: Specification) {
        let template = Template::WORDS.iter().find(|(template, _)| *template == self.template);
        self.terminal.print_line(&format!(
            "{kind} instance spec is:\n  {}, using disk template '{}'.",
            self.size_text(size.memory, size.disk, size.cpus, size.spindles),
            template.map_or("", |(_, word)| word)
        ));
    }

    fn allocate_in_tiers(&self, policy: &Policy) -> Result<(), EarlyExit> {
        let sizes: Vec<Specification> = match self.values.tiered {
            Some(size) => vec![size],
            None => policy.ranges.iter().map(|(_, largest)| *largest).collect(),
        };
        let mut filled = Filled::new(&self.cluster);
        if self.is_blocked {
            filled.failures.insert(FailMode::NPlusOne, 1);
        } else {
            for size in &sizes {
                let mut known = KnownAttempts::default();
                filled = filled.fill_in_tiers(
                    &self.request(*size),
                    &self.rules,
                    &self.candidates,
                    self.values.limit.map(|limit| limit.saturating_sub(filled.added)),
                    &mut known,
                );
            }
        }
        let first = sizes.first().copied().unwrap_or(policy.standard);
        let end = Statistics::new(&filled.cluster, &self.values.settings);
        self.print_result("Tiered allocation", "tiered", &filled)?;
        let tiers = tiers(filled.added_instances());
        if self.values.is_machine_readable {
            self.print_keys(&self.size_keys("TSPEC_INI", first));
            self.print_keys(&end.phase_keys("TRL"));
            let texts = tiers.iter().map(|(instance, count)| {
                let spindles = instance.disk_spindles.unwrap_or(instance.spindle_use);
                format!("{},{},{},{spindles}={count}", instance.memory, instance.disk, instance.vcpus)
            });
            self.print_keys(&[("TSPEC".to_owned(), texts.collect::<Vec<_>>().join(" "))]);
            self.print_keys(&end.resource_keys(&self.initial));
            return Ok(());
        }
        self.print_size("Tiered (initial size)", first);
        self.terminal.print_line("Tiered allocation results:");
        if tiers.is_empty() {
            self.terminal.print_line("  - no instances allocated");
        }
        for (instance, count) in &tiers {
            let spindles = instance.disk_spindles.unwrap_or(instance.spindle_use);
            let size = self.size_text(instance.memory, instance.disk, instance.vcpus, spindles);
            self.terminal.print_line(&format!("  - {count:3} instances of spec {size}"));
        }
        self.print_end(&filled, &end);
        Ok(())
    }

    fn allocate_standard(&self, policy: &Policy) -> Result<(), EarlyExit> {
        let size = self.values.standard.unwrap_or(policy.standard);
        let mut filled = Filled::new(&self.cluster);
        if self.is_blocked {
            filled.failures.insert(FailMode::NPlusOne, 1);
        } else {
            filled.fill(&self.request(size), &self.rules, &self.candidates, self.values.limit);
        }
        let end = Statistics::new(&filled.cluster, &self.values.settings);
        self.print_result("Standard allocation", "standard", &filled)?;
        if self.values.is_machine_readable {
            self.print_keys(&self.size_keys("SPEC", size));
            self.print_keys(&end.phase_keys("FIN"));
            self.print_keys(&self.allocation_keys(&filled));
            return Ok(());
        }
        self.print_size("Standard (fixed-size)", size);
        self.terminal.print_line(&format!(
            "Normal (fixed-size) allocation results:\n  - {:3} instances allocated",
            filled.added
        ));
        self.print_end(&filled, &end);
        Ok(())
    }

    fn allocation_keys(&self, filled: &Filled) -> Vec<(String, String)> {
        let before = self.cluster.instances.len();
        let usage = before as f64 / (before + filled.added) as f64;
        let usage = if usage.is_nan() { "NaN".to_owned() } else { format!("{usage:.8}") };
        let failures = self.failures(filled);
        let reason = failures.first().map_or("FailMem", |(word, _)| word).to_uppercase();
        let mut keys = vec![
            ("ALLOC_USAGE".to_owned(), usage),
            ("ALLOC_INSTANCES".to_owned(), filled.added.to_string()),
            ("ALLOC_FAIL_REASON".to_owned(), reason),
        ];
        keys.extend(
            failures
                .iter()
                .map(|(word, count)| (format!("ALLOC_{}_CNT", word.to_uppercase()), count.to_string())),
        );
        keys
    }

    /// Returns the words of all failures with their counts, the most frequent first.
    fn failures(&self, filled: &Filled) -> Vec<(&'static str, usize)> {
        if self.is_blocked {
            return vec![(FailMode::NPlusOne.name(), 1)];
        }
        let count = |mode: FailMode| filled.failures.get(&mode).copied().unwrap_or(0);
        let mut failures = vec![
            (FailMode::Memory.name(), count(FailMode::Memory)),
            (FailMode::Disk.name(), count(FailMode::Disk)),
            (FailMode::Cpu.name(), count(FailMode::Cpu)),
            (FailMode::NPlusOne.name(), count(FailMode::NPlusOne)),
            (FailMode::Tags.name(), count(FailMode::Tags)),
            (FailMode::Migration.name(), count(FailMode::Migration)),
            (FailMode::DiskCount.name(), count(FailMode::DiskCount)),
            (FailMode::Spindles.name(), count(FailMode::Spindles)),
            ("FailInternal", 0),
        ];
        failures.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        failures
    }

    /// Prints the map and the nodes to standard error, and saves the cluster.
    fn print_result(&self, name: &str, extension: &str, filled: &Filled) -> Result<(), EarlyExit> {
        if verbosity(self.arguments) > 1 {
            let map = self.allocation_map(filled);
            self.terminal.error_line(format!("{name} map\n{map}").trim_end_matches('\n'));
        }
        self.print_nodes(name, &filled.cluster);
        if let Some(path) = &self.arguments.save {
            let saved = super::with_reported_memory(&filled.cluster, &self.cluster);
            let when = format!("after {}", name.to_lowercase());
            super::save_cluster(self.terminal, path, extension, &when, &saved)?;
        }
        Ok(())
    }

    fn allocation_map(&self, filled: &Filled) -> String {
        let node = |node: usize| filled.cluster.nodes[node].name.clone();
        let rows: Vec<[String; 7]> = filled
            .added_instances()
            .iter()
            .map(|instance| {
                let spindles = instance.disk_spindles.filter(|_| self.shows_spindles);
                [
                    instance.name.clone(),
                    node(instance.primary),
                    instance.secondary.map(node).unwrap_or_default(),
                    instance.memory.to_string(),
                    instance.disk.to_string(),
                    instance.vcpus.to_string(),
                    spindles.map_or_else(String::new, |count| count.to_string()),
                ]
            })
            .collect();
        let widths: [usize; 7] =
            std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
        let line = |row: &[String; 7]| {
            let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
                if column < 3 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
            });
            format!(" {}\n", cells.collect::<Vec<_>>().join(" "))
        };
        rows.iter().map(line).collect()
    }

    fn print_end(&self, filled: &Filled, end: &Statistics) {
        let reason = self.failures(filled).first().map_or("FailMem", |(word, _)| word);
        let mut text = format!(
            "  - most likely failure reason: {reason}\n  - initial cluster score: {:.8}\n  -   final cluster score: {:.8}\n",
            self.initial.score, end.score
        );
        let mut shares = vec![
            ("memory", end.memory_efficiency()),
            ("disk", end.disk_efficiency()),
            ("vcpu", end.cpu_efficiency()),
        ];
        if self.shows_spindles {
            shares.push(("spindles", end.spindle_efficiency()));
        }
        let width = shares.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, share) in shares {
            text += &format!("  - {name:>width$} usage efficiency: {:5.2}%\n", share * 100.0);
        }
        self.terminal.print(&text);
    }
}

/// Returns instances of equal sizes with their counts.
fn tiers(instances: &[Instance]) -> Vec<(&Instance, usize)> {
    let mut tiers: Vec<(&Instance, usize)> = Vec::new();
    let size = |instance: &Instance| (instance.memory, instance.disk, instance.vcpus, instance.disk_spindles);
    for instance in instances {
        match tiers.last_mut() {
            Some((last, count)) if size(last) == size(instance) => *count += 1,
            Some(_) | None => tiers.push((instance, 1)),
        }
    }
    tiers
}
