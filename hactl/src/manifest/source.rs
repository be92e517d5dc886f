//! The texts of `-f`: files, directories, standard input.

use crate::failure::Failure;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Number of bytes of a text that are read: one more than the parser's limit, so that the parser reports a text that is
/// too large.
const MAX_BYTES: u64 = ha_api_types::yaml::MAX_TEXT_BYTES as u64 + 1;

/// A text with its name for messages.
pub(crate) struct SourceText {
    pub(crate) name: String,
    pub(crate) content: String,
}

/// Reads all texts, with the files of directories in the order of their names.
///
/// # Errors
/// Fails if a path does not exist or cannot be read, or if a directory contains no YAML or JSON file.
pub(super) fn read_texts(files: &[String], recursive: bool) -> Result<Vec<SourceText>, Failure> {
    let mut texts = Vec::new();
    for file in files {
        if file == "-" {
            let content = read(&mut std::io::stdin().lock())
                .map_err(|error| Failure::usage(format!("cannot read standard input: {error}")))?;
            texts.push(SourceText { name: "<stdin>".to_owned(), content });
            continue;
        }
        let path = Path::new(file);
        if path.is_dir() {
            let mut manifests = Vec::new();
            collect_files(path, recursive, &mut manifests)?;
            if manifests.is_empty() {
                let failure = Failure::usage(format!("{file}: no .yaml, .yml or .json file found"));
                return Err(if recursive {
                    failure
                } else {
                    failure.help("add -R to process directories recursively")
                });
            }
            for path in manifests {
                texts.push(read_text(&path)?);
            }
        } else {
            texts.push(read_text(path)?);
        }
    }
    Ok(texts)
}

fn read_text(path: &Path) -> Result<SourceText, Failure> {
    let content = std::fs::File::open(path)
        .and_then(|mut file| read(&mut file))
        .map_err(|error| unreadable(path, &error))?;
    Ok(SourceText { name: path.display().to_string(), content })
}

fn read(from: &mut dyn Read) -> std::io::Result<String> {
    let mut content = String::new();
    from.take(MAX_BYTES).read_to_string(&mut content)?;
    Ok(content)
}

fn collect_files(directory: &Path, recursive: bool, manifests: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let mut paths = std::fs::read_dir(directory)
        .and_then(|entries| {
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()
        })
        .map_err(|error| unreadable(directory, &error))?;
    paths.sort();
    for path in paths {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        let is_manifest = path.extension().is_some_and(|file_extension| {
            ["yaml", "yml", "json"].iter().any(|extension| file_extension == *extension)
        });
        if path.is_dir() {
            // A link to a directory could form a cycle.
            if recursive && !path.is_symlink() {
                collect_files(&path, recursive, manifests)?;
            }
        } else if is_manifest {
            manifests.push(path);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot read {}: {error}", path.display()))
}
