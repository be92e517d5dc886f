//! Writes the reference of every field and of every reason to `docs/reference`.

mod fields;
mod reasons;

use crate::generated;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Writes the pages; with `check` only compares them. A difference is an error that names the chore to run.
pub(crate) fn write(check: bool) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    if !check {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    generated::write(&folder.join("fields.md"), &fields::page(), "reference", check)?;
    generated::write(&folder.join("reasons.md"), &reasons::page()?, "reference", check)
}

/// Formats a text as the cell of a table.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_in_the_docs_is_that_of_the_code() {
        super::write(true).unwrap();
    }
}
