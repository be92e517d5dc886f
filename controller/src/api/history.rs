//! `/apis/hactl.io/v1/history`: the changes of node and state of services and nodes in the last hour, as this process saw
//! them. The history is only displayed, and no decision depends on it.

use super::{ApiState, lock};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use ha_api_types::id::NodeName;
use ha_api_types::keys::{Key, Keys};
use ha_api_types::kind::Kind;
use ha_api_types::time::Timestamp;
use ha_api_types::view::{PlacementChange, PlacementHistory, PlacementState};
use ha_runtime::clock::Clock;
use ha_store::reflector::{Item, Options, reflector};
use ha_store::{Change, Entry, Store};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

/// Time for which a change is kept.
const RETENTION_MS: i128 = 3_600_000;
/// Maximum number of kept changes. If more happen within the retention, the oldest ones are dropped.
const MAX_CHANGES: usize = 10_000;

/// A change with the time at which this process saw it.
#[derive(Clone, Debug)]
struct SeenChange {
    at_unix_ms: i128,
    key: String,
    before: Option<PlacementState>,
    after: Option<PlacementState>,
}

#[derive(Debug, Default)]
struct RecordedChanges {
    /// Present state of each service and node, by the key of its status.
    current: BTreeMap<String, PlacementState>,
    /// Oldest first.
    changes: VecDeque<SeenChange>,
    /// Beginning of the history; `None` until the first complete reading.
    since_unix_ms: Option<i128>,
}

/// The fields of a status that the history contains.
#[derive(Deserialize)]
struct StatusFields {
    #[serde(default)]
    node: Option<NodeName>,
    #[serde(default)]
    state: String,
}

/// The recent changes of services and nodes.
pub(crate) struct History {
    clock: Arc<dyn Clock>,
    recorded: Mutex<RecordedChanges>,
}

impl History {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> History {
        History { clock, recorded: Mutex::default() }
    }

    fn now_unix_ms(&self) -> i128 {
        self.clock.now().wall_unix_ms
    }

    /// Watches the statuses until dropped.
    pub(crate) async fn run<S: Store + Clone>(&self, store: S, keys: &Keys) {
        let selectors = [Kind::Resource, Kind::Node].map(|kind| keys.statuses_of(kind)).to_vec();
        let (_refresher, mut items) = reflector(store, selectors, Options::without_comparison());
        while let Some(item) = items.next().await {
            let now = self.now_unix_ms();
            let mut recorded = lock(&self.recorded);
            match item {
                Item::Synced(reading) => recorded.replace(&reading.entries, now),
                Item::Changes { changes, revision: _ } => {
                    for change in changes {
                        match change {
                            Change::Put(entry) => recorded.put(&entry, now),
                            Change::Delete { key, revision: _ } => recorded.set(&key, None, now),
                        }
                    }
                }
                Item::Progress(_) | Item::Unavailable(_) => {}
            }
        }
    }

    /// Returns the changes of the last hour.
    fn view(&self, keys: &Keys) -> PlacementHistory {
        let now = self.now_unix_ms();
        let mut recorded = lock(&self.recorded);
        recorded.drop_old(now);
        let change = |seen: &SeenChange| {
            let Some(Key::Status(kind, name)) = keys.parse(&seen.key) else { return None };
            Some(PlacementChange {
                time: Timestamp::from_unix_ms_precise(seen.at_unix_ms),
                kind,
                name: name.to_owned(),
                before: seen.before.clone(),
                after: seen.after.clone(),
            })
        };
        PlacementHistory {
            since: recorded.since_unix_ms.map(Timestamp::from_unix_ms_precise),
            at: Timestamp::from_unix_ms_precise(now),
            changes: recorded.changes.iter().filter_map(change).collect(),
        }
    }
}

impl RecordedChanges {
    /// Takes over a complete reading. Changes during an interruption of the watch get the time of the reading.
    fn replace(&mut self, entries: &[Entry], now: i128) {
        if self.since_unix_ms.is_none() {
            self.since_unix_ms = Some(now);
            self.current =
                entries.iter().filter_map(|entry| Some((entry.key.clone(), state_of(entry)?))).collect();
            return;
        }
        let read: BTreeSet<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
        let gone: Vec<String> =
            self.current.keys().filter(|key| !read.contains(key.as_str())).cloned().collect();
        for key in gone {
            self.set(&key, None, now);
        }
        for entry in entries {
            self.put(entry, now);
        }
    }

    fn put(&mut self, entry: &Entry, now: i128) {
        // A status that this version cannot read changes nothing.
        if let Some(state) = state_of(entry) {
            self.set(&entry.key, Some(state), now);
        }
    }

    fn set(&mut self, key: &str, after: Option<PlacementState>, now: i128) {
        let before = match &after {
            Some(state) => self.current.insert(key.to_owned(), state.clone()),
            None => self.current.remove(key),
        };
        if before == after {
            return;
        }
        self.changes.push_back(SeenChange { at_unix_ms: now, key: key.to_owned(), before, after });
        if self.changes.len() > MAX_CHANGES {
            let dropped = self.changes.pop_front();
            self.since_unix_ms = dropped.map(|change| change.at_unix_ms).or(self.since_unix_ms);
        }
        self.drop_old(now);
    }

    fn drop_old(&mut self, now: i128) {
        let oldest = now - RETENTION_MS;
        while self.changes.front().is_some_and(|change| change.at_unix_ms < oldest) {
            self.changes.pop_front();
        }
        self.since_unix_ms = self.since_unix_ms.map(|since| since.max(oldest));
    }
}

fn state_of(entry: &Entry) -> Option<PlacementState> {
    let StatusFields { node, state } = serde_json::from_slice(&entry.value).ok()?;
    Some(PlacementState { node, state })
}

/// Handles GET and answers with a [`PlacementHistory`].
pub(crate) async fn handler<S: Store>(State(state): State<ApiState<S>>) -> Response {
    Json(state.history().view(state.keys())).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::id::Revision;
    use ha_store::LeaseId;
    use serde_json::json;

    fn entry(key: &str, node: &str, state: &str) -> Entry {
        let value = json!({"node": node, "state": state, "message": "other fields are ignored"}).to_string();
        Entry {
            key: key.to_owned(),
            value: value.into_bytes().into(),
            create_revision: Revision(1),
            mod_revision: Revision(1),
            lease: LeaseId::NONE,
        }
    }

    /// Returns the changes as `key: node before -> node after`.
    fn moves(recorded: &RecordedChanges) -> Vec<String> {
        let node = |state: &Option<PlacementState>| {
            let node = state.as_ref().and_then(|state| state.node.as_ref());
            node.map_or_else(|| "none".to_owned(), ToString::to_string)
        };
        let text = |change: &SeenChange| {
            format!("{}: {} -> {}", change.key, node(&change.before), node(&change.after))
        };
        recorded.changes.iter().map(text).collect()
    }

    #[test]
    fn only_changes_of_node_or_state_are_recorded() {
        let mut recorded = RecordedChanges::default();
        recorded.put(&entry("web", "node1", "Started"), 0);
        recorded.changes.clear();
        recorded.replace(&[entry("web", "node1", "Started")], 1_000);
        assert_eq!((recorded.since_unix_ms, recorded.changes.len()), (Some(1_000), 0));
        recorded.put(&entry("web", "node1", "Started"), 2_000);
        recorded.put(&entry("web", "node2", "Started"), 3_000);
        // After an interruption of the watch, the reading shows what has changed.
        recorded.replace(&[entry("mail", "node1", "Started")], 4_000);
        assert_eq!(moves(&recorded), ["web: node1 -> node2", "web: node2 -> none", "mail: none -> node1"]);
    }

    #[test]
    fn the_history_is_bounded_in_time_and_number() {
        let mut recorded = RecordedChanges::default();
        recorded.replace(&[], 0);
        for count in 0..=MAX_CHANGES {
            let at = i128::try_from(count).expect("small");
            recorded.put(&entry("web", if count % 2 == 0 { "node1" } else { "node2" }, "Started"), at);
        }
        // The first change was dropped, so the history begins after it.
        assert_eq!((recorded.changes.len(), recorded.since_unix_ms), (MAX_CHANGES, Some(0)));
        recorded.drop_old(RETENTION_MS + 5_000);
        assert_eq!((recorded.changes.len(), recorded.since_unix_ms), (MAX_CHANGES - 4_999, Some(5_000)));
    }
}
