//! Hold (FENCING 9): a node that cannot commit asks every controller candidate not to declare it dead.
//!
//! Nobody does anything in time, so an outage needs no state of its own: whoever does not commit may just as well be unable
//! to. An agent may ask at any time, and a candidate may lose the store at any moment, grant, and find the store again. What
//! lasts is what it has not read meanwhile.

use crate::agent;
use crate::configuration::Configuration;
use crate::mutation::Mutation;
use crate::network::touch;
use crate::node::Phase;
use crate::state::{CANDIDATES, Candidate, State};
use crate::store::{ALL, Fence, NODES, NodeId, at};
use crate::write::{Key, Write};

/// What a candidate and one node know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Known {
    /// The node asks this candidate, and goes on only with its grant.
    pub(crate) asked: bool,
    /// The newest generation in the node's committed report is this candidate's, or a newer one.
    pub(crate) named: bool,
    /// It has granted what the node asks at present.
    pub(crate) granted: bool,
    /// This process has sent a declaration of the node and does not know what became of it.
    pub(crate) declared: bool,
    /// It is without the store since before the node was declared dead.
    pub(crate) missed: bool,
    /// Ticks, up to one more than Th, in which it could commit and the node committed nothing.
    pub(crate) alone: i8,
}

/// Something that happens to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It reads the store again.
    Read,
    /// Its key is deleted: by itself, as it leaves, or by an operator.
    Remove,
    /// A new candidate joins.
    Join,
    /// It grants what a node asks.
    Grant(NodeId),
}

impl Candidate {
    /// One that every node knows, or one that is not there.
    pub(crate) fn new(present: bool) -> Candidate {
        let known = Known {
            asked: present,
            named: present,
            granted: false,
            declared: false,
            missed: false,
            alone: 0,
        };
        Candidate { silence: [0; NODES], present, known: [known; NODES] }
    }

    /// Whether it has read everything that there is.
    pub(crate) fn is_current(&self) -> bool {
        !self.known.iter().any(|known| known.missed)
    }
}

/// Everything that may happen to candidates now.
pub(crate) fn events(configuration: &Configuration, state: &State, add: &mut impl FnMut(usize, Event)) {
    if !configuration.hold {
        return;
    }
    for (number, candidate) in state.candidates.iter().enumerate() {
        if candidate.present {
            if !candidate.is_current() {
                add(number, Event::Read);
            }
            for node in ALL {
                if may_grant(state, candidate, node) {
                    add(number, Event::Grant(node));
                }
            }
        }
        if configuration.candidate_leaves && candidate.present {
            add(number, Event::Remove);
        }
        let may_join = configuration.candidate_joins && !candidate.present && number > 0;
        if may_join && has_room(configuration, state, candidate) {
            add(number, Event::Join);
        }
    }
}

/// One more than there were at first may be there at the same time; a place is free once no node asks who had it.
fn has_room(configuration: &Configuration, state: &State, candidate: &Candidate) -> bool {
    let present = state.candidates.iter().filter(|candidate| candidate.present).count();
    present <= configuration.candidates && !candidate.known.iter().any(|known| known.asked)
}

/// As it has read the store since it was started, the node's epoch is the open one, and it has not sent a declaration that
/// may be committed yet.
fn may_grant(state: &State, candidate: &Candidate, node: NodeId) -> bool {
    let known = &candidate.known[at(node)];
    let open = known.missed || is_open(state, node);
    state.node(node).asked.is_some() && open && !known.granted && !known.declared
}

/// Whether the fence is open for the epoch that this node's agent acts under.
fn is_open(state: &State, node: NodeId) -> bool {
    state.store.fence(node) == Fence::Open && state.node(node).belongs
}

/// An event takes place.
pub(crate) fn take(configuration: &Configuration, state: &mut State, number: usize, event: Event) {
    let candidate = &mut state.candidates[number];
    match event {
        Event::Read => read(candidate),
        Event::Remove => {
            candidate.present = false;
            if number == 0 {
                touch(configuration, state, Key::Candidate);
            }
        }
        Event::Join => *candidate = Candidate { present: true, ..Candidate::new(false) },
        Event::Grant(node) => {
            let known = &mut candidate.known[at(node)];
            known.granted = true;
            // It could not commit at this moment.
            if !configuration.lacks(Mutation::GrantThoughAble) {
                known.alone = 0;
            }
            if !configuration.lacks(Mutation::GrantNotObserved) {
                candidate.silence[at(node)] = 0;
            }
        }
    }
}

/// A candidate reads the store.
pub(crate) fn read(candidate: &mut Candidate) {
    for known in &mut candidate.known {
        known.missed = false;
    }
}

/// Its process is started anew. Its candidate key stays, with its generation (R9.12, R9.16). It grants only once it has read the store, so what was missed before is of no account; of a
/// declaration that its predecessor sent it knows nothing.
pub(crate) fn restart(configuration: &Configuration, candidate: &mut Candidate) {
    candidate.silence = [0; NODES];
    read(candidate);
    for known in &mut candidate.known {
        known.declared = false;
    }
    if configuration.lacks(Mutation::KeyDeletedAtRestart) {
        *candidate = Candidate { present: true, ..Candidate::new(false) };
    }
}

/// A node is declared dead, and nobody has read it yet but who committed it, if anybody waits for the outcome.
pub(crate) fn closed(configuration: &Configuration, state: &mut State, node: NodeId, heard: bool) {
    for (number, candidate) in state.candidates.iter_mut().enumerate() {
        candidate.known[at(node)].missed = configuration.hold && candidate.present && !(heard && number == 0);
    }
}

/// A node is admitted under a new epoch: nobody takes the one before for it.
pub(crate) fn opened(state: &mut State, node: NodeId) {
    for candidate in &mut state.candidates {
        candidate.known[at(node)].missed = false;
    }
}

/// Whether the leader may declare a node dead on silence: its key is there, and the node knows of it.
pub(crate) fn may_declare(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let leader = &state.candidates[0];
    let named = leader.known[at(node)].named || configuration.lacks(Mutation::GenerationIgnored);
    leader.present && named
}

/// Whether its silence, once its epoch is closed, proves anything to the leader.
pub(crate) fn may_conclude(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let leader = &state.candidates[0];
    let counts = !configuration.lacks(Mutation::GenerationForClosingOnly);
    leader.present && (!counts || may_declare(configuration, state, node))
}

/// The leader has sent a declaration and not heard of it.
pub(crate) fn declared(state: &mut State, write: Write) {
    if let Write::Close { node, .. } = write {
        state.candidates[0].known[at(node)].declared = true;
    }
}

/// Whether every candidate that counts has granted.
pub(crate) fn all_granted(configuration: &Configuration, state: &State, node: NodeId) -> bool {
    let known = state.candidates.iter().map(|candidate| &candidate.known[at(node)]);
    let (asked, granted) = known
        .filter(|known| known.asked)
        .fold((0, 0), |(asked, granted), known| (asked + 1, granted + i32::from(known.granted)));
    if configuration.lacks(Mutation::MajorityGrants) { 2 * granted > asked } else { granted == asked }
}

/// The agent asks anew: what was granted before counts no more.
pub(crate) fn ask(state: &mut State, node: NodeId) {
    state.node_mut(node).asked = Some(0);
    for candidate in &mut state.candidates {
        candidate.known[at(node)].granted = false;
    }
}

/// Whether there is a candidate key that the node's report does not name yet.
pub(crate) fn has_unnamed(state: &State, node: NodeId) -> bool {
    state.candidates.iter().any(|candidate| candidate.present && !candidate.known[at(node)].named)
}

/// From here on the agent asks every candidate that there is: its report is about to name the newest.
pub(crate) fn ask_all_present(state: &mut State, node: NodeId) {
    for candidate in &mut state.candidates {
        candidate.known[at(node)].asked |= candidate.present;
    }
}

/// The report that names the newest generation is committed.
pub(crate) fn named(state: &mut State, node: NodeId) {
    for candidate in &mut state.candidates {
        let known = &mut candidate.known[at(node)];
        known.named |= known.asked;
    }
}

/// Whether the agent reads that a candidate is gone while its own fence is unchanged.
pub(crate) fn may_drop(state: &State, node: NodeId) -> bool {
    let gone = |candidate: &Candidate| !candidate.present && candidate.known[at(node)].asked;
    state.node(node).phase == Phase::Member && is_open(state, node) && state.candidates.iter().any(gone)
}

/// Asks them no more.
pub(crate) fn drop_gone(state: &mut State, node: NodeId) {
    for candidate in &mut state.candidates {
        candidate.known[at(node)].asked &= candidate.present;
    }
}

/// A tick passes for all candidates and a node that follows a deadline.
pub(crate) fn tick(configuration: &Configuration, state: &mut State, node: NodeId) {
    if configuration.counts_alone && state.node(node).follows() {
        for candidate in &mut state.candidates {
            let known = &mut candidate.known[at(node)];
            known.alone = (known.alone + 1).min(configuration.bounds.valid + 1);
        }
    }
}

/// A node goes on although a candidate that it asks could have commanded it for longer than Th.
pub(crate) fn goes_on_alone(configuration: &Configuration, state: &State) -> bool {
    ALL.into_iter().any(|node| {
        let overdue = |candidate: &Candidate| {
            let known = &candidate.known[at(node)];
            candidate.present && known.asked && known.alone > configuration.bounds.valid
        };
        state.node(node).follows() && state.node(node).left() >= 0 && state.candidates.iter().any(overdue)
    })
}

/// Every candidate has granted what a node asks.
pub(crate) fn is_held(state: &State) -> bool {
    ALL.into_iter().any(|node| {
        let grants = |candidate: &Candidate| !candidate.present || candidate.known[at(node)].granted;
        state.node(node).asked.is_some() && state.candidates.iter().all(grants)
    })
}

/// The leader is of a generation that a node under a deadline does not know.
pub(crate) fn is_led_by_a_newer_one(state: &State) -> bool {
    let leader = &state.candidates[0];
    ALL.into_iter().any(|node| state.node(node).follows() && leader.present && !leader.known[at(node)].named)
}

/// Brings what means the same to one form.
pub(crate) fn normalise(configuration: &Configuration, state: &mut State) {
    if !configuration.hold {
        return;
    }
    for node in ALL {
        let machine = *state.node(node);
        let useful = machine.asked.is_some_and(|age| agent::may_hold_on(configuration, &machine, age));
        if !useful {
            state.node_mut(node).asked = None;
        }
        let is_closing = state.is_late(Write::Close { node, on_silence: true })
            || state.is_late(Write::Close { node, on_silence: false });
        let asks = machine.phase == Phase::Member && !machine.belongs && machine.follows();
        for candidate in &mut state.candidates {
            let known = &mut candidate.known[at(node)];
            known.granted &= useful;
            // What it missed matters to a node that goes on under the closed epoch alone; what it declared likewise.
            known.missed &= asks;
            known.declared &= is_closing || known.missed;
            if !machine.follows() {
                known.alone = 0;
            }
        }
    }
    for number in 0..CANDIDATES {
        if !state.candidates[number].present && (number > 0 || !state.led) {
            let asked = state.candidates[number].known.map(|known| known.asked);
            let mut gone = Candidate::new(false);
            for node in ALL {
                gone.known[at(node)].asked = asked[at(node)];
            }
            state.candidates[number] = gone;
        }
    }
}
