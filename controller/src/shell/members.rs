//! The etcd members, as the overview shows them.

use ha_api_types::view::StoreMember;
use ha_store::etcd::EtcdStore;

/// Asks every etcd member for its status.
pub(super) async fn ask(store: EtcdStore) -> Vec<StoreMember> {
    let statuses = store.status().await;
    statuses
        .into_iter()
        .map(|status| {
            let mut problems: Vec<String> = status.problem.into_iter().collect();
            problems.extend(status.alarms.iter().map(|alarm| format!("alarm {alarm}")));
            StoreMember {
                name: status.endpoint.clone(),
                url: status.endpoint,
                healthy: status.reachable,
                leader: status.leader,
                version: status.version.unwrap_or_default(),
                database_bytes: u64::try_from(status.database_size_bytes).unwrap_or(0),
                problem: problems.join("; "),
            }
        })
        .collect()
}
