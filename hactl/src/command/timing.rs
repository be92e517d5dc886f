//! `hactl timing`: shows the longest failover time of each node, by phase or by part.

mod report;

use crate::failure::{Exit, Failure, Outcome};
use crate::object::TypedObject;
use crate::render::Format;
use crate::session::Session;
use clap::{Args, ValueEnum};
use ha_api_types::cluster::{CLUSTER_NAME, ClusterSpec};
use ha_api_types::node::Node;
use ha_api_types::timing::{Profile, StoreTimes, Timings, UNANSWERED_REQUEST_MS, WatchdogBounds};
use report::{FailoverSubject, Report};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Longest time until every process has seen a commit, with a healthy etcd.
const DEFAULT_COMMIT_DELAY: &str = "100ms";
/// Delay between the expiry of a lease and its revocation by etcd.
const DEFAULT_EXPIRY_DELAY: &str = "500ms";

/// Compute the worst-case failover time of each node
#[derive(Args, Debug)]
#[command(
    after_help = "The total is the time from the last heartbeat of a failed node until its services start elsewhere. The start \
        time of a service is not included. Fence devices that confirm earlier shorten the fence phase.\n\n\
        Exit status: 0 computed; 1 the timing settings of a node differ from those of the cluster or are \
        unknown; 3 unreachable; 4 permission denied."
)]
pub(crate) struct Timing {
    /// Names of nodes to show
    #[arg(value_name = "NODE", conflicts_with = "profile")]
    nodes: Vec<String>,
    /// Show the times of a profile for each kind of watchdog, without a cluster
    #[arg(long, value_name = "PROFILE", ignore_case = true)]
    profile: Option<ProfileName>,
    /// Assumed time until all clients have received an etcd commit
    #[arg(long, value_name = "DURATION", default_value = DEFAULT_COMMIT_DELAY, value_parser = crate::duration::parse)]
    commit: Duration,
    /// Assumed delay before etcd revokes an expired lease
    #[arg(long, value_name = "DURATION", default_value = DEFAULT_EXPIRY_DELAY, value_parser = crate::duration::parse)]
    expiry: Duration,
    /// Assumed number of etcd requests lost together with all their retries
    #[arg(long = "lost", value_name = "NUMBER", default_value_t = 0)]
    lost_requests: u32,
    /// Show the settings, and every part of the total
    #[arg(long)]
    explain: bool,
}

/// Name of a profile on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ProfileName {
    Fast,
    Default,
    Conservative,
}

impl ProfileName {
    pub(super) fn profile(self) -> Profile {
        match self {
            ProfileName::Fast => Profile::Fast,
            ProfileName::Default => Profile::Default,
            ProfileName::Conservative => Profile::Conservative,
        }
    }
}

impl Timing {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let store = self.store_times();
        let report = match self.profile {
            Some(name) => {
                let timings = Timings::of_profile(name.profile());
                Report::new(name.profile(), timings, &store, &watchdog_kinds(&timings))
            }
            None => self.cluster_report(session, &store).await?,
        };
        let value = serde_json::to_value(&report)
            .map_err(|error| Failure::failed(format!("cannot print the timing: {error}")))?;
        let value = in_spec_units(value);
        if !session.print_value(format, &value)? {
            let terminal = session.terminal();
            let text = if self.explain { report.explanation(terminal) } else { report.summary(terminal) };
            terminal.print(&text);
        }
        Ok(if report.is_complete() { Exit::Done } else { Exit::Failed })
    }

    fn store_times(&self) -> StoreTimes {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        StoreTimes {
            commit_ms: ms(self.commit),
            expiry_ms: ms(self.expiry),
            unanswered_ms: UNANSWERED_REQUEST_MS * u64::from(self.lost_requests),
        }
    }

    async fn cluster_report(&self, session: &Session, store: &StoreTimes) -> Result<Report, Failure> {
        let client = session.client()?;
        let cluster =
            client.find::<ClusterSpec>(CLUSTER_NAME).await?.map(TypedObject::into_strict).transpose()?;
        let timing = cluster.map(|cluster| cluster.spec.timing).unwrap_or_default();
        let mut nodes = if self.nodes.is_empty() { client.all().await? } else { Vec::new() };
        for name in &self.nodes {
            nodes.push(client.node(&super::parse_node(name)?).await?);
        }
        let nodes = nodes.into_iter().map(TypedObject::into_strict).collect::<Result<Vec<Node>, _>>()?;
        let subjects: Vec<FailoverSubject> = nodes.iter().map(node_subject).collect();
        Ok(Report::new(timing.profile, Timings::from(&timing), store, &subjects))
    }
}

/// Converts each field `…Ms` to `…Seconds`, and each field `…Ppm` to `…Percent`, as in `Cluster.spec.timing`.
fn in_spec_units(value: Value) -> Value {
    let converted = |name: String, value: Value| match (name.strip_suffix("Ms"), name.strip_suffix("Ppm")) {
        (Some(quantity), _) => (format!("{quantity}Seconds"), divide(&value, 1_000)),
        (None, Some(quantity)) => (format!("{quantity}Percent"), divide(&value, 10_000)),
        (None, None) => (name, in_spec_units(value)),
    };
    match value {
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| converted(name, value)).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.into_iter().map(in_spec_units).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time has fewer than 52 bits")]
fn divide(count: &Value, divisor: u64) -> Value {
    let count = count.as_u64().unwrap_or_default();
    if count.is_multiple_of(divisor) { json!(count / divisor) } else { json!(count as f64 / divisor as f64) }
}

/// Returns a node with the timings that its agent committed.
fn node_subject(node: &Node) -> FailoverSubject {
    let status = node.status.clone().unwrap_or_default();
    let watchdog = status.watchdog.unwrap_or_default();
    let timings_and_watchdog = status.timing.filter(|_| watchdog.timeout_seconds.ms() > 0).map(|timing| {
        let bounds = WatchdogBounds {
            timeout_ms: watchdog.timeout_seconds.ms(),
            sliding: watchdog.sliding,
            descriptor_retained: watchdog.descriptor_retained,
        };
        (Timings::from(timing), bounds)
    });
    FailoverSubject { name: node.metadata.name.clone(), device: watchdog.identity, timings_and_watchdog }
}

/// Returns every kind of watchdog with the desired timeout.
fn watchdog_kinds(timings: &Timings) -> Vec<FailoverSubject> {
    let kind = |name: &str, sliding, descriptor_retained| {
        let bounds = WatchdogBounds { timeout_ms: timings.watchdog_timeout_ms, sliding, descriptor_retained };
        FailoverSubject {
            name: name.to_owned(),
            device: String::new(),
            timings_and_watchdog: Some((*timings, bounds)),
        }
    };
    vec![
        kind("sliding timeout", true, true),
        kind("fixed timeout", false, true),
        kind("descriptor not retained", true, false),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_delays_are_those_of_a_healthy_etcd() {
        let ms = |text: &str| {
            u64::try_from(crate::duration::parse(text).expect("valid").as_millis()).expect("short")
        };
        assert_eq!(ms(DEFAULT_COMMIT_DELAY), StoreTimes::HEALTHY.commit_ms);
        assert_eq!(ms(DEFAULT_EXPIRY_DELAY), StoreTimes::HEALTHY.expiry_ms);
    }
}
