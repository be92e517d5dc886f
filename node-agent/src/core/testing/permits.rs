//! Tests of FENCING 6: start permits, their guards, and actions that begin only once.

use super::*;
use ha_api_types::etcd_access::AgentSelector;
use ha_api_types::id::Epoch;
use ha_api_types::reason::Reason;

/// Checks one case: a change before the assignment, and whether the service may start.
fn check(case: &str, prepare: impl FnOnce(&mut World), starts: bool) {
    let mut world = World::active();
    world.create_resource("web");
    prepare(&mut world);
    world.assign("web", Action::Start);
    world.advance(2_000);
    assert_eq!(world.copies.get("web").is_some_and(|copy| copy.running), starts, "{case}: {:?}", world.logs);
}

#[test]
fn a_start_needs_every_precondition() {
    check("all is well", |_| {}, true);
    check("the watchdog cannot be armed", |world| world.refuse_arm = true, false);
    check("no daemon", World::disconnect_watchdog_daemon, false);
    check("the journal cannot be written", |world| world.journal_fails = true, false);
    check("etcd is unreachable", |world| world.network = NetworkFault::Down, false);
    check("the epoch is closed", World::close_epoch, false);
}

#[test]
fn a_node_that_is_ordered_to_verify_starts_nothing() {
    let mut world = World::active();
    world.create_resource("web");
    world.create_resource("other");
    world.advance(1_000);
    let order = world.set_requires_probes(true);
    world.assign("web", Action::Start);
    world.advance(2_000);
    assert_eq!(world.count_commands("web", "start"), 0, "{:?}", world.logs);
    assert_eq!(world.service_report("other").probed_fence, order);
    world.set_requires_probes(false);
    world.advance(2_000);
    assert!(world.copies["web"].running, "{:?}", world.core.wait_messages(&world.now()));
}

#[test]
fn verification_removes_copies_assigned_elsewhere() {
    let mut world = World::active();
    world.create_resource("web");
    world.assign_to("web", "n2", Action::Start);
    world.advance(1_000);
    world.copies.entry("web".to_owned()).or_default().running = true;
    let order = world.set_requires_probes(true);
    world.advance(2_000);
    assert!(!world.copies["web"].running, "{:?}", world.logs);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.probed_fence), (Phase::ProbedStopped, order));
}

#[test]
fn permit_is_repeated_after_pending_disarm() {
    let mut world = World::running();
    world.hold_heartbeats = true;
    world.assign("web", Action::Stop { timeout_ms: None });
    // A heartbeat that withdraws *armed* from the idle node is delayed; the permit would be applied before it.
    world.advance(1_000);
    assert!(world.node_report().armed && !world.copies["web"].running, "{:?}", world.logs);
    world.assign("web", Action::Start);
    world.advance(100);
    assert_eq!(world.count_commands("web", "start"), 1, "{:?}", world.logs);
    world.deliver_heartbeats();
    world.advance(1_000);
    assert_eq!(world.count_commands("web", "start"), 2, "{:?}", world.core.wait_messages(&world.now()));
    assert!(world.node_report().armed && world.copies["web"].running);
}

#[test]
fn without_watchdog_only_nonexclusive_services_start() {
    let mut world = World::active();
    world.refuse_arm = true;
    world.create_resource("web");
    world.create_resource_with("copy", |spec| spec.exclusive = false);
    let uid = world.assign("web", Action::Start);
    world.assign("copy", Action::Start);
    world.advance(3_000);
    assert!(world.copies["copy"].running);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.reason), (Phase::Failed, Reason::WatchdogFailed));
    assert_eq!(report.failure, Some(FailureClass::TryElsewhere));
    assert_eq!(report.action_uid, Some(uid));
    assert_eq!(world.count_commands("web", "start"), 0);
    assert!(!world.node_report().armed);
}

#[test]
fn an_assignment_of_another_epoch_or_boot_starts_nothing() {
    for (epoch, boot_id) in [(2, "boot-1"), (0, "boot-1"), (1, "boot-0")] {
        let mut world = World::active();
        world.create_resource("web");
        let assignment = Assignment {
            node: own_node(),
            epoch: Epoch(epoch),
            boot_id: boot_id.into(),
            action_uid: "7-1".into(),
            action: Action::Start,
            definition: world.definition("web"),
            replacement: None,
            in_place: None,
            accepts_external_stop: false,
            source_end_revision: None,
        };
        world.write(&world.keys.assignment(&"web".into()), &assignment);
        world.advance(3_000);
        assert_eq!(world.count_commands("web", "start"), 0, "{epoch} {boot_id}");
    }
}

#[test]
fn permit_guards_every_key_of_protocol() {
    let world = World::running();
    let key = world.keys.service_report(&own_node(), &"web".into());
    let (permit, _) = world
        .commits
        .iter()
        .find(|(transaction, _)| transaction.guards().contains_key(&world.keys.assignment(&"web".into())))
        .expect("a permit");
    assert!(permit.writes_key(&key));
    let guarded: Vec<&String> = permit.guards().keys().collect();
    let mut expected = [
        world.keys.alive(&own_node()),
        world.keys.assignment(&"web".into()),
        world.keys.fence(&own_node()),
        world.keys.node_report(&own_node()),
        key,
    ];
    expected.sort();
    assert_eq!(guarded, expected.iter().collect::<Vec<_>>());
}

#[test]
fn permit_for_changed_assignment_conflicts() {
    let mut world = World::active();
    world.create_resource("web");
    world.assign("web", Action::Start);
    let mut world = World::active();
    world.create_resource("web");
    // The leader's later assignment is in etcd, but not yet in the agent's view.
    world.network = NetworkFault::Down;
    world.assign("web", Action::Start);
    world.network = NetworkFault::Up;
    let first_assignment = world.value::<Assignment>(&world.keys.assignment(&"web".into())).expect("there");
    world.deliver_assignment_late(&first_assignment);
    assert_eq!(world.count_commands("web", "start"), 0);
    assert_eq!(world.service_report("web").phase, Phase::Stopped);
}

impl World {
    /// Delivers an assignment whose successor (Stop) is already in etcd.
    fn deliver_assignment_late(&mut self, first_assignment: &Assignment) {
        let key = self.keys.assignment(&"web".into());
        let entry = self.state.get(&key).entries[0].clone();
        let stop = Assignment {
            action: Action::Stop { timeout_ms: None },
            action_uid: "7-99".into(),
            ..first_assignment.clone()
        };
        self.write(&key, &stop);
        self.input(Input::Changed { revision: entry.mod_revision, changes: vec![Change::Put(entry)] });
        self.advance(3_000);
    }
}

#[test]
fn unknown_permit_outcome_is_read_again() {
    let mut world = World::active();
    world.create_resource("one");
    world.assign("one", Action::Start);
    world.advance(1_000);
    world.create_resource("web");
    // From here on, probes do not end.
    world.commands_to_hold.insert("probe");
    world.assign("web", Action::Start);
    world.advance(2_000);
    assert!(world.copies["web"].running);
    assert_eq!(world.count_commands("web", "start"), 1);
}

#[test]
fn lost_permit_commit_is_retried() {
    let mut world = World::active();
    world.create_resource("one");
    world.assign("one", Action::Start);
    world.advance(1_000);
    for net in [NetworkFault::Down, NetworkFault::AnswersLost] {
        let name = if net == NetworkFault::Down { "down" } else { "deaf" };
        world.create_resource(name);
        world.assign_while_offline(name);
        world.network = net;
        world.deliver_assignments();
        world.advance(1_500);
        assert_eq!(world.count_commands(name, "start"), 0, "{name}");
        world.network = NetworkFault::Up;
        world.advance(3_000);
        assert_eq!(world.count_commands(name, "start"), 1, "{name} {:?}", world.logs);
        assert_eq!(world.service_report(name).phase, Phase::Running);
    }
}

impl World {
    fn assign_while_offline(&mut self, name: &str) {
        let net = std::mem::replace(&mut self.network, NetworkFault::Down);
        self.assign(name, Action::Start);
        self.network = net;
    }

    /// Delivers watch events while commits do not reach etcd.
    fn deliver_assignments(&mut self) {
        let revision = self.state.revision();
        let reading = self.state.list(&self.keys.assignments());
        self.input(Input::Synced {
            selector: AgentSelector::Assignments,
            entries: reading.entries,
            revision,
        });
    }
}

#[test]
fn an_action_begins_once_despite_agent_restart() {
    let mut world = World::active();
    world.create_resource("web");
    world.commands_to_hold.insert("start");
    let uid = world.assign("web", Action::Start);
    world.advance(1_000);
    assert_eq!(world.held_commands.len(), 1, "the start is in progress");
    world.restart_agent("boot-1");
    world.commands_to_hold.clear();
    world.advance(3_000);
    assert_eq!(world.count_commands("web", "start"), 1, "not begun again");
    let report = world.service_report("web");
    assert_eq!(
        (report.phase, report.reason, report.action_uid),
        (Phase::Failed, Reason::Interrupted, Some(uid))
    );
    assert!(world.count_commands("web", "stop") > 0, "cleaned up first");
}

#[test]
fn an_action_interrupted_after_start_reports_running() {
    let mut world = World::active();
    world.create_resource("web");
    world.commands_to_hold.insert("start");
    world.assign("web", Action::Start);
    world.advance(1_000);
    world.copies.entry("web".into()).or_default().running = true;
    world.commands_to_hold.clear();
    world.restart_agent("boot-1");
    world.advance(3_000);
    assert_eq!(world.service_report("web").phase, Phase::Running);
    assert!(world.copies["web"].running);
}

#[test]
fn unwritable_journal_fails_the_start() {
    let mut world = World::active();
    world.create_resource("web");
    world.journal_fails = true;
    world.assign("web", Action::Start);
    world.advance(2_000);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.reason), (Phase::Failed, Reason::JournalFailed));
    assert_eq!(report.failure, Some(FailureClass::TryElsewhere));
    assert_eq!(world.count_commands("web", "start"), 0);
    world.journal_fails = false;
    world.advance(6_000);
    world.assign("web", Action::Start);
    world.advance(2_000);
    assert!(world.copies["web"].running);
}

/// R6.18: the permit is committed in time, but the agent receives the answer only after D − Ts.
#[test]
fn nothing_starts_at_or_after_self_fence_margin() {
    let mut world = World::active();
    world.create_resource("one");
    world.assign("one", Action::Start);
    world.create_resource("web");
    world.advance(1_500);
    world.network = NetworkFault::AnswersLost;
    world.hold_reads = true;
    let uid = world.assign("web", Action::Start);
    world.deliver_assignments();
    let report = world.service_report("web");
    assert_eq!((report.phase, report.action_uid), (Phase::Starting, Some(uid)), "permitted");
    let t = world.core.active_timings;
    world.advance(t.heartbeat_valid_ms - t.stop_margin_ms);
    world.answer_held_reads();
    world.advance(2_000);
    assert_eq!(world.count_commands("web", "start"), 0);
}

#[test]
fn start_queue_respects_priority_and_worker_limit() {
    let mut world = World::active();
    world.commands_to_hold.insert("start");
    for name in ["w1", "w2", "w3", "w4"] {
        world.create_resource(name);
        world.assign(name, Action::Start);
    }
    world.advance(1_000);
    assert_eq!(world.held_commands.len(), 4);
    for (name, priority) in [("a", 0), ("b", 5), ("c", 1), ("d", 9), ("e", 3), ("f", 7)] {
        world.create_resource_with(name, |spec| spec.priority = priority);
        world.assign(name, Action::Start);
    }
    world.advance(2_000);
    assert_eq!(world.held_commands.len(), 4, "maxWorkers");
    world.finish_held_commands();
    let running_commands: Vec<&str> =
        world.held_commands.iter().map(|(_, _, service)| service.name.as_str()).collect();
    assert_eq!(running_commands, ["d", "f", "b", "e"]);
    world.finish_held_commands();
    world.finish_held_commands();
    world.advance(100);
    assert_eq!(world.running_copies(), 10);
}

#[test]
fn armed_watchdog_with_refused_timeout_remains_usable() {
    let mut world = World::running();
    world.refuse_arm = true;
    let mut cluster =
        ha_api_types::cluster::Cluster::new("default", ha_api_types::cluster::ClusterSpec::default());
    cluster.spec.timing.watchdog_timeout_seconds = Some(3.0);
    world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
    world.advance(3_000);
    assert!(!world.node_report().watchdog.problem.is_empty(), "the problem is reported");
    world.create_resource("mail");
    world.assign("mail", Action::Start);
    world.advance(2_000);
    assert_eq!(world.service_report("mail").phase, Phase::Running);
    cluster.spec.timing.watchdog_timeout_seconds = None;
    world.write(&world.keys.spec(Kind::Cluster, "default"), &cluster);
    world.advance(8_000);
    assert_eq!(world.node_report().watchdog.problem, "");
}

#[test]
fn a_repaired_watchdog_is_detected_without_a_waiting_service() {
    let mut world = World::active();
    world.refuse_arm = true;
    world.create_resource("web");
    world.assign("web", Action::Start);
    world.advance(2_000);
    assert_eq!(world.service_report("web").phase, Phase::Failed);
    assert!(!world.node_report().watchdog.problem.is_empty());
    world.refuse_arm = false;
    world.advance(12_000);
    assert_eq!(world.node_report().watchdog.problem, "");
    assert_eq!(world.fires_at_ms, None, "and released again");
    world.assign("web", Action::Start);
    world.advance(2_000);
    assert!(world.copies["web"].running);
}
