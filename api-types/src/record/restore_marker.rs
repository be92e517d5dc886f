//! The marker of etcd data that was restored from a backup, and the parts of the backup that are no longer valid.

use crate::id::Revision;
use crate::keys::Keys;
use crate::time::{Millis, Timestamp};
use crate::timing::{Profile, Timings, WatchdogBounds, fencing_delay_ms};
use serde::{Deserialize, Serialize};

/// Minimum amount by which a restore raises the revision, so that every restored revision is higher than any revision
/// of the lost data.
pub const MIN_REVISION_RAISE: i64 = 1_000_000_000_000;

/// Returns the amount by which a restore at this time, in microseconds since 1970, raises the revision.
///
/// A backup may be restored more than once. The result grows faster than etcd commits, so the revisions after the
/// second restore exceed all revisions after the first. A watch that resumes from before the restore fails as too old.
/// It does not wait until the restored etcd reaches its revision (FENCING, R10.19).
///
/// Each restore adds this amount. Revisions are 64-bit integers, enough for thousands of successive restores; numbers
/// of 53 bits are enough for four.
pub fn revision_raise(unix_us: i128) -> i64 {
    i64::try_from(unix_us).unwrap_or_default().max(MIN_REVISION_RAISE)
}

/// `restored`, written by `hactl restore` before any process can reach etcd, and removed by the leader. The records of
/// nodes and services in the backup may be outdated. Records written before the marker are *old*.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestoreMarker {
    /// Time at which the backup was prepared.
    pub at: Timestamp,
    /// etcd revision that the backup contains, before the restore raises it.
    pub backup_revision: Revision,
    /// Longest W in the reports of the backup, in milliseconds. The reports themselves are deleted.
    #[serde(rename = "longestWaitMs", skip_serializing_if = "Option::is_none")]
    pub longest_fencing_delay_ms: Option<Millis>,
}

/// Returns the keys and prefixes that a restore deletes. Permits that were committed against these keys are no longer
/// valid, and agents report the services on their nodes again.
pub fn keys_deleted_by_restore(keys: &Keys) -> [String; 5] {
    [keys.assignments(), keys.heartbeats(), keys.refreshes(), keys.reports(), keys.leader()]
}

/// Returns the time after a restore, in milliseconds, in which the leader assigns no service.
///
/// The time is the longest W for any watchdog, over all profiles, the restored settings and the reports of the backup.
/// A machine that was armed under the lost data and is isolated from the restored etcd has been reset by then.
pub fn quiet_period_ms(settings: &Timings, marker: &RestoreMarker) -> Millis {
    [Profile::Default, Profile::Fast, Profile::Conservative]
        .map(Timings::of_profile)
        .iter()
        .chain([settings])
        .map(|timings| {
            let timeout_ms = timings.watchdog_timeout_ms;
            fencing_delay_ms(
                timings,
                &WatchdogBounds { timeout_ms, sliding: false, descriptor_retained: false },
            )
        })
        .chain(marker.longest_fencing_delay_ms)
        .max()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restore_deletes_assignments_and_reports() {
        let keys = Keys::new("default");
        let keys_deleted_by_restore = keys_deleted_by_restore(&keys);
        let is_deleted_by_restore =
            |key: &str| keys_deleted_by_restore.iter().any(|part| key.starts_with(part.as_str()));
        for key in [
            keys.assignment(&"web".into()),
            keys.alive(&"n1".into()),
            keys.refresh(&"c1".into()),
            keys.node_report(&"n1".into()),
            keys.service_report(&"n1".into(), &"web".into()),
            keys.leader(),
        ] {
            assert!(is_deleted_by_restore(&key), "{key}");
        }
        for key in [keys.candidate(&"c1".into()), keys.incarnation()] {
            assert!(!is_deleted_by_restore(&key), "{key}");
        }
        for key in [
            keys.fence(&"n1".into()),
            keys.tombstone(&"web".into()),
            keys.restore_marker(),
            keys.specs(),
            keys.statuses(),
        ] {
            assert!(!is_deleted_by_restore(&key), "{key}");
        }
    }

    #[test]
    fn the_quiet_period_is_the_longest_wait() {
        let quiet_period_ms = |timings: &Timings| super::quiet_period_ms(timings, &RestoreMarker::default());
        let longest = quiet_period_ms(&Timings::default());
        assert_eq!(longest, quiet_period_ms(&Timings::of_profile(Profile::Conservative)));
        let marker_with_delay =
            RestoreMarker { longest_fencing_delay_ms: Some(longest + 1), ..RestoreMarker::default() };
        assert_eq!(super::quiet_period_ms(&Timings::default(), &marker_with_delay), longest + 1);
        let drained = Timings { io_drain_ms: 600_000, ..Timings::default() };
        assert!(quiet_period_ms(&drained) >= 600_000 && quiet_period_ms(&drained) > longest);
    }
}
