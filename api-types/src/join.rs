//! Certificates that controllers issue to nodes: join tokens, requests, answers, and the records in etcd.
//!
//! A join token has 256 random bits, so its plain SHA-256 hash in etcd reveals nothing about it.

use crate::id::{ControllerId, NodeName};
use crate::names::{MAX_NODE_NAME_LENGTH, invalid_reason};
use crate::time::Timestamp;
use crate::token::{TokenHash, parse_digits};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// Longest validity of a join token, in seconds.
pub const JOIN_TOKEN_SECONDS_MAX: u32 = 3600;
/// Beginning of every join token, by which secret scanners and people recognize it.
const PREFIX: &str = "hactl_join_";

/// SHA-256 hash of the certificate of the servers' authority, by which a new node recognizes the controller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthorityPin([u8; 32]);

impl AuthorityPin {
    /// Returns the pin of a certificate in DER format.
    pub fn of_certificate(der: &[u8]) -> AuthorityPin {
        AuthorityPin(Sha256::digest(der).into())
    }
}

impl fmt::Display for AuthorityPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for AuthorityPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthorityPin({self})")
    }
}

/// A token with which one machine becomes a node, once: `hactl_join_NODE_SECRET_PIN`.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Name of the node that the token permits.
    pub node: NodeName,
    secret: [u8; 32],
    /// Authority of the controllers.
    pub pin: AuthorityPin,
}

impl JoinToken {
    /// Returns a token with 32 random bytes.
    pub fn new(node: NodeName, secret: [u8; 32], pin: AuthorityPin) -> JoinToken {
        JoinToken { node, secret, pin }
    }

    /// Returns the hash of the token, which etcd stores.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.to_string())
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_", self.node)?;
        self.secret.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "_{}", self.pin)
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({})", self.node)
    }
}

impl FromStr for JoinToken {
    type Err = String;

    /// Parses a token. The error does not contain the token.
    fn from_str(text: &str) -> Result<JoinToken, String> {
        let invalid = || format!("not a valid join token, which has the form {PREFIX}NODE_SECRET_PIN");
        let parts: Vec<&str> = text.strip_prefix(PREFIX).ok_or_else(invalid)?.split('_').collect();
        let [node, secret, pin] = parts.as_slice() else { return Err(invalid()) };
        if invalid_reason(node, MAX_NODE_NAME_LENGTH).is_some() {
            return Err(invalid());
        }
        let secret = bytes(secret).ok_or_else(invalid)?;
        let pin = AuthorityPin(bytes(pin).ok_or_else(invalid)?);
        Ok(JoinToken { node: NodeName::from(*node), secret, pin })
    }
}

/// Parses 64 lower-case hexadecimal digits.
fn bytes(digits: &str) -> Option<[u8; 32]> {
    parse_digits(digits).filter(|_| !digits.bytes().any(|digit| digit.is_ascii_uppercase()))
}

/// Request of an administrator for a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinTokenRequest {
    /// Validity of the token, in seconds.
    pub valid_seconds: u32,
}

/// A new join token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JoinTokenAnswer {
    /// Text of the token.
    pub token: String,
    /// Time from which the token is not accepted.
    pub expires: Timestamp,
}

/// Public facts with which a new node verifies a controller, from an unverified connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JoinAuthority {
    /// Certificates of the servers' authority, in PEM format.
    pub server_authority: String,
}

/// Request of a new machine for the certificate of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinRequest {
    /// Join token.
    pub token: String,
    /// Certificate request in PEM format.
    pub request: String,
}

/// Everything that a new node needs to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JoinAnswer {
    /// Certificate of the node, in PEM format.
    pub certificate: String,
    /// Certificates of the servers' authority, in PEM format.
    pub server_authority: String,
    /// Client URLs of etcd, as the controller uses them.
    pub etcd_endpoints: Vec<String>,
    /// Name of the cluster.
    pub cluster: String,
}

/// Request of an agent for a new certificate of its own name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenewalRequest {
    /// Certificate request in PEM format.
    pub request: String,
}

/// A renewed certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RenewalAnswer {
    /// Certificate in PEM format.
    pub certificate: String,
}

/// A join token in etcd. Its key is deleted when the token is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinTokenRecord {
    /// Hash of the token.
    pub sha256: TokenHash,
    /// Time from which the token is not accepted.
    pub expires: Timestamp,
    /// User that created the token.
    pub created_by: String,
}

impl JoinTokenRecord {
    /// Returns `true` if a token is accepted now. A time that cannot be read counts as past.
    pub fn accepts(&self, token: &JoinToken, now_unix_seconds: i64) -> bool {
        let is_valid = self.expires.unix_seconds().is_some_and(|expires| now_unix_seconds < expires);
        is_valid && token.hash() == self.sha256
    }
}

/// A certificate of a node that a controller issued, in etcd, until it expires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IssuedCertificate {
    /// Serial number, hexadecimal.
    pub serial: String,
    /// End of the validity.
    pub not_after: Timestamp,
    /// Id of the controller that issued the certificate.
    pub controller: ControllerId,
}

/// Certificates of a node that controllers issued and that have not expired.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IssuedCertificates {
    /// The certificates.
    pub items: Vec<IssuedCertificate>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> JoinToken {
        JoinToken::new("c4".into(), [0xab; 32], AuthorityPin::of_certificate(b"certificate"))
    }

    #[test]
    fn a_token_names_its_node_and_authority() {
        let text = token().to_string();
        assert!(text.starts_with("hactl_join_c4_abab"), "{text}");
        assert_eq!(text.parse(), Ok(token()));
        assert_eq!(format!("{:?}", token()), "JoinToken(c4)");
    }

    #[test]
    fn other_texts_are_refused_without_showing_them() {
        let text = token().to_string();
        for invalid_token in [
            "",
            "hactl_0123",
            &text[1..],
            &text[..text.len() - 1],
            &text.replace("c4", ""),
            &text.replace("c4", "C4"),
            &text.replace("c4", "a/b"),
            &text.to_uppercase(),
            &format!("{text}_x"),
            &format!("{text}\n"),
        ] {
            let error = invalid_token.parse::<JoinToken>().unwrap_err();
            assert!(
                error.contains("not a valid join token") && !error.contains("abab"),
                "{invalid_token}: {error}"
            );
        }
    }

    #[test]
    fn a_record_accepts_only_its_token_before_it_expires() {
        let expires = Timestamp::from_unix_ms(2_000_000);
        let record = JoinTokenRecord { sha256: token().hash(), expires, created_by: "ada".to_owned() };
        assert!(record.accepts(&token(), 1999));
        assert!(!record.accepts(&token(), 2000));
        for other in [
            JoinToken::new("c5".into(), [0xab; 32], token().pin),
            JoinToken::new("c4".into(), [0xac; 32], token().pin),
            JoinToken::new("c4".into(), [0xab; 32], AuthorityPin::of_certificate(b"other")),
        ] {
            assert!(!record.accepts(&other, 0), "{other}");
        }
    }
}
