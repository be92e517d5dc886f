//! Bearer tokens of the API: the file that controllers read and `hactl token` writes.
//!
//! A token has 256 random bits, so its plain SHA-256 hash in the file reveals nothing about it.

use crate::role::Role;
use crate::time::Timestamp;
use crate::yaml;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;

/// Beginning of every token, by which secret scanners and people recognize it.
pub const TOKEN_PREFIX: &str = "hactl_";

/// SHA-256 hash of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Returns the hash of a token.
    pub fn of(token: &str) -> TokenHash {
        TokenHash(Sha256::digest(token.as_bytes()).into())
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHash({self})")
    }
}

impl Serialize for TokenHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<TokenHash, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = parse_digits(&text);
        hash.map(TokenHash).ok_or_else(|| serde::de::Error::custom("must be 64 hexadecimal digits"))
    }
}

/// Parses 64 hexadecimal digits.
pub(crate) fn parse_digits(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// A token that controllers accept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Name of the user that the token identifies.
    pub name: String,
    /// The only role of the user.
    pub role: Role,
    /// Hash of the token.
    pub sha256: TokenHash,
    /// Time from which the token is not accepted.
    pub expires: Timestamp,
}

impl Token {
    /// Returns `true` if the token has expired. A time that cannot be read counts as past.
    pub fn has_expired(&self, now_unix_seconds: i64) -> bool {
        self.expires.unix_seconds().is_none_or(|expires| expires <= now_unix_seconds)
    }
}

/// The tokens of a cluster. Every controller has the same file.
///
/// Guarantees: names and hashes are unique, and every expiration time can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenFile {
    /// The tokens, in the order of their creation.
    pub tokens: Vec<Token>,
}

/// The fields of the file, before they are checked.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    tokens: Vec<Token>,
}

impl TokenFile {
    /// Reads the content of a file. An empty file has no tokens.
    ///
    /// # Errors
    /// Fails with the problem and its location.
    pub fn parse(text: &str) -> Result<TokenFile, String> {
        let documents = yaml::documents(text).map_err(|error| match error.line {
            Some(line) => format!("line {line}: {}", error.message),
            None => error.message,
        })?;
        let fields = match documents.as_slice() {
            [] => Fields::default(),
            [document] => {
                serde_json::from_value::<Fields>(document.value.clone()).map_err(|error| error.to_string())?
            }
            several => return Err(format!("expected one document, found {}", several.len())),
        };
        let mut names = BTreeSet::new();
        let mut hashes = BTreeSet::new();
        for token in &fields.tokens {
            if token.name.is_empty() || token.name.chars().any(char::is_control) {
                return Err(format!("token {:?}: name must be printable and not empty", token.name));
            }
            if token.expires.unix_seconds().is_none() {
                return Err(format!(
                    "token {}: expires is not a time such as 2027-01-31T00:00:00Z",
                    token.name
                ));
            }
            if !names.insert(&token.name) {
                return Err(format!("token {} exists twice", token.name));
            }
            if !hashes.insert(token.sha256) {
                return Err(format!("token {} has the hash of another token", token.name));
            }
        }
        Ok(TokenFile { tokens: fields.tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn file(tokens: &[(&str, &str)]) -> String {
        let entry = |(name, hash): &(&str, &str)| {
            format!(
                "- {{name: {name}, role: viewer, sha256: \"{hash}\", expires: \"2027-01-31T00:00:00Z\"}}\n"
            )
        };
        format!("tokens:\n{}", tokens.iter().map(entry).collect::<String>())
    }

    #[test]
    fn a_file_has_named_tokens_with_the_hash_of_each() {
        let parsed = TokenFile::parse(&file(&[("ada", HASH)])).unwrap();
        assert_eq!(parsed.tokens[0].sha256, TokenHash::of("abc"));
        assert_eq!(parsed.tokens[0].role, Role::Viewer);
        let expires = parsed.tokens[0].expires.unix_seconds().unwrap();
        assert!(!parsed.tokens[0].has_expired(expires - 1));
        assert!(parsed.tokens[0].has_expired(expires));
        assert_eq!(TokenFile::parse("").unwrap(), TokenFile::default());
        assert_eq!(TokenFile::parse("tokens: []").unwrap(), TokenFile::default());
    }

    #[test]
    fn wrong_files_are_refused_with_the_reason() {
        let other = "0".repeat(64);
        for (text, part) in [
            (file(&[("ada", HASH), ("ada", &other)]), "token ada exists twice"),
            (file(&[("ada", HASH), ("bob", HASH)]), "token bob has the hash of another token"),
            (file(&[("ada", "abc")]), "64 hexadecimal digits"),
            (file(&[("ada", HASH)]).replace("viewer", "root"), "unknown variant `root`"),
            (
                file(&[("ada", HASH)]).replace("2027-01-31T00:00:00Z", "soon"),
                "token ada: expires is not a time",
            ),
            (file(&[("''", HASH)]), "name must be printable"),
            ("tokens: []\n---\ntokens: []\n".to_owned(), "expected one document, found 2"),
            ("token: []".to_owned(), "unknown field `token`"),
            ("a: b: c".to_owned(), "line 1"),
        ] {
            let error = TokenFile::parse(&text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
