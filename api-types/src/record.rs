//! The records of the fencing protocol as stored in etcd. Each has its own file and one writer.

mod alive;
mod assignment;
mod backup_record;
mod candidate;
mod doctor_report;
mod fence;
mod hold;
mod incarnation;
mod log;
mod machine_ids;
mod node_report;
mod notification_record;
mod replacement;
mod restore_marker;
mod service_report;
mod tombstone;
mod usage_report;
mod watchdog_test;

pub use alive::Alive;
pub use assignment::{Action, Assignment};
pub use backup_record::BackupRecord;
pub use candidate::{Candidate, Leader, Refresh};
pub use doctor_report::{DoctorReport, LastTermination, WatchdogObservation};
pub use fence::{DeviceIntent, Fence, FenceState, Proof, ShutdownKind, Switch};
pub use hold::{HoldAnswer, HoldRequest, HoldTerms};
pub use incarnation::Incarnation;
pub use log::{
    LOG_BYTES_MAX, LOG_LEASE_SECONDS, LOG_LINES_DEFAULT, LOG_LINES_MAX, LOG_TIMEOUT_MS, LogAnswer,
    LogFailure, LogRequest,
};
pub use machine_ids::{MachineComparison, MachineIds};
pub use node_report::{
    Mode, NodeReport, NotStopped, SOFTDOG_IDENTITY, SleepProtection, WatchdogKind, WatchdogReport,
};
pub use notification_record::{NotificationRecord, QueuedNotification, SentFacts};
pub use replacement::{Replacement, ReplacementPhase, ReplacementReport};
pub use restore_marker::{
    MIN_REVISION_RAISE, RestoreMarker, keys_deleted_by_restore, quiet_period_ms, revision_raise,
};
pub use service_report::{FailureClass, Observed, Phase, ServiceReport};
pub use tombstone::Tombstone;
pub use usage_report::{ServiceUsage, UsageReport};
pub use watchdog_test::WatchdogTest;
