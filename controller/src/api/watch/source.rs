//! The source of one watch: the feed that all watches share, or a separate watch of the store.

use super::check_start;
use super::feed::{FeedUpdate, FeedUpdates, Progress};
use super::table::{ObjectChange, ObjectTable};
use crate::api::ApiState;
use crate::api::error::ApiError;
use crate::api::read::{self, StoredKeys};
use futures::StreamExt;
use futures::stream::BoxStream;
use ha_api_types::id::Revision;
use ha_api_types::kind::Kind;
use ha_store::{Store, StoreError, WatchItem};
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;

/// Source of the changes of a watch.
pub(super) enum Source {
    /// The feed: changes that it kept, the receiver of the later ones, and the progress without changes.
    Feed(Option<FeedUpdate>, FeedUpdates, Progress),
    /// The store. Used for a watch that resumes from a revision before the changes that the feed kept, and while the
    /// feed does not follow the store.
    Store(ObjectTable, BoxStream<'static, Result<WatchItem, StoreError>>),
}

/// Start of a watch: the revision, and the objects unless the watch resumes.
pub(super) struct Begin {
    /// All objects; `None` if the watch resumes.
    pub(super) objects: Option<Vec<Arc<StoredKeys>>>,
    /// Revision after which the changes follow.
    pub(super) revision: Revision,
    pub(super) source: Source,
}

/// Next item of a source.
pub(super) enum Next {
    Changes {
        changes: Vec<Arc<ObjectChange>>,
        /// Revision up to which the changes are complete.
        revision: Revision,
    },
    Failed(StoreError),
}

impl Source {
    /// Begins a watch with all objects (`None`), or after a revision.
    pub(super) async fn begin<S: Store>(
        state: &ApiState<S>,
        kind: Kind,
        from: Option<Revision>,
    ) -> Result<Begin, ApiError> {
        // A read of one key, which need not exist, returns a revision that etcd has reached.
        let present = state.store().get(&state.keys().incarnation()).await?.revision;
        check_start(from, present)?;
        if let Some(subscription) = state.feed(kind).subscribe(from, present).await {
            let revision = from.unwrap_or(subscription.update.revision);
            let objects = from.is_none().then_some(subscription.objects);
            let source = Source::Feed(Some(subscription.update), subscription.updates, subscription.progress);
            return Ok(Begin { objects, revision, source });
        }
        let selectors = read::selectors(state.keys(), kind);
        let reading = state.store().list_all(&selectors).await?;
        let table = ObjectTable::new(kind, state.keys().clone(), &reading.entries, from.is_some());
        let objects = from.is_none().then(|| table.objects().cloned().collect());
        let revision = from.unwrap_or(reading.revision);
        let items = state.store().watch_all(&selectors, revision + 1);
        Ok(Begin { objects, revision, source: Source::Store(table, items) })
    }

    /// Returns a revision up to which the watch has received all changes, if it is known without the next item.
    pub(super) fn progress(&self) -> Option<Revision> {
        match self {
            Source::Feed(None, updates, progress) => progress.reached(updates),
            Source::Feed(Some(_), ..) | Source::Store(..) => None,
        }
    }

    pub(super) async fn next(&mut self) -> Next {
        match self {
            Source::Feed(kept, updates, _) => {
                if let Some(FeedUpdate { changes, revision }) = kept.take() {
                    return Next::Changes { changes, revision };
                }
                match updates.recv().await {
                    Ok(Ok(update)) => {
                        Next::Changes { changes: update.changes.clone(), revision: update.revision }
                    }
                    Ok(Err(error)) => Next::Failed(error),
                    // The client reads too slowly. It resumes from its last revision.
                    Err(RecvError::Lagged(_)) => {
                        Next::Failed(StoreError::Unreachable("the client reads too slowly".to_owned()))
                    }
                    Err(RecvError::Closed) => {
                        Next::Failed(StoreError::Unreachable("the feed of changes has ended".to_owned()))
                    }
                }
            }
            Source::Store(table, items) => match items.next().await {
                Some(Ok(WatchItem::Changes { changes, revision })) => {
                    Next::Changes { changes: table.apply(&changes), revision }
                }
                Some(Ok(WatchItem::Progress(revision))) => Next::Changes { changes: Vec::new(), revision },
                Some(Err(error)) => Next::Failed(error),
                None => Next::Failed(StoreError::Unreachable("watch ended".to_owned())),
            },
        }
    }
}
