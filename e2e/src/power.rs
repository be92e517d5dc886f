//! A power supply with a remote control, outside all machines, for the fence device of the sandbox.
//!
//! The switch serves a Unix socket with the commands `off NAME`, `on NAME` and `status NAME`, one line for each connection. The program
//! `fence_sandbox` is its fence agent. `off` is a power cut.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::background::BackgroundThread;
use crate::cluster::Cluster;

/// Time between two checks for a client.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A power supply that serves requests until it is dropped.
pub struct PowerSupply {
    socket: PathBuf,
    shared: Arc<Shared>,
    background: BackgroundThread,
}

#[derive(Default)]
struct Shared {
    rejects_requests: AtomicBool,
    switch_off_count: AtomicU32,
}

impl PowerSupply {
    /// Serves the cluster in `directory` on a socket.
    ///
    /// # Errors
    /// Fails if the socket cannot be created.
    pub fn start(directory: &Path, socket: &Path) -> Result<Self> {
        let listener = UnixListener::bind(socket).with_context(|| socket.display().to_string())?;
        // Without blocking, the thread can end even if no client connects. The socket may be removed before this value is
        // dropped.
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared::default());
        let background = BackgroundThread::start({
            let (shared, directory) = (Arc::clone(&shared), directory.to_owned());
            move |stop| {
                while !stop.is_requested() {
                    match listener.accept() {
                        // An error here means that the client has disconnected. The client repeats its request.
                        Ok((connection, _)) => drop(serve(&connection, &directory, &shared)),
                        Err(_) => thread::sleep(POLL_INTERVAL),
                    }
                }
            }
        });
        Ok(Self { socket: socket.to_owned(), shared, background })
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Makes every later command fail, like a device that lost its power together with the node.
    pub fn reject_requests(&self) {
        self.shared.rejects_requests.store(true, Ordering::Relaxed);
    }

    /// Returns how often a machine was switched off.
    pub fn switch_off_count(&self) -> u32 {
        self.shared.switch_off_count.load(Ordering::Relaxed)
    }
}

impl Drop for PowerSupply {
    fn drop(&mut self) {
        self.background.end();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn serve(connection: &UnixStream, directory: &Path, shared: &Shared) -> Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut line = String::new();
    BufReader::new(connection).read_line(&mut line)?;
    let answer = match execute(line.trim(), directory, shared) {
        Ok(state) => state.to_owned(),
        Err(error) => format!("error: {error:#}"),
    };
    let mut connection = connection;
    writeln!(connection, "{answer}").context("client closed the connection")
}

fn execute(line: &str, directory: &Path, shared: &Shared) -> Result<&'static str> {
    if shared.rejects_requests.load(Ordering::Relaxed) {
        bail!("no power");
    }
    let (command, machine) = line.split_once(' ').context("expected: COMMAND MACHINE")?;
    // The cluster is opened for each command, because every power cycle changes the machines.
    let mut cluster = Cluster::open(directory)?;
    match command {
        "status" => {}
        "off" => {
            cluster.power_off(machine)?;
            shared.switch_off_count.fetch_add(1, Ordering::Relaxed);
        }
        "on" if cluster.machine(machine)?.is_on() => {}
        "on" => cluster.power_on(machine)?,
        _ => bail!("{command} is not a valid command; valid commands: on, off, status"),
    }
    Ok(if cluster.machine(machine)?.is_on() { "on" } else { "off" })
}

/// Sends a command to the power supply at a socket, and returns the machine's state.
///
/// # Errors
/// Fails if the power supply does not respond, or responds with an error.
pub fn send_command(socket: &Path, command: &str, machine: &str) -> Result<String> {
    let connection = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    connection.set_read_timeout(Some(Duration::from_secs(30)))?;
    writeln!(&connection, "{command} {machine}")?;
    let mut answer = String::new();
    BufReader::new(&connection).read_line(&mut answer)?;
    match answer.trim() {
        "" => bail!("the power supply closed the connection"),
        text if text.starts_with("error") => bail!("{text}"),
        text => Ok(text.to_owned()),
    }
}
