//! The decisions of Ganeti's programs other than the balancer, so that the program under their names gives equal results.

pub mod allocation;
pub mod dedicated;
pub mod evacuation;
pub mod global_failover;
pub mod group_choice;
