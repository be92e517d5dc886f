//! Refusal of protocol words that not every controller and registered node can read yet (FENCING, R1.13).

use super::admission::Admitted;
use super::error::ApiError;
use super::read::Stored;
use super::{ApiState, facts};
use crate::core::world::ClusterView;
use ha_api_types::kind::Kind;
use ha_api_types::problem::Problem;
use ha_api_types::protocol::{AddedValue, Protocol, values_added_after};
use ha_store::Store;

/// Refuses an object with a value that needs a later protocol version than every component reads. A value that is
/// already stored is not refused again.
pub(super) async fn check<S: Store>(
    state: &ApiState<S>,
    kind: Kind,
    current: Option<&Stored>,
    admitted: &Admitted,
) -> Result<(), ApiError> {
    let earlier_words = current
        .map(|current| values_added_after(kind, &current.spec.value, Protocol::FIRST))
        .unwrap_or_default();
    let mut words = values_added_after(kind, &admitted.value, Protocol::FIRST);
    words.retain(|word| !earlier_words.contains(word));
    if words.is_empty() {
        return Ok(());
    }
    let cluster_view = facts::cluster_view(state).await?;
    let problems = refusals(&cluster_view, &words);
    if problems.is_empty() { Ok(()) } else { Err(ApiError::invalid(kind, &admitted.name, &problems)) }
}

fn refusals(cluster_view: &ClusterView, words: &[AddedValue]) -> Vec<Problem> {
    let refused = words.iter().filter(|word| !cluster_view.may_write(word.since));
    refused
        .map(|word| {
            let outdated = cluster_view.outdated_readers(word.since);
            let remedy = if outdated.is_empty() {
                ", which the leader has not confirmed yet: try again in a few seconds".to_owned()
            } else {
                format!(": finish the upgrade of {}", outdated.join(", "))
            };
            let message = format!("{} requires protocol {}{remedy}", word.value, word.since);
            Problem::forbidden(word.field.trim_start_matches('/').replace('/', "."), message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::cluster::{CLUSTER_NAME, ClusterStatus};
    use ha_api_types::id::{Epoch, Revision};
    use ha_api_types::keys::Keys;
    use ha_api_types::record::{Candidate, Fence, FenceState, NodeReport};
    use ha_api_types::time::MonotonicTime;
    use ha_store::Entry;
    use serde::Serialize;

    fn entry(key: String, value: &impl Serialize) -> Entry {
        let value = serde_json::to_vec(value).expect("sound").into();
        Entry {
            key,
            value,
            create_revision: Revision(1),
            mod_revision: Revision(1),
            lease: ha_store::LeaseId::NONE,
        }
    }

    #[test]
    fn newer_enum_value_refusal_names_outdated_processes() {
        let keys = Keys::new("test");
        let word =
            AddedValue { kind: Kind::Operation, field: "/spec/action", value: "NotHere", since: Protocol(2) };
        let cluster_view = |stored: u32, controller: u32, node: u32| {
            let status = ClusterStatus { protocol: Protocol(stored), ..ClusterStatus::default() };
            let candidate = Candidate { protocol: Protocol(controller), ..Candidate::default() };
            let fence = Fence { state: FenceState::Open, epoch: Epoch(1), ..Fence::default() };
            let report = NodeReport { protocol: Protocol(node), ..NodeReport::default() };
            let entries = vec![
                entry(keys.status(Kind::Cluster, CLUSTER_NAME), &status),
                entry(keys.candidate(&"c2".into()), &candidate),
                entry(keys.fence(&"n3".into()), &fence),
                entry(keys.node_report(&"n3".into()), &report),
            ];
            let mut cluster_view = ClusterView::new(keys.clone());
            cluster_view.replace(entries, Revision(1), MonotonicTime(0));
            cluster_view
        };
        let messages = |cluster_view: &ClusterView| {
            let problems = refusals(cluster_view, &[word]);
            problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(messages(&cluster_view(2, 2, 2)), "");
        let refused = messages(&cluster_view(1, 1, 2));
        assert!(
            refused.contains("finish the upgrade of controller/c2") && !refused.contains("n3"),
            "{refused}"
        );
        let refused = messages(&cluster_view(1, 2, 1));
        assert!(refused.contains("finish the upgrade of node/n3") && !refused.contains("c2"), "{refused}");
        // The stored version decides, because agents use it.
        assert_ne!(messages(&cluster_view(1, 2, 2)), "");
    }
}
