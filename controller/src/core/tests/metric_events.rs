//! Tests of counted events and of the leader's metrics about objects.

use super::fencing::{TH, cluster_with_running_service};
use super::services::operation;
use super::test_cluster::TestCluster;
use crate::core::metric_event::{FailoverPhase, MetricEvent};
use crate::core::samples::{MetricsInput, Relocations, samples};
use crate::core::{FencerAction, FencerOutcome};
use ha_api_types::metric::{Sample, leader};
use ha_api_types::node::{FenceDevice, FencePart, NodeSpec};
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::reason::Reason;
use ha_api_types::record::FenceState;
use ha_api_types::resource::ServiceState;
use ha_api_types::time::Millis;

fn phase_durations(cluster: &TestCluster, phase: FailoverPhase) -> Vec<Millis> {
    let duration = |event: &MetricEvent| match event {
        MetricEvent::Phase { phase: event_phase, duration_ms } if *event_phase == phase => Some(*duration_ms),
        MetricEvent::Phase { .. }
        | MetricEvent::Leadership { .. }
        | MetricEvent::Relocation { .. }
        | MetricEvent::Failover
        | MetricEvent::Fence { .. }
        | MetricEvent::Notification { .. }
        | MetricEvent::Operation { .. } => None,
    };
    cluster.metric_events.iter().filter_map(duration).collect()
}

/// Returns how often exactly this event was counted.
fn event_count(cluster: &TestCluster, event: &MetricEvent) -> usize {
    cluster.metric_events.iter().filter(|counted_event| *counted_event == event).count()
}

fn relocation(reason: Reason) -> MetricEvent {
    MetricEvent::Relocation { resource: "web".into(), reason }
}

pub(super) fn leader_samples(cluster: &TestCluster) -> Vec<Sample> {
    let core = &cluster.controllers[0].core;
    let relocations = Relocations::from([(("web".into(), Reason::Failback), 2)]);
    samples(&MetricsInput {
        cluster_view: core.cluster_view(),
        now: &cluster.now,
        waiting: core.wait_conditions().len(),
        reservation: core.reservation(),
        rebalance: core.rebalance(),
        relocations: &relocations,
    })
}

fn availability(cluster: &TestCluster) -> f64 {
    let record = cluster.status("web").availability.expect("a record");
    record.ratio(30, &cluster.now.timestamp()).expect("the service was desired")
}

fn down_seconds(cluster: &TestCluster) -> f64 {
    let record = cluster.status("web").availability.expect("a record");
    record.down_seconds(365, &cluster.now.timestamp()).expect("the downtime is recorded")
}

#[test]
fn failover_is_counted_once_with_phase_durations() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let fencing_delay_ms = cluster.agent(&node).fencing_delay_ms();
    cluster.agent(&node).power_off();
    cluster.run_until(60_000, "runs elsewhere", |cluster| {
        cluster.is_in_state("web", ServiceState::Started)
            && cluster.running_nodes("web").iter().any(|place| *place != node)
    });
    cluster.run(1_000);
    let (detect, fence) =
        (phase_durations(&cluster, FailoverPhase::Detect), phase_durations(&cluster, FailoverPhase::Fence));
    assert_eq!((detect.len(), fence.len()), (1, 1), "{:?}", cluster.metric_events);
    assert!(detect[0] >= TH, "{detect:?}");
    let sum_ms = detect[0] + fence[0];
    assert!(
        (fencing_delay_ms..fencing_delay_ms + 500).contains(&sum_ms),
        "{sum_ms} ms of {fencing_delay_ms}"
    );
    for phase in [FailoverPhase::Place, FailoverPhase::Start] {
        let took = phase_durations(&cluster, phase);
        assert!(took.len() == 1 && took[0] < 2_000, "{phase:?}: {took:?}");
    }
    assert_eq!(event_count(&cluster, &MetricEvent::Fence { method: "Silence", confirmed: true }), 1);
    assert_eq!(event_count(&cluster, &MetricEvent::Failover), 1);
    assert_eq!(event_count(&cluster, &relocation(Reason::Recovered)), 1);
}

#[test]
fn failed_fence_device_counts_no_fencing_proof() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).is_virtual = true;
    let parts = vec![FencePart { agent: "fence_x".to_owned(), ..FencePart::default() }];
    let device = FenceDevice { name: "pdu".to_owned(), retries: 0, parts, ..FenceDevice::default() };
    cluster.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![device]);
    cluster.fencer_outcome = Some(FencerOutcome::Failed("no".to_owned()));
    cluster.run(2_000);
    assert_eq!(
        event_count(&cluster, &MetricEvent::Fence { method: "Device", confirmed: false }),
        0,
        "only asked"
    );
    cluster.agent(&node).power_off();
    cluster.run_until(TH + 20_000, "tried", |cluster| {
        cluster.controllers[0].runs.iter().any(|run| run.action == FencerAction::Off)
    });
    cluster.run(1_000);
    assert!(
        event_count(&cluster, &MetricEvent::Fence { method: "Device", confirmed: false }) > 0,
        "{:?}",
        cluster.metric_events
    );
    assert_eq!(event_count(&cluster, &MetricEvent::Fence { method: "Device", confirmed: true }), 0);
    assert_eq!(cluster.fence(&node).state, FenceState::Fencing);
}

#[test]
fn a_move_and_its_operation_are_counted_once() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let other = if node == "node1" { "node2" } else { "node1" };
    cluster.create_operation("move", operation(OperationAction::Relocate, Some(other)));
    cluster
        .run_until(10_000, "moved", |cluster| cluster.operation("move").phase == OperationPhase::Succeeded);
    cluster.run(2_000);
    assert_eq!(event_count(&cluster, &relocation(Reason::UserRequested)), 1, "{:?}", cluster.metric_events);
    let (action, phase) = (OperationAction::Relocate, OperationPhase::Succeeded);
    assert_eq!(event_count(&cluster, &MetricEvent::Operation { action, driver: "simulated", phase }), 1);
    assert_eq!(event_count(&cluster, &MetricEvent::Failover), 0);
}

#[test]
fn only_the_leader_counts_metric_events() {
    let mut cluster = TestCluster::new(3, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    cluster.start("web");
    assert_eq!(event_count(&cluster, &MetricEvent::Leadership { gained: true }), 1);
    let node = cluster.status("web").node.unwrap();
    cluster.agent(&node).power_off();
    cluster.run_until(60_000, "runs elsewhere", |cluster| {
        cluster.running_nodes("web").iter().any(|place| *place != node)
    });
    cluster.run(2_000);
    assert_eq!(event_count(&cluster, &MetricEvent::Failover), 1);
}

#[test]
fn samples_of_the_leader_follow_its_cluster_view() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.run(5_000);
    let shown = leader_samples(&cluster);
    for sample in [
        leader::NODE_STATE.sample([&node, "Online"], 1.0),
        leader::NODE_STATE.sample([&node, "Fence"], 0.0),
        leader::NODE_FENCE_STATE.sample([&node, "Open"], 1.0),
        leader::NODE_SERVICES.sample([&node], 1.0),
        leader::NODE_WATCHDOG_ARMED.sample([&node], 1.0),
        leader::RESOURCE_INFO.sample(["web", "simulated", ""], 1.0),
        leader::RESOURCE_STATE.sample(["web", "Started"], 1.0),
        leader::RESOURCE_DESIRED_STATE.sample(["web", "Started"], 1.0),
        leader::RESOURCE_RUNNING.sample(["web"], 1.0),
        leader::RESOURCE_NODE.sample(["web", &node], 1.0),
        leader::RESOURCE_RESTARTS.sample(["web"], 0.0),
        leader::RESOURCE_RELOCATIONS.sample(["web", "Failback"], 2.0),
        leader::RESOURCE_AVAILABILITY.sample(["web", "30d"], availability(&cluster)),
        leader::RESOURCE_DOWNTIME.sample(["web", "365d"], down_seconds(&cluster)),
        leader::CLUSTER_ARMING.sample(["Armed"], 1.0),
        leader::CLUSTER_ARMING.sample(["Disarmed"], 0.0),
    ] {
        assert!(shown.contains(&sample), "{sample:?} is missing in {shown:#?}");
    }
    let states = shown.iter().filter(|sample| *sample.metric == *leader::RESOURCE_STATE).count();
    assert_eq!(states, 1, "one series, for the present state");
    assert!(!shown.iter().any(|sample| *sample.metric == *leader::RESOURCE_UNPLACED));

    for node in ["node1", "node2"] {
        cluster.agent(node).power_off();
    }
    cluster.run_until(120_000, "no node is eligible", |cluster| {
        cluster.is_in_state("web", ServiceState::Recovery)
    });
    cluster.run(2_000);
    let shown = leader_samples(&cluster);
    for sample in [
        leader::NODE_FENCE_STATE.sample([&node, "Fenced"], 1.0),
        leader::RESOURCE_RUNNING.sample(["web"], 0.0),
        leader::RESOURCE_UNPLACED.sample(["web", "Unschedulable"], 1.0),
    ] {
        assert!(shown.contains(&sample), "{sample:?} is missing in {shown:#?}");
    }
    let age = shown.iter().find(|sample| *sample.metric == *leader::NODE_HEARTBEAT_AGE);
    assert!(age.is_some_and(|age| age.value > 8.0), "{age:?}");
}

#[test]
fn every_sample_has_the_declared_labels() {
    let (mut cluster, _) = cluster_with_running_service(&["node1", "node2"]);
    cluster.run(60_000);
    for sample in leader_samples(&cluster) {
        assert_eq!(sample.labels.len(), sample.metric.labels.len(), "{sample:?}");
        assert!(leader::ALL.contains(&sample.metric), "{sample:?}");
    }
}
