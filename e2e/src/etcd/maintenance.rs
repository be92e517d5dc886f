//! Administration of etcd: transferring the leadership, compacting, filling the database and freeing space.

use super::{Etcdctl, leader_status};
use crate::binaries;
use crate::command::output_with_input;
use crate::wait::wait_for_ok;
use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Longest time for an administrative operation.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);
/// Size of one filler value, in bytes. It is below etcd's limit for a request.
const FILLER_BYTES: usize = 1 << 20;

impl Etcdctl {
    /// Transfers the leadership to another member.
    ///
    /// # Errors
    /// Fails if no member is the leader, or if the transfer fails.
    pub fn move_leader(&self) -> Result<()> {
        let members = self.members()?;
        let leader = leader_status(&members)?;
        let mut ids = members.iter().map(|member| member.status.header.member_id);
        let other =
            ids.find(|id| *id != leader.status.header.member_id).context("no other etcd member found")?;
        // Only the leader can transfer the leadership.
        let via_leader = Etcdctl { endpoints: leader.endpoint.clone(), ..self.clone() };
        via_leader.run(&["move-leader", &format!("{other:x}")]).map(|_| ())
    }

    /// Compacts the history up to the current revision.
    ///
    /// # Errors
    /// Fails if etcd does not respond.
    pub fn compact(&self) -> Result<()> {
        let newest = self.members()?.iter().map(|member| member.status.header.revision).max();
        let newest = newest.context("no etcd member responds")?;
        match self.run(&["compaction", &newest.to_string()]) {
            // Another client has compacted at the same time.
            Err(error) if format!("{error:#}").contains("has been compacted") => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Writes keys with a prefix until etcd refuses for lack of space.
    ///
    /// # Errors
    /// Fails if etcd refuses for another reason.
    pub fn fill(&self, prefix: &str) -> Result<()> {
        let filler = vec![b'x'; FILLER_BYTES];
        for index in 0_u32.. {
            let key = format!("{prefix}{index}");
            let output = output_with_input(binaries::etcdctl()?, &self.arguments(&["put", &key]), &filler)?;
            if !output.status.success() {
                let error_output = String::from_utf8_lossy(&output.stderr).into_owned();
                if error_output.contains("space exceeded") {
                    return Ok(());
                }
                bail!("cannot fill etcd: {}", error_output.trim());
            }
        }
        Ok(())
    }

    /// Deletes the keys that [`Etcdctl::fill`] wrote, and makes etcd writable again.
    ///
    /// # Errors
    /// Fails if etcd does not become writable in time.
    pub fn free_space(&self, prefix: &str) -> Result<()> {
        wait_for_ok("free space in etcd", STEP_TIMEOUT, || {
            self.run(&["del", "--prefix", prefix])?;
            self.compact()?;
            for endpoint in self.endpoints.split(',') {
                Etcdctl { endpoints: endpoint.to_owned(), ..self.clone() }.run(&["defrag"])?;
            }
            self.run(&["alarm", "disarm"]).map(|_| ())
        })
    }
}
