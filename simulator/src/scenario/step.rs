//! The steps of a scenario: their time, their actions, and the condition that must hold.

use super::action::Action;
use super::condition::Condition;
use super::objects;
use super::reader::{Fields, Reader};
use crate::duration::Duration;
use serde_json::Value;
use std::collections::BTreeMap;

/// Default limit of the wait for `when`.
const DEFAULT_WITHIN: Duration = Duration(600_000);

/// Actions and a check at one moment of a scenario.
#[derive(Clone, Debug)]
pub struct Step {
    /// Time or condition at which the step happens.
    pub moment: Moment,
    /// Conditions that must hold at that time; otherwise the step is skipped, as by an operator who checks first.
    pub only_if: Vec<Condition>,
    /// Actions of the step.
    pub commands: Vec<StepCommand>,
    /// Condition that must hold at that time, with its text; `None`: the step checks no condition.
    pub check: Option<(String, Condition)>,
}

/// The time or condition at which a step happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At this time since time 0.
    At(Duration),
    /// After this time since the previous step.
    After(Duration),
    /// At the moment when the condition becomes true.
    When {
        /// Condition as written in the file.
        text: String,
        /// Condition to wait for.
        condition: Condition,
        /// Longest wait for the condition.
        within: Duration,
    },
}

/// An action of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepCommand {
    /// A verb, with its text as written in the file.
    Verb(String, Action),
    /// Applies this object.
    Apply(Value),
    /// Writes these values in one transaction, as the API of a controller did.
    Write(BTreeMap<String, Option<Value>>),
}

pub(super) fn read_steps(reader: &mut Reader<'_>, value: &Value) -> Vec<Step> {
    let items = reader.list(value, "steps");
    let mut steps = Vec::new();
    let mut earliest_time = Duration(0);
    for (index, item) in items.iter().enumerate() {
        let path = format!("steps[{index}]");
        let field_names = ["at", "after", "when", "within", "if", "do", "check"];
        let Some(fields) = reader.read_fields(item, &path, &field_names) else { continue };
        let moment = moment(reader, &fields).unwrap_or(Moment::After(Duration(0)));
        match &moment {
            Moment::At(time) if *time < earliest_time => {
                let message = format!(
                    "is before the time of the previous step ({} s)",
                    earliest_time.0 as f64 / 1000.0
                );
                reader.add_problem(&fields.path_of("at"), message);
            }
            Moment::At(time) => earliest_time = *time,
            Moment::After(time) => earliest_time = Duration(earliest_time.0 + time.0),
            Moment::When { .. } => {}
        }
        let commands = fields
            .get("do")
            .map(|value| read_commands(reader, value, &fields.path_of("do")))
            .unwrap_or_default();
        let check = fields.get("check").and_then(|value| condition(reader, value, &fields.path_of("check")));
        let only_if = fields
            .get("if")
            .map(|value| conditions(reader, value, &fields.path_of("if")))
            .unwrap_or_default();
        steps.push(Step { moment, only_if, commands, check });
    }
    steps
}

/// Reads the moment: exactly one of `at`, `after` and `when`. Without any of these fields, the step directly follows
/// the previous step.
fn moment(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Moment> {
    let within = fields
        .get("within")
        .and_then(|value| reader.read_duration(value, &fields.path_of("within")))
        .unwrap_or(DEFAULT_WITHIN);
    if fields.get("within").is_some() && fields.get("when").is_none() {
        reader.add_problem(
            &fields.path_of("within"),
            "requires `when`: the field limits the time until that condition holds",
        );
    }
    match (fields.get("at"), fields.get("after"), fields.get("when")) {
        (Some(duration), None, None) => reader.read_duration(duration, &fields.path_of("at")).map(Moment::At),
        (None, Some(after), None) => reader.read_duration(after, &fields.path_of("after")).map(Moment::After),
        (None, None, Some(when)) => condition(reader, when, &fields.path_of("when"))
            .map(|(text, condition)| Moment::When { text, condition, within }),
        (None, None, None) => Some(Moment::After(Duration(0))),
        (Some(_), _, _) | (None, Some(_), Some(_)) => {
            reader.add_problem(&fields.path, "a step has only one of at, after and when");
            None
        }
    }
}

fn condition(reader: &mut Reader<'_>, value: &Value, path: &str) -> Option<(String, Condition)> {
    let text = reader.read_text(value, path)?;
    match Condition::parse(&text) {
        Ok(condition) => Some((text, condition)),
        Err(problem) => {
            reader.add_problem(path, problem);
            None
        }
    }
}

/// Reads a condition, or a list of conditions that must all hold.
fn conditions(reader: &mut Reader<'_>, value: &Value, path: &str) -> Vec<Condition> {
    let items = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => vec![value],
    };
    items
        .into_iter()
        .filter_map(|item| condition(reader, item, path))
        .map(|(_, condition)| condition)
        .collect()
}

fn read_commands(reader: &mut Reader<'_>, value: &Value, path: &str) -> Vec<StepCommand> {
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| read_command(reader, item, &format!("{path}[{index}]")))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            read_command(reader, value, path).into_iter().collect()
        }
    }
}

fn read_command(reader: &mut Reader<'_>, value: &Value, path: &str) -> Option<StepCommand> {
    if let Value::Object(_) = value {
        let fields = reader.read_fields(value, path, &["apply", "write"])?;
        return match (fields.get("apply"), fields.get("write")) {
            (Some(object), None) => {
                objects::read_inline_object(reader, object, &fields.path_of("apply")).map(StepCommand::Apply)
            }
            (None, Some(values)) => {
                let values = reader.read_map(values, &fields.path_of("write"))?;
                let value_of = |value: &Value| (!value.is_null()).then(|| value.clone());
                Some(StepCommand::Write(
                    values.iter().map(|(key, value)| (key.to_owned(), value_of(value))).collect(),
                ))
            }
            (Some(_), Some(_)) | (None, None) => {
                let message = "an object under `do` must be {apply: OBJECT} or {write: {KEY: VALUE}}";
                reader.add_problem(path, message);
                None
            }
        };
    }
    let text = reader.read_text(value, path)?;
    match Action::parse(&text) {
        Ok(action) => Some(StepCommand::Verb(text, action)),
        Err(problem) => {
            reader.add_problem(path, problem);
            None
        }
    }
}
