//! Commands inside a machine, through the guest agent's own channel. They work while the network is down.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::wait::wait_for;

/// Longest time for one response; after it, the machine counts as unresponsive.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for a command.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// Byte that the agent sends before the response to a synchronization.
const RESPONSE_DELIMITER: u8 = 0xff;

/// A machine that can run commands.
#[derive(Debug, Clone)]
pub struct GuestAgent {
    socket: PathBuf,
}

impl GuestAgent {
    /// Returns the machine whose guest agent has this socket.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Returns `true` if the machine has booted far enough to run commands.
    pub fn is_responsive(&self) -> bool {
        self.session().is_ok()
    }

    /// Runs a shell script and waits for its end.
    ///
    /// # Errors
    /// Fails if the machine does not respond, or if the script fails.
    pub fn run(&self, script: &str) -> Result<()> {
        let pid = self.spawn(script)?;
        let status = wait_for(&format!("the end of `{script}`"), STEP_TIMEOUT, || {
            let answer = self.request("guest-exec-status", &json!({"pid": pid})).ok()?;
            (answer["exited"] == true).then_some(answer)
        })?;
        match status["exitcode"].as_i64() {
            Some(0) => Ok(()),
            _ => bail!("`{script}` failed inside the machine: {status}"),
        }
    }

    /// Starts a shell script, which may run indefinitely. Returns its process id.
    ///
    /// # Errors
    /// Fails if the machine does not respond.
    pub fn spawn(&self, script: &str) -> Result<i64> {
        // This request is never retried: a second run may have another effect.
        let answer = self.request("guest-exec", &json!({"path": "/bin/sh", "arg": ["-c", script]}))?;
        answer["pid"].as_i64().with_context(|| format!("`{script}` was not started: {answer}"))
    }

    fn request(&self, command: &str, arguments: &Value) -> Result<Value> {
        let mut session = self.session()?;
        session.send(command, arguments)?;
        session.receive_answer(command)
    }

    fn session(&self) -> Result<Session> {
        let stream = UnixStream::connect(&self.socket).with_context(|| self.socket.display().to_string())?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        let mut session = Session { reader: BufReader::new(stream) };
        // The channel may contain unread data of earlier clients. Skip it up to this id.
        let id: u32 = rand::random();
        session.send("guest-sync-delimited", &json!({"id": id}))?;
        loop {
            session.reader.read_until(RESPONSE_DELIMITER, &mut Vec::new())?;
            if session.receive_answer("guest-sync-delimited")? == id {
                return Ok(session);
            }
        }
    }
}

struct Session {
    reader: BufReader<UnixStream>,
}

impl Session {
    fn send(&mut self, command: &str, arguments: &Value) -> Result<()> {
        let line = json!({"execute": command, "arguments": arguments}).to_string() + "\n";
        self.reader.get_mut().write_all(line.as_bytes()).context("the guest agent's channel is closed")
    }

    fn receive_answer(&mut self, command: &str) -> Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).with_context(|| format!("no response to {command}"))? == 0 {
            bail!("no response to {command}: the machine is off");
        }
        let mut answer: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        match answer.get_mut("return") {
            Some(value) => Ok(value.take()),
            None => bail!("{command} was refused: {answer}"),
        }
    }
}
