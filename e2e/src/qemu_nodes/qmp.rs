//! QEMU's monitor protocol: events of a machine with the host's time, and commands to the machine.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::background::BackgroundThread;
use crate::wait::monotonic_ns;

/// Time between two attempts to connect to a monitor, and between two checks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest time for a response. The monitor shares a lock with the machine, which may be starved.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// An event of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Time of the report on the host's `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// Kind of the event.
    pub kind: EventKind,
}

/// The kinds of events that the suite uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The machine's process started: its power was switched on.
    PowerOn,
    /// The machine's process ended: its power was cut.
    PowerOff,
    /// The machine was reset, by its watchdog or by request.
    Reset,
    /// The emulated hardware watchdog fired; a reset follows.
    Watchdog,
    /// The machine shut down from inside.
    SwitchedOff,
    /// The hypervisor paused the machine.
    Paused,
    /// The hypervisor resumed the machine.
    Resumed,
    /// The machine suspended to memory.
    Suspended,
    /// The machine woke up from a suspend to memory.
    WokeUp,
}

impl EventKind {
    fn parse(event: &Value) -> Option<Self> {
        match event["event"].as_str()? {
            "RESET" => Some(EventKind::Reset),
            "WATCHDOG" => Some(EventKind::Watchdog),
            "SHUTDOWN" => Some(EventKind::SwitchedOff),
            "STOP" => Some(EventKind::Paused),
            "RESUME" => Some(EventKind::Resumed),
            "SUSPEND" => Some(EventKind::Suspended),
            "WAKEUP" => Some(EventKind::WokeUp),
            _ => None,
        }
    }
}

/// A recorder of a machine's events, across power cuts, until it is dropped.
pub struct Monitor {
    events: Arc<Mutex<Vec<Event>>>,
    /// Thread of the recorder. If it panics, events are missing, which makes cases fail.
    _background: BackgroundThread,
}

impl Monitor {
    /// Starts to record events from the monitor at a socket. The socket need not exist yet.
    pub fn start(socket: &Path) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let background = BackgroundThread::start({
            let (events, socket) = (Arc::clone(&events), socket.to_owned());
            move |stop| {
                let note = |kind| {
                    let event = Event { at_ns: monotonic_ns(), kind };
                    events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
                };
                while !stop.is_requested() {
                    let Ok(mut session) = Session::open(&socket, POLL_INTERVAL * 10) else {
                        thread::sleep(POLL_INTERVAL);
                        continue;
                    };
                    note(EventKind::PowerOn);
                    while !stop.is_requested() {
                        match session.read() {
                            Ok(Some(line)) => EventKind::parse(&line).into_iter().for_each(note),
                            Ok(None) => {}
                            Err(_) => break,
                        }
                    }
                    if !stop.is_requested() {
                        note(EventKind::PowerOff);
                    }
                }
            }
        });
        Self { events, _background: background }
    }

    /// Returns all events so far.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns `true` if the machine's power is off, by a shutdown from inside or a power cut.
    pub fn is_off(&self) -> bool {
        let last = self.events().into_iter().rev().find_map(|event| match event.kind {
            EventKind::PowerOff | EventKind::SwitchedOff => Some(true),
            EventKind::PowerOn | EventKind::Reset => Some(false),
            EventKind::Watchdog
            | EventKind::Paused
            | EventKind::Resumed
            | EventKind::Suspended
            | EventKind::WokeUp => None,
        });
        last.unwrap_or(true)
    }

    /// Returns the times of all events of a kind after `after_ns`.
    pub fn all(&self, kind: EventKind, after_ns: u64) -> Vec<u64> {
        let events = self.events().into_iter();
        events.filter(|event| event.kind == kind && event.at_ns > after_ns).map(|event| event.at_ns).collect()
    }

    /// Returns the time of the first event of a kind after `after_ns`.
    pub fn first(&self, kind: EventKind, after_ns: u64) -> Option<u64> {
        self.all(kind, after_ns).into_iter().next()
    }
}

/// Sends one command to a machine, through a monitor without another client.
///
/// # Errors
/// Fails if the machine is off, or if the command is refused.
pub fn execute(socket: &Path, command: &str) -> Result<Value> {
    let mut session = Session::open(socket, RESPONSE_TIMEOUT)?;
    session.execute(command)
}

/// A connection to a monitor.
struct Session {
    socket: PathBuf,
    reader: BufReader<UnixStream>,
    /// Start of a line whose end has not arrived yet.
    partial: String,
}

impl Session {
    fn open(socket: &Path, connect_timeout: Duration) -> Result<Self> {
        let stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        let mut session =
            Self { socket: socket.to_owned(), reader: BufReader::new(stream), partial: String::new() };
        session.read()?.context("no greeting from the QEMU monitor")?;
        session.execute("qmp_capabilities")?;
        session.reader.get_ref().set_read_timeout(Some(connect_timeout))?;
        Ok(session)
    }

    fn execute(&mut self, command: &str) -> Result<Value> {
        let line = json!({"execute": command}).to_string() + "\n";
        self.reader.get_mut().write_all(line.as_bytes())?;
        loop {
            // Events may precede the response. After "quit", the end of the connection may replace it.
            let Some(answer) =
                self.read().with_context(|| format!("{command}: {}", self.socket.display()))?
            else {
                bail!("no response to {command}: {}", self.socket.display());
            };
            if answer.get("error").is_some() {
                bail!("{command} was refused: {}", answer["error"]);
            }
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
        }
    }

    /// Returns the next line; `None` if none arrived in time.
    fn read(&mut self) -> Result<Option<Value>> {
        match self.reader.read_line(&mut self.partial) {
            Ok(0) => bail!("the machine's process ended"),
            Ok(_) if self.partial.ends_with('\n') => {
                let line = std::mem::take(&mut self.partial);
                Ok(Some(serde_json::from_str(&line)?))
            }
            Ok(_) => Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<EventKind>) {
        assert_eq!(EventKind::parse(&serde_json::from_str(line).unwrap()), expected, "{line}");
    }

    #[test]
    fn qmp_events_are_distinguished_from_replies() {
        check(r#"{"timestamp": {}, "event": "RESET", "data": {"guest": true}}"#, Some(EventKind::Reset));
        check(
            r#"{"timestamp": {}, "event": "WATCHDOG", "data": {"action": "reset"}}"#,
            Some(EventKind::Watchdog),
        );
        check(r#"{"timestamp": {}, "event": "SUSPEND"}"#, Some(EventKind::Suspended));
        check(r#"{"timestamp": {}, "event": "RTC_CHANGE", "data": {}}"#, None);
        check(r#"{"return": {}}"#, None);
    }
}
