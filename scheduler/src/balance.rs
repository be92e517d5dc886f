//! Balance: better places for the instances of a whole cluster, by a score, in steps that can be executed one after another.

pub mod model;
pub mod text;
