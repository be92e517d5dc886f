//! The writer of JSON values as YAML text.

use super::YamlError;
use serde_json::Value;

/// Formats a value as one YAML document without `---`, ending in a newline. Reading the text gives the same value.
///
/// # Errors
/// Fails if the value nests deeper than the writer supports.
pub fn to_text(value: &Value) -> Result<String, YamlError> {
    let mut text = serde_yaml::to_string(value)
        .map_err(|error| YamlError { line: None, message: format!("cannot be written as YAML: {error}") })?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::documents;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn check(value: &Value) {
        let text = to_text(value).expect("written");
        let read = documents(&text).unwrap_or_else(|error| panic!("{error:?} in\n{text}"));
        assert_eq!(read.len(), 1, "{text}");
        assert_eq!(&read[0].value, value, "{text}");
    }

    #[test]
    fn ambiguous_strings_are_quoted() {
        for text in [
            "",
            " ",
            "yes",
            "no",
            "on",
            "off",
            "true",
            "null",
            "~",
            "1",
            "1.0",
            "0x10",
            "1e3",
            ".nan",
            ".inf",
            "-",
            "- a",
            "a: b",
            "#x",
            "a #b",
            "'",
            "\"",
            "[",
            "{",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "|",
            ">",
            "?",
            "a\nb",
            "a\n",
            "\n",
            "\ttab",
            "trailing ",
            "ä→",
            "<<",
            "=",
            "---",
            "...",
            "2020-01-01",
            "1_000",
            "0o7",
            "012",
            "\u{0}",
            "\u{7f}",
            "\u{85}",
            "\u{2028}",
            "\u{feff}",
            "a\r\nb",
            "y",
            "N",
        ] {
            check(&json!({"key": text, "list": [text]}));
            if !text.is_empty() {
                check(&json!({text: 1}));
            }
        }
    }

    #[test]
    fn written_yaml_is_readable() {
        let value = json!({"kind": "Group", "spec": {"nodes": {"node1": 2}, "empty": {}, "list": ["a", {"b": 1}], "none": []}});
        assert_eq!(
            to_text(&value).expect("written"),
            "kind: Group\nspec:\n  nodes:\n    node1: 2\n  empty: {}\n  list:\n  - a\n  - b: 1\n  none: []\n"
        );
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
            "[-:#&*!|>%@`'\"{}\\[\\],?a1 \n\t.~=<]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z.#:~ 0-9]{1,6}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn written_yaml_parses_back(value in any_value()) {
            // A document that is only null counts as empty, so the value is wrapped in a map.
            check(&json!({"value": value}));
        }

        #[test]
        fn parsing_arbitrary_text_never_panics(text in "[-:#&*!|>%@`'\"{}\\[\\],?ab01 \n\t.~=<]{0,60}") {
            let _ = documents(&text);
        }
    }
}
