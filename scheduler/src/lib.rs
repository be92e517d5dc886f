//! Computes the nodes on which a service may run, and the best of them, with explanations. All functions are pure and
//! deterministic.
//!
//! The leader schedules with this crate, `hactl` computes its offline answers with it, and the simulator checks the
//! result.
//!
//! - [`place()`] is the entry point: it evaluates every node, reports every blocking reason, and chooses a node.
//! - [`View`] is the input: nodes, services, groups and rules as plain facts. [`Verdict`] is the answer for one node.
//! - [`preempt()`] frees capacity for a service of higher priority, and [`rebalance::best_move`] balances the load.
//! - [`reservation::check`] checks the failover capacity (N+1).
//! - [`balance`] balances whole clusters, like Ganeti's tools.
//!
//! Rule: every function is pure. The same view gives the same answer, no clock or random number is used, and no answer
//! violates a hard limit or a strict rule.

#![warn(clippy::disallowed_types)]

pub mod balance;
pub mod dependent_moves;
pub mod filter;
pub mod move_sequence;
pub mod place;
mod placement_query;
pub mod preempt;
pub mod rebalance;
mod replica;
pub mod reservation;
pub mod rules;
pub mod score;
pub mod services;
mod sets;
pub mod topsis;
pub mod trial;
pub mod unit;
pub mod view;
pub mod words;

pub use dependent_moves::{MoveStep, dependent_moves};
pub use place::{Placement, Verdict, choose, place};
pub use preempt::{Preemption, PreemptionRequest, preempt};
pub use replica::secondary_refusals;
pub use reservation::place_jointly;
pub use rules::{RuleConflict, RuleInput, Rules};
pub use services::Services;
pub use trial::best_common_node;
pub use unit::{PlacementUnit, partners_elsewhere};
pub use view::{NodeFacts, NodePolicyId, Refusal, ServiceFacts, View};
