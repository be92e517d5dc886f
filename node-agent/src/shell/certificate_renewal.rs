//! Renewal of the agent's own certificate by a controller, after two thirds of its lifetime.
//!
//! The key stays the same, so that only one file is replaced: a crash never leaves a key without its certificate.

use super::hold_requests::{Clients, response_body};
use anyhow::{Context, bail, ensure};
use ha_api_types::id::NodeName;
use ha_api_types::join::{RenewalAnswer, RenewalRequest};
use ha_api_types::keys::Keys;
use ha_api_types::record::Candidate;
use ha_api_types::role::Role;
use ha_pki::{CertificateFacts, CertificateKind, request_for_node};
use ha_runtime::clock::wall_unix_ms;
use ha_store::Store;
use ha_store::etcd::Config;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval at which the certificate is read. An operator can replace it at any time.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Delay after the first failed renewal. It doubles up to the maximum.
const MIN_BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(3600);
/// Time limit of the request to one controller.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The certificate of the agent, and the controllers that renew it.
struct Renewal<S> {
    node: NodeName,
    keys: Keys,
    store: S,
    clients: Clients,
    certificate: PathBuf,
    key: PathBuf,
}

/// Starts renewals, for as long as the process runs. An agent without a certificate needs none.
pub(super) fn spawn<S: Store>(store: S, keys: Keys, node: NodeName, files: Config) {
    let (Some(certificate), Some(key)) = (files.cert.clone(), files.key.clone()) else { return };
    let renewal = Renewal { node, keys, store, clients: Clients::new(files), certificate, key };
    tokio::spawn(async move { renewal.run().await });
}

impl<S: Store> Renewal<S> {
    async fn run(&self) {
        let mut backoff = MIN_BACKOFF;
        let mut problem: Option<String> = None;
        loop {
            let delay = match self.renew_if_due().await {
                Ok(renewed) => {
                    if let Some(facts) = renewed {
                        tracing::info!(serial = %facts.serial, not_after = facts.not_after, "renewed the certificate of this node");
                    }
                    problem = None;
                    backoff = MIN_BACKOFF;
                    CHECK_INTERVAL
                }
                Err(error) => {
                    let text = format!("{error:#}");
                    if problem.as_ref() != Some(&text) {
                        tracing::warn!(error = text, "cannot renew the certificate of this node, retrying");
                        problem = Some(text);
                    }
                    let delay = backoff;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                    delay
                }
            };
            tokio::time::sleep(delay).await;
        }
    }

    /// Returns the new certificate if the present one was due.
    async fn renew_if_due(&self) -> anyhow::Result<Option<CertificateFacts>> {
        let present_facts = CertificateFacts::of_pem(&read(&self.certificate).await?)
            .with_context(|| self.certificate.display().to_string())?;
        let now = i64::try_from(wall_unix_ms() / 1000).unwrap_or(i64::MAX);
        // Controllers renew only certificates of nodes. In a cluster without roles, the agent may have another
        // certificate.
        let is_of_node =
            present_facts.name == *self.node && present_facts.groups.contains(&Role::Node.group());
        if !is_of_node || !present_facts.is_renewal_due(now) {
            return Ok(None);
        }
        let request = request_for_node(&self.node, &read(&self.key).await?)
            .with_context(|| self.key.display().to_string())?;
        let candidates =
            self.store.list(&self.keys.candidates()).await.context("cannot find a controller")?;
        let mut problems = Vec::new();
        for entry in &candidates.entries {
            let Ok(candidate) = serde_json::from_slice::<Candidate>(&entry.value) else { continue };
            match self.request(&candidate, &request).await {
                Ok(certificate) => return self.install(&present_facts, &certificate).map(Some),
                Err(message) => problems.push(format!("{}: {message}", candidate.id)),
            }
        }
        if problems.is_empty() {
            bail!("no controller is registered");
        }
        bail!("{}", problems.join("; "))
    }

    async fn request(&self, candidate: &Candidate, request: &str) -> Result<String, String> {
        if !candidate.url.starts_with("https:") {
            return Err("controller has no TLS".to_owned());
        }
        let url = format!(
            "{}/apis/hactl.io/v1/nodes/{}/certificate",
            candidate.url.trim_end_matches('/'),
            self.node
        );
        let body = serde_json::to_vec(&RenewalRequest { request: request.to_owned() }).unwrap_or_default();
        let exchange = async {
            let client = self.clients.client().await?;
            response_body(client.post(url).header("content-type", "application/json").body(body)).await
        };
        let body = tokio::time::timeout(REQUEST_TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err("no response in time".to_owned()))?;
        serde_json::from_slice::<RenewalAnswer>(&body)
            .map(|answer| answer.certificate)
            .map_err(|error| format!("cannot parse the response: {error}"))
    }

    /// Replaces the certificate, if the new one is for the same node and key, and valid for longer.
    fn install(&self, present_facts: &CertificateFacts, pem: &str) -> anyhow::Result<CertificateFacts> {
        let facts = check_renewed(present_facts, pem)?;
        replace(&self.certificate, pem)
            .with_context(|| format!("cannot write {}", self.certificate.display()))?;
        Ok(facts)
    }
}

fn check_renewed(present_facts: &CertificateFacts, pem: &str) -> anyhow::Result<CertificateFacts> {
    let facts = CertificateFacts::of_pem(pem).context("certificate from the controller")?;
    ensure!(
        facts.name == present_facts.name && facts.groups == present_facts.groups,
        "the controller sent a certificate of {:?}",
        facts.name
    );
    ensure!(
        facts.public_key == present_facts.public_key,
        "the controller sent a certificate for another key"
    );
    ensure!(
        facts.not_after > present_facts.not_after,
        "the controller sent a certificate that expires earlier"
    );
    ensure!(
        facts.kind.is_none_or(|kind| kind == CertificateKind::Node),
        "the controller sent a certificate that is not of a node"
    );
    Ok(facts)
}

async fn read(path: &Path) -> anyhow::Result<String> {
    tokio::fs::read_to_string(path).await.with_context(|| path.display().to_string())
}

/// Replaces a file as a whole. The new file has the owner and the permissions of the previous one.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let previous = std::fs::metadata(path)?;
    let temporary = path.with_extension("pem.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(previous.mode() & 0o7777)
        .open(&temporary)?;
    fchown(&file, Some(previous.uid()), Some(previous.gid()))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_pki::{Authority, AuthorityKind, CertificateRequest, Profile, Validity, new_key};

    const NOW: i64 = 1_790_000_000;

    fn validity(days: u64) -> Validity {
        Validity { now_unix_seconds: NOW, lifetime: Duration::from_secs(days * 86_400) }
    }

    #[test]
    fn only_a_longer_certificate_of_the_same_node_and_key_is_installed() {
        let issued = Authority::create(AuthorityKind::Clients, validity(3650)).unwrap();
        let authority = Authority::load(&issued.certificate_pem, &issued.key_pem).unwrap();
        let (key, other_key) = (new_key().unwrap(), new_key().unwrap());
        let certificate = |name: &str, key: &str, days: u64| {
            let profile = Profile::node(name).unwrap();
            let request = CertificateRequest::check(&request_for_node(name, key).unwrap(), &profile).unwrap();
            authority.sign(&profile, validity(days), &request).unwrap()
        };
        let present_facts = CertificateFacts::of_pem(&certificate("c1", &key, 20)).unwrap();
        assert!(check_renewed(&present_facts, &certificate("c1", &key, 30)).is_ok());
        for (wrong, part) in [
            (certificate("c2", &key, 30), "a certificate of \"c2\""),
            (certificate("c1", &other_key, 30), "for another key"),
            (certificate("c1", &key, 10), "expires earlier"),
            ("nonsense".to_owned(), "not a valid certificate"),
        ] {
            let error = format!("{:#}", check_renewed(&present_facts, &wrong).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c1.pem");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        replace(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
