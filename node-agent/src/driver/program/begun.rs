//! The note in a service's folder that something of it may run here: made before it is told to start, removed once somebody has
//! confirmed that it does not run.

use super::{Programs, broken};
use crate::core::DriverFailure;
use ha_api_types::resource::ServiceDefinition;
use serde::{Deserialize, Serialize};

/// The note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    uid: String,
    boot_id: String,
}

const BEGUN: &str = "begun.json";

impl Programs {
    /// Whether it has been told to start in this boot, and nobody has confirmed since that it does not run.
    pub(in crate::driver) fn is_begun(&self, service: &ServiceDefinition) -> bool {
        match self.folder_of(&service.name).read::<Begun>(BEGUN) {
            Ok(begun) => begun.is_some_and(|begun| begun.boot_id == self.settings.boot_id),
            // Something was written there once.
            Err(error) => {
                tracing::warn!(resource = service.name, %error, "whether it was started cannot be read");
                true
            }
        }
    }

    /// It is about to be started.
    pub(in crate::driver) fn begin(&self, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        let folder = self.folder_of(&service.name);
        let begun = Begun { uid: service.uid.clone(), boot_id: self.settings.boot_id.clone() };
        let written = folder.make().and_then(|()| folder.write(BEGUN, &begun));
        written.map_err(|error| broken("what was started cannot be noted", &error))
    }

    /// It does not run.
    pub(in crate::driver) fn forget_begun(&self, service: &ServiceDefinition) {
        if let Err(error) = self.folder_of(&service.name).remove(BEGUN) {
            tracing::warn!(resource = service.name, %error, "that it has ended cannot be noted");
        }
    }
}
