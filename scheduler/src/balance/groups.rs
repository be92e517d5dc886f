//! Balancing across several node groups: which instances leave a group, and to which group they move.

pub mod allocate;
pub mod capacity;
pub mod check;
pub mod compress;
mod elsewhere;
pub mod evacuate;
mod failover;
pub mod level;
pub mod newcomer;
pub mod partition;
pub mod redistribute;
#[cfg(test)]
mod samples;
pub mod span;
#[cfg(test)]
mod tests;
pub mod tiers;

pub use elsewhere::{NoPlace, Obstacle};
pub use span::{Span, Stays};
