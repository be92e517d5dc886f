//! Marker file in a service's directory: the service may run on this node. It is written before a start, and removed
//! once the service is confirmed stopped.

use super::{Programs, io_failure};
use crate::core::DriverFailure;
use ha_api_types::id::{BootId, ObjectUid};
use ha_api_types::resource::ServiceDefinition;
use serde::{Deserialize, Serialize};

/// Content of the marker file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartMarker {
    uid: ObjectUid,
    boot_id: BootId,
}

const START_MARKER_FILE: &str = "begun.json";

impl Programs {
    /// Returns `true` if a start was requested in this boot and has not been confirmed stopped since.
    pub(in crate::driver) fn is_start_recorded(&self, service: &ServiceDefinition) -> bool {
        match self.directory_of(&service.name).read::<StartMarker>(START_MARKER_FILE) {
            Ok(start_marker) => {
                start_marker.is_some_and(|start_marker| start_marker.boot_id == self.settings.boot_id)
            }
            // An unreadable marker counts as a start, because the file exists only after a start was recorded.
            Err(error) => {
                tracing::warn!(resource = service.name.as_str(), %error, "cannot determine whether the service was started");
                true
            }
        }
    }

    /// Records that the service is about to be started.
    pub(in crate::driver) fn record_start(&self, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        let directory = self.directory_of(&service.name);
        let start_marker = StartMarker { uid: service.uid.clone(), boot_id: self.settings.boot_id.clone() };
        let written = directory.make().and_then(|()| directory.write(START_MARKER_FILE, &start_marker));
        written.map_err(|error| io_failure("cannot record the start", &error))
    }

    /// Records that the service does not run.
    pub(in crate::driver) fn forget_start(&self, service: &ServiceDefinition) {
        if let Err(error) = self.directory_of(&service.name).remove(START_MARKER_FILE) {
            tracing::warn!(resource = service.name.as_str(), %error, "cannot record the stop");
        }
    }
}
