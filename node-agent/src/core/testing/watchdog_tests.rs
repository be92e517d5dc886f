//! Tests of `hactl node test-watchdog`: the reset is caused and recorded, and does not affect a node with active
//! services.

use super::*;
use ha_api_types::cluster::{Cluster, ClusterSpec};
use ha_api_types::kind::Kind;
use ha_api_types::node::{Node, NodeSpec};
use ha_api_types::operation::{Operation, OperationAction, OperationPhase, OperationSpec, OperationStatus};
use ha_api_types::reason::Reason;
use ha_api_types::timing::{Profile, TimingSpec};

impl World {
    fn request_watchdog_test(&mut self, boot_id: &str, phase: OperationPhase) {
        let spec = OperationSpec {
            action: OperationAction::TestWatchdog,
            node: Some(own_node()),
            boot_id: Some(boot_id.into()),
            ..OperationSpec::default()
        };
        self.set_maintenance(true);
        let status = OperationStatus { phase, ..OperationStatus::default() };
        self.write(&self.keys.spec(Kind::Operation, "t1"), &Operation::new("t1", spec));
        self.write(&self.keys.status(Kind::Operation, "t1"), &status);
        self.deliver();
    }

    fn set_maintenance(&mut self, maintenance: bool) {
        let spec = NodeSpec { maintenance, ..NodeSpec::default() };
        self.write(&self.keys.spec(Kind::Node, NODE), &Node::new(NODE, spec));
        self.deliver();
    }

    fn set_timings(&mut self, timing: TimingSpec) {
        let spec = ClusterSpec { timing, ..ClusterSpec::default() };
        self.write(&self.keys.spec(Kind::Cluster, "default"), &Cluster::new("default", spec));
        self.deliver();
    }

    fn run_until_reset(&mut self) {
        for _ in 0..100 {
            if !self.was_reset {
                self.advance(100);
            }
        }
        assert!(self.was_reset, "{:?}", self.logs);
    }

    /// Boots the machine again after a reset; its disk is unchanged.
    fn boot_again(&mut self, boot_id: &str) {
        self.was_reset = false;
        self.fires_at_ms = None;
        self.copies.clear();
        self.daemon = daemon::Core::new(protocol::Privileges::default());
        self.restart_agent(boot_id);
        self.advance(500);
        self.open_epoch();
        self.advance(3_000);
    }
}

#[test]
fn watchdog_test_resets_idle_node_and_records() {
    let mut world = World::active();
    assert!(!world.node_report().watchdog.tested);
    world.request_watchdog_test("boot-1", OperationPhase::Running);
    world.run_until_reset();
    assert_eq!(world.journal.active_trial.as_ref().map(|trial| trial.operation.as_str()), Some("t1"));
    world.boot_again("boot-2");
    let watchdog = world.node_report().watchdog;
    assert!(watchdog.tested, "{:?}", world.logs);
    let test = watchdog.last_test.expect("told");
    assert_eq!((test.boot_id.as_str(), test.next_boot_id.as_str()), ("boot-1", "boot-2"));
    assert_eq!((test.operation.as_str(), test.timeout_ms), ("t1", 5_000));
    // The time is recorded twice a second. A sliding device fires at most one second before the deadline, and never
    // after it.
    assert!((1_000..=3_000).contains(&test.lasted_ms), "{test:?}");
    assert_eq!(world.journal.active_trial, None);
    let shutdown_event =
        world.events.iter().find(|event| event.reason == Reason::UncleanShutdown).expect("told");
    assert!(
        shutdown_event.message.contains("Reset by watchdog test in a test (hactl node test-watchdog)"),
        "{shutdown_event:?}"
    );
    // The request named the previous boot, so no further reset happens.
    world.advance(30_000);
    assert!(!world.was_reset);
    // Later boots also have the record of the test. Another timeout, driver or machine needs another test.
    world.boot_again("boot-3");
    assert!(world.node_report().watchdog.tested);
    world.set_timings(TimingSpec { profile: Profile::Fast, ..TimingSpec::default() });
    world.advance(5_000);
    let watchdog = world.node_report().watchdog;
    assert!(!watchdog.tested && watchdog.last_test.is_some(), "{watchdog:?}");
    world.set_timings(TimingSpec::default());
    world.advance(5_000);
    assert!(world.node_report().watchdog.tested);
    let proven = world.journal.tested_watchdog.as_mut().expect("remembered");
    proven.identity = "another driver".to_owned();
    world.boot_again("boot-4");
    assert!(!world.node_report().watchdog.tested);
}

#[test]
fn watchdog_test_needs_approval_of_leader() {
    for (boot_id, phase) in [
        ("boot-1", OperationPhase::Pending),
        ("boot-1", OperationPhase::Refused),
        ("boot-0", OperationPhase::Running),
    ] {
        let mut world = World::active();
        world.request_watchdog_test(boot_id, phase);
        world.advance(30_000);
        assert!(!world.was_reset && world.journal.active_trial.is_none(), "{boot_id} {phase:?}");
    }
}

#[test]
fn watchdog_test_does_not_reset_active_node() {
    let mut world = World::running();
    world.request_watchdog_test("boot-1", OperationPhase::Running);
    world.advance(30_000);
    assert!(!world.was_reset && world.journal.active_trial.is_none());
    assert!(world.copies["web"].running);
}

#[test]
fn watchdog_test_needs_node_in_maintenance() {
    let mut world = World::active();
    world.network = NetworkFault::Down;
    world.request_watchdog_test("boot-1", OperationPhase::Running);
    world.set_maintenance(false);
    world.network = NetworkFault::Up;
    world.deliver();
    world.advance(30_000);
    assert!(!world.was_reset && world.journal.active_trial.is_none());
}

#[test]
fn exiting_agent_ends_the_watchdog_test() {
    let mut world = World::active();
    world.request_watchdog_test("boot-1", OperationPhase::Running);
    world.advance(300);
    assert!(world.journal.active_trial.is_some() && world.fires_at_ms.is_some(), "{:?}", world.logs);
    world.input(Input::Shutdown(Shutdown::Restart));
    world.advance(30_000);
    assert!(
        !world.was_reset && world.fires_at_ms.is_none() && world.journal.active_trial.is_none(),
        "{:?}",
        world.logs
    );
    // The later reset was not caused by the test.
    world.boot_again("boot-2");
    assert_eq!(world.node_report().watchdog.last_test, None);
}

#[test]
fn unarmable_watchdog_ends_the_test() {
    let mut world = World::active();
    world.refuse_arm = true;
    world.request_watchdog_test("boot-1", OperationPhase::Running);
    world.advance(30_000);
    assert!(!world.was_reset && world.journal.active_trial.is_none());
    let arm_requests =
        world.requests.iter().filter(|request| matches!(request, protocol::Request::Arm(_))).count();
    assert!((1..=10).contains(&arm_requests), "{arm_requests}: {:?}", world.logs);
    assert!(!world.node_report().watchdog.problem.is_empty());
}

#[test]
fn watchdog_test_blocks_service_starts() {
    let mut world = World::active();
    world.request_watchdog_test("boot-1", OperationPhase::Running);
    world.create_resource("web");
    world.assign("web", Action::Start);
    world.run_until_reset();
    assert_eq!(world.copies.get("web").map_or(0, |copy| copy.starts), 0);
}

#[test]
fn watchdog_test_needs_its_journal_entry() {
    let mut world = World::active();
    world.journal_fails = true;
    world.request_watchdog_test("boot-1", OperationPhase::Running);
    world.advance(30_000);
    assert!(!world.was_reset);
}

#[test]
fn watchdog_that_failed_its_test_is_unusable() {
    let mut world = World::active();
    world.request_watchdog_test("boot-1", OperationPhase::Running);
    for _ in 0..600 {
        world.advance(100);
        // softdog can be configured not to reboot. It then arms without an error, but does not reset the machine.
        world.was_reset = false;
        world.fires_at_ms = None;
    }
    let watchdog = world.node_report().watchdog;
    assert!(watchdog.problem.contains("did not reset this machine"), "{watchdog:?} {:?}", world.logs);
    assert!(!watchdog.tested);
    assert_eq!(world.journal.active_trial, None);
    // The next process does not accept the watchdog either.
    world.restart_agent("boot-1");
    world.advance(3_000);
    assert!(world.node_report().watchdog.problem.contains("did not reset this machine"), "{:?}", world.logs);
}
