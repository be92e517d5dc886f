//! Answers of the API beyond the Kubernetes conventions: cluster overview, explanation of a service, effects of a change,
//! usage.

mod explanation;
mod overview;
mod plan;
mod reservation;
mod state_dump;
mod usage_overview;

pub use explanation::{Explanation, Verdict, VerdictCause};
pub use overview::{
    ControllerOverview, ControllerState, EtcdMember, EtcdOverview, Health, LeaderOverview, NodeOverview,
    Overview, Problem, Severity,
};
pub use plan::{Deletion, EffectKind, Plan, PlanRequest, PlannedEffect};
pub use reservation::{
    FailureReport, ReservationLack, ReservationMove, ReservationReport, ReservationVerdict, UnplacedService,
};
pub use state_dump::{NextDeadline, StateDump, StoredKey};
pub use usage_overview::{NodeUsage, ResourceUsage, UsageOverview};
