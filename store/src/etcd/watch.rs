//! Watches: several selectors on one stream, complete up to each reported revision.
//!
//! The client regularly requests the progress from the server, to detect a member that has stopped or is isolated. A
//! watch without a message for [`SILENT_PERIODS`] periods ends with an error. With several selectors, the events of one
//! revision come in several messages. They are held until the server reports that all watches of the stream are
//! complete up to that revision. The client requests this report immediately.

use super::Inner;
use super::failure::Failure;
use crate::store::{Change, StoreError, WatchItem};
use crate::transaction::Entry;
use etcd_client::{EventType, WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use ha_api_types::id::Revision;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Number of periods without a message after which a watch counts as failed. A period is the attempt timeout.
const SILENT_PERIODS: u32 = 3;
/// Interval between requests for the progress while events are held: the server does not answer while its watches catch
/// up.
const INCOMPLETE_REVISION_PERIOD: Duration = Duration::from_millis(20);
/// Watch id of an answer that applies to all watches of a stream.
const ALL_WATCHES: i64 = -1;

/// Returns the changes of the keys under the selectors, starting at a revision.
pub(super) fn watch(
    inner: Arc<Inner>,
    selectors: Vec<String>,
    from: Revision,
) -> BoxStream<'static, Result<WatchItem, StoreError>> {
    async_stream::stream! {
        let mut opened = match open(&inner, &selectors, from).await {
            Ok(opened) => opened,
            Err(failure) => {
                yield Err(failure.into_store_error());
                return;
            }
        };
        loop {
            match opened.next(&inner).await {
                Ok(Some(item)) => yield Ok(item),
                Ok(None) => {}
                Err(failure) => {
                    inner.demote(opened.member);
                    if let Failure::TokenExpired(_) = failure {
                        // The next watch needs a new token, and reports a failure to get one.
                        let _ = inner.members[opened.member].authenticate_again(&inner).await;
                    }
                    yield Err(failure.into_store_error());
                    return;
                }
            }
        }
    }
    .boxed()
}

/// A watch stream that the server has accepted.
struct OpenWatch {
    member: usize,
    sender: WatchRequestSender,
    responses: WatchResponseStream,
    /// `true` for several selectors, whose events are held until they are complete.
    several: bool,
    incomplete: BTreeMap<(Revision, String), Change>,
    last_response_at: Instant,
    next_progress_request_at: Instant,
}

async fn open(inner: &Arc<Inner>, selectors: &[String], from: Revision) -> Result<OpenWatch, Failure> {
    inner.check_followed(selectors)?;
    inner.check_versions().await?;
    let first = inner.preferred();
    let mut last = Failure::NotSent("no member was tried".to_owned());
    for index in (0..inner.members.len()).map(|offset| (first + offset) % inner.members.len()) {
        let endpoint = &inner.members[index].endpoint;
        let opening = open_on(inner, index, selectors, from);
        let result = tokio::time::timeout(inner.attempt_timeout(), opening).await.unwrap_or_else(|_| {
            Err(Failure::Unknown(format!("no watch within {} ms", inner.attempt_timeout().as_millis())))
        });
        match result {
            Ok(opened) => {
                inner.prefer(index);
                return Ok(opened);
            }
            Err(failure @ (Failure::Compacted(_) | Failure::Refused(_) | Failure::Configuration(_))) => {
                return Err(failure);
            }
            Err(
                failure @ (Failure::NotSent(_)
                | Failure::Unknown(_)
                | Failure::Full(_)
                | Failure::TokenExpired(_)
                | Failure::LeaseNotFound
                | Failure::Unsupported(_)),
            ) => last = failure.at(endpoint),
        }
    }
    Err(last)
}

async fn open_on(
    inner: &Arc<Inner>,
    member: usize,
    selectors: &[String],
    from: Revision,
) -> Result<OpenWatch, Failure> {
    let client = inner.members[member].client(inner).await?;
    let mut client = client.watch_client().max_decoding_message_size(usize::MAX);
    let Some((first, other_selectors)) = selectors.split_first() else {
        return Err(Failure::Configuration("a watch needs a selector".to_owned()));
    };
    let fail = |error: etcd_client::Error| Failure::of(&error);
    let stream =
        client.watch(first.as_str(), Some(options(first, from).with_watch_id(1))).await.map_err(fail)?;
    let (mut sender, mut responses) = stream.split();
    for (selector, id) in other_selectors.iter().zip(2..) {
        let options = options(selector, from).with_watch_id(id);
        sender.watch(selector.as_str(), Some(options)).await.map_err(fail)?;
    }
    let mut incomplete = BTreeMap::new();
    let mut created = 0;
    while created < selectors.len() {
        let response = responses.message().await.map_err(fail)?;
        let response = response.ok_or_else(|| Failure::Unknown("watch ended immediately".to_owned()))?;
        inner.accept(response.header()).map_err(fail)?;
        check_response(&response)?;
        created += usize::from(response.created());
        // A watch of the stream that was created earlier may already deliver events.
        incomplete.extend(changes(&response));
    }
    let now = Instant::now();
    Ok(OpenWatch {
        member,
        sender,
        responses,
        several: selectors.len() > 1,
        incomplete,
        last_response_at: now,
        next_progress_request_at: now,
    })
}

fn options(selector: &str, from: Revision) -> WatchOptions {
    let options = WatchOptions::new().with_start_revision(from.0).with_progress_notify();
    if selector.is_empty() {
        options.with_all_keys()
    } else if selector.ends_with('/') {
        options.with_prefix()
    } else {
        options
    }
}

impl OpenWatch {
    async fn next(&mut self, inner: &Inner) -> Result<Option<WatchItem>, Failure> {
        let period = inner.attempt_timeout();
        let silent_at = self.last_response_at + period * SILENT_PERIODS;
        tokio::select! {
            message = self.responses.message() => {
                let message = message.map_err(|error| Failure::of(&error))?;
                let response = message.ok_or_else(|| Failure::Unknown("watch ended".to_owned()))?;
                self.last_response_at = Instant::now();
                self.handle(&response)
            }
            () = tokio::time::sleep_until(self.next_progress_request_at) => {
                self.next_progress_request_at = Instant::now() + if self.incomplete.is_empty() { period } else { INCOMPLETE_REVISION_PERIOD };
                let asking = tokio::time::timeout_at(silent_at, self.sender.request_progress());
                match asking.await {
                    Ok(asked) => asked.map_err(|error| Failure::of(&error)).map(|()| None),
                    Err(_) => Err(self.silence_failure(inner)),
                }
            }
            () = tokio::time::sleep_until(silent_at) => {
                Err(self.silence_failure(inner))
            }
        }
    }

    fn silence_failure(&self, inner: &Inner) -> Failure {
        let endpoint = &inner.members[self.member].endpoint;
        let silence = self.last_response_at.elapsed().as_millis();
        Failure::Unknown(format!("{endpoint}: no message on the watch for {silence} ms"))
    }

    fn handle(&mut self, response: &WatchResponse) -> Result<Option<WatchItem>, Failure> {
        check_response(response)?;
        let had_none = self.incomplete.is_empty();
        self.incomplete.extend(changes(response));
        let newest = self.incomplete.last_key_value().map(|((revision, _), _)| *revision);
        if !self.several {
            // A single watch delivers its events in order, and all events of one revision in one message.
            if let Some(revision) = newest {
                return Ok(self.take_complete_changes(revision));
            }
        }
        let covers_all_watches = !self.several || response.watch_id() == ALL_WATCHES;
        if covers_all_watches && response.events().is_empty() && !response.created() {
            let revision = response.header().map_or(0, etcd_client::ResponseHeader::revision);
            return Ok(Some(
                self.take_complete_changes(Revision(revision))
                    .unwrap_or(WatchItem::Progress(Revision(revision))),
            ));
        }
        if had_none && !self.incomplete.is_empty() {
            self.next_progress_request_at = Instant::now();
        }
        Ok(None)
    }

    /// Returns the held events up to a revision.
    fn take_complete_changes(&mut self, revision: Revision) -> Option<WatchItem> {
        let later = self.incomplete.split_off(&(revision + 1, String::new()));
        let complete = std::mem::replace(&mut self.incomplete, later);
        let changes: Vec<Change> = complete.into_values().collect();
        (!changes.is_empty()).then_some(WatchItem::Changes { changes, revision })
    }
}

/// Returns an error if the server has ended the watch.
fn check_response(response: &WatchResponse) -> Result<(), Failure> {
    if response.compact_revision() > 0 {
        return Err(Failure::Compacted(Revision(response.compact_revision())));
    }
    if response.canceled() {
        return Err(Failure::of_cancel_reason(response.cancel_reason()));
    }
    Ok(())
}

fn changes(response: &WatchResponse) -> BTreeMap<(Revision, String), Change> {
    response
        .events()
        .iter()
        .filter_map(|event| {
            let Entry { key, value, create_revision, mod_revision, lease } = super::to_entry(event.kv()?);
            let position = (mod_revision, key.clone());
            Some(match event.event_type() {
                EventType::Put => {
                    (position, Change::Put(Entry { key, value, create_revision, mod_revision, lease }))
                }
                EventType::Delete => (position, Change::Delete { key, revision: mod_revision }),
            })
        })
        .collect()
}
