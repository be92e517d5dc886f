//! Writes the schema of every kind to `docs/schemas`, for editors and readers, and those of other answers to its `views`, for
//! clients.

use crate::generated;
use anyhow::{Context, Result};
use ha_api_types::kind::Kind;
use ha_api_types::schema;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes the files; with `check` only compares them. A difference is an error that names the chore to run.
pub(crate) fn write(check: bool) -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas");
    if !check {
        let views = directory.join("views");
        fs::create_dir_all(&views).with_context(|| format!("cannot make {}", views.display()))?;
    }
    for kind in Kind::ALL {
        let path: PathBuf = directory.join(format!("{}.json", kind.singular()));
        let text = format!("{}\n", serde_json::to_string_pretty(&schema::document(kind))?);
        generated::write(&path, &text, "schemas", check)?;
    }
    for (name, schema) in schema::views() {
        let path = directory.join(format!("views/{}.json", name.to_lowercase()));
        let text = format!("{}\n", serde_json::to_string_pretty(schema)?);
        generated::write(&path, &text, "schemas", check)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_generated_schemas_are_current() {
        super::write(true).unwrap();
    }
}
