//! Where the cluster comes from, and a group of it with its plan.

use super::options::Options;
use crate::client::Client;
use crate::failure::Failure;
use ha_scheduler::balance::groups::partition::populated;
use ha_scheduler::balance::jobs::job_sets;
use ha_scheduler::balance::live;
use ha_scheduler::balance::model::{Cluster, Role};
use ha_scheduler::balance::plan::{Plan, Step};
use ha_scheduler::balance::problem::{Problem, Spot};
use ha_scheduler::balance::search::{Clock, search};
use ha_scheduler::balance::text;
use ha_scheduler::view::View;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

/// A cluster with what was chosen of it.
pub(crate) struct Source {
    /// The cluster.
    pub(crate) cluster: Cluster,
    /// The groups to be balanced, by position.
    pub(crate) groups: Vec<usize>,
    /// Nodes to be emptied besides offline ones.
    pub(crate) drained: BTreeSet<String>,
    /// It is the running cluster, not one from a file.
    pub(crate) is_live: bool,
    /// Whether services may change groups.
    pub(crate) inter_group_moves: bool,
    /// What placement knows of the live cluster.
    pub(crate) view: Option<View>,
}

/// A group with its plan.
pub(crate) struct Planned {
    /// The group, by position.
    pub(crate) group: usize,
    /// The group as a problem.
    pub(crate) problem: Problem,
    /// The plan.
    pub(crate) plan: Plan,
}

impl Source {
    /// Reads the file.
    pub(crate) fn of_file(path: &Path, options: &Options) -> Result<Source, Failure> {
        Source::read(path)?.chosen(options)
    }

    /// The cluster of a file as it is, whatever options say.
    pub(crate) fn read(path: &Path) -> Result<Source, Failure> {
        let cluster = text::read(&contents(path)?)
            .map_err(|error| Failure::usage(error.to_string()).at(&path.display().to_string()))?;
        let (groups, drained) = (Vec::new(), BTreeSet::new());
        Ok(Source { cluster, groups, drained, is_live: false, inter_group_moves: true, view: None })
    }

    /// Asks for the running cluster.
    pub(crate) async fn live(client: &Client, options: &Options) -> Result<Source, Failure> {
        Source::observed(client).await?.chosen(options)
    }

    /// The running cluster as it is, whatever options say.
    pub(crate) async fn observed(client: &Client) -> Result<Source, Failure> {
        let (view, usage) = (client.placement().await?, client.usage().await?);
        let cluster = live::cluster(&view, &usage);
        let (groups, drained) = (Vec::new(), live::drained(&view));
        let inter_group_moves = view.settings.inter_group_moves;
        Ok(Source { cluster, groups, drained, is_live: true, inter_group_moves, view: Some(view) })
    }

    /// The cluster with what options say of it; every name that they mention is checked.
    fn chosen(self, options: &Options) -> Result<Source, Failure> {
        let Source { mut cluster, drained, is_live, inter_group_moves, view, .. } = self;
        adjust(&mut cluster, options.dynu_file.as_deref(), &options.offline)?;
        for name in options.select_instances.iter().chain(&options.exclude_instances) {
            if !cluster.instances.iter().any(|instance| instance.name == options.name(name)) {
                return Err(Failure::usage(format!("{name}: the cluster has no such instance")));
            }
        }
        let groups = match &options.group {
            None => populated(&cluster).collect(),
            Some(name) => vec![find_group(&cluster, name)?],
        };
        Ok(Source { cluster, groups, drained, is_live, inter_group_moves, view })
    }

    /// A node's name.
    pub(crate) fn node(&self, problem: &Problem, host: usize) -> &str {
        problem.node_name(&self.cluster, host)
    }

    /// An instance's name, and after plus signs those that move as one with it.
    pub(crate) fn instance(&self, problem: &Problem, guest: usize) -> String {
        problem.instance_name(&self.cluster, guest)
    }

    /// The names of a spot's nodes.
    pub(crate) fn nodes(&self, problem: &Problem, spot: Spot) -> Vec<&str> {
        spot.nodes().map(|host| self.node(problem, host)).collect()
    }

    /// A spot as `primary:secondary`.
    pub(crate) fn spot(&self, problem: &Problem, spot: Spot) -> String {
        self.nodes(problem, spot).join(":")
    }
}

/// The group that `-G` names, by name or uuid.
pub(crate) fn find_group(cluster: &Cluster, name: &str) -> Result<usize, Failure> {
    let found = cluster.groups.iter().position(|group| group.name == name || group.uuid == name);
    found.ok_or_else(|| Failure::usage(format!("-G {name}: the cluster has no such group")))
}

/// Says which share of its time one of several groups has used up, from now on: what one leaves of its time is the next one's.
pub(crate) fn time_used(begun: Instant, budget: f64, (nth, of): (usize, usize)) -> impl FnMut() -> f64 {
    let (first, last) = (begun.elapsed().as_secs_f64(), budget * (nth + 1) as f64 / of as f64);
    move || (begun.elapsed().as_secs_f64() - first) / (last - first).max(1e-9)
}

/// Takes in what instances use from a file, and that some nodes are to be treated as offline.
pub(crate) fn adjust(cluster: &mut Cluster, loads: Option<&Path>, offline: &[String]) -> Result<(), Failure> {
    if let Some(path) = loads {
        text::read_utilisation(cluster, &contents(path)?)
            .map_err(|error| Failure::usage(error.to_string()).at(&path.display().to_string()))?;
    }
    for name in offline {
        let node = cluster.nodes.iter_mut().find(|node| node.name == *name);
        let node = node.ok_or_else(|| Failure::usage(format!("-O {name}: the cluster has no such node")))?;
        node.role = Role::Offline;
    }
    Ok(())
}

fn contents(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("{}: cannot be read: {error}", path.display())))
}

impl Planned {
    /// Plans for a group.
    pub(crate) fn new(source: &Source, options: &Options, group: usize, clock: Clock<'_>) -> Planned {
        let problem = Problem::new(&source.cluster, group, &options.settings(&source.drained));
        let plan = search(&problem, &options.goal(), clock);
        Planned { group, problem, plan }
    }

    /// By how much the score gets lower.
    pub(crate) fn gain(&self) -> f64 {
        self.plan.start - self.plan.end()
    }

    /// The steps that can be executed at the same time, set by set.
    pub(crate) fn job_sets(&self) -> Vec<Vec<Step>> {
        job_sets(&self.plan.steps)
    }
}

/// The cluster after all plans.
pub(crate) fn after(source: &Source, plans: &[Planned]) -> Cluster {
    plans
        .iter()
        .fold(source.cluster.clone(), |cluster, planned| planned.plan.applied(&cluster, &planned.problem))
}
