//! Tests of the document that shows the state of the core.

use super::test_cluster::TestCluster;

#[test]
fn core_state_shows_leader_and_silent_nodes() {
    let mut cluster = TestCluster::new(2, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    cluster.agent("node2").isolated = true;
    cluster.run(3_000);
    let states: Vec<_> =
        cluster.controllers.iter().map(|controller| controller.core.state(&cluster.now)).collect();
    assert_eq!(states.iter().filter(|state| state.term.is_some()).count(), 1, "{states:?}");
    for state in &states {
        assert!(state.is_candidate && state.refused.is_none(), "{state:?}");
        assert!(
            state.heartbeat_age_ms["node2"] >= 2_000 && state.heartbeat_age_ms["node1"] < 2_000,
            "{state:?}"
        );
    }
    let leader = states.iter().find(|state| state.term.is_some()).expect("one leads");
    assert!(leader.plans > 0 && leader.next.is_some(), "{leader:?}");
}
