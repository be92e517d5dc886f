//! The line of every field of a document.

use std::collections::BTreeMap;

/// Lines by path. A path is written as `spec.driver.exec.command[1]`. Brackets and dots are equivalent, so that
/// `metadata.annotations[example.org/x]` finds its field too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    by_path: BTreeMap<String, u32>,
}

impl Lines {
    /// Returns the line of a path, from 1, or that of the nearest existing field above it. `None` only for a document
    /// without lines.
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

    /// Returns the first line of the document.
    pub fn first(&self) -> Option<u32> {
        self.of("")
    }

    /// Records the line of a path from [`child`].
    pub(super) fn put(&mut self, path: &str, line: u32) {
        if line > 0 {
            self.by_path.entry(path.to_owned()).or_insert(line);
        }
    }
}

/// Returns the path of a field or list element below another path.
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
