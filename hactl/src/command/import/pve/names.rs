//! Names of groups and rules: invalid names are converted, and each result is unique.

use ha_api_types::names::{MAX_NAME_LENGTH, invalid_reason};
use std::collections::BTreeSet;

/// Used names of one kind of object.
#[derive(Clone, Debug, Default)]
pub(super) struct UniqueNames {
    used: BTreeSet<String>,
}

impl UniqueNames {
    /// Returns the name for one of ha-manager's names, which may contain upper-case letters and underscores.
    pub(super) fn assign(&mut self, original: &str) -> String {
        if invalid_reason(original, MAX_NAME_LENGTH).is_none() && self.used.insert(original.to_owned()) {
            return original.to_owned();
        }
        let sanitized: String = original
            .to_ascii_lowercase()
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' })
            .take(MAX_NAME_LENGTH - 3)
            .collect();
        let sanitized = sanitized.trim_matches(['-', '.']);
        let sanitized =
            if invalid_reason(sanitized, MAX_NAME_LENGTH).is_none() { sanitized } else { "imported" };
        let numbered = (2..).map(|number| format!("{sanitized}-{number}"));
        let name = std::iter::once(sanitized.to_owned())
            .chain(numbered)
            .find(|name| !self.used.contains(name))
            .unwrap_or_default();
        self.used.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converted_names_are_valid_and_unique() {
        let mut names = UniqueNames::default();
        let mut check =
            |original: &str, expected: &str| assert_eq!(names.assign(original), expected, "{original}");
        check("mygroup1", "mygroup1");
        check("Prefer_Node1", "prefer-node1");
        check("prefer-node1", "prefer-node1-2");
        check("_x_", "x");
        check("___", "imported");
        check(&"b".repeat(MAX_NAME_LENGTH), &"b".repeat(MAX_NAME_LENGTH));
        check(&"a".repeat(80), &"a".repeat(60));
        check(&"a".repeat(81), &format!("{}-2", "a".repeat(60)));
    }
}
