//! Ganeti's text format, both generations: sections separated by one empty line, fields by `|`, lists by `,`.

mod field;
mod policy;
mod reader;
#[cfg(test)]
mod tests;
mod utilization;
mod writer;

pub use field::TextError;
pub use reader::read;
pub use utilization::{read_utilization, write_utilization};
pub use writer::write;
