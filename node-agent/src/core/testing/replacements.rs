//! Tests of the replacement of a running service's secondary: in parallel to the service, begun once, always answered.

use super::*;
use ha_api_types::id::ActionUid;
use ha_api_types::reason::Reason;
use ha_api_types::record::ReplacementReport;

const REPLACE_HOOK_NAME: &str = "replace-secondary";

impl World {
    fn assignment(&self, name: &str) -> Assignment {
        self.value(&self.keys.assignment(&name.into())).expect("an assignment")
    }

    /// Requests the replacement in addition to the service's action, as the leader does.
    fn assign_replacement(&mut self, replacement: &Replacement) {
        let assignment = Assignment { replacement: Some(replacement.clone()), ..self.assignment("web") };
        self.write(&self.keys.assignment(&"web".into()), &assignment);
        self.deliver();
    }

    fn replacement(&self) -> Replacement {
        Replacement {
            uid: "7-90".into(),
            current_secondary: Some("n2".into()),
            node: "n3".into(),
            definition: self.definition("web"),
            is_canceled: false,
        }
    }

    fn replacement_answer(&self) -> Option<ReplacementReport> {
        self.service_report("web").replacement
    }

    fn answer_summary(&self) -> (ReplacementPhase, Reason) {
        let answer = self.replacement_answer().expect("an answer");
        assert_eq!(answer.uid, "7-90");
        (answer.phase, answer.reason)
    }

    /// Asserts that the service still runs under its permit and was neither stopped nor restarted.
    fn assert_untouched(&self) {
        assert!(self.copies["web"].running);
        assert_eq!(self.copies["web"].starts, 1);
        assert_eq!((self.count_commands("web", "stop"), self.count_commands("web", "kill")), (0, 0));
        let report = self.service_report("web");
        assert_eq!((report.phase, report.action_uid), (Phase::Running, Some("7-1".into())));
    }
}

/// Creates a node whose driver is running the replacement.
fn replacing() -> World {
    let mut world = World::running();
    world.commands_to_hold.insert(REPLACE_HOOK_NAME);
    let replacement = world.replacement();
    world.assign_replacement(&replacement);
    world.advance(1_000);
    assert_eq!(world.count_commands("web", REPLACE_HOOK_NAME), 1, "{:?}", world.logs);
    assert_eq!(world.answer_summary(), (ReplacementPhase::Begun, Reason::ReplacingSecondary));
    world
}

#[test]
fn secondary_replacement_is_committed_under_every_guard() {
    let mut world = replacing();
    assert_eq!(
        world.executed.last().map(|(_, command)| command.clone()),
        Some(Command::ReplaceSecondary { current_secondary: Some("n2".into()), node: "n3".into() })
    );
    let reports_begun_replacement = |(transaction, _): &&(Transaction, Outcome)| {
        transaction.guards().contains_key(&world.keys.assignment(&"web".into()))
            && transaction.writes().contains_key(&world.keys.service_report(&own_node(), &"web".into()))
    };
    let (transaction, _) = world.commits.iter().rev().find(reports_begun_replacement).expect("begun");
    for key in
        [world.keys.alive(&own_node()), world.keys.fence(&own_node()), world.keys.node_report(&own_node())]
    {
        assert!(transaction.guards().contains_key(&key), "{key}");
    }
    world.advance(1_800_000);
    world.assert_untouched();
    world.finish_held_commands();
    world.advance(1_000);
    assert_eq!(world.answer_summary(), (ReplacementPhase::Done, Reason::SecondaryReplaced));
    world.assert_untouched();
    world.advance(60_000);
    assert_eq!(world.count_commands("web", REPLACE_HOOK_NAME), 1, "once");
    assert_eq!(
        world.answer_summary().0,
        ReplacementPhase::Done,
        "reported as long as the assignment requests it"
    );
    let without_replacement = Assignment { replacement: None, ..world.assignment("web") };
    world.write(&world.keys.assignment(&"web".into()), &without_replacement);
    world.deliver();
    world.advance(1_000);
    world.assert_untouched();
}

#[test]
fn failed_replacement_is_cleaned_up_and_reported() {
    let mut world = replacing();
    let (id, _, _) = world.held_commands.pop().expect("the hook");
    let failure = DriverFailure {
        class: FailureClass::RetryHere,
        reason: Reason::TimedOut,
        message: "no room on n3".into(),
    };
    world.input(Input::Ended { id, result: CommandResult::Failed(failure) });
    world.advance(1_000);
    assert_eq!(world.answer_summary(), (ReplacementPhase::Failed, Reason::TimedOut));
    assert_eq!(world.replacement_answer().expect("answer").message, "no room on n3");
    assert_eq!(world.count_commands("web", "end-replacement"), 1);
    world.assert_untouched();
}

#[test]
fn replacement_of_previous_agent_ends_as_failed() {
    let mut world = replacing();
    world.commands_to_hold.insert("end-replacement");
    world.restart_agent("boot-1");
    world.advance(2_000);
    assert_eq!(world.answer_summary().0, ReplacementPhase::Begun, "no report while processes may remain");
    world.finish_held_commands();
    world.advance(1_000);
    assert_eq!(world.answer_summary(), (ReplacementPhase::Failed, Reason::Interrupted));
    assert_eq!(world.count_commands("web", REPLACE_HOOK_NAME), 1, "the hook is not run twice");
    assert_eq!(world.copies["web"].starts, 1, "the service is adopted");
    assert_eq!((world.count_commands("web", "stop"), world.count_commands("web", "kill")), (0, 0));
}

#[test]
fn a_canceled_replacement_ends_before_the_stop() {
    let mut world = replacing();
    world.commands_to_hold.insert("end-replacement");
    let canceled_request = Replacement { is_canceled: true, ..world.replacement() };
    let stop = Action::Stop { timeout_ms: None };
    let uid = ActionUid::from("7-91");
    let assignment = Assignment {
        action: stop,
        action_uid: uid.clone(),
        replacement: Some(canceled_request),
        ..world.assignment("web")
    };
    world.write(&world.keys.assignment(&"web".into()), &assignment);
    world.deliver();
    world.advance(3_000);
    assert_eq!(world.count_commands("web", "stop"), 0, "not while something of it may be left");
    world.finish_held_commands();
    world.advance(3_000);
    assert_eq!(world.count_commands("web", "stop"), 1);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.action_uid), (Phase::Stopped, Some(uid)));
    assert_eq!(world.answer_summary(), (ReplacementPhase::Failed, Reason::Interrupted));
}

#[test]
fn a_replacement_that_completes_before_its_cancellation_is_done() {
    let mut world = replacing();
    let canceled_request = Replacement { is_canceled: true, ..world.replacement() };
    // The driver's answer and the leader's cancellation cross.
    let (id, _, _) = world.held_commands.pop().expect("the hook");
    world.assign_replacement(&canceled_request);
    world.input(Input::Ended { id, result: CommandResult::Done });
    world.advance(1_000);
    assert_eq!(world.answer_summary(), (ReplacementPhase::Done, Reason::SecondaryReplaced));
    world.assert_untouched();
}

#[test]
fn a_replacement_canceled_before_its_start_never_begins() {
    let mut world = World::running();
    let canceled_request = Replacement { is_canceled: true, ..world.replacement() };
    world.assign_replacement(&canceled_request);
    world.advance(1_000);
    assert_eq!(world.count_commands("web", REPLACE_HOOK_NAME), 0);
    assert_eq!(world.answer_summary(), (ReplacementPhase::Failed, Reason::Interrupted));
}

#[test]
fn service_crash_ends_the_secondary_replacement() {
    let mut world = replacing();
    world.copies.get_mut("web").expect("there").running = false;
    world.input(Input::Driver(DriverEvent::Exited {
        name: "web".into(),
        uid: "uid-web".into(),
        message: "killed by signal 9".into(),
        stopped_externally: false,
    }));
    world.advance(5_000);
    let report = world.service_report("web");
    assert_eq!((report.phase, report.action_uid), (Phase::Running, Some("7-1".into())));
    assert_eq!(world.answer_summary(), (ReplacementPhase::Failed, Reason::Interrupted));
}

#[test]
fn self_fencing_ends_the_secondary_replacement() {
    let mut world = replacing();
    world.network = NetworkFault::Down;
    world.advance(20_000);
    assert!(!world.copies["web"].running);
    assert!(world.held_commands.is_empty(), "the hook was cancelled");
    assert!(world.count_commands("web", "end-replacement") > 0);
    assert!(!world.was_reset, "nothing is left, so nothing is reset");
}

#[test]
fn unkillable_replacement_hook_causes_watchdog_reset() {
    let mut world = replacing();
    world.commands_to_hold.insert("end-replacement");
    world.network = NetworkFault::Down;
    world.advance(30_000);
    assert!(!world.copies["web"].running);
    assert!(world.was_reset, "a worker is outstanding (FENCING 4)");
}

#[test]
fn exiting_agent_reports_the_replacement_first() {
    let mut world = replacing();
    world.input(Input::Shutdown(Shutdown::Restart));
    world.advance(1_000);
    assert_eq!(world.answer_summary(), (ReplacementPhase::Failed, Reason::Interrupted));
    world.advance(10_000);
    assert_eq!(world.exit, Some(Exit::Restart));
    assert!(world.copies["web"].running);
}
