//! Tests of registration (FENCING 3): the services that stop first, the guards, and the accepted request.

use super::*;
use ha_api_types::etcd_access::AgentSelector;
use ha_api_types::id::Epoch;
use ha_api_types::kind::Kind;
use ha_api_types::node::{Node, NodeSpec};
use ha_api_types::record::Mode;

#[test]
fn new_node_registers_only_without_existing_keys() {
    let mut world = World::new();
    let (transaction, outcome) = world.commits.last().expect("a request").clone();
    assert!(outcome.applied().is_some());
    assert_eq!(transaction.guards()[&world.keys.fence(&own_node())], Guard::Absent);
    assert_eq!(transaction.guards()[&world.keys.node_report(&own_node())], Guard::Absent);
    assert_eq!((world.node_report().mode, world.node_report().armed), (Mode::Registering, false));
    assert_eq!(world.alive(), None);

    // An epoch that was opened for another request does not belong to this agent.
    let request = world.state.get(&world.keys.node_report(&own_node())).entries[0].mod_revision;
    let fence = Fence {
        epoch: Epoch(1),
        machine_id: "machine-1".into(),
        boot_id: "boot-1".into(),
        request: Some(request - 1),
        state: FenceState::Open,
        ..Fence::default()
    };
    world.write(&world.keys.fence(&own_node()), &fence);
    world.advance(3_000);
    assert_eq!(world.alive(), None);

    world.open_epoch();
    assert_eq!(world.alive().map(|alive| alive.instance), Some("i1".into()));
    assert_eq!((world.node_report().mode, world.node_report().epoch), (Mode::Active, Epoch(2)));
    let (transaction, _) = world
        .commits
        .iter()
        .rev()
        .find(|(transaction, _)| transaction.writes_key(&world.keys.alive(&own_node())))
        .expect("created")
        .clone();
    assert_eq!(transaction.guards()[&world.keys.node_report(&own_node())], Guard::Unchanged(request));
}

/// FENCING R3.18: the leader does not register a deleted node, and the agent's status names the command.
#[test]
fn agent_of_a_deleted_node_shows_why_it_waits() {
    let mut world = World::new();
    let key = world.keys.spec(Kind::Node, &own_node());
    let activity = |world: &World| world.core.summary(&world.now()).activity;
    assert_eq!(activity(&world), "waiting for the leader to register this node", "a new node");
    let closed = Fence { epoch: Epoch(2), state: FenceState::Closed, ..Fence::default() };
    world.write(&world.keys.fence(&own_node()), &closed);
    world.advance(1_000);
    assert!(activity(&world).contains("hactl create node"), "{}", activity(&world));
    world.write(&key, &Node::new(&own_node(), NodeSpec::default()));
    world.advance(1_000);
    assert_eq!(activity(&world), "waiting for the leader to register this node");
}

#[test]
fn registration_is_repeated_if_epoch_was_closed() {
    let mut world = World::new();
    let request =
        |world: &World| world.state.get(&world.keys.node_report(&own_node())).entries[0].mod_revision;
    let first_request = request(&world);
    let fence = Fence {
        epoch: Epoch(2),
        machine_id: "machine-1".into(),
        boot_id: "boot-1".into(),
        request: Some(first_request),
        state: FenceState::Closed,
        ..Fence::default()
    };
    world.write(&world.keys.fence(&own_node()), &fence);
    world.advance(3_000);
    assert!(request(&world) > first_request, "the leader admits no request twice");
    assert_eq!(world.node_report().mode, Mode::Registering);
    world.open_epoch();
    assert_eq!(world.alive().map(|alive| alive.instance), Some("i1".into()));
}

#[test]
fn another_boot_stops_services_before_registering() {
    let mut world = World::running();
    world.commands_to_hold.insert("probe");
    world.restart_agent("boot-2");
    world.advance(1_000);
    assert_eq!(world.node_report().mode, Mode::Active, "nothing is asked before everything is verified");
    world.commands_to_hold.clear();
    world.finish_held_commands();
    world.advance(10);
    assert!(!world.copies["web"].running);
    assert_eq!(
        (world.node_report().mode, world.node_report().boot_id.as_str()),
        (Mode::Registering, "boot-2")
    );
    world.open_epoch();
    world.advance(3_000);
    // R3.20: the heartbeat of the earlier boot is deleted in a transaction of its own.
    let alive = world.keys.alive(&own_node());
    let writes = world.commits.iter().filter_map(|(transaction, _)| transaction.writes().get(&alive));
    let is_put: Vec<bool> = writes.map(|write| matches!(write, ha_store::Write::Put { .. })).collect();
    let deleted = is_put.iter().rposition(|is_put| !is_put).expect("the old key is deleted");
    assert!(is_put[..deleted].iter().all(|is_put| *is_put) && is_put.get(deleted + 1) == Some(&true));
    assert_eq!(world.alive().map(|alive| alive.epoch), Some(Epoch(2)));
    assert!(!world.copies["web"].running, "the assignment of the earlier epoch starts nothing");
    assert_eq!(world.copies["web"].starts, 1);
}

#[test]
fn idle_node_registers_with_unstopped_services() {
    let mut world = World::running();
    world.copies.get_mut("web").expect("there").kill_fails = true;
    // The machine has rebooted, so its watchdog is idle.
    world.daemon = daemon::Core::new(protocol::Privileges::default());
    world.fires_at_ms = None;
    world.restart_agent("boot-2");
    world.advance(60_000);
    assert_eq!(world.node_report().mode, Mode::Registering);
    assert_eq!(world.node_report().not_stopped.len(), 1);
    world.open_epoch();
    world.advance(3_000);
    assert_eq!(world.service_report("web").phase, Phase::StopFailed);
    assert!(world.node_report().armed, "an error after a failed stop is active");
}

#[test]
fn unverified_armed_node_is_reset() {
    let mut world = World::running();
    world.copies.get_mut("web").expect("there").kill_fails = true;
    world.close_epoch();
    world.advance(20_000);
    assert_eq!(world.node_report().mode, Mode::Active, "the agent did not request an epoch");
    assert!(world.was_reset);
}

#[test]
fn resource_created_during_clearing_is_probed() {
    let mut world = World::running();
    world.commands_to_hold.insert("kill");
    world.close_epoch();
    world.advance(500);
    world.create_resource("late");
    world.advance(500);
    world.commands_to_hold.clear();
    world.finish_held_commands();
    world.advance(2_000);
    assert!(world.count_commands("late", "probe") > 0);
    assert_eq!(world.node_report().mode, Mode::Registering, "{:?}", world.core.wait_messages(&world.now()));
}

#[test]
fn registration_with_unknown_outcome_is_adopted() {
    let mut world = World::new();
    world.open_epoch();
    world.advance(1_000);
    world.close_epoch();
    world.network = NetworkFault::AnswersLost;
    let entry = world.state.get(&world.keys.fence(&own_node())).entries[0].clone();
    let revision = entry.mod_revision;
    world.input(Input::Changed { changes: vec![Change::Put(entry)], revision });
    let stored_revision = world.state.get(&world.keys.node_report(&own_node())).entries[0].mod_revision;
    assert_eq!(world.node_report().mode, Mode::Registering, "applied, and the answer is lost");
    world.network = NetworkFault::Up;
    world.advance(8_000);
    let entry = world.state.get(&world.keys.node_report(&own_node())).entries[0].clone();
    assert_eq!(entry.mod_revision, stored_revision, "and not asked again");
    world.open_epoch();
    world.advance(1_000);
    assert_eq!(world.node_report().mode, Mode::Active);
}

#[test]
fn closed_epoch_stops_exclusive_services_before_registration() {
    let mut world = World::running();
    world.create_resource_with("copy", |spec| spec.exclusive = false);
    world.assign("copy", Action::Start);
    world.advance(1_000);
    assert!(world.copies["copy"].running);
    world.close_epoch();
    world.advance(2_000);
    assert!(!world.copies["web"].running);
    assert!(world.copies["copy"].running, "a service with exclusive: false is not stopped");
    assert_eq!((world.node_report().mode, world.node_report().armed), (Mode::Registering, false));
    assert!(world.fires_at_ms.is_none(), "released once armed: false is committed");
    world.advance(60_000);
    assert!(!world.was_reset);
}

#[test]
fn registration_stops_copies_of_every_known_definition() {
    let mut world = World::running();
    // The situation after a restore: the spec names another identity, which also runs here.
    world.create_resource_with("web", |spec| {
        if let Some(simulated) = &mut spec.driver.simulated {
            simulated.identity = "other".into();
        }
    });
    world.copies.entry("other".into()).or_default().running = true;
    world.close_epoch();
    world.advance(5_000);
    assert!(!world.copies["web"].running && !world.copies["other"].running, "{:#?}", world.logs);
    assert_eq!(world.node_report().mode, Mode::Registering);
}

#[test]
fn another_machine_with_same_name_waits() {
    let mut world = World::running();
    world.config.machine_id = "machine-2".into();
    world.config.boot_id = "boot-9".into();
    world.config.instance = "other".into();
    let mut second_core = AgentCore::new(world.config.clone(), Journal::default());
    let now = world.now();
    for selector in AgentSelector::ALL {
        let reading = world.state.list(&selector.key_or_prefix(&world.keys, &own_node()));
        second_core
            .handle(&now, Input::Synced { selector, entries: reading.entries, revision: reading.revision });
    }
    let mut commits = 0;
    for _ in 0..50 {
        let mut answers = Vec::new();
        while let Some(effect) = second_core.poll_effect() {
            match effect {
                Effect::Commit { .. } => commits += 1,
                Effect::Read { id, keys } => {
                    let entries = keys.iter().flat_map(|key| world.state.get(key).entries).collect();
                    answers.push(Input::Read { id, result: Ok((entries, world.state.revision())) });
                }
                Effect::Run { id, .. } => {
                    answers.push(Input::Ended { id, result: CommandResult::Observed(Observed::NotRunning) });
                }
                Effect::Refuse { id, result } => answers.push(Input::Ended { id, result }),
                Effect::GrantLease { .. }
                | Effect::KeepAlive(_)
                | Effect::WriteJournal { .. }
                | Effect::Cancel(_)
                | Effect::Watchdog { .. }
                | Effect::ReadUsage { .. }
                | Effect::Event(_)
                | Effect::Log { .. }
                | Effect::RequestHold { .. }
                | Effect::Exit(_) => {}
            }
        }
        for answer in answers {
            second_core.handle(&now, answer);
        }
    }
    assert_eq!(commits, 0);
}

#[test]
fn closed_registration_is_requested_again() {
    let mut world = World::new();
    let request = world.state.get(&world.keys.node_report(&own_node())).entries[0].mod_revision;
    let fence = Fence {
        epoch: Epoch(2),
        machine_id: "machine-1".into(),
        boot_id: "boot-1".into(),
        request: Some(request),
        state: FenceState::Closed,
        ..Fence::default()
    };
    world.write(&world.keys.fence(&own_node()), &fence);
    world.advance(3_000);
    let new_request = world.state.get(&world.keys.node_report(&own_node())).entries[0].mod_revision;
    assert!(new_request > request, "the leader never opens an epoch for the same request twice");
    assert_eq!(world.node_report().mode, Mode::Registering);
}

#[test]
fn overwritten_registration_is_repeated_after_probing() {
    let mut world = World::running();
    world.close_epoch();
    world.advance(1_000);
    assert_eq!(world.node_report().mode, Mode::Registering);
    // Another process of this machine, unknown to this one, starts the service and reports that.
    world.copies.get_mut("web").expect("there").running = true;
    let report = NodeReport { instance: "other".into(), mode: Mode::Active, ..world.node_report() };
    world.write(&world.keys.node_report(&own_node()), &report);
    world.advance(3_000);
    assert_eq!((world.node_report().mode, world.node_report().instance.as_str()), (Mode::Registering, "i1"));
    assert!(!world.copies["web"].running, "{:?}", world.logs);
}
