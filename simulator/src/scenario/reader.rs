//! The reader of scenario files, which records the position of every field and collects all errors.

use crate::duration::Duration;
use ha_api_types::schema::suggestion;
use ha_api_types::yaml::Lines;
use serde_json::{Map, Value};
use std::fmt::Display;

/// A reader of one file, with the errors found so far.
pub(super) struct Reader<'a> {
    file: String,
    lines: &'a Lines,
    problems: Vec<(u32, String)>,
}

/// A map in the file, with its path.
#[derive(Clone)]
pub(super) struct Fields<'v> {
    /// Path of the map, such as `steps[2]`.
    pub(super) path: String,
    map: &'v Map<String, Value>,
}

impl<'v> Fields<'v> {
    /// Returns the value of a field; null counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'v Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn path_of(&self, name: &str) -> String {
        ha_api_types::problem::field_path(&self.path, name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'v String, &'v Value)> {
        self.map.iter()
    }
}

/// Returns the kind of a value, for messages.
fn value_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// Returns the list of choices for a message. A similar choice, if there is one, comes first.
pub(super) fn suggested_names<'n>(
    written: &str,
    candidates: impl Iterator<Item = &'n str> + Clone,
) -> String {
    let names: Vec<&str> = candidates.clone().collect();
    match suggestion(written, candidates) {
        Some(closest) => format!("did you mean {closest:?}? Known here: {}", names.join(", ")),
        None => format!("known here: {}", names.join(", ")),
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &str, lines: &'a Lines) -> Reader<'a> {
        Reader { file: file.to_owned(), lines, problems: Vec::new() }
    }

    /// Adds an error at this path.
    pub(super) fn add_problem(&mut self, path: &str, message: impl Display) {
        let line = self.lines.of(path).unwrap_or(1);
        let path_prefix = if path.is_empty() { String::new() } else { format!("{path}: ") };
        self.problems.push((line, format!("{}:{line}: {path_prefix}{message}", self.file)));
    }

    /// Adds an error in another file.
    pub(super) fn add_file_problem(&mut self, path: &str, message: String) {
        let line = self.lines.of(path).unwrap_or(1);
        self.problems.push((line, message));
    }

    /// Returns all errors in the order of their lines; `None` if no error was found.
    pub(super) fn finish(mut self) -> Option<String> {
        self.problems.sort_by_key(|(line, _)| *line);
        let mut messages: Vec<String> = self.problems.into_iter().map(|(_, text)| text).collect();
        messages.dedup();
        (!messages.is_empty()).then(|| messages.join("\n"))
    }

    /// Reads a map, and adds an error for each field that is not in `known`.
    pub(super) fn read_fields<'v>(
        &mut self,
        value: &'v Value,
        path: &str,
        field_names: &[&str],
    ) -> Option<Fields<'v>> {
        let fields = self.read_map(value, path)?;
        for (name, _) in fields.iter() {
            if !field_names.contains(&name.as_str()) {
                let accepted = suggested_names(name, field_names.iter().copied());
                self.add_problem(&fields.path_of(name), format!("unknown field {name:?}, {accepted}"));
            }
        }
        Some(fields)
    }

    /// Reads a map with any field names.
    pub(super) fn read_map<'v>(&mut self, value: &'v Value, path: &str) -> Option<Fields<'v>> {
        match value {
            Value::Object(map) => Some(Fields { path: path.to_owned(), map }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.add_problem(path, format!("must be a map, not {}", value_kind(value)));
                None
            }
        }
    }

    /// Reads a list; null counts as empty.
    pub(super) fn list<'v>(&mut self, value: &'v Value, path: &str) -> &'v [Value] {
        match value {
            Value::Array(items) => items,
            Value::Null => &[],
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                self.add_problem(path, format!("must be a list, not {}", value_kind(value)));
                &[]
            }
        }
    }

    /// Reads a text. A number is used as written, so `101` can be a name.
    pub(super) fn read_text(&mut self, value: &Value, path: &str) -> Option<String> {
        match value {
            Value::String(text) => Some(text.trim().to_owned()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                self.add_problem(path, format!("must be a string, not {}", value_kind(value)));
                None
            }
        }
    }

    /// Reads a list of names.
    pub(super) fn names<N: From<String>>(&mut self, value: &Value, path: &str) -> Vec<N> {
        self.list(value, path)
            .iter()
            .enumerate()
            .filter_map(|(index, item)| self.read_text(item, &format!("{path}[{index}]")).map(N::from))
            .collect()
    }

    pub(super) fn read_boolean(&mut self, value: &Value, path: &str) -> Option<bool> {
        match value {
            Value::Bool(truth) => Some(*truth),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.add_problem(path, format!("must be true or false, not {}", value_kind(value)));
                None
            }
        }
    }

    /// Reads a non-negative integer.
    pub(super) fn read_unsigned(&mut self, value: &Value, path: &str) -> Option<u64> {
        let number = value.as_u64();
        if number.is_none() {
            self.add_problem(path, format!("must be an integer of at least 0, not {value}"));
        }
        number
    }

    /// Reads a duration: `500ms`, `37s`, `10m`, `2h` or a number of seconds.
    pub(super) fn read_duration(&mut self, value: &Value, path: &str) -> Option<Duration> {
        let read = match value {
            Value::String(text) => Duration::parse(text),
            Value::Number(number) => Duration::parse(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(format!(
                "must be a duration such as 500ms, 37s, 10m, 2h or a number of seconds, not {}",
                value_kind(value)
            )),
        };
        read.map_err(|problem| self.add_problem(path, problem)).ok()
    }

    /// Reads one of the known words, ignoring case.
    pub(super) fn read_choice<T: Copy>(
        &mut self,
        value: &Value,
        path: &str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let text = match value {
            // YAML 1.1 writers turn `on` and `off` into booleans.
            Value::Bool(truth) => (if *truth { "on" } else { "off" }).to_owned(),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.read_text(value, path)?
            }
        };
        let choice =
            choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text)).map(|(_, value)| *value);
        if choice.is_none() {
            let accepted = suggested_names(&text, choices.iter().map(|(word, _)| *word));
            self.add_problem(path, format!("{text:?} is not a valid value, {accepted}"));
        }
        choice
    }
}
