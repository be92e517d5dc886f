//! Revocation lists: the revoked certificates of an authority.

use crate::PkiError;
use crate::facts::{Serial, first_pem};
use x509_parser::prelude::{CertificateRevocationList, FromDer};

/// A revoked certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Serial number of the certificate.
    pub serial: Serial,
    /// Time of the revocation, in seconds since 1970.
    pub time_unix_seconds: i64,
}

/// The revoked certificates of an authority, as of a version of its list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevocationList {
    /// Number of the list, which increases with each version.
    pub number: u64,
    /// Revoked certificates, in the order of their revocation.
    pub revocations: Vec<Revocation>,
}

impl RevocationList {
    /// Reads a list in PEM format.
    pub fn of_pem(text: &str) -> Result<RevocationList, PkiError> {
        let invalid = |message: String| PkiError::Parse { expected: "revocation list", message };
        let pem =
            first_pem(text, "X509 CRL").ok_or_else(|| invalid("no revocation list found".to_owned()))?;
        let (_, list) =
            CertificateRevocationList::from_der(&pem.contents).map_err(|error| invalid(error.to_string()))?;
        let number = list.crl_number().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        let revocations = list
            .iter_revoked_certificates()
            .map(|revoked| Revocation {
                serial: Serial::of_bytes(revoked.raw_serial()),
                time_unix_seconds: revoked.revocation_date.timestamp(),
            })
            .collect();
        Ok(RevocationList { number, revocations })
    }

    /// Returns `true` if the list contains a certificate.
    pub fn contains(&self, serial: &Serial) -> bool {
        self.revocations.iter().any(|revocation| revocation.serial == *serial)
    }

    /// Returns the next version of the list, with more revoked certificates.
    #[must_use]
    pub fn with(&self, serials: &[Serial], now_unix_seconds: i64) -> RevocationList {
        let mut next = RevocationList { number: self.number + 1, revocations: self.revocations.clone() };
        for serial in serials {
            if !next.contains(serial) {
                next.revocations
                    .push(Revocation { serial: serial.clone(), time_unix_seconds: now_unix_seconds });
            }
        }
        next
    }
}
