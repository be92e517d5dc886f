//! A machine: its power, its agent, its watchdog daemon and device, and the copy of the service on it.

/// Whether the machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Power {
    /// It runs.
    On,
    /// It does not; everything in memory is gone.
    Off {
        /// Whether its own watchdog did it.
        self_fenced: bool,
    },
}

/// What the agent's process believes about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// There is no process. What it sent may still be applied.
    Dead,
    /// A new process of the same boot, before its first heartbeat: same boot id and epoch, so heartbeat first.
    Resuming,
    /// A member of the epoch that it registered in, which may have been closed without its knowledge.
    Member,
    /// Its epoch is closed or it never had one: stop every service, verify, then register.
    Clearing,
    /// The request is committed; it waits to be named by the fence.
    Requested,
}

/// The watchdog device together with the daemon that pets it (FENCING 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Watchdog {
    /// Not armed: no reset can come.
    Off,
    /// Petted without a deadline: while arming, and after stop-then-stay.
    Free,
    /// Petted only while now ≤ D.
    Follow {
        /// Ticks until the device resets the machine.
        timer: i8,
        /// D − now; −1 when D has passed.
        left: i8,
        /// The daemon has looked at the clock and decided on this timeout, but has not made the call yet: checking and
        /// petting are not one step. It looks as early as it may (`Bounds::look`).
        checked: Option<i8>,
    },
    /// The descriptor was closed uncleanly, the kernel pinged once more, nobody pets.
    Orphan {
        /// Ticks until the device resets the machine.
        timer: i8,
        /// D − now.
        left: i8,
    },
}

/// The copy of the service on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Service {
    /// None.
    Absent,
    /// Prepared to receive a migration; it does nothing yet.
    Paused,
    /// It runs.
    Running,
}

/// What a committed permit lets the agent do. It may use it late: a process may be stopped between any two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Right {
    /// Nothing.
    None,
    /// Start, and restart in place. `current`: for the action uid that is assigned now.
    Start {
        /// Whether the action uid is still the assigned one.
        current: bool,
    },
    /// Prepare to receive.
    Receive {
        /// Whether the action uid is still the assigned one.
        current: bool,
    },
}

impl Right {
    /// The same right once another action uid is assigned.
    pub(crate) fn outdated(self) -> Right {
        match self {
            Right::None => Right::None,
            Right::Start { .. } => Right::Start { current: false },
            Right::Receive { .. } => Right::Receive { current: false },
        }
    }
}

/// One machine and everything on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    /// Its power.
    pub(crate) power: Power,
    /// Its agent.
    pub(crate) phase: Phase,
    /// Whether the fence is open for the epoch in the agent's journal (its own epoch, boot id and request).
    pub(crate) belongs: bool,
    /// Its watchdog.
    pub(crate) watchdog: Watchdog,
    /// The copy of the service.
    pub(crate) service: Service,
    /// What the agent knows that it may start.
    pub(crate) right: Right,
    /// The journal: the current action uid was begun or given up, so it is never begun again.
    pub(crate) is_spent: bool,
    /// The driver is migrating away from here, and may finish at any moment.
    pub(crate) hands_over: bool,
    /// A heartbeat was applied and its answer is on its way: ticks since the agent read its clock (`s`), at most
    /// one more than Th.
    pub(crate) answer_due: Option<i8>,
    /// The agent asks the candidates to hold: ticks since it asked.
    pub(crate) asked: Option<i8>,
}

impl Node {
    /// A registered, idle node.
    pub(crate) fn idle() -> Self {
        Node {
            power: Power::On,
            phase: Phase::Member,
            belongs: true,
            watchdog: Watchdog::Off,
            service: Service::Absent,
            right: Right::None,
            is_spent: false,
            hands_over: false,
            answer_due: None,
            asked: None,
        }
    }

    /// Whether an agent process is there.
    pub(crate) fn has_agent(&self) -> bool {
        match self.phase {
            Phase::Dead => false,
            Phase::Resuming | Phase::Member | Phase::Clearing | Phase::Requested => true,
        }
    }

    /// Whether the machine runs.
    pub(crate) fn is_on(&self) -> bool {
        match self.power {
            Power::On => true,
            Power::Off { .. } => false,
        }
    }

    /// *Empty* (FENCING 4): no service, no worker, no right to start one.
    pub(crate) fn is_empty(&self) -> bool {
        self.service == Service::Absent && self.right == Right::None && !self.hands_over
    }

    /// Whether the daemon follows a deadline.
    pub(crate) fn follows(&self) -> bool {
        match self.watchdog {
            Watchdog::Follow { .. } => true,
            Watchdog::Off | Watchdog::Free | Watchdog::Orphan { .. } => false,
        }
    }

    /// D − now, when the daemon follows a deadline.
    pub(crate) fn left(&self) -> i8 {
        match self.watchdog {
            Watchdog::Off | Watchdog::Free => -1,
            Watchdog::Follow { left, .. } | Watchdog::Orphan { left, .. } => left,
        }
    }

    /// The machine loses its power or is reset: memory is gone; what is late may still be applied.
    pub(crate) fn power_off(&mut self, self_fenced: bool) {
        *self =
            Node { power: Power::Off { self_fenced }, phase: Phase::Dead, belongs: false, ..Node::idle() };
    }
}
