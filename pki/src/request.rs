//! Requests for certificates: an agent creates one for its key, and a controller checks it.

use crate::PkiError;
use crate::facts::first_pem;
use crate::profile::Profile;
use rcgen::{CertificateParams, CertificateSigningRequestParams, KeyPair, PublicKey, PublicKeyData};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY};
use x509_parser::prelude::FromDer;

/// Label of a request in PEM format.
const LABEL: &str = "CERTIFICATE REQUEST";
/// Longest accepted request, in bytes. A request with the only accepted type of key has about 400.
const MAX_LENGTH: usize = 4096;

/// Creates a private key, in PEM format.
pub fn new_key() -> Result<String, PkiError> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// Parses a private key in PEM format.
pub(crate) fn parse_key(key_pem: &str) -> Result<KeyPair, PkiError> {
    KeyPair::from_pem(key_pem)
        .map_err(|error| PkiError::Parse { expected: "private key", message: error.to_string() })
}

/// Returns the public key of a private key in PEM format, with its type.
pub fn public_key(key_pem: &str) -> Result<Vec<u8>, PkiError> {
    Ok(parse_key(key_pem)?.subject_public_key_info())
}

/// Creates the request of a node for its key, in PEM format.
pub fn request_for_node(node: &str, key_pem: &str) -> Result<String, PkiError> {
    let key = parse_key(key_pem)?;
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = Profile::node(node)?.subject();
    Ok(parameters.serialize_request(&key)?.pem()?)
}

/// A request whose sender has the private key.
#[derive(Debug)]
pub struct CertificateRequest {
    pub(crate) public_key: PublicKey,
}

impl CertificateRequest {
    /// Checks a request in PEM format: the signature, the type of the key, and that the subject is exactly that of the
    /// profile. A request for further names or extensions is refused.
    ///
    /// # Errors
    /// Fails with the difference from the permitted request.
    pub fn check(text: &str, profile: &Profile) -> Result<CertificateRequest, PkiError> {
        let refused = |message: &str| PkiError::Request(format!("the certificate request {message}"));
        let invalid = |message: String| PkiError::Parse { expected: "certificate request", message };
        if text.len() > MAX_LENGTH {
            return Err(refused("is too long"));
        }
        let pem = first_pem(text, LABEL).ok_or_else(|| invalid("no certificate request found".to_owned()))?;
        let (rest, parsed) =
            X509CertificationRequest::from_der(&pem.contents).map_err(|error| invalid(error.to_string()))?;
        let key = &parsed.certification_request_info.subject_pki;
        let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        if key.algorithm.algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY || curve != Some(OID_EC_P256) {
            return Err(refused("has a key of another type: use ECDSA P-256"));
        }
        // The parser verifies the signature, so no client gets a certificate for the key of another.
        let request =
            CertificateSigningRequestParams::from_der(&pem.contents.as_slice().into()).map_err(|error| {
                if error == rcgen::Error::UnsupportedExtension {
                    refused("contains extensions")
                } else {
                    invalid(error.to_string())
                }
            })?;
        if request.public_key.subject_public_key_info() != key.raw || !rest.is_empty() {
            return Err(refused("has an unsupported encoding"));
        }
        let mut expected = CertificateParams::default();
        expected.distinguished_name = profile.subject();
        if request.params.distinguished_name != expected.distinguished_name {
            return Err(refused(&format!(
                "has another subject: the common name must be {}{}",
                profile.common_name(),
                profile.group().map_or_else(String::new, |group| format!(", and the organization {group}"))
            )));
        }
        if request.params != expected {
            return Err(refused("contains additional names or usages"));
        }
        Ok(CertificateRequest { public_key: request.public_key })
    }
}
