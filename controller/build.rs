//! Writes the list of the console's files, so that the controller embeds them. Without a build of the console, the list is empty.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let built = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../console/dist");
    println!("cargo::rerun-if-changed={}", built.display());
    let mut files = Vec::new();
    if built.join("index.html").is_file() {
        collect(&built, &mut files)?;
    }
    files.sort();
    let mut list = String::from("&[\n");
    for file in &files {
        let path = file.strip_prefix(&built)?.to_string_lossy().into_owned();
        // The build of the console writes the compressed form of every file next to it.
        let compressed = format!("{}.gz", file.display());
        writeln!(
            list,
            "File {{ path: {path:?}, plain: include_bytes!({plain:?}), compressed: include_bytes!({compressed:?}) }},",
            plain = file.display().to_string(),
        )?;
    }
    list.push(']');
    fs::write(Path::new(&env::var("OUT_DIR")?).join("console_files.rs"), list)?;
    Ok(())
}

/// Collects the files of a directory, except compressed and hidden files.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_hidden = entry_name(&path).starts_with('.');
        let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
        if path.is_dir() {
            collect(&path, files)?;
        } else if !is_compressed && !is_hidden {
            files.push(path);
        }
    }
    Ok(())
}

fn entry_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
