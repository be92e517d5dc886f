//! Writes the schema of every kind to `docs/schemas`, for editors and for whoever wants to read them.

use anyhow::{Context, Result, ensure};
use ha_api_types::kind::Kind;
use ha_api_types::schema;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes the files, or with `check` only compares: a difference is an error that says what to run.
pub(crate) fn write(check: bool) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas");
    if !check {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    for kind in Kind::ALL {
        let path: PathBuf = folder.join(format!("{}.json", kind.singular()));
        let text = format!("{}\n", serde_json::to_string_pretty(&schema::document(kind))?);
        if check {
            let known = fs::read_to_string(&path).unwrap_or_default();
            ensure!(
                known == text,
                "{} is not what the types say; run: cargo run -p ha-xtask -- schemas",
                path.display()
            );
        } else {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_schemas_in_the_docs_are_those_of_the_types() {
        super::write(true).unwrap();
    }
}
