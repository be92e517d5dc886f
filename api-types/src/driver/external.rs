//! Driver `external`: an executable of another project that exchanges JSON messages on its standard input and output.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A service of a driver that is not part of hactl (docs/external.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalDriver {
    /// The driver's name: the executable's in a folder of drivers. It is the resource's type, too.
    pub name: String,
    /// What the driver is given; it says itself what it understands.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Value>,
    /// Moves live, if the driver says that it can.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_migrate: bool,
    /// Nothing that arrives in a live migration runs on the target before `arrive` is called there, also not in a later boot of
    /// the target.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gated: bool,
}
