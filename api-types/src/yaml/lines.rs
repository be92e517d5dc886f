//! The line of every field of a document.

use std::collections::BTreeMap;

/// Lines by path. A path is written `spec.driver.exec.command[1]`; brackets and dots are taken alike, so
/// `metadata.annotations[example.org/x]` finds its field too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    by_path: BTreeMap<String, u32>,
}

impl Lines {
    /// The line of a path, from 1; of the nearest field above it when the path itself is not there. `None` only for a
    /// document without lines.
    pub fn of(&self, path: &str) -> Option<u32> {
        let mut path = normalized(path);
        loop {
            if let Some(line) = self.by_path.get(&path) {
                return Some(*line);
            }
            if path.is_empty() {
                return None;
            }
            path.truncate(path.rfind('.').unwrap_or(0));
        }
    }

    /// The line where the document begins.
    pub fn first(&self) -> Option<u32> {
        self.of("")
    }

    /// Records the line of a path made by [`child`].
    pub(super) fn put(&mut self, path: &str, line: u32) {
        if line > 0 {
            self.by_path.entry(path.to_owned()).or_insert(line);
        }
    }
}

/// The path of a field or list element below another.
pub(super) fn child(path: &str, name: &str) -> String {
    if path.is_empty() { normalized(name) } else { format!("{path}.{}", normalized(name)) }
}

fn normalized(path: &str) -> String {
    let mut normal = String::with_capacity(path.len());
    for character in path.chars() {
        match character {
            '[' if !normal.is_empty() => normal.push('.'),
            '[' | ']' | '"' | '\'' => {}
            other => normal.push(other),
        }
    }
    normal.trim_start_matches('.').to_owned()
}
