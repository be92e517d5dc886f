//! The options that `hactl balance` and `hbal` share, with hbal's meaning.

use super::apply::ExecutionSettings;
use crate::failure::Failure;
use clap::{ArgAction, Args, ValueHint};
use ha_api_types::names::without_type;
use ha_scheduler::balance::model::Cluster;
use ha_scheduler::balance::problem::Settings;
use ha_scheduler::balance::search::Goal;
use ha_scheduler::balance::text;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate option")]
pub(crate) struct Options {
    /// Read the cluster from this file in Ganeti's text format
    #[arg(long, short = 't', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) text_data: Option<PathBuf>,
    /// Apply the plan in job sets (batches of parallel moves); not with -t
    #[arg(long, short = 'X', visible_alias = "exec")]
    pub(crate) apply: bool,
    /// Maximum time of one job set; at expiry, exit with status 124
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = crate::duration::parse)]
    pub(crate) timeout: Duration,
    /// Treat a node as offline; repeatable
    #[arg(long, short = 'O', value_name = "NODE")]
    pub(crate) offline: Vec<String>,
    /// Stop when the score exceeds the N+1 optimum by less than this value
    #[arg(long, short = 'e', value_name = "SCORE", default_value_t = Goal::default().min_score)]
    pub(crate) min_score: f64,
    /// Minimum gain of a step, once the score is below --min-gain-limit
    #[arg(long, short = 'g', value_name = "DELTA", default_value_t = Goal::default().min_gain)]
    pub(crate) min_gain: f64,
    /// Score below which --min-gain applies
    #[arg(long, value_name = "SCORE", default_value_t = Goal::default().min_gain_limit)]
    pub(crate) min_gain_limit: f64,
    /// Maximum number of steps
    #[arg(long, short = 'l', value_name = "N")]
    pub(crate) max_length: Option<usize>,
    /// Maximum virtual CPUs per physical CPU; default: that of the policy, or 4
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio)]
    pub(crate) max_cpu: Option<f64>,
    /// Share of each node's disk that stays free
    #[arg(long, value_name = "RATIO", default_value_t = 0.0, value_parser = parse_share)]
    pub(crate) min_disk: f64,
    /// Do not copy disks
    #[arg(long)]
    pub(crate) no_disk_moves: bool,
    /// Do not migrate or fail over instances
    #[arg(long)]
    pub(crate) no_instance_moves: bool,
    /// Do not move a primary to a third node through its secondary
    #[arg(long)]
    pub(crate) restricted_migration: bool,
    /// Ignore the vCPU ratio and N+1
    #[arg(long)]
    pub(crate) ignore_soft_errors: bool,
    /// Ignore measured load
    #[arg(long)]
    pub(crate) ignore_dynu: bool,
    /// Only move instances from offline (live cluster: also drained) nodes
    #[arg(long, short = 'E')]
    pub(crate) evac_mode: bool,
    /// Instances to move; all others stay
    #[arg(long, value_name = "INSTANCES", value_delimiter = ',')]
    pub(crate) select_instances: Vec<String>,
    /// Instances that must not be moved
    #[arg(long, value_name = "INSTANCES", value_delimiter = ',')]
    pub(crate) exclude_instances: Vec<String>,
    /// Tag prefixes; instances with the same tag stay on different nodes
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    pub(crate) exclusion_tags: Vec<String>,
    /// File with measured load; lines: instance cpu memory disk net
    #[arg(long, short = 'U', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) dynu_file: Option<PathBuf>,
    /// Save the cluster to FILE.original, and the result to FILE.balanced
    ///
    /// With -U, the measured load is saved to FILE.usage.
    #[arg(long, short = 'S', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) save: Option<PathBuf>,
    /// Node group to balance, by name or UUID
    #[arg(long, short = 'G', value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Print the commands, or write them to a script
    #[arg(long, short = 'C', value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) print_commands: Option<String>,
    /// Print the nodes before and after; with +, add fields
    #[arg(long, short = 'p', value_name = "FIELDS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) print_nodes: Option<String>,
    /// Print the instances before and after
    #[arg(long)]
    pub(crate) print_instances: bool,
    /// Count the memory of stopped instances, as in Ganeti before 2.10
    #[arg(long)]
    pub(crate) count_down_memory: bool,
    /// Maximum search time; default: 1m, or 20ms per instance if more
    ///
    /// The output reports whether the search ended at this limit.
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    pub(crate) budget: Option<Duration>,
    /// Number of changes to evaluate; grows with the cluster by default
    ///
    /// The default is 3000 per instance, more in large clusters, and at most 24 million.
    #[arg(long, value_name = "N")]
    pub(crate) evaluations: Option<usize>,
    /// Random seed; the plan is the same for the same seed
    ///
    /// If the search ends at --budget, plans for the same seed can differ.
    #[arg(long, value_name = "N", default_value_t = 1, action = ArgAction::Set)]
    pub(crate) seed: u64,
    /// Keep the plan of single steps unless another plan has a lower score
    #[arg(skip)]
    pub(crate) keeps_single_steps: bool,
}

impl Options {
    /// Returns the settings of the search. The plan moves all instances away from `drained` nodes.
    pub(crate) fn settings(&self, drained: &BTreeSet<String>) -> Settings {
        let names = |names: &[String]| names.iter().filter(|name| !name.is_empty()).cloned().collect();
        Settings {
            max_cpu: self.max_cpu,
            min_disk: self.min_disk,
            count_down_memory: self.count_down_memory,
            ignore_load: self.ignore_dynu,
            exclusion_tags: names(&self.exclusion_tags),
            no_disk_moves: self.no_disk_moves,
            no_instance_moves: self.no_instance_moves,
            restricted_migration: self.restricted_migration,
            evacuate: self.evac_mode,
            drained: drained.clone(),
            selected: (!self.select_instances.is_empty()).then(|| self.names(&self.select_instances)),
            excluded: self.names(&self.exclude_instances),
            copies_from_down_nodes: self.text_data.is_some(),
            ignore_soft_errors: self.ignore_soft_errors,
        }
    }

    /// Returns names of instances, without the types that names of live services may have.
    fn names(&self, names: &[String]) -> BTreeSet<String> {
        names.iter().map(|name| self.name(name).to_owned()).collect()
    }

    /// Returns the name of an instance, without the type that the name of a live service may have.
    pub(crate) fn name<'a>(&self, name: &'a str) -> &'a str {
        if self.text_data.is_none() { without_type(name) } else { name }
    }

    /// Returns the settings for the execution of a plan.
    pub(crate) fn execution_settings(&self) -> ExecutionSettings<'_> {
        ExecutionSettings { timeout: self.timeout, offline: &self.offline, command: "hactl balance" }
    }

    /// Returns the criteria for the end of the search.
    pub(crate) fn goal(&self) -> Goal {
        Goal {
            min_score: self.min_score,
            min_gain: self.min_gain,
            min_gain_limit: self.min_gain_limit,
            max_length: self.max_length.unwrap_or(usize::MAX),
            seed: self.seed,
            evaluations: self.evaluations,
            keeps_single_steps: self.keeps_single_steps,
        }
    }

    /// Returns the columns of the node table.
    pub(crate) fn node_fields(&self) -> String {
        self.print_nodes.clone().unwrap_or_default()
    }

    /// Writes the files of `--save`.
    pub(crate) fn save(&self, cluster_before: &Cluster, cluster_after: &Cluster) -> Result<(), Failure> {
        let Some(base) = &self.save else { return Ok(()) };
        save_before_and_after(base, cluster_before, cluster_after)?;
        if self.text_data.is_none() {
            save_text(&with_extension(base, ".usage"), &text::write_utilization(cluster_before))?;
        }
        Ok(())
    }
}

/// Writes the cluster before and after a plan to FILE.original and FILE.balanced.
pub(crate) fn save_before_and_after(
    base: &Path,
    cluster_before: &Cluster,
    cluster_after: &Cluster,
) -> Result<(), Failure> {
    save_text(&with_extension(base, ".original"), &text::write(cluster_before))?;
    save_text(&with_extension(base, ".balanced"), &text::write(cluster_after))
}

/// Appends an extension to a file name; an existing extension stays.
fn with_extension(base: &Path, extension: &str) -> PathBuf {
    let mut name = base.to_owned().into_os_string();
    name.push(extension);
    name.into()
}

/// Returns the file of an option with an optional file name; `None` if no file is given.
pub(crate) fn output_path(value: &str) -> Option<&Path> {
    (!value.is_empty()).then(|| Path::new(value))
}

pub(crate) fn save_text(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))
}

fn parse_number(text: &str, min: f64, max: f64, expected: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err(format!("expected {expected}")),
    }
}

pub(crate) fn parse_ratio(text: &str) -> Result<f64, String> {
    parse_number(text, 0.0, 1e6, "a number of at least 0")
}

pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    parse_number(text, 0.0, 1.0, "a number from 0 to 1")
}
