//! Templates of `-o jsonpath=…`: text, paths in braces, quoted text and ranges, as kubectl reads them.

use super::path::{Path, outside_quotes, value_text};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    /// All values at the path, with spaces between them.
    Values(Path),
    /// The parts, once for each value at the path.
    Range(Path, Vec<Part>),
}

impl Template {
    /// Parses a template such as `{range .items[*]}{.metadata.name}{"\n"}{end}`.
    ///
    /// # Errors
    /// Fails with the cause if an expression is invalid, or if there is none.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        if !text.contains('{') {
            return Err(format!(
                "{text:?} has no expression in braces; specify a template such as {{.metadata.name}}"
            ));
        }
        // Ranges that are not ended yet, each with the parts before it.
        let mut open_ranges: Vec<(Path, Vec<Part>)> = Vec::new();
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            if start > 0 {
                parts.push(Part::Text(rest[..start].to_owned()));
            }
            let inside = &rest[start + 1..];
            let end = outside_quotes(inside).find(|(_, character)| *character == '}');
            let (end, _) = end.ok_or_else(|| format!("{{{inside}: \"{{\" is not closed by \"}}\""))?;
            let expression = inside[..end].trim();
            rest = &inside[end + 1..];
            match expression.split_whitespace().next() {
                None => {
                    return Err("{}: empty expression; specify a path such as {.metadata.name}".to_owned());
                }
                Some("end") if expression == "end" => {
                    let (path, before) = open_ranges.pop().ok_or("{end} without {range}")?;
                    let inner_parts = std::mem::replace(&mut parts, before);
                    parts.push(Part::Range(path, inner_parts));
                }
                Some("range") => {
                    let path = Path::parse(expression["range".len()..].trim())?;
                    open_ranges.push((path, std::mem::take(&mut parts)));
                }
                Some(word) if word.starts_with(['"', '\'']) => parts.push(Part::Text(unquoted(expression)?)),
                Some(word) if word.starts_with(['.', '[', '@', '$']) => {
                    parts.push(Part::Values(Path::parse(expression)?));
                }
                Some(_) => {
                    return Err(format!(
                        "{{{expression}}}: invalid expression; specify a path such as {{.metadata.name}}, \
                         quoted text, {{range PATH}} or {{end}}"
                    ));
                }
            }
        }
        if let Some((path, _)) = open_ranges.last() {
            return Err(format!("{{range {}}} has no {{end}}", path.text()));
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Template(parts))
    }

    /// Returns the text for a value. A missing field is empty.
    pub(crate) fn render(&self, value: &Value) -> String {
        let mut text = String::new();
        render(&self.0, value, value, &mut text);
        text
    }
}

fn render(parts: &[Part], root: &Value, current: &Value, text: &mut String) {
    for part in parts {
        match part {
            Part::Text(plain) => text.push_str(plain),
            Part::Values(path) => {
                let values: Vec<String> = path.values(root, current).into_iter().map(value_text).collect();
                text.push_str(&values.join(" "));
            }
            Part::Range(path, inner_parts) => {
                for value in path.values(root, current) {
                    render(inner_parts, root, value, text);
                }
            }
        }
    }
}

/// Returns quoted text without its quotes, with `\n`, `\t` and escaped characters replaced.
fn unquoted(quoted: &str) -> Result<String, String> {
    let invalid = || {
        format!("{{{quoted}}}: quoted text must end with its opening quote character, such as {{\"\\n\"}}")
    };
    let quote = quoted.chars().next().ok_or_else(invalid)?;
    let inner_text = quoted[1..].strip_suffix(quote).ok_or_else(invalid)?;
    let mut text = String::new();
    let mut characters = inner_text.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            '\\' => match characters.next().ok_or_else(invalid)? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            },
            other if other == quote => return Err(invalid()),
            other => other,
        });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn jsonpath_templates_render_like_kubectl() {
        let list = json!({"kind": "List", "items": [
            {"metadata": {"name": "web"}, "spec": {"tags": ["a", "b"], "priority": 2}},
            {"metadata": {"name": "db"}, "spec": {}},
        ]});
        let check = |template: &str, expected: &str| {
            assert_eq!(Template::parse(template).expect(template).render(&list), expected, "{template}");
        };
        check("{.items[*].metadata.name}", "web db");
        check("names: {.items[*].metadata.name}.", "names: web db.");
        check("{range .items[*]}{.metadata.name}{\"\\t\"}{.spec.priority}{\"\\n\"}{end}", "web\t2\ndb\t\n");
        check("{range .items[*]}{range .spec.tags[*]}{@}-{end}{$.kind} {end}", "a-b-List List ");
        check("{.items[?(@.spec.priority>1)].metadata.name}", "web");
        check("{'it\\'s'}", "it's");
        check("{\"}\"}{.items[0].spec.tags}", "}[\"a\",\"b\"]");
        check("{.missing}", "");
        check("{ .items[0].metadata.name }", "web");
    }

    #[test]
    fn invalid_templates_are_refused_with_cause() {
        let check = |template: &str, part: &str| {
            let cause = Template::parse(template).expect_err(template);
            assert!(cause.contains(part), "{cause}");
        };
        check("", "no expression in braces");
        check(".metadata.name", "no expression in braces");
        check("{.metadata.name", "is not closed");
        check("{}", "empty expression");
        check("{metadata.name}", "{metadata.name}: invalid expression");
        check("{range .items[*]}{.metadata.name}", "{range .items[*]} has no {end}");
        check("{.metadata.name}{end}", "{end} without {range}");
        check("{range items}{end}", "unexpected 'i'");
        check("{\"x}", "is not closed");
        check("{\"x\" y}", "must end with its opening quote character");
        check("{.items[*}", "\"[\" is not closed");
    }
}
