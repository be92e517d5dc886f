//! The authorities: their creation, and the signing of certificates and revocation lists.

use crate::facts::{Serial, parse_certificate};
use crate::profile::Profile;
use crate::request::parse_key;
use crate::revocation::RevocationList;
use crate::{CertificateRequest, PkiError};
use rand::Rng;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData, RevokedCertParams, SerialNumber,
};
use std::time::Duration;
use time::OffsetDateTime;

/// Validity before the time of issue, so that a machine whose clock is slightly behind accepts a new certificate.
pub(crate) const BACKDATING: Duration = Duration::from_secs(300);

/// The authorities of a cluster. A certificate of one is never accepted in the place of a certificate of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuthorityKind {
    /// Signs the members of etcd for the connections between them.
    EtcdPeers,
    /// Signs the servers of etcd and of the API.
    Servers,
    /// Signs the clients of etcd and of the API.
    Clients,
}

impl AuthorityKind {
    /// All authorities.
    pub const ALL: [AuthorityKind; 3] =
        [AuthorityKind::EtcdPeers, AuthorityKind::Servers, AuthorityKind::Clients];

    /// Returns the name of the authority, which is the common name of its certificate.
    pub fn name(self) -> &'static str {
        match self {
            AuthorityKind::EtcdPeers => "hactl etcd peers",
            AuthorityKind::Servers => "hactl servers",
            AuthorityKind::Clients => "hactl clients",
        }
    }

    /// Returns the file names of the certificate and the key, without extension.
    pub fn file_stem(self) -> &'static str {
        match self {
            AuthorityKind::EtcdPeers => "peer-ca",
            AuthorityKind::Servers => "ca",
            AuthorityKind::Clients => "client-ca",
        }
    }

    /// Returns the file name of the list of certificates that the authority has revoked.
    pub fn revocation_file(self) -> &'static str {
        match self {
            AuthorityKind::EtcdPeers => "peer-crl.pem",
            AuthorityKind::Servers => "server-crl.pem",
            AuthorityKind::Clients => "client-crl.pem",
        }
    }
}

/// Time from which, and time for which, a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Time of issue, in seconds since 1970.
    pub now_unix_seconds: i64,
    /// Time from the issue to the expiry.
    pub lifetime: Duration,
}

impl Validity {
    /// Sets the validity, which ends at `limit` at the latest.
    fn apply(self, parameters: &mut CertificateParams, limit: i64) -> Result<(), PkiError> {
        let end = self.now_unix_seconds.saturating_add(seconds(self.lifetime)).min(limit);
        parameters.not_before = point_in_time(self.now_unix_seconds.saturating_sub(seconds(BACKDATING)))?;
        parameters.not_after = point_in_time(end)?;
        Ok(())
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn point_in_time(unix_seconds: i64) -> Result<OffsetDateTime, PkiError> {
    OffsetDateTime::from_unix_timestamp(unix_seconds)
        .map_err(|_| PkiError::Request("the certificate would be valid for too long".to_owned()))
}

/// A certificate, and the private key that was generated for it.
#[derive(Clone, Debug)]
pub struct CertificateWithKey {
    /// Certificate in PEM format.
    pub certificate_pem: String,
    /// Private key in PEM format.
    pub key_pem: String,
}

/// An authority that can sign.
///
/// Guarantees: the key belongs to the certificate, and the certificate is that of an authority.
#[derive(Debug)]
pub struct Authority {
    certificate_pem: String,
    /// End of the authority's validity, in seconds since 1970. No certificate is valid for longer.
    not_after: i64,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates the certificate and the key of an authority that signs end entities only.
    pub fn create(kind: AuthorityKind, validity: Validity) -> Result<CertificateWithKey, PkiError> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, kind.name());
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.use_authority_key_identifier_extension = true;
        parameters.serial_number = Some(random_serial());
        validity.apply(&mut parameters, i64::MAX)?;
        let key = KeyPair::generate()?;
        let certificate = parameters.self_signed(&key)?;
        Ok(CertificateWithKey { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// Reads an authority. If the file has several certificates, the first one signs.
    pub fn load(certificate_pem: &str, key_pem: &str) -> Result<Authority, PkiError> {
        let key = parse_key(key_pem)?;
        let (is_authority, public_key, not_after) = parse_certificate(certificate_pem, |certificate| {
            let not_after = certificate.validity().not_after.timestamp();
            (certificate.is_ca(), certificate.public_key().raw.to_vec(), not_after)
        })?;
        if !is_authority {
            return Err(PkiError::NotAuthority);
        }
        if public_key != key.subject_public_key_info() {
            return Err(PkiError::KeyMismatch);
        }
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, key)?;
        Ok(Authority { certificate_pem: certificate_pem.to_owned(), not_after, issuer })
    }

    /// Returns the certificate of the authority, in PEM format.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Creates a key and a certificate. The caller chooses the authority by [`Profile::authority`].
    pub fn issue(&self, profile: &Profile, validity: Validity) -> Result<CertificateWithKey, PkiError> {
        let key = KeyPair::generate()?;
        let certificate_pem = self.sign_key(profile, validity, &key)?;
        Ok(CertificateWithKey { certificate_pem, key_pem: key.serialize_pem() })
    }

    /// Signs the key of a request. Nothing else of the request is in the certificate.
    pub fn sign(
        &self,
        profile: &Profile,
        validity: Validity,
        request: &CertificateRequest,
    ) -> Result<String, PkiError> {
        self.sign_key(profile, validity, &request.public_key)
    }

    fn sign_key(
        &self,
        profile: &Profile,
        validity: Validity,
        key: &impl PublicKeyData,
    ) -> Result<String, PkiError> {
        let mut parameters = profile.parameters()?;
        parameters.use_authority_key_identifier_extension = true;
        // By default, the serial number follows from the key, so that a renewed certificate would have the number of the
        // previous one.
        parameters.serial_number = Some(random_serial());
        validity.apply(&mut parameters, self.not_after)?;
        Ok(parameters.signed_by(key, &self.issuer)?.pem())
    }

    /// Signs a revocation list, in PEM format.
    pub fn sign_list(&self, list: &RevocationList, validity: Validity) -> Result<String, PkiError> {
        let revoked_certs = list
            .revocations
            .iter()
            .map(|revocation| {
                Ok(RevokedCertParams {
                    serial_number: revocation.serial.clone().into(),
                    revocation_time: point_in_time(revocation.time_unix_seconds)?,
                    reason_code: None,
                    invalidity_date: None,
                })
            })
            .collect::<Result<Vec<_>, PkiError>>()?;
        let end = validity.now_unix_seconds.saturating_add(seconds(validity.lifetime));
        let parameters = CertificateRevocationListParams {
            this_update: point_in_time(validity.now_unix_seconds)?,
            next_update: point_in_time(end)?,
            crl_number: SerialNumber::from(list.number),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(parameters.signed_by(&self.issuer)?.pem()?)
    }
}

/// Returns a serial number with 126 random bits, which is positive and has a fixed length.
fn random_serial() -> SerialNumber {
    let mut bytes = [0_u8; 16];
    rand::rng().fill_bytes(&mut bytes);
    bytes[0] = (bytes[0] & 0x3f) | 0x40;
    Serial::of_bytes(&bytes).into()
}
