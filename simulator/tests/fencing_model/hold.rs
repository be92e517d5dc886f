//! Hold (FENCING 9): a node that cannot commit asks every controller candidate not to declare it dead.
//!
//! No step in the model has a deadline, so an outage needs no separate state: a process that does not commit may be
//! unable to commit. An agent may ask at any time. A candidate may lose etcd at any moment, grant, and regain etcd.
//! Only the writes that a candidate has not read in the meantime are part of its state.

use crate::agent;
use crate::configuration::Configuration;
use crate::mutation::Mutation;
use crate::network::refuse_late_writes;
use crate::node::Phase;
use crate::state::{Candidate, MAX_CANDIDATES, State};
use crate::store::{Fence, NODE_IDS, NODES, NodeId, index_of};
use crate::write::{Key, Write};

/// The relation between a candidate and one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate fact")]
pub(crate) struct NodeView {
    /// `true` if the node asks this candidate, and continues only with its grant.
    pub(crate) is_asked: bool,
    /// `true` if the newest generation in the node's committed report is the generation of this candidate or a newer
    /// one.
    pub(crate) named: bool,
    /// `true` if the candidate has granted the node's current question.
    pub(crate) granted: bool,
    /// `true` if this process has sent a declaration of the node with unknown outcome.
    pub(crate) declared: bool,
    /// `true` if the candidate has not read the store since before the node was declared dead.
    pub(crate) missed: bool,
    /// Number of ticks, up to Th + 1, in which the candidate could commit and the node committed no write.
    pub(crate) alone: i8,
}

/// An event of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The candidate reads the store again.
    Read,
    /// The candidate's key is deleted: by the candidate as it leaves, or by an operator.
    Remove,
    /// A new candidate joins.
    Join,
    /// The candidate grants a node's question.
    Grant(NodeId),
}

impl Candidate {
    /// Creates a candidate that every node has read, or the place of an absent candidate.
    pub(crate) fn new(present: bool) -> Candidate {
        let view = NodeView {
            is_asked: present,
            named: present,
            granted: false,
            declared: false,
            missed: false,
            alone: 0,
        };
        Candidate { silence: [0; NODES], present, dead: false, views: [view; NODES] }
    }

    /// Returns `true` if the candidate has read the newest state of the store.
    pub(crate) fn is_current(&self) -> bool {
        !self.views.iter().any(|view| view.missed)
    }
}

/// Collects every event that may happen to candidates now.
pub(crate) fn events(configuration: &Configuration, state: &State, add_event: &mut impl FnMut(usize, Event)) {
    if !configuration.hold {
        return;
    }
    for (number, candidate) in state.candidates.iter().enumerate() {
        if candidate.present && !candidate.dead {
            if !candidate.is_current() {
                add_event(number, Event::Read);
            }
            for node in NODE_IDS {
                if may_grant(state, candidate, node) {
                    add_event(number, Event::Grant(node));
                }
            }
        }
        if configuration.candidate_leaves && candidate.present {
            add_event(number, Event::Remove);
        }
        let may_join = configuration.candidate_joins && !candidate.present && number > 0;
        if may_join && has_room(configuration, state, candidate) {
            add_event(number, Event::Join);
        }
    }
}

/// Returns `true` if a candidate may join: at most one candidate more than at the beginning, and only in a place whose
/// former candidate no node asks.
fn has_room(configuration: &Configuration, state: &State, candidate: &Candidate) -> bool {
    let present = state.candidates.iter().filter(|candidate| candidate.present).count();
    present <= configuration.candidates && !candidate.views.iter().any(|view| view.is_asked)
}

/// Returns `true` if a candidate may grant: in its read since its start, the node's epoch is open, and it has sent
/// no declaration that may still be committed.
fn may_grant(state: &State, candidate: &Candidate, node: NodeId) -> bool {
    let view = &candidate.views[index_of(node)];
    let is_open_for_grant = view.missed || is_open(state, node);
    state.node(node).hold_request_age.is_some() && is_open_for_grant && !view.granted && !view.declared
}

/// Returns `true` if the fence is open for the epoch under which this node's agent acts.
fn is_open(state: &State, node: NodeId) -> bool {
    state.store.fence(node) == Fence::Open && state.node(node).is_registered
}

pub(crate) fn apply_step(configuration: &Configuration, state: &mut State, number: usize, event: Event) {
    let candidate = &mut state.candidates[number];
    match event {
        Event::Read => read(candidate),
        Event::Remove => {
            candidate.present = false;
            if number == 0 {
                refuse_late_writes(configuration, state, Key::Candidate);
            }
        }
        Event::Join => *candidate = Candidate { present: true, ..Candidate::new(false) },
        Event::Grant(node) => {
            let view = &mut candidate.views[index_of(node)];
            view.granted = true;
            // The candidate could not commit at this moment.
            if !configuration.has_mutation(Mutation::GrantThoughAble) {
                view.alone = 0;
            }
            if !configuration.has_mutation(Mutation::GrantNotObserved) {
                candidate.silence[index_of(node)] = 0;
            }
        }
    }
}

/// Lets a candidate read the store.
pub(crate) fn read(candidate: &mut Candidate) {
    for view in &mut candidate.views {
        view.missed = false;
    }
}

/// Restarts a candidate's process. Its candidate key stays, with its generation (R9.12, R9.16). The process grants only
/// after it has read the store, so earlier gaps do not matter. It has no record of a declaration that its predecessor
/// sent.
pub(crate) fn restart(configuration: &Configuration, candidate: &mut Candidate) {
    candidate.silence = [0; NODES];
    read(candidate);
    for view in &mut candidate.views {
        view.declared = false;
    }
    if configuration.has_mutation(Mutation::KeyDeletedAtRestart) {
        *candidate = Candidate { present: true, ..Candidate::new(false) };
    }
}

/// Records that a node is declared dead. Until a candidate reads the store again, it has not read the declaration, and
/// may still grant. The sender is an exception if it waits for the outcome.
pub(crate) fn closed(configuration: &Configuration, state: &mut State, node: NodeId, leader_knows: bool) {
    for (number, candidate) in state.candidates.iter_mut().enumerate() {
        candidate.views[index_of(node)].missed =
            configuration.hold && candidate.present && !(leader_knows && number == 0);
    }
}

/// Records that a node is admitted under a new epoch, which no candidate confuses with the former one.
pub(crate) fn opened(state: &mut State, node: NodeId) {
    for candidate in &mut state.candidates {
        candidate.views[index_of(node)].missed = false;
    }
}

/// Returns `true` if the leader may declare a node dead on silence: the leader's candidate key exists, and the node has
/// read it.
pub(crate) fn may_declare(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let leader = &state.candidates[0];
    let named = leader.views[index_of(node)].named || configuration.has_mutation(Mutation::GenerationIgnored);
    leader.present && named
}

/// Returns `true` if the leader may use the node's silence after the close of its epoch as a proof.
pub(crate) fn may_conclude(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let leader = &state.candidates[0];
    let counts = !configuration.has_mutation(Mutation::GenerationForClosingOnly);
    leader.present && (!counts || may_declare(configuration, state, node))
}

/// Records that the leader has sent a declaration with unknown outcome.
pub(crate) fn declared(state: &mut State, write: Write) {
    if let Write::Close { node, .. } = write {
        state.candidates[0].views[index_of(node)].declared = true;
    }
}

/// Returns `true` if every candidate that counts has granted.
pub(crate) fn all_granted(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let views = state.candidates.iter().map(|candidate| &candidate.views[index_of(node)]);
    let (is_asked, granted) = views
        .filter(|view| view.is_asked)
        .fold((0, 0), |(is_asked, granted), view| (is_asked + 1, granted + i32::from(view.granted)));
    if configuration.has_mutation(Mutation::MajorityGrants) {
        2 * granted > is_asked
    } else {
        granted == is_asked
    }
}

/// Records that the agent asks again, which invalidates earlier grants.
pub(crate) fn ask(state: &mut State, node: NodeId) {
    state.node_mut(node).hold_request_age = Some(0);
    for candidate in &mut state.candidates {
        candidate.views[index_of(node)].granted = false;
    }
}

/// Returns `true` if a candidate key exists that the node's report does not name yet.
pub(crate) fn has_unnamed(state: &State, node: NodeId) -> bool {
    state.candidates.iter().any(|candidate| candidate.present && !candidate.views[index_of(node)].named)
}

/// Records that the agent asks every existing candidate from now on, because its report is about to name the newest
/// candidate.
pub(crate) fn ask_all_present(state: &mut State, node: NodeId) {
    for candidate in &mut state.candidates {
        candidate.views[index_of(node)].is_asked |= candidate.present;
    }
}

/// Records that the report with the newest generation is committed.
pub(crate) fn named(state: &mut State, node: NodeId) {
    for candidate in &mut state.candidates {
        let view = &mut candidate.views[index_of(node)];
        view.named |= view.is_asked;
    }
}

/// Returns `true` if the agent reads that a candidate key was deleted while the fence of its node is unchanged.
pub(crate) fn may_drop(state: &State, node: NodeId) -> bool {
    let is_gone = |candidate: &Candidate| !candidate.present && candidate.views[index_of(node)].is_asked;
    state.node(node).phase == Phase::Member && is_open(state, node) && state.candidates.iter().any(is_gone)
}

/// Records that the agent no longer asks absent candidates.
pub(crate) fn drop_gone(state: &mut State, node: NodeId) {
    for candidate in &mut state.candidates {
        candidate.views[index_of(node)].is_asked &= candidate.present;
    }
}

/// Advances all candidates by one tick, for a node that follows a deadline.
pub(crate) fn tick(configuration: &Configuration, state: &mut State, node: NodeId) {
    if configuration.counts_alone && state.node(node).follows() {
        for candidate in &mut state.candidates {
            let view = &mut candidate.views[index_of(node)];
            view.alone = (view.alone + 1).min(configuration.bounds.heartbeat_valid + 1);
        }
    }
}

/// Returns `true` if a node continues although a candidate that the node asks could have committed to etcd for longer
/// than Th.
pub(crate) fn continues_without_commands(configuration: &Configuration, state: &State) -> bool {
    NODE_IDS.into_iter().any(|node| {
        let overdue = |candidate: &Candidate| {
            let view = &candidate.views[index_of(node)];
            candidate.present
                && !candidate.dead
                && view.is_asked
                && view.alone > configuration.bounds.heartbeat_valid
        };
        state.node(node).follows()
            && state.node(node).remaining() >= 0
            && state.candidates.iter().any(overdue)
    })
}

/// Returns `true` if every candidate has granted a node's question.
pub(crate) fn is_held(state: &State) -> bool {
    NODE_IDS.into_iter().any(|node| {
        let grants = |candidate: &Candidate| !candidate.present || candidate.views[index_of(node)].granted;
        state.node(node).hold_request_age.is_some() && state.candidates.iter().all(grants)
    })
}

/// Returns `true` if a node under a deadline has not read the leader's generation.
pub(crate) fn is_led_by_a_newer_one(state: &State) -> bool {
    let leader = &state.candidates[0];
    NODE_IDS
        .into_iter()
        .any(|node| state.node(node).follows() && leader.present && !leader.views[index_of(node)].named)
}

/// Normalizes equivalent states to one form.
pub(crate) fn normalize(configuration: &Configuration, state: &mut State) {
    if !configuration.hold {
        return;
    }
    for node in NODE_IDS {
        let machine = *state.node(node);
        let useful =
            machine.hold_request_age.is_some_and(|age| agent::may_hold_on(configuration, &machine, age));
        if !useful {
            state.node_mut(node).hold_request_age = None;
        }
        let is_closing = state.is_late(Write::Close { node, on_missed_heartbeats: true })
            || state.is_late(Write::Close { node, on_missed_heartbeats: false });
        let asks_for_hold = machine.phase == Phase::Member && !machine.is_registered && machine.follows();
        for candidate in &mut state.candidates {
            let view = &mut candidate.views[index_of(node)];
            view.granted &= useful;
            // A gap or a declaration matters only to a node that continues under the closed epoch.
            view.missed &= asks_for_hold;
            view.declared &= is_closing || view.missed;
            if !machine.follows() {
                view.alone = 0;
            }
        }
    }
    for number in 0..MAX_CANDIDATES {
        if !state.candidates[number].present && (number > 0 || !state.has_leader) {
            let is_asked = state.candidates[number].views.map(|view| view.is_asked);
            let mut stopped_candidate = Candidate::new(false);
            for node in NODE_IDS {
                stopped_candidate.views[index_of(node)].is_asked = is_asked[index_of(node)];
            }
            state.candidates[number] = stopped_candidate;
        }
    }
}
