//! The typed view of the cluster, read from etcd for one request.

use super::ApiState;
use super::error::ApiError;
use crate::core::world::ClusterView;
use ha_api_types::keys::Keys;
use ha_api_types::time::MonotonicTime;
use ha_store::Store;

/// Returns the selectors of the keys on which answers of the API are based.
pub(crate) fn selectors(keys: &Keys) -> Vec<String> {
    vec![
        keys.specs(),
        keys.statuses(),
        keys.assignments(),
        keys.fences(),
        keys.heartbeats(),
        keys.reports(),
        keys.candidates(),
        keys.leader(),
        keys.backup_record(),
    ]
}

/// Reads the keys of [`selectors`], at one revision.
pub(crate) async fn cluster_view<S: Store>(state: &ApiState<S>) -> Result<ClusterView, ApiError> {
    let keys = state.keys();
    let selectors = selectors(keys);
    let reading = state.store().list_all(&selectors).await?;
    let mut cluster_view = ClusterView::new(keys.clone());
    // Only the leader uses the times at which keys were seen; this view is used for one request.
    cluster_view.replace(reading.entries, reading.revision, MonotonicTime(0));
    Ok(cluster_view)
}
