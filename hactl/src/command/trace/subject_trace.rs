//! Selection of the events that belong to an operation or action, in order; pure.

use crate::object::TypedObject;
use ha_api_types::event::{ACTION_UID_ANNOTATION, EPOCH_ANNOTATION, EventType, NODE_ANNOTATION};
use ha_api_types::kind::Kind;
use ha_api_types::kubernetes::{CoreEvent, ObjectReference};
use ha_api_types::operation::OperationSpec;
use ha_api_types::time::Timestamp;
use std::collections::BTreeSet;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The subject of a trace.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Subject {
    Operation(Box<TypedObject<OperationSpec>>),
    /// An action, by its uid.
    Action(String),
}

/// An operation or action with all known events.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SubjectTrace {
    pub(super) subject: Subject,
    /// Uids of its actions, in the order in which they began.
    pub(super) actions: Vec<String>,
    /// Steps, the oldest first.
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Step {
    /// Time of the event, as received.
    pub(super) at: String,
    /// Time since the first step; `None` if a time cannot be parsed.
    pub(super) after_seconds: Option<f64>,
    pub(super) source: String,
    pub(super) node: String,
    pub(super) epoch: String,
    pub(super) object: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) action: String,
    pub(super) warning: bool,
}

impl Subject {
    pub(super) fn display_name(&self) -> String {
        match self {
            Subject::Operation(operation) => format!("operation {}", operation.name()),
            Subject::Action(uid) => format!("action {uid}"),
        }
    }

    /// Returns the name of the subject, with the outcome of an operation.
    pub(super) fn title(&self) -> String {
        match self {
            Subject::Action(_) => self.display_name(),
            Subject::Operation(operation) => {
                let words =
                    ["/spec/action", "/spec/resource", "/spec/node"].map(|word| operation.text_at(word));
                let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
                let phase = match operation.text_at("/status/phase") {
                    "" => "Pending",
                    phase => phase,
                };
                let message = match operation.text_at("/status/message") {
                    "" => String::new(),
                    message => format!(", {message}"),
                };
                format!("{} ({}): {phase}{message}", self.display_name(), words.join(" "))
            }
        }
    }
}

impl SubjectTrace {
    /// Selects the subject's events from all events, which must be sorted by time.
    pub(super) fn new(subject: Subject, events: &[CoreEvent]) -> SubjectTrace {
        let is_of_operation = |event: &CoreEvent| match &subject {
            Subject::Action(_) => false,
            Subject::Operation(operation) => {
                let is_subject = |object: &ObjectReference| {
                    object.kind == Kind::Operation.name() && object.name == operation.name()
                };
                event.related.as_ref().is_some_and(is_subject) || is_subject(&event.involved_object)
            }
        };
        let mut known_uids = BTreeSet::new();
        let mut actions = Vec::new();
        if let Subject::Action(uid) = &subject {
            known_uids.insert(uid.clone());
            actions.push(uid.clone());
        }
        for event in events.iter().filter(|event| is_of_operation(event)) {
            let uid = event.annotation(ACTION_UID_ANNOTATION);
            // Only actions that began for the operation count, not those of a service that already ran.
            let first_event = events.iter().find(|event| event.annotation(ACTION_UID_ANNOTATION) == uid);
            if !uid.is_empty()
                && first_event.is_some_and(&is_of_operation)
                && known_uids.insert(uid.to_owned())
            {
                actions.push(uid.to_owned());
            }
        }
        let is_of_subject = |event: &&CoreEvent| {
            is_of_operation(event) || known_uids.contains(event.annotation(ACTION_UID_ANNOTATION))
        };
        let subject_events: Vec<&CoreEvent> = events.iter().filter(is_of_subject).collect();
        let begin = subject_events.first().and_then(|event| parse_time(event.time()));
        let mut steps: Vec<Step> = subject_events.iter().map(|event| step(event, begin)).collect();
        if let Subject::Operation(operation) = &subject {
            let [requested, ended] = own_steps(operation, begin);
            steps.splice(0..0, requested);
            steps.extend(ended);
        }
        SubjectTrace { subject, actions, steps }
    }
}

impl Step {
    /// Returns the time since the first step, as text.
    pub(super) fn elapsed_text(&self) -> String {
        self.after_seconds.map_or_else(String::new, |seconds| format!("+{seconds:.3}s"))
    }
}

/// Returns the beginning and the end of an operation from its own fields, in whole seconds.
fn own_steps(operation: &TypedObject<OperationSpec>, begin: Option<OffsetDateTime>) -> [Option<Step>; 2] {
    let operation_step = |at: &Timestamp, reason: &str, message: &str| Step {
        at: at.0.clone(),
        after_seconds: begin.zip(parse_time(&at.0)).map(|(begin, at)| (at - begin).as_seconds_f64().max(0.0)),
        object: format!("operation/{}", operation.name()),
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..Step::default()
    };
    let requested = operation.metadata.creation_timestamp.as_ref().map(|at| Step {
        after_seconds: None,
        source: operation.spec.requested_by.clone(),
        ..operation_step(at, "Asked", "Requested")
    });
    let ended = operation.status.as_ref().and_then(|status| status.completion_time.as_ref());
    let (phase, message) = (operation.text_at("/status/phase"), operation.text_at("/status/message"));
    [requested, ended.map(|at| operation_step(at, phase, message))]
}

fn step(event: &CoreEvent, begin: Option<OffsetDateTime>) -> Step {
    let (at, object) = (event.time(), &event.involved_object);
    Step {
        at: at.to_owned(),
        after_seconds: begin.zip(parse_time(at)).map(|(begin, at)| (at - begin).as_seconds_f64()),
        source: format!("{}/{}", event.source.component, event.source.host),
        node: event.annotation(NODE_ANNOTATION).to_owned(),
        epoch: event.annotation(EPOCH_ANNOTATION).to_owned(),
        object: format!("{}/{}", object.kind.to_lowercase(), object.name),
        reason: event.reason.clone(),
        message: event.message.clone(),
        action: event.annotation(ACTION_UID_ANNOTATION).to_owned(),
        warning: event.event_type == EventType::Warning,
    }
}

fn parse_time(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn event(second: u8, reason: &str, action: &str, operation: &str) -> CoreEvent {
        let mut event = CoreEvent { reason: reason.to_owned(), ..CoreEvent::default() };
        event.last_timestamp = Some(Timestamp(format!("2026-01-01T00:00:{second:02}.250Z")));
        event.metadata.annotations.insert(ACTION_UID_ANNOTATION.to_owned(), action.to_owned());
        if !operation.is_empty() {
            let (kind, name) = ("Operation".to_owned(), operation.to_owned());
            event.related = Some(ObjectReference { kind, name });
        }
        event
    }

    #[test]
    fn agent_events_are_attributed_to_their_operation() {
        let events = [
            event(1, "Scheduled", "old", ""),
            event(2, "Stopping", "a1", "move"),
            event(3, "Stopped", "a1", ""),
            event(4, "Other", "a9", "another"),
            event(5, "Starting", "a2", "move"),
            event(6, "Running", "a2", ""),
            event(7, "Copied", "a2", "copy-2"),
        ];
        let check = |subject: Subject, actions: &[&str], expected: &[&str]| {
            let trace = SubjectTrace::new(subject, &events);
            assert_eq!(trace.actions, actions);
            let shown_steps: Vec<String> =
                trace.steps.iter().map(|step| format!("{} {}", step.elapsed_text(), step.reason)).collect();
            assert_eq!(shown_steps, expected);
        };
        let parsed_subject =
            |operation: Value| Subject::Operation(Box::new(TypedObject::from_value(operation)));
        let operation = |name: &str| parsed_subject(json!({"metadata": {"name": name}}));
        check(
            operation("move"),
            &["a1", "a2"],
            &["+0.000s Stopping", "+1.000s Stopped", "+3.000s Starting", "+4.000s Running", "+5.000s Copied"],
        );
        check(
            Subject::Action("a2".to_owned()),
            &["a2"],
            &["+0.000s Starting", "+1.000s Running", "+2.000s Copied"],
        );
        check(operation("copy-2"), &[], &["+0.000s Copied"]);
        check(operation("never"), &[], &[]);
        // The operation's own steps are shown even if no event exists.
        let silent = json!({
            "metadata": {"name": "copy", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Succeeded", "completionTime": "2026-01-01T00:00:09Z"},
        });
        check(parsed_subject(silent), &[], &[" Asked", " Succeeded"]);
    }

    #[test]
    fn trace_title_contains_the_outcome() {
        let operation = json!({
            "metadata": {"name": "m1"},
            "spec": {"action": "Migrate", "resource": "web", "node": "node2"},
            "status": {"phase": "Succeeded", "message": "Running on node2"},
        });
        let title = Subject::Operation(Box::new(TypedObject::from_value(operation))).title();
        assert_eq!(title, "operation m1 (Migrate web node2): Succeeded, Running on node2");
    }
}
