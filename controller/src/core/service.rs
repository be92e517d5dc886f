//! The service planner: one pure function per state, over one draft of the service's records.

mod arranged;
mod assign;
mod availability;
mod conditions;
mod copies;
mod delete;
mod disarm;
mod draft;
mod error;
mod external_change;
mod identity;
mod ignore;
mod in_place;
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

pub(super) use arranged::Arranged;
pub(super) use assign::some_of;
pub(super) use disarm::holds_up as holds_up_disarm;

use super::health::NodeTable;
use super::order::Order;
use super::placement::replicas;
use super::plan::{Note, Plan, Subject, Waiting};
use super::situation::Situation;
use super::unverified::Unverified;
use super::world::{Versioned, guard_of};
use draft::{Assign, Draft};
use ha_api_types::id::{ActionUid, Epoch, NodeName, ResourceName, Revision};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Assignment, Fence, FenceState, Mode, Phase, ServiceReport, Tombstone};
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use ha_scheduler::{Turn, View};
use std::collections::{BTreeMap, BTreeSet};

/// Input and output of the functions of this module. The input of the plan does not change; the plan and the
/// scheduler's view do.
pub struct Planner<'a> {
    /// Input of the plan.
    pub situation: Situation<'a>,
    /// State of the nodes.
    pub nodes: &'a NodeTable,
    /// The scheduler's view, updated with planned changes.
    pub view: View,
    /// Services whose moves depend on moves of others.
    pub turns: BTreeMap<ResourceName, Turn>,
    /// Services that this plan moves on an operator's request.
    pub moved_by_operator: BTreeSet<ResourceName>,
    /// Moves that rebalance the load, by service.
    rebalances: BTreeMap<ResourceName, rebalance::Rebalance>,
    /// The plan so far.
    pub plan: Plan,
    /// First condition that the leader waits for before a node can be fenced or used, by node. Fixed before services
    /// are planned, so that no service searches all waits of the plan.
    node_waits: BTreeMap<NodeName, Waiting>,
    /// Source and target nodes of the replacements of secondaries that this plan begins.
    replacements: Vec<[NodeName; 2]>,
    /// Services that a service of higher priority preempts, by name.
    displaced: BTreeMap<ResourceName, preemption::Displacement>,
    /// Start and stop order.
    order: Order,
    /// Services that this plan stops, or will stop once their dependents are stopped.
    leaving: BTreeSet<ResourceName>,
    /// Joint placement of the services that are being scheduled, if it differs from separate placements.
    arranged: Arranged,
    /// Services that were scheduled in this plan; `true` if an eligible node was found.
    looked: BTreeMap<ResourceName, bool>,
    /// Nodes that were counted as empty and have not answered yet. No service is started on them.
    unverified: Unverified,
}

impl<'a> Planner<'a> {
    /// Creates a planner with an empty plan.
    pub fn new(
        situation: Situation<'a>,
        nodes: &'a NodeTable,
        view: View,
        plan: Plan,
        arranged: Arranged,
    ) -> Planner<'a> {
        let mut planner = Planner {
            situation,
            nodes,
            turns: BTreeMap::new(),
            view,
            moved_by_operator: BTreeSet::new(),
            rebalances: BTreeMap::new(),
            plan,
            node_waits: BTreeMap::new(),
            replacements: Vec::new(),
            displaced: BTreeMap::new(),
            order: Order::of(situation.world.resources.iter().map(|(name, read)| (name, &read.value))),
            leaving: BTreeSet::new(),
            arranged,
            looked: BTreeMap::new(),
            unverified: situation.world.unverified(),
        };
        for name in ordering::held_back(&planner) {
            if let Some(mut facts) = planner.view.services.get_mut(&name) {
                facts.waits_for_others = true;
            }
        }
        planner.turns = ha_scheduler::turns(&planner.view);
        planner
    }

    /// Returns `true` if a write of this leader is about to open a node's epoch, or may just have opened it.
    fn is_being_opened(&self, node: &NodeName) -> bool {
        let subject = Subject::Fence(node.to_owned());
        let is_closed = |fence: &Versioned<Fence>| fence.value.state != FenceState::Open;
        self.situation.world.fences.get(node).is_some_and(is_closed)
            && (self.situation.busy.contains(&subject)
                || self.plan.actions.iter().any(|action| action.subject == subject))
    }

    /// Waits for an unreachable node. If the node cannot be fenced, the message names the cause and the command for the
    /// operator.
    fn await_node(&self, draft: &mut Draft, node: &NodeName) {
        let (reason, message) = match self.node_waits.get(node) {
            Some(waiting) => (waiting.reason, format!("{node}: {}", waiting.message)),
            None => (Reason::HeartbeatMissed, format!("Heartbeat of node {node} is late")),
        };
        draft.wait(reason, message);
    }

    /// Waits for an action in progress on a node. If the node is unreachable, the reason is why it is not fenced yet,
    /// because the action may never end.
    fn await_action(&self, draft: &mut Draft, node: &NodeName, reason: Reason, message: String) {
        if self.nodes.get(node).is_some_and(crate::core::health::NodeHealth::is_heard) {
            draft.wait(reason, message);
        } else {
            self.await_node(draft, node);
        }
    }

    /// Returns a new action uid. The term makes it unique over leaders, the number within this leader.
    fn action_uid(&mut self) -> ActionUid {
        let number = self.situation.next_uid + self.plan.uids;
        self.plan.uids += 1;
        format!("{}-{number}", self.situation.term).into()
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
    operation: Option<operation::Request<'a>>,
}

/// State of the epoch of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The epoch is open: the assignment holds.
    InForce,
    /// The epoch is closed without a proof, so its services may still run.
    Closing,
    /// The epoch is closed with a proof, whether or not a newer epoch is open: none of its services runs.
    Released,
}

impl<'a> Service<'a> {
    fn wanted(&self) -> RequestedState {
        self.resource.value.spec.state
    }

    fn uid(&self) -> &'a str {
        &self.resource.value.metadata.uid
    }

    fn exclusive(&self) -> bool {
        self.resource.value.spec.exclusive
    }

    /// Returns `true` if guarantee 1 covers the assigned service (FENCING, R6.1): by the assignment, otherwise by the
    /// spec.
    ///
    /// The two differ only for a copy from before a restore or an upgrade (R6.11). No exclusive service starts in
    /// addition to such a copy: see [`copies::elsewhere`].
    fn is_exclusive_in_force(&self) -> bool {
        self.assignment
            .map(|assignment| &assignment.value.definition)
            .filter(|definition| definition.uid == self.uid())
            .map_or(self.exclusive(), |definition| definition.exclusive)
    }

    /// Returns `true` if the service may leave a silent node without a proof (R10.10): guarantee 1 covers neither the
    /// assigned copy nor the next start. The two differ only for a copy of R6.11, for which the leader waits as for an
    /// exclusive one.
    fn may_run_twice(&self) -> bool {
        !self.is_exclusive_in_force() && !self.exclusive()
    }

    /// Returns the state of an epoch of a node. After a close, no assignment can exist under the epoch of the fence or
    /// a newer one. Such an assignment does not count as released.
    fn standing(situation: &Situation<'_>, node: &NodeName, epoch: Epoch) -> Standing {
        let Some(fence) = situation.world.fences.get(node) else { return Standing::Closing };
        let Fence { epoch: current, state, .. } = &fence.value;
        match state {
            FenceState::Open if *current == epoch => Standing::InForce,
            FenceState::Open | FenceState::Fenced | FenceState::Closed if *current > epoch => {
                Standing::Released
            }
            FenceState::Open | FenceState::Fenced | FenceState::Closed | FenceState::Fencing => {
                Standing::Closing
            }
        }
    }

    /// Returns the assignment and the state of its epoch; `None` without an assignment.
    fn assigned(&self, situation: &Situation<'_>) -> Option<(&'a Assignment, Standing)> {
        let assignment = &self.assignment?.value;
        Some((assignment, Service::standing(situation, &assignment.node, assignment.epoch)))
    }

    /// Returns the report with which a node answers an action.
    fn answer_of(
        &self,
        situation: &Situation<'a>,
        node: &NodeName,
        epoch: Epoch,
        action_uid: &ActionUid,
    ) -> Option<&'a Versioned<ServiceReport>> {
        let world = situation.world;
        world.service_report(self.name, node).filter(|report| {
            let is_answer =
                report.value.action_uid.as_ref() == Some(action_uid) && report.value.epoch == epoch;
            // An unreadable report may be any answer.
            is_answer
                || world.is_report_unreadable(self.name, node) && world.report_lives(self.name, node, report)
        })
    }

    /// Returns the answer to the current assignment, from its node.
    fn answer(&self, situation: &Situation<'a>) -> Option<&'a Versioned<ServiceReport>> {
        let assignment = &self.assignment?.value;
        self.answer_of(situation, &assignment.node, assignment.epoch, &assignment.action_uid)
    }

    fn phase(&self, situation: &Situation<'a>) -> Option<Phase> {
        self.answer(situation).map(|report| report.value.phase)
    }

    /// Returns the other nodes that report, under a current epoch, that the service may run there.
    fn may_run_elsewhere(&self, situation: &Situation<'a>, than: Option<&NodeName>) -> Vec<&'a NodeName> {
        let world = situation.world;
        let Some(reports) = world.service_reports.get(self.name) else { return Vec::new() };
        reports
            .iter()
            .filter(|(node, _)| Some(*node) != than)
            .filter(|(node, report)| {
                if world.is_report_unreadable(self.name, node) {
                    return world.report_lives(self.name, node, report);
                }
                report.value.uid == self.uid()
                    && world.lives(node, report.value.epoch)
                    && report.value.phase.may_run()
                    && report.value.phase != Phase::ProbedUnknown
            })
            .map(|(node, _)| node)
            .collect()
    }

    /// Returns another node that reports, under a current epoch, that an exclusive service runs there.
    fn runs_elsewhere(&self, situation: &Situation<'a>, than: Option<&NodeName>) -> Option<&'a NodeName> {
        self.running_elsewhere(situation, than).filter(|_| self.exclusive())
    }

    /// Returns a node that reports, under a current epoch, that a service with `exclusive: false` runs there.
    fn runs_twice_on(&self, situation: &Situation<'a>) -> Option<&'a NodeName> {
        self.running_elsewhere(situation, None).filter(|_| !self.exclusive())
    }

    /// Returns another node that reports, under a current epoch, that the service runs there.
    fn running_elsewhere(&self, situation: &Situation<'a>, than: Option<&NodeName>) -> Option<&'a NodeName> {
        self.may_run_elsewhere(situation, than).into_iter().find(|node| {
            situation
                .world
                .service_report(self.name, node)
                .is_some_and(|report| matches!(report.value.phase, Phase::ProbedRunning | Phase::Running))
        })
    }

    /// Returns a registration, not yet admitted, that names this service as not stopped: the node, and the epoch to
    /// be opened.
    fn not_stopped(&self, situation: &Situation<'a>) -> Option<(&'a NodeName, Epoch, &'a str)> {
        let world = situation.world;
        world.node_reports.iter().find_map(|(node, report)| {
            let named = report
                .value
                .not_stopped
                .iter()
                .find(|named| named.name == *self.name && named.uid == self.uid())?;
            if report.value.mode != Mode::Registering {
                return None;
            }
            let epoch = match world.fences.get(node) {
                None => Epoch(1),
                Some(fence) => {
                    // The registration may be older than the close: an epoch that is still open is closed first.
                    let admitted_before = fence.value.request == Some(report.modified);
                    if fence.value.state == FenceState::Open || admitted_before {
                        return None;
                    }
                    fence.value.epoch
                }
            };
            Some((node, epoch, named.message.as_str()))
        })
    }
}

/// Plans all services: dependencies before their dependents, otherwise higher priority first, then the largest first.
pub fn plan(planner: &mut Planner<'_>) {
    let world = planner.situation.world;
    let waits = planner.plan.waiting.iter().rev().filter(|waiting| waiting.kind == Kind::Node);
    planner.node_waits = waits.map(|waiting| (waiting.name.as_str().into(), waiting.clone())).collect();
    let (mode, cluster) = (planner.view.settings.mode, planner.view.capacity());
    let size =
        |name: &ResourceName| planner.view.services.get(name).map_or(0, |facts| facts.size(mode, &cluster));
    let services = world.resources.iter().map(|(name, read)| (name, read.value.spec.priority, size(name)));
    let sequence = planner.order.sequence(services);
    let operations = operation::requests(&planner.situation);
    rebalance::plan(planner, &operations);
    for name in sequence {
        let Some(resource) = world.resources.get(name) else { continue };
        if planner.situation.busy.contains(&Subject::Service(name.clone())) {
            continue;
        }
        let keys = [world.keys.tombstone(name)];
        if !world.unreadable.is_empty()
            && let Some((key, error)) = world.is_unreadable(&keys)
        {
            let message = format!("{key} cannot be read: {error}");
            planner.plan.wait(Kind::Resource, name, Reason::Unreadable, message);
            continue;
        }
        let service = Service {
            name,
            resource,
            status: world.resource_statuses.get(name),
            assignment: world.assignments.get(name),
            tombstone: world.tombstones.get(name),
            operation: operations.get(name).copied(),
        };
        plan_one(planner, &service);
    }
    delete::plan_orphans(planner);
}

/// Maximum number of transitions in one write. A service may pass through several states, such as Started → Fence →
/// Recovery → Starting; a longer chain would be a loop.
const MOST_STEPS: usize = 8;

fn plan_one(planner: &mut Planner<'_>, service: &Service<'_>) {
    if service.resource.value.metadata.deletion_timestamp.is_some() {
        delete::plan(planner, service);
        return;
    }
    let mut draft = Draft::of(service);
    if service.status.is_some_and(|status| planner.situation.world.is_old(status.modified)) {
        queued::after_restore(&mut draft);
        finish(planner, service, draft);
        return;
    }
    if planner.situation.world.is_service_unreadable(service.name) {
        queued::unreadable(&planner.situation, service, &mut draft);
        finish(planner, service, draft);
        return;
    }
    if replacement::look(planner, service, &mut draft) {
        finish(planner, service, draft);
        return;
    }
    queued::forget_verified(&planner.situation, service, &mut draft);
    identity::follow(&planner.situation, service, &mut draft);
    let rests = prepare(planner, service, &mut draft);
    if !rests && migrate::hold_for_arrival(planner, service, &mut draft) {
        finish(planner, service, draft);
        return;
    }
    operation::consider(planner, service, &mut draft);
    preemption::leave(planner, service, &mut draft);
    for _ in 0..MOST_STEPS {
        if rests {
            break;
        }
        let before = draft.status.state;
        if draft.assign != Assign::Keep {
            break;
        }
        step(planner, service, &mut draft);
        if draft.status.state == before {
            break;
        }
    }
    finish(planner, service, draft);
}

/// Applies the overrides of every state: a new object under the name, Ignored, a service that a registering node
/// could not stop, a disarmed cluster. Returns `true` if a disarmed cluster freezes the service, so that no state
/// function follows.
fn prepare(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) -> bool {
    let situation = planner.situation;
    if let Some((node, epoch, message)) = service.not_stopped(&situation) {
        error::could_not_stop(planner, service, draft, node, epoch, message);
        return false;
    }
    if service.wanted() == RequestedState::Ignored && draft.status.state != ServiceState::Ignored {
        ignore::enter(&situation, service, draft);
        return false;
    }
    match situation.world.settings().disarmed {
        Some(disarmed) => disarm::rests(planner, service, draft, disarmed),
        None => false,
    }
}

fn step(planner: &mut Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    if queued::is_to_be_looked_for(draft) {
        queued::look_anew(&planner.situation, service, draft);
        return;
    }
    match draft.status.state {
        ServiceState::Queued => queued::queued(planner, service, draft),
        ServiceState::RequestStart => start::request_start(planner, service, draft),
        ServiceState::Starting => start::starting(planner, service, draft),
        ServiceState::Started => start::started(planner, service, draft),
        ServiceState::RequestStop => stop::request_stop(planner, service, draft),
        ServiceState::Stopping => stop::stopping(planner, service, draft),
        ServiceState::Stopped => stop::stopped(planner, service, draft),
        ServiceState::Disabled => stop::disabled(planner, service, draft),
        ServiceState::Migrate => migrate::migrate(planner, service, draft),
        ServiceState::Relocate => moves::relocate(planner, service, draft),
        ServiceState::Fence => recover::fence(planner, service, draft),
        ServiceState::Recovery => recover::recovery(planner, service, draft),
        ServiceState::Freeze => recover::freeze(planner, service, draft),
        ServiceState::Error => error::error(planner, service, draft),
        ServiceState::Ignored => ignore::ignored(service, draft),
        // The object is no longer being deleted, so the service is probed again.
        ServiceState::Deleting => draft.go(ServiceState::Queued, Reason::Pending, String::new()),
    }
}

/// Writes the draft if it contains changes.
fn finish(planner: &mut Planner<'_>, service: &Service<'_>, mut draft: Draft) {
    let situation = planner.situation;
    draft.status.replicas = replicas(&service.resource.value, &draft.status).into_iter().collect();
    let storage = service.resource.value.spec.storage.as_ref();
    draft.status.declared_secondary = storage.and_then(|storage| storage.secondary.clone());
    external_change::follow_policy(&situation, service, &mut draft);
    copies::record(&situation, service, &mut draft);
    outcome::settle(&situation, service, &mut draft);
    conditions::fill(&situation, service, &mut draft);
    availability::note(planner, service, &mut draft);
    for (reason, message) in std::mem::take(&mut draft.waiting) {
        planner.plan.wait(Kind::Resource, service.name, reason, message);
    }
    if let Some((at, why)) = draft.wake {
        planner.plan.wake(&situation, at, why);
    }
    let uses = super::placement::uses(&draft.status);
    if let Some(mut facts) = planner.view.services.get_mut(service.name) {
        let is_at_rest = draft.status.state == ServiceState::Started && draft.status.replacement.is_none();
        facts.movable &= facts.uses == uses && is_at_rest;
        facts.uses.clone_from(&uses);
        // The reserved capacity is kept for this service, because services that are planned later are less
        // important.
        facts.uses.extend(draft.reserves.take());
        facts.node.clone_from(&draft.status.node);
    }
    if let Some((transaction, events)) = draft.into_transaction(&situation, service) {
        planner.plan.act(Subject::Service(service.name.to_owned()), transaction, events, Note::Uses(uses));
    }
}

/// Returns the guard of a key of this service, as it was read.
fn revision_of<T>(known: Option<&Versioned<T>>) -> ha_store::Guard {
    guard_of(known)
}

/// Returns the key of a report and its guard.
fn report_guard(
    situation: &Situation<'_>,
    node: &NodeName,
    name: &ResourceName,
) -> (String, ha_store::Guard) {
    let report = situation.world.service_report(name, node);
    (situation.world.keys.service_report(node, name), guard_of(report))
}

/// Returns the key of a fence and its revision; `None` if the node has no fence.
fn fence_guard(situation: &Situation<'_>, node: &NodeName) -> Option<(String, Revision)> {
    let fence = situation.world.fences.get(node)?;
    Some((situation.world.keys.fence(node), fence.modified))
}
