//! Driver `external`: an executable of another project that exchanges JSON messages on its standard input and output.

use crate::setting::{Reference, ValueSource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A service of an external driver, which is not part of hactl (docs/external.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalDriver {
    /// Name of the driver: that of its executable in a driver directory. Also the type of the resource.
    pub name: String,
    /// Settings of the driver. The driver itself defines their schema. A value can come from the node (`valueFrom`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Value>,
    /// Whether the service live-migrates, if the driver supports it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_migrate: bool,
    /// Whether a live-migrated service starts running on the target only after `arrive` is called there. The driver must
    /// guarantee this across reboots of the target.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gated: bool,
}

impl ExternalDriver {
    /// Returns the locations on the node from which settings get their values.
    pub(super) fn value_sources(&self) -> impl Iterator<Item = ValueSource> {
        let references = self.settings.values().filter_map(|value| Reference::from_value(value)?.ok());
        references.map(|reference| reference.value_from)
    }
}
