//! What the leader tells a node to do with a service.

use super::Replacement;
use crate::resource::ServiceDefinition;
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// `assignment/<resource>`, written by the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Assignment {
    /// The node; for a migration, its source.
    pub node: String,
    /// The node's epoch that this holds for.
    pub epoch: u64,
    /// The boot that this holds for.
    pub boot_id: String,
    /// Tells this request from every other; answered with the same.
    pub action_uid: String,
    /// What to do.
    pub action: Action,
    /// How to do it; carries the resource's name and uid.
    pub definition: ServiceDefinition,
    /// The operation by which an operator confirmed this definition for the copy that runs: the agent takes the definition over
    /// without a stop (FENCING, R6.10). `None`: what runs is stopped as it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place: Option<String>,
    /// Beside that, while it runs: its secondary is to be replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
}

/// What to do with a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum Action {
    /// Run it; adopt it under a permit if it already runs.
    Start,
    /// Stop it and keep it stopped.
    Stop {
        /// Graceful for so long, then hard; default `timeouts.stopSeconds`; 0: hard at once.
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<Millis>,
    },
    /// Stop it and start it again, under one permit.
    Restart,
    /// Hand it over live to the target.
    Migrate {
        /// The receiving node.
        target: String,
        /// Its epoch.
        target_epoch: u64,
        /// Its boot.
        target_boot_id: String,
    },
    /// Leave it alone (Error): neither start, stop nor restart it.
    #[default]
    Leave,
}
