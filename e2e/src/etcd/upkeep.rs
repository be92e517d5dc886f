//! What administrators do to a store: hand over its leadership, compact it, fill it up and make room again.

use super::{Etcdctl, leading};
use crate::binaries;
use crate::command::output_of_input;
use crate::wait::wait_for_ok;
use anyhow::{Context, Result, bail};
use std::time::Duration;

/// How long the store may take to answer an administrator.
const CEILING: Duration = Duration::from_secs(120);
/// The size of one value that fills it, in bytes: below etcd's limit for a request.
const PIECE: usize = 1 << 20;

impl Etcdctl {
    /// Makes another member the leader.
    ///
    /// # Errors
    /// When no member leads, or the handover fails.
    pub fn move_leader(&self) -> Result<()> {
        let members = self.members()?;
        let leader = leading(&members)?;
        let mut ids = members.iter().map(|member| member.status.header.member_id);
        let other =
            ids.find(|id| *id != leader.status.header.member_id).context("there is no other member")?;
        // Only the leader itself hands over.
        let own = Etcdctl { endpoints: leader.endpoint.clone(), ..self.clone() };
        own.run(&["move-leader", &format!("{other:x}")]).map(|_| ())
    }

    /// Forgets everything before now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub fn compact(&self) -> Result<()> {
        let newest = self.members()?.iter().map(|member| member.status.header.revision).max();
        let newest = newest.context("no member of the store answers")?;
        match self.run(&["compaction", &newest.to_string()]) {
            // Somebody else did it at the same time.
            Err(error) if format!("{error:#}").contains("has been compacted") => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Writes below a prefix until the store refuses for lack of room.
    ///
    /// # Errors
    /// When it refuses for another reason.
    pub fn fill(&self, prefix: &str) -> Result<()> {
        let piece = vec![b'x'; PIECE];
        for index in 0_u32.. {
            let key = format!("{prefix}{index}");
            let output = output_of_input(binaries::etcdctl()?, &self.arguments(&["put", &key]), &piece)?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                if said.contains("space exceeded") {
                    return Ok(());
                }
                bail!("the store could not be filled: {}", said.trim());
            }
        }
        Ok(())
    }

    /// Deletes what [`Etcdctl::fill`] wrote, and lets the store be written to again.
    ///
    /// # Errors
    /// When that does not succeed for long.
    pub fn make_room(&self, prefix: &str) -> Result<()> {
        wait_for_ok("room in the store", CEILING, || {
            self.run(&["del", "--prefix", prefix])?;
            self.compact()?;
            for endpoint in self.endpoints.split(',') {
                Etcdctl { endpoints: endpoint.to_owned(), ..self.clone() }.run(&["defrag"])?;
            }
            self.run(&["alarm", "disarm"]).map(|_| ())
        })
    }
}
