//! `hactl wait`, and the flag `--wait` of other commands.

use crate::client::{Change, Watcher};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::Target;
use crate::object::{AnyCondition, AnyObject};
use crate::session::Session;
use clap::Args;
use ha_api_types::kind::Kind;
use std::future::Future;
use std::time::Duration;

/// Flags for the wait for an effect.
#[derive(Args, Clone, Debug)]
pub(crate) struct WaitFlags {
    /// Wait for completion
    #[arg(long)]
    pub(crate) wait: bool,
    /// Maximum time to wait; at expiry, exit with status 124
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = crate::duration::parse)]
    pub(crate) timeout: Duration,
}

/// Wait for a condition of objects
#[derive(Args, Debug)]
#[command(
    after_help = "Conditions: condition=TYPE (True) or condition=TYPE=STATUS; state=STATE, phase=PHASE or node=NODE (fields of the \
        status); delete (the object does not exist).\n\n\
        Examples:\n  hactl wait resource/web --for condition=Ready --timeout 60s\n  \
        hactl wait node/node1 --for condition=Ready=False\n  hactl wait resource/web --for node=node2\n  \
        hactl wait resource/web --for delete"
)]
pub(crate) struct Wait {
    /// KIND/NAME…, or the NAME of a resource
    #[arg(required = true, value_name = "KIND/NAME")]
    object_arguments: Vec<String>,
    /// Condition to wait for, such as condition=Ready, state=Started or delete
    #[arg(long = "for", value_name = "CONDITION")]
    condition: String,
    /// Maximum time to wait; at expiry, exit with status 124
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = crate::duration::parse)]
    timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Goal {
    Condition { name: String, status: String },
    Field { name: String, value: String },
    Deleted,
}

impl Wait {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let goal = parse_goal(&self.condition)?;
        let targets =
            self.object_arguments.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>, _>>()?;
        let client = session.client()?;
        for target in &targets {
            // A wait for a missing object would always time out. For `delete`, the goal is already reached.
            if goal != Goal::Deleted {
                client.get_target(target).await?;
            }
        }
        let deadline = tokio::time::Instant::now() + self.timeout;
        for target in &targets {
            let display_name = target.display_name();
            let mut current = String::new();
            let met = wait_for_goal(session, target, &goal, &mut current);
            let outcome = tokio::time::timeout_at(deadline, met).await;
            outcome.map_err(|_| {
                timed_out(self.timeout, &format!("{display_name}: {} not met{current}", self.condition))
            })??;
            session.terminal().report(&format!("{display_name} {}", reached_message(&goal)));
        }
        Ok(Exit::Done)
    }
}

fn reached_message(goal: &Goal) -> String {
    match goal {
        Goal::Condition { .. } => "condition met".to_owned(),
        Goal::Field { name, value } => format!("{name} is {value}"),
        Goal::Deleted => "deleted".to_owned(),
    }
}

fn parse_goal(text: &str) -> Result<Goal, Failure> {
    let invalid_goal = || {
        Failure::usage(format!("--for: {text:?} is not a valid condition")).help(
            "specify condition=NAME, condition=NAME=False, state=VALUE, phase=VALUE, node=VALUE or delete",
        )
    };
    match text.split_once('=') {
        None if text == "delete" => Ok(Goal::Deleted),
        Some(("condition", rest)) if !rest.is_empty() => {
            let (name, status) = rest.split_once('=').unwrap_or((rest, "True"));
            Ok(Goal::Condition { name: name.to_owned(), status: status.to_owned() })
        }
        Some((name @ ("state" | "phase" | "node"), value)) if !value.is_empty() => {
            Ok(Goal::Field { name: name.to_owned(), value: value.to_owned() })
        }
        _ => Err(invalid_goal()),
    }
}

fn is_met(goal: &Goal, object: &AnyObject) -> bool {
    match goal {
        Goal::Condition { name, status } => object.condition(name).is_some_and(|condition| {
            let current = condition
                .observed_generation
                .is_none_or(|observed_generation| observed_generation >= object.metadata.generation);
            current && condition.status.eq_ignore_ascii_case(status)
        }),
        Goal::Field { name, value } => {
            let current_value = match name.as_str() {
                "state" => &object.status.state,
                "phase" => &object.status.phase,
                _ => &object.status.node,
            };
            current_value.eq_ignore_ascii_case(value)
        }
        Goal::Deleted => false,
    }
}

/// Returns the reason and message of the condition that a goal names, as a suffix of a message; empty for any other
/// goal.
fn current_condition(goal: &Goal, object: &AnyObject) -> String {
    let Goal::Condition { name, .. } = goal else { return String::new() };
    match object.condition(name) {
        Some(condition) if condition.message.is_empty() => format!("; now {}", condition.reason),
        Some(condition) => format!("; now {}: {}", condition.reason, condition.message),
        None => format!("; the object has no condition {name:?} now"),
    }
}

/// Waits until an object meets a goal. `current` describes the last state of the condition.
async fn wait_for_goal(
    session: &Session,
    target: &Target,
    goal: &Goal,
    current: &mut String,
) -> Result<(), Failure> {
    let mut watcher = Watcher::for_object(session.client()?, target.kind, &target.name.name);
    let mut exists = false;
    let mut last_line = String::new();
    loop {
        match watcher.next().await? {
            Change::Applied(object) => {
                let object = AnyObject::from_value(&object);
                if is_met(goal, &object) {
                    return Ok(());
                }
                exists = true;
                *current = current_condition(goal, &object);
                let line = format!("{}: {}", target.display_name(), status_line(target.kind, &object));
                if line != last_line {
                    print_progress(session, &object, &line);
                    last_line = line;
                }
            }
            Change::Deleted(_) if *goal == Goal::Deleted => return Ok(()),
            Change::Synced if *goal == Goal::Deleted && !exists => return Ok(()),
            Change::Deleted(_) => {
                return Err(Failure::failed(format!("{} was deleted", target.display_name())));
            }
            Change::Synced => {}
        }
    }
}

pub(super) async fn wait_until_deleted(session: &Session, target: &Target) -> Result<(), Failure> {
    wait_for_goal(session, target, &Goal::Deleted, &mut String::new()).await
}

/// Runs some work with a timeout. The error of a timeout contains `timeout_message`.
pub(super) async fn with_timeout<T>(
    timeout: Duration,
    timeout_message: &str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(timeout, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(timed_out(timeout, timeout_message)),
    }
}

/// Returns the failure of a goal that was not reached within a timeout.
pub(super) fn timed_out(timeout: Duration, timeout_message: &str) -> Failure {
    let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
    Failure::timed_out(format!("timed out after {}: {timeout_message}", crate::duration::short_text(seconds)))
}

/// Progress of an object toward its desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Ready,
    /// The object is not ready yet, with the reason.
    Waiting(String),
    /// The object cannot become ready without an operator.
    Failed(String),
}

/// Waits until every object is ready.
pub(super) async fn wait_until_ready(
    session: &Session,
    targets: &[(Kind, String)],
    flags: &WaitFlags,
) -> Outcome {
    let deadline = tokio::time::Instant::now() + flags.timeout;
    for (kind, name) in targets {
        let display_name = format!("{}/{name}", kind.singular());
        let mut last_reason = String::new();
        let mut watcher = Watcher::for_object(session.client()?, *kind, name);
        loop {
            let Ok(change) = tokio::time::timeout_at(deadline, watcher.next()).await else {
                let reason = if last_reason.is_empty() { String::new() } else { format!(": {last_reason}") };
                let failure = Failure::timed_out(format!(
                    "timed out waiting for {display_name} to become ready{reason}"
                ));
                let help = if *kind == Kind::Resource { "hactl why" } else { "hactl describe" };
                return Err(failure.help(format!("run \"{help} {display_name}\"")));
            };
            let object = match change? {
                Change::Applied(object) => AnyObject::from_value(&object),
                Change::Deleted(_) => return Err(Failure::failed(format!("{display_name} was deleted"))),
                Change::Synced => continue,
            };
            match progress(*kind, &object) {
                Progress::Ready => {
                    session.terminal().progress(&format!("{display_name} is ready"));
                    break;
                }
                Progress::Waiting(reason) => {
                    if reason != last_reason {
                        print_progress(session, &object, &format!("{display_name}: {reason}"));
                        last_reason = reason;
                    }
                }
                Progress::Failed(reason) => {
                    return Err(Failure::failed(format!("{display_name}: {reason}"))
                        .help(format!("run \"hactl why {name}\"")));
                }
            }
        }
    }
    Ok(Exit::Done)
}

fn progress(kind: Kind, object: &AnyObject) -> Progress {
    let ready = object.condition("Ready");
    let current = ready.is_some_and(|ready| {
        ready.observed_generation.or(object.status.observed_generation) >= Some(object.metadata.generation)
    });
    match (kind, ready) {
        (_, Some(ready)) if current && ready.is_true() => Progress::Ready,
        (Kind::Resource, _) if current && object.status.state == "Error" => {
            Progress::Failed(status_line(kind, object))
        }
        (Kind::Resource, _) | (_, Some(_)) => Progress::Waiting(status_line(kind, object)),
        // Objects of kinds without a reported status are ready once they are stored.
        (_, None) => Progress::Ready,
    }
}

/// Prints an object's progress. Without a terminal, only progress that needs an operator is printed.
fn print_progress(session: &Session, object: &AnyObject, line: &str) {
    if is_stuck(object) {
        session.terminal().notice(line);
    } else {
        session.terminal().progress(line);
    }
}

/// Returns `true` if the leader reports that an object cannot continue automatically.
pub(super) fn is_stuck(object: &AnyObject) -> bool {
    object.condition("Stalled").is_some_and(AnyCondition::is_true)
}

/// Returns state, node and cause on one line.
pub(super) fn status_line(kind: Kind, object: &AnyObject) -> String {
    let status = &object.status;
    let state = if kind == Kind::Operation { &status.phase } else { &status.state };
    let mut line = if state.is_empty() { "no status yet".to_owned() } else { state.clone() };
    if !status.node.is_empty() {
        line += &format!(" on {}", status.node);
    }
    let explanation = ["Stalled", "Ready"]
        .iter()
        .filter_map(|name| object.condition(name))
        .find(|condition| condition.is_true() == (condition.kind == "Stalled"))
        .map_or(&status.message, |condition| &condition.message);
    if !explanation.is_empty() {
        line += &format!(": {explanation}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resource(observed: i64, ready: &str, state: &str) -> AnyObject {
        AnyObject::from_value(
            &json!({"metadata": {"generation": 2}, "status": {"state": state, "node": "node1", "conditions": [
            {"type": "Ready", "status": ready, "observedGeneration": observed, "message": "because"}]}}),
        )
    }

    #[test]
    fn ready_condition_needs_the_newest_generation() {
        assert_eq!(progress(Kind::Resource, &resource(2, "True", "Started")), Progress::Ready);
        assert!(matches!(progress(Kind::Resource, &resource(1, "True", "Started")), Progress::Waiting(_)));
        assert_eq!(
            progress(Kind::Resource, &resource(2, "False", "Starting")),
            Progress::Waiting("Starting on node1: because".to_owned())
        );
        assert!(matches!(progress(Kind::Resource, &resource(2, "False", "Error")), Progress::Failed(_)));
        assert!(matches!(progress(Kind::Resource, &resource(1, "False", "Error")), Progress::Waiting(_)));
        assert!(matches!(progress(Kind::Resource, &AnyObject::default()), Progress::Waiting(_)));
        assert_eq!(progress(Kind::Group, &AnyObject::default()), Progress::Ready);
    }

    #[test]
    fn wait_conditions_are_parsed_and_evaluated() {
        let check = |text: &str, object: AnyObject, expected: bool| {
            assert_eq!(parse_goal(text).map(|goal| is_met(&goal, &object)), Ok(expected), "{text}");
        };
        check("condition=Ready", resource(2, "True", "Started"), true);
        check("condition=Ready", resource(1, "True", "Started"), false);
        check("condition=ready=False", resource(2, "False", "Started"), false);
        check("condition=Ready=false", resource(2, "False", "Started"), true);
        let refused = AnyObject::from_value(&json!({"status": {"phase": "Refused", "conditions": [
            {"type": "Complete", "status": "False"}, {"type": "Failed", "status": "True"}]}}));
        check("condition=Complete", refused.clone(), false);
        check("condition=Failed", refused, true);
        check("state=started", resource(2, "True", "Started"), true);
        check("node=node2", resource(2, "True", "Started"), false);
        check("delete", resource(2, "True", "Started"), false);
        for invalid_goal in ["", "ready", "condition=", "state", "foo=bar"] {
            assert_eq!(
                parse_goal(invalid_goal).map_err(|failure| failure.exit),
                Err(Exit::Usage),
                "{invalid_goal}"
            );
        }
    }
}
