//! Messages of the protocol between the agent and an external driver (docs/external.md).

use crate::core::{DriverFailure, Meter};
use crate::driver::Sample;
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::time::{Millis, MonotonicTime};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Version of the protocol.
const PROTOCOL: u32 = 1;

/// A request that the agent can send to a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Action {
    /// Return the driver's description, and whether this node can run its services.
    Describe,
    /// Report whether the service runs on this node.
    Probe,
    /// Start the service, or do nothing if it already runs.
    Start,
    /// Stop the service gracefully.
    Stop,
    /// Kill the service immediately.
    Kill,
    /// Prepare to receive the service, on the target of a live migration.
    Receive,
    /// Move the service, on the source of a live migration.
    Migrate,
    /// Take over the service that the source has handed over, on the target of a live migration.
    Arrive,
    /// Return the service's resource usage.
    Measure,
    /// Report events of the service until the process is ended.
    Monitor,
}

impl Action {
    /// Returns the action's name in the protocol.
    pub(super) fn name(self) -> &'static str {
        match self {
            Action::Describe => "describe",
            Action::Probe => "probe",
            Action::Start => "start",
            Action::Stop => "stop",
            Action::Kill => "kill",
            Action::Receive => "receive",
            Action::Migrate => "migrate",
            Action::Arrive => "arrive",
            Action::Measure => "measure",
            Action::Monitor => "monitor",
        }
    }

    /// Returns the reason that is reported when the action fails.
    fn reason(self) -> Reason {
        match self {
            Action::Stop | Action::Kill => Reason::StopFailed,
            Action::Receive | Action::Migrate | Action::Arrive => Reason::MoveFailed,
            Action::Describe | Action::Probe | Action::Start | Action::Measure | Action::Monitor => {
                Reason::StartFailed
            }
        }
    }
}

/// A request: one JSON object on the driver's standard input.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    pub(super) protocol: u32,
    pub(super) action: Action,
    pub(super) node: &'a NodeName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) settings: Option<BTreeMap<String, Value>>,
    /// Node that the service leaves, for a live migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<&'a str>,
    /// Node that receives the service, for a live migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<&'a str>,
    /// Time in milliseconds after which the driver is killed; `None` for `monitor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_milliseconds: Option<Millis>,
}

impl<'a> Request<'a> {
    /// Returns a request without the fields that only some actions have.
    pub(super) fn new(action: Action, node: &'a NodeName) -> Request<'a> {
        Request {
            protocol: PROTOCOL,
            action,
            node,
            resource: None,
            uid: None,
            settings: None,
            source: None,
            target: None,
            timeout_milliseconds: None,
        }
    }
}

/// Result field of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum AnswerResult {
    Running,
    NotRunning,
    Unknown,
    Done,
    Failed,
}

/// An answer: one JSON object on the driver's standard output. Unknown members are ignored.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    result: AnswerResult,
    #[serde(default)]
    message: String,
    /// Nodes on which a retry makes sense after a failure.
    #[serde(default)]
    class: Option<Class>,
    #[serde(flatten)]
    details: AnswerDetails,
}

/// Members that only some answers have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AnswerDetails {
    name: String,
    version: String,
    actions: Vec<String>,
    settings: Option<Value>,
    cpu_seconds: Option<f64>,
    memory_bytes: Option<u64>,
    disk_bytes: Option<u64>,
    network_bytes: Option<u64>,
}

/// Nodes on which a retry makes sense after a failure, as spelled in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Class {
    RetryHere,
    TryElsewhere,
    NeverHere,
    ConfigurationWrong,
}

/// A driver's answer to `describe`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Description {
    /// Version of the driver itself.
    pub(super) version: String,
    /// Optional actions that the driver supports.
    pub(super) actions: Vec<Action>,
    /// JSON schema of the driver's settings.
    pub(super) settings: Option<Value>,
}

impl Description {
    pub(super) fn supports(&self, action: Action) -> bool {
        self.actions.contains(&action)
    }
}

/// One line of the output of `monitor`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", tag = "event")]
pub(super) enum Event {
    /// The service ended without a request from the agent.
    #[serde(rename_all = "camelCase")]
    Exited {
        /// Description of the end of the service.
        #[serde(default)]
        message: String,
        /// `true` if an operator ended the service with the service's own tool; `false` after a crash.
        #[serde(default)]
        by_hand: bool,
    },
    /// The service started without a request from the agent.
    Appeared,
}

impl Event {
    /// Parses one line of the output of `monitor`.
    pub(super) fn parse(line: &str) -> Result<Event, String> {
        serde_json::from_str(line)
            .map_err(|error| format!("printed {}, which is not a valid event: {error}", quoted(line)))
    }
}

impl Answer {
    /// Parses the output of a driver, which must be exactly one JSON object.
    pub(super) fn parse(action: Action, printed: &str) -> Result<Answer, String> {
        let name = action.name();
        let printed = printed.trim();
        if printed.is_empty() {
            return Err(format!("driver action {name} printed no answer"));
        }
        serde_json::from_str(printed).map_err(|error| {
            format!("driver action {name} printed {}, which is not a valid answer: {error}", quoted(printed))
        })
    }

    /// Interprets the answer to `describe`. The error is the reason why this node cannot run the driver's services.
    pub(super) fn description(self, file: &str) -> Result<Description, String> {
        match self.result {
            AnswerResult::Done => {}
            AnswerResult::Failed => return Err(self.message_or("driver does not support this node")),
            AnswerResult::Running | AnswerResult::NotRunning | AnswerResult::Unknown => {
                return Err(self.unexpected_result(Action::Describe));
            }
        }
        if self.details.name != file {
            return Err(format!("driver name {:?} differs from its file name {file:?}", self.details.name));
        }
        let optional = [
            Action::Kill,
            Action::Receive,
            Action::Migrate,
            Action::Arrive,
            Action::Measure,
            Action::Monitor,
        ];
        // Unknown actions are ignored.
        let actions = optional
            .into_iter()
            .filter(|action| self.details.actions.iter().any(|supported| supported == action.name()));
        Ok(Description {
            version: self.details.version,
            actions: actions.collect(),
            settings: self.details.settings,
        })
    }

    /// Interprets the answer to `probe`.
    pub(super) fn into_observed(self) -> Observed {
        match self.result {
            AnswerResult::Running => Observed::Running,
            AnswerResult::NotRunning => Observed::NotRunning,
            AnswerResult::Unknown | AnswerResult::Failed => {
                Observed::Unknown(self.message_or("driver cannot determine the state"))
            }
            AnswerResult::Done => Observed::Unknown(self.unexpected_result(Action::Probe)),
        }
    }

    /// Interprets the answer to a command.
    pub(super) fn into_result(self, action: Action) -> Result<(), DriverFailure> {
        let (class, message) = match self.result {
            AnswerResult::Done => return Ok(()),
            AnswerResult::Failed => {
                (self.class(), self.message_or(&format!("driver action {} failed", action.name())))
            }
            AnswerResult::Running | AnswerResult::NotRunning | AnswerResult::Unknown => {
                (FailureClass::RetryHere, self.unexpected_result(action))
            }
        };
        let reason = match class {
            FailureClass::ConfigurationWrong => Reason::BadConfiguration,
            FailureClass::RetryHere | FailureClass::TryElsewhere | FailureClass::NeverHere => action.reason(),
        };
        Err(DriverFailure { class, reason, message })
    }

    /// Interprets the answer to `measure`.
    pub(super) fn sample(self, at: MonotonicTime) -> Option<Sample> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a negative time is not valid"
        )]
        let microseconds = |seconds: f64| (seconds * 1e6) as u64;
        (self.result == AnswerResult::Done).then(|| Sample {
            at,
            cpu: self.details.cpu_seconds.map(|seconds| Meter::Total(microseconds(seconds))),
            memory: self.details.memory_bytes,
            disk: self.details.disk_bytes.map(Meter::Total),
            network: self.details.network_bytes.map(Meter::Total),
        })
    }

    fn class(&self) -> FailureClass {
        match self.class {
            None | Some(Class::RetryHere) => FailureClass::RetryHere,
            Some(Class::TryElsewhere) => FailureClass::TryElsewhere,
            Some(Class::NeverHere) => FailureClass::NeverHere,
            Some(Class::ConfigurationWrong) => FailureClass::ConfigurationWrong,
        }
    }

    fn message_or(&self, otherwise: &str) -> String {
        if self.message.is_empty() { otherwise.to_owned() } else { self.message.clone() }
    }

    fn unexpected_result(&self, action: Action) -> String {
        let result = format!("{:?}", self.result);
        format!(
            "driver action {} answered {result}, which is not a valid answer to this action",
            action.name()
        )
    }
}

/// Returns a failure that the agent detected, in contrast to one that the driver reported.
pub(super) fn failure(action: Action, message: &str) -> DriverFailure {
    crate::driver::program::failed(action.reason(), message)
}

/// Returns the output in quotes, shortened for a message.
fn quoted(text: &str) -> String {
    const MAX_CHARACTERS: usize = 120;
    let short: String = text.chars().take(MAX_CHARACTERS).collect();
    let ellipsis = if text.chars().count() > MAX_CHARACTERS { " …" } else { "" };
    format!("{short:?}{ellipsis}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        Answer::parse(Action::Probe, text).expect(text)
    }

    #[test]
    fn driver_request_is_one_json_object() {
        let node = "n1".into();
        let settings = BTreeMap::from([("path".to_owned(), Value::from("/srv"))]);
        let request = Request {
            resource: Some("web"),
            settings: Some(settings),
            timeout_milliseconds: Some(5),
            ..Request::new(Action::Start, &node)
        };
        let text = serde_json::to_string(&request).expect("a request");
        assert_eq!(
            text,
            r#"{"protocol":1,"action":"start","node":"n1","resource":"web","settings":{"path":"/srv"},"timeoutMilliseconds":5}"#
        );
    }

    #[test]
    fn probe_answers_are_parsed() {
        let check = |text: &str, expected: &str| {
            let word = match answer(text).into_observed() {
                Observed::Running => "running".to_owned(),
                Observed::NotRunning => "not running".to_owned(),
                Observed::Remnant(message) | Observed::Unknown(message) => message,
            };
            assert_eq!(word, expected, "{text}");
        };
        check(r#"{"result": "running"}"#, "running");
        check(" {\"result\": \"notRunning\", \"later\": 1}\n", "not running");
        check(r#"{"result": "unknown", "message": "no daemon"}"#, "no daemon");
        check(r#"{"result": "failed"}"#, "driver cannot determine the state");
        check(
            r#"{"result": "done"}"#,
            "driver action probe answered Done, which is not a valid answer to this action",
        );
    }

    #[test]
    fn action_answers_are_parsed() {
        assert_eq!(answer(r#"{"result": "done"}"#).into_result(Action::Start), Ok(()));
        let check = |text: &str, action: Action, class: FailureClass, reason: Reason, message: &str| {
            let failure = answer(text).into_result(action).expect_err(text);
            assert_eq!((failure.class, failure.reason, failure.message.as_str()), (class, reason, message));
        };
        check(
            r#"{"result": "failed", "message": "no disk"}"#,
            Action::Start,
            FailureClass::RetryHere,
            Reason::StartFailed,
            "no disk",
        );
        check(
            r#"{"result": "failed", "class": "configurationWrong", "message": "no such path"}"#,
            Action::Start,
            FailureClass::ConfigurationWrong,
            Reason::BadConfiguration,
            "no such path",
        );
        check(
            r#"{"result": "failed", "class": "neverHere"}"#,
            Action::Stop,
            FailureClass::NeverHere,
            Reason::StopFailed,
            "driver action stop failed",
        );
        check(
            r#"{"result": "running"}"#,
            Action::Migrate,
            FailureClass::RetryHere,
            Reason::MoveFailed,
            "driver action migrate answered Running, which is not a valid answer to this action",
        );
    }

    #[test]
    fn an_invalid_answer_is_quoted_in_the_error() {
        let check = |printed: &str, expected: &str| {
            let error = Answer::parse(Action::Stop, printed).expect_err(printed);
            assert!(error.starts_with(expected), "{error}");
        };
        check("", "driver action stop printed no answer");
        check("stopped!", "driver action stop printed \"stopped!\", which is not a valid answer: ");
        check(
            "{\"result\": \"ok\"}",
            "driver action stop printed \"{\\\"result\\\": \\\"ok\\\"}\", which is not a valid answer: unknown variant `ok`",
        );
        check("{\"result\": \"done\"}\n{\"result\": \"done\"}", "driver action stop printed ");
        check(r#"{"result": "failed", "class": "perhaps"}"#, "driver action stop printed ");
    }

    #[test]
    fn driver_descriptions_are_parsed() {
        let text = r#"{"result": "done", "name": "flag", "version": "1.2", "actions": ["monitor", "levitate"],
            "settings": {"type": "object"}}"#;
        let flag_description = answer(text).description("flag").expect("a description");
        assert_eq!(
            (flag_description.version.as_str(), flag_description.actions.as_slice()),
            ("1.2", &[Action::Monitor][..])
        );
        assert!(flag_description.supports(Action::Monitor) && !flag_description.supports(Action::Kill));
        for (text, expected) in [
            (r#"{"result": "failed", "message": "zfs is missing"}"#, "zfs is missing"),
            (
                r#"{"result": "done", "name": "other"}"#,
                "driver name \"other\" differs from its file name \"flag\"",
            ),
        ] {
            assert_eq!(answer(text).description("flag").expect_err(text), expected);
        }
    }

    #[test]
    fn usage_samples_and_events_are_parsed() {
        let sample =
            answer(r#"{"result": "done", "cpuSeconds": 1.5, "memoryBytes": 4096}"#).sample(MonotonicTime(7));
        let expected = Sample {
            at: MonotonicTime(7),
            cpu: Some(Meter::Total(1_500_000)),
            memory: Some(4096),
            disk: None,
            network: None,
        };
        assert_eq!(sample, Some(expected));
        assert_eq!(answer(r#"{"result": "failed"}"#).sample(MonotonicTime(7)), None);
        let exited = Event::Exited { message: "exit status 1".to_owned(), by_hand: true };
        assert_eq!(
            Event::parse(r#"{"event": "exited", "message": "exit status 1", "byHand": true}"#),
            Ok(exited)
        );
        assert_eq!(Event::parse(r#"{"event": "appeared"}"#), Ok(Event::Appeared));
        assert!(
            Event::parse("it is gone")
                .expect_err("garbage")
                .starts_with("printed \"it is gone\", which is not a valid event")
        );
    }
}
