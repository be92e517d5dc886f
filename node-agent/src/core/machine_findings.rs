//! Findings about the machine, for operators: the doctor's report, the end of the previous boot, and the shutdown
//! record.
//!
//! No decision depends on them. The findings have a separate key, because every permit guards the node's report.

use super::commits::CommitPurpose;
use super::effect::CommitUrgency;
use super::journal::{Journal, ShutdownRecord};
use super::{AgentCore, Config, Now, watchdog_test};
use crate::doctor::{CheckContext, MachineFacts, run_checks};
use ha_api_types::event::{Event, EventType};
use ha_api_types::id::{BootId, ObjectUid};
use ha_api_types::kind::Kind;
use ha_api_types::node::{FenceDevice, FenceKind};
use ha_api_types::reason::Reason;
use ha_api_types::record::{
    DoctorReport, FenceState, LastTermination, Mode, Proof, WatchdogObservation, WatchdogReport,
};
use ha_store::{Guard, Outcome, Transaction};

/// Findings outside the protocol.
#[derive(Clone, Debug, Default)]
pub(super) struct MachineFindings {
    facts: Option<MachineFacts>,
    /// The basis on which the facts were evaluated; `None` if they are not evaluated yet.
    judged: Option<(CheckContext, WatchdogReport)>,
    /// A previous boot whose end has not been reported yet.
    previous: Option<PreviousBoot>,
    last_end: Option<LastTermination>,
}

/// The boot of the journal that the agent found at its start.
#[derive(Clone, Debug)]
struct PreviousBoot {
    boot_id: BootId,
    shutdown_record: Option<ShutdownRecord>,
    /// Proof in the fence record of this boot; `None` if the leader did not fence it.
    proof: Option<Proof>,
}

impl MachineFindings {
    /// Takes the shutdown record of another boot out of the journal. The record of a watchdog test takes precedence.
    pub(super) fn new(config: &Config, journal: &mut Journal) -> MachineFindings {
        let of_another_boot =
            journal.shutdown_record.take_if(|shutdown_record| shutdown_record.boot_id != config.boot_id);
        let test = journal.active_trial.as_ref().filter(|trial| trial.boot_id != config.boot_id);
        let of_another_boot = test.map(watchdog_test::shutdown_record_of).or(of_another_boot);
        let is_another = !journal.boot_id.is_empty() && journal.boot_id != config.boot_id;
        let previous = is_another.then(|| PreviousBoot {
            boot_id: journal.boot_id.clone(),
            shutdown_record: of_another_boot,
            proof: None,
        });
        MachineFindings { previous, ..MachineFindings::default() }
    }
}

impl AgentCore {
    /// Stores the result of an examination of the machine.
    pub(super) fn store_machine_facts(&mut self, facts: MachineFacts) {
        self.machine_findings.facts = Some(facts);
        self.machine_findings.judged = None;
        self.changed = true;
    }

    /// Reports how the previous boot ended, once this node is active again, and evaluates facts that were not evaluated
    /// yet.
    pub(super) fn advance_machine_findings(&mut self, now: &Now) {
        self.store_fencing_proof();
        let Some((_, create_revision)) = self.active_registration() else { return };
        self.report_previous_boot(now);
        if self.commits.values().any(|purpose| matches!(purpose, CommitPurpose::Doctor { .. })) {
            return;
        }
        let Some(facts) = &self.machine_findings.facts else { return };
        // Changed settings and a late watchdog are evaluated immediately: only the examination of the machine runs at
        // intervals.
        let basis = (self.check_context(), self.watchdog.report(self.active_timings.watchdog_timeout_ms));
        if self.machine_findings.judged.as_ref() == Some(&basis) {
            return;
        }
        let mut new_report = self.run_checks(now, facts, &basis);
        self.machine_findings.judged = Some(basis);
        let node = &self.config.node;
        let stored = self.view.doctor_reports.value(node);
        let stored_of_this_boot = stored.filter(|stored| stored.boot_id == new_report.boot_id);
        // A restarted agent cannot determine how the previous boot ended; its earlier report remains valid.
        let earlier =
            stored_of_this_boot.and_then(|stored_of_this_boot| stored_of_this_boot.last_end.clone());
        new_report.last_end = self.machine_findings.last_end.clone().or(earlier);
        if stored
            .is_some_and(|stored| DoctorReport { at: new_report.at.clone(), ..stored.clone() } == new_report)
        {
            return;
        }
        let Ok(value) = serde_json::to_vec(&new_report) else { return };
        let keys = &self.config.keys;
        let transaction = Transaction::new()
            .put(keys.doctor_report(node), self.view.doctor_reports.guard(node), value)
            .guard(keys.alive(node), Guard::Created(create_revision))
            .guard(keys.fence(node), self.fence_guard());
        self.commit(transaction, CommitUrgency::Ordinary, CommitPurpose::Doctor { report: new_report });
    }

    fn check_context(&self) -> CheckContext {
        let fencing = self.view.nodes.value(&self.config.node).map(|node| &node.spec.fencing);
        CheckContext {
            node: self.config.node.clone(),
            is_virtual: self.config.is_virtual,
            sleep_protection: self.config.sleep_protection,
            has_other_fencing: fencing.is_some_and(|fencing| {
                fencing.trust_watchdog_on_virtual_machine
                    || fencing.devices.iter().any(FenceDevice::confirms_power_off)
            }),
            require_tested: self.view.cluster().is_some_and(|cluster| cluster.spec.fencing.require_tested),
            policy: self.config.policy.clone(),
            timings: self.active_timings,
        }
    }

    fn run_checks(
        &self,
        now: &Now,
        facts: &MachineFacts,
        (check_context, watchdog): &(CheckContext, WatchdogReport),
    ) -> DoctorReport {
        let daemon = self.watchdog.daemon_status();
        let watchdog_seen = daemon.device.map(|device| WatchdogObservation {
            nowayout: device.nowayout,
            smallest_timeout_seconds: device.smallest_timeout_seconds,
            largest_timeout_seconds: device.largest_timeout_seconds,
            pretimeout_seconds: daemon.pretimeout_seconds,
            smallest_margin_ms: daemon.smallest_margin_ms,
            worst_lateness_ms: daemon.worst_lateness_ms,
            real_time: daemon.privileges.real_time,
            memory_locked: daemon.privileges.memory_locked,
        });
        DoctorReport {
            boot_id: self.config.boot_id.clone(),
            watchdog: watchdog_seen,
            checks: run_checks(facts, watchdog, &daemon, check_context),
            last_end: None,
            at: now.timestamp(),
        }
    }

    /// Handles the outcome of writing the doctor's report. A report that was not applied is computed again later,
    /// against etcd's state at that time.
    pub(super) fn on_doctor_report_committed(&mut self, report: DoctorReport, outcome: &Outcome) {
        if let Some(revision) = outcome.applied() {
            self.view.doctor_reports.record_write(self.config.node.clone(), report, revision);
        }
        self.log_outcome("report of the health checks", outcome);
    }

    /// Discards an earlier boot that left cleanly, when the node's report is read for the first time.
    pub(super) fn discard_cleanly_ended_boot(&mut self) {
        let boot_id = self.machine_findings.previous.as_ref().map(|previous| previous.boot_id.clone());
        let ended_cleanly = self.node_report().is_some_and(|report| match report.mode {
            // If the agent was stopped before the machine, no agent process observed the end of the boot.
            Mode::Left(_) | Mode::Restart => Some(&report.boot_id) == boot_id.as_ref(),
            Mode::Registering | Mode::Active | Mode::Maintenance | Mode::Shutdown(_) | Mode::Disarmed => {
                false
            }
        });
        if ended_cleanly {
            self.machine_findings.previous = None;
        }
    }

    /// Stores the proof with which the leader fenced the previous boot. The registration of this boot overwrites the
    /// fence record, so the proof is read before.
    fn store_fencing_proof(&mut self) {
        let Some(previous) = &mut self.machine_findings.previous else { return };
        let Some(fence) = self.view.fences.value(&self.config.node) else { return };
        if fence.state == FenceState::Fenced && fence.boot_id == previous.boot_id {
            previous.proof.clone_from(&fence.proof);
        }
    }

    /// Returns `true` if a fence device of this node with this name switches the power of the machine.
    fn is_power_device(&self, name: &str) -> bool {
        let node = self.view.nodes.value(&self.config.node);
        node.is_some_and(|node| {
            let mut devices = node.spec.fencing.devices.iter();
            devices.any(|device| device.name == name && device.kind == FenceKind::Power)
        })
    }

    fn report_previous_boot(&mut self, now: &Now) {
        // The first examination runs directly after the start. The records on the machine are therefore those of the
        // previous boot.
        let Some(previous) = self.machine_findings.previous.take() else { return };
        let facts = self.machine_findings.facts.clone().unwrap_or_default();
        let fencing = previous
            .proof
            .as_ref()
            .filter(|proof| matches!(proof, Proof::Silence { .. } | Proof::Device { .. }))
            .map(|proof| format!("hactl fenced the node ({})", proof.sentence()));
        let is_powered_off_by_hactl =
            matches!(&previous.proof, Some(Proof::Device { name }) if self.is_power_device(name));
        let mut sentences = match &previous.shutdown_record {
            Some(shutdown_record) => vec![shutdown_record.message.clone()],
            // The power-off by hactl is the cause of the missing record.
            None if is_powered_off_by_hactl => Vec::new(),
            None => vec!["no shutdown record: power loss, kernel panic or hang".to_owned()],
        };
        if facts.was_reset_by_watchdog {
            sentences.push("the watchdog reports that it reset the machine".to_owned());
        }
        if !facts.crash_records.is_empty() {
            let records = facts.crash_records.join(", ");
            sentences.push(format!("kernel crash record in /sys/fs/pstore: {records}"));
        }
        sentences.extend(fencing);
        let message = sentences.join("; ");
        let at = previous.shutdown_record.map(|shutdown_record| shutdown_record.at).unwrap_or_default();
        self.machine_findings.last_end =
            Some(LastTermination { boot_id: previous.boot_id, message: message.clone(), at });
        self.effects.push_back(super::Effect::Event(Event {
            kind: Kind::Node,
            name: self.config.node.to_string(),
            uid: ObjectUid::default(),
            event_type: EventType::Warning,
            reason: Reason::UncleanShutdown,
            message: format!("Node returned after an unclean shutdown: {message}"),
            source: format!("agent/{}", self.config.node),
            node: Some(self.config.node.clone()),
            action_uid: None,
            operation: None,
            epoch: None,
            at: now.precise_timestamp(),
        }));
    }

    /// Writes the shutdown record, with the reason why this machine may soon be reset. The record is stored on disk,
    /// because etcd is unreachable.
    pub(super) fn write_shutdown_record(&mut self, now: &Now, message: String) {
        let recorded_message =
            self.journal.shutdown_record.as_ref().map(|shutdown_record| &shutdown_record.message);
        if recorded_message == Some(&message) {
            return;
        }
        let boot_id = self.config.boot_id.clone();
        self.journal.shutdown_record = Some(ShutdownRecord { boot_id, message, at: now.timestamp() });
        self.mark_journal_changed();
    }

    /// Removes the shutdown record, because a reset is no longer imminent.
    pub(super) fn remove_shutdown_record(&mut self) {
        if self.journal.shutdown_record.take().is_some() {
            self.mark_journal_changed();
        }
    }
}
