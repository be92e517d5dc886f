//! Label and field selectors of lists and watches.

use super::error::ApiError;
use serde_json::Value;

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// Label and field requirements that an object must meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    /// Path, value, and whether the field must be equal to it.
    fields: Vec<(String, String, bool)>,
}

impl Selector {
    pub(crate) fn parse(labels: &str, fields: &str) -> Result<Selector, ApiError> {
        Ok(Selector { labels: parse_labels(labels)?, fields: parse_fields(fields)? })
    }

    /// Returns the only name that can match, if the selector requires one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields
            .iter()
            .find(|(path, _, equal)| path == "metadata.name" && *equal)
            .map(|(_, value, _)| value.as_str())
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |name: &str| object.get("metadata")?.get("labels")?.get(name)?.as_str();
        let labels_fit = self.labels.iter().all(|requirement| match requirement {
            Requirement::In(name, values) => {
                label(name).is_some_and(|value| values.iter().any(|one| one == value))
            }
            Requirement::NotIn(name, values) => {
                label(name).is_none_or(|value| values.iter().all(|one| one != value))
            }
            Requirement::Exists(name) => label(name).is_some(),
            Requirement::Absent(name) => label(name).is_none(),
        });
        labels_fit && self.fields.iter().all(|(path, value, equal)| (field(object, path) == *value) == *equal)
    }
}

/// Returns the text of a scalar field; empty if the field is absent.
fn field(object: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(object, |value, name| value.get(name));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(_) | Value::Number(_)) => found.map(Value::to_string).unwrap_or_default(),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => String::new(),
    }
}

fn parse_fields(text: &str) -> Result<Vec<(String, String, bool)>, ApiError> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, value, true)
            } else {
                return Err(ApiError::bad_request(format!(
                    "{part:?} is not a valid field selector: use path=value or path!=value, such as \
                     metadata.name=web"
                )));
            };
            Ok((path.trim().to_owned(), value.trim().to_owned(), equal))
        })
        .collect()
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, ApiError> {
    split_outside_parentheses(text)
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            parse_requirement(part).ok_or_else(|| {
                ApiError::bad_request(format!(
                    "{part:?} is not a valid label selector: use a=b, a!=b, a in (b,c), a notin (b,c), a \
                     or !a"
                ))
            })
        })
        .collect()
}

fn parse_requirement(part: &str) -> Option<Requirement> {
    let name = |text: &str| {
        let text = text.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        (!text.is_empty() && text.chars().all(plain)).then(|| text.to_owned())
    };
    let value = |text: &str| {
        let text = text.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        text.chars().all(plain).then(|| text.to_owned())
    };
    if let Some(absent) = part.strip_prefix('!') {
        return name(absent).map(Requirement::Absent);
    }
    if let Some(inside) = part.strip_suffix(')') {
        let (head, list) = inside.split_once('(')?;
        let values: Vec<String> = list.split(',').map(value).collect::<Option<_>>()?;
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => Some(Requirement::In(name(key)?, values)),
            "notin" => Some(Requirement::NotIn(name(key)?, values)),
            _ => None,
        };
    }
    if let Some((key, text)) = part.split_once("!=") {
        return Some(Requirement::NotIn(name(key)?, vec![value(text)?]));
    }
    if let Some((key, text)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(Requirement::In(name(key)?, vec![value(text)?]));
    }
    name(part).map(Requirement::Exists)
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0_usize);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(labels: &str, fields: &str, expected: Option<bool>) {
        let object = json!({
            "metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}},
            "spec": {"maxRestart": 2}, "status": {"state": "Started"}
        });
        let got = Selector::parse(labels, fields).ok().map(|selector| selector.matches(&object));
        assert_eq!(got, expected, "{labels:?} {fields:?}");
    }

    #[test]
    fn selectors_select_as_in_kubernetes() {
        check("", "", Some(true));
        check("app=web,tier==front", "metadata.name=web", Some(true));
        check("app!=web", "", Some(false));
        check("other!=web", "", Some(true));
        check("app in (db, web),tier notin (back)", "", Some(true));
        check("tier notin (front,back)", "", Some(false));
        check("app,!other", "", Some(true));
        check("!app", "", Some(false));
        check("", "metadata.name!=web", Some(false));
        check("", "status.state=Started,spec.maxRestart=2", Some(true));
        check("", "metadata.namespace=", Some(true));
        check("app in web", "", None);
        check("a b", "", None);
        check("", "metadata.name", None);
    }
}
