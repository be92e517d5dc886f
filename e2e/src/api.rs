//! Client of the HTTP API for tests. It sends and receives JSON and uses the administrator's certificate.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::{Certificate, Client, Identity, Method, StatusCode};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

/// A client of one controller.
pub struct Api {
    base_url: String,
    client: Client,
    runtime: Runtime,
}

impl Api {
    /// Returns a client of the controller at `base`. It reads its certificates from the directory `certificates`.
    ///
    /// # Errors
    /// Fails if a certificate cannot be read.
    pub fn new(base_url: &str, certificates: &Path) -> Result<Self> {
        // A later call fails because the provider is already installed. That is harmless.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let read = |name: &str| {
            let path = certificates.join(name);
            fs::read(&path).with_context(|| path.display().to_string())
        };
        let identity = [read("admin.pem")?, read("admin.key")?].concat();
        let client = Client::builder()
            .tls_certs_only([Certificate::from_pem(&read("ca.pem")?)?])
            .identity(Identity::from_pem(&identity)?)
            .timeout(Duration::from_secs(10))
            .no_proxy()
            .build()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { base_url: base_url.trim_end_matches('/').to_owned(), client, runtime })
    }

    /// Sends one request and returns status and body, even if the status is an error. A body that is not JSON is
    /// returned as a string.
    ///
    /// # Errors
    /// Fails if the server does not respond.
    pub fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        let url = format!("{}{path}", self.base_url);
        self.runtime.block_on(async {
            // `json` keeps a content type that is already set, so the header comes first.
            let merging = method == Method::PATCH;
            let mut request = self.client.request(method, &url);
            if merging {
                request = request.header("content-type", "application/merge-patch+json");
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            let response = request.send().await.with_context(|| url.clone())?;
            let status = response.status();
            let text = response.text().await.with_context(|| url.clone())?;
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            Ok((status, value))
        })
    }

    /// Returns the object or list at `path`.
    ///
    /// # Errors
    /// Fails if the server does not respond or returns an error.
    pub fn get(&self, path: &str) -> Result<Value> {
        match self.request(Method::GET, path, None)? {
            (status, value) if status.is_success() => Ok(value),
            (status, value) => bail!("GET {path}: {status}: {value}"),
        }
    }

    /// Patches the spec of an object, or creates the object if it does not exist.
    ///
    /// # Errors
    /// Fails if the server does not respond or returns an error.
    pub fn apply(&self, plural: &str, object: &Value) -> Result<Value> {
        let collection_path = format!("/apis/hactl.io/v1/{plural}");
        let object_path =
            format!("{collection_path}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        match self.request(Method::PATCH, &object_path, Some(&serde_json::json!({"spec": object["spec"]})))? {
            (status, value) if status.is_success() => return Ok(value),
            (StatusCode::NOT_FOUND, _) => {}
            (status, value) => bail!("PATCH {object_path}: {status}: {value}"),
        }
        match self.request(Method::POST, &collection_path, Some(object))? {
            (status, value) if status.is_success() => Ok(value),
            (status, value) => bail!("POST {collection_path}: {status}: {value}"),
        }
    }

    /// Applies a merge patch to an object.
    ///
    /// # Errors
    /// Fails if the server does not respond or returns an error.
    pub fn patch(&self, plural: &str, name: &str, patch: &Value) -> Result<Value> {
        let path = format!("/apis/hactl.io/v1/{plural}/{name}");
        match self.request(Method::PATCH, &path, Some(patch))? {
            (status, value) if status.is_success() => Ok(value),
            (status, value) => bail!("PATCH {path}: {status}: {value}"),
        }
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// Fails if the server does not respond or returns an error.
    pub fn delete(&self, plural: &str, name: &str) -> Result<Value> {
        let path = format!("/apis/hactl.io/v1/{plural}/{name}");
        match self.request(Method::DELETE, &path, None)? {
            (status, value) if status.is_success() => Ok(value),
            (status, value) => bail!("DELETE {path}: {status}: {value}"),
        }
    }

    /// Returns an object of the group hactl.io; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the server does not respond or returns an error other than "not found".
    pub fn object(&self, plural: &str, name: &str) -> Result<Option<Value>> {
        let path = format!("/apis/hactl.io/v1/{plural}/{name}");
        match self.request(Method::GET, &path, None)? {
            (status, value) if status.is_success() => Ok(Some(value)),
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, value) => bail!("GET {path}: {status}: {value}"),
        }
    }

    /// Returns `true` if the controller reports that it is ready to serve requests.
    pub fn is_ready(&self) -> bool {
        self.request(Method::GET, "/readyz", None).is_ok_and(|(status, _)| status.is_success())
    }
}
