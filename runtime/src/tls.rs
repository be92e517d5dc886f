//! TLS for servers: client certificates required, files read again when they change, and the identity of the client.

mod subject;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// PEM files for a server's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// File with the server's certificate, followed by intermediate certificates.
    pub certificate: PathBuf,
    /// File with the server's private key.
    pub key: PathBuf,
    /// File with the authorities whose client certificates are accepted; at least one is required.
    pub client_ca: PathBuf,
}

/// Reason why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read, or does not contain the expected PEM data.
    #[error("{file_kind} file {}: {message}", path.display())]
    File {
        /// Expected content of the file.
        file_kind: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        message: String,
    },
    /// The certificate and the key do not match, or their type is not supported.
    #[error("certificate {} with key {}", certificate.display(), key.display())]
    Certificate {
        /// Path of the certificate.
        certificate: PathBuf,
        /// Path of the private key.
        key: PathBuf,
        /// Error of the TLS library.
        source: rustls::Error,
    },
    /// The authorities cannot be used to verify clients.
    #[error("cannot use client CA certificates of {}: {message}", path.display())]
    ClientAuthority {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        message: String,
    },
}

/// Identity of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientIdentity {
    /// A client on the loopback interface without TLS: any process on this machine.
    Loopback,
    /// A client with a certificate of an accepted authority.
    Certificate {
        /// Common name of the subject: the user.
        name: String,
        /// Organizations of the subject: the groups.
        groups: Vec<String>,
    },
}

impl ClientIdentity {
    /// Returns the identity in a verified certificate.
    ///
    /// # Errors
    /// Fails if the subject does not have exactly one common name, or has a name that is not valid text. The client is
    /// then refused.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Result<ClientIdentity, String> {
        let certificate = webpki::EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
        let subject = subject::read(certificate.subject())?;
        match subject.common_names.as_slice() {
            [name] if !name.is_empty() => {
                Ok(ClientIdentity::Certificate { name: name.clone(), groups: subject.organizations })
            }
            names => Err(format!("the subject has {} common names instead of one", names.len())),
        }
    }
}

/// TLS settings of a server, which follow changes of their files.
///
/// Guarantees: every connection uses files that matched each other when they were read. If changed files do not match,
/// for example because one is incomplete, the previous ones stay active. The problem is logged once for each change.
#[derive(Debug)]
pub struct ReloadingTls {
    files: TlsFiles,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    stamps: [Stamp; 3],
    config: Arc<ServerConfig>,
}

/// Properties that identify a version of a file: inode number, length and modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(Option<(u64, u64, Option<SystemTime>)>);

impl ReloadingTls {
    /// Reads the files for the first time.
    pub fn new(files: TlsFiles) -> Result<ReloadingTls, TlsError> {
        let stamps = stamps(&files);
        let config = load(&files)?;
        Ok(ReloadingTls { files, current: Mutex::new(Current { stamps, config }) })
    }

    /// Returns the settings for the next connection, after reading the files again if they have changed.
    pub fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        if stamps != current.stamps {
            match load(&self.files) {
                Ok(config) => {
                    tracing::info!(certificate = %self.files.certificate.display(), "reloaded TLS files");
                    current.config = config;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot use the changed TLS files, keeping the previous ones");
                }
            }
            current.stamps = stamps;
        }
        Arc::clone(&current.config)
    }
}

fn stamps(files: &TlsFiles) -> [Stamp; 3] {
    use std::os::unix::fs::MetadataExt;
    [&files.certificate, &files.key, &files.client_ca].map(|path| {
        Stamp(std::fs::metadata(path).ok().map(|found| (found.ino(), found.len(), found.modified().ok())))
    })
}

fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut authorities = RootCertStore::empty();
    for authority in certificates("client CA certificate", &files.client_ca)? {
        authorities.add(authority).map_err(|error| TlsError::ClientAuthority {
            path: files.client_ca.clone(),
            message: error.to_string(),
        })?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider))
        .build()
        .map_err(|error| TlsError::ClientAuthority {
            path: files.client_ca.clone(),
            message: error.to_string(),
        })?;
    let wrong = |source| TlsError::Certificate {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        source,
    };
    let chain = certificates("certificate", &files.certificate)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, private_key(&files.key)?)
        .map_err(wrong)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session would still be accepted after its authority was removed from the file.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Reads the certificates of a PEM file, which must have at least one.
pub fn certificates(file_kind: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |message: String| TlsError::File { file_kind, path: path.to_owned(), message };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(error.to_string()))?;
    if certificates.is_empty() {
        Err(wrong("no certificate in PEM format".to_owned()))
    } else {
        Ok(certificates)
    }
}

/// Reads the private key of a PEM file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::File {
        file_kind: "private key",
        path: path.to_owned(),
        message: error.to_string(),
    })
}
