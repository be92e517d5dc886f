//! Certificate authority of one cluster, with a certificate for each machine and each user.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
    date_time_ymd,
};

/// Issues certificates into a directory as `NAME.pem` and `NAME.key`; the authority's own is `ca.pem`.
pub struct Authority {
    directory: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Creates the authority, and writes its certificate, its key (`ca.key`), and an empty revocation list (`crl.pem`).
    ///
    /// # Errors
    /// Fails if the directory is not writable.
    pub fn create(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "hactl sandbox");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?;
        fs::write(directory.join("ca.pem"), issuer.pem())?;
        write_key(&directory.join("ca.key"), issuer.key())?;
        let revocation_list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(4096, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        fs::write(directory.join("crl.pem"), revocation_list.signed_by(&issuer)?.pem()?)?;
        Ok(Self { directory: directory.to_owned(), issuer })
    }

    /// Issues a certificate with the common name `name`, valid for a server at `addresses` and for a client.
    ///
    /// etcd's gateway connects as a client with the server's certificate, so every certificate has both uses.
    ///
    /// # Errors
    /// Fails if the directory is not writable.
    pub fn issue(&self, name: &str, organization: &str, addresses: &[IpAddr]) -> Result<()> {
        let mut parameters = CertificateParams::new(vec![name.to_owned(), "localhost".to_owned()])?;
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.distinguished_name.push(DnType::OrganizationName, organization);
        parameters.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        fs::write(self.directory.join(format!("{name}.pem")), certificate.pem())?;
        write_key(&self.directory.join(format!("{name}.key")), &key)
    }
}

/// Writes a private key that only its owner can read.
fn write_key(path: &Path, key: &KeyPair) -> Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(key.serialize_pem().as_bytes()).with_context(|| path.display().to_string())
}
