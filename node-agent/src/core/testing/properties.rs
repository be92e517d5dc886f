//! Properties under any sequence of events: no panic, no start without its permit and in time, no exclusive service
//! after W.

use super::*;
use ha_api_types::cluster::{Cluster, ClusterSpec, ClusterStatus};
use ha_api_types::id::Epoch;
use ha_api_types::reason::Reason;
use ha_api_types::record::Leave;
use proptest::prelude::*;

const NAMES: [&str; 3] = ["web", "mail", "twice"];

/// Possible reports of the other side of a migration.
const PEER_SAYS: [(Phase, Reason); 6] = [
    (Phase::Receiving, Reason::Waiting),
    (Phase::Receiving, Reason::Migrating),
    (Phase::Running, Reason::Running),
    (Phase::HandingOver, Reason::Migrating),
    (Phase::HandedOver, Reason::Moved),
    (Phase::MoveFailed, Reason::MoveFailed),
];

/// One random event.
#[derive(Clone, Debug)]
enum Happening {
    Wait(u64),
    Net(Net),
    Hold(&'static str, bool),
    Finish,
    FailHeld,
    Assign(usize, u8),
    Unassign(usize),
    Close,
    Open,
    DeleteAlive,
    Exit(usize, bool),
    Appear(usize),
    Stubborn(usize, bool),
    Blind(usize, bool),
    FailStarts(usize, u32),
    AgentDies,
    AgentStarts,
    DaemonAway(bool),
    RefuseArm(bool),
    JournalFails(bool),
    Resync,
    Profile(bool),
    Restart,
    Leave,
    Disarm(bool),
    Peer(usize, usize),
    Strange(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    let name = 0..NAMES.len();
    prop_oneof![
        8 => (0u64..4_000).prop_map(Happening::Wait),
        2 => (0u64..30_000).prop_map(Happening::Wait),
        4 => prop_oneof![Just(Net::Up), Just(Net::Down), Just(Net::Deaf)].prop_map(Happening::Net),
        2 => (prop_oneof![Just("start"), Just("stop"), Just("kill"), Just("probe"), Just("migrate")], any::<bool>())
            .prop_map(|(command, on)| Happening::Hold(command, on)),
        3 => Just(Happening::Finish),
        1 => Just(Happening::FailHeld),
        8 => (name.clone(), 0u8..11).prop_map(|(name, kind)| Happening::Assign(name, kind)),
        1 => name.clone().prop_map(Happening::Unassign),
        1 => Just(Happening::Close),
        3 => Just(Happening::Open),
        1 => Just(Happening::DeleteAlive),
        2 => (name.clone(), any::<bool>()).prop_map(|(name, by_hand)| Happening::Exit(name, by_hand)),
        1 => name.clone().prop_map(Happening::Appear),
        1 => (name.clone(), any::<bool>()).prop_map(|(name, on)| Happening::Stubborn(name, on)),
        1 => (name.clone(), any::<bool>()).prop_map(|(name, on)| Happening::Blind(name, on)),
        4 => (name.clone(), 0..PEER_SAYS.len()).prop_map(|(name, what)| Happening::Peer(name, what)),
        1 => any::<bool>().prop_map(Happening::Disarm),
        1 => (name, 0u32..4).prop_map(|(name, count)| Happening::FailStarts(name, count)),
        1 => Just(Happening::AgentDies),
        2 => Just(Happening::AgentStarts),
        1 => any::<bool>().prop_map(Happening::DaemonAway),
        1 => any::<bool>().prop_map(Happening::RefuseArm),
        1 => any::<bool>().prop_map(Happening::JournalFails),
        1 => Just(Happening::Resync),
        1 => any::<bool>().prop_map(Happening::Profile),
        1 => Just(Happening::Restart),
        1 => Just(Happening::Leave),
        2 => any::<u64>().prop_map(Happening::Strange),
    ]
}

fn happen(world: &mut World, what: &Happening) {
    match what {
        Happening::Wait(ms) => world.advance(*ms),
        Happening::Net(net) => world.net = *net,
        Happening::Hold(command, true) => {
            world.hold.insert(command);
        }
        Happening::Hold(command, false) => {
            world.hold.remove(command);
        }
        Happening::Finish => world.finish_held(),
        Happening::FailHeld => {
            for (id, _, _) in std::mem::take(&mut world.held) {
                let failure = DriverFailure {
                    class: FailureClass::RetryHere,
                    reason: Reason::TimedOut,
                    message: "timed out".into(),
                };
                world.input(Input::Ended { id, result: CommandResult::Failed(failure) });
            }
        }
        Happening::Assign(name, kind) => {
            let name = NAMES[*name];
            match kind {
                0..=3 => world.assign(name, Action::Start),
                4 => world.assign(name, Action::Stop { timeout_ms: None }),
                5 => world.assign(name, Action::Restart),
                6 => world.assign(name, Action::Leave),
                7 => world.assign_to(name, "n2", Action::Start),
                8 | 9 => {
                    world.peer_open();
                    let fence = world.fence();
                    let (target_epoch, target_boot_id) = (fence.epoch, fence.boot_id);
                    world.assign_to(
                        name,
                        "n2",
                        Action::Migrate { target: own_node(), target_epoch, target_boot_id },
                    )
                }
                _ => {
                    world.peer_open();
                    let target = Action::Migrate {
                        target: "n2".into(),
                        target_epoch: Epoch(1),
                        target_boot_id: "peer-boot".into(),
                    };
                    world.assign(name, target)
                }
            };
        }
        Happening::Unassign(name) => {
            let key = world.keys.assignment(&NAMES[*name].into());
            if !world.state.get(&key).entries.is_empty() {
                world.delete(&key);
            }
        }
        Happening::Close => world.close(),
        Happening::Open => {
            if world.report().mode == ha_api_types::record::Mode::Registering {
                world.open();
            }
        }
        Happening::DeleteAlive => {
            if world.alive().is_some() {
                let key = world.keys.alive(&own_node());
                world.delete(&key);
            }
        }
        Happening::Exit(name, by_hand) => {
            let name = NAMES[*name];
            if let Some(copy) = world.copies.get_mut(name).filter(|copy| copy.running) {
                copy.running = false;
                let (uid, by_hand) = (format!("uid-{name}"), *by_hand);
                let event =
                    DriverEvent::Exited { name: name.into(), uid, message: "signal 9".into(), by_hand };
                world.input(Input::Driver(event));
            }
        }
        Happening::Appear(name) => {
            let name = NAMES[*name];
            let uid = format!("uid-{name}");
            world.input(Input::Driver(DriverEvent::Appeared { name: name.into(), uid }));
        }
        Happening::Stubborn(name, on) => {
            let copy = world.copies.entry(NAMES[*name].into()).or_default();
            (copy.stop_fails, copy.kill_fails) = (*on, *on);
        }
        Happening::Blind(name, on) => {
            world.copies.entry(NAMES[*name].into()).or_default().probe_unknown = *on;
        }
        Happening::FailStarts(name, count) => {
            world.copies.entry(NAMES[*name].into()).or_default().fail_starts = *count;
        }
        Happening::AgentDies => world.dead = true,
        Happening::AgentStarts => world.restart_agent("boot-1"),
        Happening::DaemonAway(away) => {
            if *away && world.daemon_up {
                world.lose_the_daemon();
            } else if !*away && !world.daemon_up {
                world.daemon_up = true;
                world.reconnect();
            }
        }
        Happening::RefuseArm(on) => world.refuse_arm = *on,
        Happening::JournalFails(on) => world.journal_fails = *on,
        Happening::Resync => {
            if world.net == Net::Up {
                world.sync();
            }
        }
        Happening::Profile(fast) => {
            let mut cluster = Cluster::new("default", ClusterSpec::default());
            if *fast {
                cluster.spec.timing.profile = ha_api_types::timing::Profile::Fast;
            }
            let key = world.keys.spec(Kind::Cluster, "default");
            world.write(&key, &cluster);
        }
        Happening::Restart => world.input(Input::Shutdown(Shutdown::Restart)),
        Happening::Leave => world.input(Input::Shutdown(Shutdown::Leave(Leave::Reboot))),
        Happening::Disarm(on) => {
            let disarmed = on.then_some(ha_api_types::cluster::Disarmed::Freeze);
            let cluster = Cluster::new("default", ClusterSpec { disarmed, ..ClusterSpec::default() });
            let key = world.keys.spec(Kind::Cluster, "default");
            world.write(&key, &cluster);
            let status = ClusterStatus { disarm: disarmed, ..ClusterStatus::default() };
            let key = world.keys.status(Kind::Cluster, "default");
            world.write(&key, &status);
        }
        Happening::Peer(name, what) => {
            let name = NAMES[*name];
            // An assignment that this version cannot read names no action.
            let found = world.state.get(&world.keys.assignment(&name.into())).entries;
            let assignment =
                found.first().and_then(|entry| serde_json::from_slice::<Assignment>(&entry.value).ok());
            let uid = assignment.map(|assignment| assignment.action_uid);
            let (phase, reason) = PEER_SAYS[*what];
            world.peer_says(name, &uid.unwrap_or_default(), phase, reason);
        }
        Happening::Strange(seed) => strange(world, *seed),
    }
}

/// Injects answers without a question, and etcd contents of another version.
fn strange(world: &mut World, seed: u64) {
    let id = seed >> 8;
    match seed % 10 {
        0 => world.input(Input::Committed { id: CommitId(id), outcome: Outcome::Applied(Revision(1)) }),
        1 => world.input(Input::Ended { id: CommandId(id), result: CommandResult::Done }),
        2 => world.input(Input::JournalWritten { id: JournalWriteId(id), result: Ok(()) }),
        3 => world.input(Input::Read { id: ReadId(id), result: Ok((Vec::new(), Revision(0))) }),
        4 => world.input(Input::LeaseGranted { id: LeaseRequestId(id), result: Err("no".into()) }),
        5 => world
            .input(Input::LeaseKept { lease: i64::try_from(id % 5).expect("small"), kept: LeaseKept::Gone }),
        6 => {
            let key = world.keys.assignment(&NAMES[usize::try_from(id % 3).expect("small")].into());
            world.write(&key, &serde_json::json!({"action": {"kind": "Teleport"}}));
        }
        7 => world.input(Input::Changed {
            revision: Revision(1),
            changes: vec![Change::Delete { key: world.keys.fence(&own_node()), revision: Revision(1) }],
        }),
        8 => world.input(Input::Facts { drivers: vec!["exec".into()], hardware: Hardware::default() }),
        _ => world.input(Input::Watchdog(WatchdogNews::Answered {
            id: WatchdogRequestId(id),
            refusal: Some(crate::watchdog::protocol::Refusal::NotArmed),
            status: world.daemon.status(),
        })),
    }
}

/// Returns the configuration: a hundred cases per property, or the number in `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    ProptestConfig { cases, max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_happens_the_rules_hold(happenings in proptest::collection::vec(happening(), 1..60)) {
        let mut world = World::active();
        world.resource("web");
        world.resource_with("mail", |spec| spec.priority = 5);
        world.resource_with("twice", |spec| spec.exclusive = false);
        for what in &happenings {
            happen(&mut world, what);
            if world.reset {
                return Ok(());
            }
            if world.exit.is_some() {
                world.dead = true;
            }
        }
        // In every case: once the node is isolated long enough, no exclusive service runs, or the machine was reset.
        world.net = Net::Down;
        world.advance(60_000);
    }

    #[test]
    fn whatever_happened_it_works_again(happenings in proptest::collection::vec(happening(), 1..40)) {
        let mut world = World::active();
        world.resource("web");
        world.resource_with("mail", |spec| spec.priority = 5);
        world.resource_with("twice", |spec| spec.exclusive = false);
        for what in &happenings {
            happen(&mut world, what);
            if world.reset {
                return Ok(());
            }
        }
        // All faults are cleared, an agent is started if there is none, and the leader acts.
        world.mend();
        for _ in 0..4 {
            world.advance(35_000);
            if world.reset {
                return Ok(());
            }
            if world.exit.is_some() || world.dead {
                world.restart_agent("boot-1");
                world.advance(5_000);
            }
            if world.report().mode == ha_api_types::record::Mode::Registering {
                world.open();
                world.advance(5_000);
            }
        }
        for name in NAMES {
            world.assign(name, Action::Start);
        }
        world.advance(60_000);
        if !world.reset {
            for name in NAMES {
                prop_assert_eq!(
                    world.service(name).phase, Phase::Running,
                    "{} {:?} {:?} {:#?}", name, world.core.summary(&world.now()), world.core.waiting(&world.now()), world.logs
                );
                prop_assert!(world.copies[name].running);
            }
        }
    }
}

impl World {
    fn mend(&mut self) {
        self.net = Net::Up;
        self.hold.clear();
        let key = self.keys.spec(Kind::Cluster, "default");
        self.write(&key, &Cluster::new("default", ClusterSpec::default()));
        self.refuse_arm = false;
        self.journal_fails = false;
        for copy in self.copies.values_mut() {
            (copy.stop_fails, copy.kill_fails, copy.probe_unknown, copy.fail_starts) =
                (false, false, false, 0);
        }
        if self.daemon_up {
            self.finish_held();
        } else {
            self.daemon_up = true;
            self.reconnect();
            self.finish_held();
        }
        self.sync();
    }
}
