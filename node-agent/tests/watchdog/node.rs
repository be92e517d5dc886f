//! A simulated node: processes to kill in a pid namespace, a simulated watchdog outside of it, and a daemon.

use ha_node_agent::watchdog::client::{Client, ClientError, Event};
use ha_node_agent::watchdog::protocol::{Refusal, Status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Receiver;

/// Time limit of a condition before a test fails.
const MAX_WAIT: Duration = Duration::from_secs(30);

pub(crate) fn wait_until(condition_name: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < MAX_WAIT, "waited too long: {condition_name}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Connects as soon as the daemon listens and serves no previous connection.
pub(crate) async fn connect_until_accepted(socket: &Path) -> (Client, Status, Receiver<Event>) {
    let start = Instant::now();
    loop {
        match Client::connect(socket).await {
            Ok(connection) => return connection,
            Err(ClientError::Unreachable(_) | ClientError::Refused(Refusal::AnotherPeer { .. })) => {}
            Err(error) => panic!("not served: {error}"),
        }
        assert!(start.elapsed() < MAX_WAIT, "waited too long for the daemon");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A simulated node. Dropping this value kills all its processes.
pub(crate) struct Node {
    directory: tempfile::TempDir,
    namespace: Child,
    init_pid: u32,
    simulated_watchdog: Child,
    daemon: Child,
    service_manager: Option<UnixDatagram>,
}

impl Node {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), None)
    }

    pub(crate) fn start_with_service_manager() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify.sock")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self::start_in(directory, Some(socket))
    }

    fn start_in(directory: tempfile::TempDir, service_manager: Option<UnixDatagram>) -> Self {
        let mut namespace = Command::new("unshare");
        if !geteuid().is_root() {
            namespace.args(["--user", "--map-root-user"]);
        }
        let mut namespace = namespace
            .args(["--pid", "--fork", "--kill-child", "sh", "-c", "sleep 1000 & sleep 1000 & wait"])
            .stdin(Stdio::null())
            .spawn()
            .expect("unshare (package util-linux) starts");
        let init_pid = wait_for_first_child(&mut namespace);
        let simulated_watchdog = Command::new(env!("CARGO_BIN_EXE_ha-watchdog-standin"))
            .arg("--socket")
            .arg(directory.path().join("standin.sock"))
            .arg("--log")
            .arg(directory.path().join("standin.log"))
            .args(["--kill-pid", &init_pid.to_string()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the simulated watchdog listens", || directory.path().join("standin.sock").exists());
        let daemon = watchdogd_command(directory.path(), service_manager.is_some()).spawn().unwrap();
        Self { directory, namespace, init_pid, simulated_watchdog, daemon, service_manager }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("watchdogd.sock")
    }

    pub(crate) fn daemon_command(&self) -> Command {
        watchdogd_command(self.directory.path(), self.service_manager.is_some())
    }

    pub(crate) fn start_daemon(&mut self) {
        self.daemon = self.daemon_command().spawn().unwrap();
    }

    /// Starts a daemon that receives the record, as the service manager passes it.
    pub(crate) fn start_daemon_with_record(&mut self, record: std::fs::File) {
        let daemon = self.daemon_command();
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec 3<&0; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=record exec \"$@\"", "sh"]);
        shell.arg(daemon.get_program()).args(daemon.get_args());
        shell.envs(daemon.get_envs().filter_map(|(name, value)| Some((name, value?))));
        self.daemon = shell.stdin(record).spawn().unwrap();
    }

    /// Opens the daemon's in-memory record through the daemon's own descriptor.
    pub(crate) fn open_record(&self) -> std::fs::File {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.daemon.id())).unwrap();
        let is_record = |path: &PathBuf| {
            std::fs::read_link(path)
                .is_ok_and(|target| target.to_string_lossy().contains("memfd:ha-watchdogd"))
        };
        let path =
            descriptors.map(|entry| entry.unwrap().path()).find(is_record).expect("the daemon has a record");
        std::fs::File::options().read(true).write(true).open(path).unwrap()
    }

    pub(crate) fn service_manager_messages(&self) -> String {
        let mut text = String::new();
        let mut buffer = [0; 1024];
        while let Ok(length) = self.service_manager.as_ref().unwrap().recv(&mut buffer) {
            text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        text
    }

    pub(crate) fn signal_daemon(&self, signal: Signal) {
        kill(Pid::from_raw(self.daemon.id().cast_signed()), signal).unwrap();
    }

    pub(crate) fn wait_for_daemon(&mut self) -> ExitStatus {
        self.daemon.wait().unwrap()
    }

    /// Returns `true` if process 1 of the tree is alive.
    pub(crate) fn is_alive(&self) -> bool {
        process_state(self.init_pid).is_some_and(|state| state != 'Z')
    }

    pub(crate) fn wait_for_death(&mut self) {
        wait_until("the node dies", || self.namespace.try_wait().unwrap().is_some());
        assert!(!self.is_alive());
        wait_until("the simulated watchdog exits", || self.simulated_watchdog.try_wait().unwrap().is_some());
    }

    /// Returns when the simulated watchdog fired, milliseconds of the boot clock.
    pub(crate) fn expired_at_ms(&self) -> Option<u64> {
        let log = std::fs::read_to_string(self.directory.path().join("standin.log")).unwrap();
        let line = log.lines().find(|line| line.contains("expired: killed the processes of the node"))?;
        let value = line.split(' ').find_map(|word| word.strip_prefix("boottime_ms="))?;
        Some(value.parse().unwrap())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for child in [&mut self.daemon, &mut self.simulated_watchdog, &mut self.namespace] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn watchdogd_command(directory: &Path, service_manager: bool) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ha-watchdogd"));
    command.arg("--socket").arg(directory.join("watchdogd.sock"));
    command.arg("--simulated").arg(directory.join("standin.sock"));
    command.stdin(Stdio::null());
    if service_manager {
        command.env("NOTIFY_SOCKET", directory.join("notify.sock")).env("FDSTORE", "2");
    }
    command
}

/// Returns the pid of process 1 of a new namespace, in the namespace of the test.
fn wait_for_first_child(parent: &mut Child) -> u32 {
    let mut first_child = None;
    wait_until("the namespace has a process 1", || {
        assert_eq!(parent.try_wait().unwrap(), None, "unshare has failed");
        let path = format!("/proc/{0}/task/{0}/children", parent.id());
        first_child = std::fs::read_to_string(path)
            .ok()
            .and_then(|text| text.split_whitespace().next().and_then(|pid| pid.parse().ok()));
        first_child.is_some()
    });
    first_child.unwrap()
}

/// Returns the state letter of a process, if it exists.
fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim().chars().next()
}

/// Another process that connects to a daemon.
pub(crate) struct SecondClient {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl SecondClient {
    /// Starts the process and waits until the daemon serves it.
    pub(crate) fn connect(socket: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "helper_process", "--ignored", "--nocapture"])
            .env("HELPER_SOCKET", socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut second_client = Self { child, input, output };
        second_client.expect_line("connected");
        second_client
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes the process close its connection and stay alive.
    pub(crate) fn drop_connection(&mut self) {
        self.input.write_all(b"drop\n").unwrap();
        self.expect_line("dropped");
    }

    pub(crate) fn end(&mut self) {
        self.input.write_all(b"end\n").unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    fn expect_line(&mut self, word: &str) {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert_ne!(
                self.output.read_line(&mut line).unwrap(),
                0,
                "the helper exited before it printed {word}"
            );
        }
    }
}

impl Drop for SecondClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the helper process: it executes commands from its input, one per line.
pub(crate) async fn helper_main() {
    let socket = std::env::var_os("HELPER_SOCKET").expect("started by a test only");
    let (client, _, mut events) = connect_until_accepted(Path::new(&socket)).await;
    println!("connected");
    let mut byte = [0];
    std::io::stdin().read_exact(&mut byte).unwrap();
    drop(client);
    // The task that owns the connection has ended once its events have.
    while events.recv().await.is_some() {}
    println!("dropped");
    let mut input_lines = String::new();
    let mut input = BufReader::new(std::io::stdin());
    while !input_lines.contains("end") {
        assert_ne!(input.read_line(&mut input_lines).unwrap(), 0);
    }
}
