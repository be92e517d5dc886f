//! The name in a client certificate, which is its etcd user.

use crate::failure::Failure;
use std::path::Path;
use x509_parser::pem::Pem;

/// Returns the common name of the first certificate in a PEM file.
///
/// # Errors
/// Fails if the file has no certificate, or if the certificate does not have exactly one common name.
pub(super) fn common_name(path: &Path) -> Result<String, Failure> {
    let invalid = |cause: &str| Failure::usage(format!("certificate {}: {cause}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| invalid(&error.to_string()))?;
    let pem = Pem::iter_from_buffer(&bytes)
        .find_map(|pem| pem.ok().filter(|pem| pem.label == "CERTIFICATE"))
        .ok_or_else(|| invalid("no PEM certificate found"))?;
    let certificate = pem.parse_x509().map_err(|error| invalid(&error.to_string()))?;
    let names: Vec<&str> =
        certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok()).collect();
    match names.as_slice() {
        [name] => Ok((*name).to_owned()),
        names => Err(invalid(&format!("{} common names instead of one", names.len()))),
    }
}
