//! Tests of the messages of the N+1 check.

use super::*;
use ha_scheduler::reservation::BlockedNode;

fn unplaced_service(service: &str, node: &str, blocked_nodes: &[(&str, &str)]) -> Unplaced {
    let blocked = |(node, message): &(&str, &str)| BlockedNode {
        node: (*node).into(),
        reason: Reason::NotEnoughMemory,
        message: (*message).to_owned(),
    };
    Unplaced {
        service: service.into(),
        node: node.into(),
        blocked_nodes: blocked_nodes.iter().map(blocked).collect(),
        omitted: 0,
    }
}

fn check(verdicts: &[(&str, Verdict)], reason: Reason, expected: &str) {
    let verdicts: Vec<(NodeName, &Verdict)> =
        verdicts.iter().map(|(node, verdict)| ((*node).into(), verdict)).collect();
    let verdicts = finding("default", verdicts.iter().map(|(node, verdict)| (node, *verdict)));
    assert_eq!((verdicts.reason, message_of(&verdicts).as_str()), (reason, expected));
}

#[test]
fn failed_reservation_check_names_nodes_and_services() {
    let failing = |services| Verdict::Fails(FailedCheck { certificate: Certificate::NoNode, services });
    let web = unplaced_service(
        "web",
        "node1",
        &[("node2", "too small"), ("node3", "too small"), ("node4", "away")],
    );
    let db = unplaced_service("db", "node2", &[]);
    check(
        &[("node1", failing(vec![web])), ("node2", failing(vec![db]))],
        Reason::InsufficientFailoverCapacity,
        "Failover capacity (N+1) check of cluster default failed: services of nodes node1, node2 cannot be restarted \
         elsewhere after a failure; add capacity or stop unused services: web on node1: too small (node2, node3), away (node4); \
         db on node2: no other node",
    );
}

#[test]
fn undecided_reservation_check_is_reported() {
    let unplaced = vec![unplaced_service("web", "node1", &[("node2", "too small")])];
    check(
        &[("node1", Verdict::Unknown(unplaced))],
        Reason::FailoverCapacityUnknown,
        "Failover capacity (N+1) check of cluster default is inconclusive for failures of node node1: \
         web on node1: too small (node2)",
    );
}

#[test]
fn passed_reservation_check_is_one_sentence() {
    check(
        &[],
        Reason::FailoverCapacityAvailable,
        "Every service can be restarted after the failure of any one node",
    );
}

#[test]
fn reservation_headline_names_the_nodes() {
    let sentence = check_failed_message("default", "node1");
    assert_eq!(headline(&format!("{sentence}: web on node1: too small (node2)")), sentence);
    assert_eq!(headline("something else"), "something else");
}
