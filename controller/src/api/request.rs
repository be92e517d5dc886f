//! Parts of a request: query parameters, the requested form of the response, body, and field manager.

use super::error::ApiError;
use axum::body::Body;
use axum::extract::Query;
use axum::http::{HeaderMap, Uri, header};
use bytes::{Bytes, BytesMut};
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::table::IncludeObject;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Maximum size of a request body, in bytes.
pub(crate) const MAX_BODY_LENGTH: usize = 1024 * 1024;
/// Size at which the rest of a body that is too large is no longer read, in bytes.
const MAX_DISCARDED_LENGTH: usize = 64 * 1024 * 1024;
/// Time limit for a whole body.
const MAX_BODY_TIME: Duration = Duration::from_secs(60);
/// Time after which a body must have arrived at the minimum rate.
const SLOW_BODY_GRACE: Duration = Duration::from_secs(5);
/// Minimum rate of a body.
const MIN_BODY_BYTES_PER_SECOND: u64 = 1024;
/// Maximum length of a field manager, as in Kubernetes.
const MAX_MANAGER_LENGTH: usize = 128;

/// Handling of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Refuse the request. This is the default, unlike in Kubernetes.
    #[default]
    Strict,
    /// Drop the fields with a warning.
    Warn,
    /// Drop the fields.
    Ignore,
}

/// Meaning of the parameter `resourceVersion` of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    /// Exactly this version.
    Exact,
    /// The list is at least as new as this version.
    NotOlderThan,
}

/// The supported query parameters; others are ignored, as in Kubernetes.
#[expect(clippy::struct_excessive_bools, reason = "they are independent switches of the protocol")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) watch: bool,
    pub(crate) resource_version: Option<String>,
    pub(crate) resource_version_match: Option<VersionMatch>,
    pub(crate) limit: Option<usize>,
    pub(crate) continue_token: Option<String>,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) dry_run: bool,
    pub(crate) field_manager: Option<String>,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: bool,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: bool,
    pub(crate) include_object: IncludeObject,
}

/// Returns the parameters of a query in their order.
pub(crate) fn query_pairs(uri: &Uri) -> Result<Vec<(String, String)>, ApiError> {
    let pairs = Query::try_from_uri(uri);
    let Query(pairs) = pairs.map_err(|error| ApiError::bad_request(format!("invalid query: {error}")))?;
    Ok(pairs)
}

impl Parameters {
    pub(crate) fn of(uri: &Uri) -> Result<Parameters, ApiError> {
        let mut parameters = Parameters::default();
        for (name, value) in query_pairs(uri)? {
            parameters.set(&name, value)?;
        }
        Ok(parameters)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), ApiError> {
        let invalid_value =
            |expected: &str| ApiError::bad_request(format!("{name}={value}: must be {expected}"));
        match name {
            "watch" => self.watch = parse_flag(&value),
            "resourceVersion" => self.resource_version = (!value.is_empty()).then_some(value),
            "resourceVersionMatch" => {
                self.resource_version_match = match value.as_str() {
                    "" => None,
                    "Exact" => Some(VersionMatch::Exact),
                    "NotOlderThan" => Some(VersionMatch::NotOlderThan),
                    _ => return Err(invalid_value("Exact or NotOlderThan")),
                };
            }
            "limit" => {
                let limit: usize = value.parse().map_err(|_| invalid_value("a number"))?;
                self.limit = (limit > 0).then_some(limit);
            }
            "continue" => self.continue_token = (!value.is_empty()).then_some(value),
            "labelSelector" => self.label_selector = value,
            "fieldSelector" => self.field_selector = value,
            "dryRun" => match value.as_str() {
                "All" => self.dry_run = true,
                "" => {}
                _ => return Err(invalid_value("All")),
            },
            "fieldManager" => {
                let is_valid = value.len() <= MAX_MANAGER_LENGTH && !value.chars().any(char::is_control);
                if !is_valid {
                    return Err(ApiError::bad_request("fieldManager: at most 128 printable characters"));
                }
                self.field_manager = (!value.is_empty()).then_some(value);
            }
            "fieldValidation" => {
                self.field_validation = match value.as_str() {
                    "Strict" | "" => FieldValidation::Strict,
                    "Warn" => FieldValidation::Warn,
                    "Ignore" => FieldValidation::Ignore,
                    _ => return Err(invalid_value("Strict, Warn or Ignore")),
                };
            }
            "force" => self.force = parse_flag(&value),
            "timeoutSeconds" => {
                self.timeout_seconds = Some(value.parse().map_err(|_| invalid_value("a number"))?);
            }
            "allowWatchBookmarks" => self.allow_bookmarks = parse_flag(&value),
            "sendInitialEvents" => self.send_initial_events = parse_flag(&value),
            "includeObject" => {
                self.include_object = match value.as_str() {
                    "None" => IncludeObject::None,
                    "Metadata" | "" => IncludeObject::Metadata,
                    "Object" => IncludeObject::Object,
                    _ => return Err(invalid_value("None, Metadata or Object")),
                };
            }
            _ => {}
        }
        Ok(())
    }
}

fn parse_flag(value: &str) -> bool {
    matches!(value, "1" | "true" | "True" | "t" | "")
}

/// Form of a response, negotiated by the `Accept` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseFormat {
    /// The objects.
    Plain,
    /// A Table with the columns of the kind.
    Table,
    /// Metadata only.
    PartialMetadata,
    /// Aggregated discovery.
    Discovery,
}

/// Returns the first form in `Accept` that is possible; `None` if the client accepts none of them.
pub(crate) fn negotiate_format(headers: &HeaderMap, supported: &[ResponseFormat]) -> Option<ResponseFormat> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    accept.split(',').find_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        if !matches!(media_type, "application/json" | "*/*" | "application/*" | "") {
            return None;
        }
        let mut format = ResponseFormat::Plain;
        let mut version = None;
        for part in parts {
            match part.split_once('=') {
                Some(("as", "Table")) => format = ResponseFormat::Table,
                Some(("as", "PartialObjectMetadata" | "PartialObjectMetadataList")) => {
                    format = ResponseFormat::PartialMetadata;
                }
                Some(("as", "APIGroupDiscoveryList")) => format = ResponseFormat::Discovery,
                Some(("as", _)) => return None,
                Some(("v", text)) => version = Some(text),
                Some(_) | None => {}
            }
        }
        let version_fits = match format {
            ResponseFormat::Plain => true,
            ResponseFormat::Table | ResponseFormat::PartialMetadata => version == Some("v1"),
            ResponseFormat::Discovery => version == Some("v2"),
        };
        (version_fits && supported.contains(&format)).then_some(format)
    })
}

pub(crate) fn not_acceptable() -> ApiError {
    ApiError::new(ErrorReason::NotAcceptable, "only the following media types are accepted: application/json")
}

/// Returns the media type of the body, without parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

/// Reads the whole body, unless it is too large or arrives too slowly. Of a body that is too large, the rest is read
/// and dropped up to a limit, because most clients read the response only after they have sent the body.
pub(crate) async fn read_body(body: Body) -> Result<Bytes, ApiError> {
    let mut reader = BodyReader::new(body);
    let mut content = BytesMut::new();
    while let Some(data) = reader.next().await? {
        if reader.received_bytes <= MAX_BODY_LENGTH {
            content.extend_from_slice(&data);
        }
    }
    if reader.received_bytes > MAX_BODY_LENGTH {
        return Err(ApiError::too_large(MAX_BODY_LENGTH));
    }
    Ok(content.freeze())
}

/// Reader of a body within the limits of size and time.
struct BodyReader {
    body: Body,
    start_time: Instant,
    /// Bytes read so far.
    received_bytes: usize,
}

impl BodyReader {
    fn new(body: Body) -> BodyReader {
        BodyReader { body, start_time: Instant::now(), received_bytes: 0 }
    }

    /// Returns the next bytes, or nothing at the end and beyond [`MAX_DISCARDED_LENGTH`].
    ///
    /// # Errors
    /// The body arrives too slowly, or the connection failed.
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        while self.received_bytes <= MAX_DISCARDED_LENGTH {
            let earned_time = Duration::from_secs(self.received_bytes as u64 / MIN_BODY_BYTES_PER_SECOND);
            let limit = MAX_BODY_TIME.min(SLOW_BODY_GRACE + earned_time);
            let frame = timeout_at(self.start_time + limit, self.body.frame()).await.map_err(|_| {
                ApiError::bad_request(format!(
                    "request body arrived too slowly: {} bytes in {} s",
                    self.received_bytes,
                    limit.as_secs()
                ))
            })?;
            let Some(frame) = frame else { break };
            let frame = frame
                .map_err(|error| ApiError::bad_request(format!("cannot read the request body: {error}")))?;
            if let Ok(data) = frame.into_data() {
                self.received_bytes += data.len();
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// A request body that nothing has read yet. If it is dropped in that state, [`UnreadBody`] receives it.
struct LentBody {
    body: Body,
    unread: Option<oneshot::Sender<Body>>,
}

impl http_body::Body for LentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.unread = None;
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let Some(unread) = self.unread.take() {
            // The connection may have ended.
            let _ = unread.send(std::mem::take(&mut self.body));
        }
    }
}

/// The body of a request, if its handler does not read the body. Example: a refused request.
pub(crate) struct UnreadBody(oneshot::Receiver<Body>);

impl UnreadBody {
    /// Lends a body to the handler of its request.
    pub(crate) fn lend(body: Body) -> (Body, UnreadBody) {
        let (unread, receiver) = oneshot::channel();
        (Body::new(LentBody { body, unread: Some(unread) }), UnreadBody(receiver))
    }

    /// Reads and drops the body, within the limits of a body that is too large. Without this, the connection ends while the
    /// client still sends, and many clients then report a broken connection instead of the response.
    pub(crate) async fn discard(mut self) {
        if let Ok(body) = self.0.try_recv() {
            let mut reader = BodyReader::new(body);
            while let Ok(Some(_)) = reader.next().await {}
        }
    }
}

/// Returns the field manager of a write: the parameter, or the program name in `User-Agent`.
pub(crate) fn manager(parameters: &Parameters, headers: &HeaderMap) -> String {
    parameters.field_manager.clone().unwrap_or_else(|| {
        let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let name = agent.split('/').next().unwrap_or_default();
        if name.is_empty() { "unknown".to_owned() } else { name.chars().take(MAX_MANAGER_LENGTH).collect() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;

    fn check(accept: &str, expected: Option<ResponseFormat>) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        assert_eq!(
            negotiate_format(
                &headers,
                &[ResponseFormat::Plain, ResponseFormat::Table, ResponseFormat::PartialMetadata]
            ),
            expected,
            "{accept}"
        );
    }

    #[test]
    fn first_supported_media_type_is_used() {
        check("application/json", Some(ResponseFormat::Plain));
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(ResponseFormat::Table));
        check("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", Some(ResponseFormat::Plain));
        check("application/vnd.kubernetes.protobuf,application/json", Some(ResponseFormat::Plain));
        check("application/vnd.kubernetes.protobuf", None);
        check(
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Some(ResponseFormat::PartialMetadata),
        );
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
            Some(ResponseFormat::Plain),
        );
    }

    #[test]
    fn query_parameters_are_parsed_and_validated() {
        let of = |query: &str| Parameters::of(&format!("/x?{query}").parse().unwrap());
        let read =
            of("watch=1&limit=500&labelSelector=a%3Db&dryRun=All&fieldValidation=Warn&other=x").unwrap();
        assert!(read.watch && read.dry_run);
        assert_eq!((read.limit, read.label_selector.as_str()), (Some(500), "a=b"));
        assert_eq!(read.field_validation, FieldValidation::Warn);
        for invalid in
            ["dryRun=Some", "limit=x", "fieldValidation=Maybe", "includeObject=Half", "fieldManager=%0a"]
        {
            assert!(of(invalid).is_err(), "{invalid}");
        }
    }

    /// Reads a body of this many parts, one every 900 ms.
    async fn read_in_parts(count: usize, part: &'static [u8]) -> Result<usize, String> {
        let parts = futures::stream::iter(0..count).then(move |_| async move {
            tokio::time::sleep(Duration::from_millis(900)).await;
            Ok::<_, std::io::Error>(part)
        });
        let read = read_body(Body::from_stream(parts)).await;
        read.map(|bytes| bytes.len()).map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_arrives_too_slowly_is_refused() {
        assert_eq!(read_in_parts(4, b"x").await, Ok(4), "within the first seconds");
        assert_eq!(read_in_parts(40, &[b'x'; 1024]).await, Ok(40 * 1024), "at the minimum rate");
        let slow = read_in_parts(1000, b"x").await.unwrap_err();
        assert!(slow.contains("too slowly: 5 bytes in 5 s"), "{slow}");
        let long = read_in_parts(100, &[b'x'; 4096]).await.unwrap_err();
        assert!(long.contains("in 60 s"), "{long}");
    }
}
