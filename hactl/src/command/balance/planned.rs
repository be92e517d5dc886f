//! The source of a cluster, and the plan of one of its groups.

use super::options::Options;
use super::search_end;
use crate::client::Client;
use crate::failure::Failure;
use ha_scheduler::balance::groups::partition::populated_groups;
use ha_scheduler::balance::live;
use ha_scheduler::balance::model::{Cluster, Role};
use ha_scheduler::balance::plan::{Plan, Step, job_sets};
use ha_scheduler::balance::problem::{Placement, Problem};
use ha_scheduler::balance::score::optimum;
use ha_scheduler::balance::search::{Goal, search};
use ha_scheduler::balance::text::{self, TextError};
use ha_scheduler::balance::time_limit::TimeLimit;
use ha_scheduler::view::View;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// A cluster with the selected groups.
pub(crate) struct Source {
    pub(crate) cluster: Cluster,
    /// Groups to balance, as indexes.
    pub(crate) groups: Vec<usize>,
    /// Nodes to empty, in addition to offline ones.
    pub(crate) drained: BTreeSet<String>,
    /// `true` for the live cluster, `false` for a cluster from a file.
    pub(crate) is_live: bool,
    /// `true` if services may move between groups.
    pub(crate) inter_group_moves: bool,
    /// Input of placement; `None` for a cluster from a file.
    pub(crate) view: Option<View>,
}

pub(crate) struct GroupPlan {
    pub(crate) group: usize,
    /// Group as a problem of the balancer.
    pub(crate) problem: Problem,
    pub(crate) plan: Plan,
    /// Whether the search ended at its time limit.
    pub(crate) has_reached_time_limit: bool,
}

impl Source {
    /// Reads the cluster from a file, and applies the options.
    pub(crate) fn from_file(path: &Path, options: &Options) -> Result<Source, Failure> {
        Source::read_file(path)?.with_options(options)
    }

    /// Reads the cluster from a file, without applying options.
    pub(crate) fn read_file(path: &Path) -> Result<Source, Failure> {
        Source::from_text(&read_text(path)?)
            .map_err(|error| Failure::usage(error.to_string()).with_context(&path.display().to_string()))
    }

    /// Parses the cluster, without applying options.
    pub(crate) fn from_text(text: &str) -> Result<Source, TextError> {
        let (cluster, groups, drained) = (text::read(text)?, Vec::new(), BTreeSet::new());
        Ok(Source { cluster, groups, drained, is_live: false, inter_group_moves: true, view: None })
    }

    /// Reads the live cluster, and applies the options.
    pub(crate) async fn from_live_cluster(client: &Client, options: &Options) -> Result<Source, Failure> {
        Source::read_live_cluster(client).await?.with_options(options)
    }

    /// Reads the live cluster, without applying options.
    pub(crate) async fn read_live_cluster(client: &Client) -> Result<Source, Failure> {
        let (view, usage) = (client.placement().await?, client.usage().await?);
        let cluster = live::cluster(&view, &usage);
        let (groups, drained) = (Vec::new(), live::drained_nodes(&view));
        let inter_group_moves = view.settings.inter_group_moves;
        Ok(Source { cluster, groups, drained, is_live: true, inter_group_moves, view: Some(view) })
    }

    /// Applies the options to the cluster, and checks every name in them.
    fn with_options(self, options: &Options) -> Result<Source, Failure> {
        let Source { mut cluster, drained, is_live, inter_group_moves, view, .. } = self;
        apply_loads_and_offline(&mut cluster, options.dynu_file.as_deref(), &options.offline)?;
        for name in options.select_instances.iter().chain(&options.exclude_instances) {
            if !cluster.instances.iter().any(|instance| instance.name == options.name(name)) {
                return Err(Failure::usage(format!("instance {name:?} not found")));
            }
        }
        let groups = match &options.group {
            None => populated_groups(&cluster).collect(),
            Some(name) => vec![find_group(&cluster, name)?],
        };
        Ok(Source { cluster, groups, drained, is_live, inter_group_moves, view })
    }

    /// Returns the source with names without this suffix, for output.
    pub(crate) fn without_suffix(&self, suffix: &str) -> Source {
        let mut cluster = self.cluster.clone();
        let nodes = cluster.nodes.iter_mut().map(|node| &mut node.name);
        for name in nodes.chain(cluster.instances.iter_mut().map(|instance| &mut instance.name)) {
            name.truncate(name.strip_suffix(suffix).map_or(name.len(), str::len));
        }
        let Source { groups, drained, view, is_live, inter_group_moves, .. } = self;
        Source {
            cluster,
            groups: groups.clone(),
            drained: drained.clone(),
            is_live: *is_live,
            inter_group_moves: *inter_group_moves,
            view: view.clone(),
        }
    }

    pub(crate) fn node_name(&self, problem: &Problem, problem_node: usize) -> &str {
        problem.node_name(&self.cluster, problem_node)
    }

    /// Returns an instance's name, and after plus signs the instances that move together with it.
    pub(crate) fn instance(&self, problem: &Problem, service: usize) -> String {
        problem.instance_name(&self.cluster, service)
    }

    /// Returns the names of a placement's nodes.
    pub(crate) fn nodes(&self, problem: &Problem, placement: Placement) -> Vec<&str> {
        placement.nodes().map(|problem_node| self.node_name(problem, problem_node)).collect()
    }

    /// Returns a placement as `primary:secondary`.
    pub(crate) fn placement(&self, problem: &Problem, placement: Placement) -> String {
        self.nodes(problem, placement).join(":")
    }
}

/// Returns the index of the group that `-G` gives by name or uuid.
pub(crate) fn find_group(cluster: &Cluster, name: &str) -> Result<usize, Failure> {
    let group_index = cluster.groups.iter().position(|group| group.name == name || group.uuid == name);
    group_index.ok_or_else(|| Failure::usage(format!("-G: group {name:?} not found")))
}

/// Smallest default of `--budget`, and the part of the default per instance.
const MIN_BUDGET: Duration = Duration::from_secs(60);
const BUDGET_PER_INSTANCE: Duration = Duration::from_millis(20);

/// Returns the time limit for one of several groups. The next group also gets the time that this group does not use.
pub(crate) fn time_limit(
    cluster: &Cluster,
    started_at: Instant,
    budget: Option<Duration>,
    (index, group_count): (usize, usize),
) -> TimeLimit<'static> {
    let instances = u32::try_from(cluster.instances.len()).unwrap_or(u32::MAX);
    let budget = budget.unwrap_or_else(|| MIN_BUDGET.max(BUDGET_PER_INSTANCE.saturating_mul(instances)));
    let (begin, end) =
        (started_at.elapsed().as_secs_f64(), budget.as_secs_f64() * (index + 1) as f64 / group_count as f64);
    TimeLimit::new(move || {
        if search_end::has_received_signal() {
            return 1.0;
        }
        (started_at.elapsed().as_secs_f64() - begin) / (end - begin).max(1e-9)
    })
}

pub(crate) const TIME_LIMIT_MESSAGE: &str = "The search ended at the time limit. The plan may differ between runs; \
                                           a longer --budget may lower the score.";

/// Reads the usage of instances from a file, and marks some nodes as offline.
pub(crate) fn apply_loads_and_offline(
    cluster: &mut Cluster,
    loads: Option<&Path>,
    offline: &[String],
) -> Result<(), Failure> {
    if let Some(path) = loads {
        text::read_utilization(cluster, &read_text(path)?)
            .map_err(|error| Failure::usage(error.to_string()).with_context(&path.display().to_string()))?;
    }
    for name in offline {
        let node = cluster.nodes.iter_mut().find(|node| node.name == *name);
        let node = node.ok_or_else(|| Failure::usage(format!("-O: node {name:?} not found")))?;
        node.role = Role::Offline;
    }
    Ok(())
}

fn read_text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

impl GroupPlan {
    /// Searches for a plan of a group.
    pub(crate) fn new(source: &Source, options: &Options, group: usize, time: &TimeLimit<'_>) -> GroupPlan {
        let problem = Problem::new(&source.cluster, group, &options.settings(&source.drained));
        let goal = options.goal();
        let goal = Goal { min_score: goal.min_score + optimum(&problem), ..goal };
        let plan = search(&problem, &goal, time);
        GroupPlan { group, problem, plan, has_reached_time_limit: time.has_reached_limit() }
    }

    /// Returns the decrease of the score.
    pub(crate) fn score_gain(&self) -> f64 {
        self.plan.start_score - self.plan.end_score()
    }

    /// Returns the job sets of the plan: the steps of a set can run in parallel.
    pub(crate) fn job_sets(&self) -> Vec<Vec<Step>> {
        job_sets(&self.plan.steps)
    }
}

pub(crate) fn cluster_after(source: &Source, plans: &[GroupPlan]) -> Cluster {
    plans.iter().fold(source.cluster.clone(), |cluster, group_plan| {
        group_plan.plan.applied(&cluster, &group_plan.problem)
    })
}
