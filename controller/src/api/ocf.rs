//! Check of OCF parameters on apply, against the metadata of the resource agent on this machine.

use super::error::ApiError;
use super::read::{Stored, spec_of};
use ha_api_types::driver::OcfDriver;
use ha_api_types::kind::Kind;
use ha_api_types::ocf::{self, AgentMetadata, AgentName, METADATA_LIMIT_SECONDS};
use ha_api_types::resource::ResourceSpec;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// The resource agents of this machine.
#[derive(Debug)]
pub(super) struct Agents {
    root: PathBuf,
    /// Metadata by the path of the agent's program, valid while the program's modification time is the same.
    cache: Mutex<BTreeMap<PathBuf, (SystemTime, Arc<AgentMetadata>)>>,
}

/// Maximum size of a metadata document, in bytes; a longer one is refused.
const DOCUMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;

impl Agents {
    pub(super) fn new(root: PathBuf) -> Agents {
        Agents { root, cache: Mutex::default() }
    }

    /// Checks the parameters of a resource. Returns a warning if the agent cannot be checked on this machine. Stored
    /// parameters are not checked again.
    pub(super) async fn check(
        &self,
        name: &str,
        current: Option<&Stored>,
        proposed: &Value,
    ) -> Result<Option<String>, ApiError> {
        let ocf = |object: &Value| -> Option<OcfDriver> { spec_of::<ResourceSpec>(object).driver.ocf };
        let Some(ocf_spec) = ocf(proposed) else { return Ok(None) };
        let is_known = current.is_some_and(|current| ocf(&current.spec.value).as_ref() == Some(&ocf_spec));
        let Ok(agent) = ocf_spec.agent.parse::<AgentName>() else { return Ok(None) };
        if is_known {
            return Ok(None);
        }
        match self.metadata(&agent).await {
            Ok(metadata) => {
                let problems = ocf::check(&agent, &metadata, &ocf_spec.parameters);
                if problems.is_empty() {
                    Ok(None)
                } else {
                    Err(ApiError::invalid(Kind::Resource, name, &problems))
                }
            }
            Err(cause) => Ok(Some(format!(
                "spec.driver.ocf.parameters: not checked because {cause}; \
                 {agent} checks the parameters when the service starts"
            ))),
        }
    }

    async fn metadata(&self, agent: &AgentName) -> Result<Arc<AgentMetadata>, String> {
        let program = agent.program(&self.root);
        let modified = std::fs::metadata(&program).and_then(|file| file.modified());
        let modified = modified
            .map_err(|_| format!("{agent} is not installed on the controller that handled the request"))?;
        let cached = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(&program).cloned();
        if let Some((_, metadata)) = cached.filter(|(read_at, _)| *read_at == modified) {
            return Ok(metadata);
        }
        let limit = Duration::from_secs(METADATA_LIMIT_SECONDS);
        let document = tokio::time::timeout(limit, document(agent, &self.root))
            .await
            .map_err(|_| format!("meta-data request timed out after {METADATA_LIMIT_SECONDS} s"))?
            .map_err(|error| format!("meta-data request failed: {error}"))?;
        let metadata = Arc::new(AgentMetadata::parse(&document).map_err(|error| error.to_string())?);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.insert(program, (modified, Arc::clone(&metadata)));
        Ok(metadata)
    }
}

/// Runs an agent and returns its metadata document. Dropping the future kills the agent.
async fn document(agent: &AgentName, root: &Path) -> io::Result<String> {
    let mut child = Command::new(agent.program(root))
        .arg("meta-data")
        .env_clear()
        .envs(agent.environment(root))
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut text = String::new();
    if let Some(output) = child.stdout.take() {
        output.take(DOCUMENT_BYTES_MAX).read_to_string(&mut text).await?;
    }
    let status = child.wait().await?;
    if status.success() {
        Ok(text)
    } else {
        Err(io::Error::other(format!("resource agent exited with {status}")))
    }
}
