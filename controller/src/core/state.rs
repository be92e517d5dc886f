//! The state of the core as a document, for `/state` of the admin endpoints and support dumps: the state that is not in
//! etcd, the work in progress, and the conditions that the controller waits for.

use super::Controller;
use ha_api_types::id::{ControllerId, MachineId, NodeName, Revision, Term};
use ha_api_types::reason::Reason;
use ha_api_types::time::{Millis, Now};
use ha_api_types::view::NextDeadline;
use serde::Serialize;
use std::collections::BTreeMap;

/// The state of the core at one instant. Times are in milliseconds from that instant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Id of the controller.
    pub id: ControllerId,
    /// Term of this controller as leader; absent if it is not leader.
    pub term: Option<Term>,
    /// `true` if the candidate key of this process is committed.
    pub is_candidate: bool,
    /// Machine of another process that refreshes this controller's keys; absent if there is none.
    pub duplicate: Option<MachineId>,
    /// `true` if a shutdown was requested.
    pub is_ending: bool,
    /// Revision of etcd up to which the view is complete.
    pub revision: Revision,
    /// Number of plans that this process has made.
    pub plans: u64,
    /// `true` if the last plan contained no action and no wait.
    #[serde(rename = "rests")]
    pub is_idle: bool,
    /// Time until the core acts without an event, and the reason; absent if it waits for events only.
    pub next: Option<NextDeadline>,
    /// Conditions that the leader waits for.
    pub waiting: Vec<Wait>,
    /// Subjects with a write in progress, or with a pause after a refused write.
    pub busy: Vec<String>,
    /// Nodes on which a fence device works.
    pub devices: Vec<NodeName>,
    /// Error of etcd for the last refused write; absent after a write was applied.
    pub refused: Option<String>,
    /// Time since this process saw the last heartbeat of each node.
    pub heartbeat_age_ms: BTreeMap<NodeName, Millis>,
}

/// A condition that the leader waits for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// The waiting object, such as `node/node1`.
    pub object: String,
    /// Reason of the wait.
    pub reason: Reason,
    /// Description of the wait, as a sentence.
    pub message: String,
}

impl Controller {
    /// Returns the state at this instant.
    pub fn state(&self, now: &Now) -> State {
        let waits = self.waiting.iter().map(|wait| Wait {
            object: format!("{}/{}", wait.kind.singular(), wait.name),
            reason: wait.reason,
            message: wait.message.clone(),
        });
        let observations = self.cluster_view.observations.iter();
        State {
            id: self.config.id.clone(),
            term: self.term(),
            is_candidate: self.election_state.candidate_key.is_some(),
            duplicate: self.election_state.duplicate.clone(),
            is_ending: self.election_state.is_ending,
            revision: self.cluster_view.revision,
            plans: self.plans,
            is_idle: self.is_idle,
            next: NextDeadline::of(self.deadline(), now),
            waiting: waits.collect(),
            busy: self.writes.subjects_in_flight().iter().map(|subject| format!("{subject:?}")).collect(),
            devices: self.devices.keys().cloned().collect(),
            refused: self.refused.clone(),
            heartbeat_age_ms: observations
                .map(|(node, observation)| (node.clone(), now.monotonic_raw.since(observation.since)))
                .collect(),
        }
    }
}
