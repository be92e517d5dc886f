//! Tests of the doctor's report and of the shutdown record, which is reported after a reset.

use super::*;
use crate::core::commits::CommitPurpose;
use crate::core::effect::CommitId;
use crate::doctor::{MachineFacts, Owner};
use ha_api_types::check::Verdict;
use ha_api_types::cluster::{Cluster, ClusterSpec};
use ha_api_types::event::Event;
use ha_api_types::kind::Kind;
use ha_api_types::node::{FenceDevice, FenceKind, FencePart, Node, NodeSpec};
use ha_api_types::reason::Reason;
use ha_api_types::record::{DoctorReport, Fence, FenceState, Proof};

impl World {
    fn doctor(&self) -> Option<DoctorReport> {
        self.value(&self.keys.doctor_report(&own_node()))
    }

    fn examine(&mut self, facts: MachineFacts) {
        self.input(Input::Examined(facts));
        self.deliver();
    }

    fn unclean_shutdown_events(&self) -> Vec<&Event> {
        self.events.iter().filter(|event| event.reason == Reason::UncleanShutdown).collect()
    }
}

fn verdict(report: &DoctorReport, name: &str) -> Option<Verdict> {
    report.checks.iter().find(|check| check.name == name).map(|check| check.verdict)
}

#[test]
fn doctor_findings_are_written_once() {
    let mut world = World::running();
    let node_report = world.state.get(&world.keys.node_report(&own_node())).entries[0].mod_revision;
    let busy = MachineFacts {
        watchdog_owner: Some(Owner { pid: 9, name: "sbd".to_owned() }),
        ..MachineFacts::default()
    };
    world.examine(busy.clone());
    let report = world.doctor().expect("the doctor's report was written");
    assert_eq!(verdict(&report, "watchdog-owner"), Some(Verdict::Fail));
    assert!(report.watchdog.is_some_and(|watchdog| watchdog.smallest_margin_ms.is_some()));
    let revision = world.state.get(&world.keys.doctor_report(&own_node())).entries[0].mod_revision;
    world.examine(busy);
    assert_eq!(world.state.get(&world.keys.doctor_report(&own_node())).entries[0].mod_revision, revision);
    world.examine(MachineFacts::default());
    assert_eq!(verdict(&world.doctor().expect("written"), "watchdog-owner"), Some(Verdict::Ok));
    // Permits guard the node's report, so it must not change for the doctor.
    assert_eq!(world.state.get(&world.keys.node_report(&own_node())).entries[0].mod_revision, node_report);
}

#[test]
fn changed_doctor_setting_applies_immediately() {
    let mut world = World::active();
    world.examine(MachineFacts::default());
    let tested = |world: &World| verdict(&world.doctor().expect("written"), "watchdog-tested");
    assert_eq!(tested(&world), Some(Verdict::Warn));
    let mut cluster = Cluster::new("default", ClusterSpec::default());
    cluster.spec.fencing.require_tested = true;
    world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
    world.deliver();
    world.advance(500);
    assert_eq!(tested(&world), Some(Verdict::Fail), "without another examination of the machine");
}

#[test]
fn virtual_machine_check_needs_confirming_fence_device() {
    let mut world = World::active();
    world.core.config.is_virtual = true;
    world.examine(MachineFacts::default());
    let machine_verdict = |world: &World| verdict(&world.doctor().expect("written"), "machine");
    assert_eq!(machine_verdict(&world), Some(Verdict::Fail));
    let mut device = FenceDevice { parts: vec![FencePart::default()], ..FenceDevice::default() };
    let mut set_device = |device: &FenceDevice| {
        let mut node = Node::new(NODE, NodeSpec::default());
        node.spec.fencing.devices = vec![device.clone()];
        world.write(&world.keys.spec(Kind::Node, NODE), &node);
        world.deliver();
        world.advance(500);
        machine_verdict(&world)
    };
    device.kind = FenceKind::Fabric;
    assert_eq!(
        set_device(&device),
        Some(Verdict::Fail),
        "without coversStorage, a fabric device proves nothing"
    );
    device.covers_storage = true;
    assert_eq!(set_device(&device), Some(Verdict::Ok));
    (device.kind, device.covers_storage) = (FenceKind::Power, false);
    assert_eq!(set_device(&device), Some(Verdict::Ok));
}

#[test]
fn a_pending_report_of_a_lost_epoch_does_not_block_the_next() {
    let mut world = World::active();
    world.examine(MachineFacts::default());
    let report = world.doctor().expect("written");
    // This commit is never answered.
    world.core.commits.insert(CommitId(u64::MAX), CommitPurpose::Doctor { report });
    world.close_epoch();
    world.advance(500);
    world.open_epoch();
    world.advance(1_500);
    let busy = MachineFacts {
        watchdog_owner: Some(Owner { pid: 9, name: "sbd".to_owned() }),
        ..MachineFacts::default()
    };
    world.examine(busy);
    assert_eq!(verdict(&world.doctor().expect("written"), "watchdog-owner"), Some(Verdict::Fail));
}

#[test]
fn a_node_without_an_epoch_writes_nothing() {
    let mut world = World::new();
    world.examine(MachineFacts::default());
    world.advance(500);
    assert_eq!(world.doctor(), None);
    world.open_epoch();
    world.advance(1_500);
    assert!(world.doctor().is_some(), "earlier findings are written once the epoch is open");
}

#[test]
fn shutdown_record_is_reported_by_next_boot() {
    let mut world = World::running();
    world.copies.get_mut("web").expect("Service running").kill_fails = true;
    world.network = NetworkFault::Down;
    while !world.was_reset {
        world.advance(100);
    }
    let shutdown_record = world.journal.shutdown_record.clone().expect("written before the reset");
    assert!(
        shutdown_record.boot_id == "boot-1" && shutdown_record.message.contains("web had not stopped yet"),
        "{shutdown_record:?}"
    );
    // The machine is on again; its disk is unchanged.
    world.copies.clear();
    world.network = NetworkFault::Up;
    world.was_reset = false;
    world.fires_at_ms = None;
    world.daemon = daemon::Core::new(protocol::Privileges::default());
    world.restart_agent("boot-2");
    let reset = MachineFacts { was_reset_by_watchdog: true, ..MachineFacts::default() };
    world.examine(reset.clone());
    world.advance(500);
    world.open_epoch();
    world.advance(2_000);
    let shutdown_events = world.unclean_shutdown_events();
    assert_eq!(shutdown_events.len(), 1, "{:?}", world.events);
    assert!(
        shutdown_events[0].message.contains("web had not stopped yet")
            && shutdown_events[0].message.contains("watchdog reports"),
        "{shutdown_events:?}"
    );
    world.examine(reset);
    let last_end = world.doctor().and_then(|report| report.last_end).expect("shown with the node");
    assert_eq!(last_end.boot_id, "boot-1");
    assert!(last_end.message.contains("web had not stopped yet"), "{last_end:?}");
    assert_eq!(world.journal.shutdown_record, None);
    // Another process of the same boot can read the previous shutdown only from etcd.
    world.restart_agent("boot-2");
    world.advance(2_000);
    world.examine(MachineFacts { crash_records: vec!["x".to_owned()], ..MachineFacts::default() });
    assert_eq!(world.doctor().and_then(|report| report.last_end), Some(last_end));
    assert_eq!(world.unclean_shutdown_events().len(), 1);
}

/// Boots a node again after the leader has fenced it with this proof, and returns the message about the previous boot.
fn message_after_fencing(proof: Proof, kind: FenceKind) -> String {
    let mut world = World::active();
    let mut node = Node::new(NODE, NodeSpec::default());
    node.spec.fencing.devices = vec![FenceDevice { name: "bmc".to_owned(), kind, ..FenceDevice::default() }];
    world.write(&world.keys.spec(Kind::Node, NODE), &node);
    world.network = NetworkFault::Down;
    let fence = world.fence();
    let fenced = Fence { epoch: fence.epoch + 1, state: FenceState::Fenced, proof: Some(proof), ..fence };
    world.write(&world.keys.fence(&own_node()), &fenced);
    world.network = NetworkFault::Up;
    world.restart_agent("boot-2");
    world.examine(MachineFacts::default());
    world.advance(500);
    world.open_epoch();
    world.advance(2_000);
    let events = world.unclean_shutdown_events();
    assert_eq!(events.len(), 1, "{:?}", world.events);
    events[0].message.clone()
}

#[test]
fn fencing_by_hactl_is_reported_by_the_next_boot() {
    let device = || Proof::Device { name: "bmc".to_owned() };
    let fenced_by_device = "hactl fenced the node (fence device bmc confirmed that the node is off)";
    assert_eq!(
        message_after_fencing(device(), FenceKind::Power),
        format!("Node returned after an unclean shutdown: {fenced_by_device}")
    );
    // A fabric device does not switch the machine off, so the cause of the shutdown is not known.
    assert_eq!(
        message_after_fencing(device(), FenceKind::Fabric),
        format!(
            "Node returned after an unclean shutdown: no shutdown record: power loss, kernel panic or hang; \
             {fenced_by_device}"
        )
    );
    let silence = message_after_fencing(Proof::Silence { waited_ms: 13_200 }, FenceKind::Power);
    assert!(silence.contains("; hactl fenced the node (no heartbeat for 13.2 s, "), "{silence}");
    let operator = Proof::Operator { operation: "confirm".into(), requested_by: "ada".to_owned() };
    let operator = message_after_fencing(operator, FenceKind::Power);
    assert!(!operator.contains("hactl fenced"), "{operator}");
}

#[test]
fn the_shutdown_record_is_removed_when_heartbeats_commit_again() {
    let mut world = World::running();
    world.network = NetworkFault::Down;
    world.advance(4_000);
    let shutdown_record = world.journal.shutdown_record.clone().expect("the margin has come");
    assert!(shutdown_record.message.contains("all exclusive services were stopped"), "{shutdown_record:?}");
    world.network = NetworkFault::Up;
    world.advance(4_000);
    assert_eq!(world.journal.shutdown_record, None);
    assert_eq!(world.unclean_shutdown_events().len(), 0);
}

#[test]
fn a_clean_shutdown_is_not_reported_as_unclean() {
    let mut world = World::active();
    world.input(Input::Shutdown(Shutdown::Machine(ha_api_types::record::ShutdownKind::Reboot)));
    world.advance(2_000);
    assert_eq!(world.exit, Some(Exit::Left));
    world.restart_agent("boot-2");
    world.advance(500);
    world.open_epoch();
    world.advance(2_000);
    assert_eq!(world.node_report().mode, ha_api_types::record::Mode::Active);
    assert_eq!(world.unclean_shutdown_events().len(), 0, "{:?}", world.events);
}
