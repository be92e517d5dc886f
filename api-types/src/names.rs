//! Names of objects: their syntax, and `type:name` for resources.

use crate::kind::Kind;
use crate::resource::ResourceSpec;
use std::fmt::Display;

/// Maximum length of an object's name, in bytes.
pub const MAX_NAME_LENGTH: usize = 63;
/// Maximum length of a node's name, in bytes; it may be a host name.
pub const MAX_NODE_NAME_LENGTH: usize = 253;

/// Returns a number with its noun, in the plural if needed: `1 move`, `2 moves`, `2 copies`.
pub fn count_with_noun<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    match noun.strip_suffix('y') {
        _ if number == N::from(1) => format!("1 {noun}"),
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {noun}s"),
    }
}

/// Returns the reason why a text is not a valid name, or `None` if it is valid.
///
/// A name has at most `max_length` bytes and consists of lower-case letters, digits, `-` and `.`, with a letter or digit at
/// both ends. Digits alone (`101`) are valid.
pub fn invalid_reason(name: &str, max_length: usize) -> Option<String> {
    let is_valid_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_valid_inside = |byte: u8| is_valid_end(byte) || byte == b'-' || byte == b'.';
    let bytes = name.as_bytes();
    let has_valid_ends =
        bytes.first().copied().is_some_and(is_valid_end) && bytes.last().copied().is_some_and(is_valid_end);
    if name.is_empty() {
        Some("must not be empty".to_owned())
    } else if name.len() > max_length {
        Some(format!("must have at most {max_length} characters"))
    } else if !has_valid_ends || !bytes.iter().copied().all(is_valid_inside) {
        Some(format!(
            "{name:?} is not a valid name: use lower-case letters, digits, '-' and '.', with a letter or \
             digit at both ends, such as web, db-1 or 101"
        ))
    } else {
        None
    }
}

/// Returns the warning of the API for a name without an object. The text has no full stop. hactl recognizes this text.
pub fn missing_message(kind: Kind, name: &str) -> String {
    format!("{} {name} does not exist yet", kind.singular())
}

/// A name with its optional type prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypedName<'a> {
    /// The type, such as `vm` in `vm:100`.
    pub type_name: Option<&'a str>,
    /// The name without the type, such as `100` in `vm:100`.
    pub name: &'a str,
}

impl<'a> TypedName<'a> {
    /// Splits `type:name` or `name`; the parts are not checked.
    pub fn parse(text: &'a str) -> TypedName<'a> {
        match text.split_once(':') {
            Some((type_name, name)) => TypedName { type_name: Some(type_name), name },
            None => TypedName { type_name: None, name: text },
        }
    }

    /// Checks that the type matches the resource.
    ///
    /// # Errors
    /// Returns a sentence that names the right type.
    pub fn check(&self, spec: &ResourceSpec) -> Result<(), String> {
        let spec_type = spec.driver.type_name();
        match self.type_name {
            Some(written) if written != spec_type => {
                let name = self.name;
                Err(format!("{name} is not of type {written}: specify {spec_type}:{name}, or {name} alone"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns the name without its type: `100` for `vm:100`.
pub fn without_type(text: &str) -> &str {
    TypedName::parse(text).name
}

/// Returns the name with its type, as printed in lists: `vm:100`.
pub fn qualified(name: &str, spec: &ResourceSpec) -> String {
    format!("{}:{name}", spec.driver.type_name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{DriverSpec, LibvirtDriver};

    fn check(name: &str, expected: bool) {
        assert_eq!(invalid_reason(name, MAX_NAME_LENGTH).is_none(), expected, "{name:?}");
    }

    #[test]
    fn names_follow_dns_rules_or_are_numbers() {
        for valid in ["101", "web", "db-1", "a.b", "0", &"a".repeat(63)] {
            check(valid, true);
        }
        for invalid in
            ["", "-a", "a-", ".a", "a.", "Web", "a_b", "a b", "a/b", "vm:100", "ä", "..", &"a".repeat(64)]
        {
            check(invalid, false);
        }
    }

    #[test]
    fn wrong_name_prefix_suggests_correct_prefix() {
        let driver = DriverSpec { libvirt: Some(LibvirtDriver::default()), ..DriverSpec::default() };
        let spec = ResourceSpec { driver, ..ResourceSpec::default() };
        assert_eq!(TypedName::parse("vm:100").check(&spec), Ok(()));
        assert_eq!(TypedName::parse("100").check(&spec), Ok(()));
        let refused = TypedName::parse("ct:100").check(&spec);
        assert!(refused.is_err_and(|text| text.contains("vm:100")));
        assert_eq!(without_type("vm:100"), "100");
        assert_eq!(qualified("100", &spec), "vm:100");
    }
}
