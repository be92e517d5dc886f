//! Objects from files: every document of every file is parsed and validated before the first document is used.

mod source;

use crate::failure::Failure;
use crate::names::most_similar;
use crate::terminal::Terminal;
use clap::{Args, ValueHint};
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::renamed::{self, RenamedField};
use ha_api_types::yaml::Lines;
use ha_api_types::{names, schema, validation};
use serde_json::Value;

/// Sources of objects.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FileFlags {
    /// File or directory with objects, or - for standard input; repeatable
    #[arg(long = "filename", short = 'f', value_name = "FILE|DIR|-", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<String>,
    /// Process directories recursively
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
}

/// An object with its origin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ManifestObject {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) object: Value,
    /// Origin of the object's first line as `file:line`.
    pub(crate) location: String,
    /// Renamed fields that have their earlier names in the text.
    pub(crate) renamed_fields: Vec<&'static RenamedField>,
}

impl ManifestObject {
    /// Returns the object's name for messages: `resource/web`.
    pub(crate) fn display_name(&self) -> String {
        format!("{}/{}", self.kind.singular(), self.name)
    }
}

/// Required completeness of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// The whole object, valid.
    Whole,
    /// Kind and name only.
    Identity,
}

/// Parses and validates all objects, in the order in which they must be applied.
///
/// # Errors
/// Fails with all problems of all files, each as `file:line: field: problem`.
pub(crate) fn load(flags: &FileFlags, completeness: Completeness) -> Result<Vec<ManifestObject>, Failure> {
    let mut entries = Vec::new();
    let mut problems = Vec::new();
    for text in read_texts(flags)? {
        read(&text.name, &text.content, completeness, &mut entries, &mut problems);
    }
    for (index, entry) in entries.iter().enumerate() {
        let is_same_object = |other: &&ManifestObject| other.kind == entry.kind && other.name == entry.name;
        if let Some(first) = entries[..index].iter().find(is_same_object) {
            problems.push(format!(
                "{}: {} is already defined at {}",
                entry.location,
                entry.display_name(),
                first.location
            ));
        }
    }
    if !problems.is_empty() {
        return Err(Failure::usage(problems.join("\n"))
            .help("nothing was changed; correct the files, then run the command again"));
    }
    entries.sort_by_key(|entry| Kind::ALL.iter().position(|kind| *kind == entry.kind));
    Ok(entries)
}

/// Returns all texts of the flags.
///
/// # Errors
/// Fails without flags, and if a file cannot be read.
pub(crate) fn read_texts(flags: &FileFlags) -> Result<Vec<source::SourceText>, Failure> {
    if flags.files.is_empty() {
        return Err(
            Failure::usage("no objects specified").help("add -f FILE, -f DIR or -f - (standard input)")
        );
    }
    source::read_texts(&flags.files, flags.recursive)
}

/// Warns about fields with earlier names. The objects sent to the API have the current names, so the API does not warn.
pub(crate) fn warn_renamed(terminal: &Terminal, entries: &[ManifestObject]) {
    for entry in entries {
        for renamed in &entry.renamed_fields {
            terminal.warn(&format!("{}: {}", entry.location, renamed.warning()));
        }
    }
}

/// Returns `true` if a warning only reports a missing object that one of these entries creates.
pub(crate) fn creates_missing_object(entries: &[ManifestObject], warning: &str) -> bool {
    entries.iter().any(|entry| {
        let missing = names::missing_message(entry.kind, &entry.name);
        warning == missing || warning.ends_with(&format!(": {missing}"))
    })
}

/// Parses and validates the objects of one text; problems are added to `problems`.
pub(crate) fn read(
    source: &str,
    text: &str,
    completeness: Completeness,
    entries: &mut Vec<ManifestObject>,
    problems: &mut Vec<String>,
) {
    let documents = match ha_api_types::yaml::documents(text) {
        Ok(documents) => documents,
        Err(error) => {
            problems.push(format!("{}: {}", file_and_line(source, error.line), error.message));
            return;
        }
    };
    for document in documents {
        let is_list = document.value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        let mut value = document.value;
        if !is_list {
            let location = ObjectLocation { source, lines: &document.lines, prefix: String::new() };
            entries.extend(parse_object(value, &location, completeness, problems));
            continue;
        }
        let Value::Array(items) = value["items"].take() else {
            problems.push(format!(
                "{}: items: missing; a List requires items",
                file_and_line(source, document.lines.first())
            ));
            continue;
        };
        for (index, item) in items.into_iter().enumerate() {
            let location =
                ObjectLocation { source, lines: &document.lines, prefix: format!("items[{index}]") };
            entries.extend(parse_object(item, &location, completeness, problems));
        }
    }
}

/// The origin of an object in a text.
struct ObjectLocation<'a> {
    source: &'a str,
    lines: &'a Lines,
    prefix: String,
}

impl ObjectLocation<'_> {
    fn format(&self, path: &str) -> String {
        let path = match (self.prefix.is_empty(), path.is_empty()) {
            (true, _) => path.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}.{path}", self.prefix),
        };
        file_and_line(self.source, self.lines.of(&path))
    }
}

fn file_and_line(source: &str, line: Option<u32>) -> String {
    line.map_or_else(|| source.to_owned(), |line| format!("{source}:{line}"))
}

fn parse_object(
    mut value: Value,
    location: &ObjectLocation<'_>,
    completeness: Completeness,
    problems: &mut Vec<String>,
) -> Option<ManifestObject> {
    let problem_count_before = problems.len();
    let mut report_problem = |path: &str, message: String| {
        let path_prefix = if path.is_empty() { String::new() } else { format!("{path}: ") };
        problems.push(format!("{}: {path_prefix}{message}", location.format(path)));
    };
    if !value.is_object() {
        report_problem(
            "",
            format!("not an object; expected a map with apiVersion: {API_VERSION}, kind, metadata and spec"),
        );
        return None;
    }
    match value["apiVersion"].as_str() {
        Some(API_VERSION) => {}
        Some(other) => {
            report_problem("apiVersion", format!("{other:?} is not a valid apiVersion; set {API_VERSION}"));
        }
        None => report_problem("apiVersion", format!("missing; set apiVersion: {API_VERSION}")),
    }
    let kind_names = || Kind::ALL.map(Kind::name);
    let Some(written_kind) = value["kind"].as_str() else {
        report_problem("kind", format!("missing; valid kinds: {}", kind_names().join(", ")));
        return None;
    };
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == written_kind) else {
        let suggestion = Kind::parse(written_kind)
            .map(Kind::name)
            .or_else(|| most_similar(written_kind, kind_names().into_iter()));
        let hint = match suggestion {
            Some(suggestion) => format!("; did you mean {suggestion}?"),
            None => format!("; valid kinds: {}", kind_names().join(", ")),
        };
        report_problem("kind", format!("{written_kind:?} is not a valid kind{hint}"));
        return None;
    };
    let renamed_fields = renamed::convert_to_current_names(kind, &mut value).unwrap_or_else(|problems| {
        for problem in problems {
            report_problem(&problem.path, problem.message);
        }
        Vec::new()
    });
    remove_server_fields(&mut value);
    match completeness {
        Completeness::Whole => {
            let unknown = schema::unknown_fields(schema::of(kind), &value);
            let is_checked_here = |path: &str| !matches!(path, "apiVersion" | "kind");
            for problem in unknown
                .iter()
                .chain(&validation::problems(kind, &value))
                .filter(|problem| is_checked_here(&problem.path))
            {
                // The line already begins with the path.
                let message = problem.message.replacen(&format!(" \"{}\"", problem.path), "", 1);
                report_problem(&problem.path, message);
            }
        }
        Completeness::Identity => {
            if value.pointer("/metadata/name").and_then(Value::as_str).is_none_or(str::is_empty) {
                report_problem("metadata.name", "missing".to_owned());
            }
        }
    }
    if problems.len() > problem_count_before {
        return None;
    }
    fill_missing_priorities(&mut value);
    let name = crate::names::name_of(&value).to_owned();
    Some(ManifestObject { kind, name, object: value, location: location.format(""), renamed_fields })
}

/// Removes the fields that only the API and the leader write, as in files from `hactl get -o yaml`.
pub(crate) fn remove_server_fields(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "managedFields",
            "selfLink",
        ] {
            metadata.remove(field);
        }
    }
}

/// Replaces the empty priority in `nodes: {node1:}` by 0; in a merge patch, null would remove the node.
fn fill_missing_priorities(value: &mut Value) {
    for path in ["/spec/nodes", "/spec/nodeAffinity/nodes"] {
        for priority in value
            .pointer_mut(path)
            .and_then(Value::as_object_mut)
            .into_iter()
            .flat_map(|nodes| nodes.values_mut())
        {
            if priority.is_null() {
                *priority = Value::from(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&[&str], &[&str]>) {
        let (mut entries, mut problems) = (Vec::new(), Vec::new());
        read("f.yaml", text, Completeness::Whole, &mut entries, &mut problems);
        let entry_names: Vec<String> = entries.iter().map(ManifestObject::display_name).collect();
        match expected {
            Ok(expected) => {
                assert_eq!(problems, Vec::<String>::new());
                assert_eq!(entry_names, expected);
            }
            Err(expected) => {
                assert_eq!(problems.len(), expected.len(), "{problems:#?}");
                for (problem, part) in problems.iter().zip(expected) {
                    assert!(problem.contains(part), "{problem:?} does not say {part:?}");
                }
            }
        }
    }

    #[test]
    fn references_within_the_same_files_are_found() {
        let (mut entries, mut problems) = (Vec::new(), Vec::new());
        read("f.yaml", WEB_MANIFEST, Completeness::Whole, &mut entries, &mut problems);
        let path = "spec.resourceAffinity.resources";
        for (kind, name, expected) in
            [(Kind::Resource, "web", true), (Kind::Resource, "eb", false), (Kind::Group, "web", false)]
        {
            let warning = format!("{path}: {}", names::missing_message(kind, name));
            assert_eq!(creates_missing_object(&entries, &warning), expected, "{warning}");
        }
        assert!(!creates_missing_object(&entries, "rule apart is not applied: it names one service"));
    }

    const WEB_MANIFEST: &str = "apiVersion: hactl.io/v1\nkind: Resource\nmetadata:\n  name: web\nspec:\n  driver:\n    exec:\n      command: [sleep, '1']\n";

    #[test]
    fn manifest_problems_name_file_and_line() {
        check(WEB_MANIFEST, Ok(&["resource/web"]));
        check(&format!("{WEB_MANIFEST}  maxRestrat: 3\n"), Err(&["f.yaml:9: spec.maxRestrat: "]));
        check(&format!("{WEB_MANIFEST}  maxRestrat: 3\n"), Err(&["maxRestart"]));
        check(
            &format!("{WEB_MANIFEST}---\n{WEB_MANIFEST}  failback: 3\n"),
            Err(&["f.yaml:18: spec.failback: "]),
        );
        check(
            "apiVersion: hactl.io/v1\nkind: Resorce\n",
            Err(&["f.yaml:2: kind: \"Resorce\" is not a valid kind; did you mean Resource?"]),
        );
        check("apiVersion: v1\nkind: Pod\n", Err(&["f.yaml:1: apiVersion: ", "f.yaml:2: kind: "]));
        check("- a\n", Err(&["f.yaml:1: not an object"]));
        check("a: 1\na: 2\n", Err(&["f.yaml:2: duplicate"]));
        let list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: hactl.io/v1\n  kind: Group\n  metadata: {name: g}\n  spec: {nodes: {node1: }, restrictd: true}\n";
        check(list, Err(&["f.yaml:7: spec.restrictd: "]));
        check(&list.replace("restrictd", "restricted"), Ok(&["group/g"]));
    }

    #[test]
    fn manifest_status_is_ignored() {
        check(&format!("{WEB_MANIFEST}status:\n  epoch: 3\n"), Ok(&["resource/web"]));
    }

    #[test]
    fn former_field_names_are_accepted_with_note() {
        let (mut entries, mut problems) = (Vec::new(), Vec::new());
        read(
            "f.yaml",
            &format!("{WEB_MANIFEST}  after: [db]\n"),
            Completeness::Whole,
            &mut entries,
            &mut problems,
        );
        assert_eq!(
            (entries[0].object["spec"]["dependsOn"][0].as_str(), &problems[..]),
            (Some("db"), &[][..])
        );
        assert_eq!(entries[0].renamed_fields.len(), 1);
        let both_names = format!("{WEB_MANIFEST}  after: [db]\n  dependsOn: [db]\n");
        check(&both_names, Err(&["f.yaml:9: spec.after: also given as spec.dependsOn"]));
    }

    #[test]
    fn a_node_without_a_number_has_priority_zero() {
        let text = "apiVersion: hactl.io/v1\nkind: Group\nmetadata: {name: g}\nspec:\n  nodes:\n    node1:\n    node2: 3\n";
        let (mut entries, mut problems) = (Vec::new(), Vec::new());
        read("f", text, Completeness::Whole, &mut entries, &mut problems);
        assert_eq!(entries[0].object["spec"]["nodes"], serde_json::json!({"node1": 0, "node2": 3}));
    }
}
