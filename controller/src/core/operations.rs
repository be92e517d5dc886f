//! Operations on nodes, refusal of impossible operations, and removal of old operations.

mod test_watchdog;

use super::fencing::{self, FencedNode};
use super::health::{Health, NodeTable};
use super::incarnation;
use super::notifications;
use super::plan::{OnApplied, Plan, Subject, node_event, serialized};
use super::plan_input::PlanInput;
use super::service;
use super::service::operation::{self, status_in_phase};
use super::world::{ClusterView, Versioned, guard_of};
use ha_api_types::event::{Event, EventType};
use ha_api_types::id::{NodeName, OperationName};
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::operation::{Operation, OperationAction, OperationPhase, OperationStatus};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState, Proof};
use ha_api_types::time::Millis;
use ha_store::{Guard, Transaction};

/// Time in seconds for which an operation is kept after its end. Wall clocks affect no decision except this one.
const RETENTION_SECONDS: i64 = 86_400;

/// Interval in milliseconds at which a node that an operator confirms off is checked for heartbeats.
const HEARTBEAT_CHECK_MS: Millis = 1_000;

impl ClusterView {
    pub(super) fn has_ended(&self, operation: &OperationName) -> bool {
        self.operation_statuses.get(operation).is_some_and(|status| status.value.phase.is_final())
    }

    /// Returns the operations that have not ended. An operation from before a restore of etcd is no longer carried
    /// out.
    pub(super) fn open_operations(&self) -> impl Iterator<Item = (&OperationName, &Versioned<Operation>)> {
        self.operations
            .iter()
            .filter(|(name, operation)| !self.has_ended(name) && !self.is_from_backup(operation.mod_revision))
    }
}

/// One operation without a service.
struct OperationRequest<'a> {
    name: &'a OperationName,
    operation: &'a Versioned<Operation>,
    status: Option<&'a Versioned<OperationStatus>>,
}

impl OperationRequest<'_> {
    /// Returns `true` if the operation was accepted and is in progress.
    fn is_running(&self) -> bool {
        self.status.is_some_and(|status| status.value.phase == OperationPhase::Running)
    }
}

struct NewStatus {
    phase: OperationPhase,
    reason: Reason,
    message: String,
}

fn new_status(phase: OperationPhase, reason: Reason, message: impl Into<String>) -> NewStatus {
    NewStatus { phase, reason, message: message.into() }
}

/// Plans the operations that no service's own plan covers.
pub(super) fn plan(input: &PlanInput<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let cluster_view = input.cluster_view;
    let requests = operation::requests_by_service(input);
    for (name, operation) in &cluster_view.operations {
        let status = cluster_view.operation_statuses.get(name);
        let request = OperationRequest { name, operation, status };
        if cluster_view.has_ended(name) {
            expire(input, &request, plan);
            continue;
        }
        if cluster_view.is_from_backup(operation.mod_revision) {
            let message = "Operation was requested before etcd was restored from a backup: request it again";
            let outdated = new_status(OperationPhase::Failed, Reason::EtcdRestored, message);
            write(input, &request, &outdated, plan);
            continue;
        }
        let spec = &operation.value.spec;
        match spec.action {
            OperationAction::ConfirmFenced => confirm_fenced(input, nodes, &request, plan),
            OperationAction::Fence => fence(input, nodes, &request, plan),
            OperationAction::Unfence => unfence(input, &request, plan),
            OperationAction::FollowStore => follow_store(input, &request, plan),
            OperationAction::ShutdownContinue => shutdown_continue(input, nodes, &request, plan),
            OperationAction::TestWatchdog => test_watchdog::plan(input, nodes, &request, plan),
            OperationAction::TestNotifications => {
                let (phase, reason, message) = notifications::test_run::run_test(input, name, plan);
                write(input, &request, &new_status(phase, reason, message), plan);
            }
            OperationAction::Balance => {
                let refused = "Leader does not execute action Balance: run \"hactl balance --apply\"";
                write(input, &request, &new_status(OperationPhase::Refused, Reason::Refused, refused), plan);
            }
            OperationAction::Migrate
            | OperationAction::Relocate
            | OperationAction::ReplaceSecondary
            | OperationAction::Stop
            | OperationAction::Start
            | OperationAction::Restart
            | OperationAction::ClearError
            | OperationAction::UpdateInPlace => {
                let resource = names::without_type(spec.resource.as_deref().unwrap_or_default());
                match requests.get(resource).filter(|first| first.name != name && status.is_none()) {
                    Some(first) => wait_for_first(input, &request, first.name, plan),
                    None => unknown_resource(input, &request, plan),
                }
            }
        }
    }
    for (name, status) in &cluster_view.operation_statuses {
        let spec = cluster_view.keys.spec(Kind::Operation, name);
        if !cluster_view.operations.contains_key(name) && !cluster_view.unreadable.contains_key(&spec) {
            let transaction = Transaction::new()
                .delete(
                    cluster_view.keys.status(Kind::Operation, name),
                    Guard::Unchanged(status.mod_revision),
                )
                .guard(spec, Guard::Absent);
            plan.add_action(Subject::Operation(name.clone()), transaction, Vec::new(), OnApplied::None);
        }
    }
}

/// Removes an operation a day after its end.
fn expire(input: &PlanInput<'_>, request: &OperationRequest<'_>, plan: &mut Plan) {
    let keys = &input.cluster_view.keys;
    let Some(status) = request.status else { return };
    let ended = status.value.completion_time.as_ref().and_then(ha_api_types::time::Timestamp::unix_seconds);
    let now = input.now.timestamp().unix_seconds();
    if let (Some(ended), Some(now)) = (ended, now)
        && now - ended >= RETENTION_SECONDS
    {
        let transaction = Transaction::new()
            .delete(
                keys.spec(Kind::Operation, request.name),
                Guard::Unchanged(request.operation.mod_revision),
            )
            .delete(keys.status(Kind::Operation, request.name), Guard::Unchanged(status.mod_revision));
        plan.add_action(
            Subject::Operation(request.name.to_owned()),
            transaction,
            Vec::new(),
            OnApplied::None,
        );
    }
}

/// Sets an operation to Pending while another operation on the same resource is in progress.
fn wait_for_first(input: &PlanInput<'_>, request: &OperationRequest<'_>, first: &str, plan: &mut Plan) {
    let message = format!("Waiting for operation {first} on the same resource to end");
    write(input, request, &new_status(OperationPhase::Pending, Reason::Pending, message), plan);
}

fn unknown_resource(input: &PlanInput<'_>, request: &OperationRequest<'_>, plan: &mut Plan) {
    let resource_name = request.operation.value.spec.resource.as_deref();
    let refused = match resource_name {
        None => {
            new_status(OperationPhase::Refused, Reason::Invalid, "No resource specified: set spec.resource")
        }
        Some(resource) => {
            let bare = names::without_type(resource);
            let key = input.cluster_view.keys.spec(Kind::Resource, bare);
            if input.cluster_view.resources.contains_key(bare)
                || input.cluster_view.unreadable.contains_key(&key)
            {
                return;
            }
            new_status(OperationPhase::Refused, Reason::NotFound, format!("Resource {bare} not found"))
        }
    };
    write(input, request, &refused, plan);
}

/// Writes the status of an operation if it has changed.
fn write(input: &PlanInput<'_>, request: &OperationRequest<'_>, new_status: &NewStatus, plan: &mut Plan) {
    if let Some(transaction) = with_status(input, request, new_status, Transaction::new()) {
        plan.add_action(
            Subject::Operation(request.name.to_owned()),
            transaction,
            Vec::new(),
            OnApplied::None,
        );
    }
}

fn with_status(
    input: &PlanInput<'_>,
    request: &OperationRequest<'_>,
    new_status: &NewStatus,
    transaction: Transaction,
) -> Option<Transaction> {
    let stored_status = request.status.map(|status| &status.value);
    let generation = request.operation.value.metadata.generation;
    let NewStatus { phase, reason, message } = new_status;
    let status = status_in_phase(input, stored_status, generation, *phase, *reason, message);
    if stored_status == Some(&status) {
        return None;
    }
    let key = input.cluster_view.keys.status(Kind::Operation, request.name);
    Some(transaction.put(key, guard_of(request.status), serialized(&status)))
}

/// Writes a fence and the operation that requested the change in one transaction.
fn write_fence(
    input: &PlanInput<'_>,
    request: &OperationRequest<'_>,
    node: &NodeName,
    new_status: &NewStatus,
    transaction: Transaction,
    event: Event,
    plan: &mut Plan,
) {
    let spec = input.cluster_view.keys.spec(Kind::Operation, request.name);
    let transaction = transaction.guard(spec, Guard::Unchanged(request.operation.mod_revision));
    let fence = input.cluster_view.fences.get(node);
    let on_applied = fence
        .map_or(OnApplied::None, |fence| fencing::devices::keep_device_work_on_applied(input, node, fence));
    if let Some(transaction) = with_status(input, request, new_status, transaction) {
        plan.add_action(Subject::Fence(node.to_owned()), transaction, vec![event], on_applied);
    }
}

/// Carries out proof (e), if the fence still has the epoch and the boot id that the operator saw, and the node has
/// been silent for Th.
fn confirm_fenced(input: &PlanInput<'_>, nodes: &NodeTable, request: &OperationRequest<'_>, plan: &mut Plan) {
    let cluster_view = input.cluster_view;
    let spec = &request.operation.value.spec;
    let refused = OperationPhase::Refused;
    let Some(name) = spec.node.as_ref() else {
        write(
            input,
            request,
            &new_status(refused, Reason::Invalid, "No node specified: set spec.node"),
            plan,
        );
        return;
    };
    let (Some(fence), Some(node)) = (cluster_view.fences.get(name), nodes.get(name)) else {
        let message = format!("Node {name} has never registered");
        write(input, request, &new_status(refused, Reason::NotFound, message), plan);
        return;
    };
    if !fencing::is_unchanged_since_request(spec, &fence.value) {
        write(input, request, &outdated_request(name, &fence.value), plan);
        return;
    }
    let valid_ms = cluster_view.heartbeat_valid_ms(name);
    let silent_at = node.silent_since + valid_ms;
    if input.now.monotonic_raw < silent_at {
        let has_heartbeat_since =
            cluster_view.alive.contains_key(name) && node.observed_at > request.operation.first_seen_at;
        if has_heartbeat_since {
            let message = format!("Node {name} is reachable (heartbeat received): power the node off first");
            write(input, request, &new_status(refused, Reason::NodeAlive, message), plan);
        } else {
            // A heartbeat alone causes no plan, so set a wake-up to check for it.
            let check_at = (input.now.monotonic_raw + HEARTBEAT_CHECK_MS).min(silent_at);
            plan.wake_at(
                input,
                check_at,
                "a node that an operator confirms powered off is unreachable for the heartbeat lifetime",
            );
            let message =
                format!("Waiting until node {name} has been unreachable for {} s", valid_ms.div_ceil(1000));
            write(input, request, &new_status(OperationPhase::Pending, Reason::Waiting, message), plan);
        }
        return;
    }
    if !input.commit_gaps.is_current(input.now.monotonic_raw, valid_ms / 2) {
        let message = Reason::FailureDetectionReset.sentence();
        write(
            input,
            request,
            &new_status(OperationPhase::Pending, Reason::FailureDetectionReset, message),
            plan,
        );
        return;
    }
    let proof =
        Proof::Operator { operation: request.name.to_owned(), requested_by: spec.requested_by.clone() };
    let subject = FencedNode::of(input, name, node);
    let transaction = match fence.value.state {
        _ if cluster_view.is_fence_unreadable(name) => {
            fencing::unreadable_fence_replacement(input, &subject, fence, &proof)
        }
        FenceState::Open => fencing::closing_transaction(input, &subject, fence, Some(&proof), false).0,
        FenceState::Fencing | FenceState::Fenced | FenceState::Closed => {
            let value = Fence {
                state: FenceState::Fenced,
                proof: Some(proof.clone()),
                proof_revision: None,
                off_revision: None,
                at: input.now.timestamp(),
                ..fence.value.clone()
            };
            Transaction::new()
                .put(cluster_view.keys.fence(name), Guard::Unchanged(fence.mod_revision), serialized(&value))
                .guard(cluster_view.keys.alive(name), guard_of(cluster_view.alive.get(name)))
        }
    };
    let event = node_event(input, name, EventType::Warning, Reason::ConfirmedByOperator, proof.sentence());
    let succeeded = new_status(OperationPhase::Succeeded, Reason::Completed, proof.sentence());
    write_fence(input, request, name, &succeeded, transaction, event, plan);
}

/// Permits a machine to shut down before its services have moved away. Its agent reads the permission from the
/// operation.
fn shutdown_continue(
    input: &PlanInput<'_>,
    nodes: &NodeTable,
    request: &OperationRequest<'_>,
    plan: &mut Plan,
) {
    let spec = &request.operation.value.spec;
    let name = &spec.node.clone().unwrap_or_default();
    let (refused, succeeded) = (OperationPhase::Refused, OperationPhase::Succeeded);
    let boot = input.cluster_view.fences.get(name).map(|fence| fence.value.boot_id.clone());
    let outcome = match nodes.get(name).map(|node| &node.health) {
        None => new_status(refused, Reason::NotFound, format!("Node {name} not found")),
        Some(_) if boot != spec.boot_id => new_status(
            refused,
            Reason::Outdated,
            format!("Node {name} has rebooted since the request: run the command again"),
        ),
        Some(Health::ShuttingDown(_)) => new_status(
            OperationPhase::Running,
            Reason::InProgress,
            format!("Node {name} is stopping its remaining services and continuing the shutdown"),
        ),
        Some(Health::Leaving(_) | Health::Down(_)) => {
            new_status(succeeded, Reason::Completed, format!("{name} has shut down"))
        }
        Some(
            Health::Unregistered
            | Health::Registering
            | Health::Online
            | Health::Late
            | Health::Restarting
            | Health::Fencing,
        ) => new_status(refused, Reason::Refused, format!("{name} is not shutting down")),
    };
    write(input, request, &outcome, plan);
}

/// Permits a node to follow this etcd data. Its agent reads the permission from the incarnation, because the agent
/// refuses all other data.
fn follow_store(input: &PlanInput<'_>, request: &OperationRequest<'_>, plan: &mut Plan) {
    let Some(name) = request.operation.value.spec.node.as_ref() else {
        let refused =
            new_status(OperationPhase::Refused, Reason::Invalid, "No node specified: set spec.node");
        return write(input, request, &refused, plan);
    };
    let succeeded = new_status(
        OperationPhase::Succeeded,
        Reason::Completed,
        format!("Node {name} is permitted to use the data in this etcd"),
    );
    let Some(transaction) = incarnation::allow_to_follow(input, name) else {
        return write(input, request, &succeeded, plan);
    };
    if let Some(transaction) = with_status(input, request, &succeeded, transaction) {
        plan.add_action(Subject::Incarnation, transaction, Vec::new(), OnApplied::None);
    }
}

/// Fences a node with its devices, even if its heartbeat is seen. Succeeds only if a device confirmed the node off.
fn fence(input: &PlanInput<'_>, nodes: &NodeTable, request: &OperationRequest<'_>, plan: &mut Plan) {
    let cluster_view = input.cluster_view;
    let spec = &request.operation.value.spec;
    let refused = OperationPhase::Refused;
    let Some(name) = spec.node.as_ref() else {
        write(
            input,
            request,
            &new_status(refused, Reason::Invalid, "No node specified: set spec.node"),
            plan,
        );
        return;
    };
    let (Some(fence), Some(node)) = (cluster_view.fences.get(name), nodes.get(name)) else {
        let message = format!("Node {name} has never registered");
        write(input, request, &new_status(refused, Reason::NotFound, message), plan);
        return;
    };
    let is_running = request.is_running();
    let failed = |message: String| new_status(OperationPhase::Failed, Reason::FenceDeviceFailed, message);
    let switching_off = || match fencing::devices::device_errors_since(
        input,
        name,
        request.operation.first_seen_at,
    ) {
        None => new_status(OperationPhase::Running, Reason::InProgress, "Fence device is running"),
        Some(errors) => failed(format!(
            "Fence devices failed: {errors}. Repair them, or power the machine off and run \"hactl node confirm-fenced \
             {name}\""
        )),
    };
    // The node is closed, but a service may have arrived there after the proof.
    let needs_later_proof = || service::nodes_with_unproven_arrival(input).contains(name);
    let outcome = match fence.value.state {
        FenceState::Open | FenceState::Fencing if !is_running && !node.has_device => {
            let message = format!(
                "Node {name} has no fence device: configure spec.fencing.devices with \"hactl edit node/{name}\", or \
                 power the machine off and run \"hactl node confirm-fenced {name}\""
            );
            new_status(refused, Reason::FencingUnavailable, message)
        }
        FenceState::Open if is_running => {
            failed(format!("No fence device confirmed that {name} is off, and the node has registered again"))
        }
        FenceState::Open => {
            let subject = FencedNode::of(input, name, node);
            let (transaction, message) = fencing::closing_transaction(input, &subject, fence, None, false);
            let event = node_event(input, name, EventType::Warning, Reason::UserRequested, message.clone());
            let running = new_status(OperationPhase::Running, Reason::InProgress, message);
            write_fence(input, request, name, &running, transaction, event, plan);
            return;
        }
        FenceState::Fencing => switching_off(),
        FenceState::Fenced | FenceState::Closed if node.has_device && needs_later_proof() => switching_off(),
        FenceState::Fenced | FenceState::Closed => {
            let proof_text = fence.value.proof.as_ref().map(Proof::sentence).unwrap_or_default();
            match (is_running, matches!(fence.value.proof, Some(Proof::Device { .. }))) {
                (true, true) => new_status(OperationPhase::Succeeded, Reason::Completed, proof_text),
                (true, false) => {
                    failed(format!("No fence device confirmed that {name} is off: {proof_text}"))
                }
                (false, _) => new_status(
                    refused,
                    Reason::Outdated,
                    format!("Registration of node {name} is already revoked: {proof_text}"),
                ),
            }
        }
    };
    write(input, request, &outcome, plan);
}

/// Returns the refusal of an operation whose operator saw the node under another epoch or boot.
fn outdated_request(name: &str, fence: &Fence) -> NewStatus {
    let sentence = Reason::Outdated.sentence();
    let message =
        format!("{sentence}: node {name} has registration {} of boot {}", fence.epoch, fence.boot_id);
    new_status(OperationPhase::Refused, Reason::Outdated, message)
}

/// Reconnects a node that a fabric device has disconnected, if the fence is still as the operator saw it. The planner
/// of its fence devices does the work.
fn unfence(input: &PlanInput<'_>, request: &OperationRequest<'_>, plan: &mut Plan) {
    let spec = &request.operation.value.spec;
    let name = &spec.node.clone().unwrap_or_default();
    let (refused, succeeded) = (OperationPhase::Refused, OperationPhase::Succeeded);
    let is_running = request.is_running();
    let outcome = match input.cluster_view.fences.get(name).map(|fence| &fence.value) {
        None => new_status(refused, Reason::NotFound, format!("Node {name} has never registered")),
        Some(fence) if !fencing::is_unchanged_since_request(spec, fence) => outdated_request(name, fence),
        Some(fence) => {
            let disconnecting = fencing::devices::disconnecting_devices(input, name, fence);
            match (fence.state, disconnecting.first()) {
                (FenceState::Fencing, _) => {
                    let message = format!("Fencing of {name} is not confirmed yet: try again later");
                    new_status(refused, Reason::Fencing, message)
                }
                (FenceState::Fenced | FenceState::Closed, Some(device)) => {
                    let message = format!("Fence device {} is reconnecting the node", device.name);
                    new_status(OperationPhase::Running, Reason::InProgress, message)
                }
                (FenceState::Open | FenceState::Fenced | FenceState::Closed, _) if is_running => {
                    new_status(succeeded, Reason::Completed, format!("{name} is reconnected"))
                }
                (FenceState::Open | FenceState::Fenced | FenceState::Closed, _) => {
                    new_status(refused, Reason::Refused, format!("No fabric device isolates {name}"))
                }
            }
        }
    };
    write(input, request, &outcome, plan);
}
