//! Nodes that were counted as empty while they were unreachable, and the resources for which a node must still answer.
//! No service starts on the node before that (FENCING, section 7).

use super::world::ClusterView;
use ha_api_types::id::{NodeName, ObjectUid, ResourceName};
use ha_api_types::names;
use ha_api_types::operation::OperationAction;
use ha_api_types::record::{FenceState, Phase};
use ha_api_types::resource::RequestedState;
use std::collections::BTreeMap;

/// Resources for which a node must still answer, by node.
pub(super) type UnverifiedResources = BTreeMap<NodeName, Vec<ResourceName>>;

impl ClusterView {
    /// Returns the nodes that must still answer, with the resources for which they were counted as empty.
    pub(super) fn unverified_resources(&self) -> UnverifiedResources {
        let mut unverified_resources = UnverifiedResources::new();
        for (name, status) in &self.resource_statuses {
            if status.value.counted_empty.is_empty() || !self.needs_verification(name, &status.value.uid) {
                continue;
            }
            for node in &status.value.counted_empty {
                unverified_resources.entry(node.clone()).or_default().push(name.clone());
            }
        }
        unverified_resources
    }

    /// Returns `true` if nodes must answer for the resource. A resource that is deleted, Ignored or safe to run twice
    /// needs no answers.
    pub(super) fn needs_verification(&self, name: &ResourceName, uid: &ObjectUid) -> bool {
        self.resources.get(name).is_some_and(|resource| {
            let spec = &resource.value.spec;
            resource.value.metadata.uid == *uid && spec.exclusive && spec.state != RequestedState::Ignored
        })
    }

    /// Returns `true` if a node that was counted as empty has answered since its return. It has reported that the
    /// resource does not run there, or has a permit for the resource itself.
    ///
    /// An agent that writes a report newer than the fence has read `requires_probes` in that fence, or has registered
    /// for it.
    pub(super) fn has_verified(&self, name: &ResourceName, uid: &ObjectUid, node: &NodeName) -> bool {
        let Some(fence) = self.fences.get(node).filter(|fence| fence.value.state == FenceState::Open) else {
            return false;
        };
        // An operator has answered for the node since, because its driver cannot answer.
        let has_operator_answer = self.operations.values().any(|operation| {
            let spec = &operation.value.spec;
            spec.action == OperationAction::Start
                && spec.not_on.as_deref() == Some(node)
                && spec.resource.as_deref().map(names::without_type) == Some(name)
                && operation.create_revision > fence.mod_revision
        });
        has_operator_answer
            || self.service_report(name, node).is_some_and(|report| {
                let value = &report.value;
                value.uid == *uid
                    && value.epoch == fence.value.epoch
                    && report.mod_revision > fence.mod_revision
                    && (value.phase == Phase::ProbedStopped || value.action_uid.is_some())
            })
    }
}
