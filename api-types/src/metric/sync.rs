//! Metrics of `hactl sync`.

use super::metrics;

metrics! { Sync:
    LAST_SUCCESS = Gauge "hactl_sync_last_success_timestamp_seconds" ["gitsync"]
        "Time of the last successful pass, in seconds since 1970; 0 if no pass has succeeded.";
    FAILURES = Counter "hactl_sync_failures_total" ["gitsync"]
        "Number of failed passes.";
    DRIFTED_OBJECTS = Gauge "hactl_sync_drifted_objects" ["gitsync"]
        "Number of objects that others had changed before the last pass.";
    SYNC_INFO = Gauge "hactl_sync_info" ["gitsync", "commit"]
        "Always 1; the label `commit` is the id of the applied commit.";
}
