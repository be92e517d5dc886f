//! The reflector: it lists keys, watches them from the next revision, continues after errors, and lists again at an
//! interval to compare.

use crate::store::{Change, Reading, Store, StoreError, WatchItem};
use crate::transaction::Entry;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use ha_api_types::id::Revision;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Item of a reflector, which a shell converts to an input of its core.
///
/// Guarantees: revisions do not decrease, except in a `Synced` after the store was restored to an earlier revision.
/// `Changes` and `Progress` are complete up to their revision, over all selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A complete, linearizable read, which replaces the view.
    Synced(Reading),
    /// Changes since the last item, in order, complete up to and including `revision`.
    Changes {
        /// Changes in order of their revisions.
        changes: Vec<Change>,
        /// Revision up to which the changes are complete.
        revision: Revision,
    },
    /// No further changes exist under the selectors up to this revision.
    Progress(Revision),
    /// The store currently cannot be read or watched. The view is unchanged, and the reflector retries.
    Unavailable(StoreError),
}

/// Logs the failure and the recovery of a watch, once per transition.
#[derive(Debug, Default)]
pub struct WatchLog {
    is_failing: bool,
}

impl WatchLog {
    /// Logs an item if the watch of etcd has failed or recovered.
    pub fn log_transition(&mut self, item: &Item) {
        match item {
            Item::Unavailable(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::warn!(%error, "cannot watch etcd, retrying");
            }
            Item::Synced(_) | Item::Changes { .. } | Item::Progress(_) if self.is_failing => {
                self.is_failing = false;
                tracing::info!("resumed watching etcd");
            }
            Item::Unavailable(_) | Item::Synced(_) | Item::Changes { .. } | Item::Progress(_) => {}
        }
    }
}

/// Intervals of a reflector.
#[derive(Clone, Debug)]
pub struct Options {
    /// Interval between complete listings, which are compared with the watch's changes.
    pub relist_interval: Duration,
    /// Delay after the first failure; doubles with each further failure.
    pub backoff_min: Duration,
    /// Longest delay after a failure.
    pub backoff_max: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            relist_interval: Duration::from_secs(60),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
        }
    }
}

impl Options {
    /// Returns options for a store that reports lost changes itself, such as [`crate::CachedStore`]: its watch ends, so
    /// that a comparison is not necessary. The reflector still lists once a day.
    pub fn without_comparison() -> Options {
        Options { relist_interval: Duration::from_secs(24 * 60 * 60), ..Options::default() }
    }
}

/// Handle that requests listings from a reflector.
#[derive(Clone, Debug, Default)]
pub struct Refresher {
    shared: Arc<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    wake: Notify,
    requested: AtomicU64,
    answered: AtomicU64,
}

impl Refresher {
    /// Requests an [`Item::Synced`] whose read begins after this call, and returns the number of the request.
    ///
    /// The read's revision is not older than any write that the store has applied by now. One read answers all
    /// requests made before it begins. Numbers increase.
    pub fn request(&self) -> u64 {
        let number = self.shared.requested.fetch_add(1, Ordering::SeqCst) + 1;
        self.shared.wake.notify_one();
        number
    }

    /// Returns the newest request that the yielded reads have answered; 0 means none. After an [`Item::Synced`],
    /// the caller must read this before it takes the next item from the stream.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::SeqCst)
    }
}

/// Reads the keys under the selectors, and then follows their changes; see [`Item`].
///
/// Caveats: after a failure, the watch resumes after the last revision that it saw, and the reflector lists again only
/// after a compaction. The comparison detects a lost event after `relist_interval` at the latest.
pub fn reflector<S: Store + Clone>(
    store: S,
    selectors: Vec<String>,
    options: Options,
) -> (Refresher, BoxStream<'static, Item>) {
    let refresher = Refresher::default();
    let requests = refresher.shared.clone();
    let stream = async_stream::stream! {
        let mut reflection = Reflection::new(store, selectors, options, requests);
        loop {
            let event = reflection.next().await;
            if let Some(item) = reflection.handle(event) {
                yield item;
            }
        }
    };
    (refresher, stream.boxed())
}

enum Event {
    Watched(Option<Result<WatchItem, StoreError>>),
    Listed(Result<Reading, StoreError>),
    RefreshRequested,
    RelistDue,
    RetryDue,
}

struct Reflection<S> {
    store: S,
    selectors: Vec<String>,
    options: Options,
    /// Yielded state: the last revision of each key.
    view: BTreeMap<String, Revision>,
    /// Revision up to which the yielded items are complete.
    last_revision: Revision,
    synced: bool,
    watch: Option<BoxStream<'static, Result<WatchItem, StoreError>>>,
    listing: Option<BoxFuture<'static, Result<Reading, StoreError>>>,
    /// Value of `last_revision` at the start of the listing, and the changes since then.
    listed_from: Revision,
    changes_during_listing: Vec<Change>,
    /// `true` if a listing is required (the first, or after a compaction), and yielded even if it finds no changes.
    listing_required: bool,
    requests: Arc<Requests>,
    /// Newest request before the start of the listing; a newer request needs another listing.
    covered_request: u64,
    relist_at: Instant,
    retry_at: Option<Instant>,
    backoff: Duration,
}

impl<S: Store + Clone> Reflection<S> {
    fn new(store: S, selectors: Vec<String>, options: Options, requests: Arc<Requests>) -> Reflection<S> {
        let mut reflection = Reflection {
            store,
            selectors,
            view: BTreeMap::new(),
            last_revision: Revision(0),
            synced: false,
            watch: None,
            listing: None,
            listed_from: Revision(0),
            changes_during_listing: Vec::new(),
            listing_required: true,
            requests,
            covered_request: 0,
            relist_at: Instant::now() + options.relist_interval,
            retry_at: None,
            backoff: options.backoff_min,
            options,
        };
        reflection.start_listing();
        reflection
    }

    async fn next(&mut self) -> Event {
        let listing = async {
            match &mut self.listing {
                Some(listing) => listing.await,
                None => std::future::pending().await,
            }
        };
        let watched = async {
            match &mut self.watch {
                Some(watch) => watch.next().await,
                None => std::future::pending().await,
            }
        };
        let retry = async {
            match self.retry_at {
                Some(retry_time) => tokio::time::sleep_until(retry_time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            item = watched => Event::Watched(item),
            result = listing => Event::Listed(result),
            () = self.requests.wake.notified() => Event::RefreshRequested,
            () = tokio::time::sleep_until(self.relist_at) => Event::RelistDue,
            () = retry => Event::RetryDue,
        }
    }

    fn handle(&mut self, event: Event) -> Option<Item> {
        match event {
            Event::Watched(Some(Ok(WatchItem::Changes { changes, revision }))) => {
                self.on_changes(changes, revision)
            }
            Event::Watched(Some(Ok(WatchItem::Progress(revision)))) => {
                self.backoff = self.options.backoff_min;
                (revision > self.last_revision).then(|| {
                    self.last_revision = revision;
                    Item::Progress(revision)
                })
            }
            Event::Watched(Some(Err(StoreError::Compacted { oldest }))) => {
                tracing::info!(%oldest, last = %self.last_revision, "watch fell behind compaction, listing again");
                self.watch = None;
                self.listing_required = true;
                self.start_listing();
                None
            }
            Event::Watched(ended) => {
                self.watch = None;
                self.retry_later();
                let ended_early = || StoreError::Unreachable("watch ended".to_owned());
                let error = ended.and_then(Result::err).unwrap_or_else(ended_early);
                Some(Item::Unavailable(error))
            }
            Event::Listed(result) => {
                self.listing = None;
                match result {
                    Ok(reading) => Some(self.on_listed(reading)),
                    Err(error) => {
                        self.retry_later();
                        Some(Item::Unavailable(error))
                    }
                }
            }
            Event::RefreshRequested => {
                self.start_listing();
                None
            }
            Event::RelistDue => {
                self.relist_at = Instant::now() + self.options.relist_interval;
                self.start_listing();
                None
            }
            Event::RetryDue => {
                self.retry_at = None;
                if self.listing_required || self.is_refresh_requested() {
                    self.start_listing();
                }
                if self.synced && self.watch.is_none() {
                    self.start_watch();
                }
                None
            }
        }
    }

    fn on_changes(&mut self, mut changes: Vec<Change>, revision: Revision) -> Option<Item> {
        self.backoff = self.options.backoff_min;
        // A duplicate event, or an event that a listing already covers, is not newer than the view.
        changes.retain(|change| change.revision() > self.last_revision);
        for change in &changes {
            apply_change(&mut self.view, change);
        }
        if self.listing.is_some() {
            self.changes_during_listing.extend(changes.iter().cloned());
        }
        let advanced = revision > self.last_revision;
        self.last_revision = self.last_revision.max(revision);
        match (changes.is_empty(), advanced) {
            (false, _) => Some(Item::Changes { changes, revision: self.last_revision }),
            (true, true) => Some(Item::Progress(self.last_revision)),
            (true, false) => None,
        }
    }

    fn is_refresh_requested(&self) -> bool {
        let requests = &self.requests;
        requests.requested.load(Ordering::SeqCst) > requests.answered.load(Ordering::SeqCst)
    }

    /// Starts a listing, unless one is running; after it, another listing follows if still required.
    fn start_listing(&mut self) {
        if self.listing.is_some() {
            return;
        }
        self.covered_request = self.requests.requested.load(Ordering::SeqCst);
        self.changes_during_listing.clear();
        self.listed_from = self.last_revision;
        let store = self.store.clone();
        let selectors = self.selectors.clone();
        self.listing = Some(Box::pin(async move { store.list_all(&selectors).await }));
    }

    fn start_watch(&mut self) {
        self.watch = Some(self.store.watch_all(&self.selectors, self.last_revision + 1));
    }

    fn on_listed(&mut self, reading: Reading) -> Item {
        self.relist_at = Instant::now() + self.options.relist_interval;
        let revision_decreased = reading.revision < self.listed_from;
        let is_newer_than_watch = reading.revision > self.last_revision;
        let reading = if revision_decreased {
            reading
        } else {
            apply_later_changes(reading, std::mem::take(&mut self.changes_during_listing))
        };
        let view: BTreeMap<String, Revision> =
            reading.entries.iter().map(|entry| (entry.key.clone(), entry.mod_revision)).collect();
        let differs = view != self.view;
        if revision_decreased {
            tracing::warn!(
                revision = %reading.revision,
                last = %self.last_revision,
                "etcd revision decreased, reading again"
            );
        } else if self.synced && differs && !is_newer_than_watch {
            tracing::warn!(revision = %self.last_revision, "watch lost events, reading again");
        }
        self.last_revision =
            if revision_decreased { reading.revision } else { self.last_revision.max(reading.revision) };
        self.view = view;
        let watch_is_wrong = revision_decreased || (differs && !is_newer_than_watch);
        if self.watch.is_none() || watch_is_wrong {
            self.start_watch();
        }
        let answers_request =
            self.covered_request > self.requests.answered.swap(self.covered_request, Ordering::SeqCst);
        let must_yield_listing = self.listing_required || differs || answers_request || revision_decreased;
        self.synced = true;
        self.listing_required = false;
        if self.is_refresh_requested() {
            self.start_listing();
        }
        if must_yield_listing {
            Item::Synced(Reading { entries: reading.entries, revision: self.last_revision })
        } else {
            Item::Progress(self.last_revision)
        }
    }

    fn retry_later(&mut self) {
        // Half of the delay is random, so that many clients of one store do not retry at the same time.
        let random = RandomState::new().hash_one(0_u8);
        let fraction = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        let pause = self.backoff.mul_f64(0.5 + fraction / 2.0);
        let retry_time = Instant::now() + pause;
        self.retry_at = Some(self.retry_at.map_or(retry_time, |earlier| earlier.min(retry_time)));
        self.backoff = (self.backoff * 2).min(self.options.backoff_max);
    }
}

fn apply_change(view: &mut BTreeMap<String, Revision>, change: &Change) {
    match change {
        Change::Put(entry) => {
            view.insert(entry.key.clone(), entry.mod_revision);
        }
        Change::Delete { key, .. } => {
            view.remove(key);
        }
    }
}

/// Applies later changes to the result of a read.
fn apply_later_changes(reading: Reading, changes: Vec<Change>) -> Reading {
    let read_at = reading.revision;
    let mut entries: BTreeMap<String, Entry> =
        reading.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
    let mut revision = read_at;
    for change in changes.into_iter().filter(|change| change.revision() > read_at) {
        revision = revision.max(change.revision());
        match change {
            Change::Put(entry) => {
                entries.insert(entry.key.clone(), entry);
            }
            Change::Delete { key, .. } => {
                entries.remove(&key);
            }
        }
    }
    Reading { entries: entries.into_values().collect(), revision }
}

#[cfg(test)]
mod tests;
