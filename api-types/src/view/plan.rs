//! The effects of a change: `POST /apis/hactl.io/v1/plan`.

use crate::kind::Kind;
use crate::reason::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A change to think through; nothing is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanRequest {
    /// Whole objects as they would be after the change; those not named stay as they are.
    pub objects: Vec<serde_json::Value>,
    /// Objects that would be deleted.
    pub deletions: Vec<Deletion>,
}

/// An object that would be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

/// What the change would do to services, and what would be wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Plan {
    /// What would happen, in the order of names.
    pub effects: Vec<PlannedEffect>,
    /// What would have to be waited for, as sentences.
    pub waiting_for: Vec<String>,
    /// Rules in conflict, services that would fit nowhere, as sentences.
    pub warnings: Vec<String>,
}

/// What would happen to one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlannedEffect {
    /// The resource's name.
    pub resource: String,
    /// What would happen.
    pub effect: EffectKind,
    /// Where it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Where it would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Why, in a word.
    pub reason: Reason,
    /// The effect in a sentence, as `web would move node1 → node2, live`; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What would happen to a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum EffectKind {
    /// Started on `to`.
    #[default]
    Start,
    /// Stopped on `from`.
    Stop,
    /// Stopped and started in place.
    Restart,
    /// Moved live.
    Migrate,
    /// Stopped, moved, started.
    Relocate,
    /// It would wait: no node can take it.
    Wait,
    /// No longer managed; the service is left as it is.
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
        let to = self.to.as_deref().unwrap_or("a node still to be chosen");
        match self.effect {
            EffectKind::Start => format!("{resource} would start on {to}"),
            EffectKind::Stop => format!("{resource} would stop on {from}"),
            EffectKind::Restart => format!("{resource} would restart on {from}"),
            EffectKind::Migrate => format!("{resource} would move {from} → {to}, live"),
            EffectKind::Relocate => format!("{resource} would move {from} → {to}, by stop and start"),
            EffectKind::Wait => format!("{resource} would wait: no node can take it"),
            EffectKind::Release => format!("{resource} would no longer be managed; what runs is left alone"),
        }
    }
}
