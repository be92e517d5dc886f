//! Facts in a certificate: its kind, name, serial number, issuer and validity.

use crate::PkiError;
use crate::authority::{AuthorityKind, BACKDATING};
use crate::profile::CertificateKind;
use rcgen::SerialNumber;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;

/// Serial number of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(Vec<u8>);

impl Serial {
    /// Returns the number with these bytes, the most significant first. Leading zeros are not part of a number.
    pub fn of_bytes(bytes: &[u8]) -> Serial {
        let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
        Serial(bytes[start..].to_vec())
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Serial {
    type Err = String;

    /// Parses hexadecimal digits, with or without the colons that OpenSSL prints.
    fn from_str(text: &str) -> Result<Serial, String> {
        let digits: String = text.chars().filter(|letter| *letter != ':').collect();
        let is_valid = !digits.is_empty()
            && digits.len() <= 40
            && digits.len().is_multiple_of(2)
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = |start: usize| u8::from_str_radix(&digits[start..start + 2], 16).ok();
        let bytes: Option<Vec<u8>> =
            if is_valid { (0..digits.len()).step_by(2).map(byte).collect() } else { None };
        bytes
            .map(|bytes| Serial::of_bytes(&bytes))
            .ok_or_else(|| format!("{text:?} is not a serial number of 2 to 40 hexadecimal digits"))
    }
}

impl From<Serial> for SerialNumber {
    fn from(serial: Serial) -> SerialNumber {
        SerialNumber::from(serial.0)
    }
}

/// The fields of a certificate that hactl uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Purpose; `None` for a certificate that hactl did not issue.
    pub kind: Option<CertificateKind>,
    /// Common name of the subject; empty if the subject does not have exactly one.
    pub name: String,
    /// Organizations of the subject, which are the groups of a client.
    pub groups: Vec<String>,
    /// Names and addresses of a server.
    pub addresses: Vec<String>,
    /// Serial number, by which a revocation list names the certificate.
    pub serial: Serial,
    /// Common name of the issuer.
    pub issuer: String,
    /// Start of the validity, in seconds since 1970.
    pub not_before: i64,
    /// End of the validity, in seconds since 1970.
    pub not_after: i64,
    /// Public key, with its type.
    pub public_key: Vec<u8>,
}

impl CertificateFacts {
    /// Reads the first certificate of a text in PEM format.
    pub fn of_pem(text: &str) -> Result<CertificateFacts, PkiError> {
        parse_certificate(text, CertificateFacts::of)
    }

    fn of(certificate: &X509Certificate<'_>) -> CertificateFacts {
        let names = |names: &mut dyn Iterator<Item = &x509_parser::x509::AttributeTypeAndValue<'_>>| {
            names.filter_map(|name| name.as_str().ok()).map(str::to_owned).collect::<Vec<_>>()
        };
        let single = |mut names: Vec<String>| if names.len() == 1 { names.remove(0) } else { String::new() };
        let name = single(names(&mut certificate.subject().iter_common_name()));
        let groups = names(&mut certificate.subject().iter_organization());
        let issuer = single(names(&mut certificate.issuer().iter_common_name()));
        let authority = AuthorityKind::ALL.into_iter().find(|kind| kind.name() == issuer);
        let kind = authority
            .filter(|_| !certificate.is_ca())
            .and_then(|authority| CertificateKind::of(authority, &name, &groups));
        CertificateFacts {
            kind,
            name,
            groups,
            addresses: addresses(certificate),
            serial: Serial::of_bytes(certificate.raw_serial()),
            issuer,
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            public_key: certificate.public_key().raw.to_vec(),
        }
    }

    /// Returns the lifetime from the time of issue.
    pub fn lifetime(&self) -> Duration {
        let seconds = self.not_after.saturating_sub(self.not_before);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_sub(BACKDATING)
    }

    /// Returns `true` if two thirds of the lifetime have passed.
    pub fn is_renewal_due(&self, now_unix_seconds: i64) -> bool {
        now_unix_seconds >= self.renewal_time()
    }

    /// Returns the time at which two thirds of the lifetime have passed, in seconds since 1970.
    pub fn renewal_time(&self) -> i64 {
        let lifetime = self.not_after.saturating_sub(self.not_before);
        self.not_before.saturating_add(lifetime / 3 * 2)
    }

    /// Returns `true` if the validity has ended.
    pub fn has_expired(&self, now_unix_seconds: i64) -> bool {
        now_unix_seconds > self.not_after
    }
}

fn addresses(certificate: &X509Certificate<'_>) -> Vec<String> {
    use x509_parser::extensions::GeneralName;
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let address = |name: &GeneralName<'_>| {
        if let GeneralName::DNSName(name) = name {
            return Some((*name).to_owned());
        }
        let GeneralName::IPAddress(bytes) = name else { return None };
        let v4 = <[u8; 4]>::try_from(*bytes).map(std::net::IpAddr::from);
        let v6 = <[u8; 16]>::try_from(*bytes).map(std::net::IpAddr::from);
        v4.or(v6).ok().map(|address| address.to_string())
    };
    names.value.general_names.iter().filter_map(address).collect()
}

/// Parses the first certificate of a text in PEM format, and reads from it.
pub(crate) fn parse_certificate<T>(
    text: &str,
    read: impl FnOnce(&X509Certificate<'_>) -> T,
) -> Result<T, PkiError> {
    let invalid = |message: String| PkiError::Parse { expected: "certificate", message };
    let pem = first_pem(text, "CERTIFICATE").ok_or_else(|| invalid("no certificate found".to_owned()))?;
    let certificate = pem.parse_x509().map_err(|error| invalid(error.to_string()))?;
    Ok(read(&certificate))
}

/// Returns the first part of a text in PEM format with this label.
pub(crate) fn first_pem(text: &str, label: &str) -> Option<Pem> {
    Pem::iter_from_buffer(text.as_bytes()).find_map(|pem| pem.ok().filter(|pem| pem.label == label))
}
