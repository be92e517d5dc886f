//! Counting of events from changes of records. Each event is counted once, regardless of the process that wrote it and
//! of the outcome of the commit.

use super::ClusterView;
use crate::core::metric_event::{FailoverPhase, MetricEvent};
use ha_api_types::driver::DriverKind;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::names;
use ha_api_types::operation::OperationPhase;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, Proof};
use ha_api_types::resource::ServiceState;
use ha_api_types::time::MonotonicTime;
use std::collections::BTreeMap;

/// Events that were not taken yet, and phases in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Counting {
    events: Vec<MetricEvent>,
    /// Time of the close, by node that is being fenced.
    closed_at: BTreeMap<NodeName, MonotonicTime>,
    /// Time of the assignment to another node, by service whose node failed.
    placed_at: BTreeMap<ResourceName, MonotonicTime>,
}

/// Previous state of a service.
pub(super) struct ServiceBefore {
    state: ServiceState,
    node: Option<NodeName>,
}

impl ClusterView {
    /// Returns the events since the last call.
    pub(in crate::core) fn take_metric_events(&mut self) -> Vec<MetricEvent> {
        self.counting.as_mut().map(|counting| std::mem::take(&mut counting.events)).unwrap_or_default()
    }

    /// Returns the current state of a service, for a later call of [`ClusterView::count_service`].
    pub(super) fn service_before(&self, name: &ResourceName) -> Option<ServiceBefore> {
        self.counting.as_ref()?;
        let status = self.resource_statuses.get(name).map(|stored| &stored.value);
        Some(ServiceBefore {
            state: status.map(|status| status.state).unwrap_or_default(),
            node: status.and_then(|status| status.node.clone()),
        })
    }

    /// Counts a change of a service's status.
    pub(super) fn count_service(
        &mut self,
        name: &ResourceName,
        before: Option<ServiceBefore>,
        now: MonotonicTime,
    ) {
        let (Some(counting), Some(before)) = (&mut self.counting, before) else { return };
        let Some(status) = self.resource_statuses.get(name).map(|stored| &stored.value) else { return };
        let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
        let reason = ready.map_or(Reason::Unknown, |ready| ready.reason);
        let relocation = |reason| MetricEvent::Relocation { resource: name.to_owned(), reason };
        let was_moved = before.node.is_some() && before.node != status.node;
        match status.state {
            state if state == before.state && !was_moved => return,
            ServiceState::Migrate | ServiceState::Relocate if status.state != before.state => {
                counting.events.push(relocation(reason));
            }
            ServiceState::Starting if reason == Reason::Recovered => {
                let fence = before.node.as_ref().and_then(|node| self.fences.get(node));
                if let Some(fence) = fence.filter(|fence| fence.value.state != FenceState::Open) {
                    let duration_ms = now.since(fence.first_seen_at);
                    counting.events.push(MetricEvent::Phase { phase: FailoverPhase::Place, duration_ms });
                }
                counting.placed_at.insert(name.to_owned(), now);
                if was_moved {
                    counting.events.extend([MetricEvent::Failover, relocation(reason)]);
                }
                return;
            }
            ServiceState::Starting if was_moved && reason == Reason::StartFailed => {
                counting.events.push(relocation(reason));
            }
            ServiceState::Starting if was_moved && !status.failed_nodes.is_empty() => {
                counting.events.push(relocation(Reason::StartFailed));
            }
            ServiceState::Started => {
                if let Some(placed_at) = counting.placed_at.remove(name) {
                    let duration_ms = now.since(placed_at);
                    counting.events.push(MetricEvent::Phase { phase: FailoverPhase::Start, duration_ms });
                }
            }
            ServiceState::Queued
            | ServiceState::RequestStart
            | ServiceState::Starting
            | ServiceState::RequestStop
            | ServiceState::Stopping
            | ServiceState::Stopped
            | ServiceState::Migrate
            | ServiceState::Relocate
            | ServiceState::Fence
            | ServiceState::Recovery
            | ServiceState::Freeze
            | ServiceState::Error
            | ServiceState::Disabled
            | ServiceState::Ignored
            | ServiceState::Deleting => {}
        }
        counting.placed_at.remove(name);
    }

    /// Removes a service whose status was deleted.
    pub(super) fn forget_counting(&mut self, name: &ResourceName) {
        if let Some(counting) = &mut self.counting {
            counting.placed_at.remove(name);
        }
    }

    /// Counts a change of a node's fence, given its previous state.
    pub(super) fn count_fence(&mut self, node: &NodeName, before: Option<FenceState>, now: MonotonicTime) {
        let (Some(counting), Some(before)) = (&mut self.counting, before) else { return };
        let Some(fence) = self.fences.get(node).map(|stored| &stored.value) else { return };
        let proof = fence.proof.as_ref().filter(|proof| !matches!(proof, Proof::CleanLeave { .. }));
        let (is_closed, is_proven) = match (before, fence.state) {
            (FenceState::Open, FenceState::Fencing) => (true, false),
            (FenceState::Open, FenceState::Fenced) => (proof.is_some(), proof.is_some()),
            (FenceState::Fencing, FenceState::Fenced) => (false, proof.is_some()),
            (FenceState::Fencing, FenceState::Open | FenceState::Closed) => {
                counting.closed_at.remove(node);
                return;
            }
            (
                FenceState::Open | FenceState::Fencing | FenceState::Fenced | FenceState::Closed,
                FenceState::Open | FenceState::Fencing | FenceState::Fenced | FenceState::Closed,
            ) => return,
        };
        if is_closed {
            counting.closed_at.insert(node.to_owned(), now);
            if let Some(heard) = self.observations.get(node) {
                let duration_ms = now.since(heard.since);
                counting.events.push(MetricEvent::Phase { phase: FailoverPhase::Detect, duration_ms });
            }
        }
        let closed_at =
            if fence.state == FenceState::Fenced { counting.closed_at.remove(node) } else { None };
        if let (true, Some(proof)) = (is_proven, proof) {
            if let Some(closed_at) = closed_at {
                let duration_ms = now.since(closed_at);
                counting.events.push(MetricEvent::Phase { phase: FailoverPhase::Fence, duration_ms });
            }
            counting.events.push(MetricEvent::Fence { method: proof.name(), confirmed: true });
        }
    }

    /// Counts a change of an operation's status, given its previous phase.
    pub(super) fn count_operation(&mut self, name: &str, before: Option<OperationPhase>) {
        let Some(counting) = &mut self.counting else { return };
        let Some(phase) = self.operation_statuses.get(name).map(|stored| stored.value.phase) else { return };
        let Some(spec) = self.operations.get(name).map(|stored| &stored.value.spec) else { return };
        if !phase.is_final() || before.is_some_and(OperationPhase::is_final) {
            return;
        }
        let resource = spec.resource.as_deref().map(names::without_type);
        let resource = resource.and_then(|resource| self.resources.get(resource));
        let driver = resource.and_then(|stored| stored.value.spec.driver.kind()).map_or("", DriverKind::name);
        counting.events.push(MetricEvent::Operation { action: spec.action, driver, phase });
    }
}
