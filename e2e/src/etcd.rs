//! Access to etcd from outside the product, with etcd's own command-line client.

mod maintenance;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::binaries;
use crate::command::{output, run};
use crate::wait::monotonic_ns;

/// etcdctl with the flags for one cluster.
#[derive(Debug, Clone)]
pub struct Etcdctl {
    /// URLs of the members, separated by commas.
    pub endpoints: String,
    /// Directory with `ca.pem`, `root.pem` and `root.key`, of the administrator of etcd.
    pub certificates: PathBuf,
}

/// Value and metadata of a key in etcd.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Value. A value that is not JSON is given as a string.
    pub value: Value,
    /// Revision of the last change.
    pub revision: u64,
    /// Revision at which the key was created.
    pub create_revision: u64,
    /// Lease to which the key is attached; 0 if none.
    pub lease: i64,
}

/// A change of a key, as reported by a watch.
#[derive(Debug, Clone)]
pub struct Change {
    /// Arrival time of the change on `CLOCK_MONOTONIC`, in nanoseconds.
    pub received_ns: u64,
    /// Full name of the key.
    pub key: String,
    /// Entry after the change; `None` if the key was deleted.
    pub entry: Option<Entry>,
}

impl Etcdctl {
    /// Runs etcdctl and returns its output.
    ///
    /// # Errors
    /// Fails if etcdctl fails. The error contains its output.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        run(binaries::etcdctl()?, &self.arguments(arguments))
    }

    /// Returns all entries whose key has a prefix.
    ///
    /// # Errors
    /// Fails if etcd does not respond.
    pub fn list(&self, prefix: &str) -> Result<BTreeMap<String, Entry>> {
        let text = self.run(&["get", "--prefix", prefix, "--write-out", "json"])?;
        let answer: RangeResponse =
            serde_json::from_str(&text).context("cannot parse the output of etcdctl")?;
        Ok(answer.kvs.into_iter().filter_map(|raw| Some((raw.key_name()?, raw.entry()))).collect())
    }

    /// Returns the entry of a key; `None` if the key does not exist.
    ///
    /// # Errors
    /// Fails if etcd does not respond.
    pub fn get(&self, key: &str) -> Result<Option<Entry>> {
        Ok(self.list(key)?.remove(key))
    }

    /// Returns `true` if all members can commit.
    pub fn is_healthy(&self) -> bool {
        binaries::etcdctl()
            .and_then(|program| output(program, &self.arguments(&["endpoint", "health"])))
            .is_ok_and(|output| output.status.success())
    }

    /// Returns the endpoint of the member that is the leader.
    ///
    /// # Errors
    /// Fails if no member reports that it is the leader.
    pub fn leader(&self) -> Result<String> {
        Ok(leader_status(&self.members()?)?.endpoint.clone())
    }

    fn members(&self) -> Result<Vec<MemberStatus>> {
        let text = self.run(&["endpoint", "status", "--write-out", "json"])?;
        serde_json::from_str(&text).context("cannot parse the output of etcdctl")
    }

    /// Reports all changes of keys with a prefix, until the watch is dropped.
    ///
    /// # Errors
    /// Fails if etcdctl cannot be started.
    pub fn watch(&self, prefix: &str) -> Result<Watch> {
        let mut child = Command::new(binaries::etcdctl()?)
            .args(self.arguments(&["watch", "--prefix", prefix, "--write-out", "json"]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start etcdctl")?;
        let Some(pipe) = child.stdout.take() else { bail!("etcdctl has no output") };
        let (sender, changes) = channel();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines() {
                let Ok(line) = line else { return };
                let received_ns = monotonic_ns();
                let Ok(answer) = serde_json::from_str::<WatchResponse>(&line) else { continue };
                for event in answer.events {
                    let Some(key) = event.kv.key_name() else { continue };
                    let entry = (event.kind != DELETE_EVENT).then(|| event.kv.entry());
                    if sender.send(Change { received_ns, key, entry }).is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Watch { child, changes })
    }

    fn arguments(&self, arguments: &[&str]) -> Vec<String> {
        let file = |name: &str| self.certificates.join(name).to_string_lossy().into_owned();
        let mut all_arguments = vec![
            format!("--endpoints={}", self.endpoints),
            format!("--cacert={}", file("ca.pem")),
            format!("--cert={}", file("root.pem")),
            format!("--key={}", file("root.key")),
            "--command-timeout=5s".to_owned(),
        ];
        all_arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        all_arguments
    }
}

/// A watch that runs in the background.
pub struct Watch {
    child: Child,
    /// Changes in the order of their revisions.
    pub changes: Receiver<Change>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Errors are ignored: etcdctl may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Type of a deletion event in etcdctl's JSON output.
const DELETE_EVENT: u64 = 1;

#[derive(Deserialize)]
struct RangeResponse {
    #[serde(default)]
    kvs: Vec<RawEntry>,
}

#[derive(Deserialize)]
struct WatchResponse {
    #[serde(rename = "Events", default)]
    events: Vec<RawEvent>,
}

#[derive(Deserialize)]
struct RawEvent {
    #[serde(rename = "type", default)]
    kind: u64,
    kv: RawEntry,
}

#[derive(Deserialize)]
struct RawEntry {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    mod_revision: u64,
    #[serde(default)]
    create_revision: u64,
    #[serde(default)]
    lease: i64,
}

impl RawEntry {
    fn key_name(&self) -> Option<String> {
        String::from_utf8(base64(&self.key)?).ok()
    }

    fn entry(&self) -> Entry {
        let bytes = base64(&self.value).unwrap_or_default();
        let value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Entry { value, revision: self.mod_revision, create_revision: self.create_revision, lease: self.lease }
    }
}

#[derive(Deserialize)]
struct MemberStatus {
    #[serde(rename = "Endpoint")]
    endpoint: String,
    #[serde(rename = "Status")]
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    header: Header,
    /// Member id of the leader; 0 if the member has no leader, because etcdctl then omits the field.
    #[serde(default)]
    leader: u64,
    #[serde(rename = "raftTerm", default)]
    term: u64,
}

#[derive(Deserialize)]
struct Header {
    member_id: u64,
    #[serde(default)]
    revision: u64,
}

fn leader_status(members: &[MemberStatus]) -> Result<&MemberStatus> {
    members
        .iter()
        .filter(|member| member.status.leader == member.status.header.member_id)
        // A deposed leader that still reports itself as leader has an older term.
        .max_by_key(|member| member.status.term)
        .context("no etcd member is leader")
}

/// Decodes standard base64, the format of bytes in etcdctl's JSON output.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let sextet = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(sextet);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(base64(text).as_deref(), expected.map(str::as_bytes), "{text}");
    }

    #[test]
    fn base64_is_decoded() {
        check("", Some(""));
        check("Zg==", Some("f"));
        check("Zm9vYmE=", Some("fooba"));
        check("L2hhY3RsL2RlZmF1bHQ=", Some("/hactl/default"));
        check("Pz8+", Some("??>"));
        check("a b", None);
    }

    #[test]
    fn etcd_puts_and_deletions_are_distinguished() {
        let text = r#"{"Events":[{"kv":{"key":"YQ==","value":"eyJuIjoxfQ==","mod_revision":7,"create_revision":3}},
            {"type":1,"kv":{"key":"YQ==","mod_revision":8}}]}"#;
        let answer: WatchResponse = serde_json::from_str(text).unwrap();
        assert_eq!(answer.events[0].kv.entry().value, serde_json::json!({"n": 1}));
        assert_ne!(answer.events[0].kind, DELETE_EVENT);
        assert_eq!(answer.events[1].kind, DELETE_EVENT);
    }
}
