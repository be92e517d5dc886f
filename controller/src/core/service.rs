//! The service planner: one pure function per state, over one draft of the service's records.

mod assign;
mod conditions;
mod copies;
mod delete;
mod disarm;
mod error;
mod external_change;
mod identity;
mod ignore;
mod in_place;
mod joint_placement;
mod migrate;
mod moves;
pub(super) mod operation;
mod ordering;
mod outcome;
mod policy;
mod preemption;
mod probe;
mod queued;
mod rebalance;
mod recover;
mod replacement;
mod start;
mod stop;
mod update;

pub(super) use assign::first_names;
pub(super) use disarm::delays_disarm;
pub(super) use joint_placement::JointPlacement;
pub(super) use migrate::nodes_with_unproven_arrival;

use super::health::NodeTable;
use super::order::DependencyGraph;
use super::placement::replicas;
use super::plan::{OnApplied, Plan, Subject, Waiting};
use super::plan_input::PlanInput;
use super::unverified::UnverifiedResources;
use super::world::{Versioned, guard_of};
use ha_api_types::availability::{Availability, AvailabilityState};
use ha_api_types::id::{ActionUid, Epoch, NodeName, ObjectUid, ResourceName, Revision};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Assignment, Fence, FenceState, Mode, Phase, ServiceReport, Tombstone};
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use ha_api_types::time::Timestamp;
use ha_scheduler::{MoveStep, View};
use std::collections::{BTreeMap, BTreeSet};
use update::{AssignmentChange, ServiceUpdate};

/// Input and output of the functions of this module. The input of the plan does not change; the plan and the
/// scheduler's view do.
pub struct Planner<'a> {
    /// Input of the plan.
    pub input: PlanInput<'a>,
    /// State of the nodes.
    pub nodes: &'a NodeTable,
    /// The scheduler's view, updated with planned changes.
    pub view: View,
    /// Services whose moves depend on moves of other services.
    pub dependent_moves: BTreeMap<ResourceName, MoveStep>,
    /// Services that this plan moves on an operator's request.
    pub moved_by_operator: BTreeSet<ResourceName>,
    /// Moves that rebalance the load, by service.
    rebalances: BTreeMap<ResourceName, rebalance::PlannedRebalance>,
    /// The plan so far.
    pub plan: Plan,
    /// First condition that the leader waits for before a node can be fenced or used, by node. Computed once before
    /// services are planned, so that no service searches all waits of the plan.
    node_waits: BTreeMap<NodeName, Waiting>,
    /// Source and target nodes of the replacements of secondaries that this plan begins.
    replacements: Vec<[NodeName; 2]>,
    /// Services that a service of higher priority preempts, by name.
    preempted_services: BTreeMap<ResourceName, preemption::Preemption>,
    /// Start and stop order.
    order: DependencyGraph,
    /// Services that this plan stops, or will stop once their dependents are stopped.
    stopping_services: BTreeSet<ResourceName>,
    /// Joint placement of the services that are being scheduled, if it differs from separate placements.
    joint_placement: JointPlacement,
    /// Services that were scheduled in this plan; `true` if an eligible node was found.
    scheduled: BTreeMap<ResourceName, bool>,
    /// Nodes that were counted as empty and have not answered yet. No service is started on them.
    unverified: UnverifiedResources,
}

impl<'a> Planner<'a> {
    /// Creates a planner with an empty plan.
    pub fn new(
        input: PlanInput<'a>,
        nodes: &'a NodeTable,
        view: View,
        plan: Plan,
        joint_placement: JointPlacement,
    ) -> Planner<'a> {
        let mut planner = Planner {
            input,
            nodes,
            dependent_moves: BTreeMap::new(),
            view,
            moved_by_operator: BTreeSet::new(),
            rebalances: BTreeMap::new(),
            plan,
            node_waits: BTreeMap::new(),
            replacements: Vec::new(),
            preempted_services: BTreeMap::new(),
            order: DependencyGraph::of(
                input.cluster_view.resources.iter().map(|(name, read)| (name, &read.value)),
            ),
            stopping_services: BTreeSet::new(),
            joint_placement,
            scheduled: BTreeMap::new(),
            unverified: input.cluster_view.unverified_resources(),
        };
        for name in ordering::blocked_services(&planner) {
            if let Some(mut facts) = planner.view.services.get_mut(&name) {
                facts.waits_for_others = true;
            }
        }
        for name in ordering::services_without_restart(&planner) {
            if let Some(mut facts) = planner.view.services.get_mut(&name) {
                // No move of another service counts on the return of this one.
                facts.failback = false;
                facts.maintenance_node = None;
            }
        }
        planner.dependent_moves = ha_scheduler::dependent_moves(&planner.view);
        planner
    }

    /// Returns `true` if a write of this leader is about to open a node's epoch, or may just have opened it.
    fn is_being_opened(&self, node: &NodeName) -> bool {
        let subject = Subject::Fence(node.to_owned());
        let is_closed = |fence: &Versioned<Fence>| fence.value.state != FenceState::Open;
        self.input.cluster_view.fences.get(node).is_some_and(is_closed)
            && (self.input.busy.contains(&subject)
                || self.plan.actions.iter().any(|action| action.subject == subject))
    }

    /// Waits for an unreachable node. If the node cannot be fenced, the message names the cause and the command for the
    /// operator.
    fn wait_for_node(&self, update: &mut ServiceUpdate, node: &NodeName) {
        let (reason, message) = match self.node_waits.get(node) {
            Some(waiting) => (waiting.reason, format!("{node}: {}", waiting.message)),
            None => (Reason::HeartbeatMissed, format!("Heartbeat of node {node} is late")),
        };
        update.add_wait(reason, message);
    }

    /// Waits for an action in progress on a node. If the node is unreachable, the wait states why the node is not
    /// fenced yet, because the action may never end.
    fn await_action(&self, update: &mut ServiceUpdate, node: &NodeName, reason: Reason, message: String) {
        if self.nodes.get(node).is_some_and(crate::core::health::NodeHealth::is_reachable) {
            update.add_wait(reason, message);
        } else {
            self.wait_for_node(update, node);
        }
    }

    /// Returns a new action uid. The term distinguishes it from the uids of other leaders, the number from those of
    /// this leader.
    fn action_uid(&mut self) -> ActionUid {
        let number = self.input.next_uid + self.plan.uids;
        self.plan.uids += 1;
        format!("{}-{number}", self.input.term).into()
    }
}

/// One service: its resource and its records, as read from etcd.
#[derive(Clone, Copy)]
struct Service<'a> {
    name: &'a ResourceName,
    resource: &'a Versioned<Resource>,
    status: Option<&'a Versioned<ResourceStatus>>,
    assignment: Option<&'a Versioned<Assignment>>,
    tombstone: Option<&'a Versioned<Tombstone>>,
    operation: Option<operation::ServiceRequest<'a>>,
}

/// State of the epoch of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EpochStatus {
    /// The epoch is open: the assignment holds.
    Active,
    /// The epoch is closed without a proof, so its services may still run.
    Closing,
    /// The epoch is closed with a proof, whether or not a newer epoch is open: none of its services runs.
    Released,
}

impl<'a> Service<'a> {
    fn requested_state(&self) -> RequestedState {
        self.resource.value.spec.state
    }

    fn uid(&self) -> &'a ObjectUid {
        &self.resource.value.metadata.uid
    }

    fn is_exclusive(&self) -> bool {
        self.resource.value.spec.exclusive
    }

    /// Returns `true` if guarantee 1 covers the assigned service (FENCING, R6.1): by the assignment, otherwise by the
    /// spec.
    ///
    /// The two differ only for a copy from before a restore or an upgrade (R6.11). No exclusive service starts in
    /// addition to such a copy: see [`copies::prove_no_other_copy`].
    fn is_assigned_exclusive(&self) -> bool {
        self.assignment
            .map(|assignment| &assignment.value.definition)
            .filter(|definition| definition.uid == *self.uid())
            .map_or(self.is_exclusive(), |definition| definition.exclusive)
    }

    /// Returns `true` if the service may leave a silent node without a proof (R10.10): guarantee 1 covers neither the
    /// assigned copy nor the next start. The two differ only for a copy of R6.11, for which the leader waits as for an
    /// exclusive one.
    fn may_run_twice(&self) -> bool {
        !self.is_assigned_exclusive() && !self.is_exclusive()
    }

    /// Returns the state of an epoch of a node. After a close, no assignment can exist under the epoch of the fence or
    /// a newer one. Such an assignment does not count as released.
    fn epoch_status(input: &PlanInput<'_>, node: &NodeName, epoch: Epoch) -> EpochStatus {
        let Some(fence) = input.cluster_view.fences.get(node) else { return EpochStatus::Closing };
        let Fence { epoch: current, state, .. } = &fence.value;
        match state {
            FenceState::Open if *current == epoch => EpochStatus::Active,
            FenceState::Open | FenceState::Fenced | FenceState::Closed if *current > epoch => {
                EpochStatus::Released
            }
            FenceState::Open | FenceState::Fenced | FenceState::Closed | FenceState::Fencing => {
                EpochStatus::Closing
            }
        }
    }

    /// Returns the assignment and the state of its epoch; `None` without an assignment.
    fn assignment_with_epoch(&self, input: &PlanInput<'_>) -> Option<(&'a Assignment, EpochStatus)> {
        let assignment = &self.assignment?.value;
        Some((assignment, Service::epoch_status(input, &assignment.node, assignment.epoch)))
    }

    /// Returns the report with which a node answers an action.
    fn answer_of(
        &self,
        input: &PlanInput<'a>,
        node: &NodeName,
        epoch: Epoch,
        action_uid: &ActionUid,
    ) -> Option<&'a Versioned<ServiceReport>> {
        let cluster_view = input.cluster_view;
        cluster_view.service_report(self.name, node).filter(|report| {
            let is_answer =
                report.value.action_uid.as_ref() == Some(action_uid) && report.value.epoch == epoch;
            // An unreadable report may be any answer.
            is_answer
                || cluster_view.is_report_unreadable(self.name, node)
                    && cluster_view.is_report_current(self.name, node, report)
        })
    }

    /// Returns the answer to the current assignment, from its node.
    fn answer(&self, input: &PlanInput<'a>) -> Option<&'a Versioned<ServiceReport>> {
        let assignment = &self.assignment?.value;
        self.answer_of(input, &assignment.node, assignment.epoch, &assignment.action_uid)
    }

    fn phase(&self, input: &PlanInput<'a>) -> Option<Phase> {
        self.answer(input).map(|report| report.value.phase)
    }

    /// Returns the other nodes that report, under a current epoch, that the service may run there.
    fn other_possible_nodes(&self, input: &PlanInput<'a>, except: Option<&NodeName>) -> Vec<&'a NodeName> {
        let cluster_view = input.cluster_view;
        let Some(reports) = cluster_view.service_reports.get(self.name) else { return Vec::new() };
        reports
            .iter()
            .filter(|(node, _)| Some(*node) != except)
            .filter(|(node, report)| {
                if cluster_view.is_report_unreadable(self.name, node) {
                    return cluster_view.is_report_current(self.name, node, report);
                }
                report.value.uid == *self.uid()
                    && cluster_view.may_run_under_epoch(node, report.value.epoch)
                    && report.value.phase.may_run()
                    && report.value.phase != Phase::ProbedUnknown
            })
            .map(|(node, _)| node)
            .collect()
    }

    /// Returns another node that reports, under a current epoch, that an exclusive service runs there.
    fn other_node_running_exclusive(
        &self,
        input: &PlanInput<'a>,
        except: Option<&NodeName>,
    ) -> Option<&'a NodeName> {
        self.other_node_running(input, except).filter(|_| self.is_exclusive())
    }

    /// Returns a node that reports, under a current epoch, that a service with `exclusive: false` runs there.
    fn node_running_non_exclusive(&self, input: &PlanInput<'a>) -> Option<&'a NodeName> {
        self.other_node_running(input, None).filter(|_| !self.is_exclusive())
    }

    /// Returns another node that reports, under a current epoch, that the service runs there.
    fn other_node_running(&self, input: &PlanInput<'a>, except: Option<&NodeName>) -> Option<&'a NodeName> {
        self.other_possible_nodes(input, except).into_iter().find(|node| {
            input
                .cluster_view
                .service_report(self.name, node)
                .is_some_and(|report| matches!(report.value.phase, Phase::ProbedRunning | Phase::Running))
        })
    }

    /// Returns a registration, not yet admitted, that names this service as not stopped: the node, and the epoch to
    /// be opened.
    fn not_stopped(&self, input: &PlanInput<'a>) -> Option<(&'a NodeName, Epoch, &'a str)> {
        let cluster_view = input.cluster_view;
        cluster_view.node_reports.iter().find_map(|(node, report)| {
            let not_stopped = report
                .value
                .not_stopped
                .iter()
                .find(|not_stopped| not_stopped.name == *self.name && not_stopped.uid == *self.uid())?;
            if report.value.mode != Mode::Registering {
                return None;
            }
            let epoch = match cluster_view.fences.get(node) {
                None => Epoch(1),
                Some(fence) => {
                    // The registration may be older than the close: an epoch that is still open is closed first.
                    let admitted_before = fence.value.request == Some(report.mod_revision);
                    if fence.value.state == FenceState::Open || admitted_before {
                        return None;
                    }
                    fence.value.epoch
                }
            };
            Some((node, epoch, not_stopped.message.as_str()))
        })
    }
}

/// Plans all services: dependencies before their dependents, otherwise higher priority first, then the largest first.
pub fn plan(planner: &mut Planner<'_>) {
    let cluster_view = planner.input.cluster_view;
    let waits = planner.plan.waiting.iter().rev().filter(|waiting| waiting.kind == Kind::Node);
    planner.node_waits = waits.map(|waiting| (waiting.name.as_str().into(), waiting.clone())).collect();
    let (mode, cluster) = (planner.view.settings.mode, planner.view.capacity());
    let size =
        |name: &ResourceName| planner.view.services.get(name).map_or(0, |facts| facts.size(mode, &cluster));
    let services =
        cluster_view.resources.iter().map(|(name, read)| (name, read.value.spec.priority, size(name)));
    let sequence = planner.order.sequence(services);
    let operations = operation::requests_by_service(&planner.input);
    rebalance::plan(planner, &operations);
    for name in sequence {
        let Some(resource) = cluster_view.resources.get(name) else { continue };
        if planner.input.busy.contains(&Subject::Service(name.clone())) {
            continue;
        }
        let keys = [cluster_view.keys.tombstone(name)];
        if !cluster_view.unreadable.is_empty()
            && let Some((key, error)) = cluster_view.first_unreadable(&keys)
        {
            let message = format!("{key} cannot be read: {error}");
            planner.plan.add_wait(Kind::Resource, name, Reason::Unreadable, message);
            continue;
        }
        let service = Service {
            name,
            resource,
            status: cluster_view.resource_statuses.get(name),
            assignment: cluster_view.assignments.get(name),
            tombstone: cluster_view.tombstones.get(name),
            operation: operations.get(name).copied(),
        };
        plan_service(planner, &service);
    }
    delete::plan_orphans(planner);
}

/// Maximum number of transitions in one write. A service may pass through several states, such as Started → Fence →
/// Recovery → Starting; a longer chain would be a loop.
const MAX_TRANSITIONS: usize = 8;

fn plan_service(planner: &mut Planner<'_>, service: &Service<'_>) {
    if service.resource.value.metadata.deletion_timestamp.is_some() {
        delete::plan(planner, service);
        return;
    }
    let mut update = ServiceUpdate::of(service);
    if service.status.is_some_and(|status| planner.input.cluster_view.is_from_backup(status.mod_revision)) {
        queued::probe_after_restore(&mut update);
        write_draft(planner, service, update);
        return;
    }
    if planner.input.cluster_view.is_service_unreadable(service.name) {
        queued::replace_unreadable_records(&planner.input, service, &mut update);
        write_draft(planner, service, update);
        return;
    }
    if replacement::advance(planner, service, &mut update) {
        write_draft(planner, service, update);
        return;
    }
    queued::remove_verified_nodes(&planner.input, service, &mut update);
    identity::probe_changed_identity(&planner.input, service, &mut update);
    let is_frozen = apply_overrides(planner, service, &mut update);
    if !is_frozen && migrate::hold_for_arrival(planner, service, &mut update) {
        write_draft(planner, service, update);
        return;
    }
    operation::check_pending(planner, service, &mut update);
    preemption::stop_if_preempted(planner, service, &mut update);
    for _ in 0..MAX_TRANSITIONS {
        if is_frozen {
            break;
        }
        let before = update.status.state;
        if update.assignment_change != AssignmentChange::Keep {
            break;
        }
        advance_state(planner, service, &mut update);
        if update.status.state == before {
            break;
        }
    }
    write_draft(planner, service, update);
}

/// Applies the overrides of every state: a new object under the name, Ignored, a service that a registering node
/// could not stop, a disarmed cluster. Returns `true` if a disarmed cluster freezes the service, or if an agent has not
/// confirmed Ignored, so that no state function follows.
fn apply_overrides(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) -> bool {
    let input = planner.input;
    if let Some((node, epoch, message)) = service.not_stopped(&input) {
        error::could_not_stop(planner, service, update, node, epoch, message);
        return false;
    }
    if service.requested_state() == RequestedState::Ignored && update.status.state != ServiceState::Ignored {
        return ignore::enter(&input, service, update);
    }
    match input.cluster_view.settings().disarmed {
        Some(disarmed) => disarm::freeze_if_disarmed(planner, service, update, disarmed),
        None => false,
    }
}

fn advance_state(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    if queued::needs_new_probe(update) {
        queued::probe_all_nodes(&planner.input, service, update);
        return;
    }
    match update.status.state {
        ServiceState::Queued => queued::plan_queued(planner, service, update),
        ServiceState::RequestStart => start::request_start(planner, service, update),
        ServiceState::Starting => start::plan_starting(planner, service, update),
        ServiceState::Started => start::plan_started(planner, service, update),
        ServiceState::RequestStop => stop::request_stop(planner, service, update),
        ServiceState::Stopping => stop::plan_stopping(planner, service, update),
        ServiceState::Stopped => stop::plan_stopped(planner, service, update),
        ServiceState::Disabled => stop::plan_disabled(planner, service, update),
        ServiceState::Migrate => migrate::migrate(planner, service, update),
        ServiceState::Relocate => moves::relocate(planner, service, update),
        ServiceState::Fence => recover::fence(planner, service, update),
        ServiceState::Recovery => recover::recovery(planner, service, update),
        ServiceState::Freeze => recover::freeze(planner, service, update),
        ServiceState::Error => error::error(planner, service, update),
        ServiceState::Ignored => ignore::resume_management(service, update),
        // The object is no longer being deleted, so the service is probed again.
        ServiceState::Deleting => update.transition_to(ServiceState::Queued, Reason::Pending, String::new()),
    }
}

/// Writes the draft if it contains changes.
fn write_draft(planner: &mut Planner<'_>, service: &Service<'_>, mut update: ServiceUpdate) {
    let input = planner.input;
    update.status.replicas = replicas(&service.resource.value, &update.status).into_iter().collect();
    let storage = service.resource.value.spec.storage.as_ref();
    update.status.declared_secondary = storage.and_then(|storage| storage.secondary.clone());
    external_change::follow_policy(&input, service, &mut update);
    copies::update_copies(&input, service, &mut update);
    outcome::set_outcome(&input, service, &mut update);
    conditions::set_conditions(&input, service, &mut update);
    record_availability(planner, service, &mut update);
    for (reason, message) in std::mem::take(&mut update.waiting) {
        planner.plan.add_wait(Kind::Resource, service.name, reason, message);
    }
    if let Some((at, wake_reason)) = update.wake {
        planner.plan.wake_at(&input, at, wake_reason);
    }
    let used_nodes = super::placement::used_nodes(&update.status);
    let is_stable = update.status.state == ServiceState::Started && update.status.replacement.is_none();
    if let Some(facts) = planner.view.services.get(service.name) {
        let has_same_nodes = facts.used_nodes == used_nodes;
        let movable = facts.movable && has_same_nodes && is_stable;
        let reserved_node = update.reserved_node.take();
        // Most services do not change, and the indexes of the view remain as they are.
        let is_unchanged = has_same_nodes
            && facts.movable == movable
            && reserved_node.is_none()
            && facts.node == update.status.node;
        if !is_unchanged && let Some(mut facts) = planner.view.services.get_mut(service.name) {
            facts.movable = movable;
            facts.used_nodes.clone_from(&used_nodes);
            // The reserved capacity is kept for this service, because services that are planned later are less
            // important.
            facts.used_nodes.extend(reserved_node);
            facts.node.clone_from(&update.status.node);
        }
    }
    if let Some((transaction, events)) = update.into_transaction(&input, service) {
        planner.plan.add_action(
            Subject::Service(service.name.to_owned()),
            transaction,
            events,
            OnApplied::Uses(used_nodes),
        );
    }
}

/// Records in the draft whether a requested service runs. The record is part of the write that changes the state, so it
/// needs no separate write.
fn record_availability(planner: &Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let availability_state = match (service.requested_state(), update.status.running) {
        (RequestedState::Started, true) => AvailabilityState::Up,
        (RequestedState::Started, false) => AvailabilityState::Down,
        (RequestedState::Stopped | RequestedState::Disabled | RequestedState::Ignored, _) => {
            AvailabilityState::NotWanted
        }
    };
    let availability = update
        .status
        .availability
        .get_or_insert_with(|| Availability::begin(availability_state, &planner.input.now.timestamp()));
    if availability.state != availability_state {
        availability
            .enter_state(availability_state, &availability_since(planner, service, availability_state));
    }
}

/// Returns the time of a change of availability. A service on an unreachable node counts as ended at the last
/// heartbeat, not at the proof.
fn availability_since(
    planner: &Planner<'_>,
    service: &Service<'_>,
    availability_state: AvailabilityState,
) -> Timestamp {
    let now = planner.input.now;
    let before = service.status.and_then(|status| status.value.node.as_ref());
    let node = before.and_then(|node| planner.nodes.get(node)).filter(|node| !node.is_reachable());
    match (availability_state, node) {
        (AvailabilityState::Down, Some(node)) => {
            let heartbeat_age_ms = now.monotonic_raw.since(node.observed_at);
            Timestamp::from_unix_ms(now.wall_unix_ms - i128::from(heartbeat_age_ms))
        }
        (AvailabilityState::Down | AvailabilityState::Up | AvailabilityState::NotWanted, _) => {
            now.timestamp()
        }
    }
}

/// Returns the guard of a key of this service, as it was read.
fn record_guard<T>(record: Option<&Versioned<T>>) -> ha_store::Guard {
    guard_of(record)
}

/// Returns the key of a report and its guard.
fn report_guard(input: &PlanInput<'_>, node: &NodeName, name: &ResourceName) -> (String, ha_store::Guard) {
    let report = input.cluster_view.service_report(name, node);
    (input.cluster_view.keys.service_report(node, name), guard_of(report))
}

/// Returns the key of a fence and its revision; `None` if the node has no fence.
fn fence_guard(input: &PlanInput<'_>, node: &NodeName) -> Option<(String, Revision)> {
    let fence = input.cluster_view.fences.get(node)?;
    Some((input.cluster_view.keys.fence(node), fence.mod_revision))
}
