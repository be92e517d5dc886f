//! The task of the election, with its own channels to etcd, so that no plan delays a refresh or a keep-alive.

use super::InputSender;
use super::commits::EtcdRequests;
use super::watching::{self, RefreshRequests};
use crate::core::candidacy::Candidacy;
use crate::core::{Config, Effect, Input};
use futures::stream::poll_fn;
use ha_api_types::time::{MonotonicTime, Now};
use ha_runtime::clock::SystemClock;
use ha_runtime::reconcile::{Core, run_core};
use ha_store::etcd::EtcdStore;
use tokio::sync::{mpsc, watch};

pub(super) struct ElectionTask {
    pub(super) config: Config,
    pub(super) store: EtcdStore,
    pub(super) link: EtcdRequests,
    pub(super) planner: InputSender,
    pub(super) ended: watch::Sender<bool>,
}

impl Core for Candidacy {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: &Now, input: Input) {
        Candidacy::handle(self, now, input);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        Candidacy::poll_effect(self)
    }

    fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
        Candidacy::deadline(self)
    }

    fn deadline_input() -> Input {
        Input::Tick
    }
}

/// Runs the election until the process exits. `inputs` is the sender for the election's own answers, `received` the
/// receiver of all inputs.
pub(super) fn spawn(
    task: ElectionTask,
    inputs: &InputSender,
    mut received: mpsc::UnboundedReceiver<Input>,
    clock: SystemClock,
) {
    let ElectionTask { config, store, link, planner, ended } = task;
    let refresher = watching::spawn_election(store, &config, inputs.clone());
    tokio::spawn(async move {
        let mut core = Candidacy::new(&config);
        let inputs = poll_fn(move |context| received.poll_recv(context));
        run_core(&mut core, &clock, inputs, |effect| begin(effect, &link, &refresher, &planner, &ended))
            .await;
    });
}

fn begin(
    effect: Effect,
    link: &EtcdRequests,
    refresher: &RefreshRequests,
    planner: &InputSender,
    ended: &watch::Sender<bool>,
) {
    match effect {
        Effect::Commit { id, transaction } => link.commit(id, transaction),
        Effect::Refresh { id } => refresher.request(id),
        Effect::GrantLease { ttl_seconds } => link.grant(ttl_seconds),
        Effect::KeepAlive { lease } => link.keep_alive(lease),
        Effect::Revoke { lease } => link.revoke(lease),
        Effect::ReportElection(election_state) => {
            // After the end of the planner, no receiver exists and the send fails.
            let _ = planner.send(Input::ElectionState(election_state));
        }
        Effect::Ended => {
            ended.send_replace(true);
        }
        // Only the planner has these effects.
        Effect::RunFencer(_)
        | Effect::Event { .. }
        | Effect::Deliver(_)
        | Effect::AnswerHold { .. }
        | Effect::Count(_)
        | Effect::UpdateElection(_) => {}
    }
}
