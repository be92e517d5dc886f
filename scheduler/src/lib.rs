//! The nodes on which a service may run, and the best of them: pure, deterministic, explained.
//!
//! [`place::place`] is the entry point: it evaluates every node, reports every blocking reason, and chooses a node.

#![warn(clippy::disallowed_types)]

mod asked;
pub mod balance;
pub mod filter;
pub mod place;
pub mod preempt;
pub mod rebalance;
mod replica;
pub mod reservation;
pub mod rules;
pub mod score;
pub mod sequence;
pub mod services;
mod sets;
pub mod topsis;
pub mod trial;
pub mod turns;
pub mod unit;
pub mod view;
pub mod words;

pub use place::{Placement, Verdict, choose, place};
pub use preempt::{Preemption, Wish, preempt};
pub use replica::secondary_refusals;
pub use reservation::arrange;
pub use rules::{Declared, RuleConflict, Rules};
pub use services::Services;
pub use trial::together;
pub use turns::{Turn, turns};
pub use unit::{Unit, partners_elsewhere};
pub use view::{NodeFacts, Refusal, ServiceFacts, View};
