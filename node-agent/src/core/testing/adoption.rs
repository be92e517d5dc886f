//! Tests of FENCING 6 and 7: taking over after a restart, adopting, probing.

use super::*;
use ha_api_types::id::{ActionUid, Epoch};
use ha_api_types::record::Mode;
use ha_api_types::resource::RequestedState;

#[test]
fn restarted_agent_heartbeats_before_probing_and_adopting() {
    let mut world = World::running();
    world.advance(2_000);
    world.executed.clear();
    world.commits.clear();
    world.commands_to_hold.insert("probe");
    world.restart_agent("boot-1");
    world.advance(100);
    assert_eq!(world.alive().map(|alive| alive.instance), Some(world.config.instance.clone()));
    let created: Vec<bool> = world
        .commits
        .iter()
        .filter_map(|(transaction, _)| match transaction.writes().get(&world.keys.alive(&own_node()))? {
            ha_store::Write::Put { .. } => Some(true),
            ha_store::Write::Delete => Some(false),
        })
        .collect();
    assert_eq!(created[..2], [false, true], "deleted, then created");
    assert!(world.node_report().armed, "the watchdog stayed armed");
    world.commands_to_hold.clear();
    world.finish_held_commands();
    world.advance(10_000);
    assert_eq!(world.fence().epoch, Epoch(1));
    assert_eq!((world.count_commands("web", "stop"), world.count_commands("web", "kill")), (0, 0));
    assert_eq!(world.copies["web"].starts, 1);
    assert_eq!(world.service_report("web").phase, Phase::Running);
}

#[test]
fn service_crash_during_agent_restart_restarts_service() {
    let mut world = World::running();
    world.copies.get_mut("web").expect("there").running = false;
    world.restart_agent("boot-1");
    world.advance(1_000);
    assert!(world.copies["web"].running);
    assert_eq!(world.service_report("web").restarts, 1);
}

#[test]
fn killed_action_stays_spent_after_agent_restart() {
    let mut world = World::running();
    let uid = world.service_report("web").action_uid;
    world.network = NetworkFault::Down;
    world.advance(10_000);
    assert!(!world.copies["web"].running);
    assert_eq!(world.service_report("web").phase, Phase::Running, "the agent could not report the end");
    world.network = NetworkFault::Up;
    world.restart_agent("boot-1");
    world.advance(3_000);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").action_uid),
        (Phase::Stopped, uid)
    );
    assert_eq!(world.copies["web"].starts, 1);
}

#[test]
fn an_agent_without_its_journal_registers_again() {
    let mut world = World::running();
    world.journal = Journal::default();
    world.restart_agent("boot-1");
    world.advance(1_000);
    assert!(!world.copies["web"].running);
    assert_eq!(world.node_report().mode, Mode::Registering);
}

#[test]
fn foreign_copy_is_reported_with_its_definition() {
    for restarts in [false, true] {
        let mut world = World::running();
        let definition = world.definition("web");
        // The state after `hactl restore`: the spec is that of the backup, and assignments and reports are deleted.
        world.create_resource_with("web", |spec| {
            spec.driver.simulated.as_mut().expect("simulated").identity = "other".to_owned();
        });
        for key in
            [world.keys.assignment(&"web".into()), world.keys.service_report(&own_node(), &"web".into())]
        {
            world.delete(&key);
        }
        world.advance(3_000);
        if restarts {
            world.restart_agent("boot-1");
            world.advance(3_000);
        }
        let report = world.service_report("web");
        assert_eq!((report.phase, report.action_uid), (Phase::ProbedRunning, None));
        assert_eq!(report.identity, definition.identity());
        assert_eq!(report.definition.as_deref(), Some(&definition));
        assert!(world.copies["web"].running);
        world.assign("web", Action::Stop { timeout_ms: None });
        world.advance(3_000);
        assert!(!world.copies["web"].running);
        assert_eq!(
            (world.service_report("web").phase, world.service_report("web").definition),
            (Phase::Stopped, None)
        );
    }
}

#[test]
fn an_agent_restarted_between_permit_and_start_continues() {
    let mut world = World::active();
    world.create_resource("web");
    world.assign("web", Action::Start);
    let mut world = World::active();
    world.create_resource("web");
    let uid = world.assign_but_crash_before_the_journal();
    world.restart_agent("boot-1");
    world.advance(2_000);
    assert_eq!(world.count_commands("web", "start"), 1);
    assert_eq!(
        (world.service_report("web").phase, world.service_report("web").action_uid),
        (Phase::Running, Some(uid))
    );
}

impl World {
    fn assign_but_crash_before_the_journal(&mut self) -> ActionUid {
        let journal = self.journal.clone();
        self.commands_to_hold.insert("start");
        let uid = self.assign("web", Action::Start);
        self.advance(1_000);
        self.commands_to_hold.clear();
        self.executed.clear();
        // The permit stays. Journal entries that the process wrote after the permit are removed.
        self.journal = Journal { services: journal.services, ..self.journal.clone() };
        uid
    }
}

#[test]
fn unassigned_copy_is_reported_then_adopted() {
    let mut world = World::found_running();
    world.assign("web", Action::Start);
    world.advance(1_000);
    assert_eq!(world.service_report("web").phase, Phase::Running);
    assert_eq!(world.copies["web"].starts, 0, "adopted");
}

#[test]
fn each_uid_is_probed_once_unless_ignored() {
    let mut world = World::active();
    world.create_resource("web");
    world.advance(1_000);
    assert_eq!(world.service_report("web").phase, Phase::ProbedStopped);
    let probes = world.count_commands("web", "probe");
    world.advance(30_000);
    assert_eq!(world.count_commands("web", "probe"), probes);
    world.create_resource_with("web", |spec| spec.state = RequestedState::Ignored);
    world.advance(1_000);
    assert_eq!(world.value::<ServiceReport>(&world.keys.service_report(&own_node(), &"web".into())), None);
    assert_eq!(world.count_commands("web", "probe"), probes, "an Ignored service is not probed");
    world.copies.entry("web".into()).or_default().running = true;
    world.create_resource("web");
    world.advance(1_000);
    assert_eq!(world.service_report("web").phase, Phase::ProbedRunning);
    assert_eq!(world.service_report("web").probed_generation, 3);
}

#[test]
fn an_inconclusive_probe_is_reported_and_repeated() {
    let mut world = World::active();
    world.copies.entry("web".into()).or_default().probe_unknown = true;
    world.create_resource("web");
    world.advance(1_000);
    assert_eq!(world.service_report("web").phase, Phase::ProbedUnknown);
    assert_eq!(world.service_report("web").message, "cannot tell");
    world.copies.get_mut("web").expect("there").probe_unknown = false;
    world.advance(31_000);
    assert_eq!(world.service_report("web").phase, Phase::ProbedStopped);
}

#[test]
fn a_recreated_resource_is_probed_for_its_own_uid() {
    let mut world = World::running();
    world.delete(&world.keys.assignment(&"web".into()));
    let key = world.keys.spec(Kind::Resource, "web");
    let mut resource: Resource = world.value(&key).expect("there");
    resource.metadata.uid = "uid-new".into();
    world.write(&key, &resource);
    world.advance(1_000);
    let report = world.service_report("web");
    assert_eq!((report.uid.as_str(), report.phase), ("uid-new", Phase::ProbedRunning));
}
