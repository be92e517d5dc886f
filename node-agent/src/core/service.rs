//! One service on this node: the known state of its copy here, and the step in progress.

use super::command::{CommandId, DriverFailure};
use super::effect::{CommitId, JournalWriteId};
use super::external_change::ExternalStop;
use super::permit::Permit;
use super::replacement::ReplacementStep;
use ha_api_types::id::{ActionUid, NodeName, ResourceName, Revision};
use ha_api_types::quantity::Amounts;
use ha_api_types::record::{Assignment, Phase, ReplacementReport, ServiceReport};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, MonotonicTime};
use std::collections::BTreeSet;

/// The presence of a copy on this node, according to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// No probe has been made yet.
    Unprobed,
    /// A copy runs.
    Running,
    /// No copy runs, as confirmed by a probe or by the driver.
    Stopped,
    /// The state cannot be determined.
    Unclear,
}

/// The step in progress. Every step except `Idle`, `Permit`, `Journal` and `CheckTarget` has one command of the driver.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing is in progress.
    Idle,
    /// Probes whether the service runs here.
    Probe { purpose: ProbePurpose },
    /// Commits a permit (Starting, Receiving) or the source's HandingOver.
    Permit { uid: ActionUid, phase: Phase },
    /// Writes the journal before the action is begun.
    Journal { uid: ActionUid, pending_write: Option<JournalWriteId> },
    /// Stops the running copy before it is started again. This stop is needed for Restart, and for a copy whose driver
    /// fields differ from those of the assignment, such as a copy found after a restore (FENCING, R6.9).
    StopFirst { uid: ActionUid },
    /// Removes the remains of an earlier attempt.
    Clean { uid: ActionUid },
    /// Starts or adopts the service.
    Start { uid: ActionUid },
    /// Stops the remains of a failed attempt, before Failed may be reported.
    Unwind { uid: ActionUid, failure: DriverFailure },
    /// Probes whether a part of the service is left, before Failed may be reported.
    Verify { uid: ActionUid, failure: DriverFailure },
    /// Stops the service.
    Stop { uid: Option<ActionUid>, graceful_ms: Millis },
    /// Target of a migration: prepares.
    Prepare { uid: ActionUid },
    /// Target of a migration: takes over the service that the source has handed over.
    Arrive { uid: ActionUid, source: NodeName },
    /// Source of a migration: reads the target again, and compares it with the revisions that HandingOver guards.
    CheckTarget { uid: ActionUid, target: NodeName, sent: MonotonicTime },
    /// Source of a migration: migrates the service, unless the driver cannot begin in time.
    Migrate { uid: ActionUid, target: NodeName, deadline: MonotonicTime },
    /// Source of a migration: ends every part of the migration that is in progress.
    EndMigration { uid: ActionUid, failure: Option<DriverFailure> },
    /// Source of a migration: probes the remains here.
    MigrateProbe { uid: ActionUid, failure: Option<DriverFailure> },
    /// Kills the service immediately.
    Kill { kill_reason: KillReason, attempts: u32 },
    /// Probes whether the service is dead.
    KillVerify { kill_reason: KillReason, attempts: u32 },
    /// The service is dead and was being received: confirms that a copy that still arrives cannot run.
    CloseReception { kill_reason: KillReason, attempts: u32 },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ProbePurpose {
    /// Determine whether a copy of the service is here.
    Presence,
    /// Answer for a resource that is not assigned here.
    Unassigned { basis: ProbeBasis },
    /// Adopt a copy that ran before this process started.
    Adopt { uid: ActionUid },
    /// Determine the result of an action that was begun and whose end was not observed.
    Interrupted { uid: ActionUid },
    /// Target of a migration: check whether the service has arrived.
    Received { uid: ActionUid },
    /// The source of a live migration is proven gone, and this target is now ordered to start the service: check
    /// whether the service has arrived.
    TakeOver { assignment: Box<Assignment> },
}

/// The state to which the answer of a probe refers, as known when the probe began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProbeBasis {
    /// The resource's generation.
    pub(super) generation: i64,
    /// The generation of the armed Cluster.
    pub(super) arming: i64,
    /// The revision of the fence that orders this node to answer again; 0 if there is no such order.
    pub(super) fence: Revision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillReason {
    /// The machine may soon be reset: every exclusive service must end first (FENCING 4, stop then stay).
    BeforeReset(ResetCause),
    /// This process has no epoch: services are cleared before registering.
    Clearing,
    /// The service is assigned elsewhere.
    AssignedElsewhere,
    /// The migration to this node has failed.
    NotReceived,
    /// The migration from this node was interrupted, and the remains on this node do not run.
    MigrationRemnant,
}

/// The cause of a reset that may happen soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResetCause {
    /// D − Ts has passed.
    LeaseLost,
    /// The watchdog runs and is not petted.
    Unpetted,
}

impl ResetCause {
    /// Returns the cause as a clause, with which the message of the shutdown record begins.
    pub(super) fn clause(self) -> &'static str {
        match self {
            ResetCause::LeaseLost => "no heartbeat was committed in time",
            ResetCause::Unpetted => "ha-watchdogd was not running, so the watchdog was not renewed",
        }
    }
}

/// The end of a service without a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnexpectedExit {
    pub(super) message: String,
    pub(super) stopped_externally: bool,
}

/// The revisions of the target's report and fence under which HandingOver was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GuardedTarget {
    pub(super) report: Revision,
    pub(super) fence: Revision,
}

/// The state of one service.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each named")]
pub(super) struct Service {
    /// The definition with which the service was started here; before a start, that of the assignment or of the spec.
    pub(super) definition: ServiceDefinition,
    pub(super) presence: Presence,
    pub(super) step: Step,
    /// The command in progress for `step`.
    pub(super) running_command: Option<CommandId>,
    /// Canceled commands that have not ended yet.
    pub(super) canceling: BTreeSet<CommandId>,
    /// The report to write; `None` if the stored report is up to date.
    pub(super) desired_report: Option<ServiceReport>,
    /// The write of the report that is in progress.
    pub(super) pending_write: Option<CommitId>,
    /// `true` if the report must be read again first.
    pub(super) needs_reread: bool,
    pub(super) write_not_before: Option<MonotonicTime>,
    /// The permit to start; set only from a committed report.
    pub(super) permit: Option<Permit>,
    /// The action that this process has begun; it is in the journal on disk.
    pub(super) begun_action: Option<ActionUid>,
    /// `true` while a worker is reserved for the hand-over, from before its commit until the driver has begun.
    pub(super) has_worker: bool,
    /// The target's revisions that HandingOver has guarded.
    pub(super) guarded_target: Option<GuardedTarget>,
    /// `true` if a copy that waits to be received may be here. A probe does not detect such a copy; only a successful
    /// kill or stop removes it.
    pub(super) may_have_incoming_copy: bool,
    /// Definitions under which the service was verified stopped since clearing began.
    pub(super) cleared_definitions: Vec<ServiceDefinition>,
    /// The action for which the old copy was stopped first.
    pub(super) stopped_for: Option<ActionUid>,
    /// Number of consecutive failed starts.
    pub(super) failed_starts: u32,
    pub(super) restarts: u32,
    /// `true` if the running copy was restarted after a crash.
    pub(super) has_crashed_before: bool,
    pub(super) started_at: Option<MonotonicTime>,
    /// Time before which no further command begins.
    pub(super) not_before: Option<MonotonicTime>,
    /// Time at which the other side of a migration is checked again.
    pub(super) peer_check_at: Option<MonotonicTime>,
    /// Time of the first probe without a result after a cutover to this node; `None` if a probe had a result since.
    pub(super) arrival_unclear_since: Option<MonotonicTime>,
    /// Unexpected end of the service that the agent has not handled yet.
    pub(super) unexpected_exit: Option<UnexpectedExit>,
    /// A clean stop with the service's own tool that is being confirmed.
    pub(super) external_stop: Option<ExternalStop>,
    /// `true` if the service could not be stopped before registering, and this fact is not reported yet.
    pub(super) not_stopped: bool,
    /// `true` if an operator may have moved the service while the cluster was disarmed. Such a service is probed, and
    /// not restarted in place.
    pub(super) needs_recheck: bool,
    /// The replacement of the secondary.
    pub(super) replacing: ReplacementStep,
    /// The last answer of this process to a replacement request.
    pub(super) replacement_answer: Option<ReplacementReport>,
    /// `true` if no part of the service remains here, and no report of it remains in etcd.
    pub(super) is_unmanaged: bool,
    /// The driver's last message.
    pub(super) message: String,
    /// The requests in the service's definition on this node, as the driver read them.
    pub(super) definition_requests: Amounts,
}

impl Service {
    pub(super) fn new(definition: ServiceDefinition) -> Service {
        Service {
            definition,
            presence: Presence::Unprobed,
            step: Step::Idle,
            running_command: None,
            canceling: BTreeSet::new(),
            desired_report: None,
            pending_write: None,
            needs_reread: false,
            write_not_before: None,
            permit: None,
            begun_action: None,
            has_worker: false,
            guarded_target: None,
            may_have_incoming_copy: false,
            cleared_definitions: Vec::new(),
            stopped_for: None,
            failed_starts: 0,
            restarts: 0,
            has_crashed_before: false,
            started_at: None,
            not_before: None,
            peer_check_at: None,
            arrival_unclear_since: None,
            unexpected_exit: None,
            external_stop: None,
            not_stopped: false,
            needs_recheck: false,
            replacing: ReplacementStep::Idle,
            replacement_answer: None,
            is_unmanaged: false,
            message: String::new(),
            definition_requests: Amounts::default(),
        }
    }

    pub(super) fn name(&self) -> &ResourceName {
        &self.definition.name
    }

    /// Returns `true` if the service is confirmed stopped, and no worker can start it.
    pub(super) fn is_gone(&self) -> bool {
        self.presence == Presence::Stopped
            && self.running_command.is_none()
            && self.canceling.is_empty()
            && !self.replacing.is_busy()
    }

    /// Returns `true` if no work is in progress, so only a change from outside requires work on the service.
    pub(super) fn is_idle_until_change(&self) -> bool {
        self.step == Step::Idle
            && self.running_command.is_none()
            && self.canceling.is_empty()
            && self.desired_report.is_none()
            && self.pending_write.is_none()
            && !self.needs_reread
            && !self.not_stopped
            && self.unexpected_exit.is_none()
            && self.not_before.is_none()
            && self.peer_check_at.is_none()
            && self.replacing == ReplacementStep::Idle
    }

    /// Returns how many kills have failed.
    pub(super) fn kill_attempts(&self) -> u32 {
        if let Step::Kill { attempts, .. } | Step::KillVerify { attempts, .. } = &self.step {
            *attempts
        } else {
            0
        }
    }

    /// Changes to another step, which has no task yet, and releases the worker unless the new step may keep it. The
    /// task of the previous step must have ended.
    pub(super) fn transition_to(&mut self, step: Step) {
        self.has_worker &= match &step {
            Step::Permit { phase, .. } => *phase == Phase::HandingOver,
            Step::Journal { .. } | Step::CheckTarget { .. } | Step::Migrate { .. } => true,
            Step::Idle
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
        self.running_command = None;
    }
}

impl Step {
    /// Returns the action to which the step belongs.
    pub(super) fn uid(&self) -> Option<&ActionUid> {
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
            Step::Stop { uid, .. } => uid.as_ref(),
            Step::Probe { purpose } => match purpose {
                ProbePurpose::Adopt { uid }
                | ProbePurpose::Interrupted { uid }
                | ProbePurpose::Received { uid } => Some(uid),
                ProbePurpose::TakeOver { assignment } => Some(&assignment.action_uid),
                ProbePurpose::Presence | ProbePurpose::Unassigned { .. } => None,
            },
            Step::Idle | Step::Kill { .. } | Step::KillVerify { .. } | Step::CloseReception { .. } => None,
        }
    }

    /// Returns the name of the step, for messages.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Step::Idle => "rest",
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
            Step::CloseReception { .. } => "clean up the received copy",
        }
    }
}
