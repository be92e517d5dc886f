//! The configurations of the checker: the bounds, the parts of the protocol, and the faults.

use crate::bounds::{Bounds, Device};
use crate::mutation::Mutation;

/// A configuration of the model. Every enabled fault may happen any number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fault or a part of the protocol, switched on or off separately"
)]
pub(crate) struct Configuration {
    /// Name of the configuration in tables.
    pub(crate) name: &'static str,
    /// Times of the protocol.
    pub(crate) bounds: Bounds,
    /// `true` if the service already runs on the first node at the beginning. Otherwise the service is only assigned to
    /// that node. With `true`, counterexamples about later events are shorter, and the search finds them sooner.
    pub(crate) starts_running: bool,
    /// Number of controller candidates, 1 to 3.
    pub(crate) candidates: usize,
    /// `true` if a candidate's process may be restarted, after which its observations start again.
    pub(crate) candidate_restarts: bool,
    /// `true` if new candidates may join.
    pub(crate) candidate_joins: bool,
    /// `true` if candidates may leave permanently.
    pub(crate) candidate_leaves: bool,
    /// `true` if all candidates but one may end permanently, without leaving.
    pub(crate) candidate_deaths: bool,
    /// `true` if agents ask candidates for hold.
    pub(crate) hold: bool,
    /// `true` if the model counts the time in which a candidate can command a node that commits no write.
    pub(crate) counts_alone: bool,
    /// `true` if an agent's process may end and be started again.
    pub(crate) agent_restarts: bool,
    /// `true` if machines may lose their power (a watchdog's reset is always possible).
    pub(crate) power_loss: bool,
    /// Largest number of writes that are late at the same time, 0 to 2.
    pub(crate) late: usize,
    /// `true` if the leader's writes may be late in addition to the agents' writes.
    pub(crate) late_leader: bool,
    /// `true` if only declarations, and no other writes, may be late.
    pub(crate) late_declarations: bool,
    /// `true` if the epoch of a node that is neither armed nor assigned a service may be closed on silence.
    pub(crate) idle_closes: bool,
    /// `true` if a running service may end without a command, to be restarted in place.
    pub(crate) crashes: bool,
    /// `true` if services may be stopped by command.
    pub(crate) commands: bool,
    /// `true` if `exclusive` of the service's definition may change.
    pub(crate) definitions: bool,
    /// `true` if services may be migrated live.
    pub(crate) migration: bool,
    /// `true` if the migrating driver is not gated: a service arrives on a target in any boot, and runs there (R8.15).
    pub(crate) ungated: bool,
    /// `true` if nodes may leave cleanly.
    pub(crate) leave: bool,
    /// `true` if a fence device exists.
    pub(crate) fence_device: bool,
    /// `true` if agents and daemons act in time, so that no machine may be reset. Otherwise every process may pause for
    /// any time between two steps.
    pub(crate) timely: bool,
    /// `true` if states that differ only in the names of the two nodes count as one. `false` for counterexamples, in
    /// which a node would otherwise change its name.
    pub(crate) symmetric: bool,
    /// Rule that is removed; `None`: the whole protocol.
    pub(crate) mutation: Option<Mutation>,
}

/// Sliding timeouts, with the shortest times that show every effect.
const SLIDING: Bounds = Bounds { heartbeat_valid: 2, margin: 1, timeout: 1, device: Device::Sliding };

impl Configuration {
    /// Only failover: processes that pause between any two steps, watchdogs, registrations, changes of the leader.
    const PLAIN: Configuration = Configuration {
        name: "plain",
        bounds: SLIDING,
        starts_running: false,
        candidates: 2,
        candidate_restarts: false,
        candidate_joins: false,
        candidate_leaves: false,
        candidate_deaths: false,
        hold: false,
        counts_alone: false,
        agent_restarts: false,
        power_loss: false,
        late: 0,
        late_leader: false,
        late_declarations: false,
        idle_closes: false,
        crashes: false,
        commands: false,
        definitions: false,
        migration: false,
        ungated: false,
        leave: false,
        fence_device: false,
        timely: false,
        symmetric: true,
        mutation: None,
    };

    /// Restarts of agents, power cuts, fence devices.
    pub(crate) const SHORT: Configuration = Configuration {
        name: "short",
        agent_restarts: true,
        power_loss: true,
        fence_device: true,
        ..Self::PLAIN
    };

    /// A late write of an agent.
    pub(crate) const SHORT_LATE: Configuration =
        Configuration { name: "short, late", late: 1, ..Self::PLAIN };

    /// Live migration.
    pub(crate) const SHORT_MIGRATION: Configuration =
        Configuration { name: "short, migration", migration: true, ..Self::PLAIN };

    /// Live migration with a driver that is not gated: the service may arrive after the target was fenced.
    pub(crate) const SHORT_UNGATED: Configuration = Configuration {
        name: "short, ungated",
        starts_running: true,
        candidates: 1,
        migration: true,
        ungated: true,
        ..Self::PLAIN
    };

    /// Agents and daemons that act in time.
    pub(crate) const SHORT_TIMELY: Configuration =
        Configuration { name: "short, timely", timely: true, ..Self::PLAIN };

    /// Hold: two candidates that lose and regain etcd.
    pub(crate) const SHORT_HOLD: Configuration =
        Configuration { name: "short, hold", starts_running: true, hold: true, ..Self::PLAIN };

    /// Definitions that change.
    pub(crate) const SHORT_DEFINITIONS: Configuration = Configuration {
        name: "short, definitions",
        starts_running: true,
        commands: true,
        definitions: true,
        ..Self::PLAIN
    };

    /// Progress of failover: permanently lost machines, changes of the leader.
    pub(crate) const PROGRESS: Configuration =
        Configuration { name: "progress", power_loss: true, ..Self::PLAIN };

    /// Progress of Hold: one permanently lost machine, and restarts of the only candidate.
    pub(crate) const PROGRESS_HOLD: Configuration = Configuration {
        name: "progress, hold",
        starts_running: true,
        candidates: 1,
        candidate_restarts: true,
        hold: true,
        power_loss: true,
        ..Self::PLAIN
    };

    /// Progress with one of two controllers lost permanently.
    pub(crate) const PROGRESS_MINORITY: Configuration = Configuration {
        name: "progress, minority",
        starts_running: true,
        candidate_restarts: true,
        candidate_deaths: true,
        ..Self::PROGRESS
    };

    /// Configurations whose progress is checked; each fits into memory completely.
    pub(crate) const PROGRESS_CONFIGURATIONS: [Configuration; 7] = [
        Self::PROGRESS,
        Self::PROGRESS_MINORITY,
        Configuration { name: "progress, minority, hold", hold: true, ..Self::PROGRESS_MINORITY },
        Configuration { name: "progress, definitions", power_loss: true, ..Self::SHORT_DEFINITIONS },
        Self::PROGRESS_HOLD,
        Configuration { name: "progress, short", agent_restarts: true, ..Self::PROGRESS },
        Configuration { name: "progress, migration", migration: true, ..Self::PROGRESS },
    ];

    /// Hold: one candidate, and others that join and leave.
    pub(crate) const JOINS: Configuration = Configuration {
        name: "joins",
        starts_running: true,
        candidates: 1,
        candidate_joins: true,
        candidate_leaves: true,
        hold: true,
        ..Self::PLAIN
    };

    /// Hold: a late declaration, a restart of its sender, and other candidates that join.
    pub(crate) const LATE_JOINS: Configuration = Configuration {
        name: "late, joins",
        starts_running: true,
        candidates: 1,
        candidate_joins: true,
        candidate_restarts: true,
        hold: true,
        late: 1,
        late_declarations: true,
        symmetric: false,
        ..Self::PLAIN
    };

    /// Configuration in which each device is checked.
    pub(crate) const SHORT_DEVICE: Configuration =
        Configuration { name: "short, device", starts_running: true, ..Self::PLAIN };

    /// Configurations that `dev/model` checks completely.
    pub(crate) const LARGER: [Configuration; 14] = [
        Self::PLAIN,
        Self::SHORT,
        Self::SHORT_TIMELY,
        Self::SHORT_HOLD,
        Self::SHORT_UNGATED,
        Configuration { name: "hold, restarts", candidate_restarts: true, ..Self::SHORT_HOLD },
        Configuration { name: "hold, cut off", counts_alone: true, ..Self::SHORT_HOLD },
        Configuration {
            name: "hold, late",
            candidates: 1,
            candidate_restarts: true,
            late: 1,
            late_leader: true,
            ..Self::SHORT_HOLD
        },
        Configuration { name: "late", late: 1, late_leader: true, ..Self::PLAIN },
        Configuration {
            name: "commands",
            agent_restarts: true,
            power_loss: true,
            idle_closes: true,
            crashes: true,
            commands: true,
            leave: true,
            ..Self::PLAIN
        },
        Configuration {
            name: "definitions",
            agent_restarts: true,
            power_loss: true,
            ..Self::SHORT_DEFINITIONS
        },
        Configuration { name: "observers", candidates: 3, candidate_restarts: true, ..Self::PLAIN },
        Configuration {
            name: "longer times",
            bounds: Bounds { heartbeat_valid: 3, margin: 1, timeout: 2, ..SLIDING },
            ..Self::PLAIN
        },
        Configuration {
            name: "migration",
            migration: true,
            agent_restarts: true,
            power_loss: true,
            ..Self::PLAIN
        },
    ];

    /// Returns the smallest configuration in which the checker catches this mutation by the property that the removed
    /// rule protects.
    pub(crate) fn detecting(mutation: Mutation) -> Configuration {
        let running = Configuration { starts_running: true, ..Self::PLAIN };
        let late = Configuration { late: 1, ..Self::PLAIN };
        let base = match mutation {
            Mutation::OnePeriodLess
            | Mutation::ReleaseAtValidity
            | Mutation::AdoptWithoutPermit
            | Mutation::StoredTimes
            | Mutation::KeepAliveProves
            | Mutation::StayBeforeStopped => running,
            Mutation::DeadlineFromReceipt | Mutation::PermitBeforeArmed => Self::PLAIN,
            Mutation::OwnKeyNotGuarded | Mutation::EpochNotGuarded => late,
            Mutation::ReleaseWithoutClosing => Configuration { late_leader: true, ..late },
            Mutation::FreshAfterHandOver
            | Mutation::HandOverForgotten
            | Mutation::BegunWithoutReading
            | Mutation::BegunAfterMargin
            | Mutation::BegunAfterGivingUp
            | Mutation::ReportedWhileDriving => Configuration { migration: true, ..running },
            Mutation::SourceEndNotAwaited
            | Mutation::EarlierProofCounts
            | Mutation::AnswerNotAwaited
            | Mutation::StartNotAsked
            | Mutation::ArmedIsEnough => Self::SHORT_UNGATED,
            Mutation::MigrateBeforeHandOver => Configuration { migration: true, late: 1, ..running },
            Mutation::MajorityGrants => Configuration { hold: true, candidates: 3, ..running },
            Mutation::GrantNotObserved => Configuration { hold: true, ..running },
            Mutation::GrantThoughAble => Configuration { hold: true, counts_alone: true, ..running },
            Mutation::GenerationIgnored => {
                Configuration { hold: true, candidates: 1, candidate_joins: true, ..running }
            }
            Mutation::GenerationForClosingOnly => Self::LATE_JOINS,
            Mutation::DefinedWithACopy => Self::SHORT_DEFINITIONS,
            Mutation::KeyDeletedAtRestart => Self::PROGRESS_HOLD,
        };
        base.with_mutation(mutation)
    }

    /// Returns the configuration with another kind of device.
    pub(crate) fn with_device(self, device: Device) -> Configuration {
        Configuration { bounds: Bounds { device, ..self.bounds }, ..self }
    }

    /// Returns the configuration without this rule.
    pub(crate) fn with_mutation(self, mutation: Mutation) -> Configuration {
        Configuration { mutation: Some(mutation), symmetric: false, ..self }
    }

    /// Returns `true` if this rule is removed.
    pub(crate) fn has_mutation(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Returns the time for which this configuration's leaders wait before proof (a).
    pub(crate) fn release_after(&self) -> i8 {
        match self.mutation {
            Some(Mutation::OnePeriodLess) => self.bounds.fencing_delay() - self.bounds.timeout,
            Some(Mutation::ReleaseAtValidity) => self.bounds.heartbeat_valid,
            _ => self.bounds.fencing_delay(),
        }
    }
}
