//! The identity of the data in etcd: its incarnation, and the incarnations that it continues (FENCING, R1.26 to R1.32).

use crate::id::NodeName;
use serde::{Deserialize, Serialize};

/// `incarnation`, created by the first leader, and rewritten by each `hactl restore`. Every process that has followed
/// the data stores `value`. From then on, the process follows only that data and data that continues it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Incarnation {
    /// Unique id of the data.
    pub value: String,
    /// The incarnations that this one continues, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub predecessors: Vec<String>,
    /// `true` if this data continues any incarnation. An operator confirmed this for data without a backup, or from a
    /// version without incarnations.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continues_any: bool,
    /// Nodes that an operator allowed to follow this data, regardless of the incarnation that they have stored (`hactl
    /// node follow-store`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub followers: Vec<NodeName>,
}

impl Incarnation {
    /// Returns the incarnation of data restored from a backup. The incarnation for a backup without an incarnation
    /// continues any other.
    #[must_use]
    pub fn restored(value: String, backup: Option<Incarnation>) -> Incarnation {
        let Some(backup) = backup else {
            return Incarnation { value, continues_any: true, ..Incarnation::default() };
        };
        let mut predecessors = backup.predecessors;
        predecessors.push(backup.value);
        Incarnation { value, predecessors, continues_any: backup.continues_any, followers: Vec::new() }
    }

    /// Returns `true` if a process that has stored the incarnation `recorded` may use the data of this incarnation. A
    /// process without a stored incarnation may use any data.
    pub fn continues(&self, recorded: Option<&str>) -> bool {
        recorded.is_none_or(|recorded| {
            self.continues_any
                || self.value == recorded
                || self.predecessors.iter().any(|predecessor| predecessor == recorded)
        })
    }

    /// Returns `true` if an operator allowed this node to follow the data.
    pub fn is_followed_by(&self, node: &NodeName) -> bool {
        self.followers.iter().any(|follower| follower == node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_followed_if_it_continues_the_remembered_data() {
        let first = Incarnation { value: "a".to_owned(), ..Incarnation::default() };
        let second = Incarnation::restored("b".to_owned(), Some(first.clone()));
        let third = Incarnation::restored("c".to_owned(), Some(second.clone()));
        let foreign = Incarnation { value: "x".to_owned(), ..Incarnation::default() };
        let without_origin = Incarnation::restored("d".to_owned(), None);
        let check = |data: &Incarnation, recorded: Option<&str>, expected: bool| {
            assert_eq!(data.continues(recorded), expected, "{data:?} {recorded:?}");
        };
        for data in [&first, &second, &third, &foreign, &without_origin] {
            check(data, None, true);
        }
        check(&first, Some("a"), true);
        check(&second, Some("a"), true);
        check(&third, Some("a"), true);
        check(&first, Some("b"), false);
        check(&foreign, Some("a"), false);
        check(&without_origin, Some("a"), true);
    }
}
