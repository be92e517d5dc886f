//! Requests to podman's service, one function for each.

use super::connection::{Answer, ApiError, Call, escaped};
use super::container::{self, Container, Process};
use super::frames;
use crate::driver::log::{LogQuery, LogTail, TailBuffer};
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Age in seconds up to which a line of output is considered related to a container's end.
const RECENT_OUTPUT_SECONDS: i64 = 60;
/// Time limit for reading a container's last output, which delays the report of its end.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of one piece of output, in bytes. Podman's pieces are at most 32 KiB long.
const MAX_LINE_BYTES: usize = 1 << 20;
/// First podman version that can change restart policies.
const POLICY_UPDATE_VERSION: (u32, u32) = (5, 1);

/// Client of podman's service.
#[derive(Clone, Debug)]
pub(super) struct Client {
    socket: PathBuf,
}

impl Client {
    pub(super) fn new(socket: PathBuf) -> Client {
        Client { socket }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    fn call(&self, method: Method, path: impl AsRef<str>) -> Call<'_> {
        Call::new(&self.socket, method, path)
    }

    fn of(&self, method: Method, container: &str, subpath: &str) -> Call<'_> {
        self.call(method, format!("/containers/{}{subpath}", escaped(container)))
    }

    /// Checks that podman's service answers.
    pub(super) async fn ping(&self) -> Result<(), ApiError> {
        self.call(Method::GET, "/_ping").bytes().await.map(drop)
    }

    /// Returns the container with this name; `None` if it does not exist.
    pub(super) async fn inspect(&self, name: &str) -> Result<Option<Container>, ApiError> {
        let container: Container = match self.of(Method::GET, name, "/json").bytes().await {
            Ok(text) => {
                serde_json::from_slice(&text).map_err(|error| ApiError::Unreadable(error.to_string()))?
            }
            Err(ApiError::Refused { status: StatusCode::NOT_FOUND, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // podman also accepts the beginning of a container's id as a name.
        Ok((container.name == name).then_some(container))
    }

    /// Returns the state of the container's main process.
    pub(super) async fn process(&self, container: &Container) -> Process {
        if !self.shares_processes().await.unwrap_or(false) {
            return Process::Hidden;
        }
        let proc = Path::new("/proc");
        match container::process(proc, container.state.pid, &container.id) {
            Process::Gone if container::is_conmon_alive(proc, container.state.conmon_pid, &container.id) => {
                Process::Ending
            }
            process @ (Process::Alive | Process::Ending | Process::Gone | Process::Hidden) => process,
        }
    }

    /// Returns `true` if podman's service is in the same pid namespace as this process.
    async fn shares_processes(&self) -> std::io::Result<bool> {
        let peer = UnixStream::connect(&self.socket).await?.peer_cred()?.pid();
        let Some(peer) = peer.filter(|peer| *peer > 0) else { return Ok(false) };
        Ok(std::fs::read_link(format!("/proc/{peer}/ns/pid"))? == std::fs::read_link("/proc/self/ns/pid")?)
    }

    pub(super) async fn create(&self, body: &Value) -> Result<(), ApiError> {
        self.call(Method::POST, "/containers/create").body(body).bytes().await.map(drop)
    }

    /// Starts a container, or does nothing if it runs.
    pub(super) async fn start(&self, container: &str, limit: Duration) -> Result<(), ApiError> {
        self.of(Method::POST, container, "/start").extend_timeout(limit).bytes().await.map(drop)
    }

    /// Stops a container: by its stop signal, then by SIGKILL after `graceful`.
    pub(super) async fn stop(&self, container: &str, graceful: Duration) -> Result<(), ApiError> {
        let seconds = graceful.as_millis().div_ceil(1000);
        let subpath = format!("/stop?timeout={seconds}&ignore=true");
        self.of(Method::POST, container, &subpath).extend_timeout(graceful).bytes().await.map(drop)
    }

    /// Kills a container by SIGKILL.
    pub(super) async fn kill(&self, container: &str) -> Result<(), ApiError> {
        self.of(Method::POST, container, "/kill?signal=SIGKILL").bytes().await.map(drop)
    }

    /// Resumes a paused container.
    pub(super) async fn unpause(&self, container: &str) -> Result<(), ApiError> {
        self.of(Method::POST, container, "/unpause").bytes().await.map(drop)
    }

    /// Removes a container and its anonymous volumes, or does nothing if it does not exist.
    pub(super) async fn remove(&self, container: &str) -> Result<(), ApiError> {
        match self.of(Method::DELETE, container, "?force=true&timeout=0&v=true").bytes().await {
            Ok(_) | Err(ApiError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the restart policy of a container. Returns `false` if this version of podman cannot do that.
    pub(super) async fn disable_restarts(&self, container: &str) -> Result<bool, ApiError> {
        let ping = self.call(Method::GET, "/_ping").answer().await?;
        let version = ping.response.headers().get("libpod-api-version").and_then(|text| text.to_str().ok());
        if !version.is_some_and(can_update_policies) {
            return Ok(false);
        }
        let call = self.of(Method::POST, container, "/update?restartPolicy=no").body(&json!({}));
        call.bytes().await.map(|_| true)
    }

    /// Returns `true` if the node has an image.
    pub(super) async fn has_image(&self, image: &str) -> Result<bool, ApiError> {
        match self.call(Method::GET, format!("/images/{}/exists", escaped(image))).bytes().await {
            Ok(_) => Ok(true),
            Err(ApiError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn pull(&self, image: &str, limit: Duration) -> Result<(), ApiError> {
        let path = format!("/images/pull?reference={}&policy=missing&quiet=true", escaped(image));
        let text = self.call(Method::POST, path).extend_timeout(limit).bytes().await?;
        // Podman sends status 200 before the pull ends, so an error is in the body.
        match pull_error(&text) {
            None => Ok(()),
            Some(message) => {
                Err(ApiError::Refused { status: StatusCode::OK, cause: message.clone(), message })
            }
        }
    }

    /// Returns the events of containers from a time on, in seconds since 1970.
    pub(super) async fn events(&self, since_seconds: i64) -> Result<Events, ApiError> {
        let filters = escaped(r#"{"type":["container"]}"#);
        let path = format!("/events?stream=true&filters={filters}&since={since_seconds}");
        Ok(Events { answer: self.call(Method::GET, path).answer().await?, read: Vec::new() })
    }

    /// Runs the container's health check and waits for its end. Returns `true` if the result is healthy.
    pub(super) async fn check(&self, container: &str, limit: Duration) -> Result<bool, ApiError> {
        #[derive(Deserialize)]
        struct Report {
            #[serde(rename = "Status")]
            status: String,
        }
        let text = self.of(Method::GET, container, "/healthcheck").extend_timeout(limit).bytes().await?;
        let report: Report =
            serde_json::from_slice(&text).map_err(|error| ApiError::Unreadable(error.to_string()))?;
        Ok(report.status == "healthy")
    }

    /// Returns `true` if the exec session `id` runs this command.
    pub(super) async fn runs(&self, id: &str, command: &[String]) -> Result<bool, ApiError> {
        let text = self.call(Method::GET, format!("/exec/{}/json", escaped(id))).bytes().await?;
        let configured: Command =
            serde_json::from_slice(&text).map_err(|error| ApiError::Unreadable(error.to_string()))?;
        Ok(configured.is(command))
    }

    /// Returns the last line that the container printed, for the end of a message; empty if podman does not keep the
    /// output.
    pub(super) async fn last_output_suffix(&self, container: &str) -> String {
        let recent = format!("since={}", seconds_since_1970() - RECENT_OUTPUT_SECONDS);
        let last = match timeout(READ_TIMEOUT, self.log(container, &recent)).await {
            Ok(last) => last,
            // Reading only the last line is fast even for a long log. However, if the line was written in pieces, only
            // the last piece is returned.
            Err(_) => timeout(READ_TIMEOUT, self.log(container, "tail=1")).await.ok().flatten(),
        };
        last.map_or_else(String::new, |last| format!(": {last}"))
    }

    async fn log(&self, container: &str, query: &str) -> Option<String> {
        let call = self.of(Method::GET, container, &format!("/logs?stdout=true&stderr=true&{query}"));
        call.bytes().await.ok().and_then(|text| frames::last_line(&frames::text(&text)))
    }

    /// Returns the last lines of a container's output, in bounded memory; `None` if the container does not exist.
    pub(super) async fn log_tail(
        &self,
        container: &str,
        query: LogQuery,
    ) -> Result<Option<LogTail>, ApiError> {
        let seconds = |length: u64| i64::try_from(length).unwrap_or(i64::MAX);
        let since_parameter = query.since_seconds.map_or_else(String::new, |length| {
            format!("&since={}", seconds_since_1970().saturating_sub(seconds(length)))
        });
        let subpath = format!("/logs?stdout=true&stderr=true&tail={}{since_parameter}", query.lines);
        let mut answer = match self.of(Method::GET, container, &subpath).answer().await {
            Ok(answer) => answer,
            Err(ApiError::Refused { status: StatusCode::NOT_FOUND, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (mut log_end, mut read) = (TailBuffer::default(), Vec::new());
        while let Some(frame) = answer.response.body_mut().frame().await {
            let frame = frame.map_err(|error| ApiError::Unreadable(error.to_string()))?;
            if let Ok(data) = frame.into_data() {
                read.extend_from_slice(&data);
                frames::take_complete(&mut read, |text| log_end.push(text));
                if read.len() > MAX_LINE_BYTES {
                    return Err(ApiError::Unreadable("a line of output is too long".to_owned()));
                }
            }
        }
        Ok(Some(log_end.tail(query.lines)))
    }

    /// Returns the resource usage of a container; `None` if it does not run.
    pub(super) async fn usage(&self, container: &str) -> Result<Option<Usage>, ApiError> {
        #[derive(Deserialize)]
        struct Report {
            #[serde(rename = "Stats")]
            stats: Option<Vec<Usage>>,
        }
        let path = format!("/containers/stats?containers={}&stream=false", escaped(container));
        let text = self.call(Method::GET, path).bytes().await?;
        let report: Report =
            serde_json::from_slice(&text).map_err(|error| ApiError::Unreadable(error.to_string()))?;
        Ok(report.stats.unwrap_or_default().into_iter().next())
    }
}

/// Command of an exec session in a container.
#[derive(Debug, Deserialize)]
struct Command {
    #[serde(rename = "ProcessConfig")]
    config: ProcessConfig,
}

#[derive(Debug, Deserialize)]
struct ProcessConfig {
    entrypoint: String,
    arguments: Option<Vec<String>>,
}

impl Command {
    /// Returns `true` if this is the given command: the same program with the same arguments.
    fn is(&self, command: &[String]) -> bool {
        let config = &self.config;
        command.split_first().is_some_and(|(program, arguments)| {
            *program == config.entrypoint && arguments == config.arguments.as_deref().unwrap_or_default()
        })
    }
}

/// Resource usage of a container, as reported by podman.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Usage {
    #[serde(rename = "CPUNano")]
    pub(super) cpu_ns: u64,
    #[serde(rename = "MemUsage")]
    pub(super) memory: u64,
    pub(super) block_input: u64,
    pub(super) block_output: u64,
    net_input: u64,
    net_output: u64,
    /// Network usage by interface, since podman 5.
    network: Option<std::collections::BTreeMap<String, Interface>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Interface {
    rx_bytes: u64,
    tx_bytes: u64,
}

impl Usage {
    /// Returns the bytes received and sent; `None` if podman reports no network of the container's own.
    pub(super) fn network(&self) -> Option<u64> {
        let interfaces = self.network.iter().flatten();
        let bytes: u64 = interfaces.map(|(_, interface)| interface.rx_bytes + interface.tx_bytes).sum();
        Some(bytes + self.net_input + self.net_output).filter(|bytes| *bytes > 0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerEvent {
    pub(super) container: String,
    pub(super) id: String,
    pub(super) action: String,
    /// Time in seconds since 1970.
    pub(super) at: i64,
}

/// Stream of podman's events.
pub(super) struct Events {
    answer: Answer,
    read: Vec<u8>,
}

impl Events {
    /// Returns the next event; `None` when podman ends the stream. If the future is canceled, no event is lost.
    pub(super) async fn next(&mut self) -> Option<ContainerEvent> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                if let Some(event) = parse_event(&line) {
                    return Some(event);
                }
                continue;
            }
            let frame = self.answer.response.body_mut().frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }
}

fn parse_event(line: &[u8]) -> Option<ContainerEvent> {
    #[derive(Deserialize)]
    struct Event {
        #[serde(rename = "Action")]
        action: String,
        #[serde(rename = "Actor")]
        actor: Actor,
        #[serde(default)]
        time: i64,
    }
    #[derive(Deserialize)]
    struct Actor {
        #[serde(rename = "ID")]
        id: String,
        #[serde(rename = "Attributes", default)]
        attributes: std::collections::BTreeMap<String, Value>,
    }
    let event: Event = serde_json::from_slice(line).ok()?;
    let container = event.actor.attributes.get("name")?.as_str()?.to_owned();
    Some(ContainerEvent { container, id: event.actor.id, action: event.action, at: event.time })
}

/// Returns this machine's time, which podman also uses, in seconds since 1970.
pub(super) fn seconds_since_1970() -> i64 {
    let elapsed_seconds =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed_seconds| elapsed_seconds.as_secs());
    i64::try_from(elapsed_seconds).unwrap_or(i64::MAX)
}

/// Returns the error in the answer to a pull, which is one JSON object for each line.
fn pull_error(text: &[u8]) -> Option<String> {
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .find_map(|line| line["error"].as_str().filter(|error| !error.is_empty()).map(str::to_owned))
}

/// Returns `true` if podman of this version can change the restart policy of a container.
fn can_update_policies(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= POLICY_UPDATE_VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn podman_events_are_parsed() {
        let line = br#"{"status":"died","id":"abc","from":"i","Type":"container","Action":"died","Actor":{"ID":"abc",
            "Attributes":{"containerExitCode":"137","name":"hactl-web"}},"scope":"local","time":17,"timeNano":17000}"#;
        let expected =
            ContainerEvent { container: "hactl-web".into(), id: "abc".into(), action: "died".into(), at: 17 };
        assert_eq!(parse_event(line), Some(expected));
        assert_eq!(parse_event(b"{}"), None);
        assert_eq!(parse_event(b"\n"), None);
    }

    #[test]
    fn pull_error_is_found_in_response() {
        assert_eq!(pull_error(b"{\"stream\":\"a\"}\n{\"images\":[\"x\"],\"id\":\"x\"}\n"), None);
        assert_eq!(
            pull_error(b"{\"stream\":\"a\"}\n{\"error\":\"no such host\"}\n").as_deref(),
            Some("no such host")
        );
        assert_eq!(pull_error(b""), None);
    }

    #[test]
    fn only_newer_podman_can_update_policies() {
        for (version, expected) in
            [("4.3.1", false), ("5.0.3", false), ("5.1.0", true), ("6.0.0-rc1", true), ("", false)]
        {
            assert_eq!(can_update_policies(version), expected, "{version}");
        }
    }

    #[test]
    fn exec_commands_are_compared() {
        let command = |config: &str| {
            serde_json::from_str::<Command>(&format!("{{\"ProcessConfig\":{config}}}")).expect("a command")
        };
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let check = command(r#"{"arguments":["-c","exit 0"],"entrypoint":"/bin/sh","tty":false}"#);
        assert!(check.is(&words(&["/bin/sh", "-c", "exit 0"])));
        assert!(!check.is(&words(&["/bin/sh", "-c", "exit 1"])));
        assert!(!check.is(&[]));
        assert!(command(r#"{"arguments":null,"entrypoint":"/bin/true"}"#).is(&words(&["/bin/true"])));
    }

    #[test]
    fn old_and_new_usage_formats_parse() {
        let old: Usage = serde_json::from_str(
            r#"{"CPUNano":24018774,"MemUsage":438272,"NetInput":3,"NetOutput":4,"BlockInput":5,"BlockOutput":6}"#,
        )
        .expect("usage");
        assert_eq!((old.cpu_ns, old.memory, old.network()), (24_018_774, 438_272, Some(7)));
        let new: Usage =
            serde_json::from_str(r#"{"CPUNano":1,"Network":{"eth0":{"RxBytes":10,"TxBytes":20}}}"#)
                .expect("usage");
        assert_eq!(new.network(), Some(30));
        assert_eq!(Usage::default().network(), None);
    }
}
