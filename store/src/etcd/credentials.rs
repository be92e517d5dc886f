//! Certificates and password, read from files again when they change.

use super::config::Config;
use crate::store::StoreError;
use etcd_client::{Certificate, Identity, TlsOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Minimum time between checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The current certificates. `generation` increases with every change.
#[derive(Clone)]
pub(super) struct LoadedCredentials {
    pub(super) generation: u64,
    pub(super) tls: Option<Arc<Pem>>,
}

/// Contents of the certificate files.
pub(super) struct Pem {
    pub(super) ca: Vec<u8>,
    /// Certificate chain and private key.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Pem {
    /// Returns the options for the gRPC channels.
    pub(super) fn to_options(&self) -> TlsOptions {
        let options = TlsOptions::new().ca_certificate(Certificate::from_pem(&self.ca));
        match &self.identity {
            Some((cert, key)) => options.identity(Identity::from_pem(cert, key)),
            None => options,
        }
    }
}

/// Paths of the files, and their last contents.
pub(super) struct Credentials {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    user: Option<(String, PathBuf)>,
    state: Mutex<State>,
}

struct State {
    loaded: LoadedCredentials,
    stamps: Vec<Option<(SystemTime, u64)>>,
    /// Stamps of the last files that were rejected.
    rejected_stamps: Option<Vec<Option<(SystemTime, u64)>>>,
    checked_at: Instant,
}

impl Credentials {
    /// Reads the files once; they must be readable now.
    pub(super) fn new(config: &Config) -> Result<Credentials, StoreError> {
        let ca = config.ca.clone();
        let identity = config.cert.clone().zip(config.key.clone());
        let user = config.user.clone().zip(config.password_file.clone());
        let stamps = stamps(ca.as_deref(), identity.as_ref());
        let tls = read_tls(ca.as_deref(), identity.as_ref())?;
        let loaded = LoadedCredentials { generation: 1, tls };
        let state = Mutex::new(State { loaded, stamps, rejected_stamps: None, checked_at: Instant::now() });
        let credentials = Credentials { ca, identity, user, state };
        credentials.user_and_password()?;
        Ok(credentials)
    }

    /// Returns the current certificates. If files currently cannot be read, for example because they are being
    /// replaced, the previous certificates are returned.
    pub(super) fn current(&self) -> LoadedCredentials {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.loaded.tls.is_some() && state.checked_at.elapsed() >= CHECK_INTERVAL {
            state.checked_at = Instant::now();
            let stamps = stamps(self.ca.as_deref(), self.identity.as_ref());
            if stamps != state.stamps {
                match read_tls(self.ca.as_deref(), self.identity.as_ref()) {
                    Ok(tls) => {
                        let generation = state.loaded.generation + 1;
                        tracing::info!(generation, "reconnecting to etcd with changed certificate files");
                        state.loaded = LoadedCredentials { generation, tls };
                        state.stamps = stamps;
                    }
                    Err(error) if state.rejected_stamps.as_ref() != Some(&stamps) => {
                        tracing::warn!(%error, "cannot read changed certificate files, keeping the previous files");
                        state.rejected_stamps = Some(stamps);
                    }
                    Err(_) => {}
                }
            }
        }
        state.loaded.clone()
    }

    /// Returns the user and the password that is currently in the file.
    pub(super) fn user_and_password(&self) -> Result<Option<(String, String)>, StoreError> {
        let Some((user, file)) = &self.user else {
            return Ok(None);
        };
        let text = String::from_utf8(read(file)?)
            .map_err(|_| StoreError::Configuration(format!("{}: not UTF-8 text", file.display())))?;
        let password = text.trim_end_matches(['\r', '\n']).to_owned();
        Ok(Some((user.clone(), password)))
    }
}

fn read_tls(
    ca: Option<&Path>,
    identity: Option<&(PathBuf, PathBuf)>,
) -> Result<Option<Arc<Pem>>, StoreError> {
    let Some(ca) = ca else {
        return Ok(None);
    };
    let identity = match identity {
        Some((cert, key)) => Some((read_pem(cert, "CERTIFICATE")?, read_pem(key, "PRIVATE KEY")?)),
        None => None,
    };
    Ok(Some(Arc::new(Pem { ca: read_pem(ca, "CERTIFICATE")?, identity })))
}

fn read_pem(file: &Path, description: &str) -> Result<Vec<u8>, StoreError> {
    let text = read(file)?;
    let marker = format!("{description}-----");
    let has_marker = text.windows(marker.len()).any(|part| part == marker.as_bytes());
    if has_marker {
        Ok(text)
    } else {
        Err(StoreError::Configuration(format!("{} has no {description} in PEM format", file.display())))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, StoreError> {
    std::fs::read(file)
        .map_err(|error| StoreError::Configuration(format!("cannot read {}: {error}", file.display())))
}

fn stamps(ca: Option<&Path>, identity: Option<&(PathBuf, PathBuf)>) -> Vec<Option<(SystemTime, u64)>> {
    let stamp = |file: &Path| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    ca.into_iter()
        .chain(identity.into_iter().flat_map(|(cert, key)| [cert.as_path(), key.as_path()]))
        .map(stamp)
        .collect()
}
