//! Tests of the recorded availability: the time in which a service ran while it was requested to run.

use super::fencing::cluster_with_running_service;
use super::test_cluster::TestCluster;
use ha_api_types::availability::AvailabilityState;
use ha_api_types::resource::{RequestedState, ResourceSpec, ServiceState};

const DAY_SECONDS: i64 = 86_400;

/// Returns the recorded seconds in which the service was down, and in which it was not requested to run.
fn unavailable_seconds(cluster: &TestCluster) -> (i64, i64) {
    let record = cluster.status("web").availability.expect("a record");
    let sum_of = |seconds_of: fn(&ha_api_types::availability::Span) -> u32| -> i64 {
        record.spans.iter().map(|span| i64::from(seconds_of(span))).sum()
    };
    (sum_of(|span| span.down_seconds), sum_of(|span| span.not_desired_seconds))
}

fn availability_state(cluster: &TestCluster) -> AvailabilityState {
    cluster.status("web").availability.expect("a record").state
}

#[test]
fn a_failover_counts_from_the_last_heartbeat_to_the_start_elsewhere() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.run(60_000);
    assert_eq!(availability_state(&cluster), AvailabilityState::Up);
    let before = unavailable_seconds(&cluster).0;
    let failed_at = cluster.now.monotonic_raw;
    cluster.agent(&node).power_off();
    cluster.run_until(60_000, "runs elsewhere", |cluster| {
        cluster.is_in_state("web", ServiceState::Started)
            && cluster.running_nodes("web").iter().any(|place| *place != node)
    });
    let took = i64::try_from(cluster.now.monotonic_raw.since(failed_at)).unwrap() / 1000;
    cluster.run(1_000);
    assert_eq!(availability_state(&cluster), AvailabilityState::Up);
    let down = unavailable_seconds(&cluster).0 - before;
    assert!((took - 2..=took + 3).contains(&down), "{down} s of {took} s");
}

#[test]
fn the_next_leader_continues_the_record() {
    let mut cluster = TestCluster::new(2, &["node1"]);
    cluster.wait_until_nodes_online();
    cluster.start("web");
    cluster.edit::<ResourceSpec>("web", |web| web.spec.state = RequestedState::Stopped);
    cluster.run_until(10_000, "stopped", |cluster| cluster.is_in_state("web", ServiceState::Stopped));
    assert_eq!(availability_state(&cluster), AvailabilityState::NotWanted);
    let leader = cluster.controllers.iter().position(|controller| controller.core.term().is_some()).unwrap();
    cluster.controllers[leader].is_running = false;
    cluster.run_until(60_000, "another leads", |cluster| {
        cluster.controllers.iter().any(|controller| controller.is_running && controller.core.term().is_some())
    });
    cluster.run(5_000);
    cluster.edit::<ResourceSpec>("web", |web| web.spec.state = RequestedState::Started);
    cluster.run_until(10_000, "started", |cluster| availability_state(cluster) == AvailabilityState::Up);
    cluster.run(20_000);
    let (_, not_wanted) = unavailable_seconds(&cluster);
    assert!(not_wanted >= 5, "{not_wanted} s not wanted");
    let now = cluster.now.timestamp();
    let record = cluster.status("web").availability.unwrap();
    let ratio = record.ratio(30, &now).unwrap();
    assert!((0.8..=1.0).contains(&ratio), "{ratio}");
    let later = cluster.now.wall_unix_ms + i128::from(DAY_SECONDS) * 40 * 1000;
    let later = ha_api_types::time::Timestamp::from_unix_ms(later);
    assert_eq!(record.ratio(30, &later), Some(1.0), "that is long past then");
}

#[test]
fn a_service_without_changes_causes_no_writes() {
    let (mut cluster, _) = cluster_with_running_service(&["node1", "node2"]);
    cluster.run(10_000);
    let key = cluster.keys.status(ha_api_types::kind::Kind::Resource, "web");
    let written = |cluster: &TestCluster| {
        cluster.controllers[0]
            .commits
            .iter()
            .filter(|(_, transaction, _)| transaction.writes_key(&key))
            .count()
    };
    let before = written(&cluster);
    cluster.run(120_000);
    assert_eq!(written(&cluster), before);
}
