//! A client that writes continuously and records which writes were acknowledged. At the end, etcd must contain all of
//! them.

use crate::api::Api;
use crate::background::{BackgroundThread, StopFlag};
use crate::cluster::Cluster;
use crate::machine::Role;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

/// Number of objects, which are written in turn.
const RESOURCE_COUNT: usize = 5;
/// Time between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);

/// Numbers written to one object.
#[derive(Debug, Clone, Copy, Default)]
struct ResourceWrites {
    /// Highest number whose write was acknowledged.
    acknowledged: u64,
    /// Highest number that was sent. Its write may have been applied without a response.
    sent: u64,
}

/// A writer that runs in the background until it is closed or dropped.
pub struct WriteRecorder {
    background: BackgroundThread<RecordedWrites>,
}

/// The writes of a ledger and their outcomes.
#[derive(Debug, Clone, Default)]
pub struct RecordedWrites {
    writes: [ResourceWrites; RESOURCE_COUNT],
    /// Number of writes that the API acknowledged.
    pub acknowledged: u64,
    /// Number of writes that were refused or got no response.
    pub failed: u64,
}

impl WriteRecorder {
    /// Creates the objects, which are stopped resources, and starts to write their comments.
    ///
    /// # Errors
    /// Fails if an object cannot be created.
    pub fn open(cluster: &Cluster) -> Result<WriteRecorder> {
        let apis: Vec<Api> = cluster
            .machine_names(Role::Controller)
            .iter()
            .map(|name| cluster.api(name))
            .collect::<Result<_>>()?;
        let first = apis.first().context("no controller found")?;
        for index in 0..RESOURCE_COUNT {
            first.apply(
                "resources",
                &json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": resource_name(index)},
                    "spec": {"driver": {"exec": {"command": ["/bin/false"]}}, "state": "Stopped", "comment": "0"}}),
            )?;
        }
        Ok(WriteRecorder { background: BackgroundThread::start(move |stop| write(&apis, stop)) })
    }

    /// Stops writing and returns the result.
    ///
    /// # Errors
    /// Fails if the writer panicked.
    pub fn close(mut self) -> Result<RecordedWrites> {
        self.background.end().context("writer of the ledger panicked")
    }
}

impl RecordedWrites {
    /// Compares the objects, read by `read`, with the writes.
    ///
    /// # Errors
    /// Fails with an object that lost an acknowledged write, or that contains a number that was never written.
    pub fn check(&self, read: impl Fn(&str) -> Option<Value>) -> Result<()> {
        for (index, resource_writes) in self.writes.iter().enumerate() {
            let name = resource_name(index);
            let object = read(&name).with_context(|| format!("{name} was created, but does not exist"))?;
            let number = written_number(&object)
                .with_context(|| format!("spec.comment of {name} is not a number: {object}"))?;
            if number < resource_writes.acknowledged {
                bail!(
                    "{name} contains {number}, but the write of {} was acknowledged",
                    resource_writes.acknowledged
                );
            }
            if number > resource_writes.sent {
                bail!("{name} contains {number}, but the last number written is {}", resource_writes.sent);
            }
        }
        Ok(())
    }
}

fn resource_name(index: usize) -> String {
    format!("ledger-{index}")
}

fn written_number(object: &Value) -> Option<u64> {
    object["spec"]["comment"].as_str()?.parse().ok()
}

fn write(apis: &[Api], stop: &StopFlag) -> RecordedWrites {
    let mut result = RecordedWrites::default();
    let mut write_index = 0;
    while !stop.is_requested() {
        let resource_writes = &mut result.writes[write_index % RESOURCE_COUNT];
        // The controllers take turns, because each controller must return the writes that another controller has
        // acknowledged.
        match write_next(
            &apis[write_index % apis.len()],
            &resource_name(write_index % RESOURCE_COUNT),
            resource_writes,
        ) {
            Ok(()) => result.acknowledged += 1,
            Err(_) => result.failed += 1,
        }
        write_index += 1;
        thread::sleep(WRITE_INTERVAL);
    }
    result
}

/// Reads an object and writes the next number with the version that was read. A late write then conflicts instead of
/// overwriting a newer write.
fn write_next(api: &Api, name: &str, resource_writes: &mut ResourceWrites) -> Result<()> {
    let object = api.object("resources", name)?.with_context(|| format!("{name} not found"))?;
    let version = object["metadata"]["resourceVersion"].clone();
    let next = resource_writes.sent + 1;
    resource_writes.sent = next;
    api.patch(
        "resources",
        name,
        &json!({"metadata": {"resourceVersion": version}, "spec": {"comment": next.to_string()}}),
    )?;
    resource_writes.acknowledged = next;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(number: &str, expected: bool) {
        let mut result = RecordedWrites::default();
        result.writes[2] = ResourceWrites { acknowledged: 5, sent: 7 };
        let read = |name: &str| {
            let comment = if name == "ledger-2" { number } else { "0" };
            Some(json!({"spec": {"comment": comment}}))
        };
        assert_eq!(result.check(read).is_ok(), expected, "{number}");
    }

    #[test]
    fn ledger_detects_a_lost_write() {
        check("4", false);
        check("5", true);
        check("7", true);
        check("8", false);
        check("none", false);
        assert!(RecordedWrites::default().check(|_| None).is_err());
    }
}
