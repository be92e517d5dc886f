//! A problem of an object, with the path of the field.

use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// Kind of a problem with a field. The names are those of `metav1.Status` causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum ProblemKind {
    /// The field is unknown.
    FieldValueUnknown,
    /// The field occurs twice.
    FieldValueDuplicate,
    /// The field is missing.
    FieldValueRequired,
    /// The value is invalid.
    FieldValueInvalid,
    /// The value has the wrong type.
    FieldValueTypeInvalid,
    /// The value is not one of the allowed values.
    FieldValueNotSupported,
    /// The field cannot be set or changed.
    FieldValueForbidden,
}

/// A problem of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// Path of the field, such as `spec.nodes[2].name` or `metadata.labels[a.b/c]`.
    pub path: String,
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// Description of the problem with a correction, without the path: lower case, no full stop.
    pub message: String,
}

impl Problem {
    /// Builds a problem of this kind.
    pub fn new(path: impl Into<String>, kind: ProblemKind, message: impl Into<String>) -> Problem {
        Problem { path: path.into(), kind, message: message.into() }
    }

    /// Builds a problem of kind [`ProblemKind::FieldValueInvalid`].
    pub fn invalid(path: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem::new(path, ProblemKind::FieldValueInvalid, message)
    }

    /// Builds a problem of kind [`ProblemKind::FieldValueRequired`].
    pub fn required(path: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem::new(path, ProblemKind::FieldValueRequired, message)
    }

    /// Builds a problem of kind [`ProblemKind::FieldValueForbidden`].
    pub fn forbidden(path: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem::new(path, ProblemKind::FieldValueForbidden, message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// Returns the path of a member: plain names after a dot, others in brackets.
pub fn field_path(path: &str, name: &str) -> String {
    let is_plain = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    match (is_plain, path.is_empty()) {
        (true, true) => name.to_owned(),
        (true, false) => format!("{path}.{name}"),
        (false, _) => format!("{path}[{name}]"),
    }
}

/// Returns the path of a list element.
pub fn element_path(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_paths_use_the_kubernetes_format() {
        assert_eq!(field_path(&field_path("", "spec"), "maxRestart"), "spec.maxRestart");
        assert_eq!(field_path("metadata.labels", "a.b/c"), "metadata.labels[a.b/c]");
        assert_eq!(element_path("spec.parts", 2), "spec.parts[2]");
    }
}
