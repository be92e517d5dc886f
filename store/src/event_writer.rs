//! Writer of events to the store: leased and best effort. No operation waits for events, and old events expire.

use crate::store::Store;
use crate::transaction::{Guard, LeaseId, Outcome, Transaction};
use ha_api_types::event::{EVENT_TTL_SECONDS, Event};
use ha_api_types::keys::Keys;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Maximum number of events that wait while etcd is unreachable; more are discarded.
const QUEUE_CAPACITY: usize = 4096;
/// Time after which a new lease is taken, so that an event is kept for at least half of its lifetime.
const LEASE_REUSE_PERIOD: Duration = Duration::from_secs(EVENT_TTL_SECONDS.unsigned_abs() / 2);

/// Writer of events, in order. Clones share its queue.
#[derive(Clone, Debug)]
pub struct EventWriter {
    items: mpsc::Sender<Item>,
}

#[derive(Debug)]
enum Item {
    Event(String, Box<Event>),
    Flush(oneshot::Sender<()>),
}

impl EventWriter {
    /// Starts a writer. `writer` is the part of the keys that belongs to this process, such as `agent-node1`.
    pub fn spawn<S: Store>(store: S, keys: Keys, writer: String) -> EventWriter {
        let (items, mut received) = mpsc::channel::<Item>(QUEUE_CAPACITY);
        tokio::spawn(async move {
            let mut lease: Option<(LeaseId, Instant)> = None;
            while let Some(item) = received.recv().await {
                match item {
                    Item::Event(name, event) => {
                        write(&store, &mut lease, keys.event(&writer, &name), &event).await;
                    }
                    // The caller may have stopped waiting.
                    Item::Flush(done) => drop(done.send(())),
                }
            }
        });
        EventWriter { items }
    }

    /// Queues an event; `name` must be unique for this writer. The event is discarded if the queue is full.
    pub fn write(&self, name: String, event: Event) {
        if self.items.try_send(Item::Event(name, Box::new(event))).is_err() {
            tracing::warn!("dropped an event because too many events wait for etcd");
        }
    }

    /// Waits up to 1 s for the queued events. A longer wait would delay the end of the process.
    pub async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.items.try_send(Item::Flush(done)).is_ok() {
            let _ = tokio::time::timeout(Duration::from_secs(1), wait).await;
        }
    }
}

async fn write<S: Store>(store: &S, lease: &mut Option<(LeaseId, Instant)>, key: String, event: &Event) {
    let Ok(value) = serde_json::to_vec(event) else { return };
    for _ in 0..3 {
        let id = match lease {
            Some((id, since)) if since.elapsed() < LEASE_REUSE_PERIOD => *id,
            Some(_) | None => match store.grant_lease(EVENT_TTL_SECONDS).await {
                Ok(id) => {
                    *lease = Some((id, Instant::now()));
                    id
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot write an event");
                    return;
                }
            },
        };
        let transaction = Transaction::new().put_leased(key.clone(), Guard::Absent, value.clone(), id);
        match store.commit(transaction).await {
            Outcome::LeaseNotFound => *lease = None,
            Outcome::Applied(_) | Outcome::Conflict(_) => return,
            // The name is unique, so the next attempt conflicts if the event was written.
            Outcome::Unknown(why) => tracing::debug!(why, "cannot confirm that an event was written"),
            Outcome::Refused(cause) => {
                tracing::debug!(why = cause, "cannot write an event");
                return;
            }
        }
    }
}
