//! `hactl disarm` and `hactl arm`: disarm and arm the cluster, for planned work on etcd or the network.

use super::wait::{WaitFlags, bounded};
use crate::client::Commitment;
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
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Treatment of services while the cluster is disarmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    /// Services keep running and are not changed
    Freeze,
    /// Services may be moved manually; arm locates them again
    Ignore,
}

impl How {
    fn name(self) -> &'static str {
        match self {
            How::Freeze => "Freeze",
            How::Ignore => "Ignore",
        }
    }
}

/// Suspend watchdogs and fencing for work on etcd or the network
#[derive(Args, Debug)]
pub(crate) struct Disarm {
    /// Treatment of services while disarmed
    how: How,
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
        let wanted = self.how.name();
        if change(session, Some(wanted)).await? {
            let line = format!("cluster/{CLUSTER_NAME} disarming ({wanted})");
            session.terminal().say(&line);
        } else {
            session.terminal().say(&format!("cluster/{CLUSTER_NAME} already disarmed ({wanted})"));
        }
        follow(session, &self.wait, "Disarmed").await
    }
}

impl Arm {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        if change(session, None).await? {
            session.terminal().say(&format!("cluster/{CLUSTER_NAME} arming"));
        } else {
            session.terminal().say(&format!("cluster/{CLUSTER_NAME} already armed"));
        }
        follow(session, &self.wait, "Armed").await
    }
}

/// Sets or removes `spec.disarmed`. Returns `false` if the object already has this value.
async fn change(session: &Session, wanted: Option<&str>) -> Result<bool, Failure> {
    session.format(&[])?;
    let client = session.client()?;
    let known = client.find::<ClusterSpec>(CLUSTER_NAME).await?;
    if known.as_ref().map_or("", |cluster| cluster.word("/spec/disarmed")) == wanted.unwrap_or_default() {
        return Ok(false);
    }
    if known.is_some() {
        let patch = json!({"spec": {"disarmed": wanted}});
        client.patch(Kind::Cluster, CLUSTER_NAME, &patch, Commitment::Real).await?;
    } else {
        let object = json!({
            "apiVersion": API_VERSION, "kind": Kind::Cluster.name(),
            "metadata": {"name": CLUSTER_NAME}, "spec": {"disarmed": wanted},
        });
        client.create(Kind::Cluster, &object, Commitment::Real).await?;
    }
    Ok(true)
}

/// Waits until the cluster reaches the goal, if requested, and prints each node's progress.
async fn follow(session: &Session, wait: &WaitFlags, goal: &str) -> Outcome {
    if !wait.wait {
        return Ok(Exit::Done);
    }
    let mut left = Vec::new();
    let what = format!("cluster/{CLUSTER_NAME} is not {goal}");
    match bounded(wait.timeout, &what, until(session, goal, &mut left)).await {
        Ok(()) => {
            session.terminal().say(&format!("cluster/{CLUSTER_NAME} is {goal}"));
            Ok(Exit::Done)
        }
        Err(failure) => {
            let lines: Vec<String> = left.iter().map(|line| format!("\n{line}")).collect();
            Err(Failure { message: format!("{}{}", failure.message, lines.concat()), ..failure })
        }
    }
}

/// Polls until the leader has observed the request and every node has reached the goal. Keeps `left` up to date.
async fn until(session: &Session, goal: &str, left: &mut Vec<String>) -> Result<(), Failure> {
    let client = session.client()?;
    let mut told: BTreeMap<NodeName, String> = BTreeMap::new();
    let mut waited: BTreeSet<String> = BTreeSet::new();
    loop {
        let cluster = client.find::<ClusterSpec>(CLUSTER_NAME).await?;
        let overview = client.overview().await?;
        let seen = cluster.is_none_or(|cluster| {
            cluster.status.map_or(0, |status| status.observed_generation) >= cluster.metadata.generation
        });
        for node in &overview.nodes {
            if !node.arming.is_empty() && told.get(&node.name) != Some(&node.arming) {
                session.terminal().progress(&format!("{}: {}", node.name, node.arming));
                told.insert(node.name.clone(), node.arming.clone());
            }
        }
        *left = missing(&overview, goal);
        let waits: BTreeSet<String> =
            left.iter().filter(|line| line.contains("waits for")).cloned().collect();
        for line in waits.difference(&waited) {
            session.terminal().held_up(line);
        }
        waited = waits;
        if seen && overview.arming == goal {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns the reasons why the cluster has not reached the goal.
fn missing(overview: &Overview, goal: &str) -> Vec<String> {
    let sentences = overview.waiting_for.iter().filter(|sentence| sentence.starts_with("cluster "));
    let nodes = overview
        .nodes
        .iter()
        .filter(|node| !node.arming.is_empty() && node.arming != goal)
        .map(|node| format!("{}: {}, {:?}", node.name, node.arming, node.state));
    sentences.cloned().chain(nodes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::node::NodeState;
    use ha_api_types::view::NodeOverview;

    #[test]
    fn what_is_missing_names_services_and_nodes() {
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
                "resource web: it moves".to_owned(),
            ],
            ..Overview::default()
        };
        assert_eq!(
            missing(&overview, "Disarmed"),
            ["cluster default: Disarming waits for web (Migrate)", "node2: Disarming, Online"]
        );
    }
}
