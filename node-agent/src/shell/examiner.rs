//! Examines the machine at intervals, for `hactl doctor`.

use super::Inputs;
use crate::core::Input;
use crate::doctor::{Owner, read};
use std::path::Path;
use std::time::Duration;

/// Interval between examinations: a problem that an operator has fixed disappears within this time.
const EXAMINE_EVERY: Duration = Duration::from_secs(10);

/// Starts examinations, the first one immediately, for as long as the loop runs.
pub(super) fn spawn(inputs: Inputs) {
    tokio::spawn(async move {
        let mut owner: Option<Owner> = None;
        loop {
            let known = owner.clone();
            // Reading files may block, and a disk that hangs must not block the loop.
            let read =
                tokio::task::spawn_blocking(move || read::machine(Path::new("/"), known.as_ref())).await;
            if let Ok(facts) = read {
                owner.clone_from(&facts.watchdog_owner);
                if inputs.send(Input::Examined(facts)).is_err() {
                    return;
                }
            }
            tokio::time::sleep(EXAMINE_EVERY).await;
        }
    });
}
