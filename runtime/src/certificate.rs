//! Expiry times of the certificates that a process uses.

use crate::metrics::Metrics;
use crate::tls::{TlsFiles, certificates};
use ha_api_types::metric::{Sample, process};
use rustls_pki_types::CertificateDer;
use std::path::{Path, PathBuf};

/// Certificate files of a process by purpose. They are read at every scrape, because they may be replaced at any time.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    files: Vec<(&'static str, PathBuf)>,
}

impl Certificates {
    /// Adds the files of a server.
    #[must_use]
    pub fn with_server(mut self, files: Option<&TlsFiles>) -> Certificates {
        if let Some(files) = files {
            self.files.push(("server", files.certificate.clone()));
            self.files.push(("client_ca", files.client_ca.clone()));
        }
        self
    }

    /// Adds the files of the etcd client.
    #[must_use]
    pub fn with_store(mut self, certificate: Option<&Path>, authority: Option<&Path>) -> Certificates {
        let files = [("store", certificate), ("store_ca", authority)];
        self.files.extend(files.into_iter().filter_map(|(name, path)| Some((name, path?.to_owned()))));
        self
    }

    /// Registers the metric of the expiry times.
    pub fn register(self, metrics: &Metrics) -> prometheus::Result<()> {
        metrics.register_scraped([process::CERTIFICATE_EXPIRY], move || self.samples())
    }

    fn samples(&self) -> Vec<Sample> {
        let read = |(name, path): &(&'static str, PathBuf)| {
            let chain = certificates(name, path).unwrap_or_default();
            let first_expiry =
                chain.iter().map(|certificate| expiry_seconds(certificate).unwrap_or(0)).min().unwrap_or(0);
            process::CERTIFICATE_EXPIRY.sample([name], first_expiry as f64)
        };
        self.files.iter().map(read).collect()
    }
}

/// Returns the expiry time of a certificate in seconds since 1970; `None` if it is not a valid certificate.
pub fn expiry_seconds(certificate: &CertificateDer<'_>) -> Option<i64> {
    // Certificate { tbsCertificate { [0] version?, serialNumber, signature, issuer, validity { notBefore, notAfter },
    // … }, … }
    let (certificate, _) = der_element(certificate, SEQUENCE)?;
    let (mut fields, _) = der_element(certificate, SEQUENCE)?;
    if let Some((_, rest)) = der_element(fields, VERSION) {
        fields = rest;
    }
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, fields) = der_element(fields, tag)?;
    }
    let (validity, _) = der_element(fields, SEQUENCE)?;
    let (_, rest) = der_element(validity, UTC_TIME).or_else(|| der_element(validity, GENERALIZED_TIME))?;
    if let Some((text, _)) = der_element(rest, UTC_TIME) {
        // RFC 5280, 4.1.2.5.1: years from 50 to 99 belong to the twentieth century.
        let text = std::str::from_utf8(text).ok()?;
        let century = if text >= "5" { "19" } else { "20" };
        return unix_seconds(&format!("{century}{text}"));
    }
    let (text, _) = der_element(rest, GENERALIZED_TIME)?;
    unix_seconds(std::str::from_utf8(text).ok()?)
}

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// Returns the content of the first DER element, if it has this tag, and the rest of the input.
fn der_element(text: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found_tag, rest) = text.split_first()?;
    let (&length, rest) = rest.split_first()?;
    if found_tag != tag {
        return None;
    }
    if length < 0x80 {
        return rest.split_at_checked(usize::from(length));
    }
    let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
    if digits.len() > 4 {
        return None;
    }
    let length = digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit));
    rest.split_at_checked(length)
}

/// Parses `YYYYMMDDHHMMSSZ` to seconds since 1970.
fn unix_seconds(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.len() == 14 && digits.is_ascii())?;
    let part = |range: std::ops::Range<usize>| digits.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(8..10)?, part(10..12)?, part(12..14)?);
    // Days since 1970-01-01 in the Gregorian calendar. Years are counted from March, so that the leap day is the last
    // day of a year.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, month) = (year.div_euclid(400), (month + 9) % 12);
    let day_of_era = year.rem_euclid(400) * 365 + year.rem_euclid(400) / 4 - year.rem_euclid(400) / 100
        + (153 * month + 2) / 5
        + day
        - 1;
    let days = era * 146_097 + day_of_era - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x509_times_are_parsed() {
        for (text, expected) in [
            ("19700101000000Z", Some(0)),
            ("20260301120000Z", Some(1_772_366_400)),
            ("20240229235959Z", Some(1_709_251_199)),
            ("20491231235959Z", Some(2_524_607_999)),
            ("20260301120000", None),
            ("2026030112000Z", None),
            ("nonsense", None),
        ] {
            assert_eq!(unix_seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn certificate_expiry_time_is_found() {
        for (year, expected) in [(2031, 1_925_078_400), (2_075, 3_313_612_800)] {
            let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            parameters.not_after = rcgen::date_time_ymd(year, 1, 2);
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = parameters.self_signed(&key).unwrap();
            assert_eq!(expiry_seconds(certificate.der()), Some(expected), "{year}");
            for length in 0..certificate.der().len().min(200) {
                assert_eq!(
                    expiry_seconds(&certificate.der()[..length].into()),
                    None,
                    "the first {length} bytes"
                );
            }
        }
    }

    #[test]
    fn unreadable_certificate_counts_as_expired() {
        let certificates = Certificates::default().with_store(None, Some(Path::new("/nowhere/ca.pem")));
        assert_eq!(certificates.samples(), [process::CERTIFICATE_EXPIRY.sample(["store_ca"], 0.0)]);
    }
}
