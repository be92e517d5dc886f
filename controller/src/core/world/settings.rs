//! Settings that derive from the Cluster object.

use super::ClusterView;
use ha_api_types::cluster::ShutdownPolicy;
use ha_api_types::id::NodeName;
use ha_api_types::timing::Timings;

impl ClusterView {
    pub(super) fn update_timings(&mut self) {
        let declared = self.cluster.as_ref().map(|cluster| Timings::from(&cluster.value.spec.timing));
        let is_valid = |timings: &Timings| ha_api_types::timing::problems(timings).is_empty();
        self.timings = declared.filter(is_valid).unwrap_or_default();
    }

    /// Returns the shutdown policy of a node. Maintenance of the node takes precedence over the cluster's policy.
    pub fn shutdown_policy(&self, node: &NodeName) -> ShutdownPolicy {
        if self.nodes.get(node).is_some_and(|node| node.value.spec.maintenance) {
            return ShutdownPolicy::Migrate;
        }
        self.settings().shutdown_policy
    }

    /// Returns the generation of the Cluster object, 0 without one.
    pub fn cluster_generation(&self) -> i64 {
        self.cluster.as_ref().map_or(0, |cluster| cluster.value.metadata.generation)
    }
}
