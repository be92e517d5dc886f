//! Balance: better places for the instances of a whole cluster, by a score, in steps that can be executed one after another.

mod columns;
pub mod model;
pub mod problem;
pub mod random;
#[cfg(test)]
mod samples;
pub mod score;
pub mod state;
mod sums;
#[cfg(test)]
mod tests;
pub mod text;
