//! The steps of a scenario: their time, their actions, and the condition that must hold.

use super::action::Action;
use super::condition::Condition;
use super::objects;
use super::reader::{Fields, Reader};
use crate::duration::Duration;
use serde_json::Value;

/// Default limit of the wait for `when`.
const WITHIN: Duration = Duration(600_000);

/// A step of a scenario.
#[derive(Clone, Debug)]
pub struct Step {
    /// Time or condition at which the step happens.
    pub moment: Moment,
    /// Conditions that must hold at that time; otherwise the step does nothing, like an operator who checks first.
    pub only_if: Vec<Condition>,
    /// Actions of the step.
    pub doings: Vec<Doing>,
    /// Condition that must hold then, with its text; `None`: nothing is checked.
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
pub enum Doing {
    /// A verb, with its text as written in the file.
    Verb(String, Action),
    /// Applies this object.
    Apply(Value),
}

pub(super) fn read(reader: &mut Reader<'_>, value: &Value) -> Vec<Step> {
    let items = reader.list(value, "steps");
    let mut steps = Vec::new();
    let mut earliest = Duration(0);
    for (at, item) in items.iter().enumerate() {
        let path = format!("steps[{at}]");
        let known = ["at", "after", "when", "within", "if", "do", "check"];
        let Some(fields) = reader.fields(item, &path, &known) else { continue };
        let moment = moment(reader, &fields).unwrap_or(Moment::After(Duration(0)));
        match &moment {
            Moment::At(time) if *time < earliest => {
                let message =
                    format!("is before the time of the previous step ({} s)", earliest.0 as f64 / 1000.0);
                reader.wrong(&fields.at("at"), message);
            }
            Moment::At(time) => earliest = *time,
            Moment::After(time) => earliest = Duration(earliest.0 + time.0),
            Moment::When { .. } => {}
        }
        let doings =
            fields.get("do").map(|value| doings(reader, value, &fields.at("do"))).unwrap_or_default();
        let check = fields.get("check").and_then(|value| condition(reader, value, &fields.at("check")));
        let only_if =
            fields.get("if").map(|value| conditions(reader, value, &fields.at("if"))).unwrap_or_default();
        steps.push(Step { moment, only_if, doings, check });
    }
    steps
}

/// Reads the moment: exactly one of `at`, `after` and `when`. Without any, the step directly follows the previous one.
fn moment(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Moment> {
    let within =
        fields.get("within").and_then(|value| reader.duration(value, &fields.at("within"))).unwrap_or(WITHIN);
    if fields.get("within").is_some() && fields.get("when").is_none() {
        reader.wrong(&fields.at("within"), "requires `when`, whose duration it limits");
    }
    match (fields.get("at"), fields.get("after"), fields.get("when")) {
        (Some(at), None, None) => reader.duration(at, &fields.at("at")).map(Moment::At),
        (None, Some(after), None) => reader.duration(after, &fields.at("after")).map(Moment::After),
        (None, None, Some(when)) => condition(reader, when, &fields.at("when"))
            .map(|(text, condition)| Moment::When { text, condition, within }),
        (None, None, None) => Some(Moment::After(Duration(0))),
        (Some(_), _, _) | (None, Some(_), Some(_)) => {
            reader.wrong(&fields.path, "a step has only one of at, after and when");
            None
        }
    }
}

fn condition(reader: &mut Reader<'_>, value: &Value, path: &str) -> Option<(String, Condition)> {
    let text = reader.text(value, path)?;
    match Condition::parse(&text) {
        Ok(condition) => Some((text, condition)),
        Err(problem) => {
            reader.wrong(path, problem);
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

fn doings(reader: &mut Reader<'_>, value: &Value, path: &str) -> Vec<Doing> {
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .filter_map(|(at, item)| doing(reader, item, &format!("{path}[{at}]")))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            doing(reader, value, path).into_iter().collect()
        }
    }
}

fn doing(reader: &mut Reader<'_>, value: &Value, path: &str) -> Option<Doing> {
    if let Value::Object(_) = value {
        let fields = reader.fields(value, path, &["apply"])?;
        let Some(object) = fields.get("apply") else {
            reader.wrong(path, "an object under `do` must be {apply: OBJECT}");
            return None;
        };
        return objects::inline(reader, object, &fields.at("apply")).map(Doing::Apply);
    }
    let text = reader.text(value, path)?;
    match Action::parse(&text) {
        Ok(action) => Some(Doing::Verb(text, action)),
        Err(problem) => {
            reader.wrong(path, problem);
            None
        }
    }
}
