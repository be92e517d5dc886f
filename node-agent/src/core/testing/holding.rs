//! Tests of FENCING 9: Hold on the agent's side.

use super::*;
use ha_api_types::cluster::{Cluster, ClusterSpec, FencingSpec, OnEtcdLoss};
use ha_api_types::id::Epoch;
use ha_api_types::record::{Candidate, HoldAnswer};

fn grant_answer() -> HoldAnswer {
    HoldAnswer { granted: true, reason: String::new() }
}

fn refusal_answer() -> HoldAnswer {
    HoldAnswer { granted: false, reason: "it reaches the store".to_owned() }
}

fn add_candidate(world: &mut World, id: &str) {
    let url = format!("https://{id}:7443");
    let value = Candidate { id: id.into(), url, ..Candidate::default() };
    world.write(&world.keys.candidate(&id.into()), &value);
}

fn set_on_etcd_loss(world: &mut World, on_etcd_loss: OnEtcdLoss) {
    let fencing = FencingSpec { on_etcd_loss, ..FencingSpec::default() };
    let cluster = Cluster::new("default", ClusterSpec { fencing, ..ClusterSpec::default() });
    world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
}

/// Creates a node that runs `web` under Hold, with controllers of these names.
fn node_held_by(candidates: &[&str]) -> World {
    let mut world = World::running();
    set_on_etcd_loss(&mut world, OnEtcdLoss::Hold);
    for id in candidates {
        add_candidate(&mut world, id);
    }
    world.advance(3_000);
    let report = world.node_report();
    assert_eq!(report.on_etcd_loss, OnEtcdLoss::Hold);
    assert_eq!(report.candidate_generation, world.core.view.candidate_generation());
    world
}

/// Returns `true` if `web` runs after an outage of a minute. Asserts that the machine was not reset in the meantime.
fn run_and_check_survival(world: &mut World) -> bool {
    world.network = NetworkFault::Down;
    world.advance(60_000);
    assert!(!world.was_reset);
    world.copies["web"].running
}

#[test]
fn services_continue_while_every_controller_grants() {
    let mut world = node_held_by(&["c1", "c2"]);
    world.controllers.insert("c1".to_owned().into(), grant_answer());
    world.controllers.insert("c2".to_owned().into(), grant_answer());
    assert!(run_and_check_survival(&mut world), "{:#?}", world.logs);
    let (_, _, url, request) = world.questions.last().expect("the agent has asked for hold").clone();
    assert_eq!(url, format!("https://{}:7443", request.candidate));
    assert_eq!((request.epoch, request.boot_id.as_str()), (Epoch(1), "boot-1"));
    let interval_ms = world.core.active_timings.heartbeat_interval_ms;
    let times: BTreeSet<u64> = world.questions.iter().map(|(at, ..)| *at).collect();
    let times: Vec<u64> = times.into_iter().collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= interval_ms), "no sooner than Ki: {times:?}");
    assert!(times.len() > 50, "again every Ki: {times:?}");

    // etcd returns: heartbeats commit, no service was stopped, and the agent asks no controller again.
    world.network = NetworkFault::Up;
    world.advance(3_000);
    let question_count = world.questions.len();
    world.advance(10_000);
    assert_eq!(world.questions.len(), question_count);
    assert_eq!((world.copies["web"].starts, world.fence().epoch), (1, Epoch(1)));
}

#[test]
fn missing_grant_ends_the_hold() {
    let mut world = node_held_by(&["c1", "c2"]);
    world.controllers.insert("c1".to_owned().into(), grant_answer());
    world.controllers.insert("c2".to_owned().into(), refusal_answer());
    assert!(!run_and_check_survival(&mut world));

    let mut world = node_held_by(&["c1", "c2"]);
    world.controllers.insert("c1".to_owned().into(), grant_answer());
    assert!(!run_and_check_survival(&mut world));

    let mut world = node_held_by(&[]);
    assert!(!run_and_check_survival(&mut world));
}

#[test]
fn hold_requires_grant_of_joined_controller() {
    let mut world = node_held_by(&["c1"]);
    world.controllers.insert("c1".to_owned().into(), grant_answer());
    add_candidate(&mut world, "c2");
    world.advance(3_000);
    assert!(!run_and_check_survival(&mut world));
}

#[test]
fn a_controller_that_left_needs_no_grant() {
    let mut world = node_held_by(&["c1", "c2"]);
    world.controllers.insert("c1".to_owned().into(), grant_answer());
    world.delete(&world.keys.candidate(&"c2".into()));
    world.advance(3_000);
    assert!(run_and_check_survival(&mut world), "{:#?}", world.logs);

    // The departure of c1 is the last change that the node sees, so c1 may have closed the epoch before it left. (c1 is
    // the older candidate. The departure of the newest candidate would also change the node's report, and this also
    // ends hold.)
    let mut world = node_held_by(&["c1", "c2"]);
    world.controllers.insert("c2".to_owned().into(), grant_answer());
    let key = world.keys.candidate(&"c1".into());
    world.delete(&key);
    let revision = world.state.revision();
    world.network = NetworkFault::Down;
    world.input(Input::Changed { changes: vec![Change::Delete { key, revision }], revision });
    assert!(!run_and_check_survival(&mut world));
}

#[test]
fn hold_deadline_counts_from_the_request() {
    let mut world = node_held_by(&["c1"]);
    let timings = world.core.active_timings;
    world.network = NetworkFault::Down;
    world.advance(timings.heartbeat_interval_ms + 500);
    let (asked_at_ms, id, _, _) = world.questions.last().expect("the agent has asked for hold").clone();
    let late_ms = timings.heartbeat_interval_ms / 4;
    world.advance(late_ms);
    let newest = world.questions.last().expect("the agent has asked for hold").clone();
    assert_eq!((newest.0, newest.1), (asked_at_ms, id), "the same question");
    world.input(Input::HoldAnswered { id, candidate: "c1".into(), answer: Ok(grant_answer()) });
    let moment = world.core.deadline_moment().expect("a deadline");
    assert_eq!(moment.monotonic_raw_ns / 1_000_000, asked_at_ms + timings.heartbeat_valid_ms);
    // A grant for an older request does not count.
    world.advance(timings.heartbeat_interval_ms);
    world.input(Input::HoldAnswered { id, candidate: "c1".into(), answer: Ok(grant_answer()) });
    assert_eq!(world.core.deadline_moment(), Some(moment));
}

#[test]
fn node_without_reported_hold_requests_none() {
    let mut world = World::running();
    set_on_etcd_loss(&mut world, OnEtcdLoss::Stop);
    add_candidate(&mut world, "c1");
    world.controllers.insert("c1".to_owned().into(), grant_answer());
    world.advance(3_000);
    assert!(!run_and_check_survival(&mut world));
    assert!(world.questions.is_empty());
}

#[test]
fn idle_node_requests_no_hold() {
    let mut world = node_held_by(&["c1"]);
    world.controllers.insert("c1".to_owned().into(), grant_answer());
    world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(5_000);
    world.network = NetworkFault::Down;
    world.advance(20_000);
    assert!(world.questions.is_empty());
}
