//! QEMU's monitor protocol: what happens to a machine, with the host's time, and orders to it from outside.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::background::Background;
use crate::wait::monotonic_ns;

/// How often a monitor that is not there is tried, and the end is looked for.
const LOOK: Duration = Duration::from_millis(20);
/// How long an answer may take: the monitor shares a lock with a machine that may be starved.
const PATIENCE: Duration = Duration::from_secs(30);

/// Something that happened to a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When it was told, on the host's `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// What.
    pub what: What,
}

/// The kinds of events that the suite judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The machine began to run: its power was switched on.
    PowerOn,
    /// Its process ended: its power was cut.
    PowerOff,
    /// It was reset: by its watchdog, or because it asked for it.
    Reset,
    /// The emulated hardware watchdog fired; a reset follows.
    Watchdog,
    /// It switched itself off.
    SwitchedOff,
    /// The hypervisor paused it.
    Paused,
    /// The hypervisor let it go on.
    Resumed,
    /// It suspended itself to memory.
    Suspended,
}

impl What {
    fn parse(event: &Value) -> Option<Self> {
        match event["event"].as_str()? {
            "RESET" => Some(What::Reset),
            "WATCHDOG" => Some(What::Watchdog),
            "SHUTDOWN" => Some(What::SwitchedOff),
            "STOP" => Some(What::Paused),
            "RESUME" => Some(What::Resumed),
            "SUSPEND" => Some(What::Suspended),
            _ => None,
        }
    }
}

/// Notes a machine's events until it is dropped, over power cuts.
pub struct Monitor {
    events: Arc<Mutex<Vec<Event>>>,
    /// A panic in there leaves events out, which the verdicts notice.
    _background: Background,
}

impl Monitor {
    /// Begins to listen to the monitor behind a socket, which need not be there yet.
    pub fn start(socket: &Path) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let background = Background::start({
            let (events, socket) = (Arc::clone(&events), socket.to_owned());
            move |stop| {
                let note = |what| {
                    let event = Event { at_ns: monotonic_ns(), what };
                    events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
                };
                while !stop.is_asked() {
                    let Ok(mut session) = Session::open(&socket, LOOK * 10) else {
                        thread::sleep(LOOK);
                        continue;
                    };
                    note(What::PowerOn);
                    while !stop.is_asked() {
                        match session.read() {
                            Ok(Some(line)) => What::parse(&line).into_iter().for_each(note),
                            Ok(None) => {}
                            Err(_) => break,
                        }
                    }
                    if !stop.is_asked() {
                        note(What::PowerOff);
                    }
                }
            }
        });
        Self { events, _background: background }
    }

    /// Everything so far.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the machine's power is off, by its own doing or another's.
    pub fn is_off(&self) -> bool {
        let last = self.events().into_iter().rev().find_map(|event| match event.what {
            What::PowerOff | What::SwitchedOff => Some(true),
            What::PowerOn | What::Reset => Some(false),
            What::Watchdog | What::Paused | What::Resumed | What::Suspended => None,
        });
        last.unwrap_or(true)
    }

    /// When there were events of a kind after `after_ns`.
    pub fn all(&self, what: What, after_ns: u64) -> Vec<u64> {
        let events = self.events().into_iter();
        events.filter(|event| event.what == what && event.at_ns > after_ns).map(|event| event.at_ns).collect()
    }

    /// The first event of a kind after `after_ns`.
    pub fn first(&self, what: What, after_ns: u64) -> Option<u64> {
        self.all(what, after_ns).into_iter().next()
    }
}

/// Gives one order to a machine through a monitor that nobody else uses.
///
/// # Errors
/// When the machine is off, or refuses.
pub fn execute(socket: &Path, command: &str) -> Result<Value> {
    let mut session = Session::open(socket, PATIENCE)?;
    session.execute(command)
}

/// A connection to a monitor.
struct Session {
    socket: PathBuf,
    reader: BufReader<UnixStream>,
    /// The beginning of a line whose end has not come yet.
    partial: String,
}

impl Session {
    fn open(socket: &Path, patience: Duration) -> Result<Self> {
        let stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut session =
            Self { socket: socket.to_owned(), reader: BufReader::new(stream), partial: String::new() };
        session.read()?.context("the monitor did not greet")?;
        session.execute("qmp_capabilities")?;
        session.reader.get_ref().set_read_timeout(Some(patience))?;
        Ok(session)
    }

    fn execute(&mut self, command: &str) -> Result<Value> {
        let line = json!({"execute": command}).to_string() + "\n";
        self.reader.get_mut().write_all(line.as_bytes())?;
        loop {
            // An order may be answered after events, and "quit" by the end.
            let Some(answer) =
                self.read().with_context(|| format!("{command}: {}", self.socket.display()))?
            else {
                bail!("{command} was not answered: {}", self.socket.display());
            };
            if answer.get("error").is_some() {
                bail!("{command} was refused: {}", answer["error"]);
            }
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
        }
    }

    /// The next line; `None` when none came in time.
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

    fn check(line: &str, expected: Option<What>) {
        assert_eq!(What::parse(&serde_json::from_str(line).unwrap()), expected, "{line}");
    }

    #[test]
    fn events_are_told_from_answers() {
        check(r#"{"timestamp": {}, "event": "RESET", "data": {"guest": true}}"#, Some(What::Reset));
        check(r#"{"timestamp": {}, "event": "WATCHDOG", "data": {"action": "reset"}}"#, Some(What::Watchdog));
        check(r#"{"timestamp": {}, "event": "SUSPEND"}"#, Some(What::Suspended));
        check(r#"{"timestamp": {}, "event": "RTC_CHANGE", "data": {}}"#, None);
        check(r#"{"return": {}}"#, None);
    }
}
