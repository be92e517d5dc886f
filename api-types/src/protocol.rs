//! Protocol versions: the stored words that a build can read, and the version from which such a word may be written
//! (FENCING, R1.11 to R1.13).
//!
//! A *word* is a value that an earlier build cannot read, such as a new variant of a stored enum. A new optional field
//! is not a word, because an earlier build ignores it.
//!
//! A new word that users write needs a row in [`ADDED_VALUES`]. Before code writes any other new word, it must check
//! [`crate::cluster::ClusterStatus::allows`].

use crate::kind::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A protocol version. A record without a version has the first version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Protocol(pub u32);

impl Protocol {
    /// Version of builds whose records contain no version.
    pub const FIRST: Protocol = Protocol(1);
    /// Highest version that this build can read.
    pub const CURRENT: Protocol = Protocol(2);
}

impl Default for Protocol {
    fn default() -> Protocol {
        Protocol::FIRST
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A word that users write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedValue {
    /// Kind of the object.
    pub kind: Kind,
    /// The field, as a JSON pointer.
    pub field: &'static str,
    /// The value; builds of versions before `since` cannot read it.
    pub value: &'static str,
    /// First version that can read the word.
    pub since: Protocol,
}

/// Values that users can write and that some builds cannot read.
pub const ADDED_VALUES: &[AddedValue] = &[
    AddedValue { kind: Kind::Operation, field: "/spec/action", value: "FollowStore", since: Protocol(2) },
    AddedValue { kind: Kind::Operation, field: "/spec/action", value: "UpdateInPlace", since: Protocol(2) },
];

/// Returns the words in an object that only builds of a later protocol version can read.
pub fn values_added_after(kind: Kind, object: &Value, version: Protocol) -> Vec<AddedValue> {
    added_after(ADDED_VALUES, kind, object, version)
}

fn added_after(
    added_values: &[AddedValue],
    kind: Kind,
    object: &Value,
    version: Protocol,
) -> Vec<AddedValue> {
    let is_in = |added_value: &&AddedValue| {
        object.pointer(added_value.field).and_then(Value::as_str) == Some(added_value.value)
    };
    added_values
        .iter()
        .filter(|added_value| added_value.kind == kind && added_value.since > version)
        .filter(is_in)
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn enum_values_newer_than_version_are_found() {
        let added_value =
            AddedValue { kind: Kind::Operation, field: "/spec/action", value: "NotHere", since: Protocol(2) };
        let check = |kind: Kind, action: &str, version: u32, expected: &[AddedValue]| {
            let object = json!({"spec": {"action": action}});
            assert_eq!(
                added_after(&[added_value], kind, &object, Protocol(version)),
                expected,
                "{action} {version}"
            );
        };
        check(Kind::Operation, "NotHere", 1, &[added_value]);
        check(Kind::Operation, "NotHere", 2, &[]);
        check(Kind::Operation, "Stop", 1, &[]);
        check(Kind::Resource, "NotHere", 1, &[]);
    }

    #[test]
    fn a_record_without_a_version_has_version_one() {
        let candidate: crate::record::Candidate = serde_json::from_str("{}").expect("sound");
        let report: crate::record::NodeReport = serde_json::from_str("{}").expect("sound");
        let status: crate::cluster::ClusterStatus = serde_json::from_str("{}").expect("sound");
        assert_eq!([candidate.protocol, report.protocol, status.protocol], [Protocol::FIRST; 3]);
        assert!(status.allows(Protocol(1)) && !status.allows(Protocol(2)));
    }
}
