//! Tests of the node's policy: a forbidden service is neither started nor probed with its own programs.

use super::*;
use ha_api_types::driver::ExecDriver;
use ha_api_types::node_policy::NodePolicy;
use ha_api_types::reason::Reason;

/// Restarts the agent with a policy that allows no service as root.
fn restart_with_policy(world: &mut World) {
    world.config.policy = Some(NodePolicy::default());
    world.restart_agent("boot-1");
    world.advance(2_000);
}

/// Adds resource `web`, whose program runs as root or as this user. Its monitor program runs at each probe.
fn exec_resource(world: &mut World, user: Option<&str>) {
    let monitor = vec!["/usr/bin/check-web".to_owned()];
    add_exec_resource(world, ExecDriver { monitor, user: user.map(str::to_owned), ..ExecDriver::default() });
}

fn add_exec_resource(world: &mut World, exec: ExecDriver) {
    let exec = ExecDriver { command: vec!["/usr/bin/web".to_owned()], ..exec };
    let driver = DriverSpec { exec: Some(exec), ..DriverSpec::default() };
    world.create_resource_with("web", |spec| spec.driver = driver);
    world.advance(1_000);
}

/// Creates a registered node with a policy.
fn strict_node() -> World {
    let mut world = World::active();
    restart_with_policy(&mut world);
    world.executed.clear();
    world
}

#[test]
fn a_forbidden_service_is_refused_before_the_journal() {
    let mut world = strict_node();
    assert_eq!(world.node_report().policy, Some(NodePolicy::default()));
    exec_resource(&mut world, None);
    assert_eq!(world.service_report("web").phase, Phase::ProbedStopped, "{:?}", world.logs);
    world.assign("web", Action::Start);
    world.advance(5_000);
    let report = world.service_report("web");
    assert_eq!(report.phase, Phase::Failed, "{:?}", world.logs);
    assert_eq!((report.failure, report.reason), (Some(FailureClass::NeverHere), Reason::NodePolicy));
    assert_eq!(report.message, "node policy does not allow exec as root");
    assert!(world.journal.services.is_empty(), "{:?}", world.journal);
    // Stop, kill and probe run programs of the resource, too.
    world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(5_000);
    assert_eq!(world.executed, [], "{:?}", world.logs);
}

#[test]
fn an_allowed_service_is_started() {
    let mut world = strict_node();
    exec_resource(&mut world, Some("web"));
    world.assign("web", Action::Start);
    world.advance(2_000);
    assert!(world.copies["web"].running, "{:?}", world.logs);
}

#[test]
fn a_service_that_began_before_the_policy_is_stopped() {
    let mut world = World::active();
    exec_resource(&mut world, None);
    world.assign("web", Action::Start);
    world.advance(2_000);
    assert!(world.copies["web"].running, "{:?}", world.logs);
    restart_with_policy(&mut world);
    world.advance(2_000);
    assert!(!world.copies["web"].running && world.count_commands("web", "stop") == 1, "{:?}", world.executed);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.reason), (Phase::Failed, Reason::NodePolicy));
    assert_eq!(world.copies["web"].starts, 1);
}

#[test]
fn a_supervised_service_is_found_without_a_journal() {
    let mut world = World::active();
    add_exec_resource(&mut world, ExecDriver::default());
    world.assign("web", Action::Start);
    world.advance(2_000);
    assert!(world.copies["web"].running, "{:?}", world.logs);
    world.journal.services.clear();
    restart_with_policy(&mut world);
    world.advance(5_000);
    assert!(!world.copies["web"].running, "{:?}", world.executed);
}
