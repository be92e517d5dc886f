//! Watches of services: events that their driver reports, and a probe at an interval.

use super::Context;
use super::protocol::{Action, Event};
use crate::core::DriverEvent;
use crate::driver::program::run::Running;
use ha_api_types::record::Observed;
use ha_api_types::resource::ServiceDefinition;
use ha_runtime::reconcile::Backoff;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStdout;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// First and longest delay between two runs of a driver's `monitor`; the delay doubles each time.
const MONITOR_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Time for which a service that does not run here is watched.
const STOPPED_WATCH_TIME: Duration = Duration::from_secs(3600);

/// Maximum length of a line in bytes; a longer line is not valid in the protocol.
const MAX_LINE_BYTES: u64 = 64 * 1024;

impl Context {
    /// Starts to watch a service, unless it is already watched. A service that does not run is watched only by the
    /// events of its driver.
    pub(super) async fn watch(self: &Arc<Context>, service: &ServiceDefinition, is_running: bool) {
        let Some(spec) = &service.driver.external else { return };
        let description = self.description(&spec.name).await;
        let reports_events = description.is_ok_and(|description| description.supports(Action::Monitor));
        if !is_running && !reports_events {
            return;
        }
        // A strong reference in the task would keep the driver alive.
        let watched = Watched {
            driver: Arc::downgrade(self),
            service: service.clone(),
            is_running,
            deadline: Instant::now() + STOPPED_WATCH_TIME,
            logged: String::new(),
        };
        let key = (format!("{} {is_running}", service.uid), spec.clone());
        self.watches.ensure(&service.name, key, || watched.run(reports_events));
    }
}

/// The watch of one service.
struct Watched {
    driver: Weak<Context>,
    service: ServiceDefinition,
    /// `true` if the service runs, as far as known.
    is_running: bool,
    /// Time at which the watch ends, unless the service runs.
    deadline: Instant,
    /// Last problem of `monitor` that was logged.
    logged: String,
}

impl Watched {
    async fn run(mut self, reports_events: bool) {
        let mut backoff = Backoff::new(MONITOR_BACKOFF.0, MONITOR_BACKOFF.1);
        let Some(interval) = self.driver.upgrade().map(|context| context.monitor_interval) else { return };
        let mut next_probe = Instant::now() + interval;
        let mut stream = if reports_events { self.start_monitor().await } else { None };
        let mut next_stream = Instant::now() + backoff.advance();
        while self.is_running || (reports_events && Instant::now() < self.deadline) {
            tokio::select! {
                event = next_event(&mut stream) => match event {
                    Some(Ok(event)) => {
                        self.logged.clear();
                        self.handle_event(event).await;
                    }
                    Some(Err(message)) => {
                        self.log(message);
                        stream = None;
                        next_stream = Instant::now() + backoff.advance();
                    }
                    None => {
                        stream = None;
                        next_stream = Instant::now() + backoff.advance();
                    }
                },
                () = sleep_until(next_stream), if reports_events && stream.is_none() => {
                    stream = self.start_monitor().await;
                    next_stream = Instant::now() + backoff.advance();
                }
                () = sleep_until(next_probe), if self.is_running => {
                    if self.is_gone().await {
                        self.on_exited("driver reports that the service does not run".to_owned(), false);
                    }
                    next_probe = Instant::now() + interval;
                }
            }
        }
    }

    /// Reports an event of the driver to the agent, if a probe agrees.
    async fn handle_event(&mut self, event: Event) {
        let Some(context) = self.driver.upgrade() else { return };
        let observed = context.observe(&self.service).await;
        match (event, observed) {
            (Event::Exited { message, by_hand: stopped_externally }, Observed::NotRunning)
                if self.is_running =>
            {
                let message = if message.is_empty() { "reported by the driver".to_owned() } else { message };
                self.on_exited(message, stopped_externally);
            }
            (Event::Appeared, Observed::Running) if !self.is_running => {
                self.is_running = true;
                // Sending fails only when the agent is ending. This is also true for the sends below.
                let _ = context.events.send(DriverEvent::Appeared {
                    name: self.service.name.clone(),
                    uid: self.service.uid.clone(),
                });
            }
            (event, observed) => {
                tracing::debug!(
                    resource = self.service.name.as_str(),
                    ?event,
                    seen = ?observed,
                    "ignored an event that the probe does not confirm"
                );
            }
        }
    }

    /// Returns `true` if two probes in a row report that the service does not run: a single probe may coincide with a
    /// restart.
    async fn is_gone(&self) -> bool {
        for _ in 0..2 {
            let Some(context) = self.driver.upgrade() else { return false };
            if context.observe(&self.service).await != Observed::NotRunning {
                return false;
            }
            drop(context);
            sleep(Duration::from_millis(100)).await;
        }
        true
    }

    fn on_exited(&mut self, message: String, stopped_externally: bool) {
        self.is_running = false;
        self.deadline = Instant::now() + STOPPED_WATCH_TIME;
        if let Some(context) = self.driver.upgrade() {
            let _ = context.events.send(DriverEvent::Exited {
                name: self.service.name.clone(),
                uid: self.service.uid.clone(),
                message,
                stopped_externally,
            });
        }
    }

    /// Logs a problem of the driver's `monitor`, unless the last logged problem is the same.
    fn log(&mut self, message: String) {
        if self.logged != message {
            tracing::warn!(
                resource = self.service.name.as_str(),
                why = message,
                "driver action monitor failed"
            );
            self.logged = message;
        }
    }

    /// Starts the driver's `monitor`.
    async fn start_monitor(&mut self) -> Option<Stream> {
        let context = self.driver.upgrade()?;
        let run_result = async {
            let request =
                context.request(&self.service, Action::Monitor).map_err(|failure| failure.message)?;
            let run = context.prepare_run(&self.service, &request).map_err(|failure| failure.message)?;
            let run_result = context.programs.begin_run(&self.service.name, run.as_run()).await;
            run_result.map_err(|error| error.to_string())?.map_err(|failure| failure.message)
        };
        let run_result = run_result.await;
        match run_result {
            Ok(running) => Stream::of(running),
            Err(message) => {
                self.log(message);
                None
            }
        }
    }
}

/// A running `monitor`. Dropping this value ends the process.
struct Stream {
    events: mpsc::Receiver<Result<Event, String>>,
    _reading: JoinSet<()>,
    _running: Running,
}

impl Stream {
    fn of(mut running: Running) -> Option<Stream> {
        let output = running.take_output()?;
        let (sender, events) = mpsc::channel(16);
        let mut reading = JoinSet::new();
        reading.spawn(read(output, sender));
        Some(Stream { events, _reading: reading, _running: running })
    }
}

/// Returns the next event, or `None` once the monitor has ended. Never returns without a stream.
async fn next_event(stream: &mut Option<Stream>) -> Option<Result<Event, String>> {
    match stream {
        Some(stream) => stream.events.recv().await,
        None => std::future::pending().await,
    }
}

async fn read(output: ChildStdout, events: mpsc::Sender<Result<Event, String>>) {
    let mut reader = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        // A read error counts as the end of the stream.
        let length = (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await.unwrap_or(0);
        if length == 0 {
            return;
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let event = Event::parse(line);
        let is_invalid = event.is_err();
        if events.send(event).await.is_err() || is_invalid {
            return;
        }
    }
}
