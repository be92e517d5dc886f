//! Selection of the events that belong to an operation or action, in order; pure.

use crate::command::events::when;
use ha_api_types::event::{ACTION_UID_ANNOTATION, EPOCH_ANNOTATION, NODE_ANNOTATION};
use ha_api_types::kind::Kind;
use serde_json::Value;
use std::collections::BTreeSet;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The subject of a trace.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Subject {
    /// An operation, as the API returned it.
    Operation(Box<Value>),
    /// An action, by its uid.
    Action(String),
}

/// An operation or action with all known events.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Followed {
    pub(super) subject: Subject,
    /// Uids of its actions, in the order in which they began.
    pub(super) actions: Vec<String>,
    /// Steps, the oldest first.
    pub(super) steps: Vec<Step>,
}

/// A step of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Step {
    /// Time as the event has it.
    pub(super) at: String,
    /// Time since the first step; `None` if a time cannot be parsed.
    pub(super) after_seconds: Option<f64>,
    pub(super) from: String,
    pub(super) node: String,
    pub(super) epoch: String,
    pub(super) about: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) action: String,
    pub(super) warning: bool,
}

impl Subject {
    /// Returns the name of the subject.
    pub(super) fn shown(&self) -> String {
        match self {
            Subject::Operation(operation) => format!("operation {}", text(&operation["metadata"]["name"])),
            Subject::Action(uid) => format!("action {uid}"),
        }
    }

    /// Returns the name of the subject, with the outcome of an operation.
    pub(super) fn title(&self) -> String {
        match self {
            Subject::Action(_) => self.shown(),
            Subject::Operation(operation) => {
                let spec = &operation["spec"];
                let words = [text(&spec["action"]), text(&spec["resource"]), text(&spec["node"])];
                let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
                let status = &operation["status"];
                let phase = status["phase"].as_str().unwrap_or("Pending");
                let message = text(&status["message"]);
                let message = if message.is_empty() { message } else { format!(", {message}") };
                format!("{} ({}): {phase}{message}", self.shown(), words.join(" "))
            }
        }
    }
}

impl Followed {
    /// Selects the subject's events from all events, which must be sorted by time.
    pub(super) fn new(subject: Subject, events: &[Value]) -> Followed {
        let serves = |event: &Value| match &subject {
            Subject::Action(_) => false,
            Subject::Operation(operation) => {
                let name = &operation["metadata"]["name"];
                let is = |object: &Value| {
                    object["kind"].as_str() == Some(Kind::Operation.name()) && object["name"] == *name
                };
                is(&event["related"]) || is(&event["involvedObject"])
            }
        };
        let mut known = BTreeSet::new();
        let mut actions = Vec::new();
        if let Subject::Action(uid) = &subject {
            known.insert(uid.clone());
            actions.push(uid.clone());
        }
        for event in events.iter().filter(|event| serves(event)) {
            let uid = annotation(event, ACTION_UID_ANNOTATION);
            // Only actions that began for the operation count, not those of a service that already ran.
            let began = events.iter().find(|event| annotation(event, ACTION_UID_ANNOTATION) == uid);
            if !uid.is_empty() && began.is_some_and(&serves) && known.insert(uid.clone()) {
                actions.push(uid);
            }
        }
        let belongs =
            |event: &&Value| serves(event) || known.contains(&annotation(event, ACTION_UID_ANNOTATION));
        let chosen: Vec<&Value> = events.iter().filter(belongs).collect();
        let begin = chosen.first().and_then(|event| moment(when(event)));
        let mut steps: Vec<Step> = chosen.iter().map(|event| step(event, begin)).collect();
        if let Subject::Operation(operation) = &subject {
            let [asked, ended] = own_steps(operation, begin);
            steps.splice(0..0, asked);
            steps.extend(ended);
        }
        Followed { subject, actions, steps }
    }
}

impl Step {
    /// Returns the time since the first step, as text.
    pub(super) fn after(&self) -> String {
        self.after_seconds.map_or_else(String::new, |seconds| format!("+{seconds:.3}s"))
    }
}

/// Returns the beginning and the end of an operation from its own fields, in whole seconds.
fn own_steps(operation: &Value, begin: Option<OffsetDateTime>) -> [Option<Step>; 2] {
    let status = &operation["status"];
    let own = |at: &Value, reason: &str, message: String| {
        let at = at.as_str()?;
        Some(Step {
            at: at.to_owned(),
            after_seconds: begin.zip(moment(at)).map(|(begin, at)| (at - begin).as_seconds_f64().max(0.0)),
            from: text(&operation["spec"]["requestedBy"]),
            about: format!("operation/{}", text(&operation["metadata"]["name"])),
            reason: reason.to_owned(),
            message,
            ..Step::default()
        })
    };
    let asked = own(&operation["metadata"]["creationTimestamp"], "Asked", "Requested".to_owned());
    let ended = own(&status["finishedAt"], &text(&status["phase"]), text(&status["message"]));
    [
        asked.map(|step| Step { after_seconds: None, ..step }),
        ended.map(|step| Step { from: String::new(), ..step }),
    ]
}

fn step(event: &Value, begin: Option<OffsetDateTime>) -> Step {
    let object = &event["involvedObject"];
    let at = when(event);
    Step {
        at: at.to_owned(),
        after_seconds: begin.zip(moment(at)).map(|(begin, at)| (at - begin).as_seconds_f64()),
        from: format!("{}/{}", text(&event["source"]["component"]), text(&event["source"]["host"])),
        node: annotation(event, NODE_ANNOTATION),
        epoch: annotation(event, EPOCH_ANNOTATION),
        about: format!("{}/{}", text(&object["kind"]).to_lowercase(), text(&object["name"])),
        reason: text(&event["reason"]),
        message: text(&event["message"]),
        action: annotation(event, ACTION_UID_ANNOTATION),
        warning: event["type"].as_str() == Some("Warning"),
    }
}

fn annotation(event: &Value, name: &str) -> String {
    text(&event["metadata"]["annotations"][name])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn moment(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(second: u8, from: &str, reason: &str, action: &str, operation: &str) -> Value {
        let mut event = json!({
            "metadata": {"annotations": {}},
            "involvedObject": {"kind": "Resource", "name": "web"},
            "lastTimestamp": format!("2026-01-01T00:00:{second:02}.250Z"),
            "source": {"component": from, "host": "h"},
            "reason": reason,
        });
        if !action.is_empty() {
            event["metadata"]["annotations"][ACTION_UID_ANNOTATION] = json!(action);
        }
        if !operation.is_empty() {
            event["related"] = json!({"kind": "Operation", "name": operation});
        }
        event
    }

    #[test]
    fn what_agents_say_belongs_to_the_operation_by_the_action() {
        let events = [
            event(1, "ha-controller", "Scheduled", "old", ""),
            event(2, "ha-controller", "Stopping", "a1", "move"),
            event(3, "ha-node-agent", "Stopped", "a1", ""),
            event(4, "ha-controller", "Other", "a9", "another"),
            event(5, "ha-controller", "Starting", "a2", "move"),
            event(6, "ha-node-agent", "Running", "a2", ""),
            event(7, "ha-controller", "Copied", "a2", "copy-2"),
        ];
        let check = |subject: Subject, actions: &[&str], expected: &[&str]| {
            let followed = Followed::new(subject, &events);
            assert_eq!(followed.actions, actions);
            let shown: Vec<String> =
                followed.steps.iter().map(|step| format!("{} {}", step.after(), step.reason)).collect();
            assert_eq!(shown, expected);
        };
        let operation = |name: &str| Subject::Operation(Box::new(json!({"metadata": {"name": name}})));
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
        // The operation's own steps exist without any event.
        let silent = json!({
            "metadata": {"name": "copy", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Succeeded", "finishedAt": "2026-01-01T00:00:09Z"},
        });
        check(Subject::Operation(Box::new(silent)), &[], &[" Asked", " Succeeded"]);
    }

    #[test]
    fn a_title_says_what_became_of_it() {
        let operation = json!({
            "metadata": {"name": "m1"},
            "spec": {"action": "Migrate", "resource": "web", "node": "node2"},
            "status": {"phase": "Succeeded", "message": "Running on node2"},
        });
        let title = Subject::Operation(Box::new(operation)).title();
        assert_eq!(title, "operation m1 (Migrate web node2): Succeeded, Running on node2");
    }
}
