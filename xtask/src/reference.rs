//! Writes the reference of every field and of every reason to `docs/reference`.

mod fields;
mod reasons;

use crate::generated;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Writes the pages; with `check` only compares them. A difference is an error that names the chore to run.
pub(crate) fn write(check: bool) -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    if !check {
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    generated::write(&directory.join("fields.md"), &fields::page(), "reference", check)?;
    generated::write(&directory.join("reasons.md"), &reasons::page()?, "reference", check)
}

/// Formats a text as the cell of a table.
fn table_cell(text: &str) -> String {
    text.trim().replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_reference_pages_are_current() {
        super::write(true).unwrap();
    }
}
