//! A request to podman's service over its unix socket.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;

/// Time limit of requests that podman answers immediately.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum length of an answer in bytes; podman's answers are shorter.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Oldest API version, supported by every podman since 4.0.
const API: &str = "/v4.0.0/libpod";

/// Reason for a missing or unusable answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("podman socket {} does not respond: {error}", socket.display())]
    Unreachable { socket: PathBuf, error: String },
    #[error("podman did not respond within {} s", .0.as_secs())]
    Slow(Duration),
    #[error("{message}")]
    Refused { status: StatusCode, cause: String, message: String },
    #[error("cannot read the response of podman: {0}")]
    Unreadable(String),
}

/// Body of podman's error answers.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct ErrorBody {
    cause: String,
    message: String,
}

/// A request under construction.
pub(super) struct Call<'a> {
    socket: &'a Path,
    method: Method,
    path: String,
    body: Option<String>,
    limit: Duration,
}

/// An answer whose body has not been read yet. Dropping this value closes the connection.
pub(super) struct Answer {
    pub(super) response: Response<Incoming>,
    _connection: Connection,
}

#[derive(Debug)]
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<'a> Call<'a> {
    /// Returns a request for a path below `/libpod`, including the query.
    pub(super) fn new(socket: &'a Path, method: Method, path: impl AsRef<str>) -> Call<'a> {
        let path = format!("{API}{}", path.as_ref());
        Call { socket, method, path, body: None, limit: REQUEST_TIMEOUT }
    }

    pub(super) fn body(mut self, body: &serde_json::Value) -> Call<'a> {
        self.body = Some(body.to_string());
        self
    }

    /// Extends the time limit by `longer`, the time for which podman has to wait.
    pub(super) fn extend_timeout(mut self, longer: Duration) -> Call<'a> {
        self.limit = REQUEST_TIMEOUT.saturating_add(longer);
        self
    }

    /// Sends the request. Fails if podman answers with an error status.
    pub(super) async fn answer(self) -> Result<Answer, ApiError> {
        let limit = self.limit;
        let answer = tokio::time::timeout(limit, self.send()).await.map_err(|_| ApiError::Slow(limit))??;
        let status = answer.response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(answer);
        }
        let text = answer.bytes().await?;
        let error_body: ErrorBody = serde_json::from_slice(&text).unwrap_or_default();
        let message = if error_body.message.is_empty() {
            String::from_utf8_lossy(&text).trim().to_owned()
        } else {
            error_body.message
        };
        Err(ApiError::Refused { status, cause: error_body.cause, message })
    }

    /// Sends the request, and reads the whole answer.
    pub(super) async fn bytes(self) -> Result<Bytes, ApiError> {
        let limit = self.limit;
        let read = async { self.answer().await?.bytes().await };
        tokio::time::timeout(limit, read).await.map_err(|_| ApiError::Slow(limit))?
    }

    async fn send(self) -> Result<Answer, ApiError> {
        let socket = self.socket;
        let unreachable = |error: String| ApiError::Unreachable { socket: socket.to_owned(), error };
        let stream = UnixStream::connect(socket).await.map_err(|error| unreachable(error.to_string()))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unreachable(error.to_string()))?;
        // Errors of the connection are also returned to the sender.
        let connection = Connection(
            tokio::spawn(async move {
                let _ = connection.await;
            })
            .abort_handle(),
        );
        let mut request = Request::builder().method(self.method).uri(self.path).header(HOST, "podman");
        if self.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::<Bytes>::from(self.body.unwrap_or_default()))
            .map_err(|error| ApiError::Unreadable(error.to_string()))?;
        let response =
            sender.send_request(request).await.map_err(|error| unreachable(error_chain(&error)))?;
        Ok(Answer { response, _connection: connection })
    }
}

impl Answer {
    /// Reads the whole body.
    pub(super) async fn bytes(self) -> Result<Bytes, ApiError> {
        let Answer { response, _connection } = self;
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        Ok(body.map_err(|error| ApiError::Unreadable(error.to_string()))?.to_bytes())
    }
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Percent-encodes a part of a path or query. Slashes are kept, because podman itself splits the names of images.
pub(super) fn escaped(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_text_in_urls_is_escaped() {
        for (text, expected) in [
            ("docker.io/library/redis:7", "docker.io/library/redis:7"),
            ("web?force=true&x", "web%3Fforce%3Dtrue%26x"),
            ("a b\r\nHost: x", "a%20b%0D%0AHost:%20x"),
            ("r@sha256:0ä", "r%40sha256:0%C3%A4"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }
}
