//! Passes hold requests from agents to the core, and the core's answers back to the agents.

use super::InputSender;
use crate::api::RequestHold;
use crate::core::{HoldId, Input};
use futures::FutureExt;
use ha_api_types::record::HoldAnswer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Hold requests that wait for the core. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct HoldRequests {
    pending: Arc<Mutex<PendingRequests>>,
}

#[derive(Default)]
struct PendingRequests {
    last_id: u64,
    answer_senders: BTreeMap<HoldId, oneshot::Sender<HoldAnswer>>,
}

impl HoldRequests {
    /// Returns the function that the API calls to request a hold from the core.
    pub(super) fn request_function(&self, inputs: InputSender) -> RequestHold {
        let hold_requests = self.clone();
        Arc::new(move |node, request| {
            let (id, answer) = hold_requests.register();
            // After the end of the loop, no answer comes. Drop the sender, so that the receiver ends too.
            if inputs.send(Input::HoldRequested { id, node, request }).is_err() {
                hold_requests.discard(id);
            }
            async move { answer.await.ok() }.boxed()
        })
    }

    /// Forwards the core's answer.
    pub(super) fn answer(&self, id: HoldId, answer: HoldAnswer) {
        if let Some(sender) = self.discard(id) {
            // The client may have stopped waiting.
            let _ = sender.send(answer);
        }
    }

    fn register(&self) -> (HoldId, oneshot::Receiver<HoldAnswer>) {
        let (sender, receiver) = oneshot::channel();
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.answer_senders.retain(|_, sender| !sender.is_closed());
        pending.last_id += 1;
        let id = HoldId(pending.last_id);
        pending.answer_senders.insert(id, sender);
        (id, receiver)
    }

    fn discard(&self, id: HoldId) -> Option<oneshot::Sender<HoldAnswer>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).answer_senders.remove(&id)
    }
}
