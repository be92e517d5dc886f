//! The input of commands about groups: the cluster, and the limits of moves.

use crate::command::balance::options::{parse_ratio, parse_share};
use crate::command::balance::planned::{Source, apply_loads_and_offline};
use crate::failure::Failure;
use crate::session::Session;
use clap::{Args, ValueHint};
use ha_api_types::quantity::Amounts;
use ha_scheduler::balance::groups::AllGroups;
use ha_scheduler::balance::model::Cluster;
use ha_scheduler::balance::problem::Settings;
use ha_scheduler::view::View;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Source of the cluster, and limits; the same as for `hactl balance`.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate option")]
pub(crate) struct ClusterInput {
    /// Read the cluster from this file in Ganeti's text format
    #[arg(long, short = 't', value_name = "FILE", value_hint = ValueHint::FilePath)]
    text_data: Option<PathBuf>,
    /// Treat a node as offline; repeatable
    #[arg(long, short = 'O', value_name = "NODE")]
    offline: Vec<String>,
    /// Maximum virtual CPUs per physical CPU; default: that of the policy, or 4
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio)]
    max_cpu: Option<f64>,
    /// Share of each node's disk that stays free
    #[arg(long, value_name = "RATIO", default_value_t = 0.0, value_parser = parse_share)]
    min_disk: f64,
    /// Ignore the vCPU ratio and N+1
    #[arg(long)]
    ignore_soft_errors: bool,
    /// Ignore measured load
    #[arg(long)]
    ignore_dynu: bool,
    /// Tag prefixes; instances with the same tag stay on different nodes
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    exclusion_tags: Vec<String>,
    /// File with measured load; lines: instance cpu memory disk net
    #[arg(long, short = 'U', value_name = "FILE", value_hint = ValueHint::FilePath)]
    dynu_file: Option<PathBuf>,
    /// Count the memory of stopped instances
    #[arg(long)]
    count_down_memory: bool,
    /// Do not move instances between groups
    #[arg(long)]
    no_inter_group_moves: bool,
}

/// A cluster with the settings of moves.
pub(crate) struct LoadedCluster {
    /// `true` for the live cluster, `false` for a cluster from a file.
    pub(crate) is_live: bool,
    pub(crate) cluster: Cluster,
    pub(crate) settings: Settings,
    /// Nodes that options treat as offline.
    pub(crate) offline: Vec<String>,
    inter_group_moves: bool,
    /// Input of placement; `None` for a cluster from a file.
    pub(crate) view: Option<View>,
}

impl ClusterInput {
    /// Reads the files or the live cluster.
    pub(crate) async fn read(&self, session: &Session) -> Result<LoadedCluster, Failure> {
        let source = match &self.text_data {
            Some(path) => Source::read_file(path)?,
            None => Source::read_live_cluster(session.client()?).await?,
        };
        let Source { mut cluster, drained, is_live, inter_group_moves, view, .. } = source;
        apply_loads_and_offline(&mut cluster, self.dynu_file.as_deref(), &self.offline)?;
        let settings = Settings {
            max_cpu: self.max_cpu,
            min_disk: self.min_disk,
            count_down_memory: self.count_down_memory,
            ignore_load: self.ignore_dynu,
            exclusion_tags: self.exclusion_tags.iter().filter(|prefix| !prefix.is_empty()).cloned().collect(),
            copies_from_down_nodes: !is_live,
            ignore_soft_errors: self.ignore_soft_errors,
            drained,
            ..Settings::default()
        };
        let inter_group_moves = inter_group_moves && !self.no_inter_group_moves;
        Ok(LoadedCluster {
            is_live,
            cluster,
            settings,
            offline: self.offline.clone(),
            inter_group_moves,
            view,
        })
    }
}

impl LoadedCluster {
    /// Removes the limits of unknown capacities of live nodes. Without this call, the cluster model sets these limits
    /// just large enough for the running services.
    pub(crate) fn without_unknown_limits(mut self) -> LoadedCluster {
        const UNLIMITED_AMOUNT: i64 = 1 << 36;
        for (node, facts) in
            self.cluster.nodes.iter_mut().zip(self.view.iter().flat_map(|view| view.nodes.values()))
        {
            if facts.capacity.memory.is_none() {
                node.memory_total += UNLIMITED_AMOUNT;
                node.memory_free += UNLIMITED_AMOUNT;
            }
            if facts.capacity.disk.is_none() {
                node.disk_total += UNLIMITED_AMOUNT;
                node.disk_free += UNLIMITED_AMOUNT;
            }
            if facts.capacity.cpu.is_none() {
                node.cpus += UNLIMITED_AMOUNT;
            }
        }
        self
    }

    /// Returns, for memory, disk and CPUs, `true` if the capacity of all these nodes is known. An unknown capacity
    /// means no limit.
    pub(crate) fn has_known_capacity(&self, nodes: &[usize]) -> [bool; 3] {
        let facts = |node: &usize| self.view.as_ref()?.nodes.get(self.cluster.nodes[*node].name.as_str());
        let is_known_on_all = |is_known: fn(&Amounts) -> bool| {
            nodes.iter().filter_map(facts).all(|facts| is_known(&facts.capacity))
        };
        [
            is_known_on_all(|capacity| capacity.memory.is_some()),
            is_known_on_all(|capacity| capacity.disk.is_some()),
            is_known_on_all(|capacity| capacity.cpu.is_some()),
        ]
    }

    /// Returns all groups as one problem of the balancer.
    pub(crate) fn all_groups(&self) -> AllGroups<'_> {
        AllGroups::new(&self.cluster, &self.settings, self.inter_group_moves)
    }

    /// Returns all groups as one problem in which these nodes are also to be emptied.
    pub(crate) fn all_groups_without(&self, nodes: &BTreeSet<String>) -> AllGroups<'_> {
        let mut settings = self.settings.clone();
        settings.drained.extend(nodes.iter().cloned());
        AllGroups::new(&self.cluster, &settings, self.inter_group_moves)
    }

    pub(crate) fn group(&self, group: usize) -> &str {
        &self.cluster.groups[group].name
    }

    /// Returns the names of nodes.
    pub(crate) fn nodes(&self, nodes: &[usize]) -> Vec<&str> {
        nodes.iter().map(|&node| self.cluster.nodes[node].name.as_str()).collect()
    }
}
