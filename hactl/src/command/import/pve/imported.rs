//! The result of an import: objects, and notes on settings that could not be imported.

use super::section::Property;
use crate::failure::Failure;
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::validation;
use ha_api_types::yaml::{MAX_DOCUMENTS, to_text};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The objects and notes of an import.
#[derive(Clone, Debug, Default)]
pub(super) struct ImportResult {
    /// Objects in the order in which they must be applied.
    pub(super) objects: Vec<ImportedObject>,
    /// Notes on settings that were not imported, or were changed.
    pub(super) notes: Vec<String>,
    /// Nodes whose changed name was already noted.
    renamed_nodes: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ImportedObject {
    kind: Kind,
    /// Object as JSON.
    pub(super) value: Value,
    /// Comments of the object's section, without `#`.
    comments: Vec<String>,
    /// Origin of the object as `file:line`.
    location: String,
    /// Fields with their own origin, as `file:line`.
    fields: Vec<(String, String)>,
}

impl ImportedObject {
    /// Returns the origin of a field.
    fn location_of(&self, path: &str) -> &str {
        let covers = |field: &str| {
            path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.fields.iter().find(|(field, _)| covers(field)).map_or(&self.location, |(_, location)| location)
    }
}

impl ImportResult {
    /// Adds an object with its origin and comments.
    pub(super) fn add_object(
        &mut self,
        kind: Kind,
        name: &str,
        spec: &Map<String, Value>,
        location: &str,
        comments: &[String],
    ) {
        let value =
            json!({"apiVersion": API_VERSION, "kind": kind.name(), "metadata": {"name": name}, "spec": spec});
        self.objects.push(ImportedObject {
            kind,
            value,
            comments: comments.to_vec(),
            location: location.to_owned(),
            fields: Vec::new(),
        });
    }

    /// Records the origin of a field of the last object.
    pub(super) fn record_field_location(&mut self, field: &str, path: &str, line: usize) {
        if let Some(object) = self.objects.last_mut() {
            object.fields.push((field.to_owned(), format!("{path}:{line}")));
        }
    }

    /// Records the origins of properties that became fields of the last object, below each of these parent fields. The
    /// property `max_restart` is the field `maxRestart`.
    pub(super) fn record_field_locations(
        &mut self,
        parent_paths: &[&str],
        path: &str,
        properties: &[Property],
    ) {
        for property in properties {
            for parent_path in parent_paths {
                self.record_field_location(
                    &format!("{parent_path}.{}", camel_case(&property.name)),
                    path,
                    property.line,
                );
            }
        }
    }

    /// Adds a note that a setting was not imported.
    pub(super) fn add_note(&mut self, location: &str, text: &str) {
        self.notes.push(format!("{location}: {text}"));
    }

    /// Returns the name of a node in lower case: host names may contain upper-case letters, node names may not.
    pub(super) fn node_name(&mut self, location: &str, original: &str) -> String {
        let name = original.to_ascii_lowercase();
        if name != original && self.renamed_nodes.insert(original.to_owned()) {
            let text = format!("node {original} renamed to {name}; start its agent with --node {name}");
            self.add_note(location, &text);
        }
        name
    }

    /// Checks whether the API would accept every object.
    ///
    /// # Errors
    /// Fails with all validation errors, and the lines of the imported files that caused them.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut problems = Vec::new();
        for object in &self.objects {
            for problem in validation::problems(object.kind, &object.value) {
                problems.push(format!("{}: {problem}", object.location_of(&problem.path)));
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(problems.join("\n"))
            .help("nothing was written; correct the files, then run the command again"))
    }

    /// Returns the objects as YAML, after a comment with the notes.
    ///
    /// # Errors
    /// Fails if there are more documents than `hactl apply` reads.
    pub(super) fn text(&self) -> Result<String, Failure> {
        let count = self.objects.len();
        if count > MAX_DOCUMENTS {
            let text = format!("{count} objects, limit is {MAX_DOCUMENTS} documents in a YAML file");
            return Err(Failure::usage(text).help("add -o json to write one List with all objects"));
        }
        let mut text = String::new();
        if !self.notes.is_empty() {
            text.push_str("# Not converted, or converted with changes:\n");
            for note in &self.notes {
                text.push_str(&format!("# - {}\n", comment_safe_text(note)));
            }
        }
        for (index, object) in self.objects.iter().enumerate() {
            if index > 0 || !text.is_empty() {
                text.push_str("---\n");
            }
            for comment in &object.comments {
                text.push_str(format!("# {}", comment_safe_text(comment)).trim_end());
                text.push('\n');
            }
            let written = to_text(&object.value)
                .map_err(|error| Failure::failed(format!("{}: {error}", object.location)))?;
            text.push_str(&written);
        }
        Ok(text)
    }
}

fn camel_case(name: &str) -> String {
    let mut upper = false;
    let letters = name.chars().filter_map(|letter| {
        let next = (letter != '_').then_some(if upper { letter.to_ascii_uppercase() } else { letter });
        upper = letter == '_';
        next
    });
    letters.collect()
}

/// Returns a text that is safe in a YAML comment: line ends and characters that YAML does not allow become `?`.
fn comment_safe_text(text: &str) -> String {
    let is_allowed = |letter: char| {
        letter == '\t' || !(letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}'))
    };
    text.chars().map(|letter| if is_allowed(letter) { letter } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imported_text_cannot_end_a_comment() {
        let mut imported = ImportResult::default();
        imported.add_note("a\nb: 1\rc", "x\u{85}kind: y");
        let comments = ["a\rkind: Evil".to_owned(), "\0\u{2028}b\tc".to_owned()];
        imported.add_object(Kind::Group, "g", &Map::new(), "groups.cfg:1", &comments);
        let text = imported.text().unwrap();
        assert!(text.contains("# - a?b: 1?c: x?kind: y\n"), "{text}");
        assert!(text.contains("# a?kind: Evil\n# ??b\tc\n"), "{text}");
        assert_eq!(ha_api_types::yaml::documents(&text).map(|documents| documents.len()), Ok(1));
    }

    #[test]
    fn imports_with_too_many_documents_fail() {
        let mut imported = ImportResult::default();
        for _ in 0..=MAX_DOCUMENTS {
            imported.add_object(Kind::Group, "g", &Map::new(), "groups.cfg:1", &[]);
        }
        assert!(imported.text().unwrap_err().help.contains("-o json"));
    }

    #[test]
    fn a_node_is_renamed_consistently_and_noted_once() {
        let mut imported = ImportResult::default();
        assert_eq!(imported.node_name("a:1", "PVE01"), "pve01");
        assert_eq!(imported.node_name("a:2", "PVE01"), "pve01");
        assert_eq!(imported.node_name("a:3", "pve-2"), "pve-2");
        assert_eq!(imported.notes, ["a:1: node PVE01 renamed to pve01; start its agent with --node pve01"]);
    }
}
