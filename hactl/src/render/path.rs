//! Paths of kubectl's JSONPath, such as `.metadata.labels.app\.kubernetes\.io/name`, over a library for RFC 9535.

use serde_json::Value;
use serde_json_path::JsonPath;

/// A path to values of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    text: String,
    /// `true` if the path begins at the whole document (`$`), even inside `{range}`.
    from_root: bool,
    /// Queries whose values are concatenated; more than one for a union of paths.
    queries: Vec<JsonPath>,
}

impl Path {
    /// Parses a path that begins with `.`, `[`, `@` or `$`.
    ///
    /// # Errors
    /// Fails with the cause if the path is invalid.
    pub(crate) fn parse(text: &str) -> Result<Path, String> {
        let (from_root, rest) = match text.strip_prefix('$') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('@').unwrap_or(text)),
        };
        let invalid = |cause: String| format!("{text}: {cause}");
        let parse = |standard: &String| {
            JsonPath::parse(standard).map_err(|error| invalid(format!("invalid JSONPath: {error}")))
        };
        let queries = to_rfc9535(rest).map_err(invalid)?.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Path { text: text.to_owned(), from_root, queries })
    }

    /// Parses a path as `--sort-by` and `custom-columns` take it: with or without braces and the first dot.
    ///
    /// # Errors
    /// Fails with the cause if the path is invalid.
    pub(crate) fn parse_relaxed(text: &str) -> Result<Path, String> {
        let inner = text.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(text).trim();
        if inner.is_empty() {
            return Err(format!("{text:?}: empty path; specify a path such as .metadata.name"));
        }
        if inner.starts_with(['.', '[', '@', '$']) {
            Path::parse(inner)
        } else {
            Path::parse(&format!(".{inner}"))
        }
    }

    /// Returns the path as written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the values at the path, which may begin at the document or at the current value.
    pub(crate) fn values<'a>(&self, root: &'a Value, current: &'a Value) -> Vec<&'a Value> {
        let value = if self.from_root { root } else { current };
        self.queries.iter().flat_map(|query| query.query(value).all()).collect()
    }
}

/// Returns a value as kubectl prints it: text without quotes, lists and maps as JSON.
pub(crate) fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Returns the path in the syntax of RFC 9535, whose names after a dot cannot contain `-`, `/` or an escaped dot. A
/// union of paths, such as `['metadata.name','status.node']`, becomes one path for each.
fn to_rfc9535(path: &str) -> Result<Vec<String>, String> {
    let mut standard = "$".to_owned();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        match first {
            '.' => {
                rest = &rest[1..];
                if let Some(deeper) = rest.strip_prefix('.') {
                    rest = deeper;
                    standard.push_str("..");
                }
                if rest.starts_with('[') || (rest.is_empty() && standard == "$") {
                    continue;
                }
                let (name, after) = split_name(rest);
                if name.is_empty() {
                    return Err("a name is missing after \".\"".to_owned());
                }
                standard.push_str(&if name == "*" {
                    "[*]".to_owned()
                } else {
                    format!("[{}]", Value::from(name))
                });
                rest = after;
            }
            '[' => {
                let end = closing_bracket(rest).ok_or("\"[\" is not closed by \"]\"")?;
                if let Some(paths) = union_paths(&rest[1..end]) {
                    let mut joined = Vec::new();
                    for path in paths {
                        for path in self::to_rfc9535(&format!(".{path}{}", &rest[end + 1..]))? {
                            joined.push(path.replacen('$', &standard, 1));
                        }
                    }
                    return Ok(joined);
                }
                standard.push_str(&rest[..=end]);
                rest = &rest[end + 1..];
            }
            other => return Err(format!("unexpected {other:?}; add \".\" before a name")),
        }
    }
    Ok(vec![standard])
}

/// Returns the paths of a union if one of its quoted parts is more than a name. A single quoted part is always a name,
/// such as that of a label.
fn union_paths<'a>(inside: &'a str) -> Option<Vec<&'a str>> {
    let unquoted = |part: &'a str| {
        let strip_quotes = |quote| part.trim().strip_prefix(quote)?.strip_suffix(quote);
        strip_quotes('\'').or_else(|| strip_quotes('"'))
    };
    let mut parts = Vec::new();
    let mut start = 0;
    let commas = outside_quotes(inside).filter(|(_, character)| *character == ',').map(|(index, _)| index);
    for end in commas.chain([inside.len()]) {
        parts.push(unquoted(&inside[start..end])?);
        start = end + 1;
    }
    (parts.len() > 1 && parts.iter().any(|part| part.contains('.'))).then_some(parts)
}

/// Splits a name from the beginning of a path. A backslash makes the next character part of the name.
fn split_name(path: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = path.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, &path[at..]),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            other => name.push(other),
        }
    }
    (name, "")
}

/// Returns the position of the bracket that closes the first one; brackets in quotes do not count.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, character) in outside_quotes(text) {
        match character {
            '[' => depth += 1,
            ']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the characters outside quotes, with their positions. In quotes, a backslash escapes the next character.
pub(super) fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quote = None;
    let mut characters = text.char_indices();
    std::iter::from_fn(move || {
        while let Some((at, character)) = characters.next() {
            match (quote, character) {
                (Some(_), '\\') => {
                    characters.next();
                }
                (Some(open), close) if open == close => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(character),
                (None, _) => return Some((at, character)),
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_paths_select_values_like_kubectl() {
        let object = json!({
            "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "x", "my-tier": "front"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Stalled", "status": "False"}]},
        });
        let check = |path: &str, expected: &[&str]| {
            let path = Path::parse_relaxed(path).expect(path);
            let values: Vec<String> = path.values(&object, &object).into_iter().map(value_text).collect();
            assert_eq!(values, expected, "{path:?}");
        };
        check(".metadata.name", &["web"]);
        check("metadata.name", &["web"]);
        check("{.metadata.name}", &["web"]);
        check("$.metadata.name", &["web"]);
        check("@.metadata['name']", &["web"]);
        check(".metadata.labels.app\\.kubernetes\\.io/name", &["x"]);
        check(".metadata.labels['app.kubernetes.io/name']", &["x"]);
        check(".metadata.labels.my-tier", &["front"]);
        check(".metadata['name','missing']", &["web"]);
        check("['metadata.name', 'metadata.labels.my-tier']", &["web", "front"]);
        check(".status.conditions[*]['type','status']", &["Ready", "True", "Stalled", "False"]);
        check("['status.conditions','metadata.missing'][0].type", &["Ready"]);
        check(".status.conditions[?(@.type==\"Ready\")].status", &["True"]);
        check(".status.conditions[?(@.type=='Ready')].status", &["True"]);
        check(".status.conditions[*].type", &["Ready", "Stalled"]);
        check(".status.conditions[-1:].type", &["Stalled"]);
        check("..type", &["Ready", "Stalled"]);
        check(".metadata.labels.*", &["x", "front"]);
        check(".status.conditions[0]", &["{\"type\":\"Ready\",\"status\":\"True\"}"]);
        check(".spec.missing", &[]);
    }

    #[test]
    fn invalid_json_paths_are_refused_with_cause() {
        let check = |path: &str, part: &str| {
            let cause = Path::parse_relaxed(path).expect_err(path);
            assert!(cause.contains(part), "{cause}");
        };
        check("", "empty path");
        check("{}", "empty path");
        check(".items[0", "\"[\" is not closed");
        check(".items[0]x", "unexpected 'x'");
        check(".metadata..", "a name is missing");
        check(".items[name]", "invalid JSONPath");
        check(".items[?(@.x=1)]", "invalid JSONPath");
    }
}
