//! Findings about the machine, for operators: the doctor's report, the end of the previous boot, and the shutdown
//! record.
//!
//! No decision depends on them. They have a key of their own, because every permit guards the node's report.

use super::commits::Purpose;
use super::effect::Lane;
use super::journal::{Journal, LastWords};
use super::{AgentCore, Config, Now, watchdog_test};
use crate::doctor::{Circumstances, MachineFacts, judge};
use ha_api_types::event::{Event, EventType};
use ha_api_types::id::BootId;
use ha_api_types::kind::Kind;
use ha_api_types::node::FenceDevice;
use ha_api_types::reason::Reason;
use ha_api_types::record::{DoctorReport, LastEnd, Mode, WatchdogReport, WatchdogSeen};
use ha_store::{Guard, Outcome, Transaction};

/// Findings outside the protocol.
#[derive(Clone, Debug, Default)]
pub(super) struct Examining {
    facts: Option<MachineFacts>,
    /// The basis on which the facts were judged; `None` if they are not judged yet.
    judged: Option<(Circumstances, WatchdogReport)>,
    /// A previous boot whose end has not been reported yet.
    previous: Option<Previous>,
    last_end: Option<LastEnd>,
}

/// The boot of the journal that the agent found at its start.
#[derive(Clone, Debug)]
struct Previous {
    boot_id: BootId,
    words: Option<LastWords>,
}

impl Examining {
    /// Takes the shutdown record of another boot out of the journal. A test of the watchdog also counts as one.
    pub(super) fn new(config: &Config, journal: &mut Journal) -> Examining {
        let of_another = journal.last_words.take_if(|words| words.boot_id != config.boot_id);
        let test = journal.trial.as_ref().filter(|trial| trial.boot_id != config.boot_id);
        let of_another = test.map(watchdog_test::last_words).or(of_another);
        let is_another = !journal.boot_id.is_empty() && journal.boot_id != config.boot_id;
        let previous = is_another.then(|| Previous { boot_id: journal.boot_id.clone(), words: of_another });
        Examining { previous, ..Examining::default() }
    }
}

impl AgentCore {
    /// Stores the result of an examination of the machine.
    pub(super) fn examined(&mut self, facts: MachineFacts) {
        self.examining.facts = Some(facts);
        self.examining.judged = None;
        self.changed = true;
    }

    /// Reports how the previous boot ended, once this node is active again, and judges facts that were not judged yet.
    pub(super) fn examining_step(&mut self, now: &Now) {
        let Some((_, created)) = self.active() else { return };
        self.tell_previous(now);
        if self.commits.values().any(|purpose| matches!(purpose, Purpose::Doctor { .. })) {
            return;
        }
        let Some(facts) = &self.examining.facts else { return };
        // Changed settings and a late watchdog are judged immediately: only the examination of the machine runs at
        // intervals.
        let basis = (self.circumstances(), self.watchdog.report(self.in_force.watchdog_timeout_ms));
        if self.examining.judged.as_ref() == Some(&basis) {
            return;
        }
        let mut found = self.judged(now, facts, &basis);
        self.examining.judged = Some(basis);
        let node = &self.config.node;
        let stands = self.view.doctor_reports.value(node);
        let known = stands.filter(|stands| stands.boot_id == found.boot_id);
        // A restarted agent cannot determine how the previous boot ended; its earlier report remains valid.
        let earlier = known.and_then(|known| known.last_end.clone());
        found.last_end = self.examining.last_end.clone().or(earlier);
        if stands.is_some_and(|stands| DoctorReport { at: found.at.clone(), ..stands.clone() } == found) {
            return;
        }
        let Ok(value) = serde_json::to_vec(&found) else { return };
        let keys = &self.config.keys;
        let transaction = Transaction::new()
            .put(keys.doctor_report(node), self.view.doctor_reports.guard(node), value)
            .guard(keys.alive(node), Guard::Created(created))
            .guard(keys.fence(node), self.fence_guard());
        self.commit(transaction, Lane::Ordinary, Purpose::Doctor { report: found });
    }

    fn circumstances(&self) -> Circumstances {
        let fencing = self.view.nodes.value(&self.config.node).map(|node| &node.spec.fencing);
        Circumstances {
            node: self.config.node.clone(),
            is_virtual: self.config.is_virtual,
            sleep_protection: self.config.sleep_protection,
            has_other_proof: fencing.is_some_and(|fencing| {
                fencing.trust_watchdog_on_virtual_machine || fencing.devices.iter().any(FenceDevice::proves)
            }),
            require_tested: self.view.cluster().is_some_and(|cluster| cluster.spec.fencing.require_tested),
            timings: self.in_force,
        }
    }

    fn judged(
        &self,
        now: &Now,
        facts: &MachineFacts,
        (circumstances, watchdog): &(Circumstances, WatchdogReport),
    ) -> DoctorReport {
        let daemon = self.watchdog.daemon_status();
        let seen = daemon.device.map(|device| WatchdogSeen {
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
            watchdog: seen,
            checks: judge(facts, watchdog, &daemon, circumstances),
            last_end: None,
            at: now.timestamp(),
        }
    }

    /// Handles the outcome of writing the doctor's report. A report that was not applied is computed again later,
    /// against etcd's state at that time.
    pub(super) fn doctor_answer(&mut self, report: DoctorReport, outcome: &Outcome) {
        if let Some(revision) = outcome.applied() {
            self.view.doctor_reports.wrote(self.config.node.clone(), report, revision);
        }
        self.tell_outcome("report of the health checks", outcome);
    }

    /// Discards an earlier boot that left cleanly, when the node's report is read for the first time.
    pub(super) fn note_previous(&mut self) {
        let boot_id = self.examining.previous.as_ref().map(|previous| previous.boot_id.clone());
        let left = self.node_report().is_some_and(|report| match report.mode {
            // If the agent was stopped before the machine, no process saw how the machine went down.
            Mode::Left(_) | Mode::Restart => Some(&report.boot_id) == boot_id.as_ref(),
            Mode::Registering | Mode::Active | Mode::Maintenance | Mode::Shutdown(_) | Mode::Disarmed => {
                false
            }
        });
        if left {
            self.examining.previous = None;
        }
    }

    fn tell_previous(&mut self, now: &Now) {
        // The machine's own records belong to the previous boot, because the first examination follows the start
        // directly.
        let Some(previous) = self.examining.previous.take() else { return };
        let facts = self.examining.facts.clone().unwrap_or_default();
        let mut sentences = match &previous.words {
            Some(words) => vec![words.message.clone()],
            None => vec!["no shutdown record: power loss, kernel panic or hang".to_owned()],
        };
        if facts.was_reset_by_watchdog {
            sentences.push("the watchdog reports that it reset the machine".to_owned());
        }
        if !facts.crash_records.is_empty() {
            let records = facts.crash_records.join(", ");
            sentences.push(format!("kernel crash record in /sys/fs/pstore: {records}"));
        }
        let message = sentences.join("; ");
        let at = previous.words.map(|words| words.at).unwrap_or_default();
        self.examining.last_end = Some(LastEnd { boot_id: previous.boot_id, message: message.clone(), at });
        self.effects.push_back(super::Effect::Event(Event {
            kind: Kind::Node,
            name: self.config.node.to_string(),
            uid: String::new(),
            event_type: EventType::Warning,
            reason: Reason::UncleanShutdown,
            message: format!("Node returned after an unclean shutdown: {message}"),
            source: format!("agent/{}", self.config.node),
            node: Some(self.config.node.clone()),
            action_uid: None,
            operation: None,
            epoch: None,
            at: now.moment(),
        }));
    }

    /// Writes the shutdown record: why this machine may soon be reset. It is stored on disk, because etcd is
    /// unreachable.
    pub(super) fn say_last_words(&mut self, now: &Now, message: String) {
        let known = self.journal.last_words.as_ref().map(|words| &words.message);
        if known == Some(&message) {
            return;
        }
        let boot_id = self.config.boot_id.clone();
        self.journal.last_words = Some(LastWords { boot_id, message, at: now.timestamp() });
        self.journal_changed();
    }

    /// Removes the shutdown record, because a reset is no longer imminent.
    pub(super) fn take_back_last_words(&mut self) {
        if self.journal.last_words.take().is_some() {
            self.journal_changed();
        }
    }
}
