//! `hactl disarm` and `hactl arm`: disarm and arm the cluster, for planned work on etcd or the network.

use super::wait::{WaitFlags, with_timeout};
use crate::client::WriteMode;
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use clap::{Args, ValueEnum};
use ha_api_types::cluster::{CLUSTER_NAME, ClusterSpec};
use ha_api_types::id::NodeName;
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::view::Overview;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Interval of the checks while hactl waits for the cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Treatment of services while the cluster is disarmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ServiceTreatment {
    /// Services keep running and are not changed
    Freeze,
    /// Services may be moved manually; hactl arm finds their nodes
    Ignore,
}

impl ServiceTreatment {
    fn name(self) -> &'static str {
        match self {
            ServiceTreatment::Freeze => "Freeze",
            ServiceTreatment::Ignore => "Ignore",
        }
    }
}

/// Suspend watchdogs and fencing for work on etcd or the network
#[derive(Args, Debug)]
pub(crate) struct Disarm {
    /// Treatment of services while disarmed
    how: ServiceTreatment,
    #[command(flatten)]
    wait: WaitFlags,
}

/// Resume watchdogs and fencing after a disarm
#[derive(Args, Debug)]
pub(crate) struct Arm {
    #[command(flatten)]
    wait: WaitFlags,
}

impl Disarm {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let mode = self.how.name();
        if set_disarmed(session, Some(mode)).await? {
            let line = format!("cluster/{CLUSTER_NAME} disarming ({mode})");
            session.terminal().report(&line);
        } else {
            session.terminal().report(&format!("cluster/{CLUSTER_NAME} already disarmed ({mode})"));
        }
        wait_if_requested(session, &self.wait, "Disarmed").await
    }
}

impl Arm {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        if set_disarmed(session, None).await? {
            session.terminal().report(&format!("cluster/{CLUSTER_NAME} arming"));
        } else {
            session.terminal().report(&format!("cluster/{CLUSTER_NAME} already armed"));
        }
        wait_if_requested(session, &self.wait, "Armed").await
    }
}

/// Sets or removes `spec.disarmed`. Returns `false` if the object already has this value.
async fn set_disarmed(session: &Session, mode: Option<&str>) -> Result<bool, Failure> {
    session.format(&[])?;
    let client = session.client()?;
    let cluster_found = client.find::<ClusterSpec>(CLUSTER_NAME).await?;
    if cluster_found.as_ref().map_or("", |cluster| cluster.text_at("/spec/disarmed"))
        == mode.unwrap_or_default()
    {
        return Ok(false);
    }
    if cluster_found.is_some() {
        let patch = json!({"spec": {"disarmed": mode}});
        client.patch(Kind::Cluster, CLUSTER_NAME, &patch, WriteMode::Persist).await?;
    } else {
        let object = json!({
            "apiVersion": API_VERSION, "kind": Kind::Cluster.name(),
            "metadata": {"name": CLUSTER_NAME}, "spec": {"disarmed": mode},
        });
        client.create(Kind::Cluster, &object, WriteMode::Persist).await?;
    }
    Ok(true)
}

/// Waits until the cluster reaches the goal, if requested, and prints each node's progress.
async fn wait_if_requested(session: &Session, wait: &WaitFlags, goal: &str) -> Outcome {
    if !wait.wait {
        return Ok(Exit::Done);
    }
    let mut missing_steps = Vec::new();
    let timeout_message = format!("cluster/{CLUSTER_NAME} is not {goal}");
    match with_timeout(wait.timeout, &timeout_message, poll_until_reached(session, goal, &mut missing_steps))
        .await
    {
        Ok(()) => {
            session.terminal().report(&format!("cluster/{CLUSTER_NAME} is {goal}"));
            Ok(Exit::Done)
        }
        Err(failure) => {
            let lines: Vec<String> = missing_steps.iter().map(|line| format!("\n{line}")).collect();
            Err(Failure { message: format!("{}{}", failure.message, lines.concat()), ..failure })
        }
    }
}

/// Polls until the leader has observed the request and every node has reached the goal. Updates `missing_steps` at each
/// poll.
async fn poll_until_reached(
    session: &Session,
    goal: &str,
    missing_steps: &mut Vec<String>,
) -> Result<(), Failure> {
    let client = session.client()?;
    let mut shown_progress: BTreeMap<NodeName, String> = BTreeMap::new();
    let mut shown_waits: BTreeSet<String> = BTreeSet::new();
    loop {
        let cluster = client.find::<ClusterSpec>(CLUSTER_NAME).await?;
        let overview = client.overview().await?;
        let is_observed = cluster.is_none_or(|cluster| {
            cluster.status.map_or(0, |status| status.observed_generation) >= cluster.metadata.generation
        });
        for node in &overview.nodes {
            if !node.arming.is_empty() && shown_progress.get(&node.name) != Some(&node.arming) {
                session.terminal().progress(&format!("{}: {}", node.name, node.arming));
                shown_progress.insert(node.name.clone(), node.arming.clone());
            }
        }
        *missing_steps = find_missing_steps(&overview, goal);
        let current_waits: BTreeSet<String> = find_waits(&overview).cloned().collect();
        for line in current_waits.difference(&shown_waits) {
            session.terminal().notice(line);
        }
        shown_waits = current_waits;
        if is_observed && overview.arming == goal {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the reasons why the cluster has not reached the goal.
fn find_missing_steps(overview: &Overview, goal: &str) -> Vec<String> {
    let nodes = overview
        .nodes
        .iter()
        .filter(|node| !node.arming.is_empty() && node.arming != goal)
        .map(|node| format!("{}: {}, {:?}", node.name, node.arming, node.state));
    find_waits(overview).cloned().chain(nodes).collect()
}

/// Returns what the cluster waits for, and the reasons why the services named there are not ready.
fn find_waits(overview: &Overview) -> impl Iterator<Item = &String> {
    let of_cluster = |sentence: &&String| sentence.starts_with("cluster ");
    let delays_cluster = move |sentence: &&String| {
        let resource = sentence.strip_prefix("resource ").and_then(|rest| rest.split_once(": "));
        resource.is_some_and(|(name, _)| {
            let named_mode = format!(" {name} (");
            overview.waiting_for.iter().filter(of_cluster).any(|sentence| sentence.contains(&named_mode))
        })
    };
    let delaying = overview.waiting_for.iter().filter(delays_cluster);
    overview.waiting_for.iter().filter(of_cluster).chain(delaying)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::node::NodeState;
    use ha_api_types::view::NodeOverview;

    #[test]
    fn missing_steps_name_services_and_nodes() {
        let node = |name: &str, arming: &str| NodeOverview {
            name: name.into(),
            arming: arming.to_owned(),
            state: NodeState::Online,
            ..NodeOverview::default()
        };
        let overview = Overview {
            nodes: vec![node("node1", "Disarmed"), node("node2", "Disarming"), node("off", "")],
            waiting_for: vec![
                "cluster default: Disarming waits for web (Migrate)".to_owned(),
                "resource other: Waiting for a node".to_owned(),
                "resource web: Cannot remove the received copy from node2".to_owned(),
            ],
            ..Overview::default()
        };
        assert_eq!(
            find_missing_steps(&overview, "Disarmed"),
            [
                "cluster default: Disarming waits for web (Migrate)",
                "resource web: Cannot remove the received copy from node2",
                "node2: Disarming, Online"
            ]
        );
    }
}
