//! Tests of a shutdown that waits for services to move away: policy Migrate, maintenance, time limit, and operator's
//! command.

use super::*;
use ha_api_types::cluster::{Cluster, ClusterSpec, ShutdownPolicy};
use ha_api_types::node::{Node, NodeSpec};
use ha_api_types::operation::{Operation, OperationAction, OperationSpec};
use ha_api_types::record::{Mode, ShutdownKind};
use ha_api_types::timing::TimingSpec;

fn set_shutdown_policy(world: &mut World, shutdown_policy: ShutdownPolicy, timeout_seconds: f64) {
    let timing = TimingSpec { shutdown_timeout_seconds: Some(timeout_seconds), ..TimingSpec::default() };
    let spec = ClusterSpec { shutdown_policy, timing, ..ClusterSpec::default() };
    world.write(&world.keys.spec(Kind::Cluster, "default"), &Cluster::new("default", spec));
    world.deliver();
}

fn continue_shutdown(world: &mut World, name: &str, boot_id: &str) {
    let spec = OperationSpec {
        action: OperationAction::ShutdownContinue,
        node: Some(own_node()),
        boot_id: Some(boot_id.into()),
        ..OperationSpec::default()
    };
    world.write(&world.keys.spec(Kind::Operation, name), &Operation::new(name, spec));
    world.deliver();
}

/// Shuts the machine down, and returns `true` if the service still runs after a minute.
fn shut_down_and_check_wait(world: &mut World, shutdown_kind: ShutdownKind) -> bool {
    world.input(Input::Shutdown(Shutdown::Machine(shutdown_kind)));
    world.advance(60_000);
    world.exit.is_none() && world.copies["web"].running
}

#[test]
fn only_migrate_and_maintenance_delay_shutdown() {
    for shutdown_kind in [ShutdownKind::Poweroff, ShutdownKind::Reboot] {
        for (chosen, maintenance, expected) in [
            (ShutdownPolicy::Conditional, false, false),
            (ShutdownPolicy::Freeze, false, false),
            (ShutdownPolicy::Failover, false, false),
            (ShutdownPolicy::Migrate, false, true),
            (ShutdownPolicy::Freeze, true, true),
            (ShutdownPolicy::Conditional, true, true),
        ] {
            let mut world = World::running();
            set_shutdown_policy(&mut world, chosen, 1800.0);
            let spec = NodeSpec { maintenance, ..NodeSpec::default() };
            world.write(&world.keys.spec(Kind::Node, NODE), &Node::new(NODE, spec));
            world.deliver();
            assert_eq!(
                shut_down_and_check_wait(&mut world, shutdown_kind),
                expected,
                "{chosen:?} {maintenance} {shutdown_kind:?}"
            );
            let mode = if expected { Mode::Shutdown(shutdown_kind) } else { Mode::Left(shutdown_kind) };
            assert_eq!((world.node_report().mode, world.node_report().armed), (mode, expected));
        }
    }
}

#[test]
fn shutdown_continues_without_services_or_after_timeout() {
    let mut world = World::running();
    set_shutdown_policy(&mut world, ShutdownPolicy::Migrate, 1800.0);
    assert!(shut_down_and_check_wait(&mut world, ShutdownKind::Reboot));
    world.assign("web", Action::Stop { timeout_ms: None });
    world.advance(5_000);
    assert_eq!((world.node_report().mode, world.exit), (Mode::Left(ShutdownKind::Reboot), Some(Exit::Left)));

    let mut world = World::running();
    set_shutdown_policy(&mut world, ShutdownPolicy::Migrate, 90.0);
    assert!(shut_down_and_check_wait(&mut world, ShutdownKind::Poweroff));
    world.advance(35_000);
    assert_eq!(
        (world.node_report().mode, world.exit),
        (Mode::Left(ShutdownKind::Poweroff), Some(Exit::Left))
    );
    assert!(!world.copies["web"].running);

    let mut world = World::running();
    set_shutdown_policy(&mut world, ShutdownPolicy::Migrate, 0.0);
    assert!(shut_down_and_check_wait(&mut world, ShutdownKind::Poweroff));
    world.advance(7_200_000);
    assert!(world.exit.is_none() && world.copies["web"].running, "0 waits indefinitely");
}

#[test]
fn continue_shutdown_must_match_boot_and_time() {
    let mut world = World::running();
    set_shutdown_policy(&mut world, ShutdownPolicy::Migrate, 0.0);
    continue_shutdown(&mut world, "too-early", "boot-1");
    assert!(shut_down_and_check_wait(&mut world, ShutdownKind::Reboot));
    continue_shutdown(&mut world, "another-boot", "boot-0");
    world.advance(60_000);
    assert!(world.exit.is_none() && world.copies["web"].running);
    continue_shutdown(&mut world, "now", "boot-1");
    world.advance(5_000);
    assert_eq!((world.node_report().mode, world.exit), (Mode::Left(ShutdownKind::Reboot), Some(Exit::Left)));
}

#[test]
fn waiting_shutdown_starts_nothing_and_stays_armed() {
    let mut world = World::running();
    set_shutdown_policy(&mut world, ShutdownPolicy::Migrate, 0.0);
    assert!(shut_down_and_check_wait(&mut world, ShutdownKind::Reboot));
    world.create_resource("late");
    world.assign("late", Action::Start);
    world.advance(10_000);
    assert!(!world.copies.get("late").is_some_and(|copy| copy.running));
    assert!(world.node_report().armed && world.fires_at_ms.is_some());
}
