//! The data that a process follows: answers of one etcd cluster, and data that continues the remembered incarnation
//! (FENCING, R1.29 to R1.32).

use ha_api_types::id::NodeName;
use ha_api_types::record::Incarnation;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The data that one process follows. Clones share the state, so all clients of the process follow the same data.
#[derive(Clone, Debug, Default)]
pub struct FollowedData {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Key of the incarnation; empty if any data is followed.
    key: String,
    /// Node of this agent, which the incarnation may list among its followers; `None` for a controller.
    node: Option<NodeName>,
    remedy: String,
    /// Id of the etcd cluster whose answers are accepted; 0 if none has answered yet.
    cluster: u64,
    recorded_incarnation: Option<String>,
    /// Id of another etcd cluster that has answered, and whose incarnation must be read.
    unverified_cluster: Option<u64>,
    refusal: Option<String>,
}

/// Decision of a process on the data that it has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The process follows the data, and stores this incarnation; `None` if the data has none yet.
    Follows(Option<String>),
    /// The process follows the data because an operator has ordered it, as if it remembered no incarnation.
    AllowedByOperator(String),
    /// The process refuses the data, with the reason.
    Refused(String),
}

impl FollowedData {
    /// Creates the state of a process that follows data with an incarnation under `key`.
    ///
    /// `node` is the node of an agent, which the incarnation may list among its followers; `None` for a controller. `remedy`
    /// is the operator's action that resolves a refusal.
    pub fn new(
        key: String,
        node: Option<NodeName>,
        recorded_incarnation: Option<String>,
        remedy: String,
    ) -> FollowedData {
        let state = State { key, node, remedy, recorded_incarnation, ..State::default() };
        FollowedData { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the key of the incarnation.
    pub fn key(&self) -> String {
        self.state().key.clone()
    }

    /// Returns the reason why the data is refused; `None` if it is followed.
    pub fn refused(&self) -> Option<String> {
        self.state().refusal.clone()
    }

    /// Decides whether to follow the data that was read, by its incarnation.
    pub fn judge(&self, incarnation: Option<&Incarnation>) -> Verdict {
        let mut state = self.state();
        let verdict = state.verdict(incarnation);
        state.record_verdict(&verdict);
        verdict
    }

    /// Accepts an answer of the etcd cluster with this id. The first answer determines which cluster is followed.
    ///
    /// Errors: the answer comes from another cluster.
    pub(crate) fn accept(&self, cluster: u64) -> Result<(), String> {
        let mut state = self.state();
        if state.key.is_empty() || cluster == 0 || state.cluster == cluster {
            return Ok(());
        }
        if state.cluster == 0 {
            state.cluster = cluster;
            return Ok(());
        }
        state.unverified_cluster = Some(cluster);
        Err(format!(
            "etcd cluster {cluster:x} answered, but this process follows etcd cluster {:x}",
            state.cluster
        ))
    }

    /// Returns the incarnation key that must be read from another etcd cluster, if one has answered.
    pub(crate) fn unverified_cluster_key(&self) -> Option<String> {
        let state = self.state();
        state.unverified_cluster.map(|_| state.key.clone())
    }

    /// Processes the incarnation of another etcd cluster: from now on, the process follows the cluster or refuses it.
    pub(crate) fn resolve_other_cluster(&self, cluster: u64, incarnation: Option<&Incarnation>) {
        let mut state = self.state();
        if state.unverified_cluster.take() != Some(cluster) {
            return;
        }
        match state.verdict(incarnation) {
            Verdict::Follows(_) | Verdict::AllowedByOperator(_) => {
                tracing::warn!(
                    cluster = format!("{cluster:x}"),
                    "following another etcd cluster because etcd was restored"
                );
                state.cluster = cluster;
                state.refusal = None;
            }
            // Members of the followed cluster may still answer.
            Verdict::Refused(cause) => {
                tracing::error!(why = cause, "rejected answers of another etcd cluster");
            }
        }
    }
}

impl State {
    fn verdict(&self, incarnation: Option<&Incarnation>) -> Verdict {
        let recorded_incarnation = self.recorded_incarnation.as_deref();
        match (incarnation, recorded_incarnation) {
            (None, None) => Verdict::Follows(None),
            (Some(stored), _) if stored.continues(recorded_incarnation) => {
                Verdict::Follows(Some(stored.value.clone()))
            }
            (Some(stored), _) if self.node.as_ref().is_some_and(|node| stored.is_followed_by(node)) => {
                Verdict::AllowedByOperator(stored.value.clone())
            }
            (stored, Some(recorded_incarnation)) => {
                let stored_incarnation = stored
                    .map_or("no incarnation".to_owned(), |stored| format!("incarnation {}", stored.value));
                let remedy = &self.remedy;
                Verdict::Refused(format!(
                    "etcd contains different data ({stored_incarnation}) from the data that this process used before (incarnation \
                     {recorded_incarnation}): if this is the correct etcd, {remedy}"
                ))
            }
            (Some(stored), None) => Verdict::Follows(Some(stored.value.clone())),
        }
    }

    fn record_verdict(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Follows(None) => self.refusal = None,
            Verdict::Follows(Some(value)) | Verdict::AllowedByOperator(value) => {
                self.recorded_incarnation = Some(value.clone());
                self.refusal = None;
            }
            Verdict::Refused(cause) => self.refusal = Some(cause.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incarnation_of(value: &str) -> Incarnation {
        Incarnation { value: value.to_owned(), ..Incarnation::default() }
    }

    fn follow_recorded(recorded_incarnation: Option<&str>) -> FollowedData {
        FollowedData::new(
            "incarnation".to_owned(),
            Some("n1".into()),
            recorded_incarnation.map(str::to_owned),
            "do something".to_owned(),
        )
    }

    #[test]
    fn only_answers_of_followed_cluster_are_accepted() {
        let followed = follow_recorded(Some("a"));
        assert_eq!(followed.accept(7), Ok(()));
        assert_eq!(followed.accept(7), Ok(()));
        assert!(followed.accept(8).is_err());
        assert_eq!(followed.unverified_cluster_key().as_deref(), Some("incarnation"));
        // Data of another cluster is refused, and the followed cluster stays the same.
        followed.resolve_other_cluster(8, Some(&incarnation_of("x")));
        assert!(followed.accept(8).is_err());
        assert_eq!(followed.accept(7), Ok(()));
        // Data without an incarnation does not continue a remembered incarnation.
        followed.resolve_other_cluster(8, None);
        assert!(followed.accept(8).is_err());
        // A restore of the followed data.
        followed.resolve_other_cluster(
            8,
            Some(&Incarnation::restored("b".to_owned(), Some(incarnation_of("a")))),
        );
        assert_eq!(followed.accept(8), Ok(()));
        assert!(followed.accept(7).is_err());
    }

    #[test]
    fn foreign_data_needs_an_operator_order() {
        let followed = follow_recorded(Some("a"));
        assert_eq!(followed.judge(Some(&incarnation_of("a"))), Verdict::Follows(Some("a".to_owned())));
        assert!(
            matches!(followed.judge(Some(&incarnation_of("x"))), Verdict::Refused(why) if why.contains("do something"))
        );
        assert!(matches!(followed.judge(None), Verdict::Refused(_)));
        assert!(followed.refused().is_some());
        let ordered = Incarnation { followers: vec!["n1".into()], ..incarnation_of("x") };
        assert_eq!(followed.judge(Some(&ordered)), Verdict::AllowedByOperator("x".to_owned()));
        assert_eq!(followed.judge(Some(&incarnation_of("x"))), Verdict::Follows(Some("x".to_owned())));
        assert_eq!(followed.refused(), None);
        // A process without a stored incarnation follows any data, including data without one.
        let new = follow_recorded(None);
        assert_eq!(new.judge(None), Verdict::Follows(None));
        assert_eq!(new.judge(Some(&incarnation_of("x"))), Verdict::Follows(Some("x".to_owned())));
        assert!(matches!(new.judge(Some(&incarnation_of("a"))), Verdict::Refused(_)));
    }
}
