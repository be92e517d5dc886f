//! How groups are: which are healthy, and which would gain from being balanced.

use super::span::Span;
use crate::balance::model::Cluster;
use crate::balance::plan::Plan;
use crate::balance::problem::{Problem, Settings};
use crate::balance::search::{Clock, Goal, search};
use crate::balance::state::State;

/// How a group is; nodes by their position in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Everything is on nodes that work, and each bears the failure of a peer.
    Healthy,
    /// Nodes fail N+1.
    WeaklyUnhealthy {
        /// These.
        failing: Vec<usize>,
    },
    /// Offline nodes still hold instances.
    Unhealthy {
        /// These.
        offline: Vec<usize>,
        /// Nodes that fail N+1 besides.
        failing: Vec<usize>,
    },
}

impl Health {
    /// Nothing is to be done.
    pub fn is_healthy(&self) -> bool {
        *self == Health::Healthy
    }
}

/// A group that was looked at.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The group, by position.
    pub group: usize,
    /// Its nodes.
    pub nodes: usize,
    /// Its instances.
    pub instances: usize,
    /// How it is.
    pub health: Health,
    /// What would balance it; no steps: it is balanced as well as can be. `None`: was not looked for.
    pub plan: Option<Plan>,
}

impl Checked {
    /// Balancing would gain something.
    pub fn needs_balancing(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| !plan.steps.is_empty())
    }

    /// Work is needed.
    pub fn needs_work(&self) -> bool {
        !self.health.is_healthy() || self.needs_balancing()
    }
}

/// How a group is.
pub fn health(span: &Span<'_>, state: &State<'_>, group: usize) -> Health {
    let hosts = span.hosts(group);
    let mut holds = vec![false; span.problem.hosts.len()];
    for spot in state.spots() {
        for host in spot.nodes() {
            holds[host] = true;
        }
    }
    let node = |&host: &usize| span.problem.hosts[host].node;
    let offline = |host: &&usize| span.problem.hosts[**host].offline && holds[**host];
    let offline: Vec<usize> = hosts.iter().filter(offline).map(node).collect();
    let failing: Vec<usize> = hosts.iter().filter(|&&host| state.fails_n1(host)).map(node).collect();
    match (offline.is_empty(), failing.is_empty()) {
        (true, true) => Health::Healthy,
        (true, false) => Health::WeaklyUnhealthy { failing },
        (false, _) => Health::Unhealthy { offline, failing },
    }
}

/// Looks at groups; with a goal also for what would balance them. `clocks` gives each group its time.
pub fn check<'c>(
    cluster: &Cluster,
    settings: &Settings,
    groups: &[usize],
    goal: Option<&Goal>,
    mut clock: impl FnMut(usize) -> Box<dyn FnMut() -> f64 + 'c>,
) -> Vec<Checked> {
    let span = Span::new(cluster, settings, true);
    let state = State::new(&span.problem, &span.problem.start);
    let each = groups.iter().enumerate().map(|(nth, &group)| {
        let problem = Problem::new(cluster, group, settings);
        let plan = goal.map(|goal| {
            let mut clock = clock(nth);
            let clock: Clock<'_> = &mut *clock;
            search(&problem, goal, clock)
        });
        Checked {
            group,
            nodes: problem.hosts.len(),
            instances: problem.guests.len(),
            health: health(&span, &state, group),
            plan,
        }
    });
    each.collect()
}
