//! YAML and JSON as users write them: reading of document streams with the line of every field, and writing.

mod node;
mod write;

pub use node::Lines;
pub use write::to_text;

use serde_json::{Map, Value};

/// Maximum size of a text in bytes, which is also the maximum size of a body in the API.
pub const MAX_TEXT_BYTES: usize = 8 * 1024 * 1024;

/// Maximum number of documents in one stream.
pub const MAX_DOCUMENTS: usize = 4096;

/// Maximum depth of nesting.
pub const MAX_DEPTH: usize = 32;

/// One document of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The document as JSON; keys keep their order.
    pub value: Value,
    /// Line of each field in the text.
    pub lines: Lines,
}

/// The reason why a text could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct YamlError {
    /// Line of the error, from 1; `None` if it concerns the whole text.
    pub line: Option<u32>,
    /// Description of the error, with a suggested action where possible.
    pub message: String,
}

/// Reads a stream of YAML documents separated by `---`; JSON is YAML too. Empty documents are omitted.
///
/// # Guarantees
/// A duplicate key in a map is rejected. Aliases, depth, size and number of documents are limited, so that no text
/// exhausts memory or stack. Only `true` and `false` are booleans (`yes` and `on` are texts). Numbers that JSON cannot
/// represent are rejected.
///
/// # Errors
/// Fails at the first error, with its line.
pub fn documents(text: &str) -> Result<Vec<Document>, YamlError> {
    if text.len() > MAX_TEXT_BYTES {
        let message = format!("text has {} bytes; the limit is {MAX_TEXT_BYTES}: split the file", text.len());
        return Err(YamlError { line: None, message });
    }
    let options = serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_documents: MAX_DOCUMENTS,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_aliases: 1000,
            max_anchors: 1000,
            max_merge_keys: 1000,
        },
        alias_limits: serde_yaml::alias_limits! {
            max_total_replayed_events: 50_000,
        },
        strict_booleans: true,
        with_snippet: false,
    };
    let nodes: Vec<node::Node> =
        serde_yaml::from_multiple_with_options(text, options).map_err(|error| yaml_error(&error))?;
    Ok(nodes
        .into_iter()
        .map(|node| {
            let mut lines = Lines::default();
            let value = node.into_value(&mut lines);
            Document { value, lines }
        })
        .collect())
}

/// Reads the settings of an option that is a map in a configuration file.
///
/// # Errors
/// Fails if the text is not a map, or has a key other than these; the message names it.
pub fn map_with_keys(text: &str, keys: &[&str]) -> Result<Map<String, Value>, String> {
    let map: Map<String, Value> =
        serde_yaml::from_str(text).map_err(|error| format!("not a map: {error}"))?;
    match map.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(unknown) => Err(format!("unknown key `{unknown}`: use {}", keys.join(", "))),
        None => Ok(map),
    }
}

/// Converts an error of the parser, and moves the line from its text to the field.
fn yaml_error(error: &serde_yaml::Error) -> YamlError {
    let line =
        error.location().and_then(|location| u32::try_from(location.line()).ok()).filter(|line| *line > 0);
    let text = error.without_snippet().to_string();
    let message = text.lines().next().unwrap_or("text is not valid YAML");
    // The parser's advice is for programmers, not for users.
    let message = message.find(", set DuplicateKeyPolicy").map_or(message, |end| &message[..end]);
    let message = message.rfind(" at line ").map_or(message, |end| &message[..end]);
    YamlError { line, message: message.trim_end_matches([':', ',', ' ']).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(text: &str, expected: &[Value]) {
        let actual = documents(text).unwrap_or_else(|error| panic!("{error:?} in\n{text}"));
        let actual: Vec<Value> = actual.into_iter().map(|document| document.value).collect();
        assert_eq!(actual, expected, "{text}");
    }

    fn check_refused(text: &str, line: u32, part: &str) {
        let error = documents(text).expect_err(text);
        assert_eq!(error.line, Some(line), "{error:?}");
        assert!(error.message.contains(part), "{error:?} does not say {part:?}");
    }

    #[test]
    fn document_streams_and_scalars_are_parsed() {
        check("", &[]);
        check("# only a comment\n---\n---\n", &[]);
        check("a: 1\n---\nb: [x, 'y']\n...\n", &[json!({"a": 1}), json!({"b": ["x", "y"]})]);
        check("---\r\na: 1\r\n", &[json!({"a": 1})]);
        check(
            "s: yes\nt: true\nf: 1.5\nn: ~\ne:\nq: '1'\nv: 1.10.2\nneg: -3\nbig: 18446744073709551615\n",
            &[
                json!({"s": "yes", "t": true, "f": 1.5, "n": null, "e": null, "q": "1", "v": "1.10.2", "neg": -3,
                "big": 18_446_744_073_709_551_615_u64}),
            ],
        );
        check("101: x\n", &[json!({"101": "x"})]);
        check("true: x\n", &[json!({"true": "x"})]);
        check("text: |\n  one\n  two\n", &[json!({"text": "one\ntwo\n"})]);
        check(
            "{\n\t\"a\": {\"b\": [1, 2.5, null, true, \"\\u00e4\"]}\n}\n",
            &[json!({"a": {"b": [1, 2.5, null, true, "ä"]}})],
        );
        check(
            "base: &b {x: 1}\nother:\n  <<: *b\n  y: 2\n",
            &[json!({"base": {"x": 1}, "other": {"x": 1, "y": 2}})],
        );
    }

    #[test]
    fn yaml_errors_contain_the_line() {
        check_refused("a: 1\nb: 2\na: 3\n", 3, "duplicate");
        let twice = documents("a: 1\na: 2\n").expect_err("a key that stands twice");
        assert_eq!(twice.message, "duplicate mapping key: a");
        check_refused("{\"a\": 1,\n \"a\": 2}", 2, "duplicate");
        check_refused("a: [1, 2\nb: 3\n", 2, "");
        check_refused("a: .nan\n", 1, "");
        check_refused("a: 1\n---\nb:\n  c: *nowhere\n", 4, "anchor");
    }

    #[test]
    fn yaml_bombs_are_refused() {
        let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (next, last) in "bcdefgh".chars().zip("abcdefg".chars()) {
            laughs.extend([format!("{next}: &{next} [{}]\n", [format!("*{last}").as_str(); 8].join(", "))]);
        }
        assert!(documents(&laughs).is_err());
        for depth in [33, 64, 100_000] {
            assert!(documents(&"[".repeat(depth)).is_err());
            assert!(documents(&format!("{}{}", "[".repeat(depth), "]".repeat(depth))).is_err());
            assert!(documents(&"{a: ".repeat(depth)).is_err());
        }
        assert!(documents(&format!("{}{}", "[".repeat(30), "]".repeat(30))).is_ok());
        assert!(documents(&"- ".repeat(100_000)).is_err());
        assert!(documents(&"---\na: 1\n".repeat(MAX_DOCUMENTS + 2)).is_err());
        assert!(documents(&" ".repeat(MAX_TEXT_BYTES + 1)).is_err());
    }

    #[test]
    fn every_field_has_its_line_number() {
        let text = "# first\nkind: Resource\nmetadata:\n  name: web\n  annotations: {a.b/c: x}\nspec:\n  driver:\n    exec:\n      command:\n        - sleep\n        - '1'\n---\nkind: Group\n";
        let read = documents(text).expect("a good text");
        let line = |path: &str| read[0].lines.of(path);
        assert_eq!(line("kind"), Some(2));
        assert_eq!(line("metadata.name"), Some(4));
        assert_eq!(line("metadata.annotations.a.b/c"), Some(5));
        assert_eq!(line("metadata.annotations[a.b/c]"), Some(5));
        assert_eq!(line("spec.driver.exec.command[1]"), Some(11));
        assert_eq!(line("spec.driver.exec.missing"), Some(8), "the nearest field above");
        assert_eq!(line(""), Some(2));
        assert_eq!(read[1].lines.of("spec.nowhere"), Some(13));
    }
}
