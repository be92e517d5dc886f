//! Services on the machines without a fault. Their processes must keep running during the whole case.

use anyhow::Result;

use super::case::Others;
use super::rig::Rig;
use crate::plan::SHARED;

/// Services, each with its first process.
pub struct Bystanders(Vec<Bystander>);

struct Bystander {
    service: String,
    process: String,
}

impl Bystanders {
    /// Creates a service on each machine except `node`, if the case requires it. The names start with `service`.
    ///
    /// # Errors
    /// Fails if a service does not start.
    pub fn create(rig: &Rig, others: Others, service: &str, node: &str) -> Result<Self> {
        let busy = match others {
            Others::Idle => Vec::new(),
            Others::Busy => rig.nodes().into_iter().filter(|other| other != node).collect(),
        };
        let all = busy.iter().map(|other| {
            let service = format!("{service}-on-{other}");
            rig.create_service(&service, other, SHARED)?;
            let process = rig.holder(&service)?.process;
            Ok(Bystander { service, process })
        });
        all.collect::<Result<_>>().map(Self)
    }

    /// Returns a message for each service whose process did not keep running.
    ///
    /// # Errors
    /// Fails if a record cannot be read.
    pub fn failures(&self, rig: &Rig) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for Bystander { service, process } in &self.0 {
            let all = rig.holders(service).all()?;
            let went_on = all.iter().all(|holder| holder.process == *process);
            if !went_on || rig.holding(service).is_empty() {
                found.push(format!("{service} did not go on: {all:?}"));
            }
        }
        Ok(found)
    }

    /// Deletes the services.
    ///
    /// # Errors
    /// Fails if a service cannot be deleted.
    pub fn delete(&self, rig: &Rig) -> Result<()> {
        self.0.iter().try_for_each(|bystander| rig.delete_service(&bystander.service))
    }
}
