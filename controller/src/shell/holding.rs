//! Passes hold requests from agents to the core, and the core's answers back to the agents.

use super::Inputs;
use crate::api::AskHold;
use crate::core::{HoldId, Input};
use futures::FutureExt;
use ha_api_types::record::HoldAnswer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Hold requests that wait for the core. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct HoldRequests {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    answers: BTreeMap<HoldId, oneshot::Sender<HoldAnswer>>,
}

impl HoldRequests {
    /// Returns the function that the API calls to request a hold from the core.
    pub(super) fn ask_function(&self, inputs: Inputs) -> AskHold {
        let holding = self.clone();
        Arc::new(move |node, request| {
            let (id, answer) = holding.wait();
            // Once the loop has ended, no answer comes: drop the sender, so that the receiver ends too.
            if inputs.send(Input::HoldRequested { id, node, request }).is_err() {
                holding.forget(id);
            }
            async move { answer.await.ok() }.boxed()
        })
    }

    /// Forwards the core's answer.
    pub(super) fn answer(&self, id: HoldId, answer: HoldAnswer) {
        if let Some(waiting) = self.forget(id) {
            // The client may have stopped waiting.
            let _ = waiting.send(answer);
        }
    }

    fn wait(&self) -> (HoldId, oneshot::Receiver<HoldAnswer>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.answers.retain(|_, known| !known.is_closed());
        waiting.next += 1;
        let id = HoldId(waiting.next);
        waiting.answers.insert(id, sender);
        (id, receiver)
    }

    fn forget(&self, id: HoldId) -> Option<oneshot::Sender<HoldAnswer>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).answers.remove(&id)
    }
}
