//! Certificates for one run: no other process can access the private etcd, and its only client is root if users are
//! enabled.

use crate::failure::Failure;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Certificate and key files of one run.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    /// Certificate of the authority.
    pub(super) authority: PathBuf,
    /// Certificate of client and server.
    pub(super) certificate: PathBuf,
    /// Key of the certificate.
    pub(super) key: PathBuf,
}

impl Credentials {
    /// Creates the files in a directory. The client's name is root, which is also the administrator of an etcd with users.
    pub(super) fn create(directory: &Path) -> Result<Credentials, Failure> {
        let failed = |error: rcgen::Error| Failure::failed(format!("cannot create a certificate: {error}"));
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "hactl restore");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().map_err(failed)?;
        let issuer = CertifiedIssuer::self_signed(authority, key).map_err(failed)?;
        let mut subject = CertificateParams::default();
        subject.distinguished_name.push(DnType::CommonName, "root");
        subject.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        subject.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        subject.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = subject.signed_by(&key, &issuer).map_err(failed)?;
        Ok(Credentials {
            authority: write(directory, "ca.pem", &issuer.pem())?,
            certificate: write(directory, "root.pem", &certificate.pem())?,
            key: write(directory, "root.key", &key.serialize_pem())?,
        })
    }
}

fn write(directory: &Path, name: &str, text: &str) -> Result<PathBuf, Failure> {
    let path = directory.join(name);
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    Ok(path)
}
