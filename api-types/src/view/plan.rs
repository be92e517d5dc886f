//! The effects of a change: `POST /apis/hactl.io/v1/plan`.

use crate::id::{NodeName, ResourceName};
use crate::kind::Kind;
use crate::reason::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A change to simulate. Nothing is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanRequest {
    /// Complete objects as they would be after the change. Other objects stay as they are.
    pub objects: Vec<serde_json::Value>,
    /// Objects that would be deleted.
    pub deletions: Vec<Deletion>,
}

/// An object that would be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: String,
}

/// Effects of the change on services, and its problems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Plan {
    /// Effects, ordered by name.
    pub effects: Vec<PlannedEffect>,
    /// Events that the effects wait for, as sentences.
    pub waiting_for: Vec<String>,
    /// Conflicting rules and unschedulable services, as sentences.
    pub warnings: Vec<String>,
}

/// Effect on one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlannedEffect {
    /// Name of the resource.
    pub resource: ResourceName,
    /// Kind of the effect.
    pub effect: EffectKind,
    /// Node of the service before the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeName>,
    /// Node after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<NodeName>,
    /// Reason in CamelCase, from a fixed list.
    pub reason: Reason,
    /// Effect, as a sentence, such as `web would live-migrate node1 → node2`. May be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Effect on a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum EffectKind {
    /// Started on `to`.
    #[default]
    Start,
    /// Stopped on `from`.
    Stop,
    /// Stopped and started on the same node.
    Restart,
    /// Live-migrated.
    Migrate,
    /// Stopped, moved and started.
    Relocate,
    /// Waiting, because no node is eligible.
    Wait,
    /// No longer managed. The service is left unchanged.
    Release,
}

impl PlannedEffect {
    /// Returns the effect as a sentence: the message of the server, or one built from the fields.
    pub fn sentence(&self) -> String {
        if !self.message.is_empty() {
            return self.message.clone();
        }
        let resource = &self.resource;
        let from = self.from.as_deref().unwrap_or("an unknown node");
        let to = self.to.as_deref().unwrap_or("a node that is not yet selected");
        match self.effect {
            EffectKind::Start => format!("{resource} would start on {to}"),
            EffectKind::Stop => format!("{resource} would stop on {from}"),
            EffectKind::Restart => format!("{resource} would restart on {from}"),
            EffectKind::Migrate => format!("{resource} would live-migrate {from} → {to}"),
            EffectKind::Relocate => format!("{resource} would relocate {from} → {to}"),
            EffectKind::Wait => format!("{resource} would wait: no node is eligible"),
            EffectKind::Release => {
                format!("{resource} would no longer be managed; a running service is not stopped")
            }
        }
    }
}
