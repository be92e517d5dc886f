//! The watch of a collection: its objects, then every change, despite lost connections and compacted revisions.

use super::error::{ApiError, status_of_event};
use super::{Call, Client, Collection, Page, Representation};
use crate::failure::Failure;
use crate::names::name_of;
use ha_api_types::table::ColumnDefinition;
use reqwest::{Method, Response};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Longest line of a watch in bytes, which contains one object.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// Interval at which a watch is renewed, so that a broken connection is detected.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(240);

/// A change of the collection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The object exists with this state.
    Applied(Value),
    /// The object was deleted; its last known state.
    Deleted(Value),
    /// All objects that existed at the beginning have been returned.
    Synced,
}

/// A watch of one collection.
///
/// # Guarantees
/// The newest state of each object is returned eventually. Intermediate states may be skipped, and no state is returned
/// twice.
pub(crate) struct Watcher<'a> {
    client: &'a Client,
    collection: Collection,
    query: Vec<(&'static str, String)>,
    representation: Representation,
    /// Columns of rows; empty for objects, and before the first list.
    columns: Vec<ColumnDefinition>,
    objects_by_name: BTreeMap<String, Value>,
    queue: VecDeque<Change>,
    state: State,
    synced: bool,
    failures: u32,
}

enum State {
    List,
    Connect { resource_version: String },
    Read { resource_version: String, response: Response, buffer: Vec<u8>, connected_at: Instant },
}

impl<'a> Watcher<'a> {
    /// Creates a watch of all objects that match the selectors.
    pub(crate) fn new(
        client: &'a Client,
        collection: Collection,
        query: Vec<(&'static str, String)>,
    ) -> Watcher<'a> {
        Watcher {
            client,
            collection,
            query,
            representation: Representation::Objects,
            columns: Vec::new(),
            objects_by_name: BTreeMap::new(),
            queue: VecDeque::new(),
            state: State::List,
            synced: false,
            failures: 0,
        }
    }

    pub(crate) fn for_object(client: &'a Client, kind: ha_api_types::kind::Kind, name: &str) -> Watcher<'a> {
        Watcher::new(client, Collection::Kind(kind), vec![("fieldSelector", format!("metadata.name={name}"))])
    }

    /// Sets the representation of the changed objects.
    pub(crate) fn representation(mut self, representation: Representation) -> Watcher<'a> {
        self.representation = representation;
        self
    }

    /// Returns the columns of rows, which are known from [`Change::Synced`] on.
    pub(crate) fn columns(&self) -> &[ColumnDefinition] {
        &self.columns
    }

    /// Returns the next change, and waits for it indefinitely.
    ///
    /// # Errors
    /// Fails if the first read fails, or if the server refuses permanently. Later transient failures are retried.
    pub(crate) async fn next(&mut self) -> Result<Change, Failure> {
        loop {
            if let Some(change) = self.queue.pop_front() {
                return Ok(change);
            }
            let state = std::mem::replace(&mut self.state, State::List);
            match self.advance(state).await {
                Ok(state) => {
                    self.state = state;
                }
                Err((error, state)) => {
                    if error.is_status(410) {
                        self.state = State::List;
                    } else if self.synced && error.is_transient() {
                        self.state = state;
                        if self.failures == 1 {
                            let failure = error.into_failure();
                            self.client.terminal().progress(&format!("{}; retrying", failure.message));
                        }
                    } else {
                        return Err(error.into());
                    }
                    // The pause grows to two seconds; the first renewal after a lost connection is immediate.
                    let pause = Duration::from_millis(100) * self.failures.min(20);
                    self.failures = self.failures.saturating_add(1);
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn advance(&mut self, state: State) -> Result<State, (ApiError, State)> {
        match state {
            State::List => {
                let query: Vec<(&str, String)> = self.query.clone();
                let list = self.client.list_as(self.collection, &query, self.representation).await;
                let list = list.map_err(|error| (error, State::List))?;
                self.columns = list.columns;
                self.replace_known(list.items);
                if !self.synced {
                    self.synced = true;
                    self.queue.push_back(Change::Synced);
                }
                Ok(State::Connect { resource_version: list.resource_version })
            }
            State::Connect { resource_version } => {
                let mut call = Call::new(Method::GET, self.collection.path())
                    .representation(self.representation)
                    .query("watch", "true")
                    .query("allowWatchBookmarks", "true")
                    .query("resourceVersion", &resource_version)
                    .query("timeoutSeconds", &RENEWAL_INTERVAL.as_secs().to_string());
                for (name, value) in &self.query {
                    call = call.query(name, value);
                }
                match self.client.stream(&call).await {
                    Ok(response) => {
                        let connected_at = Instant::now();
                        Ok(State::Read { resource_version, response, buffer: Vec::new(), connected_at })
                    }
                    Err(error) => Err((error, State::Connect { resource_version })),
                }
            }
            State::Read { mut resource_version, mut response, mut buffer, connected_at } => {
                let Ok(chunk) = tokio::time::timeout_at(
                    connected_at + RENEWAL_INTERVAL + Duration::from_secs(10),
                    response.chunk(),
                )
                .await
                else {
                    return Ok(State::Connect { resource_version });
                };
                let Ok(Some(chunk)) = chunk else {
                    // The watch has ended or its connection is broken, and resumes at the last revision. A watch that
                    // ended right after its beginning counts as a failure, so the next attempt waits.
                    let reconnect = State::Connect { resource_version };
                    if connected_at.elapsed() > Duration::from_secs(1) {
                        self.failures = 0;
                        return Ok(reconnect);
                    }
                    let attempts = vec![("the watch".to_owned(), "ended immediately".to_owned())];
                    return Err((ApiError::Unreachable { attempts }, reconnect));
                };
                buffer.extend_from_slice(&chunk);
                while let Some(line_end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=line_end).collect();
                    if let Err(error) = self.handle_line(&line, &mut resource_version) {
                        return Err((error, State::Connect { resource_version }));
                    }
                    self.failures = 0;
                }
                if buffer.len() > MAX_LINE_BYTES {
                    let message = format!("an event exceeds {MAX_LINE_BYTES} bytes");
                    let server = self.collection.path().join("/");
                    return Err((ApiError::Malformed { server, message }, State::List));
                }
                Ok(State::Read { resource_version, response, buffer, connected_at })
            }
        }
    }

    /// Handles one line of the watch.
    fn handle_line(&mut self, line: &[u8], resource_version: &mut String) -> Result<(), ApiError> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let malformed = |error: serde_json::Error| ApiError::Malformed {
            server: format!("watch of /{}", self.collection.path().join("/")),
            message: error.to_string(),
        };
        let Event { kind, object } = serde_json::from_slice(line).map_err(malformed)?;
        if kind == "ERROR" {
            return Err(ApiError::Status(status_of_event(&object)));
        }
        if let Some(version) = version(&object) {
            version.clone_into(resource_version);
        }
        let object = match self.representation {
            Representation::Objects => object,
            Representation::Rows => {
                let page: Page = serde_json::from_value(object).map_err(malformed)?;
                page.objects().last().unwrap_or_default()
            }
        };
        match kind.as_str() {
            "ADDED" | "MODIFIED" => self.queue_if_changed(object),
            "DELETED" => {
                self.objects_by_name.remove(name_of(&object));
                self.queue.push_back(Change::Deleted(object));
            }
            // Bookmarks contain only the revision. Unknown types of a newer server are ignored.
            _ => {}
        }
        Ok(())
    }

    fn queue_if_changed(&mut self, object: Value) {
        if self
            .objects_by_name
            .get(name_of(&object))
            .is_some_and(|earlier| version(earlier) == version(&object))
        {
            return;
        }
        self.objects_by_name.insert(name_of(&object).to_owned(), object.clone());
        self.queue.push_back(Change::Applied(object));
    }

    /// Replaces the known objects with a full list, and queues only the differences.
    fn replace_known(&mut self, items: Vec<Value>) {
        let deleted_names: Vec<String> = self
            .objects_by_name
            .keys()
            .filter(|name| !items.iter().any(|item| name_of(item) == name.as_str()))
            .cloned()
            .collect();
        for name in deleted_names {
            if let Some(object) = self.objects_by_name.remove(&name) {
                self.queue.push_back(Change::Deleted(object));
            }
        }
        for item in items {
            self.queue_if_changed(item);
        }
    }
}

/// A line of a watch. The object is untyped: it may be of any kind, a row, or an error.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// Returns the revision of an object of any kind, or of a Table.
fn version(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str)
}
