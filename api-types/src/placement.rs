//! Groups and affinity rules: the declared constraints on where resources run.

use crate::id::NodeName;
use crate::kind::Kind;
use crate::meta::Condition;
use crate::object::{Object, Spec};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// A list of nodes with priorities.
pub type Group = Object<GroupSpec>;
/// A rule about the nodes of resources, or about resources together.
pub type AffinityRule = Object<AffinityRuleSpec>;

impl Spec for GroupSpec {
    type Status = RuleStatus;
    const KIND: Kind = Kind::Group;
}

impl Spec for AffinityRuleSpec {
    type Status = RuleStatus;
    const KIND: Kind = Kind::AffinityRule;
}

/// Node names with priorities; a higher number is preferred.
///
/// Two other forms are accepted: a list of names (all 0), and a text such as `node1:2,node2:1,node3`. In the text, a
/// name without a number has priority 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct NodePriorities(pub BTreeMap<NodeName, i64>);

impl<'de> Deserialize<'de> for NodePriorities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NodePriorities, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = NodePriorities;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a map of node names to priorities, a list of node names, or a string such as node1:2,node2:1,node3",
                )
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<NodePriorities, E> {
                let mut nodes = BTreeMap::new();
                for part in text.split(',').map(str::trim) {
                    let (name, priority) = match part.split_once(':') {
                        None => (part, 0),
                        Some((name, number)) => {
                            let number = number.trim();
                            let problem =
                                || E::custom(format!("{number:?} is not a valid priority of {name}"));
                            (name.trim_end(), number.parse().map_err(|_| problem())?)
                        }
                    };
                    if name.is_empty() {
                        return Err(E::custom(format!("a node's name is missing in {text:?}")));
                    }
                    if nodes.insert(name.into(), priority).is_some() {
                        return Err(E::custom(format!("node {name} is listed twice")));
                    }
                }
                Ok(NodePriorities(nodes))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut names: A) -> Result<NodePriorities, A::Error> {
                let mut nodes = BTreeMap::new();
                while let Some(name) = names.next_element::<NodeName>()? {
                    nodes.insert(name, 0);
                }
                Ok(NodePriorities(nodes))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut entries: A) -> Result<NodePriorities, A::Error> {
                let mut nodes = BTreeMap::new();
                while let Some((name, priority)) = entries.next_entry::<NodeName, Option<i64>>()? {
                    nodes.insert(name, priority.unwrap_or(0));
                }
                Ok(NodePriorities(nodes))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for NodePriorities {
    fn schema_name() -> Cow<'static, str> {
        "NodePriorities".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Node names with priorities, where a higher number is preferred. Also accepted: a list of node names, all with priority 0, or a text such as node1:2,node2:1,node3.",
            "anyOf": [
                {"type": "object", "additionalProperties": {"type": ["integer", "null"], "format": "int64"}},
                {"type": "array", "items": {"type": "string"}},
                {"type": "string"}
            ]
        })
    }
}

/// Nodes on which the resources of a group preferably run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSpec {
    /// Member nodes with priorities.
    pub nodes: NodePriorities,
    /// Whether resources of the group run on member nodes only.
    pub restricted: bool,
    /// Whether resources stay on their node when a preferred node becomes available again.
    pub nofailback: bool,
    /// Free-form description, not interpreted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// A rule: exactly one of `nodeAffinity` and `resourceAffinity`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AffinityRuleSpec {
    /// Resources, and the nodes on which they run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
    /// Resources that run on one node, or on different nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_affinity: Option<ResourceAffinity>,
    /// Whether the rule is ignored.
    pub disabled: bool,
    /// Free-form description, not interpreted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// Resources, and the nodes on which they run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// Names of the resources.
    pub resources: Vec<String>,
    /// Nodes with priorities.
    pub nodes: NodePriorities,
    /// Whether the resources run on these nodes only. If false, the nodes are preferred.
    pub strict: bool,
}

/// Resources that run on one node, or on different nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceAffinity {
    /// Names of the resources.
    pub resources: Vec<String>,
    /// Whether the resources run on one node (affinity) or on different nodes (anti-affinity).
    pub affinity: Affinity,
    /// Whether the rule is required. If false, the rule is preferred.
    pub strict: bool,
}

impl Default for ResourceAffinity {
    fn default() -> ResourceAffinity {
        ResourceAffinity { resources: Vec::new(), affinity: Affinity::default(), strict: true }
    }
}

/// Affinity or anti-affinity of resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-hactl-aliases" = ["positive", "negative"]))]
pub enum Affinity {
    /// All on one node.
    #[default]
    #[serde(alias = "positive")]
    Positive,
    /// Each on a different node.
    #[serde(alias = "negative")]
    Negative,
}

/// Observed state of a group or rule, written by the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleStatus {
    /// Generation of the object from which this status was computed.
    pub observed_generation: i64,
    /// Condition Ready: whether the group or rule is applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn node_priorities_parse_from_map_list_text() {
        let check = |written: Value, expected: Option<Value>| {
            let read = serde_json::from_value::<NodePriorities>(written.clone());
            let read = read.ok().map(|nodes| serde_json::to_value(nodes).expect("a map"));
            assert_eq!(read, expected, "{written}");
        };
        check(json!({"node1": 2, "node2": null}), Some(json!({"node1": 2, "node2": 0})));
        check(json!(["node1", "node2"]), Some(json!({"node1": 0, "node2": 0})));
        let text = "node1:2,node2:1,node3:1,node4";
        check(json!(text), Some(json!({"node1": 2, "node2": 1, "node3": 1, "node4": 0})));
        check(json!(" node1 : 2 , node2 "), Some(json!({"node1": 2, "node2": 0})));
        check(json!("node1:-3"), Some(json!({"node1": -3})));
        for invalid in ["", "node1:", "node1:high", ":2", "node1,,node2", "node1:1,node1:2"] {
            check(json!(invalid), None);
        }
        check(json!(5), None);
    }
}
