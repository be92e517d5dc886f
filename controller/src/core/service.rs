//! Services: one pure function per state, over one draft of what is to be written.

mod arranged;
mod assign;
mod availability;
mod conditions;
mod copies;
mod delete;
mod disarm;
mod draft;
mod error;
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
use super::plan::{Note, Plan, Subject};
use super::situation::Situation;
use super::unverified::Unverified;
use super::world::{Versioned, guard_of};
use draft::{Assign, Draft};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Assignment, Fence, FenceState, Mode, Phase, Revision, ServiceReport, Tombstone};
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use ha_scheduler::{Turn, View};
use std::collections::{BTreeMap, BTreeSet};

/// What the functions of this module plan with: facts that do not change, and the plan and view that do.
pub struct Planner<'a> {
    /// The facts.
    pub situation: Situation<'a>,
    /// The nodes.
    pub nodes: &'a NodeTable,
    /// The scheduler's view, kept up with what is planned.
    pub view: View,
    /// Services whose moves depend on others.
    pub turns: BTreeMap<String, Turn>,
    /// Services that this plan moves because an operator asked for it.
    pub moved_by_operator: BTreeSet<String>,
    /// Moves that even the load of nodes, by service.
    rebalances: BTreeMap<String, rebalance::Rebalance>,
    /// The plan.
    pub plan: Plan,
    /// Where replacements of secondaries that this plan begins copy from and to.
    replacements: Vec<[String; 2]>,
    /// Services that have to make room for one of higher priority, by name.
    displaced: BTreeMap<String, preemption::Displacement>,
    /// Start and stop order.
    order: Order,
    /// Services that this plan stops, or will once those that come after them are stopped.
    leaving: BTreeSet<String>,
    /// Where services that look for a place go so that all find one.
    arranged: Arranged,
    /// Services that looked for a place in this plan, and whether they found one.
    looked: BTreeMap<String, bool>,
    /// Nodes that were counted as empty and have still to answer: nothing is started there.
    unverified: Unverified,
}

impl<'a> Planner<'a> {
    /// A planner that has planned nothing yet.
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

    /// Whether a node's epoch is about to be opened, or may just have been, by a write of this leader.
    fn is_being_opened(&self, node: &str) -> bool {
        let subject = Subject::Fence(node.to_owned());
        let is_closed = |fence: &Versioned<Fence>| fence.value.state != FenceState::Open;
        self.situation.world.fences.get(node).is_some_and(is_closed)
            && (self.situation.busy.contains(&subject)
                || self.plan.actions.iter().any(|action| action.subject == subject))
    }

    /// A fresh action uid: the term makes it unique over leaders, the number within this one.
    fn action_uid(&mut self) -> String {
        let number = self.situation.next_uid + self.plan.uids;
        self.plan.uids += 1;
        format!("{}-{number}", self.situation.term)
    }
}

/// One service, as read.
#[derive(Clone, Copy)]
struct Service<'a> {
    name: &'a str,
    resource: &'a Versioned<Resource>,
    status: Option<&'a Versioned<ResourceStatus>>,
    assignment: Option<&'a Versioned<Assignment>>,
    tombstone: Option<&'a Versioned<Tombstone>>,
    operation: Option<operation::Request<'a>>,
}

/// How an epoch that something was assigned under stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is open: the assignment holds.
    InForce,
    /// It is closed, and what it allowed to run is not yet proven gone.
    Closing,
    /// It is closed and proven, whether or not a newer one is open: nothing of it runs.
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

    /// Whether promise 1 covers what is assigned (FENCING, R6.1): by the assignment, else by the spec.
    ///
    /// The spec says otherwise only of a copy from before a restore or an upgrade (R6.11). Nothing exclusive starts beside such a
    /// copy: see [`copies::elsewhere`].
    fn is_exclusive_in_force(&self) -> bool {
        self.assignment
            .map(|assignment| &assignment.value.definition)
            .filter(|definition| definition.uid == self.uid())
            .map_or(self.exclusive(), |definition| definition.exclusive)
    }

    /// Whether the service is moved off a silent node without a proof (R10.10): neither what is assigned nor what would be started
    /// next is covered by promise 1. They differ only for a copy of R6.11, which is waited for like an exclusive one.
    fn may_run_twice(&self) -> bool {
        !self.is_exclusive_in_force() && !self.exclusive()
    }

    /// How an epoch of a node stands. An epoch that is not older than a closed fence cannot have been assigned under;
    /// should it appear, it is not taken for released.
    fn standing(situation: &Situation<'_>, node: &str, epoch: u64) -> Standing {
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

    /// How its assignment stands; `None`: it has none.
    fn assigned(&self, situation: &Situation<'_>) -> Option<(&'a Assignment, Standing)> {
        let assignment = &self.assignment?.value;
        Some((assignment, Service::standing(situation, &assignment.node, assignment.epoch)))
    }

    /// The report of a node that answers an action.
    fn answer_of(
        &self,
        situation: &Situation<'a>,
        node: &str,
        epoch: u64,
        action_uid: &str,
    ) -> Option<&'a Versioned<ServiceReport>> {
        let world = situation.world;
        world.service_report(self.name, node).filter(|report| {
            let is_answer =
                report.value.action_uid.as_deref() == Some(action_uid) && report.value.epoch == epoch;
            // What cannot be read may be any answer.
            is_answer
                || world.is_report_unreadable(self.name, node) && world.report_lives(self.name, node, report)
        })
    }

    /// The answer to the current assignment, from the node that it names.
    fn answer(&self, situation: &Situation<'a>) -> Option<&'a Versioned<ServiceReport>> {
        let assignment = &self.assignment?.value;
        self.answer_of(situation, &assignment.node, assignment.epoch, &assignment.action_uid)
    }

    fn phase(&self, situation: &Situation<'a>) -> Option<Phase> {
        self.answer(situation).map(|report| report.value.phase)
    }

    /// Nodes other than this one that say, under a living epoch, that it may run there.
    fn may_run_elsewhere(&self, situation: &Situation<'a>, than: Option<&str>) -> Vec<&'a str> {
        let world = situation.world;
        let Some(reports) = world.service_reports.get(self.name) else { return Vec::new() };
        reports
            .iter()
            .filter(|(node, _)| Some(node.as_str()) != than)
            .filter(|(node, report)| {
                if world.is_report_unreadable(self.name, node) {
                    return world.report_lives(self.name, node, report);
                }
                report.value.uid == self.uid()
                    && world.lives(node, report.value.epoch)
                    && report.value.phase.may_run()
                    && report.value.phase != Phase::ProbedUnknown
            })
            .map(|(node, _)| node.as_str())
            .collect()
    }

    /// A node other than this one that says, under a living epoch, that an exclusive service runs there.
    fn runs_elsewhere(&self, situation: &Situation<'a>, than: Option<&str>) -> Option<&'a str> {
        let says_so = |node: &&str| {
            situation
                .world
                .service_report(self.name, node)
                .is_some_and(|report| matches!(report.value.phase, Phase::ProbedRunning | Phase::Running))
        };
        self.may_run_elsewhere(situation, than).into_iter().filter(|_| self.exclusive()).find(says_so)
    }

    /// A registration, not yet admitted, that names this service as not stopped: node, and the epoch that will be opened.
    fn not_stopped(&self, situation: &Situation<'a>) -> Option<(&'a str, u64, &'a str)> {
        let world = situation.world;
        world.node_reports.iter().find_map(|(node, report)| {
            let named = report
                .value
                .not_stopped
                .iter()
                .find(|named| named.name == self.name && named.uid == self.uid())?;
            if report.value.mode != Mode::Registering {
                return None;
            }
            let epoch = match world.fences.get(node) {
                None => 1,
                Some(fence) => {
                    // The registration may be older than the close: an epoch still open is closed for its sake.
                    let admitted_before = fence.value.request == Some(report.modified);
                    if fence.value.state == FenceState::Open || admitted_before {
                        return None;
                    }
                    fence.value.epoch
                }
            };
            Some((node.as_str(), epoch, named.message.as_str()))
        })
    }
}

/// Plans all services: those that others come after before these, else those of higher priority first.
pub fn plan(planner: &mut Planner<'_>) {
    let world = planner.situation.world;
    let services = world.resources.iter().map(|(name, read)| (name.as_str(), read.value.spec.priority));
    let sequence = planner.order.sequence(services);
    let operations = operation::requests(&planner.situation);
    rebalance::plan(planner, &operations);
    for name in sequence {
        let Some(resource) = world.resources.get(name) else { continue };
        if planner.situation.busy.contains(&Subject::Service(name.to_owned())) {
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

/// A service may pass through several states in one write, as Started → Fence → Recovery → Starting; a chain longer than
/// this would be a circle.
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

/// What overrides every state: a new object under the name, Ignored, what a registering node could not stop, a disarmed
/// cluster. `true`: nothing else is decided about it.
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
        // The object is no longer being deleted: its name is looked at anew.
        ServiceState::Deleting => draft.go(ServiceState::Queued, Reason::NotSeenYet, String::new()),
    }
}

/// Writes the draft, if it says anything new.
fn finish(planner: &mut Planner<'_>, service: &Service<'_>, mut draft: Draft) {
    let situation = planner.situation;
    draft.status.replicas = replicas(&service.resource.value, &draft.status).into_iter().collect();
    let storage = service.resource.value.spec.storage.as_ref();
    draft.status.declared_secondary = storage.and_then(|storage| storage.secondary.clone());
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
        // The room that others make is kept free for it: who is planned after it is less important.
        facts.uses.extend(draft.reserves.take());
        facts.node.clone_from(&draft.status.node);
    }
    if let Some((transaction, events)) = draft.into_transaction(&situation, service) {
        planner.plan.act(Subject::Service(service.name.to_owned()), transaction, events, Note::Uses(uses));
    }
}

/// The guard of a key of this service as it was read.
fn revision_of<T>(known: Option<&Versioned<T>>) -> ha_store::Guard {
    guard_of(known)
}

/// The revision of a report, for guards.
fn report_guard(situation: &Situation<'_>, node: &str, name: &str) -> (String, ha_store::Guard) {
    let report = situation.world.service_report(name, node);
    (situation.world.keys.service_report(node, name), guard_of(report))
}

/// The revision of a fence, for guards; `None`: the node has no fence.
fn fence_guard(situation: &Situation<'_>, node: &str) -> Option<(String, Revision)> {
    let fence = situation.world.fences.get(node)?;
    Some((situation.world.keys.fence(node), fence.modified))
}
