//! Answers requests for the logs of services, outside the loop of the core.
//!
//! The task has a separate watch: if etcd permissions do not include the keys of logs, the watch of the agent is not
//! affected. The task executes at most [`MAX_PARALLEL_READS`] reads at a time, and its results do not reach the core.

use super::drivers::Drivers;
use crate::driver::LogQuery;
use futures::StreamExt;
use ha_api_types::id::{NodeName, Revision};
use ha_api_types::keys::{Key, Keys};
use ha_api_types::record::{
    LOG_LEASE_SECONDS, LOG_LINES_MAX, LOG_TIMEOUT_MS, LogAnswer, LogFailure, LogRequest,
};
use ha_store::etcd::EtcdStore;
use ha_store::reflector::{Item, Options, reflector};
use ha_store::{Change, Entry, Guard, Outcome, ShortLease, Store, StoreError, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// Number of logs that are read at the same time.
const MAX_PARALLEL_READS: usize = 2;
/// Maximum number of requests in progress or waiting; further requests are not answered.
const MAX_PENDING_REQUESTS: usize = 64;
/// Intervals of the watch. Requests are rare and short-lived, so this watch lists and retries less often than the watch
/// of the core.
const WATCH_OPTIONS: Options = Options {
    relist_interval: Duration::from_secs(300),
    backoff_min: Duration::from_millis(200),
    backoff_max: Duration::from_secs(15),
};

/// Answers the requests to a node for as long as the process runs.
pub(super) fn spawn(store: EtcdStore, keys: Keys, node: &NodeName, drivers: Drivers) {
    let selectors = vec![keys.log_requests_of(node)];
    let reader = Arc::new(LogReader {
        store: store.clone(),
        keys,
        drivers,
        lease: ShortLease::new(LOG_LEASE_SECONDS),
        reads: Semaphore::new(MAX_PARALLEL_READS),
        requests: Arc::new(Semaphore::new(MAX_PENDING_REQUESTS)),
    });
    tokio::spawn(async move {
        let (_refresher, mut items) = reflector(store, selectors, WATCH_OPTIONS);
        let (mut seen_requests, mut is_refused) = (SeenRequests::default(), false);
        while let Some(item) = items.next().await {
            match item {
                Item::Synced(reading) => {
                    is_refused = false;
                    seen_requests
                        .on_synced(&reading.entries)
                        .into_iter()
                        .for_each(|entry| reader.begin(entry));
                }
                Item::Changes { changes, revision: _ } => {
                    seen_requests.on_changed(changes).into_iter().for_each(|entry| reader.begin(entry));
                }
                Item::Unavailable(StoreError::Refused(cause)) => {
                    if !is_refused {
                        tracing::warn!(
                            why = cause,
                            "cannot read requests for logs: grant the etcd user of this node access to log and log-answer"
                        );
                    }
                    is_refused = true;
                }
                // The watch of the core reports that etcd is unavailable.
                Item::Progress(_) | Item::Unavailable(_) => {}
            }
        }
    });
}

/// Requests that were already seen, so that each request is answered only once.
#[derive(Debug, Default)]
struct SeenRequests {
    /// Create revision by key.
    requests: BTreeMap<String, Revision>,
}

impl SeenRequests {
    /// Applies a complete read, and returns the new requests.
    fn on_synced(&mut self, entries: &[Entry]) -> Vec<Entry> {
        self.requests.retain(|key, _| entries.iter().any(|entry| entry.key == *key));
        entries.iter().filter(|entry| self.insert_if_new(entry)).cloned().collect()
    }

    /// Applies changes, and returns the new requests.
    fn on_changed(&mut self, changes: Vec<Change>) -> Vec<Entry> {
        let mut new = Vec::new();
        for change in changes {
            match change {
                Change::Put(entry) if self.insert_if_new(&entry) => new.push(entry),
                Change::Put(_) => {}
                Change::Delete { key, revision: _ } => {
                    self.requests.remove(&key);
                    // A request that was withdrawn in the meantime needs no answer.
                    new.retain(|entry| entry.key != key);
                }
            }
        }
        new
    }

    fn insert_if_new(&mut self, entry: &Entry) -> bool {
        self.requests.insert(entry.key.clone(), entry.create_revision) != Some(entry.create_revision)
    }
}

/// Reads logs and writes the answers.
struct LogReader {
    store: EtcdStore,
    keys: Keys,
    drivers: Drivers,
    lease: ShortLease,
    reads: Semaphore,
    requests: Arc<Semaphore>,
}

impl LogReader {
    /// Starts to answer a request. The caller does not wait.
    fn begin(self: &Arc<Self>, entry: Entry) {
        let Ok(permit) = Arc::clone(&self.requests).try_acquire_owned() else { return };
        let reader = Arc::clone(self);
        tokio::spawn(async move {
            let _permit = permit;
            reader.answer(&entry).await;
        });
    }

    async fn answer(&self, entry: &Entry) {
        let Some(Key::LogRequest(node, id)) = self.keys.parse(&entry.key) else { return };
        let Ok(request) = serde_json::from_slice::<LogRequest>(&entry.value) else { return };
        let deadline = Instant::now() + Duration::from_millis(LOG_TIMEOUT_MS);
        let answer = timeout_at(deadline, self.read(&request)).await.unwrap_or_else(|_| {
            let message = format!("reading the log took longer than {} s", LOG_TIMEOUT_MS / 1000);
            LogAnswer { failure: Some(LogFailure::Unreadable(message)), ..LogAnswer::default() }
        });
        let key = self.keys.log_answer(&node, id);
        if let Err(cause) = self.write(entry, &key, &answer).await {
            tracing::debug!(
                why = cause,
                resource = request.definition.name.as_str(),
                "cannot answer a request for a log"
            );
        }
    }

    async fn read(&self, request: &LogRequest) -> LogAnswer {
        let service = &request.definition;
        let driver = service.driver.kind().and_then(|kind| self.drivers.by_name.get(kind.name()));
        let read = match driver {
            Some(driver) => match self.reads.acquire().await {
                Ok(_permit) => driver.read_log(service, query_of(request)).await,
                Err(closed) => Err(LogFailure::Unreadable(closed.to_string())),
            },
            None => Err(LogFailure::NotKept("this version of the agent has no such driver".to_owned())),
        };
        match read {
            Ok(tail) => LogAnswer { text: tail.text, truncated: tail.truncated, failure: None },
            Err(failure) => LogAnswer { failure: Some(failure), ..LogAnswer::default() },
        }
    }

    /// Writes an answer while its request exists.
    async fn write(&self, request: &Entry, key: &str, answer: &LogAnswer) -> Result<(), String> {
        let value = serde_json::to_vec(answer).map_err(|error| error.to_string())?;
        for _ in 0..2 {
            let lease = self.lease.id(&self.store).await.map_err(|error| error.to_string())?;
            let transaction = Transaction::new()
                .guard(request.key.clone(), Guard::Created(request.create_revision))
                .put_leased(key, Guard::Absent, value.clone(), lease);
            match self.store.commit(transaction).await {
                Outcome::Applied(_) | Outcome::Conflict(_) => return Ok(()),
                Outcome::LeaseNotFound => self.lease.forget(lease).await,
                Outcome::Refused(cause) | Outcome::Unknown(cause) => return Err(cause),
            }
        }
        Err("lease expired repeatedly before the response was written".to_owned())
    }
}

/// Returns the range to read, within this agent's own bounds.
fn query_of(request: &LogRequest) -> LogQuery {
    LogQuery { lines: request.tail_lines.clamp(1, LOG_LINES_MAX), since_seconds: request.since_seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, created: Revision) -> Entry {
        Entry {
            key: key.to_owned(),
            value: Arc::from(b"{}".as_slice()),
            create_revision: created,
            mod_revision: created,
            lease: ha_store::LeaseId(1),
        }
    }

    fn keys_of(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.key.as_str()).collect()
    }

    #[test]
    fn each_log_request_is_answered_once() {
        let mut seen_requests = SeenRequests::default();
        assert_eq!(keys_of(&seen_requests.on_synced(&[entry("a", Revision(1))])), ["a"]);
        assert_eq!(keys_of(&seen_requests.on_changed(vec![Change::Put(entry("b", Revision(2)))])), ["b"]);
        assert!(seen_requests.on_synced(&[entry("a", Revision(1)), entry("b", Revision(2))]).is_empty());
        assert!(seen_requests.on_changed(vec![Change::Put(entry("b", Revision(2)))]).is_empty());
        let deletion = Change::Delete { key: "c".to_owned(), revision: Revision(4) };
        assert!(seen_requests.on_changed(vec![Change::Put(entry("c", Revision(3))), deletion]).is_empty());
        assert_eq!(keys_of(&seen_requests.on_changed(vec![Change::Put(entry("c", Revision(5)))])), ["c"]);
        assert_eq!(seen_requests.requests.len(), 3);
        assert!(seen_requests.on_synced(&[]).is_empty() && seen_requests.requests.is_empty());
    }

    #[test]
    fn log_request_line_count_is_bounded() {
        for (requested_lines, lines) in [(0, 1), (7, 7), (u32::MAX, LOG_LINES_MAX)] {
            let request = LogRequest { tail_lines: requested_lines, ..LogRequest::default() };
            assert_eq!(query_of(&request).lines, lines);
        }
    }
}
