//! The policies of nodes, each held once.

use super::ClusterView;
use ha_api_types::driver::DriverSpec;
use ha_api_types::id::NodeName;
use ha_api_types::node_policy::NodePolicy;
use ha_scheduler::NodePolicyId;
use std::collections::BTreeMap;

impl ClusterView {
    /// Returns the number of a policy in this view; `None` if no node reports it.
    pub fn policy_id(&self, policy: &NodePolicy) -> Option<NodePolicyId> {
        let position = self.policies.binary_search(policy).ok()?;
        u32::try_from(position).ok().map(NodePolicyId)
    }

    /// Returns the policies that do not allow a service with this driver, with the reason of each. The cost depends on the
    /// number of different policies, not on the number of nodes.
    pub fn forbidding_policies(&self, driver: &DriverSpec) -> BTreeMap<NodePolicyId, String> {
        (0..)
            .map(NodePolicyId)
            .zip(&self.policies)
            .filter_map(|(id, policy)| Some((id, policy.refusal(driver)?)))
            .collect()
    }

    pub(super) fn policy_of(&self, node: &NodeName) -> Option<&NodePolicy> {
        self.node_reports.get(node)?.value.policy.as_ref()
    }

    /// Updates the policies after a change of a node's report.
    pub(super) fn update_policies(&mut self, node: &NodeName, before: Option<&NodePolicy>) {
        if self.policy_of(node) == before {
            return;
        }
        let policies = self.node_reports.values().filter_map(|report| report.value.policy.clone());
        self.policies = policies.collect();
        self.policies.sort();
        self.policies.dedup();
    }
}
