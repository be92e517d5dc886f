//! Admission of nodes. An open old epoch is closed first, and only the registration that was examined is admitted.

use super::{FencedNode, close, devices};
use crate::core::plan::{OnApplied, Plan, Subject, node_event, serialized};
use crate::core::plan_input::PlanInput;
use crate::core::world::Versioned;
use ha_api_types::event::EventType;
use ha_api_types::id::{Epoch, NodeName, ResourceName, Revision};
use ha_api_types::kind::Kind;
use ha_api_types::node::{Node, NodeSpec};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Assignment, Fence, FenceState, MachineComparison, MachineIds, NodeReport, Proof};
use ha_api_types::resource::ServiceState;
use ha_store::{Guard, Transaction};

/// Admits a name that never had an epoch: opens epoch 1, and creates the Node object in the same transaction.
pub(super) fn plan_new(input: &PlanInput<'_>, subject: &FencedNode<'_>, plan: &mut Plan) {
    let Some(report) = subject.registration() else { return };
    let fence = Versioned {
        value: Fence { epoch: Epoch(1), ..Fence::default() },
        create_revision: Revision(0),
        mod_revision: Revision(0),
        first_seen_at: report.first_seen_at,
    };
    if refuse_clone(input, subject.name, report, plan)
        || plan_wait_for_errors(input, subject.name, &fence, report, plan)
    {
        return;
    }
    let new_object = missing_object(input, subject.name).then(|| new_object(input, subject.name, report));
    admit(input, subject, Guard::Absent, &fence.value, report, new_object.as_ref(), plan);
}

/// Handles a registration while the old epoch is open: closes that epoch first.
///
/// Another boot of the same machine is a proof, once the old heartbeat is absent or silent for Th. A new registration
/// of the same boot is a proof too. Another machine is refused until an operator confirms the old one off.
pub(super) fn plan_close(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    report: &Versioned<NodeReport>,
    plan: &mut Plan,
) {
    let name = subject.name;
    let same_machine = report.value.machine().compare(fence.value.machine());
    if same_machine == MachineComparison::Different {
        refuse_other_machine(name, fence, report, plan);
        return;
    }
    // If the boot id is the same but another instance sends the heartbeats, two agent processes may be alive, and one
    // could restart services that the other has just stopped. Such a registration waits until the old heartbeat has
    // expired.
    let same_process =
        input.cluster_view.alive.get(name).is_none_or(|alive| alive.value.instance == report.value.instance);
    let same_boot = report.value.boot_id == fence.value.boot_id;
    if same_boot && same_process {
        // This close guards the registration, and no permit can commit with a report of Registering. All services
        // except those in notStopped are thus proven stopped.
        close(input, subject, fence, Some(&Proof::Reregistered), OnApplied::None, plan);
        return;
    }
    let expires_at = subject.node.silent_since + input.cluster_view.heartbeat_valid_ms(name);
    if input.cluster_view.alive.contains_key(name) && input.now.monotonic_raw < expires_at {
        plan.wake_at(input, expires_at, "the heartbeat of the previous boot or process has expired");
        let message = "Waiting for the heartbeat of the previous boot or process to expire before the new process is registered";
        plan.add_wait(Kind::Node, name, Reason::Registering, message);
        return;
    }
    let proof = match (same_boot, same_machine) {
        (true, _) => Some(Proof::Reregistered),
        (false, MachineComparison::Same) => Some(Proof::NewBoot { boot_id: report.value.boot_id.clone() }),
        // A product id is missing, so the machine may be a clone, and its boot is not proof (FENCING R5.27).
        (false, MachineComparison::Unclear | MachineComparison::Different) => None,
    };
    close(input, subject, fence, proof.as_ref(), OnApplied::None, plan);
}

/// Handles a closed epoch: admits a registration that was not admitted before.
///
/// The fence shows that the node was registered before. A missing Node object was therefore deleted, and the node is not
/// admitted until an operator creates the object again (FENCING R3.18).
pub(super) fn plan_admission(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    plan: &mut Plan,
) {
    let Some(report) = subject.registration() else { return };
    if missing_object(input, subject.name) {
        plan.add_wait(Kind::Node, subject.name, Reason::NotFound, deleted_message(subject.name));
        return;
    }
    let known_machine = fence.value.machine_id.is_empty()
        || report.value.machine().compare(fence.value.machine()) != MachineComparison::Different;
    let confirmed_gone = match &fence.value.proof {
        Some(Proof::Operator { .. }) => true,
        Some(Proof::Device { name }) => devices::is_power_device(input, subject.name, name),
        Some(
            Proof::Silence { .. }
            | Proof::NewBoot { .. }
            | Proof::CleanLeave { .. }
            | Proof::Reregistered
            | Proof::NothingActive,
        )
        | None => false,
    };
    if !known_machine && !confirmed_gone {
        refuse_other_machine(subject.name, fence, report, plan);
        return;
    }
    if refuse_clone(input, subject.name, report, plan) {
        return;
    }
    if fence.value.request == Some(report.mod_revision) {
        // This registration was admitted and has lapsed. Services that appeared since were not checked, so the agent
        // must register again.
        return;
    }
    if plan_wait_for_errors(input, subject.name, fence, report, plan)
        || wait_for_replacements(input, subject.name, plan)
    {
        return;
    }
    admit(input, subject, Guard::Unchanged(fence.mod_revision), &fence.value, report, None, plan);
}

/// Returns `true` if a node registers with both ids of another reachable node. Such a machine has two node names, and a
/// failure under one name would fence the other (FENCING R5.28).
fn refuse_clone(input: &PlanInput<'_>, name: &str, report: &Versioned<NodeReport>, plan: &mut Plan) -> bool {
    let cluster_view = input.cluster_view;
    let other = cluster_view.fences.iter().find(|(other, fence)| {
        let machine = fence.value.machine();
        other.as_str() != name
            && fence.value.state == FenceState::Open
            && report.value.machine().is_certainly_same(machine)
            && cluster_view
                .alive
                .get(other.as_str())
                .is_some_and(|alive| alive.value.epoch == fence.value.epoch)
            && cluster_view.observations.get(other.as_str()).is_some_and(|observed| {
                input.now.monotonic_raw < observed.since + cluster_view.heartbeat_valid_ms(other)
            })
    });
    let Some((other, _)) = other else { return false };
    let message = format!(
        "Machine registers as {name} and as {other}. Stop one of the two agents, or, if these are two machines, give \
         one of them a new machine id (rm /etc/machine-id && systemd-machine-id-setup)"
    );
    plan.add_wait(Kind::Node, name, Reason::DuplicateNode, message);
    true
}

/// Refuses the registration of another machine.
fn refuse_other_machine(
    name: &NodeName,
    fence: &Versioned<Fence>,
    report: &Versioned<NodeReport>,
    plan: &mut Plan,
) {
    let message = format!(
        "Machine {} registers under the node name of machine {}. Start its agent with another --node, or, if the old \
         machine is permanently powered off, run hactl node confirm-fenced {name}",
        machine_text(report.value.machine()),
        machine_text(fence.value.machine())
    );
    plan.add_wait(Kind::Node, name, Reason::DuplicateNode, message);
}

/// Returns `true` if the node has no object, not even an unreadable object.
fn missing_object(input: &PlanInput<'_>, name: &str) -> bool {
    let cluster_view = input.cluster_view;
    !cluster_view.nodes.contains_key(name)
        && !cluster_view.unreadable.contains_key(&cluster_view.keys.spec(Kind::Node, name))
}

/// Returns the Node object of a node that registers for the first time.
fn new_object(input: &PlanInput<'_>, name: &str, report: &Versioned<NodeReport>) -> Node {
    let mut node = Node::new(name, NodeSpec::default());
    // The uid is unique among all objects, because each revision occurs once.
    node.metadata.uid = format!("node-{name}-{}", report.mod_revision).into();
    node.metadata.generation = 1;
    node.metadata.creation_timestamp = Some(input.now.timestamp());
    node
}

fn deleted_message(name: &str) -> String {
    format!(
        "Node {name} was deleted, and its machine registers again. To use the node, run \"hactl create node {name}\". \
         Otherwise, remove the agent from the machine"
    )
}

fn machine_text(machine: MachineIds<'_>) -> String {
    match machine.product_id {
        Some(product_id) => format!("{} (hardware {product_id})", machine.machine_id),
        None => machine.machine_id.to_owned().to_string(),
    }
}

/// Returns `true`, and waits, while a service that the agent could not stop is not yet stored as an unconfirmed Error.
/// The node is admitted only afterward.
pub(super) fn plan_wait_for_errors(
    input: &PlanInput<'_>,
    node: &NodeName,
    fence: &Versioned<Fence>,
    report: &Versioned<NodeReport>,
    plan: &mut Plan,
) -> bool {
    let cluster_view = input.cluster_view;
    let pending: Vec<&str> = report
        .value
        .not_stopped
        .iter()
        .filter(|resource| {
            cluster_view
                .resources
                .get(&resource.name)
                .is_some_and(|stored| stored.value.metadata.uid == resource.uid)
        })
        .filter(|resource| {
            !cluster_view.resource_statuses.get(&resource.name).is_some_and(|status| {
                let status = &status.value;
                status.state == ServiceState::Error
                    && status.stop_confirmed == Some(false)
                    && status.node.as_ref() == Some(node)
                    && status.epoch == Some(fence.value.epoch)
            })
        })
        .map(|resource| resource.name.as_str())
        .collect();
    if pending.is_empty() {
        return false;
    }
    let message =
        format!("Waiting until services that the node could not stop are in Error: {}", pending.join(", "));
    plan.add_wait(Kind::Node, node, Reason::StopFailed, message);
    true
}

/// Returns `true`, and waits, while the service planner has not processed the node's last reports about replacements of
/// secondaries. After admission, the agent overwrites these reports.
fn wait_for_replacements(input: &PlanInput<'_>, node: &NodeName, plan: &mut Plan) -> bool {
    let cluster_view = input.cluster_view;
    let is_pending = |name: &ResourceName, assignment: &Assignment| {
        let request = assignment.replacement.as_ref().filter(|_| assignment.node == *node);
        let status =
            cluster_view.resource_statuses.get(name).and_then(|status| status.value.replacement.as_ref());
        let resource_exists = cluster_view.resources.contains_key(name);
        resource_exists && request.zip(status).is_some_and(|(request, status)| request.uid == status.uid)
    };
    let assignments = cluster_view.assignments.iter();
    let pending: Vec<&str> = assignments
        .filter(|(name, assignment)| is_pending(name, &assignment.value))
        .map(|(name, _)| name.as_str())
        .collect();
    if pending.is_empty() {
        return false;
    }
    let message = format!("Waiting for the current secondary to be determined for {}", pending.join(", "));
    plan.add_wait(Kind::Node, node, Reason::ReplacingSecondary, message);
    true
}

fn admit(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    guard: Guard,
    fence: &Fence,
    report: &Versioned<NodeReport>,
    new_object: Option<&Node>,
    plan: &mut Plan,
) {
    let cluster_view = input.cluster_view;
    let name = subject.name;
    let epoch = fence.epoch;
    let refuted_device = devices::device_refuted_by_registration(input, name, fence, &report.value);
    let open = Fence {
        epoch,
        machine_id: report.value.machine_id.clone(),
        product_id: report.value.product_id.clone(),
        boot_id: report.value.boot_id.clone(),
        request: Some(report.mod_revision),
        state: FenceState::Open,
        proof: None,
        proof_revision: None,
        off_revision: None,
        on_missed_heartbeats: false,
        armed_fencing_delay_ms: None,
        hold: None,
        device: None,
        // The request was made after the last device had ended, so the machine is on.
        switched_off: Vec::new(),
        refuted_devices: devices::refuted_devices(input, name, refuted_device),
        requires_probes: cluster_view.unverified_resources().contains_key(name),
        at: input.now.timestamp(),
    };
    let mut transaction = Transaction::new()
        .put(cluster_view.keys.fence(name), guard, serialized(&open))
        .guard(cluster_view.keys.node_report(name), Guard::Unchanged(report.mod_revision));
    let object_key = cluster_view.keys.spec(Kind::Node, name);
    if let Some(node) = new_object {
        transaction = transaction.put(object_key, Guard::Absent, serialized(node));
    } else if let Some(node) = cluster_view.nodes.get(name) {
        // The API deletes the object only while the epoch is closed.
        transaction = transaction.guard(object_key, Guard::Unchanged(node.mod_revision));
    }
    let message = format!("Node registered (registration {epoch})");
    let mut events = vec![node_event(input, name, EventType::Normal, Reason::Registering, message)];
    if let Some(device) = refuted_device {
        let message = devices::refuted_message(device);
        events.push(node_event(input, name, EventType::Warning, Reason::FenceDeviceRefuted, message));
    }
    plan.add_action(Subject::Fence(name.to_owned()), transaction, events, OnApplied::None);
}
