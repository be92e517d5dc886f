//! TLS for servers: client certificates, files read again when they change, revocation, and the identity of the client.

mod subject;

use crate::changed_file::FileStamp;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Interval at which the certificate of an open connection is checked for expiry.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// PEM files for a server's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// File with the server's certificate, followed by intermediate certificates.
    pub certificate: PathBuf,
    /// File with the server's private key.
    pub key: PathBuf,
    /// File with the authorities whose client certificates are accepted; at least one is required.
    pub client_ca: PathBuf,
    /// File with certificate revocation lists of these authorities. The certificates of an authority without a list are
    /// not revoked. A list stays in effect after its `nextUpdate` time.
    pub client_crl: Option<PathBuf>,
    /// Treatment of clients without a certificate.
    pub without_certificate: WithoutCertificate,
}

impl TlsFiles {
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.certificate, &self.key, &self.client_ca].into_iter().chain(&self.client_crl)
    }
}

/// Treatment of clients without a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutCertificate {
    /// The handshake fails.
    #[default]
    Refuse,
    /// The client is [`ClientIdentity::Anonymous`], and has to identify itself in each request.
    Accept,
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

/// Identity of a client, as its connection shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientIdentity {
    /// A client on the loopback interface without TLS: any process on this machine.
    Loopback,
    /// A process of this machine, connected to a Unix socket.
    LocalUser {
        /// User id of the process, as the kernel reports it.
        uid: u32,
    },
    /// A client with TLS but without a certificate.
    Anonymous,
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
/// for example because one is incomplete, the previous files stay active. The problem is logged once for each change.
#[derive(Debug)]
pub struct ReloadingTls {
    files: TlsFiles,
    stamps: Mutex<Vec<FileStamp>>,
    settings: watch::Sender<TlsSettings>,
}

/// Settings of TLS from one state of the files.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl TlsSettings {
    /// Returns the configuration for the TLS library.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    fn verify(&self, certificates: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let Some((client, intermediates)) = certificates.split_first() else { return Ok(()) };
        self.verifier.verify_client_cert(client, intermediates, UnixTime::now()).map(|_| ())
    }
}

impl ReloadingTls {
    /// Reads the files for the first time.
    pub fn new(files: TlsFiles) -> Result<ReloadingTls, TlsError> {
        let stamps = files.paths().map(|path| FileStamp::of(path)).collect();
        let settings = load(&files)?;
        Ok(ReloadingTls { files, stamps: Mutex::new(stamps), settings: watch::Sender::new(settings) })
    }

    /// Returns the settings for the next connection, after reading the files again if they have changed.
    pub fn settings(&self) -> TlsSettings {
        let mut known_stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps: Vec<FileStamp> = self.files.paths().map(|path| FileStamp::of(path)).collect();
        if stamps != *known_stamps {
            match load(&self.files) {
                Ok(settings) => {
                    tracing::info!(certificate = %self.files.certificate.display(), "reloaded TLS files");
                    self.settings.send_replace(settings);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot use the changed TLS files, keeping the previous files");
                }
            }
            *known_stamps = stamps;
        }
        self.settings.borrow().clone()
    }

    /// Waits until the certificates of a connected client are no longer valid, and returns the reason.
    ///
    /// Assumptions: the server calls [`ReloadingTls::settings`] regularly, which finds changed files.
    pub async fn invalidated(&self, certificates: &[CertificateDer<'_>]) -> rustls::Error {
        if certificates.is_empty() {
            return pending().await;
        }
        let mut changes = self.settings.subscribe();
        loop {
            let settings = changes.borrow_and_update().clone();
            if let Err(error) = settings.verify(certificates) {
                return error;
            }
            // Both outcomes lead to the next check. The sender exists as long as this object.
            let _ = timeout(EXPIRY_CHECK_INTERVAL, changes.changed()).await;
        }
    }
}

fn load(files: &TlsFiles) -> Result<TlsSettings, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let wrong_authority =
        |message: String| TlsError::ClientAuthority { path: files.client_ca.clone(), message };
    let mut authorities = RootCertStore::empty();
    for authority in certificates("client CA certificate", &files.client_ca)? {
        authorities.add(authority).map_err(|error| wrong_authority(error.to_string()))?;
    }
    let mut verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider));
    if let Some(path) = &files.client_crl {
        verifier = verifier
            .with_crls(revocation_lists(path)?)
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status();
    }
    verifier = match files.without_certificate {
        WithoutCertificate::Refuse => verifier,
        WithoutCertificate::Accept => verifier.allow_unauthenticated(),
    };
    let verifier = verifier.build().map_err(|error| wrong_authority(error.to_string()))?;
    let invalid_file = |source| TlsError::Certificate {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        source,
    };
    let chain = certificates("certificate", &files.certificate)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(invalid_file)?
        .with_client_cert_verifier(Arc::clone(&verifier))
        .with_single_cert(chain, private_key(&files.key)?)
        .map_err(invalid_file)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session would still be accepted after its authority was removed from the file.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(TlsSettings { config: Arc::new(config), verifier })
}

/// Reads the certificate revocation lists of a PEM file, which must have at least one.
fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let invalid_file =
        |message: String| TlsError::File { file_kind: "revocation list", path: path.to_owned(), message };
    let lists: Vec<_> = CertificateRevocationListDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| invalid_file(error.to_string()))?;
    if lists.is_empty() {
        Err(invalid_file("no revocation list in PEM format".to_owned()))
    } else {
        Ok(lists)
    }
}

/// Reads the certificates of a PEM file, which must have at least one.
pub fn certificates(file_kind: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let invalid_file = |message: String| TlsError::File { file_kind, path: path.to_owned(), message };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| invalid_file(error.to_string()))?;
    if certificates.is_empty() {
        Err(invalid_file("no certificate in PEM format".to_owned()))
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
