//! One service on this node: what is known of its copy here, and what is being done about it.

use super::command::{CommandId, DriverFailure};
use super::effect::{CommitId, JournalWriteId};
use super::permit::Permit;
use super::replacement::Replacing;
use ha_api_types::quantity::Amounts;
use ha_api_types::record::{Assignment, Phase, ReplacementReport, Revision, ServiceReport};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, Mono};
use std::collections::BTreeSet;

/// Whether a copy runs here, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Nobody has looked yet.
    Unprobed,
    /// It runs.
    Running,
    /// It does not: a probe or a driver confirmed it.
    Stopped,
    /// It cannot be told.
    Unclear,
}

/// What is being done about a service. Every step but `Rest`, `Permit` and `Journal` has one command of the driver.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing is under way.
    Rest,
    /// Looks whether it runs here.
    Probe { purpose: ProbeFor },
    /// Commits a permit (Starting, Receiving) or the source's HandingOver.
    Permit { uid: String, phase: Phase },
    /// Writes the journal before the action is begun.
    Journal { uid: String, write: Option<JournalWriteId> },
    /// Stops the running copy before it is started again: for Restart, and where it was started with other driver fields than
    /// the assignment carries, as one that is found running after a restore (FENCING, R6.9).
    StopFirst { uid: String },
    /// Removes what an earlier attempt left behind.
    Clean { uid: String },
    /// Starts it, or adopts it.
    Start { uid: String },
    /// Stops what a failed attempt left, before Failed may be said.
    Unwind { uid: String, failure: DriverFailure },
    /// Looks whether anything is left, before Failed may be said.
    Verify { uid: String, failure: DriverFailure },
    /// Stops it.
    Stop { uid: Option<String>, graceful_ms: Millis },
    /// Target of a migration: prepares.
    Prepare { uid: String },
    /// Target of a migration: takes over what the source has handed over.
    Arrive { uid: String, source: String },
    /// Source of a migration: reads once more whether the target is as HandingOver has guarded it.
    CheckTarget { uid: String, target: String, sent: Mono },
    /// Source of a migration: moves it, unless that does not begin in time.
    Migrate { uid: String, target: String, until: Mono },
    /// Source of a migration: ends what may be under way of it.
    EndMigration { uid: String, failure: Option<DriverFailure> },
    /// Source of a migration: looks what is left here.
    MigrateProbe { uid: String, failure: Option<DriverFailure> },
    /// Kills it at once.
    Kill { why: KillReason, tries: u32 },
    /// Looks whether it is dead.
    KillVerify { why: KillReason, tries: u32 },
    /// It is dead and was being received: confirms that nothing that still arrives can run.
    CloseReception { why: KillReason, tries: u32 },
}

/// What a probe is for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ProbeFor {
    /// To know.
    Presence,
    /// To answer for a resource that is not assigned here.
    Unassigned { asked: Asked },
    /// To go on with what ran before this process.
    Adopt { uid: String },
    /// An action was begun and its end was not seen.
    Interrupted { uid: String },
    /// Target of a migration: whether it has arrived.
    Received { uid: String },
    /// It was the target of a migration whose source is gone, and is told to start it: whether it has arrived.
    TakeOver { assignment: Box<Assignment> },
}

/// What a probe answers: what was known when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The resource's generation.
    pub(super) generation: i64,
    /// The generation of the armed Cluster.
    pub(super) arming: i64,
    /// The revision of the fence that orders this node to answer again (0: none does).
    pub(super) fence: i64,
}

/// Why a service is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillReason {
    /// The machine may be about to be reset: everything exclusive has to end before (FENCING 4, stop then stay).
    BeforeReset(ResetCause),
    /// The epoch is not ours: cleared before registering.
    Clearing,
    /// It is assigned elsewhere.
    NotHere,
    /// Its migration to this node has failed.
    NotReceived,
    /// Its migration from this node broke, and what is left here does not run.
    HalfLeft,
}

/// Why the machine may be about to be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResetCause {
    /// D − Ts has come.
    LeaseLost,
    /// Nobody pets the watchdog that runs.
    Unpetted,
}

impl ResetCause {
    /// What has happened, as last words begin.
    pub(super) fn told(self) -> &'static str {
        match self {
            ResetCause::LeaseLost => "no heartbeat was committed in time",
            ResetCause::Unpetted => "ha-watchdogd was gone, so that nobody petted the watchdog",
        }
    }
}

/// How a service ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExitSeen {
    pub(super) message: String,
    pub(super) by_hand: bool,
}

/// The revisions of the target's report and fence under which HandingOver was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guarded {
    pub(super) report: Revision,
    pub(super) fence: Revision,
}

/// A service.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each named")]
pub(super) struct Service {
    /// As it was started here; else as assigned; else as wanted.
    pub(super) definition: ServiceDefinition,
    pub(super) presence: Presence,
    pub(super) step: Step,
    /// The command under way for `step`.
    pub(super) task: Option<CommandId>,
    /// Commands that were cancelled and have not ended yet.
    pub(super) cancelling: BTreeSet<CommandId>,
    /// What should stand in the store; `None`: what stands there is right.
    pub(super) desired: Option<ServiceReport>,
    /// The write of its report under way.
    pub(super) write: Option<CommitId>,
    /// Its report must be read again first.
    pub(super) reread: bool,
    pub(super) write_not_before: Option<Mono>,
    /// The right to start, which only a committed report makes.
    pub(super) permit: Option<Permit>,
    /// The action that this process has begun (it is in the journal, on disk).
    pub(super) begun: Option<String>,
    /// A worker is kept for its hand-over, from before that is committed until the driver has begun.
    pub(super) has_worker: bool,
    /// What its HandingOver has guarded of the target.
    pub(super) guarded: Option<Guarded>,
    /// A copy that waits to be received may be here: no look sees it, only a kill or stop that succeeds clears it away.
    pub(super) receives: bool,
    /// Definitions under which the service was verified stopped since clearing began.
    pub(super) cleared: Vec<ServiceDefinition>,
    /// The action for which the old copy was stopped first.
    pub(super) stopped_for: Option<String>,
    /// Failed starts in a row.
    pub(super) failures: u32,
    pub(super) restarts: u32,
    /// What runs now is the restart after a crash.
    pub(super) crashed_before: bool,
    pub(super) started_at: Option<Mono>,
    /// The next command waits until then.
    pub(super) not_before: Option<Mono>,
    /// The other side of a migration is looked at again then.
    pub(super) peek_at: Option<Mono>,
    /// How it ended by itself, until that is dealt with.
    pub(super) exit: Option<ExitSeen>,
    /// It could not be stopped before registering, and that is not yet reported.
    pub(super) not_stopped: bool,
    /// It may have been moved by hand while the cluster was disarmed: it is looked for, and not restarted in place.
    pub(super) recheck: bool,
    /// The replacement of its secondary.
    pub(super) replacing: Replacing,
    /// What this process has answered last about one.
    pub(super) replacement_answer: Option<ReplacementReport>,
    /// Nothing is left of it, here and in the store.
    pub(super) forgotten: bool,
    /// What a driver said last.
    pub(super) message: String,
    /// What its definition on this node asks for, as its driver read it.
    pub(super) asked: Amounts,
}

impl Service {
    pub(super) fn new(definition: ServiceDefinition) -> Service {
        Service {
            definition,
            presence: Presence::Unprobed,
            step: Step::Rest,
            task: None,
            cancelling: BTreeSet::new(),
            desired: None,
            write: None,
            reread: false,
            write_not_before: None,
            permit: None,
            begun: None,
            has_worker: false,
            guarded: None,
            receives: false,
            cleared: Vec::new(),
            stopped_for: None,
            failures: 0,
            restarts: 0,
            crashed_before: false,
            started_at: None,
            not_before: None,
            peek_at: None,
            exit: None,
            not_stopped: false,
            recheck: false,
            replacing: Replacing::Idle,
            replacement_answer: None,
            forgotten: false,
            message: String::new(),
            asked: Amounts::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.definition.name
    }

    /// Confirmed stopped, with no worker that could change it.
    pub(super) fn is_gone(&self) -> bool {
        self.presence == Presence::Stopped
            && self.task.is_none()
            && self.cancelling.is_empty()
            && !self.replacing.is_busy()
    }

    /// Nothing is going on with it: only a change from outside makes it worth a look.
    pub(super) fn is_quiet(&self) -> bool {
        self.step == Step::Rest
            && self.task.is_none()
            && self.cancelling.is_empty()
            && self.desired.is_none()
            && self.write.is_none()
            && !self.reread
            && !self.not_stopped
            && self.exit.is_none()
            && self.not_before.is_none()
            && self.peek_at.is_none()
            && self.replacing == Replacing::Idle
    }

    /// How often it was killed in vain.
    pub(super) fn kill_tries(&self) -> u32 {
        if let Step::Kill { tries, .. } | Step::KillVerify { tries, .. } = &self.step { *tries } else { 0 }
    }

    /// Goes to another step; nothing of the one before is under way any more.
    pub(super) fn go(&mut self, step: Step) {
        self.has_worker &= match &step {
            Step::Permit { phase, .. } => *phase == Phase::HandingOver,
            Step::Journal { .. } | Step::CheckTarget { .. } | Step::Migrate { .. } => true,
            Step::Rest
            | Step::Probe { .. }
            | Step::StopFirst { .. }
            | Step::Clean { .. }
            | Step::Start { .. }
            | Step::Unwind { .. }
            | Step::Verify { .. }
            | Step::Stop { .. }
            | Step::Prepare { .. }
            | Step::Arrive { .. }
            | Step::EndMigration { .. }
            | Step::MigrateProbe { .. }
            | Step::Kill { .. }
            | Step::KillVerify { .. }
            | Step::CloseReception { .. } => false,
        };
        self.step = step;
        self.task = None;
    }
}

impl Step {
    /// The action that the step belongs to.
    pub(super) fn uid(&self) -> Option<&str> {
        match self {
            Step::Permit { uid, .. }
            | Step::Journal { uid, .. }
            | Step::StopFirst { uid }
            | Step::Clean { uid }
            | Step::Start { uid }
            | Step::Unwind { uid, .. }
            | Step::Verify { uid, .. }
            | Step::Prepare { uid }
            | Step::Arrive { uid, .. }
            | Step::CheckTarget { uid, .. }
            | Step::Migrate { uid, .. }
            | Step::EndMigration { uid, .. }
            | Step::MigrateProbe { uid, .. } => Some(uid),
            Step::Stop { uid, .. } => uid.as_deref(),
            Step::Probe { purpose } => match purpose {
                ProbeFor::Adopt { uid } | ProbeFor::Interrupted { uid } | ProbeFor::Received { uid } => {
                    Some(uid)
                }
                ProbeFor::TakeOver { assignment } => Some(&assignment.action_uid),
                ProbeFor::Presence | ProbeFor::Unassigned { .. } => None,
            },
            Step::Rest | Step::Kill { .. } | Step::KillVerify { .. } | Step::CloseReception { .. } => None,
        }
    }

    /// What it waits for or does, for people.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Step::Rest => "rest",
            Step::Probe { .. } => "probe",
            Step::Permit { .. } => "permit",
            Step::Journal { .. } => "journal",
            Step::StopFirst { .. } => "stop before the start",
            Step::Clean { .. } => "clean up",
            Step::Start { .. } => "start",
            Step::Unwind { .. } => "stop after a failure",
            Step::Verify { .. } => "verify after a failure",
            Step::Stop { .. } => "stop",
            Step::Prepare { .. } => "prepare to receive",
            Step::Arrive { .. } => "take over",
            Step::CheckTarget { .. } => "check the target of the migration",
            Step::Migrate { .. } => "migrate",
            Step::EndMigration { .. } => "end the migration",
            Step::MigrateProbe { .. } => "verify the migration",
            Step::Kill { .. } => "kill",
            Step::KillVerify { .. } => "verify the kill",
            Step::CloseReception { .. } => "close the reception",
        }
    }
}
