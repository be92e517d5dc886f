//! What an agent must remember across its own restart: whom it registered as, and which actions it has begun.

use ha_api_types::record::{Revision, WatchdogTest};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, Timestamp};
use ha_api_types::timing::Timings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The journal. The core asks for it to be written before it acts on what is in it.
///
/// Guarantees: an `actionUid` is in it before the driver is told to begin, and stays until the resource is gone, so it is
/// begun at most once, also across a restart of the agent (FENCING, section 6).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Journal {
    /// The boot under which it was written.
    pub boot_id: String,
    /// The registration: revision of the node's report in mode Registering.
    pub request: Option<Revision>,
    /// The epoch that was opened for it.
    pub epoch: u64,
    /// The highest revision of the store that a commit of this node has reached: a store below it was restored.
    pub revision: Revision,
    /// The incarnation of the data in the store that is followed (FENCING, R1.28).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// The timings in force when it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// Why this machine was about to be reset, for whoever reads it after that; `None` while all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_words: Option<LastWords>,
    /// A test of the watchdog that was begun and has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// The watchdog that has reset its machine in a test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven: Option<Proven>,
    /// A test in which the watchdog did not reset its machine: it is not relied on until another test is passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Trial>,
    /// By resource.
    pub services: BTreeMap<String, JournalEntry>,
    /// By resource: live migrations to here whose source is not known to have ended, also of an earlier boot.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub receptions: BTreeMap<String, Reception>,
}

/// A live migration to this node that may still arrive: its driver has not confirmed the opposite (FENCING, R4.40).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reception {
    /// The action under which it was permitted.
    pub action_uid: String,
    /// Whether promise 1 covers the service.
    pub exclusive: bool,
}

/// What a machine wrote down before it may have been reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastWords {
    /// The boot that says so.
    pub boot_id: String,
    /// Why, in a sentence.
    pub message: String,
    /// When, by this machine's clock.
    pub at: Timestamp,
}

/// A test of a watchdog: what comes of it counts for that machine and driver alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trial {
    /// The operation that asked for it.
    pub operation: String,
    /// The machine.
    pub machine_id: String,
    /// The boot that is to be reset.
    pub boot_id: String,
    /// The driver.
    pub identity: String,
    /// The timeout that the device is armed with, milliseconds.
    pub timeout_ms: Millis,
    /// When it began.
    pub at: Timestamp,
    /// How long the machine was there after the device was armed, milliseconds.
    pub lasted_ms: Millis,
}

/// A watchdog that has passed a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Proven {
    /// The machine.
    pub machine_id: String,
    /// The driver.
    pub identity: String,
    /// What is told of it.
    pub test: WatchdogTest,
}

/// What is remembered of one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JournalEntry {
    /// The service as it was started: it is stopped the same way.
    pub definition: ServiceDefinition,
    /// The action that was begun last; empty: none, it was found running.
    pub begun: String,
    /// It was killed before the deadline, so it is not gone on with, also by the next process.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub spent: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_whose_exclusivity_is_not_known_counts_as_exclusive() {
        let check = |text: &str, expected: bool| {
            let entry: JournalEntry = serde_json::from_str(text).unwrap();
            assert_eq!(entry.definition.exclusive, expected, "{text}");
        };
        check("{}", true);
        check(r#"{"definition": {"name": "web"}, "begun": "uid"}"#, true);
        check(r#"{"definition": {"name": "web", "exclusive": true}}"#, true);
        check(r#"{"definition": {"name": "web", "exclusive": false}}"#, false);
    }
}
