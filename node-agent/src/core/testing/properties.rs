//! Properties under any sequence of events: no panic, no start without a permit or too late, no exclusive service after
//! W.

use super::*;
use ha_api_types::cluster::{Cluster, ClusterSpec, ClusterStatus};
use ha_api_types::id::Epoch;
use ha_api_types::reason::Reason;
use ha_api_types::record::ShutdownKind;
use proptest::prelude::*;

const NAMES: [&str; 3] = ["web", "mail", "twice"];

/// Possible reports of the other side of a migration.
const PEER_REPORTS: [(Phase, Reason); 6] = [
    (Phase::Receiving, Reason::Waiting),
    (Phase::Receiving, Reason::Migrating),
    (Phase::Running, Reason::Running),
    (Phase::HandingOver, Reason::Migrating),
    (Phase::HandedOver, Reason::Moved),
    (Phase::MoveFailed, Reason::MoveFailed),
];

#[derive(Clone, Debug)]
enum RandomEvent {
    Wait(u64),
    NetworkFault(NetworkFault),
    HoldCommand(&'static str, bool),
    FinishHeldCommands,
    FailHeldCommands,
    Assign(usize, u8),
    Unassign(usize),
    CloseEpoch,
    OpenEpoch,
    DeleteAlive,
    Exit(usize, bool),
    Appear(usize),
    FailStops(usize, bool),
    ProbeUnknown(usize, bool),
    FailStarts(usize, u32),
    AgentDies,
    AgentStarts,
    WatchdogDaemonDown(bool),
    RefuseArm(bool),
    JournalFails(bool),
    Resync,
    Profile(bool),
    Restart,
    MachineShutdown,
    Disarm(bool),
    PeerReport(usize, usize),
    UnexpectedInput(u64),
}

fn random_event() -> impl Strategy<Value = RandomEvent> {
    let name = 0..NAMES.len();
    prop_oneof![
        8 => (0u64..4_000).prop_map(RandomEvent::Wait),
        2 => (0u64..30_000).prop_map(RandomEvent::Wait),
        4 => prop_oneof![Just(NetworkFault::Up), Just(NetworkFault::Down), Just(NetworkFault::AnswersLost)]
            .prop_map(RandomEvent::NetworkFault),
        2 => (prop_oneof![Just("start"), Just("stop"), Just("kill"), Just("probe"), Just("migrate")], any::<bool>())
            .prop_map(|(command, enabled)| RandomEvent::HoldCommand(command, enabled)),
        3 => Just(RandomEvent::FinishHeldCommands),
        1 => Just(RandomEvent::FailHeldCommands),
        8 => (name.clone(), 0u8..11).prop_map(|(name, kind)| RandomEvent::Assign(name, kind)),
        1 => name.clone().prop_map(RandomEvent::Unassign),
        1 => Just(RandomEvent::CloseEpoch),
        3 => Just(RandomEvent::OpenEpoch),
        1 => Just(RandomEvent::DeleteAlive),
        2 => (name.clone(), any::<bool>()).prop_map(|(name, stopped_externally)| RandomEvent::Exit(name, stopped_externally)),
        1 => name.clone().prop_map(RandomEvent::Appear),
        1 => (name.clone(), any::<bool>()).prop_map(|(name, enabled)| RandomEvent::FailStops(name, enabled)),
        1 => (name.clone(), any::<bool>()).prop_map(|(name, enabled)| RandomEvent::ProbeUnknown(name, enabled)),
        4 => (name.clone(), 0..PEER_REPORTS.len()).prop_map(|(name, report_index)| RandomEvent::PeerReport(name, report_index)),
        1 => any::<bool>().prop_map(RandomEvent::Disarm),
        1 => (name, 0u32..4).prop_map(|(name, count)| RandomEvent::FailStarts(name, count)),
        1 => Just(RandomEvent::AgentDies),
        2 => Just(RandomEvent::AgentStarts),
        1 => any::<bool>().prop_map(RandomEvent::WatchdogDaemonDown),
        1 => any::<bool>().prop_map(RandomEvent::RefuseArm),
        1 => any::<bool>().prop_map(RandomEvent::JournalFails),
        1 => Just(RandomEvent::Resync),
        1 => any::<bool>().prop_map(RandomEvent::Profile),
        1 => Just(RandomEvent::Restart),
        1 => Just(RandomEvent::MachineShutdown),
        2 => any::<u64>().prop_map(RandomEvent::UnexpectedInput),
    ]
}

fn apply_event(world: &mut World, event: &RandomEvent) {
    match event {
        RandomEvent::Wait(ms) => world.advance(*ms),
        RandomEvent::NetworkFault(net) => world.network = *net,
        RandomEvent::HoldCommand(command, true) => {
            world.commands_to_hold.insert(command);
        }
        RandomEvent::HoldCommand(command, false) => {
            world.commands_to_hold.remove(command);
        }
        RandomEvent::FinishHeldCommands => world.finish_held_commands(),
        RandomEvent::FailHeldCommands => {
            for (id, _, _) in std::mem::take(&mut world.held_commands) {
                let failure = DriverFailure {
                    class: FailureClass::RetryHere,
                    reason: Reason::TimedOut,
                    message: "timed out".into(),
                };
                world.input(Input::Ended { id, result: CommandResult::Failed(failure) });
            }
        }
        RandomEvent::Assign(name, kind) => {
            let name = NAMES[*name];
            match kind {
                0..=3 => world.assign(name, Action::Start),
                4 => world.assign(name, Action::Stop { timeout_ms: None }),
                5 => world.assign(name, Action::Restart),
                6 => world.assign(name, Action::DoNothing),
                7 => world.assign_to(name, "n2", Action::Start),
                8 | 9 => {
                    world.register_peer();
                    let fence = world.fence();
                    let (target_epoch, target_boot_id) = (fence.epoch, fence.boot_id);
                    world.assign_to(
                        name,
                        "n2",
                        Action::Migrate { target: own_node(), target_epoch, target_boot_id },
                    )
                }
                _ => {
                    world.register_peer();
                    let target = Action::Migrate {
                        target: "n2".into(),
                        target_epoch: Epoch(1),
                        target_boot_id: "peer-boot".into(),
                    };
                    world.assign(name, target)
                }
            };
        }
        RandomEvent::Unassign(name) => {
            let key = world.keys.assignment(&NAMES[*name].into());
            if !world.state.get(&key).entries.is_empty() {
                world.delete(&key);
            }
        }
        RandomEvent::CloseEpoch => world.close_epoch(),
        RandomEvent::OpenEpoch => {
            if world.node_report().mode == ha_api_types::record::Mode::Registering {
                world.open_epoch();
            }
        }
        RandomEvent::DeleteAlive => {
            if world.alive().is_some() {
                let key = world.keys.alive(&own_node());
                world.delete(&key);
            }
        }
        RandomEvent::Exit(name, stopped_externally) => {
            let name = NAMES[*name];
            if let Some(copy) = world.copies.get_mut(name).filter(|copy| copy.running) {
                copy.running = false;
                let (uid, stopped_externally) = (format!("uid-{name}"), *stopped_externally);
                let event = DriverEvent::Exited {
                    name: name.into(),
                    uid: uid.into(),
                    message: "signal 9".into(),
                    stopped_externally,
                };
                world.input(Input::Driver(event));
            }
        }
        RandomEvent::Appear(name) => {
            let name = NAMES[*name];
            let uid = format!("uid-{name}");
            world.input(Input::Driver(DriverEvent::Appeared { name: name.into(), uid: uid.into() }));
        }
        RandomEvent::FailStops(name, enabled) => {
            let copy = world.copies.entry(NAMES[*name].into()).or_default();
            (copy.stop_fails, copy.kill_fails) = (*enabled, *enabled);
        }
        RandomEvent::ProbeUnknown(name, enabled) => {
            world.copies.entry(NAMES[*name].into()).or_default().probe_unknown = *enabled;
        }
        RandomEvent::FailStarts(name, count) => {
            world.copies.entry(NAMES[*name].into()).or_default().fail_starts = *count;
        }
        RandomEvent::AgentDies => world.dead = true,
        RandomEvent::AgentStarts => world.restart_agent("boot-1"),
        RandomEvent::WatchdogDaemonDown(is_down) => {
            if *is_down && world.daemon_up {
                world.disconnect_watchdog_daemon();
            } else if !*is_down && !world.daemon_up {
                world.daemon_up = true;
                world.reconnect();
            }
        }
        RandomEvent::RefuseArm(enabled) => world.refuse_arm = *enabled,
        RandomEvent::JournalFails(enabled) => world.journal_fails = *enabled,
        RandomEvent::Resync => {
            if world.network == NetworkFault::Up {
                world.sync();
            }
        }
        RandomEvent::Profile(fast) => {
            let mut cluster = Cluster::new("default", ClusterSpec::default());
            if *fast {
                cluster.spec.timing.profile = ha_api_types::timing::Profile::Fast;
            }
            let key = world.keys.spec(Kind::Cluster, "default");
            world.write(&key, &cluster);
        }
        RandomEvent::Restart => world.input(Input::Shutdown(Shutdown::Restart)),
        RandomEvent::MachineShutdown => world.input(Input::Shutdown(Shutdown::Machine(ShutdownKind::Reboot))),
        RandomEvent::Disarm(enabled) => {
            let disarmed = enabled.then_some(ha_api_types::cluster::Disarmed::Freeze);
            let cluster = Cluster::new("default", ClusterSpec { disarmed, ..ClusterSpec::default() });
            let key = world.keys.spec(Kind::Cluster, "default");
            world.write(&key, &cluster);
            let status = ClusterStatus { disarm: disarmed, ..ClusterStatus::default() };
            let key = world.keys.status(Kind::Cluster, "default");
            world.write(&key, &status);
        }
        RandomEvent::PeerReport(name, report_index) => {
            let name = NAMES[*name];
            // An assignment that this version cannot read names no action.
            let assignment_entries = world.state.get(&world.keys.assignment(&name.into())).entries;
            let assignment = assignment_entries
                .first()
                .and_then(|entry| serde_json::from_slice::<Assignment>(&entry.value).ok());
            let uid = assignment.map(|assignment| assignment.action_uid);
            let (phase, reason) = PEER_REPORTS[*report_index];
            world.peer_reports(name, &uid.unwrap_or_default(), phase, reason);
        }
        RandomEvent::UnexpectedInput(seed) => inject_unexpected_input(world, *seed),
    }
}

/// Injects answers without a request, and etcd contents of another version.
fn inject_unexpected_input(world: &mut World, seed: u64) {
    let id = seed >> 8;
    match seed % 10 {
        0 => world.input(Input::Committed { id: CommitId(id), outcome: Outcome::Applied(Revision(1)) }),
        1 => world.input(Input::Ended { id: CommandId(id), result: CommandResult::Done }),
        2 => world.input(Input::JournalWritten { id: JournalWriteId(id), result: Ok(()) }),
        3 => world.input(Input::Read { id: ReadId(id), result: Ok((Vec::new(), Revision(0))) }),
        4 => world.input(Input::LeaseGranted { id: LeaseRequestId(id), result: Err("no".into()) }),
        5 => world.input(Input::LeaseKept {
            lease: ha_store::LeaseId(i64::try_from(id % 5).expect("small")),
            kept: LeaseKept::Gone,
        }),
        6 => {
            let key = world.keys.assignment(&NAMES[usize::try_from(id % 3).expect("small")].into());
            world.write(&key, &serde_json::json!({"action": {"kind": "Teleport"}}));
        }
        7 => world.input(Input::Changed {
            revision: Revision(1),
            changes: vec![Change::Delete { key: world.keys.fence(&own_node()), revision: Revision(1) }],
        }),
        8 => world.input(Input::Facts { drivers: vec!["exec".into()], hardware: Hardware::default() }),
        _ => world.input(Input::Watchdog(WatchdogEvent::Answered {
            id: WatchdogRequestId(id),
            refusal: Some(crate::watchdog::protocol::Refusal::NotArmed),
            status: world.daemon.status(),
        })),
    }
}

/// Returns the configuration: a hundred cases per property, or the number in `PROPTEST_CASES`.
fn property_configuration() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    ProptestConfig { cases, max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(property_configuration())]

    #[test]
    fn random_events_violate_no_protocol_rule(events in proptest::collection::vec(random_event(), 1..60)) {
        let mut world = World::active();
        world.create_resource("web");
        world.create_resource_with("mail", |spec| spec.priority = 5);
        world.create_resource_with("twice", |spec| spec.exclusive = false);
        for event in &events {
            apply_event(&mut world, event);
            if world.was_reset {
                return Ok(());
            }
            if world.exit.is_some() {
                world.dead = true;
            }
        }
        // In every case: once the node is isolated long enough, no exclusive service runs, or the machine was reset.
        world.network = NetworkFault::Down;
        world.advance(60_000);
    }

    #[test]
    fn agent_works_again_after_random_events(events in proptest::collection::vec(random_event(), 1..40)) {
        let mut world = World::active();
        world.create_resource("web");
        world.create_resource_with("mail", |spec| spec.priority = 5);
        world.create_resource_with("twice", |spec| spec.exclusive = false);
        for event in &events {
            apply_event(&mut world, event);
            if world.was_reset {
                return Ok(());
            }
        }
        // All faults are cleared, an agent is started if there is none, and the leader acts.
        world.clear_faults();
        for _ in 0..4 {
            world.advance(35_000);
            if world.was_reset {
                return Ok(());
            }
            if world.exit.is_some() || world.dead {
                world.restart_agent("boot-1");
                world.advance(5_000);
            }
            if world.node_report().mode == ha_api_types::record::Mode::Registering {
                world.open_epoch();
                world.advance(5_000);
            }
        }
        for name in NAMES {
            world.assign(name, Action::Start);
        }
        world.advance(60_000);
        if !world.was_reset {
            for name in NAMES {
                prop_assert_eq!(
                    world.service_report(name).phase, Phase::Running,
                    "{} {:?} {:?} {:#?}", name, world.core.summary(&world.now()), world.core.wait_messages(&world.now()), world.logs
                );
                prop_assert!(world.copies[name].running);
            }
        }
    }
}

impl World {
    fn clear_faults(&mut self) {
        self.network = NetworkFault::Up;
        self.commands_to_hold.clear();
        let key = self.keys.spec(Kind::Cluster, "default");
        self.write(&key, &Cluster::new("default", ClusterSpec::default()));
        self.refuse_arm = false;
        self.journal_fails = false;
        for copy in self.copies.values_mut() {
            (copy.stop_fails, copy.kill_fails, copy.probe_unknown, copy.fail_starts) =
                (false, false, false, 0);
        }
        if self.daemon_up {
            self.finish_held_commands();
        } else {
            self.daemon_up = true;
            self.reconnect();
            self.finish_held_commands();
        }
        self.sync();
    }
}

/// A shorter profile is read in the first moment after an outage, when its margin is not reached but the longer one is.
#[test]
fn shorter_margin_applies_once_it_is_read() {
    let mut world = World::active();
    world.create_resource("web");
    world.create_resource("mail");
    let events = [
        RandomEvent::Assign(0, 0),
        RandomEvent::Wait(179),
        RandomEvent::NetworkFault(NetworkFault::Down),
        RandomEvent::Profile(true),
        RandomEvent::Wait(3_321),
        RandomEvent::NetworkFault(NetworkFault::Up),
        RandomEvent::Assign(1, 0),
    ];
    for event in &events {
        apply_event(&mut world, event);
    }
    world.advance(5_000);
    assert_eq!(world.count_commands("mail", "start"), 1);
}
