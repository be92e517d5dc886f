//! Reads the usage of services and of the machine, outside the loop.

use super::drivers::Drivers;
use super::machine_usage;
use crate::core::{Input, MeasureId, Measured};
use ha_api_types::resource::ServiceDefinition;
use ha_runtime::clock::{Clock, SystemClock};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Time after which a driver's reading of a service is no longer awaited.
const PATIENCE: Duration = Duration::from_secs(5);

impl Drivers {
    /// Reads the usage once. Figures that cannot be read are omitted.
    pub(super) fn measure(&self, clock: SystemClock, id: MeasureId, services: Vec<ServiceDefinition>) {
        let drivers = self.clone();
        tokio::spawn(async move {
            let of_machine =
                tokio::task::spawn_blocking(move || machine_usage::sample(Path::new("/"), clock.now().raw));
            let mut samples = BTreeMap::new();
            for service in &services {
                let Some(kind) = service.driver.kind() else { continue };
                let Some(driver) = drivers.by_name.get(kind.name()) else { continue };
                let read = tokio::time::timeout(PATIENCE, driver.measure(service, clock.now().raw)).await;
                if let Some(sample) = read.ok().flatten() {
                    samples.insert(service.name.clone(), sample);
                }
            }
            let machine = of_machine.await.ok().flatten();
            let measured = Measured { machine, services: samples };
            // Sending fails only once the loop has ended.
            let _ = drivers.inputs.send(Input::Measured { id, measured });
        });
    }
}
