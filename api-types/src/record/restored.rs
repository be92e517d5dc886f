//! The marker of a store that was restored from a backup, and what of the backup counts no more.

use super::Revision;
use crate::keys::Keys;
use crate::time::{Millis, Timestamp};
use crate::timing::{Profile, Timings, WatchdogBounds, wait_ms};
use serde::{Deserialize, Serialize};

/// By how much a restore raises the revision at least: no agent, controller or client has seen a revision of the lost store above it.
pub const REVISION_RAISE: Revision = 1_000_000_000_000;

/// Returns by how much a restore at this time, in microseconds since 1970, raises the revision.
///
/// A backup may be restored more than once. The result grows faster than any store commits, so the revisions of the second restore
/// are above all of the first: a watch that resumes from before it is too old, and never waits for what has passed (FENCING, R10.19).
/// Each restore adds it: revisions are 64-bit integers and hold thousands of restores one on another, numbers of 53 bits four.
pub fn revision_raise(unix_us: i128) -> Revision {
    Revision::try_from(unix_us).unwrap_or_default().max(REVISION_RAISE)
}

/// `restored`, written by `hactl restore` before anything can reach the store, removed by the leader: what the backup says of
/// nodes and services may have changed since it was made. What was written before the marker is *old*.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Restored {
    /// When the backup was prepared.
    pub at: Timestamp,
    /// The revision of the backup.
    pub backup_revision: Revision,
    /// The longest W that a report in the backup names, milliseconds; the reports themselves are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_wait_ms: Option<Millis>,
}

/// Keys and prefixes that a restore deletes: no permit that was committed against them holds any more, and agents say anew
/// what runs on their nodes.
pub fn forgotten(keys: &Keys) -> [String; 5] {
    [keys.assignments(), keys.heartbeats(), keys.refreshes(), keys.reports(), keys.leader()]
}

/// How long nothing is assigned after a restore: W, the longest that any profile and the restored settings allow, for any
/// watchdog, or that a report in the backup names. A machine that was armed under the lost store and is cut off from this one has reset by then.
pub fn rest_ms(settings: &Timings, marker: &Restored) -> Millis {
    [Profile::Default, Profile::Fast, Profile::Conservative]
        .map(Timings::of_profile)
        .iter()
        .chain([settings])
        .map(|timings| {
            let timeout_ms = timings.watchdog_timeout_ms;
            wait_ms(timings, &WatchdogBounds { timeout_ms, sliding: false, descriptor_retained: false })
        })
        .chain(marker.longest_wait_ms)
        .max()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_what_agents_say_and_what_they_are_told() {
        let keys = Keys::new("default");
        let forgotten = forgotten(&keys);
        let is = |key: &str| forgotten.iter().any(|part| key.starts_with(part.as_str()));
        for key in [
            keys.assignment("web"),
            keys.alive("n1"),
            keys.refresh("c1"),
            keys.node_report("n1"),
            keys.service_report("n1", "web"),
            keys.leader(),
        ] {
            assert!(is(&key), "{key}");
        }
        for key in [keys.candidate("c1"), keys.incarnation()] {
            assert!(!is(&key), "{key}");
        }
        for key in [keys.fence("n1"), keys.tombstone("web"), keys.restored(), keys.specs(), keys.statuses()] {
            assert!(!is(&key), "{key}");
        }
    }

    #[test]
    fn the_rest_is_the_longest_wait_of_all() {
        let rest_ms = |timings: &Timings| super::rest_ms(timings, &Restored::default());
        let longest = rest_ms(&Timings::default());
        assert_eq!(longest, rest_ms(&Timings::of_profile(Profile::Conservative)));
        let named = Restored { longest_wait_ms: Some(longest + 1), ..Restored::default() };
        assert_eq!(super::rest_ms(&Timings::default(), &named), longest + 1);
        let drained = Timings { io_drain_ms: 600_000, ..Timings::default() };
        assert!(rest_ms(&drained) >= 600_000 && rest_ms(&drained) > longest);
    }
}
