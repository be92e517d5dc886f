//! Ganeti's text format, both generations: sections separated by one empty line, fields by `|`, lists by `,`.

mod field;
mod policy;
mod reader;
#[cfg(test)]
mod tests;
mod utilisation;
mod writer;

pub use field::TextError;
pub use reader::read;
pub use utilisation::{read_utilisation, write_utilisation};
pub use writer::write;
