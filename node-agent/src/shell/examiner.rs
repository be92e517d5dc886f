//! Looks at the machine now and then, for `hactl doctor`.

use super::Inputs;
use crate::core::Input;
use crate::doctor::{MachineFacts, read};
use std::path::Path;
use std::time::Duration;

/// How often: what people mend shows within this.
const EXAMINE_EVERY: Duration = Duration::from_secs(10);

/// Looks at once, and again and again for as long as the loop runs.
pub(super) fn spawn(inputs: Inputs) {
    tokio::spawn(async move {
        loop {
            // Reading files may block: a disk that hangs must not hold up the loop.
            let facts: Option<MachineFacts> =
                tokio::task::spawn_blocking(|| read::machine(Path::new("/"))).await.ok();
            if facts.is_some_and(|facts| inputs.send(Input::Examined(facts)).is_err()) {
                return;
            }
            tokio::time::sleep(EXAMINE_EVERY).await;
        }
    });
}
