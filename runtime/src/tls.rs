//! TLS for servers: client certificates required, files read again when they change, and who the client is.

mod subject;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// The files of a server's TLS, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, followed by intermediate ones.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities whose client certificates are accepted. Without one nobody is.
    pub client_ca: PathBuf,
}

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read, or holds no such thing in PEM.
    #[error("{what} file {}: {message}", path.display())]
    File {
        /// What it should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The certificate and the key do not belong together, or are of a kind that is not supported.
    #[error("certificate {} with key {}", certificate.display(), key.display())]
    Certificate {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// What is wrong.
        source: rustls::Error,
    },
    /// The authorities cannot verify anybody.
    #[error("client authorities of {}: {message}", path.display())]
    ClientAuthority {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
}

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientIdentity {
    /// It came over the loopback interface without TLS: anybody on this machine.
    Loopback,
    /// It proved a certificate of an accepted authority.
    Certificate {
        /// The subject's common name: the user.
        name: String,
        /// The subject's organizations: the groups.
        groups: Vec<String>,
    },
}

impl ClientIdentity {
    /// The identity that a verified certificate states.
    ///
    /// # Errors
    /// When the subject has not exactly one common name, or a name that is no text: such a client is refused.
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

/// A server's TLS settings, which follow their files.
///
/// Guarantees: a connection is always served with files that fitted together when they were read; while changed files
/// do not (half written, say), the previous ones stay in force and the log says so once per change.
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

/// What tells a changed file: its identity, length and time of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(Option<(u64, u64, Option<SystemTime>)>);

impl ReloadingTls {
    /// Reads the files.
    pub fn new(files: TlsFiles) -> Result<ReloadingTls, TlsError> {
        let stamps = stamps(&files);
        let config = load(&files)?;
        Ok(ReloadingTls { files, current: Mutex::new(Current { stamps, config }) })
    }

    /// The settings for the next connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        if stamps != current.stamps {
            match load(&self.files) {
                Ok(config) => {
                    tracing::info!(certificate = %self.files.certificate.display(), "TLS files were read again");
                    current.config = config;
                }
                Err(error) => {
                    tracing::warn!(%error, "changed TLS files are not used; the previous ones stay in force");
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
    for authority in certificates("client authority", &files.client_ca)? {
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
    // A resumed session would outlive an authority that was taken out of the file.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The certificates of a PEM file; at least one.
pub fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |message: String| TlsError::File { what, path: path.to_owned(), message };
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("it holds no certificate in PEM".to_owned())) } else { Ok(found) }
}

/// The private key of a PEM file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::File {
        what: "private key",
        path: path.to_owned(),
        message: error.to_string(),
    })
}
