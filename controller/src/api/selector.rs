//! Label and field selectors of lists and watches.

use super::error::ApiError;
use ha_api_types::kind::Kind;
use ha_api_types::schema::{self, default_of, suggestion};
use ha_api_types::table::Rows;
use serde_json::Value;

/// Fields of a core/v1 Event that can be selected, as in Kubernetes.
const EVENT_FIELDS: [&str; 14] = [
    "metadata.name",
    "metadata.namespace",
    "involvedObject.apiVersion",
    "involvedObject.fieldPath",
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.resourceVersion",
    "involvedObject.uid",
    "reason",
    "related.name",
    "reportingComponent",
    "source.component",
    "type",
];

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
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    path: String,
    value: String,
    /// Whether the field must be equal to the value, or different from it.
    must_equal: bool,
    /// Value of an absent field; empty if the field has no default.
    default: String,
}

impl Selector {
    /// Parses the selectors of a list or watch.
    ///
    /// # Errors
    /// Fails if the syntax is invalid, or if the objects have no such field with a single value.
    pub(crate) fn parse(rows: Rows, labels: &str, fields: &str) -> Result<Selector, ApiError> {
        Ok(Selector { labels: parse_labels(labels)?, fields: parse_fields(rows, fields)? })
    }

    /// Returns the only name that can match, if the selector requires one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields
            .iter()
            .find(|field| field.path == "metadata.name" && field.must_equal)
            .map(|field| field.value.as_str())
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |name: &str| object.get("metadata")?.get("labels")?.get(name)?.as_str();
        let labels_match = self.labels.iter().all(|requirement| match requirement {
            Requirement::In(name, values) => {
                label(name).is_some_and(|value| values.iter().any(|allowed| allowed == value))
            }
            Requirement::NotIn(name, values) => {
                label(name).is_none_or(|value| values.iter().all(|excluded| excluded != value))
            }
            Requirement::Exists(name) => label(name).is_some(),
            Requirement::Absent(name) => label(name).is_none(),
        });
        labels_match
            && self.fields.iter().all(|field| (field.field_text(object) == field.value) == field.must_equal)
    }
}

impl FieldRequirement {
    fn field_text(&self, object: &Value) -> String {
        let field_value = self.path.split('.').try_fold(object, |value, name| value.get(name));
        match field_value {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(_) | Value::Number(_)) => field_value.map(Value::to_string).unwrap_or_default(),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => self.default.clone(),
        }
    }
}

/// Returns the default of a field; empty if it has none.
fn default_value(rows: Rows, path: &str) -> Result<String, ApiError> {
    match rows {
        Rows::Of(kind) => default_in_schema(kind, path),
        Rows::Events => check_known_field(&EVENT_FIELDS, "Event", path),
        Rows::Namespaces => check_known_field(&["metadata.name"], "Namespace", path),
    }
}

fn check_known_field(fields: &[&str], kind: &str, path: &str) -> Result<String, ApiError> {
    if fields.contains(&path) {
        return Ok(String::new());
    }
    Err(ApiError::bad_request(format!(
        "fieldSelector: field {path} of {kind} is not supported; use one of {}",
        fields.join(", ")
    )))
}

fn default_in_schema(kind: Kind, path: &str) -> Result<String, ApiError> {
    let mut field_schema = schema::of(kind);
    for name in path.split('.') {
        let fields = &field_schema["properties"];
        let Some(field) = fields.get(name) else {
            let field_names =
                fields.as_object().into_iter().flat_map(|fields| fields.keys().map(String::as_str));
            let hint = suggestion(name, field_names).map(|nearest| format!("; did you mean {nearest}?"));
            return Err(ApiError::bad_request(format!(
                "fieldSelector: {kind} has no field {path}{}",
                hint.unwrap_or_default()
            )));
        };
        field_schema = field;
    }
    match field_schema["type"].as_str() {
        Some("object" | "array") => {
            Err(ApiError::bad_request(format!("fieldSelector: {path} of {kind} is not a single value")))
        }
        Some(_) | None => Ok(default_of(field_schema).unwrap_or_default()),
    }
}

fn parse_fields(rows: Rows, text: &str) -> Result<Vec<FieldRequirement>, ApiError> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (path, value, must_equal) = if let Some((path, value)) = part.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, value, true)
            } else {
                return Err(ApiError::bad_request(format!(
                    "{part:?} is not a valid field selector: use path=value or path!=value, such as \
                     metadata.name=web"
                )));
            };
            let (path, value) = (path.trim().to_owned(), value.trim().to_owned());
            let default = default_value(rows, &path)?;
            Ok(FieldRequirement { path, value, must_equal, default })
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
    let parse_name = |text: &str| {
        let text = text.trim();
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        (!text.is_empty() && text.chars().all(is_allowed)).then(|| text.to_owned())
    };
    let parse_value = |text: &str| {
        let text = text.trim();
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        text.chars().all(is_allowed).then(|| text.to_owned())
    };
    if let Some(absent) = part.strip_prefix('!') {
        return parse_name(absent).map(Requirement::Absent);
    }
    if let Some(inside) = part.strip_suffix(')') {
        let (head, list) = inside.split_once('(')?;
        let values: Vec<String> = list.split(',').map(parse_value).collect::<Option<_>>()?;
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => Some(Requirement::In(parse_name(key)?, values)),
            "notin" => Some(Requirement::NotIn(parse_name(key)?, values)),
            _ => None,
        };
    }
    if let Some((key, text)) = part.split_once("!=") {
        return Some(Requirement::NotIn(parse_name(key)?, vec![parse_value(text)?]));
    }
    if let Some((key, text)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(Requirement::In(parse_name(key)?, vec![parse_value(text)?]));
    }
    parse_name(part).map(Requirement::Exists)
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0_usize);
    for (index, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
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
        let selector = Selector::parse(Rows::Of(Kind::Resource), labels, fields);
        let matched = selector.ok().map(|selector| selector.matches(&object));
        assert_eq!(matched, expected, "{labels:?} {fields:?}");
    }

    #[test]
    fn selectors_match_as_in_kubernetes() {
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
        check("", "spec.maxRelocate=1,status.node!=node1", Some(true));
        check("", "status.stat=Started", None);
        check("", "metadata.labels=web", None);
        check("", "metadata.labels.app=web", None);
        check("app in web", "", None);
        check("a b", "", None);
        check("", "metadata.name", None);
    }

    #[test]
    fn unsupported_selector_field_is_named() {
        let check = |rows: Rows, fields: &str, part: &str| {
            let error = Selector::parse(rows, "", fields).expect_err(fields).status();
            let message = error["message"].as_str().unwrap_or_default();
            assert!(error["code"] == 400 && message.contains(part), "{error}");
        };
        let resources = Rows::Of(Kind::Resource);
        check(resources, "status.stat=Started", "Resource has no field status.stat; did you mean state?");
        check(resources, "status.conditions=x", "status.conditions of Resource is not a single value");
        check(
            Rows::Events,
            "involvedObject.nam=x",
            "field involvedObject.nam of Event is not supported; use one of",
        );
        assert!(Selector::parse(Rows::Events, "", "involvedObject.name=x,type!=Normal").is_ok());
    }
}
