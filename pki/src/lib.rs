//! Certificates of hactl: the authorities, the certificates of each purpose, requests for certificates, and revocation
//! lists.
//!
//! This crate signs and parses in memory. Its callers read and write the files.

mod authority;
mod facts;
mod profile;
mod request;
mod revocation;

pub use authority::{Authority, AuthorityKind, CertificateWithKey, Validity};
pub use facts::{CertificateFacts, Serial};
pub use profile::{CertificateKind, Profile};
pub use request::{CertificateRequest, new_key, public_key, request_for_node};
pub use revocation::{Revocation, RevocationList};

/// Reason why a certificate, a key, a request or a list cannot be used or created.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The text is not of the expected type.
    #[error("not a valid {expected} in PEM format: {message}")]
    Parse {
        /// Expected content.
        expected: &'static str,
        /// Description of the problem.
        message: String,
    },
    /// The key does not belong to the certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The certificate cannot sign others.
    #[error("the certificate is not the certificate of an authority")]
    NotAuthority,
    /// A name cannot be used in a certificate of this kind.
    #[error("{0}")]
    Name(String),
    /// The request differs from the profile that the caller permits.
    #[error("{0}")]
    Request(String),
    /// The certificate library failed.
    #[error("cannot create the certificate: {0}")]
    Create(#[from] rcgen::Error),
}
