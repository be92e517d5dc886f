//! `hactl convert`: rewrites files with the current names of renamed fields.

use crate::failure::{Exit, Failure, Outcome};
use crate::manifest::{FileFlags, read_texts};
use crate::render::{self, Format};
use crate::session::Session;
use clap::Args;
use ha_api_types::kind::Kind;
use ha_api_types::renamed::{self, Conversion, RenamedField};
use ha_api_types::yaml::{self, Document};
use serde_json::{Value, json};

/// Convert files to the current field names
#[derive(Args, Debug)]
#[command(
    override_usage = "hactl convert [OPTIONS] -f <FILE|DIR|->...",
    after_help = "Without -o, comments and order are kept. With -o, the objects are printed without comments.\n\n\
        Examples:\n  hactl convert -f web.yaml\n  hactl convert --write -R -f ."
)]
pub(crate) struct Convert {
    #[command(flatten)]
    files: FileFlags,
    /// Rewrite the files in place
    #[arg(long)]
    write: bool,
}

impl Convert {
    pub(crate) fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        if self.write && format.is_some() {
            return Err(Failure::usage("--write cannot be combined with --output"));
        }
        if self.write && self.files.files.iter().any(|file| file == "-") {
            return Err(Failure::usage("standard input cannot be rewritten").help("remove --write"));
        }
        let terminal = session.terminal();
        let mut converted = Vec::new();
        let mut problems = Vec::new();
        for text in read_texts(&self.files)? {
            match convert(&text.content) {
                Ok(after) => converted.push((text, after)),
                Err(file_problems) => {
                    problems.extend(file_problems.iter().map(|problem| format!("{}: {problem}", text.name)));
                }
            }
        }
        if !problems.is_empty() {
            return Err(Failure::usage(problems.join("\n")).help("nothing was changed; correct the files"));
        }
        let mut objects = Vec::new();
        for (index, (text, after)) in converted.into_iter().enumerate() {
            if after.has_lost_comments {
                terminal.warn(&format!("{}: comments are not kept", text.name));
            }
            match format {
                Some(_) => objects.extend(after.objects),
                None if self.write && after.text != text.content => {
                    std::fs::write(&text.name, after.text)
                        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", text.name)))?;
                    terminal.report(&format!("{} converted", text.name));
                }
                None if self.write => terminal.report(&format!("{} unchanged", text.name)),
                None => {
                    let is_separated = index == 0 || after.text.starts_with("---");
                    terminal.print(if is_separated { "" } else { "---\n" });
                    terminal.print(&after.text);
                }
            }
        }
        match format {
            Some(Format::Yaml) => {
                let documents = objects.iter().map(render::yaml).collect::<Result<Vec<_>, _>>()?;
                terminal.print(&documents.join("---\n"));
            }
            Some(_) => {
                let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
                let value = if objects.len() == 1 { &objects[0] } else { &list };
                session.print_value(format, value)?;
            }
            None => {}
        }
        Ok(Exit::Done)
    }
}

#[derive(Debug, PartialEq)]
struct Converted {
    text: String,
    /// The documents, with the current names.
    objects: Vec<Value>,
    has_lost_comments: bool,
}

/// A field with its earlier name in a text.
struct RenamedFieldUse {
    renamed: &'static RenamedField,
    line: Option<u32>,
}

/// Converts a stream of documents. Only the names and numbers of renamed fields change in the text.
///
/// # Errors
/// Returns every problem with its line: the text is not valid YAML, or contains a field under both names.
fn convert(text: &str) -> Result<Converted, Vec<String>> {
    let (objects, mut remaining) = with_current_names(text)?;
    let mut text = text.to_owned();
    while let Some(renamed_field) = remaining.first() {
        let replaced = rename_candidates(&text, renamed_field).into_iter().find_map(|candidate| {
            let (candidate_objects, fewer_remaining) = with_current_names(&candidate).ok()?;
            (candidate_objects == objects && fewer_remaining.len() + 1 == remaining.len())
                .then_some((candidate, fewer_remaining))
        });
        let Some((next, fewer_remaining)) = replaced else {
            // The field is written in a form that cannot be edited, such as a merge key.
            let documents = objects.iter().map(yaml::to_text).collect::<Result<Vec<_>, _>>();
            let documents = documents.map_err(|error| vec![error.message])?;
            return Ok(Converted { text: documents.join("---\n"), objects, has_lost_comments: true });
        };
        (text, remaining) = (next, fewer_remaining);
    }
    Ok(Converted { text, objects, has_lost_comments: false })
}

/// Returns the documents with the current names, and the fields that have their earlier names in the text.
fn with_current_names(text: &str) -> Result<(Vec<Value>, Vec<RenamedFieldUse>), Vec<String>> {
    let with_line = |line: Option<u32>, message: &str| match line {
        Some(line) => format!("line {line}: {message}"),
        None => message.to_owned(),
    };
    let documents = yaml::documents(text).map_err(|error| vec![with_line(error.line, &error.message)])?;
    let (mut objects, mut renamed_uses, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for Document { mut value, lines } in documents {
        let mut accept_object = |object: &mut Value, prefix: &str| {
            let name = object.get("kind").and_then(Value::as_str).unwrap_or_default();
            let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == name) else { return };
            let line = |path: &str| lines.of(&format!("{prefix}{path}"));
            match renamed::convert_to_current_names(kind, object) {
                Ok(fields) => renamed_uses.extend(fields.into_iter().map(|renamed| {
                    let path = format!("{}.{}", renamed.parent.join("."), renamed.earlier);
                    // A path with `*` does not determine the list element, so the line is unknown.
                    let line = if renamed.parent.contains(&"*") { None } else { line(&path) };
                    RenamedFieldUse { renamed, line }
                })),
                Err(renamed_uses) => {
                    problems.extend(
                        renamed_uses
                            .iter()
                            .map(|problem| with_line(line(&problem.path), &problem.to_string())),
                    );
                }
            }
        };
        match value.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    accept_object(item, &format!("items[{index}]."));
                }
            }
            None => accept_object(&mut value, ""),
        }
        objects.push(value);
    }
    if problems.is_empty() { Ok((objects, renamed_uses)) } else { Err(problems) }
}

/// Returns one text for each key with the earlier name, in which only that key and its value are converted. If the line
/// of the field is known, only that line is searched.
fn rename_candidates(text: &str, renamed_field: &RenamedFieldUse) -> Vec<String> {
    let RenamedField { earlier, current, conversion, .. } = *renamed_field.renamed;
    let line = renamed_field.line.and_then(|line| usize::try_from(line).ok());
    let range = line.map_or(0..text.len(), |line| {
        let begin: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        begin..text[begin..].find('\n').map_or(text.len(), |length| begin + length)
    });
    let begin = range.start;
    let is_name_character =
        |character: char| character.is_alphanumeric() || matches!(character, '_' | '-' | '.');
    text[range]
        .match_indices(earlier)
        .filter_map(|(index, _)| {
            let (before, after) = (&text[..begin + index], &text[begin + index + earlier.len()..]);
            let quote = usize::from(after.starts_with(['"', '\'']));
            let rest = after[quote..].trim_start_matches([' ', '\t']).strip_prefix(':')?;
            if before.ends_with(is_name_character) {
                return None;
            }
            let value = rest.trim_start_matches([' ', '\t', '"', '\'']);
            let between = &after[..after.len() - value.len()];
            let length = value.find(|character: char| !is_name_character(character)).unwrap_or(value.len());
            let (value, rest) = value.split_at(length);
            let current_value = match conversion {
                // No field of a spec is a date.
                Conversion::None | Conversion::Date => value.to_owned(),
                Conversion::Thousandths => format!("{:?}", value.parse::<f64>().ok()? / 1000.0),
                Conversion::Negation => (!value.parse::<bool>().ok()?).to_string(),
                Conversion::Words(words) => words.iter().find(|(earlier, _)| *earlier == value)?.1.to_owned(),
            };
            Some(format!("{before}{current}{between}{current_value}{rest}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST_HEADER: &str = "apiVersion: hactl.io/v1\nkind: Resource\nmetadata: {name: web}\n";

    fn check(text: &str, expected: &str) {
        let converted = convert(text).expect("sound");
        assert_eq!(converted.text, expected);
        assert!(!converted.has_lost_comments, "{text}");
        assert_eq!(convert(expected).expect("sound").text, expected, "nothing is left to convert");
    }

    #[test]
    fn conversion_renames_fields_and_keeps_comments() {
        check(
            &format!(
                "# web\n{MANIFEST_HEADER}spec:\n  tags: [after]\n  after: [db] # after: the data\n  state: Started\n"
            ),
            &format!(
                "# web\n{MANIFEST_HEADER}spec:\n  tags: [after]\n  dependsOn: [db] # after: the data\n  state: Started\n"
            ),
        );
        check(
            &format!("{MANIFEST_HEADER}spec: {{comment: 'after: x', after: [db]}}\n"),
            &format!("{MANIFEST_HEADER}spec: {{comment: 'after: x', dependsOn: [db]}}\n"),
        );
        check(
            r#"{"kind": "Resource", "spec": {"after": ["db"]}}"#,
            r#"{"kind": "Resource", "spec": {"dependsOn": ["db"]}}"#,
        );
        check(
            &format!("{MANIFEST_HEADER}spec: {{state: Started}}\n"),
            &format!("{MANIFEST_HEADER}spec: {{state: Started}}\n"),
        );
    }

    #[test]
    fn conversion_changes_numbers_with_their_unit() {
        let manifest = |fields: &str| {
            format!("{MANIFEST_HEADER}spec:\n  driver:\n    libvirt:\n      migration: {{{fields}}}\n")
        };
        check(
            &manifest("bandwidthMebibytes: 200, downtimeMilliseconds: 300"),
            &manifest("bandwidthMebibytesPerSecond: 200, maxDowntimeSeconds: 0.3"),
        );
        check(&manifest("downtimeMilliseconds: 2000"), &manifest("maxDowntimeSeconds: 2.0"));
    }

    #[test]
    fn conversion_renames_words_also_in_lists() {
        let ports = |protocol: &str| {
            format!(
                "{MANIFEST_HEADER}spec:\n  driver:\n    podman:\n      command: [a, 'protocol: Tcp']\n      ports:\n      \
                 - {{host: 80, protocol: TCP}}\n      - host: 53 # dns\n        protocol: {protocol} # protocol: Udp\n"
            )
        };
        check(&ports("Udp"), &ports("UDP"));
        check(&ports("\"Udp\""), &ports("\"UDP\""));
        let smtp = |tls: &str| {
            format!("kind: Cluster\nspec: {{notifications: {{smtp: {{tls: {tls}, server: a}}}}}}\n")
        };
        check(&smtp("StartTls"), &smtp("StartTLS"));
        check(&smtp("Tls"), &smtp("TLS"));
    }

    #[test]
    fn document_streams_and_lists_are_converted() {
        let cluster = "kind: Cluster\nspec:\n  fencing:\n    onStoreLoss: Stop\n    allowStandIn: true\n  timing:\n    \
            heartbeatValidSeconds: 8 # stopMarginSeconds: see below\n    stopMarginSeconds: 3\n";
        let node = "kind: List\nitems:\n- kind: Node\n  spec: {fencing: {allowUnfenced: true}, schedulable: false}\n- {kind: Pod, spec: {after: 1}}\n";
        check(
            &format!("{cluster}---\n{node}"),
            &format!("{cluster}---\n{node}")
                .replace("onStoreLoss", "onEtcdLoss")
                .replace("allowStandIn", "allowSimulatedWatchdog")
                .replace("heartbeatValidSeconds", "heartbeatLifetimeSeconds")
                .replace("    stopMarginSeconds", "    selfFenceMarginSeconds")
                .replace("allowUnfenced", "trustWatchdogOnVirtualMachine")
                .replace("schedulable: false", "unschedulable: true"),
        );
    }

    #[test]
    fn rewritten_fields_lose_their_comments() {
        let converted =
            convert(&format!("{MANIFEST_HEADER}spec: {{\"aft\\x65r\": [db]}} # c\n")).expect("sound");
        assert!(converted.has_lost_comments, "{converted:?}");
        assert_eq!(converted.objects[0]["spec"], json!({"dependsOn": ["db"]}));
        assert!(converted.text.contains("dependsOn"), "{}", converted.text);
    }

    #[test]
    fn duplicate_names_and_invalid_files_are_refused() {
        let both_names = convert(&format!("{MANIFEST_HEADER}spec:\n  after: [a]\n  dependsOn: [b]\n"));
        assert_eq!(
            both_names,
            Err(vec!["line 5: spec.after: also given as spec.dependsOn: remove this field".to_owned()])
        );
        assert!(convert("a: [").is_err());
    }
}
