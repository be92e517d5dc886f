//! Tests of the rules of FENCING, sections 2, 3, 5 and 10, by name.

use super::test_cluster::TestCluster;
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

pub(super) fn cluster_with_running_service(nodes: &[&str]) -> (TestCluster, NodeName) {
    let mut cluster = TestCluster::new(1, nodes);
    cluster.wait_until_nodes_online();
    cluster.start("web");
    let node = cluster.status("web").node.unwrap();
    (cluster, node)
}

#[test]
fn a_node_registers_and_its_object_is_created_with_its_first_epoch() {
    let mut cluster = TestCluster::new(1, &["node1"]);
    cluster.wait_until_nodes_online();
    let fence = cluster.fence("node1");
    assert_eq!((fence.epoch, fence.state), (Epoch(1), FenceState::Open));
    assert_eq!(fence.boot_id, "node1-boot1");
    let key = cluster.keys.spec(Kind::Node, "node1");
    let object = cluster.state.get(&key).entries[0].clone();
    let opened_at = cluster.state.get(&cluster.keys.fence(&"node1".into())).entries[0].mod_revision;
    assert_eq!(object.create_revision, opened_at, "one transaction");
}

#[test]
fn proof_a_silent_armed_node_fenced_after_w() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let failed_at = cluster.now.monotonic_raw;
    cluster.agent(&node).power_off();
    let fencing_delay_ms = cluster.agent(&node).fencing_delay_ms();
    cluster
        .run_until(TH + 2_000, "declared dead", |cluster| cluster.fence(&node).state == FenceState::Fencing);
    assert!(cluster.now.monotonic_raw.since(failed_at) >= TH - 1_000);
    cluster.run_until(2_000, "in Fence", |cluster| {
        cluster.is_in_state("web", ServiceState::Fence) && cluster.node_is(&node, NodeState::Fence)
    });
    cluster.run_until(fencing_delay_ms, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    assert!(
        matches!(cluster.fence(&node).proof, Some(Proof::Silence { waited_ms }) if waited_ms >= fencing_delay_ms)
    );
    assert!(
        cluster.now.monotonic_raw.since(failed_at) <= fencing_delay_ms + 300,
        "W after the last heartbeat, and not later"
    );
    cluster.run_until(1_000, "runs elsewhere", |cluster| {
        cluster.running_nodes("web").iter().any(|place| *place != node)
    });
    assert_eq!(cluster.fence(&node).epoch, Epoch(2));
}

/// An agent that has not read a shorter Th acts by the longer Th, so the node counts as alive for the longer time
/// (R5.5).
#[test]
fn a_node_is_late_by_the_timings_of_its_own_report() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).power_off();
    cluster.edit::<ClusterSpec>(CLUSTER_NAME, |settings| settings.spec.timing.profile = Profile::Fast);
    // Th of the cluster is 4 s now.
    cluster.run(TH - 1_300);
    assert_eq!(cluster.fence(&node).state, FenceState::Open);
    cluster.run_until(3_000, "declared dead", |cluster| cluster.fence(&node).state == FenceState::Fencing);
}

#[test]
fn isolated_node_stops_service_before_failover() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).isolated = true;
    cluster.run_until(20_000, "runs elsewhere", |cluster| {
        cluster.running_nodes("web").iter().any(|place| *place != node)
    });
    cluster.agent(&node).isolated = false;
    cluster.run_until(5_000, "registers again", |cluster| cluster.node_is(&node, NodeState::Online));
    assert_eq!(cluster.fence(&node).epoch, Epoch(2));
    cluster.run(3_000);
    assert_eq!(cluster.running_nodes("web").len(), 1);
}

#[test]
fn proof_g_idle_silent_node_closed_without_fencing() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let idle = if node == "node1" { "node2" } else { "node1" };
    cluster.agent(idle).power_off();
    cluster.run_until(TH + 3_000, "closed", |cluster| cluster.fence(idle).state == FenceState::Closed);
    assert_eq!(cluster.fence(idle).proof, Some(Proof::NothingActive));
    cluster.run_until(1_000, "shown Unknown", |cluster| cluster.node_is(idle, NodeState::Unknown));
}

#[test]
fn without_a_possible_proof_a_silent_node_is_unknown_with_a_reason() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).is_virtual = true;
    cluster.run(2_000);
    cluster.agent(&node).power_off();
    cluster.run(60_000);
    assert_eq!(cluster.fence(&node).state, FenceState::Open);
    let status = cluster.node(&node);
    assert_eq!(status.state, NodeState::Unknown);
    assert_eq!(
        status.conditions.iter().find(|c| c.kind == "Ready").unwrap().reason,
        Reason::FencingUnavailable
    );
    cluster.edit::<NodeSpec>(&node, |node| node.spec.fencing.trust_watchdog_on_virtual_machine = true);
    cluster.run_until(20_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    // R5.31: the proof is still the wait of W.
    let fencing_delay_ms = cluster.agent(&node).fencing_delay_ms();
    let proof = cluster.fence(&node).proof;
    assert!(
        matches!(proof, Some(Proof::Silence { waited_ms }) if waited_ms >= fencing_delay_ms),
        "{proof:?}"
    );
}

/// R5.3: a heartbeat key that is deleted, such as by the expiry of its etcd lease, does not show a failure.
#[test]
fn a_deleted_heartbeat_counts_only_as_silence() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.run(2_000);
    cluster.agent(&node).isolated = true;
    cluster.run(1_000);
    let key = cluster.keys.alive(&node);
    let guard = ha_store::Guard::Unchanged(cluster.state.get(&key).entries[0].mod_revision);
    let deleted_at = cluster.now.monotonic_raw;
    cluster.state.commit(&ha_store::Transaction::new().delete(key, guard));
    cluster.run(TH - 2_500);
    assert_eq!(cluster.fence(&node).state, FenceState::Open, "not closed before Th");
    cluster.run_until(TH, "declared dead", |cluster| cluster.fence(&node).state == FenceState::Fencing);
    assert!(cluster.now.monotonic_raw.since(deleted_at) >= TH - 2_500);
}

/// R5.15 and R6.15: a later leader releases the assignment of an older epoch after the node is open again.
#[test]
fn a_later_leader_releases_an_older_epoch_of_an_open_node() {
    let (mut cluster, node) = cluster_with_running_service(&["node1"]);
    cluster.agent(&node).power_off();
    cluster.run_until(40_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    let assignment = cluster.assignment("web").unwrap();
    assert_eq!(assignment.epoch, Epoch(1));
    // The next leader sees the open epoch first.
    let fence = Fence {
        state: FenceState::Open,
        request: None,
        proof: None,
        boot_id: "node1-boot2".into(),
        ..cluster.fence(&node)
    };
    cluster.controllers[0].is_running = false;
    cluster.put(&cluster.keys.fence(&node), &fence);
    cluster.add_controller("c9", "1");
    cluster.agent(&node).boot_again();
    cluster.run_until(60_000, "runs again", |cluster| cluster.running_nodes("web") == ["node1"]);
    let fresh = cluster.assignment("web").unwrap();
    assert!(fresh.epoch > Epoch(1) && fresh.action_uid != assignment.action_uid, "{}", cluster.show());
}

#[test]
fn a_simulated_watchdog_counts_only_when_allowed() {
    let mut cluster = TestCluster::new(1, &["node1"]);
    cluster.agent("node1").kind = WatchdogKind::Simulated;
    cluster.wait_until_nodes_online();
    cluster.create_resource("web");
    cluster.run(3_000);
    let fenceable = |cluster: &TestCluster| {
        cluster.node("node1").conditions.into_iter().find(|condition| condition.kind == "Fenceable").unwrap()
    };
    assert!(cluster.is_in_state("web", ServiceState::RequestStart), "{}", cluster.show());
    let simulated = fenceable(&cluster);
    assert_eq!((simulated.status, simulated.reason), (ConditionStatus::False, Reason::WatchdogSimulated));
    assert_eq!(simulated.message, Reason::WatchdogSimulated.sentence());
    cluster.edit::<ClusterSpec>("default", |settings| settings.spec.fencing.allow_simulated_watchdog = true);
    cluster.run_until(3_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    let allowed = fenceable(&cluster);
    assert_eq!((allowed.status, allowed.reason), (ConditionStatus::True, Reason::WatchdogSimulated));
    assert!(allowed.message.contains("is allowed"), "{}", allowed.message);
}

#[test]
fn missing_watchdog_daemon_moves_services_elsewhere() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).faults.daemon_gone = true;
    cluster.run(1_000);
    assert_eq!(cluster.running_nodes("web"), [node.as_str()], "the running copy is not stopped");
    cluster.agent(&node).running.remove("web");
    cluster.run_until(3_000, "started", |cluster| {
        cluster.is_in_state("web", ServiceState::Started) && cluster.running_nodes("web").len() == 1
    });
    assert_ne!(cluster.running_nodes("web"), [node.as_str()], "{}", cluster.show());
    assert_eq!(cluster.status("web").relocations, 0, "that is nothing that the service did wrong");
}

#[test]
fn silence_proves_death_despite_missing_watchdog_daemon() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).faults.daemon_gone = true;
    cluster.run(1_000);
    cluster.agent(&node).power_off();
    cluster.run_until(30_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    cluster.run_until(3_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
}

#[test]
fn proof_c_another_boot_releases_without_waiting() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).power_off();
    cluster.run(1_000);
    cluster.agent(&node).boot_again();
    cluster.run_until(TH + 1_500, "admitted", |cluster| {
        cluster.fence(&node).state == FenceState::Open && cluster.fence(&node).epoch == Epoch(2)
    });
    cluster.run_until(2_000, "runs", |cluster| cluster.running_nodes("web").len() == 1);
    assert!(cluster.events.iter().any(|event| event.message.contains("machine was rebooted")));
}

#[test]
fn another_machine_under_the_same_name_needs_confirmation() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).power_off();
    cluster.run(20_000);
    cluster.agent(&node).machine_id = "another".into();
    cluster.agent(&node).boot_again();
    cluster.run(10_000);
    let fence = cluster.fence(&node);
    assert_ne!(fence.state, FenceState::Open);
    assert!(
        cluster.controllers[0]
            .core
            .wait_conditions()
            .iter()
            .any(|waiting| waiting.reason == Reason::DuplicateNode)
    );
    cluster.operate_node(OperationAction::ConfirmFenced, &node);
    cluster.run_until(10_000, "admitted", |cluster| cluster.fence(&node).state == FenceState::Open);
    assert_eq!(cluster.fence(&node).machine_id, "another");
}

#[test]
fn proof_d_clean_leave_recovers_services_immediately() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    // The agent stops all services, then commits Left and deletes its heartbeat.
    cluster.agent(&node).faults.ignores_assignments = true;
    cluster.agent(&node).running.clear();
    let key = cluster.keys.service_report(&node, &"web".into());
    let mut report: ha_api_types::record::ServiceReport = cluster.read(&key).unwrap();
    report.phase = ha_api_types::record::Phase::Stopped;
    put(&mut cluster, &key, &report);
    cluster.agent(&node).is_powered_on = false;
    let key = cluster.keys.node_report(&node);
    let mut report: ha_api_types::record::NodeReport = cluster.read(&key).unwrap();
    report.mode = Mode::Left(ha_api_types::record::ShutdownKind::Poweroff);
    report.armed = false;
    put(&mut cluster, &key, &report);
    let alive = cluster.keys.alive(&node);
    let entry = cluster.state.get(&alive).entries[0].clone();
    cluster
        .state
        .commit(&ha_store::Transaction::new().delete(alive, ha_store::Guard::Unchanged(entry.mod_revision)));
    cluster.run_until(3_000, "recovered", |cluster| cluster.running_nodes("web").len() == 1);
    assert!(cluster.node_is(&node, NodeState::Offline));
    assert!(matches!(cluster.fence(&node).proof, Some(Proof::CleanLeave { .. })));
}

pub(super) fn put<T: serde::Serialize>(cluster: &mut TestCluster, key: &str, value: &T) {
    let entry = cluster.state.get(key).entries[0].clone();
    let transaction = ha_store::Transaction::new().put(
        key.to_owned(),
        ha_store::Guard::Unchanged(entry.mod_revision),
        serde_json::to_vec(value).unwrap(),
    );
    assert!(cluster.state.commit(&transaction).applied().is_some());
}

#[test]
fn proof_e_operator_confirms_one_silent_boot() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let spec = |cluster: &TestCluster, epoch: Epoch| OperationSpec {
        action: OperationAction::ConfirmFenced,
        node: Some(node.clone()),
        epoch: Some(epoch),
        boot_id: Some(cluster.fence(&node).boot_id),
        ..OperationSpec::default()
    };
    let current_spec = spec(&cluster, Epoch(1));
    let outdated_specs = [
        OperationSpec { epoch: Some(Epoch(7)), ..current_spec.clone() },
        OperationSpec { epoch: Some(Epoch(0)), ..current_spec.clone() },
        OperationSpec { epoch: None, ..current_spec.clone() },
        OperationSpec { boot_id: Some("another".into()), ..current_spec.clone() },
        OperationSpec { boot_id: None, ..current_spec },
    ];
    for (number, other) in outdated_specs.iter().enumerate() {
        cluster.create_operation(&format!("outdated-{number}"), other.clone());
    }
    let alive = spec(&cluster, Epoch(1));
    cluster.create_operation("alive", alive);
    cluster.run(3_000);
    for (number, other) in outdated_specs.iter().enumerate() {
        let operation = cluster.operation(&format!("outdated-{number}"));
        assert_eq!(
            (operation.phase, operation.reason),
            (OperationPhase::Refused, Reason::Outdated),
            "{other:?}"
        );
    }
    assert_eq!(cluster.operation("alive").reason, Reason::NodeAlive);
    cluster.agent(&node).is_virtual = true;
    cluster.run(2_000);
    cluster.agent(&node).power_off();
    cluster.run(8_000);
    let confirmed = spec(&cluster, Epoch(1));
    cluster.create_operation("confirmed", confirmed);
    cluster.run_until(3_000, "recovered", |cluster| {
        cluster.running_nodes("web").iter().any(|place| *place != node)
    });
    assert_eq!(cluster.operation("confirmed").phase, OperationPhase::Succeeded);
    assert!(matches!(cluster.fence(&node).proof, Some(Proof::Operator { .. })));
}

#[test]
fn unstopped_service_of_registering_node_becomes_error() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).faults.fails_stop.insert("web".into());
    cluster.agent(&node).isolated = true;
    // The node is not armed, so no watchdog ends services that it cannot stop. Only its own registration is a proof.
    cluster.agent(&node).armed = false;
    cluster.run(8_000);
    cluster.agent(&node).isolated = false;
    cluster.run_until(10_000, "admitted", |cluster| {
        cluster.fence(&node).state == FenceState::Open && cluster.fence(&node).epoch == Epoch(2)
    });
    let status = cluster.status("web");
    assert_eq!(status.state, ServiceState::Error, "{}", cluster.show());
    assert_eq!((status.stop_confirmed, status.node.as_deref()), (Some(false), Some(node.as_str())));
    cluster.run(5_000);
    assert_eq!(cluster.running_nodes("web"), [node]);
}

/// R10.6: no node is declared dead, even while a node has not acknowledged the disarming and is still armed.
#[test]
fn nobody_is_declared_dead_while_disarmed() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.edit::<ClusterSpec>(CLUSTER_NAME, |settings| settings.spec.disarmed = Some(Disarmed::Freeze));
    cluster.run(1_000);
    cluster.agent(&node).isolated = true;
    cluster.run(40_000);
    assert_eq!(
        (cluster.fence(&node).state, cluster.fence(&node).epoch),
        (FenceState::Open, Epoch(1)),
        "{}",
        cluster.show()
    );
    cluster.edit::<ClusterSpec>(CLUSTER_NAME, |settings| settings.spec.disarmed = None);
    cluster.run_until(30_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
}

/// R3.15: after the epoch has opened, the agent overwrites the names in its report. The epoch therefore opens only
/// after the Error is stored, even if the first write of the Error is lost.
#[test]
fn a_node_is_admitted_only_after_the_error_is_stored() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).faults.fails_stop.insert("web".into());
    let status = cluster.keys.status(Kind::Resource, "web");
    cluster.lost_commits_by_key.extend([status.clone(), status]);
    cluster.agent(&node).lose_journal();
    cluster.run_until(10_000, "admitted", |cluster| {
        cluster.fence(&node).state == FenceState::Open && cluster.fence(&node).epoch == Epoch(2)
    });
    assert_eq!(cluster.status("web").state, ServiceState::Error, "{}", cluster.show());
}

#[test]
fn max_fencing_delays_fencing_within_the_window() {
    let mut cluster = TestCluster::new(1, &["node1", "node2", "node3", "node4", "node5"]);
    cluster.wait_until_nodes_online();
    for name in ["a", "b", "c", "d", "e"] {
        cluster.start(name);
    }
    cluster.edit::<ClusterSpec>("default", |settings| {
        settings.spec.fencing.max_fencing = CountOrPercent::Count(1);
        settings.spec.fencing.window_seconds = 60;
    });
    cluster.run(1_000);
    cluster.agent("node1").power_off();
    cluster.agent("node2").power_off();
    cluster.run(20_000);
    let closed = |cluster: &TestCluster| {
        ["node1", "node2"].iter().filter(|node| cluster.fence(node).epoch == Epoch(2)).count()
    };
    assert_eq!(closed(&cluster), 1);
    assert!(
        cluster.controllers[0]
            .core
            .wait_conditions()
            .iter()
            .any(|waiting| waiting.reason == Reason::FencingRateLimited)
    );
    cluster.run_until(90_000, "the second too", |cluster| closed(cluster) == 2);
}

#[test]
fn max_fencing_excludes_operator_requests() {
    let check = |requested: bool| {
        let mut cluster = TestCluster::new(1, &["node1", "node2", "node3"]);
        cluster.wait_until_nodes_online();
        for name in ["a", "b", "c"] {
            cluster.start(name);
        }
        cluster.edit::<ClusterSpec>("default", |settings| {
            settings.spec.fencing.max_fencing = CountOrPercent::Count(1);
            settings.spec.fencing.window_seconds = 60;
        });
        for node in ["node1", "node2"] {
            cluster.edit::<NodeSpec>(node, |node| node.spec.fencing.devices = vec![super::devices::pdu()]);
        }
        cluster.fencer_outcome = Some(crate::core::FencerOutcome::Confirmed);
        cluster.run(1_000);
        if requested {
            let spec = OperationSpec {
                action: OperationAction::Fence,
                node: Some("node1".into()),
                ..OperationSpec::default()
            };
            cluster.create_operation("fence", spec);
        }
        cluster.agent("node1").power_off();
        cluster.run(500);
        cluster.agent("node2").power_off();
        cluster.run(20_000);
        let fenced = |cluster: &TestCluster| {
            ["node1", "node2"].iter().filter(|node| cluster.fence(node).state == FenceState::Fenced).count()
        };
        let is_device = matches!(cluster.fence("node1").proof, Some(Proof::Device { .. }));
        assert!(is_device, "{}", cluster.show());
        assert_eq!(fenced(&cluster), if requested { 2 } else { 1 }, "{}", cluster.show());
        cluster.run_until(90_000, "both", |cluster| fenced(cluster) == 2);
    };
    check(false);
    check(true);
}

#[test]
fn an_unknown_declaration_counts_as_applied_and_absent() {
    let mut cluster = TestCluster::new(1, &["node1", "node2", "node3"]);
    cluster.wait_until_nodes_online();
    for name in ["a", "b", "c"] {
        cluster.start(name);
    }
    cluster.edit::<ClusterSpec>("default", |settings| {
        settings.spec.fencing.max_fencing = CountOrPercent::Count(1);
    });
    cluster.run(2_000);
    cluster.agent("node1").power_off();
    cluster.agent("node2").power_off();
    cluster.run(4_000);
    cluster.lost_commits = vec![false];
    cluster.run(4_000);
    let closed = ["node1", "node2"].iter().filter(|node| cluster.fence(node).epoch == Epoch(2)).count();
    assert!(closed <= 1, "{}", cluster.show());
}

#[test]
fn after_a_gap_of_commits_observation_restarts() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    // Neither the node nor the controller can commit for a while.
    cluster.controllers[0].is_running = false;
    cluster.agent(&node).isolated = true;
    cluster.run(4_000);
    cluster.controllers[0].is_running = true;
    cluster.run(3_000);
    assert_eq!(cluster.fence(&node).state, FenceState::Open, "o starts again at the end of the gap");
    cluster.run_until(6_000, "declared dead later", |cluster| cluster.fence(&node).epoch == Epoch(2));
}

#[test]
fn a_node_whose_agent_restarts_is_never_fenced() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).armed = false;
    cluster.agent(&node).set_mode(Mode::Restart);
    cluster.run(2_000);
    cluster.agent(&node).is_powered_on = false;
    cluster.run(60_000);
    assert_eq!(cluster.fence(&node).state, FenceState::Open);
    assert!(cluster.is_in_state("web", ServiceState::Freeze), "{}", cluster.show());
}

#[test]
fn a_deposed_leaders_late_write_is_refused() {
    let (mut cluster, _) = cluster_with_running_service(&["node1", "node2"]);
    cluster.add_controller("c1", "1");
    cluster.run(1_000);
    cluster.controllers[0].is_running = false;
    cluster.run(8_000);
    assert!(cluster.controllers[1].core.term().is_some());
    cluster.controllers[0].is_running = true;
    cluster.create_resource("late");
    cluster.run(2_000);
    assert!(cluster.controllers[0].core.term().is_none());
    let first = cluster.controllers[1].core.term();
    for (term, transaction, outcome) in &cluster.controllers[0].commits {
        let guarded = transaction.guards().contains_key(&cluster.keys.leader());
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
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.add_controller("c1", "1");
    cluster.run(1_000);
    cluster.agent(&node).power_off();
    cluster.controllers[0].is_running = false;
    let fencing_delay_ms = cluster.agent(&node).fencing_delay_ms();
    cluster
        .run_until(fencing_delay_ms + 6_000, "recovered", |cluster| cluster.running_nodes("web").len() == 1);
    assert_eq!(cluster.fence(&node).epoch, Epoch(2));
}

#[test]
fn a_leader_that_shuts_down_deletes_its_keys_immediately() {
    let (mut cluster, _) = cluster_with_running_service(&["node1", "node2"]);
    cluster.add_controller("c1", "1");
    cluster.run(1_000);
    let now = cluster.now.clone();
    cluster.controllers[0].core.handle(&now, crate::core::Input::Shutdown);
    cluster.run_until(1_000, "the other leads", |cluster| cluster.controllers[1].core.term().is_some());
    assert!(!cluster.controllers[0].is_running);
    cluster.run(2_000);
    assert_eq!(cluster.running_nodes("web").len(), 1);
}

#[test]
fn timely_heartbeats_alone_cause_no_planning() {
    let (mut cluster, _) = cluster_with_running_service(&["node1", "node2"]);
    cluster.run(60_000);
    let planned_at = cluster.controllers[0].core.planned_at;
    cluster.run_until(31_000, "the next regular plan", |cluster| {
        cluster.controllers[0].core.planned_at != planned_at
    });
    let planned_at = cluster.controllers[0].core.planned_at;
    cluster.run(4 * TH);
    assert_eq!(cluster.controllers[0].core.planned_at, planned_at);
}

#[test]
fn services_leave_a_node_with_refusing_watchdog() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).watchdog_failed = true;
    cluster.run_until(20_000, "moved", |cluster| {
        cluster.is_in_state("web", ServiceState::Started)
            && cluster.running_nodes("web").iter().all(|place| *place != node)
    });
    assert!(cluster.node_is(&node, NodeState::Online), "the node is not in maintenance");
    let condition = |cluster: &TestCluster, kind: &str| {
        cluster
            .node(&node)
            .conditions
            .iter()
            .find(|condition| condition.kind == kind)
            .map(|condition| condition.reason)
    };
    assert_eq!(condition(&cluster, "Fenceable"), Some(Reason::WatchdogFailed));
    assert!(cluster.node(&node).watchdog.unwrap().failed);

    // If the service cannot leave the node, silence does not prove the loss of the node.
    let (mut cluster, node) = cluster_with_running_service(&["node1"]);
    cluster.agent(&node).watchdog_failed = true;
    cluster.run(5_000);
    assert_eq!(cluster.running_nodes("web"), [node.as_str()]);
    cluster.agent(&node).power_off();
    cluster.run(60_000);
    assert_eq!(cluster.fence(&node).state, FenceState::Open);
    let ready = cluster.node(&node).conditions.into_iter().find(|condition| condition.kind == "Ready");
    assert_eq!(ready.unwrap().reason, Reason::WatchdogFailed);
}

#[test]
fn the_silence_of_a_sleeping_machine_proves_nothing() {
    let check = |protection: Option<SleepProtection>, allowed: bool, fenced: bool| {
        let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
        cluster.agent(&node).sleep_protection = protection;
        cluster.edit::<NodeSpec>(&node, |object| {
            object.spec.fencing.trust_watchdog_on_virtual_machine = allowed;
        });
        cluster.run(3_000);
        assert_eq!(cluster.running_nodes("web"), [node.as_str()], "the service stays on its node");
        cluster.agent(&node).power_off();
        cluster.run(30_000);
        assert_eq!(cluster.fence(&node).state == FenceState::Fenced, fenced, "{protection:?} {allowed}");
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
        let mut cluster = TestCluster::new(1, &["node1", "node2"]);
        for node in ["node1", "node2"] {
            cluster.agent(node).product_id = before.map(|id| format!("{id}-{node}").into());
        }
        cluster.wait_until_nodes_online();
        cluster.start("web");
        let node = cluster.status("web").node.unwrap();
        cluster.agent(&node).power_off();
        cluster.run(1_000);
        cluster.agent(&node).product_id = after.map(|id| format!("{id}-{node}").into());
        cluster.agent(&node).boot_again();
        cluster.run(TH + 3_000);
        (cluster, node)
    };
    let check = |before: Option<&str>, after: Option<&str>| {
        let (cluster, node) = boots(before, after);
        let fence = cluster.fence(&node);
        assert_eq!((fence.state, fence.epoch), (FenceState::Open, Epoch(2)), "{before:?} {after:?}");
    };
    check(None, None);
    check(Some("p"), Some("p"));
    // If only one of the two product ids can be read, the machines may differ: the epoch is closed, and no boot is a
    // proof.
    let (cluster, node) = boots(Some("p"), None);
    assert_eq!(cluster.fence(&node).state, FenceState::Fencing);
    // Another machine runs from a copy of the disk.
    let (cluster, node) = boots(Some("p"), Some("q"));
    assert_ne!(cluster.fence(&node).epoch, Epoch(3));
    assert!(
        cluster.controllers[0]
            .core
            .wait_conditions()
            .iter()
            .any(|waiting| waiting.reason == Reason::DuplicateNode)
    );
    assert!(cluster.running_nodes("web").is_empty());
}

#[test]
fn deleted_node_registers_only_after_it_is_created_again() {
    // The same machine, and another machine under the name.
    for is_replaced in [false, true] {
        let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
        cluster.agent(&node).power_off();
        cluster.run_until(40_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
        cluster.run_until(5_000, "recovered", |cluster| cluster.is_in_state("web", ServiceState::Started));
        let key = cluster.keys.spec(Kind::Node, &node);
        let guard = ha_store::Guard::Unchanged(cluster.state.get(&key).entries[0].mod_revision);
        cluster.state.commit(&ha_store::Transaction::new().delete(key.clone(), guard));
        cluster.run_until(5_000, "gone", |cluster| cluster.node_is(&node, NodeState::Gone));
        // The leader removes the status after an hour.
        let status_key = cluster.keys.status(Kind::Node, &node);
        let guard = ha_store::Guard::Unchanged(cluster.state.get(&status_key).entries[0].mod_revision);
        cluster.state.commit(&ha_store::Transaction::new().delete(status_key, guard));
        cluster.run(5_000);
        if is_replaced {
            cluster.agent(&node).machine_id = "another".into();
        }
        cluster.agent(&node).boot_again();
        cluster.run(30_000);
        let ready = |cluster: &TestCluster| {
            let conditions = cluster.node(&node).conditions.into_iter();
            conditions.filter(|condition| condition.kind == "Ready").map(|ready| ready.reason).next_back()
        };
        assert_eq!(cluster.read::<Node>(&key), None, "a deleted node does not reappear");
        assert_eq!(
            (cluster.fence(&node).state, ready(&cluster)),
            (FenceState::Fenced, Some(Reason::NotFound))
        );
        let about = |cluster: &TestCluster, reason: Reason| {
            let events = cluster.events.iter();
            events.filter(|event| event.reason == reason && node == event.name.as_str()).count()
        };
        assert_eq!(about(&cluster, Reason::NotFound), 1, "once per transition");

        cluster.apply(Node::new(&node, NodeSpec::default()));
        if is_replaced {
            cluster.run_until(5_000, "refused", |cluster| ready(cluster) == Some(Reason::DuplicateNode));
            cluster.run(5_000);
            assert_eq!(about(&cluster, Reason::DuplicateNode), 1, "once per transition");
            let (fence, status) = (cluster.fence(&node), cluster.node(&node));
            assert_eq!((fence.state, status.state), (FenceState::Fenced, NodeState::Unknown));
            assert_eq!(status.machine_id, fence.machine_id, "the machine that the operator confirms off");
            cluster.operate_node(OperationAction::ConfirmFenced, &node);
        }
        cluster.run_until(10_000, "admitted", |cluster| cluster.node_is(&node, NodeState::Online));
    }
}

#[test]
fn older_fence_record_gains_machine_ids() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    assert_eq!(cluster.fence(&node).product_id, None);
    cluster.agent(&node).product_id = Some("p".into());
    cluster.run_until(5_000, "learned", |cluster| cluster.fence(&node).product_id.as_deref() == Some("p"));
    assert_eq!(cluster.fence(&node).epoch, Epoch(1));
    assert_eq!(cluster.running_nodes("web"), [node.as_str()]);
    cluster.agent(&node).power_off();
    cluster.run(1_000);
    cluster.agent(&node).boot_again();
    cluster.run_until(TH + 1_500, "admitted", |cluster| cluster.fence(&node).epoch == Epoch(2));
}

#[test]
fn machine_with_two_node_names_is_refused() {
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    let ids = |agent: &mut super::agent::Agent, product: &str| {
        agent.machine_id = "machine".into();
        agent.product_id = Some(product.into());
    };
    ids(cluster.agent("node1"), "p");
    cluster.agent("node2").power_off();
    cluster.run_until(20_000, "the first is online", |cluster| cluster.node_is("node1", NodeState::Online));
    ids(cluster.agent("node2"), "p");
    cluster.agent("node2").boot_again();
    cluster.run(10_000);
    assert_ne!(cluster.fence("node2").state, FenceState::Open);
    assert!(
        cluster.controllers[0]
            .core
            .wait_conditions()
            .iter()
            .any(|waiting| waiting.reason == Reason::DuplicateNode)
    );
    cluster.agent("node1").power_off();
    cluster.run_until(30_000, "admitted", |cluster| cluster.fence("node2").state == FenceState::Open);
    // The product ids of two machines with the same disk image differ.
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    ids(cluster.agent("node1"), "p");
    ids(cluster.agent("node2"), "q");
    cluster.wait_until_nodes_online();
    assert!(cluster.node_is("node1", NodeState::Online) && cluster.node_is("node2", NodeState::Online));
}
