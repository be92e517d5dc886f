//! The simulated watchdog: a process outside a node's tree that kills the tree as a kernel's watchdog resets a machine.
//!
//! The simulated watchdog is for the sandbox and tests only; a leader accepts it only with
//! `fencing.allowSimulatedWatchdog`.
//!
//! # Guarantees
//! - The timer is independent of the daemon that started it. A lost connection neither stops nor restarts the timer (so
//!   the descriptor counts as retained), and the timer also fires when the daemon has ended.
//! - Each process to kill is held by a pidfd: a later process with the same pid is never killed.
//!
//! # Caveats
//! The simulated watchdog does not guarantee the end of a machine's services: stopping or killing this process removes
//! the protection.

mod target;
pub(crate) mod timer;
pub(crate) mod wire;

use super::clock;
use super::seqpacket;
use anyhow::{Context, Result};
use clap::Parser;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;
use target::Targets;
use timer::Timer;
use wire::{Answer, MESSAGE_BYTES};

/// Simulate a kernel watchdog for the sandbox and tests
#[derive(Debug, Parser)]
#[command(name = "ha-watchdog-standin", version)]
pub struct Options {
    /// Socket for ha-watchdogd (its option --simulated)
    #[arg(long, value_name = "SOCKET")]
    pub socket: PathBuf,
    /// Process to kill at expiry; repeatable
    ///
    /// Usually process 1 of a node's process namespace. This program exits when all these processes have exited, and no
    /// other action is requested at expiry.
    #[arg(long, value_name = "PID")]
    pub kill_pid: Vec<u32>,
    /// Control group to kill at expiry (its `cgroup.kill`); repeatable
    #[arg(long, value_name = "PATH")]
    pub kill_cgroup: Vec<PathBuf>,
    /// Shell command to run at expiry, after the kills; repeatable
    #[arg(long, value_name = "COMMAND")]
    pub exec_on_expiry: Vec<String>,
    /// File that also receives the log lines, in addition to standard output
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

/// Runs until the timer has fired, the targets have ended, or a signal requests the exit.
pub fn run(options: &Options) -> Result<()> {
    let mut targets = Targets::of(options)?;
    let listener = seqpacket::listen_at(&options.socket)
        .with_context(|| format!("cannot listen on {}", options.socket.display()))?;
    let signals = signals()?;
    let mut log = Log::open(options)?;
    log.line(&format!("ready on {}", options.socket.display()));
    let ended = EventLoop { listener, signals, holder: None, timer: Timer::new() }.run(&mut targets)?;
    match ended {
        SimulationEnd::Fired => {
            // Kill first: writing output can block.
            let failures = targets.kill();
            log.line("expired: killed the processes of the node");
            for failure in failures {
                log.line(&format!("expired: {failure}"));
            }
            for failure in targets.run_commands() {
                log.line(&format!("expired: {failure}"));
            }
        }
        SimulationEnd::TargetsGone => log.line("exiting: all target processes have exited"),
        SimulationEnd::Signaled => log.line("exiting: received a signal"),
    }
    match nix::unistd::unlink(&options.socket) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno).context("cannot remove the socket"),
    }
}

/// Returns a descriptor for the signals that this program handles. SIGTERM and SIGINT end it. SIGUSR1 makes the device
/// refuse every pet; SIGUSR2 makes it accept pets again.
fn signals() -> Result<SignalFd> {
    let signal_set = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1, Signal::SIGUSR2]);
    signal_set.thread_block().context("cannot block signals")?;
    SignalFd::with_flags(&signal_set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("cannot receive signals")
}

/// The reason why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimulationEnd {
    Fired,
    TargetsGone,
    Signaled,
}

struct EventLoop {
    listener: UnixListener,
    signals: SignalFd,
    holder: Option<UnixStream>,
    timer: Timer,
}

impl EventLoop {
    fn run(mut self, targets: &mut Targets) -> Result<SimulationEnd> {
        loop {
            let now_ns = clock::now().boottime_ns;
            let timeout = match self.timer.expires_at_ns() {
                Some(at) if at <= now_ns => return Ok(SimulationEnd::Fired),
                Some(at) => Some(TimeSpec::from(Duration::from_nanos(at - now_ns))),
                None => None,
            };
            if targets.remove_ended() {
                return Ok(SimulationEnd::TargetsGone);
            }
            self.wait(timeout, targets)?;
            while let Some(signal) = self.signals.read_signal().context("cannot read a signal")? {
                match i32::try_from(signal.ssi_signo).map(Signal::try_from) {
                    Ok(Ok(Signal::SIGUSR1)) => self.timer.set_refuses(true),
                    Ok(Ok(Signal::SIGUSR2)) => self.timer.set_refuses(false),
                    Ok(_) | Err(_) => return Ok(SimulationEnd::Signaled),
                }
            }
            self.serve_holder();
            self.accept();
        }
    }

    fn wait(&self, timeout: Option<TimeSpec>, targets: &Targets) -> Result<()> {
        let mut descriptors = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        descriptors.extend(self.holder.iter().map(|holder| PollFd::new(holder.as_fd(), PollFlags::POLLIN)));
        descriptors.extend(targets.alive().map(|process| PollFd::new(process, PollFlags::POLLIN)));
        match ppoll(&mut descriptors, timeout, None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno).context("wait"),
        }
    }

    fn serve_holder(&mut self) {
        while let Some(holder) = &self.holder {
            let mut bytes = [0; MESSAGE_BYTES];
            let length = match seqpacket::receive_now(holder, &mut bytes) {
                Err(Errno::EAGAIN | Errno::EINTR) => return,
                Ok(0) | Err(_) => {
                    self.holder = None;
                    return;
                }
                Ok(length) => length,
            };
            let Some((number, operation)) = bytes.get(..length).and_then(wire::decode) else {
                self.holder = None;
                return;
            };
            let answer = self.timer.handle(clock::now().boottime_ns, operation);
            if seqpacket::send_now(holder, &wire::encode_answer(number, answer)).is_err() {
                self.holder = None;
            }
        }
    }

    /// Accepts one holder at a time, as a kernel's device does.
    fn accept(&mut self) {
        while let Ok((peer, _)) = self.listener.accept() {
            if self.holder.is_some() {
                let busy = Answer::Failed((Errno::EBUSY as i32).unsigned_abs());
                // Sending fails if the peer has already disconnected. This needs no handling.
                let _ = seqpacket::send_now(&peer, &wire::encode_answer(0, busy));
            } else {
                self.holder = Some(peer);
            }
        }
    }
}

/// A log with timestamps, for tests and operators, on standard output and in a file.
struct Log {
    file: Option<File>,
}

impl Log {
    fn open(options: &Options) -> Result<Self> {
        let open = |path: &PathBuf| {
            File::options()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| format!("cannot open {}", path.display()))
        };
        Ok(Self { file: options.log.as_ref().map(open).transpose()? })
    }

    fn line(&mut self, text: &str) {
        let now = clock::now().boottime_ns / 1_000_000;
        let wall_ms =
            std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since_1970| since_1970.as_millis());
        let wall = ha_api_types::time::Timestamp::from_unix_ms(i128::try_from(wall_ms).unwrap_or(0));
        let line = format!("{wall} boottime_ms={now} pid={} {text}\n", std::process::id());
        // Standard output may be closed; that must not stop the program.
        let _ = std::io::stdout().write_all(line.as_bytes());
        if let Some(file) = &mut self.file {
            let _ = file.write_all(line.as_bytes());
        }
    }
}
