//! `hactl group check`: shows the health of groups, and the gain from balancing them.

use super::input::{ClusterInput, LoadedCluster};
use crate::command::balance::planned::{TIME_LIMIT_MESSAGE, find_group, time_limit};
use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::names::count_with_noun;
use ha_scheduler::balance::groups::check::{GroupCheck, Health, check};
use ha_scheduler::balance::groups::partition::populated_groups;
use ha_scheduler::balance::search::Goal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Check the health and balance of node groups
#[derive(Args, Debug)]
#[command(
    after_help = "A group is unhealthy if offline nodes have instances, and weakly unhealthy if nodes fail N+1.\n\n\
        Exit status: 0 healthy and balanced; 1 moves required; 2 invalid input."
)]
pub(super) struct Check {
    #[command(flatten)]
    input: ClusterInput,
    /// Node group to check, by name or UUID
    #[arg(long, short = 'G', value_name = "GROUP")]
    group: Option<String>,
    /// Skip the simulation of balancing
    #[arg(long)]
    no_simulation: bool,
    /// Stop at a score below this value
    #[arg(long, short = 'e', value_name = "SCORE", default_value_t = Goal::default().min_score)]
    min_score: f64,
    /// Minimum gain of a step, once the score is below --min-gain-limit
    #[arg(long, short = 'g', value_name = "DELTA", default_value_t = Goal::default().min_gain)]
    min_gain: f64,
    /// Score below which --min-gain applies
    #[arg(long, value_name = "SCORE", default_value_t = Goal::default().min_gain_limit)]
    min_gain_limit: f64,
    /// Maximum search time; default: 1m, or 20ms per instance if more
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    budget: Option<Duration>,
}

impl Check {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let loaded = self.input.read(session).await?;
        let groups = match &self.group {
            Some(name) => vec![find_group(&loaded.cluster, name)?],
            None => populated_groups(&loaded.cluster).collect(),
        };
        let goal = Goal {
            min_score: self.min_score,
            min_gain: self.min_gain,
            min_gain_limit: self.min_gain_limit,
            ..Goal::default()
        };
        let started_at = Instant::now();
        let checked = check(
            &loaded.cluster,
            &loaded.settings,
            &groups,
            (!self.no_simulation).then_some(&goal),
            |index| time_limit(&loaded.cluster, started_at, self.budget, (index, groups.len())),
        );
        let needs_work = checked.iter().any(GroupCheck::needs_work);
        if format.is_some() {
            session.print_value(format, &json_output(&loaded, &checked, needs_work))?;
        } else {
            session.terminal().print(&text(session, &loaded, &checked, needs_work));
        }
        Ok(if needs_work { Exit::Failed } else { Exit::Done })
    }
}

fn text(session: &Session, loaded: &LoadedCluster, checked: &[GroupCheck], needs_work: bool) -> String {
    if checked.is_empty() {
        return "No group with nodes.\n".to_owned();
    }
    let mut table = Table::new(&["GROUP", "NODES", "INSTANCES", "HEALTH", "BALANCE", "REASON"]);
    for group_check in checked {
        let (_, health, style) = health_words(&group_check.health);
        let balance = match &group_check.plan {
            None => "not simulated".to_owned(),
            Some(plan) if plan.steps.is_empty() => format!("{:.4}", plan.start_score),
            Some(plan) => {
                let moves = count_with_noun(plan.steps.len(), "move");
                format!("{:.4} => {:.4} with {moves}", plan.start_score, plan.end_score())
            }
        };
        table.add_row(vec![
            Cell::plain(loaded.group(group_check.group)),
            Cell::plain(&group_check.node_count.to_string()),
            Cell::plain(&group_check.instance_count.to_string()),
            Cell::styled(health, style),
            Cell::styled(&balance, if group_check.needs_balancing() { Style::Warn } else { Style::Good }),
            Cell::plain(&reason_text(loaded, &group_check.health)),
        ]);
    }
    let mut text = table.render(session.terminal(), 0);
    text += match (needs_work, checked.iter().all(|group_check| group_check.health.is_healthy())) {
        (false, _) => "All groups are healthy. Nothing to move.\n",
        (true, true) => "All groups are healthy. To improve the balance, run `hactl balance`.\n",
        (true, false) => {
            "Moves required. Within a group: hactl balance -G GROUP. Between groups: hactl group redistribute.\n"
        }
    };
    if checked.iter().any(|group_check| group_check.has_reached_time_limit) {
        text += TIME_LIMIT_MESSAGE;
        text += "\n";
    }
    text
}

/// Returns a health's value in JSON, its text, and its style.
pub(super) fn health_words(health: &Health) -> (&'static str, &'static str, Style) {
    match health {
        Health::Healthy => ("Healthy", "healthy", Style::Good),
        Health::WeaklyUnhealthy { .. } => ("WeaklyUnhealthy", "weakly unhealthy", Style::Warn),
        Health::Unhealthy { .. } => ("Unhealthy", "unhealthy", Style::Bad),
    }
}

/// Returns the nodes that make a group unhealthy: offline nodes, and nodes that fail N+1.
pub(super) fn unhealthy_nodes(health: &Health) -> (&[usize], &[usize]) {
    match health {
        Health::Healthy => (&[], &[]),
        Health::WeaklyUnhealthy { failing } => (&[], failing),
        Health::Unhealthy { offline, failing } => (offline, failing),
    }
}

pub(super) fn reason_text(loaded: &LoadedCluster, health: &Health) -> String {
    let (offline, failing) = unhealthy_nodes(health);
    let mut parts = Vec::new();
    if !offline.is_empty() {
        parts.push(format!("offline nodes with instances: {}", loaded.nodes(offline).join(", ")));
    }
    if !failing.is_empty() {
        parts.push(format!("N+1 fails on {}", loaded.nodes(failing).join(", ")));
    }
    parts.join("; ")
}

fn json_output(loaded: &LoadedCluster, checked: &[GroupCheck], needs_work: bool) -> Value {
    let one = |one: &GroupCheck| {
        let (offline, failing) = unhealthy_nodes(&one.health);
        json!({
            "group": loaded.group(one.group),
            "nodes": one.node_count,
            "instances": one.instance_count,
            "health": health_words(&one.health).0,
            "offlineNodes": loaded.nodes(offline),
            "failingNodes": loaded.nodes(failing),
            "needsBalancing": one.plan.as_ref().map(|_| one.needs_balancing()),
            "initialScore": one.plan.as_ref().map(|plan| plan.start_score),
            "finalScore": one.plan.as_ref().map(ha_scheduler::balance::plan::Plan::end_score),
            "moves": one.plan.as_ref().map(|plan| plan.steps.len()),
            "timeLimited": one.plan.as_ref().map(|_| one.has_reached_time_limit),
        })
    };
    json!({ "groups": checked.iter().map(one).collect::<Vec<_>>(), "workNeeded": needs_work })
}
