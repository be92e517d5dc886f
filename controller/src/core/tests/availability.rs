//! Tests of the recorded availability: the time in which a service ran while it was requested to run.

use super::fencing::running_on;
use super::lab::Lab;
use ha_api_types::availability::AvailabilityState;
use ha_api_types::resource::{RequestedState, ResourceSpec, ServiceState};

const DAY_SECONDS: i64 = 86_400;

/// Returns the recorded seconds in which the service was down, and in which it was not requested to run.
fn unavailable_seconds(lab: &Lab) -> (i64, i64) {
    let record = lab.status("web").availability.expect("a record");
    let of = |what: fn(&ha_api_types::availability::Span) -> u32| -> i64 {
        record.spans.iter().map(|span| i64::from(what(span))).sum()
    };
    (of(|span| span.down_seconds), of(|span| span.not_desired_seconds))
}

fn availability_state(lab: &Lab) -> AvailabilityState {
    lab.status("web").availability.expect("a record").standing
}

#[test]
fn a_failover_counts_from_the_last_heartbeat_to_the_start_elsewhere() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.run(60_000);
    assert_eq!(availability_state(&lab), AvailabilityState::Up);
    let before = unavailable_seconds(&lab).0;
    let failed_at = lab.now.monotonic_raw;
    lab.agent(&node).power_off();
    lab.run_until(60_000, "runs elsewhere", |lab| {
        lab.is_in_state("web", ServiceState::Started)
            && lab.running_nodes("web").iter().any(|place| *place != node)
    });
    let took = i64::try_from(lab.now.monotonic_raw.since(failed_at)).unwrap() / 1000;
    lab.run(1_000);
    assert_eq!(availability_state(&lab), AvailabilityState::Up);
    let down = unavailable_seconds(&lab).0 - before;
    assert!((took - 2..=took + 3).contains(&down), "{down} s of {took} s");
}

#[test]
fn the_next_leader_continues_the_record() {
    let mut lab = Lab::new(2, &["node1"]);
    lab.wait_until_nodes_online();
    lab.start("web");
    lab.edit::<ResourceSpec>("web", |web| web.spec.state = RequestedState::Stopped);
    lab.run_until(10_000, "stopped", |lab| lab.is_in_state("web", ServiceState::Stopped));
    assert_eq!(availability_state(&lab), AvailabilityState::NotWanted);
    let leader = lab.members.iter().position(|member| member.core.term().is_some()).unwrap();
    lab.members[leader].running = false;
    lab.run_until(60_000, "another leads", |lab| {
        lab.members.iter().any(|member| member.running && member.core.term().is_some())
    });
    lab.run(5_000);
    lab.edit::<ResourceSpec>("web", |web| web.spec.state = RequestedState::Started);
    lab.run_until(10_000, "started", |lab| availability_state(lab) == AvailabilityState::Up);
    lab.run(20_000);
    let (_, not_wanted) = unavailable_seconds(&lab);
    assert!(not_wanted >= 5, "{not_wanted} s not wanted");
    let now = lab.now.timestamp();
    let record = lab.status("web").availability.unwrap();
    let ratio = record.ratio(30, &now).unwrap();
    assert!((0.8..=1.0).contains(&ratio), "{ratio}");
    let later = lab.now.wall_unix_ms + i128::from(DAY_SECONDS) * 40 * 1000;
    let later = ha_api_types::time::Timestamp::from_unix_ms(later);
    assert_eq!(record.ratio(30, &later), Some(1.0), "that is long past then");
}

#[test]
fn a_service_without_changes_causes_no_writes() {
    let (mut lab, _) = running_on(&["node1", "node2"]);
    lab.run(10_000);
    let key = lab.keys.status(ha_api_types::kind::Kind::Resource, "web");
    let written = |lab: &Lab| {
        lab.members[0].commits.iter().filter(|(_, transaction, _)| transaction.writes_key(&key)).count()
    };
    let before = written(&lab);
    lab.run(120_000);
    assert_eq!(written(&lab), before);
}
