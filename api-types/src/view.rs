//! Answers of the API beyond the Kubernetes conventions: cluster overview, explanation of a service, effects of a change,
//! usage.

mod audit;
mod balance;
mod explanation;
mod overview;
mod placement_history;
mod plan;
mod reservation;
mod state_dump;
mod timing_report;
mod usage_overview;

pub use audit::{AuditPage, AuditRecord};
pub use balance::{BalanceMove, BalanceOperation, BalancePlan, GroupBalancePlan, NodeBalance, NodeLoad};
pub use explanation::{Explanation, Verdict, VerdictCause};
pub use overview::{
    ControllerOverview, ControllerState, EtcdMember, EtcdOverview, Health, LeaderOverview, NodeOverview,
    Overview, Problem, Severity,
};
pub use placement_history::{PlacementChange, PlacementHistory, PlacementState};
pub use plan::{Deletion, EffectKind, Plan, PlanRequest, PlannedEffect};
pub use reservation::{
    FailureReport, ReservationLack, ReservationMove, ReservationReport, ReservationVerdict, UnplacedService,
};
pub use state_dump::{NextDeadline, StateDump, StoredKey};
pub use timing_report::{
    FailoverTimePart, FailoverTimes, TimingProblem, TimingReport, TimingRequest, TimingSetting,
};
pub use usage_overview::{NodeUsage, ResourceUsage, UsageOverview};
