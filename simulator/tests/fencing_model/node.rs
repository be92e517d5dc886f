//! A machine: its power, its agent, its watchdog daemon and device, and the copy of the service on it.

/// Power state of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Power {
    /// The machine runs.
    On,
    /// The machine is off, and its memory is lost.
    Off {
        /// `true` if its own watchdog reset it.
        self_fenced: bool,
    },
}

/// Phase of the agent's process, from the view of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// No process. Its earlier writes may still be applied.
    Dead,
    /// A new process of the same boot and epoch, which must commit a heartbeat first.
    Resuming,
    /// A member of the epoch in which it registered, which may have been closed without the agent's knowledge.
    Member,
    /// The agent has no open epoch: it stops every service, verifies, then registers.
    Clearing,
    /// The request is committed; the agent waits until the fence names it.
    Requested,
}

/// The watchdog device together with the daemon that pets it (FENCING 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Watchdog {
    /// Not armed: no reset is possible.
    Off,
    /// The daemon pets without a deadline: during arming, and after stop-then-stay.
    PetWithoutDeadline,
    /// The daemon pets only while now ≤ D.
    PetUntilDeadline {
        /// Ticks until the device resets the machine.
        timer: i8,
        /// D − now; −1 when D has passed.
        remaining: i8,
        /// Timeout that the daemon has decided on after reading the clock, before the call: checking and petting are
        /// not one step. The daemon reads the clock as early as possible (`Bounds::pet`).
        decided_timeout: Option<i8>,
    },
    /// The descriptor was closed uncleanly. The kernel has petted the device once more, and no process pets it.
    Unattended {
        /// Ticks until the device resets the machine.
        timer: i8,
        /// D − now.
        remaining: i8,
    },
}

/// The copy of the service on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Service {
    /// No copy.
    Absent,
    /// Prepared to receive a migration; no data has arrived.
    Paused,
    /// The copy runs.
    Running,
}

/// The right that a committed permit gives to the agent. The agent may use it late: a process may pause between any two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Right {
    /// No right.
    None,
    /// Start, and restart in place.
    Start {
        /// `true` if the action uid is still the assigned one.
        current: bool,
    },
    /// Prepare to receive a migration.
    Receive {
        /// `true` if the action uid is still the assigned one.
        current: bool,
    },
}

impl Right {
    /// Returns the right as it is after another action uid was assigned.
    pub(crate) fn outdated(self) -> Right {
        match self {
            Right::None => Right::None,
            Right::Start { .. } => Right::Start { current: false },
            Right::Receive { .. } => Right::Receive { current: false },
        }
    }
}

/// Live migration away from a machine, from its committed HandingOver on (FENCING 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum HandOver {
    /// No migration, or its driver has ended or never begins.
    None,
    /// The driver has not begun (R8.10 to R8.12).
    Waiting {
        /// Ticks, at most Ts, since the agent sent the read that showed the target as HandingOver guards it. `None`:
        /// the agent has not read the target again.
        read: Option<i8>,
        /// Ticks, at most Ts, since the target's report or fence changed.
        lost: i8,
    },
    /// The driver runs, and the service may arrive at any moment.
    Driving,
}

/// A machine and everything on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    /// Power state of the machine.
    pub(crate) power: Power,
    /// Phase of the agent.
    pub(crate) phase: Phase,
    /// `true` if the fence is open for the epoch in the agent's journal (its own epoch, boot id and request).
    pub(crate) is_registered: bool,
    /// State of the watchdog.
    pub(crate) watchdog: Watchdog,
    pub(crate) service: Service,
    /// Right of the agent, from the view of the agent.
    pub(crate) right: Right,
    /// `true` if the journal states that the current action uid was begun or given up. The agent then does not begin
    /// the action again.
    pub(crate) is_spent: bool,
    /// Progress of a live migration away from this machine.
    pub(crate) hand_over: HandOver,
    /// `true` if the journal names a reception that its driver cannot close (R4.40, R4.41). Outlives the boot.
    pub(crate) receives: bool,
    /// Ticks since the agent read its clock (`s`) for an applied heartbeat whose answer is on its way, at most Th + 1.
    /// `None`: no answer is due.
    pub(crate) answer_due: Option<i8>,
    /// Ticks since the agent asked the candidates for hold; `None`: it has not asked.
    pub(crate) hold_request_age: Option<i8>,
}

impl Node {
    /// Returns a registered, idle node.
    pub(crate) fn idle() -> Self {
        Node {
            power: Power::On,
            phase: Phase::Member,
            is_registered: true,
            watchdog: Watchdog::Off,
            service: Service::Absent,
            right: Right::None,
            is_spent: false,
            hand_over: HandOver::None,
            receives: false,
            answer_due: None,
            hold_request_age: None,
        }
    }

    /// Returns `true` if an agent process exists.
    pub(crate) fn has_agent(&self) -> bool {
        match self.phase {
            Phase::Dead => false,
            Phase::Resuming | Phase::Member | Phase::Clearing | Phase::Requested => true,
        }
    }

    /// Returns `true` if the machine runs.
    pub(crate) fn is_on(&self) -> bool {
        match self.power {
            Power::On => true,
            Power::Off { .. } => false,
        }
    }

    /// Returns `true` if the node is *empty* (FENCING 4): no service, no worker, no right to start one.
    pub(crate) fn is_empty(&self) -> bool {
        self.service == Service::Absent && self.right == Right::None && self.hand_over == HandOver::None
    }

    /// Returns `true` if the daemon follows a deadline.
    pub(crate) fn follows(&self) -> bool {
        match self.watchdog {
            Watchdog::PetUntilDeadline { .. } => true,
            Watchdog::Off | Watchdog::PetWithoutDeadline | Watchdog::Unattended { .. } => false,
        }
    }

    /// Returns D − now if a deadline exists, and −1 otherwise.
    pub(crate) fn remaining(&self) -> i8 {
        match self.watchdog {
            Watchdog::Off | Watchdog::PetWithoutDeadline => -1,
            Watchdog::PetUntilDeadline { remaining, .. } | Watchdog::Unattended { remaining, .. } => {
                remaining
            }
        }
    }

    /// Ends all processes, by a power loss or a reset. Late writes may still be applied.
    pub(crate) fn power_off(&mut self, self_fenced: bool) {
        *self = Node {
            power: Power::Off { self_fenced },
            phase: Phase::Dead,
            is_registered: false,
            receives: self.receives,
            ..Node::idle()
        };
    }

    /// Starts a machine that was off. Only the journal has survived.
    pub(crate) fn boot(&mut self) {
        *self =
            Node { phase: Phase::Clearing, is_registered: false, receives: self.receives, ..Node::idle() };
    }
}
