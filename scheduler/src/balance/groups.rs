//! Balancing across several node groups: which instances leave a group, and to which group they move.

pub mod all_groups;
pub mod allocate;
pub mod balance_load;
pub mod capacity;
pub mod check;
pub mod compress;
pub mod evacuate;
mod failover;
pub mod new_service;
mod other_groups;
pub mod partition;
pub mod redistribute;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
pub mod tiers;

pub use all_groups::{AllGroups, ExclusionReason};
pub use other_groups::{NoEligibleGroup, Obstacle};
