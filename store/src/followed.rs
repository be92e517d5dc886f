//! Which data a process follows: answers of one etcd cluster, and of data that continues what the process remembers (FENCING,
//! R1.29 to R1.32).

use ha_api_types::record::Incarnation;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What one process follows; clones share it, so that all clients of the process follow the same.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The key of the incarnation; empty: any data is followed.
    key: String,
    /// The name that the incarnation may list among its followers.
    who: String,
    remedy: String,
    /// The id of the etcd cluster whose answers are taken; 0: none has answered yet.
    cluster: u64,
    remembered: Option<String>,
    /// Another etcd cluster has answered; it has to be asked for its incarnation.
    stranger: Option<u64>,
    refused: Option<String>,
}

/// What a process does with the data that it has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It follows the data, and remembers this incarnation; `None`: the data has none yet.
    Follows(Option<String>),
    /// It follows the data since an operator has ordered that: as a process that remembers nothing.
    Begins(String),
    /// It refuses the data, and why.
    Refused(String),
}

impl Followed {
    /// A process that follows data with an incarnation under this key. `who` may be listed as follower, `remedy` is what an
    /// operator can do about a refusal.
    pub fn new(key: String, who: &str, remembered: Option<String>, remedy: String) -> Followed {
        let state = State { key, who: who.to_owned(), remedy, remembered, ..State::default() };
        Followed { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of the incarnation.
    pub fn key(&self) -> String {
        self.state().key.clone()
    }

    /// Why the data is refused; `None`: it is followed.
    pub fn refused(&self) -> Option<String> {
        self.state().refused.clone()
    }

    /// Judges the data that was read, by its incarnation.
    pub fn judge(&self, incarnation: Option<&Incarnation>) -> Verdict {
        let mut state = self.state();
        let verdict = state.verdict(incarnation);
        state.take(&verdict);
        verdict
    }

    /// Takes an answer of the etcd cluster with this id. The first one decides which cluster is followed.
    ///
    /// Errors: it is another cluster than before.
    pub(crate) fn accept(&self, cluster: u64) -> Result<(), String> {
        let mut state = self.state();
        if state.key.is_empty() || cluster == 0 || state.cluster == cluster {
            return Ok(());
        }
        if state.cluster == 0 {
            state.cluster = cluster;
            return Ok(());
        }
        state.stranger = Some(cluster);
        Err(format!("etcd cluster {cluster:x} answers, and this process follows cluster {:x}", state.cluster))
    }

    /// The key to read of an etcd cluster that is not followed, if one has answered.
    pub(crate) fn asks_stranger(&self) -> Option<String> {
        let state = self.state();
        state.stranger.map(|_| state.key.clone())
    }

    /// What another etcd cluster has under that key: the cluster is followed from now on, or refused.
    pub(crate) fn meet(&self, cluster: u64, incarnation: Option<&Incarnation>) {
        let mut state = self.state();
        if state.stranger.take() != Some(cluster) {
            return;
        }
        match state.verdict(incarnation) {
            Verdict::Follows(_) | Verdict::Begins(_) => {
                tracing::warn!(
                    cluster = format!("{cluster:x}"),
                    "etcd was restored as another cluster, following it"
                );
                state.cluster = cluster;
                state.refused = None;
            }
            // Members of the cluster that is followed may still answer.
            Verdict::Refused(why) => tracing::error!(why, "answers of another etcd cluster refused"),
        }
    }
}

impl State {
    fn verdict(&self, incarnation: Option<&Incarnation>) -> Verdict {
        let remembered = self.remembered.as_deref();
        match (incarnation, remembered) {
            (None, None) => Verdict::Follows(None),
            (Some(found), _) if found.continues(remembered) => Verdict::Follows(Some(found.value.clone())),
            (Some(found), _) if found.is_followed_by(&self.who) => Verdict::Begins(found.value.clone()),
            (found, Some(remembered)) => {
                let found =
                    found.map_or("no incarnation".to_owned(), |found| format!("incarnation {}", found.value));
                let remedy = &self.remedy;
                Verdict::Refused(format!(
                    "etcd has {found}, which does not continue {remembered}: if this etcd is the right one, {remedy}"
                ))
            }
            (Some(found), None) => Verdict::Follows(Some(found.value.clone())),
        }
    }

    fn take(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Follows(None) => self.refused = None,
            Verdict::Follows(Some(value)) | Verdict::Begins(value) => {
                self.remembered = Some(value.clone());
                self.refused = None;
            }
            Verdict::Refused(why) => self.refused = Some(why.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> Incarnation {
        Incarnation { value: value.to_owned(), ..Incarnation::default() }
    }

    fn following(remembered: Option<&str>) -> Followed {
        Followed::new(
            "incarnation".to_owned(),
            "n1",
            remembered.map(str::to_owned),
            "do something".to_owned(),
        )
    }

    #[test]
    fn answers_of_one_etcd_cluster_are_taken() {
        let followed = following(Some("a"));
        assert_eq!(followed.accept(7), Ok(()));
        assert_eq!(followed.accept(7), Ok(()));
        assert!(followed.accept(8).is_err());
        assert_eq!(followed.asks_stranger().as_deref(), Some("incarnation"));
        // Foreign data: refused, and the cluster that is followed still counts.
        followed.meet(8, Some(&of("x")));
        assert!(followed.accept(8).is_err());
        assert_eq!(followed.accept(7), Ok(()));
        // Data that was there before there were incarnations does not continue what is remembered.
        followed.meet(8, None);
        assert!(followed.accept(8).is_err());
        // A restore of one's own data.
        followed.meet(8, Some(&Incarnation::restored("b".to_owned(), Some(of("a")))));
        assert_eq!(followed.accept(8), Ok(()));
        assert!(followed.accept(7).is_err());
    }

    #[test]
    fn data_is_refused_until_an_operator_orders_to_follow_it() {
        let followed = following(Some("a"));
        assert_eq!(followed.judge(Some(&of("a"))), Verdict::Follows(Some("a".to_owned())));
        assert!(
            matches!(followed.judge(Some(&of("x"))), Verdict::Refused(why) if why.contains("do something"))
        );
        assert!(matches!(followed.judge(None), Verdict::Refused(_)));
        assert!(followed.refused().is_some());
        let ordered = Incarnation { followers: vec!["n1".to_owned()], ..of("x") };
        assert_eq!(followed.judge(Some(&ordered)), Verdict::Begins("x".to_owned()));
        assert_eq!(followed.judge(Some(&of("x"))), Verdict::Follows(Some("x".to_owned())));
        assert_eq!(followed.refused(), None);
        // One that remembers nothing follows, also what has no incarnation yet.
        let new = following(None);
        assert_eq!(new.judge(None), Verdict::Follows(None));
        assert_eq!(new.judge(Some(&of("x"))), Verdict::Follows(Some("x".to_owned())));
        assert!(matches!(new.judge(Some(&of("a"))), Verdict::Refused(_)));
    }
}
