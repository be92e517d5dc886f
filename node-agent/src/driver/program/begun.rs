//! Marker file in a service's directory: the service may run on this node. It is written before a start, and removed
//! once the service is confirmed stopped.

use super::{Programs, broken};
use crate::core::DriverFailure;
use ha_api_types::id::BootId;
use ha_api_types::resource::ServiceDefinition;
use serde::{Deserialize, Serialize};

/// Content of the marker file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    uid: String,
    boot_id: BootId,
}

const BEGUN: &str = "begun.json";

impl Programs {
    /// Returns `true` if a start was requested in this boot and has not been confirmed stopped since.
    pub(in crate::driver) fn is_begun(&self, service: &ServiceDefinition) -> bool {
        match self.folder_of(&service.name).read::<Begun>(BEGUN) {
            Ok(begun) => begun.is_some_and(|begun| begun.boot_id == self.settings.boot_id),
            // An unreadable marker counts as a start, because it was written once.
            Err(error) => {
                tracing::warn!(resource = service.name.as_str(), %error, "cannot read whether the service was started");
                true
            }
        }
    }

    /// Records that the service is about to be started.
    pub(in crate::driver) fn begin(&self, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        let folder = self.folder_of(&service.name);
        let begun = Begun { uid: service.uid.clone(), boot_id: self.settings.boot_id.clone() };
        let written = folder.make().and_then(|()| folder.write(BEGUN, &begun));
        written.map_err(|error| broken("cannot record the start", &error))
    }

    /// Records that the service does not run.
    pub(in crate::driver) fn forget_begun(&self, service: &ServiceDefinition) {
        if let Err(error) = self.folder_of(&service.name).remove(BEGUN) {
            tracing::warn!(resource = service.name.as_str(), %error, "cannot record the stop");
        }
    }
}
