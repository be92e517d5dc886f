//! Where a service may run and where it should: pure, deterministic, explained.
//!
//! [`place::place`] is the entry: it judges every node, says why each is refused, and chooses.

pub mod filter;
pub mod place;
pub mod preempt;
pub mod rules;
pub mod score;
pub mod topsis;
pub mod trial;
pub mod view;

pub use place::{Placement, Verdict, place};
pub use preempt::{Preemption, Wish, preempt};
pub use rules::{RuleConflict, Rules};
pub use trial::together;
pub use view::{NodeFacts, Refusal, ServiceFacts, View};
