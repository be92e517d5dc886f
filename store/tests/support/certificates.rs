//! A certificate authority for tests.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::path::Path;

pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::<String>::new()).expect("no names");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.self_signed(&key).expect("a certificate").pem();
        Authority { certificate, issuer: Issuer::new(parameters, key) }
    }

    /// Writes the certificate of the authority.
    pub(crate) fn write(&self, file: &Path) {
        std::fs::write(file, &self.certificate).expect("a file");
    }

    /// Writes NAME.pem and NAME.key for a server at these addresses, or for a client.
    pub(crate) fn issue(&self, directory: &Path, name: &str, addresses: &[String]) {
        let mut parameters = CertificateParams::new(addresses.to_vec()).expect("addresses");
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(directory.join(format!("{name}.pem")), certificate.pem()).expect("a file");
        std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).expect("a file");
    }
}
