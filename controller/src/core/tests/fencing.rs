//! Tests of the rules of FENCING, sections 2, 3, 5 and 10, by name.

use super::lab::Lab;
use ha_api_types::cluster::{CLUSTER_NAME, ClusterSpec, CountOrPercent, Disarmed};
use ha_api_types::id::{Epoch, NodeName, Term};
use ha_api_types::kind::Kind;
use ha_api_types::meta::ConditionStatus;
use ha_api_types::node::{Node, NodeSpec, NodeState};
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState, Mode, Proof, SleepProtection, WatchdogKind};
use ha_api_types::resource::ServiceState;
use ha_api_types::timing::Profile;

pub(super) const TH: u64 = 6_000;

pub(super) fn running_on(nodes: &[&str]) -> (Lab, NodeName) {
    let mut lab = Lab::new(1, nodes);
    lab.wait_until_nodes_online();
    lab.start("web");
    let node = lab.status("web").node.unwrap();
    (lab, node)
}

#[test]
fn a_node_registers_and_its_object_is_created_with_its_first_epoch() {
    let mut lab = Lab::new(1, &["node1"]);
    lab.wait_until_nodes_online();
    let fence = lab.fence("node1");
    assert_eq!((fence.epoch, fence.state), (Epoch(1), FenceState::Open));
    assert_eq!(fence.boot_id, "node1-boot1");
    let key = lab.keys.spec(Kind::Node, "node1");
    let object = lab.state.get(&key).entries[0].clone();
    let opened_at = lab.state.get(&lab.keys.fence(&"node1".into())).entries[0].mod_revision;
    assert_eq!(object.create_revision, opened_at, "one transaction");
}

#[test]
fn proof_a_silent_armed_node_fenced_after_w() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let failed_at = lab.now.monotonic_raw;
    lab.agent(&node).power_off();
    let fencing_delay_ms = lab.agent(&node).fencing_delay_ms();
    lab.run_until(TH + 2_000, "declared dead", |lab| lab.fence(&node).state == FenceState::Fencing);
    assert!(lab.now.monotonic_raw.since(failed_at) >= TH - 1_000);
    lab.run_until(2_000, "in Fence", |lab| {
        lab.is_in_state("web", ServiceState::Fence) && lab.node_is(&node, NodeState::Fence)
    });
    lab.run_until(fencing_delay_ms, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert!(
        matches!(lab.fence(&node).proof, Some(Proof::Silence { waited_ms }) if waited_ms >= fencing_delay_ms)
    );
    assert!(
        lab.now.monotonic_raw.since(failed_at) <= fencing_delay_ms + 300,
        "W after the last heartbeat, and not later"
    );
    lab.run_until(1_000, "runs elsewhere", |lab| lab.running_nodes("web").iter().any(|place| *place != node));
    assert_eq!(lab.fence(&node).epoch, Epoch(2));
}

/// An agent that has not read a shorter Th acts by the longer Th, so the node counts as alive for the longer time
/// (R5.5).
#[test]
fn a_node_is_late_by_the_timings_of_its_own_report() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).power_off();
    lab.edit::<ClusterSpec>(CLUSTER_NAME, |cluster| cluster.spec.timing.profile = Profile::Fast);
    // Th of the cluster is 4 s now.
    lab.run(TH - 1_300);
    assert_eq!(lab.fence(&node).state, FenceState::Open);
    lab.run_until(3_000, "declared dead", |lab| lab.fence(&node).state == FenceState::Fencing);
}

#[test]
fn isolated_node_stops_service_before_failover() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).isolated = true;
    lab.run_until(20_000, "runs elsewhere", |lab| {
        lab.running_nodes("web").iter().any(|place| *place != node)
    });
    lab.agent(&node).isolated = false;
    lab.run_until(5_000, "registers again", |lab| lab.node_is(&node, NodeState::Online));
    assert_eq!(lab.fence(&node).epoch, Epoch(2));
    lab.run(3_000);
    assert_eq!(lab.running_nodes("web").len(), 1);
}

#[test]
fn proof_g_idle_silent_node_closed_without_fencing() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let idle = if node == "node1" { "node2" } else { "node1" };
    lab.agent(idle).power_off();
    lab.run_until(TH + 3_000, "closed", |lab| lab.fence(idle).state == FenceState::Closed);
    assert_eq!(lab.fence(idle).proof, Some(Proof::NothingActive));
    lab.run_until(1_000, "shown Unknown", |lab| lab.node_is(idle, NodeState::Unknown));
}

#[test]
fn without_a_possible_proof_a_silent_node_is_unknown_with_a_reason() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).is_virtual = true;
    lab.run(2_000);
    lab.agent(&node).power_off();
    lab.run(60_000);
    assert_eq!(lab.fence(&node).state, FenceState::Open);
    let status = lab.node(&node);
    assert_eq!(status.state, NodeState::Unknown);
    assert_eq!(
        status.conditions.iter().find(|c| c.kind == "Ready").unwrap().reason,
        Reason::FencingUnavailable
    );
    lab.edit::<NodeSpec>(&node, |node| node.spec.fencing.trust_watchdog_on_virtual_machine = true);
    lab.run_until(20_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    // R5.31: the proof is still the wait of W.
    let fencing_delay_ms = lab.agent(&node).fencing_delay_ms();
    let proof = lab.fence(&node).proof;
    assert!(
        matches!(proof, Some(Proof::Silence { waited_ms }) if waited_ms >= fencing_delay_ms),
        "{proof:?}"
    );
}

/// R5.3: a heartbeat key that is deleted, such as by the expiry of its etcd lease, does not show a failure.
#[test]
fn a_deleted_heartbeat_counts_only_as_silence() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.run(2_000);
    lab.agent(&node).isolated = true;
    lab.run(1_000);
    let key = lab.keys.alive(&node);
    let guard = ha_store::Guard::Unchanged(lab.state.get(&key).entries[0].mod_revision);
    let deleted_at = lab.now.monotonic_raw;
    lab.state.commit(&ha_store::Transaction::new().delete(key, guard));
    lab.run(TH - 2_500);
    assert_eq!(lab.fence(&node).state, FenceState::Open, "not closed before Th");
    lab.run_until(TH, "declared dead", |lab| lab.fence(&node).state == FenceState::Fencing);
    assert!(lab.now.monotonic_raw.since(deleted_at) >= TH - 2_500);
}

/// R5.15 and R6.15: a later leader releases the assignment of an older epoch after the node is open again.
#[test]
fn a_later_leader_releases_an_older_epoch_of_an_open_node() {
    let (mut lab, node) = running_on(&["node1"]);
    lab.agent(&node).power_off();
    lab.run_until(40_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    let assignment = lab.assignment("web").unwrap();
    assert_eq!(assignment.epoch, Epoch(1));
    // The next leader sees the open epoch first.
    let fence = Fence {
        state: FenceState::Open,
        request: None,
        proof: None,
        boot_id: "node1-boot2".into(),
        ..lab.fence(&node)
    };
    lab.members[0].running = false;
    lab.put(&lab.keys.fence(&node), &fence);
    lab.add_controller("c9", "1");
    lab.agent(&node).boot_again();
    lab.run_until(60_000, "runs again", |lab| lab.running_nodes("web") == ["node1"]);
    let fresh = lab.assignment("web").unwrap();
    assert!(fresh.epoch > Epoch(1) && fresh.action_uid != assignment.action_uid, "{}", lab.show());
}

#[test]
fn a_simulated_watchdog_counts_only_when_allowed() {
    let mut lab = Lab::new(1, &["node1"]);
    lab.agent("node1").kind = WatchdogKind::Simulated;
    lab.wait_until_nodes_online();
    lab.create_resource("web");
    lab.run(3_000);
    let fenceable =
        |lab: &Lab| lab.node("node1").conditions.into_iter().find(|one| one.kind == "Fenceable").unwrap();
    assert!(lab.is_in_state("web", ServiceState::RequestStart), "{}", lab.show());
    let simulated = fenceable(&lab);
    assert_eq!((simulated.status, simulated.reason), (ConditionStatus::False, Reason::WatchdogSimulated));
    assert_eq!(simulated.message, Reason::WatchdogSimulated.sentence());
    lab.edit::<ClusterSpec>("default", |cluster| cluster.spec.fencing.allow_simulated_watchdog = true);
    lab.run_until(3_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    let allowed = fenceable(&lab);
    assert_eq!((allowed.status, allowed.reason), (ConditionStatus::True, Reason::WatchdogSimulated));
    assert!(allowed.message.contains("is allowed"), "{}", allowed.message);
}

#[test]
fn missing_watchdog_daemon_moves_services_elsewhere() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).faults.daemon_gone = true;
    lab.run(1_000);
    assert_eq!(lab.running_nodes("web"), [node.as_str()], "the running copy is not stopped");
    lab.agent(&node).running.remove("web");
    lab.run_until(3_000, "started", |lab| {
        lab.is_in_state("web", ServiceState::Started) && lab.running_nodes("web").len() == 1
    });
    assert_ne!(lab.running_nodes("web"), [node.as_str()], "{}", lab.show());
    assert_eq!(lab.status("web").relocations, 0, "that is nothing that the service did wrong");
}

#[test]
fn silence_proves_death_despite_missing_watchdog_daemon() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).faults.daemon_gone = true;
    lab.run(1_000);
    lab.agent(&node).power_off();
    lab.run_until(30_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    lab.run_until(3_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
}

#[test]
fn proof_c_another_boot_releases_without_waiting() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).power_off();
    lab.run(1_000);
    lab.agent(&node).boot_again();
    lab.run_until(TH + 1_500, "admitted", |lab| {
        lab.fence(&node).state == FenceState::Open && lab.fence(&node).epoch == Epoch(2)
    });
    lab.run_until(2_000, "runs", |lab| lab.running_nodes("web").len() == 1);
    assert!(lab.events.iter().any(|event| event.message.contains("machine was rebooted")));
}

#[test]
fn another_machine_under_the_same_name_needs_confirmation() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).power_off();
    lab.run(20_000);
    lab.agent(&node).machine_id = "another".into();
    lab.agent(&node).boot_again();
    lab.run(10_000);
    let fence = lab.fence(&node);
    assert_ne!(fence.state, FenceState::Open);
    assert!(
        lab.members[0].core.wait_conditions().iter().any(|waiting| waiting.reason == Reason::DuplicateNode)
    );
    lab.operate_node(OperationAction::ConfirmFenced, &node);
    lab.run_until(10_000, "admitted", |lab| lab.fence(&node).state == FenceState::Open);
    assert_eq!(lab.fence(&node).machine_id, "another");
}

#[test]
fn proof_d_clean_leave_recovers_services_immediately() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    // The agent stops all services, then commits Left and deletes its heartbeat.
    lab.agent(&node).faults.ignores_assignments = true;
    lab.agent(&node).running.clear();
    let key = lab.keys.service_report(&node, &"web".into());
    let mut report: ha_api_types::record::ServiceReport = lab.read(&key).unwrap();
    report.phase = ha_api_types::record::Phase::Stopped;
    put(&mut lab, &key, &report);
    lab.agent(&node).is_powered_on = false;
    let key = lab.keys.node_report(&node);
    let mut report: ha_api_types::record::NodeReport = lab.read(&key).unwrap();
    report.mode = Mode::Left(ha_api_types::record::Leave::Poweroff);
    report.armed = false;
    put(&mut lab, &key, &report);
    let alive = lab.keys.alive(&node);
    let entry = lab.state.get(&alive).entries[0].clone();
    lab.state
        .commit(&ha_store::Transaction::new().delete(alive, ha_store::Guard::Unchanged(entry.mod_revision)));
    lab.run_until(3_000, "recovered", |lab| lab.running_nodes("web").len() == 1);
    assert!(lab.node_is(&node, NodeState::Offline));
    assert!(matches!(lab.fence(&node).proof, Some(Proof::CleanLeave { .. })));
}

pub(super) fn put<T: serde::Serialize>(lab: &mut Lab, key: &str, value: &T) {
    let entry = lab.state.get(key).entries[0].clone();
    let transaction = ha_store::Transaction::new().put(
        key.to_owned(),
        ha_store::Guard::Unchanged(entry.mod_revision),
        serde_json::to_vec(value).unwrap(),
    );
    assert!(lab.state.commit(&transaction).applied().is_some());
}

#[test]
fn proof_e_operator_confirms_one_silent_boot() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let spec = |lab: &Lab, epoch: Epoch| OperationSpec {
        action: OperationAction::ConfirmFenced,
        node: Some(node.clone()),
        epoch: Some(epoch),
        boot_id: Some(lab.fence(&node).boot_id),
        ..OperationSpec::default()
    };
    let seen = spec(&lab, Epoch(1));
    let others = [
        OperationSpec { epoch: Some(Epoch(7)), ..seen.clone() },
        OperationSpec { epoch: Some(Epoch(0)), ..seen.clone() },
        OperationSpec { epoch: None, ..seen.clone() },
        OperationSpec { boot_id: Some("another".into()), ..seen.clone() },
        OperationSpec { boot_id: None, ..seen },
    ];
    for (number, other) in others.iter().enumerate() {
        lab.create_operation(&format!("outdated-{number}"), other.clone());
    }
    let alive = spec(&lab, Epoch(1));
    lab.create_operation("alive", alive);
    lab.run(3_000);
    for (number, other) in others.iter().enumerate() {
        let found = lab.operation(&format!("outdated-{number}"));
        assert_eq!((found.phase, found.reason), (OperationPhase::Refused, Reason::Outdated), "{other:?}");
    }
    assert_eq!(lab.operation("alive").reason, Reason::NodeAlive);
    lab.agent(&node).is_virtual = true;
    lab.run(2_000);
    lab.agent(&node).power_off();
    lab.run(8_000);
    let confirmed = spec(&lab, Epoch(1));
    lab.create_operation("confirmed", confirmed);
    lab.run_until(3_000, "recovered", |lab| lab.running_nodes("web").iter().any(|place| *place != node));
    assert_eq!(lab.operation("confirmed").phase, OperationPhase::Succeeded);
    assert!(matches!(lab.fence(&node).proof, Some(Proof::Operator { .. })));
}

#[test]
fn unstopped_service_of_registering_node_becomes_error() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).faults.fails_stop.insert("web".into());
    lab.agent(&node).isolated = true;
    // The node is not armed, so no watchdog ends services that it cannot stop. Only its own registration is a proof.
    lab.agent(&node).armed = false;
    lab.run(8_000);
    lab.agent(&node).isolated = false;
    lab.run_until(10_000, "admitted", |lab| {
        lab.fence(&node).state == FenceState::Open && lab.fence(&node).epoch == Epoch(2)
    });
    let status = lab.status("web");
    assert_eq!(status.state, ServiceState::Error, "{}", lab.show());
    assert_eq!((status.stop_confirmed, status.node.as_deref()), (Some(false), Some(node.as_str())));
    lab.run(5_000);
    assert_eq!(lab.running_nodes("web"), [node]);
}

/// R10.6: no node is declared dead, even while a node has not acknowledged the disarming and is still armed.
#[test]
fn nobody_is_declared_dead_while_disarmed() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.edit::<ClusterSpec>(CLUSTER_NAME, |cluster| cluster.spec.disarmed = Some(Disarmed::Freeze));
    lab.run(1_000);
    lab.agent(&node).isolated = true;
    lab.run(40_000);
    assert_eq!(
        (lab.fence(&node).state, lab.fence(&node).epoch),
        (FenceState::Open, Epoch(1)),
        "{}",
        lab.show()
    );
    lab.edit::<ClusterSpec>(CLUSTER_NAME, |cluster| cluster.spec.disarmed = None);
    lab.run_until(30_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
}

/// R3.15: after the epoch has opened, the agent overwrites the names in its report. The epoch therefore opens only
/// after the Error is stored, even if the first write of the Error is lost.
#[test]
fn a_node_is_admitted_only_after_the_error_is_stored() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).faults.fails_stop.insert("web".into());
    let status = lab.keys.status(Kind::Resource, "web");
    lab.lost_commits_by_key.extend([status.clone(), status]);
    lab.agent(&node).lose_journal();
    lab.run_until(10_000, "admitted", |lab| {
        lab.fence(&node).state == FenceState::Open && lab.fence(&node).epoch == Epoch(2)
    });
    assert_eq!(lab.status("web").state, ServiceState::Error, "{}", lab.show());
}

#[test]
fn max_fencing_delays_fencing_within_the_window() {
    let mut lab = Lab::new(1, &["node1", "node2", "node3", "node4", "node5"]);
    lab.wait_until_nodes_online();
    for name in ["a", "b", "c", "d", "e"] {
        lab.start(name);
    }
    lab.edit::<ClusterSpec>("default", |cluster| {
        cluster.spec.fencing.max_fencing = CountOrPercent::Count(1);
        cluster.spec.fencing.window_seconds = 60;
    });
    lab.run(1_000);
    lab.agent("node1").power_off();
    lab.agent("node2").power_off();
    lab.run(20_000);
    let closed =
        |lab: &Lab| ["node1", "node2"].iter().filter(|node| lab.fence(node).epoch == Epoch(2)).count();
    assert_eq!(closed(&lab), 1);
    assert!(
        lab.members[0]
            .core
            .wait_conditions()
            .iter()
            .any(|waiting| waiting.reason == Reason::FencingRateLimited)
    );
    lab.run_until(90_000, "the second too", |lab| closed(lab) == 2);
}

#[test]
fn max_fencing_excludes_operator_requests() {
    let check = |requested: bool| {
        let mut lab = Lab::new(1, &["node1", "node2", "node3"]);
        lab.wait_until_nodes_online();
        for name in ["a", "b", "c"] {
            lab.start(name);
        }
        lab.edit::<ClusterSpec>("default", |cluster| {
            cluster.spec.fencing.max_fencing = CountOrPercent::Count(1);
            cluster.spec.fencing.window_seconds = 60;
        });
        for node in ["node1", "node2"] {
            lab.edit::<NodeSpec>(node, |node| node.spec.fencing.devices = vec![super::devices::pdu()]);
        }
        lab.fencer = Some(crate::core::FencerOutcome::Confirmed);
        lab.run(1_000);
        if requested {
            let spec = OperationSpec {
                action: OperationAction::Fence,
                node: Some("node1".into()),
                ..OperationSpec::default()
            };
            lab.create_operation("fence", spec);
        }
        lab.agent("node1").power_off();
        lab.run(500);
        lab.agent("node2").power_off();
        lab.run(20_000);
        let fenced = |lab: &Lab| {
            ["node1", "node2"].iter().filter(|node| lab.fence(node).state == FenceState::Fenced).count()
        };
        let is_device = matches!(lab.fence("node1").proof, Some(Proof::Device { .. }));
        assert!(is_device, "{}", lab.show());
        assert_eq!(fenced(&lab), if requested { 2 } else { 1 }, "{}", lab.show());
        lab.run_until(90_000, "both", |lab| fenced(lab) == 2);
    };
    check(false);
    check(true);
}

#[test]
fn an_unknown_declaration_counts_as_applied_and_absent() {
    let mut lab = Lab::new(1, &["node1", "node2", "node3"]);
    lab.wait_until_nodes_online();
    for name in ["a", "b", "c"] {
        lab.start(name);
    }
    lab.edit::<ClusterSpec>("default", |cluster| cluster.spec.fencing.max_fencing = CountOrPercent::Count(1));
    lab.run(2_000);
    lab.agent("node1").power_off();
    lab.agent("node2").power_off();
    lab.run(4_000);
    lab.lost_commits = vec![false];
    lab.run(4_000);
    let closed = ["node1", "node2"].iter().filter(|node| lab.fence(node).epoch == Epoch(2)).count();
    assert!(closed <= 1, "{}", lab.show());
}

#[test]
fn after_a_gap_of_commits_observation_restarts() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    // Neither the node nor the controller can commit for a while.
    lab.members[0].running = false;
    lab.agent(&node).isolated = true;
    lab.run(4_000);
    lab.members[0].running = true;
    lab.run(3_000);
    assert_eq!(lab.fence(&node).state, FenceState::Open, "o starts again at the end of the gap");
    lab.run_until(6_000, "declared dead later", |lab| lab.fence(&node).epoch == Epoch(2));
}

#[test]
fn a_node_whose_agent_restarts_is_never_fenced() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).armed = false;
    lab.agent(&node).leave(Mode::Restart);
    lab.run(2_000);
    lab.agent(&node).is_powered_on = false;
    lab.run(60_000);
    assert_eq!(lab.fence(&node).state, FenceState::Open);
    assert!(lab.is_in_state("web", ServiceState::Freeze), "{}", lab.show());
}

#[test]
fn a_deposed_leaders_late_write_is_refused() {
    let (mut lab, _) = running_on(&["node1", "node2"]);
    lab.add_controller("c1", "1");
    lab.run(1_000);
    lab.members[0].running = false;
    lab.run(8_000);
    assert!(lab.members[1].core.term().is_some());
    lab.members[0].running = true;
    lab.create_resource("late");
    lab.run(2_000);
    assert!(lab.members[0].core.term().is_none());
    let first = lab.members[1].core.term();
    for (term, transaction, outcome) in &lab.members[0].commits {
        let guarded = transaction.guards().contains_key(&lab.keys.leader());
        if *term != first && guarded && outcome.applied().is_some() {
            assert!(
                outcome.applied() < first.map(Term::revision),
                "applied after the next leader's term began"
            );
        }
    }
}

#[test]
fn a_new_leader_waits_in_full_and_fences_once() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.add_controller("c1", "1");
    lab.run(1_000);
    lab.agent(&node).power_off();
    lab.members[0].running = false;
    let fencing_delay_ms = lab.agent(&node).fencing_delay_ms();
    lab.run_until(fencing_delay_ms + 6_000, "recovered", |lab| lab.running_nodes("web").len() == 1);
    assert_eq!(lab.fence(&node).epoch, Epoch(2));
}

#[test]
fn a_leader_that_shuts_down_deletes_its_keys_immediately() {
    let (mut lab, _) = running_on(&["node1", "node2"]);
    lab.add_controller("c1", "1");
    lab.run(1_000);
    let now = lab.now.clone();
    lab.members[0].core.handle(&now, crate::core::Input::Shutdown);
    lab.run_until(1_000, "the other leads", |lab| lab.members[1].core.term().is_some());
    assert!(!lab.members[0].running);
    lab.run(2_000);
    assert_eq!(lab.running_nodes("web").len(), 1);
}

#[test]
fn timely_heartbeats_alone_cause_no_planning() {
    let (mut lab, _) = running_on(&["node1", "node2"]);
    lab.run(60_000);
    let planned_at = lab.members[0].core.planned_at;
    lab.run_until(31_000, "the next regular plan", |lab| lab.members[0].core.planned_at != planned_at);
    let planned_at = lab.members[0].core.planned_at;
    lab.run(4 * TH);
    assert_eq!(lab.members[0].core.planned_at, planned_at);
}

#[test]
fn services_leave_a_node_with_refusing_watchdog() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).watchdog_failed = true;
    lab.run_until(20_000, "moved", |lab| {
        lab.is_in_state("web", ServiceState::Started)
            && lab.running_nodes("web").iter().all(|place| *place != node)
    });
    assert!(lab.node_is(&node, NodeState::Online), "the node is not in maintenance");
    let condition = |lab: &Lab, kind: &str| {
        lab.node(&node).conditions.iter().find(|condition| condition.kind == kind).map(|found| found.reason)
    };
    assert_eq!(condition(&lab, "Fenceable"), Some(Reason::WatchdogFailed));
    assert!(lab.node(&node).watchdog.unwrap().failed);

    // If the service cannot leave the node, silence does not prove the loss of the node.
    let (mut lab, node) = running_on(&["node1"]);
    lab.agent(&node).watchdog_failed = true;
    lab.run(5_000);
    assert_eq!(lab.running_nodes("web"), [node.as_str()]);
    lab.agent(&node).power_off();
    lab.run(60_000);
    assert_eq!(lab.fence(&node).state, FenceState::Open);
    let ready = lab.node(&node).conditions.into_iter().find(|condition| condition.kind == "Ready");
    assert_eq!(ready.unwrap().reason, Reason::WatchdogFailed);
}

#[test]
fn the_silence_of_a_sleeping_machine_proves_nothing() {
    let check = |protection: Option<SleepProtection>, allowed: bool, fenced: bool| {
        let (mut lab, node) = running_on(&["node1", "node2"]);
        lab.agent(&node).sleep_protection = protection;
        lab.edit::<NodeSpec>(&node, |object| object.spec.fencing.trust_watchdog_on_virtual_machine = allowed);
        lab.run(3_000);
        assert_eq!(lab.running_nodes("web"), [node.as_str()], "the service stays on its node");
        lab.agent(&node).power_off();
        lab.run(30_000);
        assert_eq!(lab.fence(&node).state == FenceState::Fenced, fenced, "{protection:?} {allowed}");
    };
    check(None, false, true);
    check(Some(SleepProtection::NotNeeded), false, true);
    check(Some(SleepProtection::Masked), false, true);
    check(Some(SleepProtection::Inhibitor), false, true);
    check(Some(SleepProtection::None), false, false);
    check(Some(SleepProtection::None), true, true);
}

#[test]
fn another_boot_is_a_proof_only_on_the_same_hardware() {
    let boots = |before: Option<&str>, after: Option<&str>| {
        let mut lab = Lab::new(1, &["node1", "node2"]);
        for node in ["node1", "node2"] {
            lab.agent(node).product_id = before.map(|id| format!("{id}-{node}").into());
        }
        lab.wait_until_nodes_online();
        lab.start("web");
        let node = lab.status("web").node.unwrap();
        lab.agent(&node).power_off();
        lab.run(1_000);
        lab.agent(&node).product_id = after.map(|id| format!("{id}-{node}").into());
        lab.agent(&node).boot_again();
        lab.run(TH + 3_000);
        (lab, node)
    };
    let check = |before: Option<&str>, after: Option<&str>| {
        let (lab, node) = boots(before, after);
        let fence = lab.fence(&node);
        assert_eq!((fence.state, fence.epoch), (FenceState::Open, Epoch(2)), "{before:?} {after:?}");
    };
    check(None, None);
    check(Some("p"), Some("p"));
    // If only one of the two product ids can be read, the machines may differ: the epoch is closed, and no boot is a
    // proof.
    let (lab, node) = boots(Some("p"), None);
    assert_eq!(lab.fence(&node).state, FenceState::Fencing);
    // Another machine runs from a copy of the disk.
    let (lab, node) = boots(Some("p"), Some("q"));
    assert_ne!(lab.fence(&node).epoch, Epoch(3));
    assert!(
        lab.members[0].core.wait_conditions().iter().any(|waiting| waiting.reason == Reason::DuplicateNode)
    );
    assert!(lab.running_nodes("web").is_empty());
}

#[test]
fn deleted_node_registers_only_after_it_is_created_again() {
    // The same machine, and another machine under the name.
    for is_replaced in [false, true] {
        let (mut lab, node) = running_on(&["node1", "node2"]);
        lab.agent(&node).power_off();
        lab.run_until(40_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
        lab.run_until(5_000, "recovered", |lab| lab.is_in_state("web", ServiceState::Started));
        let key = lab.keys.spec(Kind::Node, &node);
        let guard = ha_store::Guard::Unchanged(lab.state.get(&key).entries[0].mod_revision);
        lab.state.commit(&ha_store::Transaction::new().delete(key.clone(), guard));
        lab.run_until(5_000, "gone", |lab| lab.node_is(&node, NodeState::Gone));
        // The leader removes the status after an hour.
        let status_key = lab.keys.status(Kind::Node, &node);
        let guard = ha_store::Guard::Unchanged(lab.state.get(&status_key).entries[0].mod_revision);
        lab.state.commit(&ha_store::Transaction::new().delete(status_key, guard));
        lab.run(5_000);
        if is_replaced {
            lab.agent(&node).machine_id = "another".into();
        }
        lab.agent(&node).boot_again();
        lab.run(30_000);
        let ready = |lab: &Lab| {
            let conditions = lab.node(&node).conditions.into_iter();
            conditions.filter(|condition| condition.kind == "Ready").map(|ready| ready.reason).next_back()
        };
        assert_eq!(lab.read::<Node>(&key), None, "a deleted node does not reappear");
        assert_eq!((lab.fence(&node).state, ready(&lab)), (FenceState::Fenced, Some(Reason::NotFound)));
        let about = |lab: &Lab, reason: Reason| {
            let events = lab.events.iter();
            events.filter(|event| event.reason == reason && node == event.name.as_str()).count()
        };
        assert_eq!(about(&lab, Reason::NotFound), 1, "once per transition");

        lab.apply(Node::new(&node, NodeSpec::default()));
        if is_replaced {
            lab.run_until(5_000, "refused", |lab| ready(lab) == Some(Reason::DuplicateNode));
            lab.run(5_000);
            assert_eq!(about(&lab, Reason::DuplicateNode), 1, "once per transition");
            let (fence, status) = (lab.fence(&node), lab.node(&node));
            assert_eq!((fence.state, status.state), (FenceState::Fenced, NodeState::Unknown));
            assert_eq!(status.machine_id, fence.machine_id, "the machine that the operator confirms off");
            lab.operate_node(OperationAction::ConfirmFenced, &node);
        }
        lab.run_until(10_000, "admitted", |lab| lab.node_is(&node, NodeState::Online));
    }
}

#[test]
fn older_fence_record_gains_machine_ids() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    assert_eq!(lab.fence(&node).product_id, None);
    lab.agent(&node).product_id = Some("p".into());
    lab.run_until(5_000, "learned", |lab| lab.fence(&node).product_id.as_deref() == Some("p"));
    assert_eq!(lab.fence(&node).epoch, Epoch(1));
    assert_eq!(lab.running_nodes("web"), [node.as_str()]);
    lab.agent(&node).power_off();
    lab.run(1_000);
    lab.agent(&node).boot_again();
    lab.run_until(TH + 1_500, "admitted", |lab| lab.fence(&node).epoch == Epoch(2));
}

#[test]
fn machine_with_two_node_names_is_refused() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    let ids = |agent: &mut super::agent::Agent, product: &str| {
        agent.machine_id = "machine".into();
        agent.product_id = Some(product.into());
    };
    ids(lab.agent("node1"), "p");
    lab.agent("node2").power_off();
    lab.run_until(20_000, "the first is online", |lab| lab.node_is("node1", NodeState::Online));
    ids(lab.agent("node2"), "p");
    lab.agent("node2").boot_again();
    lab.run(10_000);
    assert_ne!(lab.fence("node2").state, FenceState::Open);
    assert!(
        lab.members[0].core.wait_conditions().iter().any(|waiting| waiting.reason == Reason::DuplicateNode)
    );
    lab.agent("node1").power_off();
    lab.run_until(30_000, "admitted", |lab| lab.fence("node2").state == FenceState::Open);
    // The product ids of two machines with the same disk image differ.
    let mut lab = Lab::new(1, &["node1", "node2"]);
    ids(lab.agent("node1"), "p");
    ids(lab.agent("node2"), "q");
    lab.wait_until_nodes_online();
    assert!(lab.node_is("node1", NodeState::Online) && lab.node_is("node2", NodeState::Online));
}
