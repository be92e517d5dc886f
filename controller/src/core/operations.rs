//! Operations on nodes, refusal of impossible operations, and removal of old ones.

mod test_watchdog;

use super::fencing::{self, FencedNode};
use super::health::{Health, NodeTable};
use super::incarnation;
use super::notifications;
use super::plan::{Note, Plan, Subject, node_event, stored};
use super::service::operation::{self, status_in};
use super::situation::Situation;
use super::world::{Versioned, World, guard_of};
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
const KEPT_SECONDS: i64 = 86_400;

/// Interval in milliseconds at which a node that an operator confirms off is checked for heartbeats.
const HEARTBEAT_LOOK_MS: Millis = 1_000;

impl World {
    pub(super) fn has_ended(&self, operation: &OperationName) -> bool {
        self.operation_statuses.get(operation).is_some_and(|status| status.value.phase.is_final())
    }

    /// Returns the operations that have not ended. An operation from before a restore of etcd is no longer carried
    /// out.
    pub(super) fn open_operations(&self) -> impl Iterator<Item = (&OperationName, &Versioned<Operation>)> {
        self.operations
            .iter()
            .filter(|(name, operation)| !self.has_ended(name) && !self.is_old(operation.modified))
    }
}

/// One operation without a service.
struct Request<'a> {
    name: &'a OperationName,
    operation: &'a Versioned<Operation>,
    status: Option<&'a Versioned<OperationStatus>>,
}

impl Request<'_> {
    /// Returns `true` if the operation was accepted and is in progress.
    fn is_begun(&self) -> bool {
        self.status.is_some_and(|status| status.value.phase == OperationPhase::Running)
    }
}

/// New status of an operation.
struct Verdict {
    phase: OperationPhase,
    reason: Reason,
    message: String,
}

fn verdict(phase: OperationPhase, reason: Reason, message: impl Into<String>) -> Verdict {
    Verdict { phase, reason, message: message.into() }
}

/// Plans the operations that no service's own plan covers.
pub(super) fn plan(situation: &Situation<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let world = situation.world;
    let next = operation::requests(situation);
    for (name, operation) in &world.operations {
        let status = world.operation_statuses.get(name);
        let request = Request { name, operation, status };
        if world.has_ended(name) {
            expire(situation, &request, plan);
            continue;
        }
        if world.is_old(operation.modified) {
            let message = "Requested before etcd was restored from a backup: request it again";
            let outdated = verdict(OperationPhase::Failed, Reason::EtcdRestored, message);
            write(situation, &request, &outdated, plan);
            continue;
        }
        let spec = &operation.value.spec;
        match spec.action {
            OperationAction::ConfirmFenced => confirm_fenced(situation, nodes, &request, plan),
            OperationAction::Fence => fence(situation, nodes, &request, plan),
            OperationAction::Unfence => unfence(situation, &request, plan),
            OperationAction::FollowStore => follow_store(situation, &request, plan),
            OperationAction::ShutdownContinue => shutdown_continue(situation, nodes, &request, plan),
            OperationAction::TestWatchdog => test_watchdog::plan(situation, nodes, &request, plan),
            OperationAction::TestNotifications => {
                let (phase, reason, message) = notifications::test_run::test(situation, name, plan);
                write(situation, &request, &verdict(phase, reason, message), plan);
            }
            OperationAction::Balance => {
                let refused = "Leader does not execute action Balance: run \"hactl balance --apply\"";
                write(situation, &request, &verdict(OperationPhase::Refused, Reason::Refused, refused), plan);
            }
            OperationAction::Migrate
            | OperationAction::Relocate
            | OperationAction::ReplaceSecondary
            | OperationAction::Stop
            | OperationAction::Start
            | OperationAction::Restart
            | OperationAction::ClearError
            | OperationAction::UpdateInPlace => {
                let resource = names::bare(spec.resource.as_deref().unwrap_or_default());
                match next.get(resource).filter(|first| first.name != name && status.is_none()) {
                    Some(first) => queued(situation, &request, first.name, plan),
                    None => unknown_resource(situation, &request, plan),
                }
            }
        }
    }
    for (name, status) in &world.operation_statuses {
        let spec = world.keys.spec(Kind::Operation, name);
        if !world.operations.contains_key(name) && !world.unreadable.contains_key(&spec) {
            let transaction = Transaction::new()
                .delete(world.keys.status(Kind::Operation, name), Guard::Unchanged(status.modified))
                .guard(spec, Guard::Absent);
            plan.act(Subject::Operation(name.clone()), transaction, Vec::new(), Note::None);
        }
    }
}

/// Removes an operation a day after its end.
fn expire(situation: &Situation<'_>, request: &Request<'_>, plan: &mut Plan) {
    let keys = &situation.world.keys;
    let Some(status) = request.status else { return };
    let ended = status.value.completion_time.as_ref().and_then(ha_api_types::time::Timestamp::unix_seconds);
    let now = situation.now.timestamp().unix_seconds();
    if let (Some(ended), Some(now)) = (ended, now)
        && now - ended >= KEPT_SECONDS
    {
        let transaction = Transaction::new()
            .delete(keys.spec(Kind::Operation, request.name), Guard::Unchanged(request.operation.modified))
            .delete(keys.status(Kind::Operation, request.name), Guard::Unchanged(status.modified));
        plan.act(Subject::Operation(request.name.to_owned()), transaction, Vec::new(), Note::None);
    }
}

/// Lets an operation wait while another operation on the same resource is in progress.
fn queued(situation: &Situation<'_>, request: &Request<'_>, first: &str, plan: &mut Plan) {
    let message = format!("Waiting for operation {first} on the same resource to end");
    write(situation, request, &verdict(OperationPhase::Pending, Reason::Pending, message), plan);
}

fn unknown_resource(situation: &Situation<'_>, request: &Request<'_>, plan: &mut Plan) {
    let named = request.operation.value.spec.resource.as_deref();
    let refused = match named {
        None => verdict(OperationPhase::Refused, Reason::Invalid, "No resource specified: set spec.resource"),
        Some(resource) => {
            let bare = names::bare(resource);
            let key = situation.world.keys.spec(Kind::Resource, bare);
            if situation.world.resources.contains_key(bare) || situation.world.unreadable.contains_key(&key) {
                return;
            }
            verdict(OperationPhase::Refused, Reason::NotFound, format!("Resource {bare} not found"))
        }
    };
    write(situation, request, &refused, plan);
}

/// Writes the status of an operation if it has changed.
fn write(situation: &Situation<'_>, request: &Request<'_>, verdict: &Verdict, plan: &mut Plan) {
    if let Some(transaction) = with_status(situation, request, verdict, Transaction::new()) {
        plan.act(Subject::Operation(request.name.to_owned()), transaction, Vec::new(), Note::None);
    }
}

fn with_status(
    situation: &Situation<'_>,
    request: &Request<'_>,
    verdict: &Verdict,
    transaction: Transaction,
) -> Option<Transaction> {
    let known = request.status.map(|status| &status.value);
    let generation = request.operation.value.metadata.generation;
    let Verdict { phase, reason, message } = verdict;
    let status = status_in(situation, known, generation, *phase, *reason, message);
    if known == Some(&status) {
        return None;
    }
    let key = situation.world.keys.status(Kind::Operation, request.name);
    Some(transaction.put(key, guard_of(request.status), stored(&status)))
}

/// Writes a fence and the operation that requested the change in one transaction.
fn write_fence(
    situation: &Situation<'_>,
    request: &Request<'_>,
    node: &NodeName,
    verdict: &Verdict,
    transaction: Transaction,
    told: Event,
    plan: &mut Plan,
) {
    let spec = situation.world.keys.spec(Kind::Operation, request.name);
    let transaction = transaction.guard(spec, Guard::Unchanged(request.operation.modified));
    if let Some(transaction) = with_status(situation, request, verdict, transaction) {
        plan.act(Subject::Fence(node.to_owned()), transaction, vec![told], Note::None);
    }
}

/// Carries out proof (e). It acts only if the fence still has the epoch and the boot id that the operator saw. The
/// node must also have been silent for Th.
fn confirm_fenced(situation: &Situation<'_>, nodes: &NodeTable, request: &Request<'_>, plan: &mut Plan) {
    let world = situation.world;
    let spec = &request.operation.value.spec;
    let refused = OperationPhase::Refused;
    let Some(name) = spec.node.as_ref() else {
        write(
            situation,
            request,
            &verdict(refused, Reason::Invalid, "No node specified: set spec.node"),
            plan,
        );
        return;
    };
    let (Some(fence), Some(node)) = (world.fences.get(name), nodes.get(name)) else {
        let message = format!("Node {name} has never registered");
        write(situation, request, &verdict(refused, Reason::NotFound, message), plan);
        return;
    };
    if !fencing::is_as_seen(spec, &fence.value) {
        write(situation, request, &outdated(name, &fence.value), plan);
        return;
    }
    let valid_ms = world.heartbeat_valid_ms(name);
    let quiet_at = node.silent_since + valid_ms;
    if situation.now.raw < quiet_at {
        let heard_since = world.alive.contains_key(name) && node.observed > request.operation.seen;
        if heard_since {
            let message = format!("Node {name} is reachable: a heartbeat was just received");
            write(situation, request, &verdict(refused, Reason::NodeAlive, message), plan);
        } else {
            // A heartbeat alone causes no plan, so set a wake-up to check for it.
            let look_at = (situation.now.raw + HEARTBEAT_LOOK_MS).min(quiet_at);
            plan.wake(
                situation,
                look_at,
                "a node that an operator confirms powered off is unreachable for the heartbeat lifetime",
            );
            let message =
                format!("Waiting until node {name} has been unreachable for {} s", valid_ms.div_ceil(1000));
            write(situation, request, &verdict(OperationPhase::Pending, Reason::Waiting, message), plan);
        }
        return;
    }
    if !situation.commits.is_current(situation.now.raw, valid_ms / 2) {
        let message = Reason::FailureDetectionReset.sentence();
        write(
            situation,
            request,
            &verdict(OperationPhase::Pending, Reason::FailureDetectionReset, message),
            plan,
        );
        return;
    }
    let proof = Proof::Operator { operation: request.name.to_owned(), by: spec.requested_by.clone() };
    let subject = FencedNode::of(situation, name, node);
    let transaction = match fence.value.state {
        _ if world.is_fence_unreadable(name) => {
            fencing::replacing_unreadable(situation, &subject, fence, &proof)
        }
        FenceState::Open => fencing::closing(situation, &subject, fence, Some(&proof), false).0,
        FenceState::Fencing | FenceState::Fenced | FenceState::Closed => {
            let value = Fence {
                state: FenceState::Fenced,
                proof: Some(proof.clone()),
                at: situation.now.timestamp(),
                ..fence.value.clone()
            };
            Transaction::new()
                .put(world.keys.fence(name), Guard::Unchanged(fence.modified), stored(&value))
                .guard(world.keys.alive(name), guard_of(world.alive.get(name)))
        }
    };
    let told = node_event(situation, name, EventType::Warning, Reason::ConfirmedByOperator, proof.sentence());
    let done = verdict(OperationPhase::Succeeded, Reason::Completed, proof.sentence());
    write_fence(situation, request, name, &done, transaction, told, plan);
}

/// Lets a machine shut down before its services have moved away. Its agent reads this from the operation.
fn shutdown_continue(situation: &Situation<'_>, nodes: &NodeTable, request: &Request<'_>, plan: &mut Plan) {
    let spec = &request.operation.value.spec;
    let name = &spec.node.clone().unwrap_or_default();
    let (refused, done) = (OperationPhase::Refused, OperationPhase::Succeeded);
    let boot = situation.world.fences.get(name).map(|fence| fence.value.boot_id.clone());
    let outcome = match nodes.get(name).map(|node| &node.health) {
        None => verdict(refused, Reason::NotFound, format!("Node {name} not found")),
        Some(_) if boot != spec.boot_id => verdict(
            refused,
            Reason::Outdated,
            format!("Node {name} has rebooted since the request: run the command again"),
        ),
        Some(Health::ShuttingDown(_)) => verdict(
            OperationPhase::Running,
            Reason::InProgress,
            format!("Node {name} is stopping its remaining services and continuing the shutdown"),
        ),
        Some(Health::Leaving(_) | Health::Down(_)) => {
            verdict(done, Reason::Completed, format!("{name} has shut down"))
        }
        Some(
            Health::Unregistered
            | Health::Registering
            | Health::Online
            | Health::Late
            | Health::Restarting
            | Health::Fencing,
        ) => verdict(refused, Reason::Refused, format!("{name} is not shutting down")),
    };
    write(situation, request, &outcome, plan);
}

/// Lets a node follow this data. Its agent reads the permission from the incarnation, because it refuses all other
/// data.
fn follow_store(situation: &Situation<'_>, request: &Request<'_>, plan: &mut Plan) {
    let Some(name) = request.operation.value.spec.node.as_ref() else {
        let refused = verdict(OperationPhase::Refused, Reason::Invalid, "No node specified: set spec.node");
        return write(situation, request, &refused, plan);
    };
    let done = verdict(
        OperationPhase::Succeeded,
        Reason::Completed,
        format!("Node {name} is permitted to follow this etcd"),
    );
    let Some(transaction) = incarnation::let_follow(situation, name) else {
        return write(situation, request, &done, plan);
    };
    if let Some(transaction) = with_status(situation, request, &done, transaction) {
        plan.act(Subject::Incarnation, transaction, Vec::new(), Note::None);
    }
}

/// Fences a node with its devices, even if its heartbeat is seen. Succeeds only if a device confirmed the node off.
fn fence(situation: &Situation<'_>, nodes: &NodeTable, request: &Request<'_>, plan: &mut Plan) {
    let world = situation.world;
    let spec = &request.operation.value.spec;
    let refused = OperationPhase::Refused;
    let Some(name) = spec.node.as_ref() else {
        write(
            situation,
            request,
            &verdict(refused, Reason::Invalid, "No node specified: set spec.node"),
            plan,
        );
        return;
    };
    let (Some(fence), Some(node)) = (world.fences.get(name), nodes.get(name)) else {
        let message = format!("Node {name} has never registered");
        write(situation, request, &verdict(refused, Reason::NotFound, message), plan);
        return;
    };
    let begun = request.is_begun();
    let failed = |message: String| verdict(OperationPhase::Failed, Reason::FenceDeviceFailed, message);
    let outcome = match fence.value.state {
        FenceState::Open | FenceState::Fencing if !begun && !node.has_device => {
            let message = format!(
                "Node {name} has no fence device: configure spec.fencing.devices with \"hactl edit node/{name}\", or \
                 power the machine off and run \"hactl node confirm-fenced {name}\""
            );
            verdict(refused, Reason::FencingUnavailable, message)
        }
        FenceState::Open if begun => {
            failed(format!("No fence device confirmed that {name} is off, and the node has registered again"))
        }
        FenceState::Open => {
            let subject = FencedNode::of(situation, name, node);
            let (transaction, message) = fencing::closing(situation, &subject, fence, None, false);
            let told =
                node_event(situation, name, EventType::Warning, Reason::UserRequested, message.clone());
            let running = verdict(OperationPhase::Running, Reason::InProgress, message);
            write_fence(situation, request, name, &running, transaction, told, plan);
            return;
        }
        FenceState::Fencing => {
            match fencing::devices::failed_since(situation, name, request.operation.seen) {
                None => verdict(OperationPhase::Running, Reason::InProgress, "Fence device is running"),
                Some(errors) => failed(format!(
                    "Fence devices failed: {errors}. Repair them, or power the machine off and run \"hactl node \
                     confirm-fenced {name}\""
                )),
            }
        }
        FenceState::Fenced | FenceState::Closed => {
            let said = fence.value.proof.as_ref().map(Proof::sentence).unwrap_or_default();
            match (begun, matches!(fence.value.proof, Some(Proof::Device { .. }))) {
                (true, true) => verdict(OperationPhase::Succeeded, Reason::Completed, said),
                (true, false) => failed(format!("No fence device confirmed that {name} is off: {said}")),
                (false, _) => verdict(
                    refused,
                    Reason::Outdated,
                    format!("Registration of node {name} is already revoked: {said}"),
                ),
            }
        }
    };
    write(situation, request, &outcome, plan);
}

/// Returns the refusal of an operation whose operator saw the node under another epoch or boot.
fn outdated(name: &str, fence: &Fence) -> Verdict {
    let sentence = Reason::Outdated.sentence();
    let message =
        format!("{sentence}: node {name} has registration {} of boot {}", fence.epoch, fence.boot_id);
    verdict(OperationPhase::Refused, Reason::Outdated, message)
}

/// Reconnects a node that a fabric device has disconnected, if the fence is still as the operator saw it. The planner
/// of its fence devices does the work.
fn unfence(situation: &Situation<'_>, request: &Request<'_>, plan: &mut Plan) {
    let spec = &request.operation.value.spec;
    let name = &spec.node.clone().unwrap_or_default();
    let (refused, done) = (OperationPhase::Refused, OperationPhase::Succeeded);
    let begun = request.is_begun();
    let outcome = match situation.world.fences.get(name).map(|fence| &fence.value) {
        None => verdict(refused, Reason::NotFound, format!("Node {name} has never registered")),
        Some(fence) if !fencing::is_as_seen(spec, fence) => outdated(name, fence),
        Some(fence) => {
            let cut = fencing::devices::disconnecting_devices(situation, name, fence);
            match (fence.state, cut.first()) {
                (FenceState::Fencing, _) => {
                    let message = format!("Fencing of {name} is not confirmed yet: try again later");
                    verdict(refused, Reason::Fencing, message)
                }
                (FenceState::Fenced | FenceState::Closed, Some(device)) => {
                    let message = format!("Fence device {} is reconnecting the node", device.name);
                    verdict(OperationPhase::Running, Reason::InProgress, message)
                }
                (FenceState::Open | FenceState::Fenced | FenceState::Closed, _) if begun => {
                    verdict(done, Reason::Completed, format!("{name} is reconnected"))
                }
                (FenceState::Open | FenceState::Fenced | FenceState::Closed, _) => {
                    verdict(refused, Reason::Refused, format!("No fabric device isolates {name}"))
                }
            }
        }
    };
    write(situation, request, &outcome, plan);
}
