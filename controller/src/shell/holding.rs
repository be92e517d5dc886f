//! Questions of agents on their way to the core, and its answers on their way back.

use super::Inputs;
use crate::api::AskHold;
use crate::core::{HoldId, Input};
use futures::FutureExt;
use ha_api_types::record::HoldAnswer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Questions that wait for the core. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Holding {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    next: HoldId,
    answers: BTreeMap<HoldId, oneshot::Sender<HoldAnswer>>,
}

impl Holding {
    /// What the API asks with.
    pub(super) fn asker(&self, inputs: Inputs) -> AskHold {
        let holding = self.clone();
        Arc::new(move |node, request| {
            let (id, answer) = holding.wait();
            // Nobody listens any more once the loop has ended: then the answer never comes, and its sender is dropped here.
            if inputs.send(Input::HoldAsked { id, node, request }).is_err() {
                holding.forget(id);
            }
            async move { answer.await.ok() }.boxed()
        })
    }

    /// The core has answered.
    pub(super) fn answer(&self, id: HoldId, answer: HoldAnswer) {
        if let Some(waiting) = self.forget(id) {
            // Who asked may have given up.
            let _ = waiting.send(answer);
        }
    }

    fn wait(&self) -> (HoldId, oneshot::Receiver<HoldAnswer>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.answers.retain(|_, known| !known.is_closed());
        waiting.next += 1;
        let id = waiting.next;
        waiting.answers.insert(id, sender);
        (id, receiver)
    }

    fn forget(&self, id: HoldId) -> Option<oneshot::Sender<HoldAnswer>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).answers.remove(&id)
    }
}
