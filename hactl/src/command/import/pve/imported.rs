//! What an import gives: objects, and what could not be carried over.

use crate::failure::Failure;
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::validation;
use ha_api_types::yaml::to_text;
use serde_json::{Map, Value, json};

/// Objects and notes.
#[derive(Clone, Debug, Default)]
pub(super) struct Imported {
    /// The objects, in the order in which they should be applied.
    pub(super) objects: Vec<Written>,
    /// What was not carried over, or not as it stands.
    pub(super) notes: Vec<String>,
}

/// One object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Written {
    kind: Kind,
    /// The object.
    pub(super) value: Value,
    /// The `#` lines that stood with it.
    comments: Vec<String>,
    /// `file:line` of where it comes from.
    place: String,
}

impl Imported {
    /// Adds an object.
    pub(super) fn object(
        &mut self,
        kind: Kind,
        name: &str,
        spec: &Map<String, Value>,
        place: &str,
        comments: &[String],
    ) {
        let value =
            json!({"apiVersion": API_VERSION, "kind": kind.name(), "metadata": {"name": name}, "spec": spec});
        self.objects.push(Written { kind, value, comments: comments.to_vec(), place: place.to_owned() });
    }

    /// Says that something was not carried over.
    pub(super) fn note(&mut self, place: &str, text: &str) {
        self.notes.push(format!("{place}: {text}"));
    }

    /// Looks whether the API would take every object.
    ///
    /// # Errors
    /// All that it would refuse, with the lines in the files it came from.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut problems = Vec::new();
        for object in &self.objects {
            for problem in validation::problems(object.kind, &object.value) {
                problems.push(format!("{}: {problem}", object.place));
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(problems.join("\n")).help("nothing was written"))
    }

    /// The objects as YAML, behind a comment with the notes.
    pub(super) fn text(&self) -> Result<String, Failure> {
        let mut text = String::new();
        if !self.notes.is_empty() {
            text.push_str("# Not carried over, or not as it stood:\n");
            for note in &self.notes {
                text.push_str(&format!("# - {note}\n"));
            }
        }
        for (index, object) in self.objects.iter().enumerate() {
            if index > 0 || !text.is_empty() {
                text.push_str("---\n");
            }
            for comment in &object.comments {
                text.push_str(format!("# {comment}").trim_end());
                text.push('\n');
            }
            let written = to_text(&object.value)
                .map_err(|error| Failure::refused(format!("{}: {error}", object.place)))?;
            text.push_str(&written);
        }
        Ok(text)
    }
}
