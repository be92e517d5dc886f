//! The draft: changes to one service, collected step by step and written in one transaction.

use super::{Service, external_change, record_guard};
use crate::core::plan::{event, serialized};
use crate::core::plan_input::PlanInput;
use ha_api_types::event::{Event, EventType};
use ha_api_types::id::{NodeName, Revision};
use ha_api_types::kind::Kind;
use ha_api_types::operation::OperationStatus;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Assignment, Fence, Tombstone};
use ha_api_types::resource::{RequestedState, ResourceStatus, ServiceState};
use ha_api_types::time::{Millis, MonotonicTime};
use ha_store::{Guard, Transaction};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum AssignmentChange {
    /// Unchanged.
    Keep,
    /// Replaced.
    Put(Box<Assignment>),
    /// Deleted: the service is no longer managed.
    Delete,
}

/// Changes to a service in this plan.
#[derive(Clone, Debug)]
pub(super) struct ServiceUpdate {
    pub(super) status: ResourceStatus,
    pub(super) assignment_change: AssignmentChange,
    /// Guards of facts on which the decision depends, in addition to the written keys.
    pub(super) guards: BTreeMap<String, Guard>,
    /// Fences that are written in the same transaction, by key.
    pub(super) fences: BTreeMap<String, (Guard, Fence)>,
    pub(super) events: Vec<(EventType, Reason, String)>,
    /// Reason of the current state, for conditions.
    pub(super) reason: Option<Reason>,
    pub(super) message: String,
    pub(super) waiting: Vec<(Reason, String)>,
    pub(super) wake: Option<(MonotonicTime, &'static str)>,
    /// Nodes that could not be probed for the service.
    pub(super) unprobed_texts: Vec<String>,
    /// New status of the operation on this service; `None` if it has not changed.
    pub(super) operation: Option<OperationStatus>,
    /// Tombstones that end or shrink in the same transaction, by key: the revision as read, and the remaining
    /// tombstone.
    pub(super) tombstones: BTreeMap<String, (Revision, Option<Tombstone>)>,
    /// The requested state that this transaction writes into the spec, because an administrator has stopped or started
    /// the service outside hactl.
    pub(super) requested_state: Option<RequestedState>,
    /// `true` if the service is stalled, for example because no node is eligible.
    pub(super) is_stalled: bool,
    /// `true` if this move and others wait for each other, and no order of the moves resolves the deadlock.
    pub(super) is_deadlocked: bool,
    /// Node on which this service preempts other services.
    pub(super) reserved_node: Option<NodeName>,
}

impl ServiceUpdate {
    /// Creates a draft without changes. The status of an earlier object with this name is ignored.
    pub(super) fn of(service: &Service<'_>) -> ServiceUpdate {
        let uid = service.uid();
        let mut status = service
            .status
            .map(|status| status.value.clone())
            .filter(|status| status.uid == *uid)
            .unwrap_or_else(|| ResourceStatus { uid: uid.clone(), ..ResourceStatus::default() });
        if status.observed_generation != service.resource.value.metadata.generation {
            // The changed spec may be able to run where the previous one could not.
            status.incompatible_nodes.clear();
        }
        ServiceUpdate {
            status,
            assignment_change: AssignmentChange::Keep,
            guards: BTreeMap::new(),
            fences: BTreeMap::new(),
            events: Vec::new(),
            reason: None,
            message: String::new(),
            waiting: Vec::new(),
            wake: None,
            unprobed_texts: Vec::new(),
            operation: None,
            tombstones: BTreeMap::new(),
            requested_state: None,
            is_stalled: false,
            is_deadlocked: false,
            reserved_node: None,
        }
    }

    /// Enters a state and emits an event. An empty message is replaced by the sentence of the reason.
    pub(super) fn transition_to(&mut self, state: ServiceState, reason: Reason, message: String) {
        self.status.state = state;
        // The status keeps an unconfirmed stop until the stop is confirmed. Leaving Error does not confirm the stop.
        let keeps_stop_confirmation = match state {
            ServiceState::Error => true,
            ServiceState::RequestStop | ServiceState::Stopping => self.status.stop_confirmed == Some(false),
            ServiceState::Queued
            | ServiceState::RequestStart
            | ServiceState::Starting
            | ServiceState::Started
            | ServiceState::Stopped
            | ServiceState::Migrate
            | ServiceState::Relocate
            | ServiceState::Fence
            | ServiceState::Recovery
            | ServiceState::Freeze
            | ServiceState::Disabled
            | ServiceState::Ignored
            | ServiceState::Deleting => false,
        };
        if !keeps_stop_confirmation {
            self.status.stop_confirmed = None;
        }
        let message = if message.is_empty() { reason.sentence().to_owned() } else { message };
        let event_type = match state {
            ServiceState::Fence | ServiceState::Recovery | ServiceState::Error => EventType::Warning,
            ServiceState::Queued
            | ServiceState::RequestStart
            | ServiceState::Starting
            | ServiceState::Started
            | ServiceState::RequestStop
            | ServiceState::Stopping
            | ServiceState::Stopped
            | ServiceState::Migrate
            | ServiceState::Relocate
            | ServiceState::Freeze
            | ServiceState::Disabled
            | ServiceState::Ignored
            | ServiceState::Deleting => EventType::Normal,
        };
        self.events.push((event_type, reason, message.clone()));
        self.reason = Some(reason);
        self.message = message;
        self.waiting.clear();
    }

    /// Enters a state without an event, for a transition that another event reports.
    pub(super) fn transition_without_event(&mut self, state: ServiceState, reason: Reason, message: String) {
        self.transition_to(state, reason, message);
        self.events.pop();
    }

    /// Sets the reason and message of the current state, without an event.
    pub(super) fn set_message(&mut self, reason: Reason, message: impl Into<String>) {
        self.reason = Some(reason);
        self.message = message.into();
    }

    /// Sets the condition that the service waits for.
    pub(super) fn add_wait(&mut self, reason: Reason, message: impl Into<String>) {
        let message = message.into();
        self.set_message(reason, message.clone());
        self.waiting.push((reason, message));
    }

    /// Appends text to the last message, and to its event.
    pub(super) fn append_message(&mut self, text: Option<String>) {
        let Some(text) = text else { return };
        self.message = format!("{}; {text}", self.message);
        if let Some((_, _, event_message)) = self.events.last_mut() {
            event_message.clone_from(&self.message);
        }
    }

    pub(super) fn emit_event(&mut self, event_type: EventType, reason: Reason, message: impl Into<String>) {
        self.events.push((event_type, reason, message.into()));
    }

    /// Sets a wake-up at `since` plus a duration.
    pub(super) fn wake_after(
        &mut self,
        since: MonotonicTime,
        duration_ms: Millis,
        wake_reason: &'static str,
    ) {
        let at = since + duration_ms;
        if self.wake.is_none_or(|(wake_time, _)| at < wake_time) {
            self.wake = Some((at, wake_reason));
        }
    }

    /// Clears the nodes where the service failed to start, after a successful start.
    pub(super) fn clear_failures(&mut self) {
        self.status.failed_nodes.clear();
        self.status.relocations = 0;
    }

    /// Clears all failures: for Disabled, a cleared error, or disarm.
    pub(super) fn clear_all_failures(&mut self) {
        self.clear_failures();
        self.status.incompatible_nodes.clear();
    }

    /// Returns the transaction and the events to emit once it is applied; `None` if nothing has changed.
    ///
    /// Every write about a service also guards its spec as it was read. A late write can thus not restore a record that
    /// was deleted or changed since.
    pub(super) fn into_transaction(
        self,
        input: &PlanInput<'_>,
        service: &Service<'_>,
    ) -> Option<(Transaction, Vec<Event>)> {
        let keys = &input.cluster_view.keys;
        let name = service.name;
        let mut transaction = Transaction::new();
        let mut has_writes = false;
        let status_key = keys.status(Kind::Resource, name);
        let is_unreadable = input.cluster_view.unreadable.contains_key(&status_key);
        if is_unreadable || service.status.map(|status| &status.value) != Some(&self.status) {
            let guard = record_guard(service.status);
            transaction = transaction.put(status_key, guard, serialized(&self.status));
            has_writes = true;
        }
        let guard = record_guard(service.assignment);
        match &self.assignment_change {
            AssignmentChange::Keep => {}
            AssignmentChange::Put(assignment) => {
                transaction = transaction.put(keys.assignment(name), guard, serialized(assignment.as_ref()));
                has_writes = true;
            }
            AssignmentChange::Delete => {
                if service.assignment.is_some() {
                    transaction = transaction.delete(keys.assignment(name), guard);
                    has_writes = true;
                }
            }
        }
        for (key, (revision, remaining)) in &self.tombstones {
            let guard = Guard::Unchanged(*revision);
            transaction = match remaining {
                Some(remaining) => transaction.put(key, guard, serialized(remaining)),
                None => transaction.delete(key, guard),
            };
            has_writes = true;
        }
        if let (Some(request), Some(status)) = (&service.operation, &self.operation)
            && request.status.map(|stored| &stored.value) != Some(status)
        {
            let key = keys.status(Kind::Operation, request.name);
            transaction = transaction.put(key, record_guard(request.status), serialized(status));
            has_writes = true;
        }
        if !has_writes {
            return None;
        }
        for (key, guard) in self.guards {
            if self.fences.contains_key(&key) {
                continue;
            }
            transaction = transaction.guard(key, guard);
        }
        for (key, (guard, fence)) in &self.fences {
            transaction = transaction.put(key, *guard, serialized(fence));
        }
        let spec_key = keys.spec(Kind::Resource, name);
        let spec_guard = Guard::Unchanged(service.resource.mod_revision);
        let requested = self.requested_state.and_then(|state| {
            let stored = input.cluster_view.entry(&spec_key)?;
            external_change::with_requested_state(&stored.value, state)
        });
        transaction = match requested {
            Some(changed) => transaction.put(spec_key, spec_guard, changed),
            None => transaction.guard(spec_key, spec_guard),
        };
        let action_uid = match &self.assignment_change {
            AssignmentChange::Put(assignment) => Some(assignment.action_uid.clone()),
            AssignmentChange::Keep | AssignmentChange::Delete => self.status.action_uid.clone(),
        };
        let operation = service.operation.as_ref().map(|request| request.name.to_owned());
        let events = self
            .events
            .into_iter()
            .map(|(event_type, reason, message)| {
                let mut event =
                    event(input, Kind::Resource, name, service.uid(), event_type, reason, message);
                event.node.clone_from(&self.status.node);
                event.action_uid.clone_from(&action_uid);
                event.operation.clone_from(&operation);
                event.epoch = self.status.epoch;
                event
            })
            .collect();
        Some((transaction, events))
    }
}
