//! The vocabulary that a run has shown to its users: states, proofs and reasons in every place where a user could read them.

use ha_api_types::event::Event;
use ha_api_types::id::{ResourceName, Revision};
use ha_api_types::keys::{Key, Keys};
use ha_api_types::kind::Kind;
use ha_api_types::node::NodeState;
use ha_api_types::operation::OperationPhase;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, Mode, Proof};
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_api_types::time::MonotonicTime;
use ha_api_types::view::Explanation;
use ha_controller::core::explain::explain;
use ha_controller::core::world::ClusterView as Stored;
use ha_store::{Change, Entry};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// A word that users can read, such as a reason or a state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word {
    /// Kind of the word, such as `reason` or `service state`.
    pub kind: &'static str,
    /// The word, as users read it.
    pub name: String,
}

impl Word {
    /// Returns the word of a reason.
    pub fn reason(reason: Reason) -> Word {
        Word { kind: "reason", name: reason.as_str().to_owned() }
    }

    fn debug_name(kind: &'static str, name: impl fmt::Debug) -> Word {
        Word { kind, name: format!("{name:?}") }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// States of an agent and its lock, as in `NodeStatus.agent`.
const AGENT_STATES: [&str; 3] = ["WaitForLock", "Active", "LostLock"];
/// States of the watchdogs of a node or of the cluster.
const ARMING_STATES: [&str; 4] = ["Armed", "Disarming", "Disarmed", "Arming"];

/// All words that users could read in a run.
#[derive(Debug)]
pub struct Vocabulary {
    /// Parsed content of the store.
    stored: Stored,
    keys: Keys,
    words: BTreeSet<Word>,
}

impl Vocabulary {
    /// Returns every word that exists.
    pub fn every_word() -> BTreeSet<Word> {
        let words_of_kind = |kind: &'static str, names: &[&str]| -> Vec<Word> {
            names.iter().map(|name| Word { kind, name: (*name).to_owned() }).collect()
        };
        let mut words: BTreeSet<Word> = Reason::ALL.iter().map(|reason| Word::reason(*reason)).collect();
        words.extend(ServiceState::ALL.map(|state| Word::debug_name("service state", state)));
        words.extend(RequestedState::ALL.map(|state| Word::debug_name("requested state", state)));
        words.extend(NodeState::ALL.map(|state| Word::debug_name("node state", state)));
        words.extend(FenceState::ALL.map(|state| Word::debug_name("fence state", state)));
        words.extend(OperationPhase::ALL.map(|phase| Word::debug_name("operation phase", phase)));
        words.extend(words_of_kind("proof", &Proof::NAMES));
        words.extend(words_of_kind("agent mode", &Mode::NAMES));
        words.extend(words_of_kind("agent state", &AGENT_STATES));
        words.extend(words_of_kind("arming of a node", &ARMING_STATES));
        words.extend(words_of_kind("arming of the cluster", &ARMING_STATES));
        words
    }

    /// Collects the words in the content of a store.
    pub(crate) fn from_store(keys: Keys, entries: Vec<Entry>, revision: Revision) -> Vocabulary {
        let mut vocabulary = Vocabulary { stored: Stored::new(keys.clone()), keys, words: BTreeSet::new() };
        let changes: Vec<Change> = entries.into_iter().map(Change::Put).collect();
        vocabulary.record_changes(&changes, revision);
        vocabulary
    }

    /// Returns the words collected so far.
    pub fn words(&self) -> &BTreeSet<Word> {
        &self.words
    }

    /// Collects the words in `changes`, and in the explanation of every service that the changes affect.
    pub(crate) fn record_changes(&mut self, changes: &[Change], revision: Revision) {
        let keys = self.keys.clone();
        self.stored.apply(changes.to_vec(), revision, MonotonicTime(0));
        for change in changes {
            let Change::Put(entry) = change else { continue };
            match keys.parse(&entry.key) {
                Some(Key::Status(kind, name)) => self.record_status(kind, name, &entry.value),
                Some(Key::Fence(node)) => {
                    let proof = self.stored.fences.get(&node).and_then(|fence| fence.value.proof.clone());
                    self.words
                        .extend(proof.map(|proof| Word { kind: "proof", name: proof.name().to_owned() }));
                }
                Some(Key::Spec(Kind::Resource, name)) => {
                    let resource = self.stored.resources.get(name);
                    self.words.extend(
                        resource
                            .map(|resource| Word::debug_name("requested state", resource.value.spec.state)),
                    );
                }
                Some(
                    Key::Spec(..)
                    | Key::Assignment(_)
                    | Key::Tombstone(_)
                    | Key::NotificationRecord
                    | Key::Backup
                    | Key::RestoreMarker
                    | Key::Incarnation
                    | Key::Leader
                    | Key::Candidate(_)
                    | Key::Refresh(_)
                    | Key::Alive(_)
                    | Key::NodeReport(_)
                    | Key::DoctorReport(_)
                    | Key::UsageReport(_)
                    | Key::ServiceReport(..)
                    | Key::Event(..)
                    | Key::LogRequest(..)
                    | Key::JoinToken(..)
                    | Key::IssuedCertificate(..)
                    | Key::LogAnswer(..),
                )
                | None => {}
            }
        }
    }

    /// Collects the reason of an event.
    pub(crate) fn record_event(&mut self, event: &Event) {
        self.words.insert(Word::reason(event.reason));
    }

    /// Collects the reason for the refusal of a command that was not recorded.
    pub(crate) fn record_refusal(&mut self, reason: Reason) {
        self.words.insert(Word::reason(reason));
    }

    /// Collects the words in the explanation of every service.
    pub(crate) fn record_explanations(&mut self) {
        let names: Vec<ResourceName> = self.stored.resources.keys().cloned().collect();
        for name in names {
            self.record_explanation(&name);
        }
    }

    fn record_explanation(&mut self, name: &ResourceName) {
        let Some(explanation) = explain_service(&self.stored, name) else { return };
        self.words.insert(Word::reason(explanation.reason));
        let causes = explanation.nodes.iter().flat_map(|verdict| &verdict.causes);
        self.words.extend(causes.map(|cause| Word::reason(cause.reason)));
    }

    fn record_status(&mut self, kind: Kind, name: &str, value: &[u8]) {
        if let Ok(value) = serde_json::from_slice::<Value>(value) {
            collect_reasons(&value, &mut self.words);
        }
        let stored = &self.stored;
        let optional_word =
            |kind: &'static str, name: &str| (!name.is_empty()).then(|| Word { kind, name: name.to_owned() });
        match kind {
            Kind::Resource => {
                let status = stored.resource_statuses.get(name);
                self.words.extend(status.map(|status| Word::debug_name("service state", status.value.state)));
                self.record_explanation(&name.into());
            }
            Kind::Node => {
                let Some(status) = stored.node_statuses.get(name).map(|status| &status.value) else { return };
                self.words.insert(Word::debug_name("node state", status.state));
                self.words.extend(optional_word("fence state", &status.fence));
                self.words.extend(optional_word("agent mode", &status.mode));
                self.words.extend(optional_word("agent state", &status.agent));
                self.words.extend(optional_word("arming of a node", &status.arming));
            }
            Kind::Cluster => {
                let Some(status) = &stored.cluster_status else { return };
                self.words.extend(optional_word("arming of the cluster", &status.value.arming));
            }
            Kind::Operation => {
                let status = stored.operation_statuses.get(name);
                self.words
                    .extend(status.map(|status| Word::debug_name("operation phase", status.value.phase)));
            }
            Kind::Group | Kind::AffinityRule | Kind::NodeGroup | Kind::GitSync => {}
        }
    }
}

/// Returns the explanation that `hactl why` prints for a service; `None` if the resource does not exist.
pub(crate) fn explain_service(stored: &Stored, name: &ResourceName) -> Option<Explanation> {
    stored.resources.get(name).map(|resource| explain(stored, &resource.value))
}

/// Collects the reasons in a status: those of conditions, of the last fencing, and of an operation's outcome.
fn collect_reasons(value: &Value, words: &mut BTreeSet<Word>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let reason = ["reason", "lastProof"].contains(&key.as_str()).then(|| value.clone());
                let reason = reason.and_then(|value| serde_json::from_value::<Reason>(value).ok());
                words.extend(reason.map(Word::reason));
                collect_reasons(value, words);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_reasons(item, words)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
