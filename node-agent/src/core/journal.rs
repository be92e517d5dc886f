//! State that must survive a restart of the agent: its registration, and the actions that it has begun.

use ha_api_types::id::{ActionUid, BootId, Epoch, MachineId, OperationName, ResourceName, Revision};
use ha_api_types::record::WatchdogTest;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, Timestamp};
use ha_api_types::timing::Timings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The journal. The core has the journal written before it acts on the new content.
///
/// Guarantees: an `actionUid` is in the journal before the driver receives the command. The entry stays until the
/// resource no longer exists. Each `actionUid` is therefore begun at most once, even if the agent restarts (FENCING,
/// section 6).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Journal {
    /// The boot under which the journal was written.
    pub boot_id: BootId,
    /// The registration: revision of the node's report in mode Registering.
    pub request: Option<Revision>,
    /// The epoch that was opened for the registration.
    pub epoch: Epoch,
    /// The highest etcd revision that a commit of this node has reached. If the revision of etcd is lower, etcd was
    /// restored.
    pub revision: Revision,
    /// The incarnation of the etcd data that the node follows (FENCING, R1.28).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// The timings that were active when the journal was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// The reason why this machine was about to be reset, shown after the next boot; `None` while no reset is
    /// imminent.
    #[serde(rename = "lastWords", skip_serializing_if = "Option::is_none")]
    pub shutdown_record: Option<ShutdownRecord>,
    /// A test of the watchdog that has begun and not ended.
    #[serde(rename = "trial", skip_serializing_if = "Option::is_none")]
    pub active_trial: Option<WatchdogTrial>,
    /// The watchdog that has reset its machine in a test.
    #[serde(rename = "proven", skip_serializing_if = "Option::is_none")]
    pub tested_watchdog: Option<TestedWatchdog>,
    /// A test in which the watchdog did not reset its machine. The watchdog is not accepted until another test
    /// has passed.
    #[serde(rename = "failed", skip_serializing_if = "Option::is_none")]
    pub failed_trial: Option<WatchdogTrial>,
    /// The started services, by resource name.
    pub services: BTreeMap<ResourceName, JournalEntry>,
    /// Live migrations to this node whose source is not known to have ended, by resource name, including those of an
    /// earlier boot.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub receptions: BTreeMap<ResourceName, Reception>,
}

/// A live migration to this node that may still arrive: its driver has not confirmed that no copy can arrive (FENCING,
/// R4.40).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reception {
    /// The action under which the reception was permitted.
    pub action_uid: ActionUid,
    /// `true` if the service is exclusive.
    pub exclusive: bool,
}

/// A shutdown record, which a machine writes before it may be reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShutdownRecord {
    /// The boot that wrote the record.
    pub boot_id: BootId,
    /// The reason why the machine may be reset.
    pub message: String,
    /// Time of the record, by this machine's clock.
    pub at: Timestamp,
}

/// A test of a watchdog. Its result is valid only for that machine and driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchdogTrial {
    /// The operation that requested the test.
    pub operation: OperationName,
    /// Machine id of the tested machine.
    pub machine_id: MachineId,
    /// Id of the boot that the watchdog resets.
    pub boot_id: BootId,
    /// Identity that the watchdog's driver reports.
    pub identity: String,
    /// Timeout with which the device is armed, milliseconds.
    pub timeout_ms: Millis,
    /// Start of the test.
    pub at: Timestamp,
    /// Time for which the machine kept running after the device was armed, milliseconds.
    pub lasted_ms: Millis,
}

/// A watchdog that has passed a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TestedWatchdog {
    /// Machine id of the tested machine.
    pub machine_id: MachineId,
    /// Identity that the watchdog's driver reports.
    pub identity: String,
    /// The test as it is reported.
    pub test: WatchdogTest,
}

/// The journal's entry of one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JournalEntry {
    /// The definition with which the service was started; the service is stopped under the same definition.
    pub definition: ServiceDefinition,
    /// The action that was begun last; empty if the service was found running.
    #[serde(rename = "begun")]
    pub begun_action: ActionUid,
    /// `true` if the service was killed before the deadline. No agent process may continue its action.
    #[serde(rename = "spent", skip_serializing_if = "std::ops::Not::not")]
    pub was_killed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_with_unknown_exclusivity_is_exclusive() {
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
