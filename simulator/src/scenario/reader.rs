//! Reading a scenario file: every field with its place, and everything that is wrong, all at once.

use crate::duration::Duration;
use ha_api_types::schema::suggestion;
use ha_api_types::yaml::Lines;
use serde_json::{Map, Value};
use std::fmt::Display;

/// Collects what is wrong with one file.
pub(super) struct Reader<'a> {
    file: String,
    lines: &'a Lines,
    problems: Vec<(u32, String)>,
}

/// A map of the file with its path.
#[derive(Clone)]
pub(super) struct Fields<'v> {
    /// Where it stands, as `steps[2]`.
    pub(super) path: String,
    map: &'v Map<String, Value>,
}

impl<'v> Fields<'v> {
    /// A field that is there; null counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'v Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// The path of a field.
    pub(super) fn at(&self, name: &str) -> String {
        ha_api_types::problem::member(&self.path, name)
    }

    /// All fields.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'v String, &'v Value)> {
        self.map.iter()
    }
}

/// What kind of value this is, for messages.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// A list of choices with the nearest one named, if any is near.
pub(super) fn one_of<'n>(written: &str, known: impl Iterator<Item = &'n str> + Clone) -> String {
    let all: Vec<&str> = known.clone().collect();
    match suggestion(written, known) {
        Some(near) => format!("did you mean {near:?}? Known here: {}", all.join(", ")),
        None => format!("known here: {}", all.join(", ")),
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &str, lines: &'a Lines) -> Reader<'a> {
        Reader { file: file.to_owned(), lines, problems: Vec::new() }
    }

    /// Something is wrong at this path.
    pub(super) fn wrong(&mut self, path: &str, message: impl Display) {
        let line = self.lines.of(path).unwrap_or(1);
        let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
        self.problems.push((line, format!("{}:{line}: {place}{message}", self.file)));
    }

    /// Something is wrong in another file.
    pub(super) fn wrong_elsewhere(&mut self, path: &str, message: String) {
        let line = self.lines.of(path).unwrap_or(1);
        self.problems.push((line, message));
    }

    /// Everything that is wrong, in the order of the lines; `None`: nothing.
    pub(super) fn finish(mut self) -> Option<String> {
        self.problems.sort_by_key(|(line, _)| *line);
        let mut texts: Vec<String> = self.problems.into_iter().map(|(_, text)| text).collect();
        texts.dedup();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    /// A map of which only these fields are known.
    pub(super) fn fields<'v>(&mut self, value: &'v Value, path: &str, known: &[&str]) -> Option<Fields<'v>> {
        let fields = self.map(value, path)?;
        for (name, _) in fields.iter() {
            if !known.contains(&name.as_str()) {
                let accepted = one_of(name, known.iter().copied());
                self.wrong(&fields.at(name), format!("unknown field {name:?}, {accepted}"));
            }
        }
        Some(fields)
    }

    /// A map with any names.
    pub(super) fn map<'v>(&mut self, value: &'v Value, path: &str) -> Option<Fields<'v>> {
        match value {
            Value::Object(map) => Some(Fields { path: path.to_owned(), map }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.wrong(path, format!("must be a map, not {}", kind_of(value)));
                None
            }
        }
    }

    /// A list.
    pub(super) fn list<'v>(&mut self, value: &'v Value, path: &str) -> &'v [Value] {
        match value {
            Value::Array(items) => items,
            Value::Null => &[],
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                self.wrong(path, format!("must be a list, not {}", kind_of(value)));
                &[]
            }
        }
    }

    /// A text; numbers are taken as they are written, so that `101` is a name.
    pub(super) fn text(&mut self, value: &Value, path: &str) -> Option<String> {
        match value {
            Value::String(text) => Some(text.trim().to_owned()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong(path, format!("must be a text, not {}", kind_of(value)));
                None
            }
        }
    }

    /// A list of names.
    pub(super) fn names(&mut self, value: &Value, path: &str) -> Vec<String> {
        self.list(value, path)
            .iter()
            .enumerate()
            .filter_map(|(at, item)| self.text(item, &format!("{path}[{at}]")))
            .collect()
    }

    /// True or false.
    pub(super) fn truth(&mut self, value: &Value, path: &str) -> Option<bool> {
        match value {
            Value::Bool(truth) => Some(*truth),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.wrong(path, format!("must be true or false, not {}", kind_of(value)));
                None
            }
        }
    }

    /// A whole number that is not negative.
    pub(super) fn whole(&mut self, value: &Value, path: &str) -> Option<u64> {
        let number = value.as_u64();
        if number.is_none() {
            self.wrong(path, format!("must be a whole number from 0 up, not {value}"));
        }
        number
    }

    /// A duration: `500ms`, `37s`, `10m`, `2h` or a number of seconds.
    pub(super) fn duration(&mut self, value: &Value, path: &str) -> Option<Duration> {
        let read = match value {
            Value::String(text) => Duration::parse(text),
            Value::Number(number) => Duration::parse(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(format!(
                "must be a duration such as 500ms, 37s, 10m, 2h or a number of seconds, not {}",
                kind_of(value)
            )),
        };
        read.map_err(|problem| self.wrong(path, problem)).ok()
    }

    /// One of these words, in any case of letters.
    pub(super) fn word<T: Copy>(
        &mut self,
        value: &Value,
        path: &str,
        known: &[(&'static str, T)],
    ) -> Option<T> {
        let text = match value {
            // YAML 1.1 writers turn `on` and `off` into these.
            Value::Bool(truth) => (if *truth { "on" } else { "off" }).to_owned(),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.text(value, path)?
            }
        };
        let found = known.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text)).map(|(_, value)| *value);
        if found.is_none() {
            let accepted = one_of(&text, known.iter().map(|(word, _)| *word));
            self.wrong(path, format!("{text:?} is not accepted, {accepted}"));
        }
        found
    }
}
