//! Balancing of a whole cluster: better nodes for its instances by a score, in steps that can run one at a time.

pub mod actions;
mod anneal;
mod columns;
pub mod cooling;
pub mod greedy;
pub mod groups;
pub mod htools;
mod known_gain;
pub mod live;
pub mod live_constraints;
pub mod model;
pub mod moves;
mod order;
pub mod plan;
#[cfg(test)]
mod plan_tests;
pub mod problem;
pub mod random;
#[cfg(test)]
mod samples;
pub mod score;
pub mod search;
mod small_rise_order;
pub mod state;
#[cfg(test)]
mod tests;
pub mod text;
mod threads;
pub mod time_limit;
