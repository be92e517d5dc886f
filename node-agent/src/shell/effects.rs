//! Execution of the core's effects. The shell begins effects in order. Slow effects run outside the loop and answer
//! through the inputs.

use super::commits::EtcdRequests;
use super::drivers::Drivers;
use super::hold_requests::HoldRequestSender;
use super::journal_file::JournalWriter;
use super::metrics::AgentMetrics;
use super::watchdog_connection::WatchdogConnection;
use crate::core::{CommitUrgency, Effect, Exit, Level};
use ha_runtime::clock::SystemClock;
use ha_store::event_writer::EventWriter;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// The resources that effects need.
pub(super) struct Effects {
    pub(super) store: EtcdRequests,
    pub(super) controllers: HoldRequestSender,
    pub(super) drivers: Drivers,
    pub(super) clock: SystemClock,
    pub(super) journal: JournalWriter,
    pub(super) watchdog: WatchdogConnection,
    pub(super) events: EventWriter,
    pub(super) process: String,
    pub(super) event_number: u64,
    pub(super) metrics: AgentMetrics,
    pub(super) exit: Arc<Mutex<Option<Exit>>>,
    pub(super) ended: watch::Sender<bool>,
}

impl Effects {
    /// Begins an effect and returns immediately.
    pub(super) fn begin(&mut self, effect: Effect) {
        match effect {
            Effect::Commit { id, transaction, urgency } => {
                match urgency {
                    CommitUrgency::Heartbeat { .. } => self.metrics.heartbeats.inc(),
                    CommitUrgency::Ordinary => self.metrics.commits.inc(),
                }
                self.store.commit(id, transaction, urgency);
            }
            Effect::Read { id, keys } => self.store.read(id, keys),
            Effect::GrantLease { id, ttl_seconds } => self.store.grant(id, ttl_seconds),
            Effect::KeepAlive(lease) => self.store.keep_alive(lease),
            Effect::WriteJournal { id, journal } => {
                self.metrics.journal_writes.inc();
                self.journal.write(id, *journal);
            }
            Effect::Run { id, command, service } => {
                let driver = service.driver.kind().map_or("none", ha_api_types::driver::DriverKind::name);
                self.metrics.commands.with_label_values(&[driver, command.name()]).inc();
                self.drivers.run(id, command, *service);
            }
            Effect::Refuse { id, result } => self.drivers.answer(id, result),
            Effect::Cancel(id) => self.drivers.cancel(id),
            Effect::Watchdog { id, request } => self.watchdog.send_request(id, request),
            Effect::RequestHold { id, candidate, url, request, timeout_ms } => {
                let limit = Duration::from_millis(timeout_ms);
                self.controllers.send_request(id, candidate, &url, &request, limit);
            }
            Effect::ReadUsage { id, services } => self.drivers.measure(self.clock, id, services),
            Effect::Event(event) => {
                ha_runtime::logging::event(&event);
                self.event_number += 1;
                let process = self.process.get(..8).unwrap_or(&self.process);
                self.events.write(format!("{process}-{:08}", self.event_number), event);
            }
            Effect::Log { level, message } => match level {
                Level::Error => tracing::error!(%message),
                Level::Warning => tracing::warn!(%message),
                Level::Info => tracing::info!(%message),
                Level::Debug => tracing::debug!(%message),
            },
            Effect::Exit(exit) => {
                tracing::info!(?exit, "stopping the agent");
                if let Ok(mut stored_exit) = self.exit.lock() {
                    *stored_exit = Some(exit);
                }
                self.ended.send_replace(true);
            }
        }
    }
}
