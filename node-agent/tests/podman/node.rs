//! Shared helpers: a node with its own podman, its driver, services, and a view of containers independent of the
//! driver.

use crate::containers::{self, MAX_WAIT};
use ha_api_types::record::Observed;
use ha_api_types::resource::ServiceDefinition;
use ha_node_agent::driver::podman::{PodmanDriver, PodmanSettings};
use ha_node_agent::driver::{Driver, DriverEvent};
use ha_runtime::local_values::LocalValues;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The image that every node has.
pub(crate) const IMAGE: &str = "localhost/test:1";
/// A script that runs until it receives SIGTERM.
pub(crate) const RUN_SCRIPT: &str = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done";

/// A node: a podman with its own directories and socket, the podman service, and the driver.
pub(crate) struct Node {
    pub(crate) driver: PodmanDriver,
    pub(crate) events: UnboundedReceiver<DriverEvent>,
    pub(crate) podman: Podman,
    settings: PodmanSettings,
}

/// A podman that is separate from the podman of the machine. Dropping this value removes all its files and processes.
pub(crate) struct Podman {
    directory: tempfile::TempDir,
    service: Option<Child>,
}

impl Node {
    pub(crate) async fn new() -> Node {
        // Changes must be detected by events.
        Node::with_poll(Duration::from_secs(3600)).await
    }

    pub(crate) async fn with_poll(poll_interval: Duration) -> Node {
        let mut podman = Podman::new();
        podman.start_service().await;
        let values = LocalValues { secrets_directory: podman.path("secrets"), credentials_directory: None };
        let settings =
            PodmanSettings { node: "node1".into(), values, socket: podman.socket(), poll_interval };
        let (driver, events) = driver(&settings);
        Node { driver, events, podman, settings }
    }

    /// Ends the agent and starts a new agent.
    pub(crate) fn restart_agent(&mut self) {
        (self.driver, self.events) = driver(&self.settings);
    }

    /// Returns a service that runs a shell script in its own container.
    pub(crate) fn shell(script: &str) -> ServiceDefinition {
        service(&json!({"image": IMAGE, "command": ["/bin/sh", "-c", script]}))
    }

    pub(crate) async fn event(&mut self) -> DriverEvent {
        containers::event(&mut self.events).await
    }

    /// Returns the next event, which must be the end of the service: its message, and whether it was stopped by hand.
    pub(crate) async fn exit(&mut self) -> (String, bool) {
        containers::exit(&mut self.events).await
    }

    /// Asserts that no process of the container remains, according to podman and to the driver.
    pub(crate) async fn assert_nothing_left(&self, service: &ServiceDefinition) {
        assert_eq!(self.podman.run(&["ps", "--all", "--quiet"]), "");
        assert_eq!(self.driver.probe(service).await, Observed::NotRunning);
    }
}

/// Returns a service with this podman spec, with limits that a sandbox allows.
pub(crate) fn service(podman: &Value) -> ServiceDefinition {
    let mut podman = podman.clone();
    let fields = podman.as_object_mut().unwrap();
    if fields.contains_key("image") {
        fields.entry("network").or_insert_with(|| json!("none"));
        fields.entry("ulimits").or_insert_with(|| json!({"nofile": "1024:1024", "nproc": "1024:1024"}));
    }
    containers::web(json!({"podman": podman}))
}

impl Podman {
    fn new() -> Podman {
        let podman = Podman { directory: tempfile::tempdir().unwrap(), service: None };
        // The root file system consists of one program with several names.
        let root = podman.path("files");
        for directory in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::copy("/usr/bin/busybox", root.join("bin/busybox")).expect("the package busybox-static");
        for name in ["cat", "echo", "env", "id", "ls", "pwd", "rm", "sh", "sleep", "test", "touch"] {
            symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        let archive = podman.path("files.tar");
        let status =
            Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".").status().unwrap();
        assert!(status.success());
        podman.run(&["import", "--quiet", archive.to_str().unwrap(), IMAGE]);
        podman
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("podman.sock")
    }

    /// Returns a podman command line for this instance.
    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        for (flag, directory) in [("--root", "root"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(flag).arg(self.path(directory));
        }
        command.args([
            "--runtime=runc",
            "--cgroup-manager=cgroupfs",
            "--events-backend=file",
            "--storage-driver=vfs",
        ]);
        command.stdin(Stdio::null());
        command
    }

    /// Runs podman by hand.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().expect("the package podman");
        assert!(output.status.success(), "podman {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Returns a field of podman's description of the container; empty if there is no such container.
    pub(crate) fn inspect(&self, container: &str, field: &str) -> String {
        let format = format!("{{{{{field}}}}}");
        let output =
            self.command().args(["inspect", "--type=container", "--format", &format, container]).output();
        String::from_utf8_lossy(&output.unwrap().stdout).trim().to_owned()
    }

    /// Returns the pid of the container's first process.
    pub(crate) fn process(&self, container: &str) -> i32 {
        self.inspect(container, ".State.Pid").parse().unwrap()
    }

    /// Starts podman's service.
    pub(crate) async fn start_service(&mut self) {
        let address = format!("unix://{}", self.socket().display());
        let log = fs::File::create(self.path("service.log")).unwrap();
        let mut command = self.command();
        command.args(["system", "service", "--time=0", &address]).stdout(Stdio::null()).stderr(log);
        self.service = Some(command.spawn().expect("the package podman"));
        let socket = self.socket();
        wait_until("podman's service answers", || std::os::unix::net::UnixStream::connect(&socket).is_ok())
            .await;
    }

    /// Ends podman's service; containers keep running.
    pub(crate) fn end_service(&mut self) {
        if let Some(mut service) = self.service.take() {
            let _ = service.kill();
            let _ = service.wait();
        }
        let _ = fs::remove_file(self.socket());
    }
}

impl Drop for Podman {
    /// Removes all containers, because a failed test must not leave processes or mounts behind.
    fn drop(&mut self) {
        self.end_service();
        let events = fs::read_to_string(self.path("tmp/events/events.log")).unwrap_or_default();
        let _ = self
            .command()
            .args(["rm", "--all", "--force", "--time=0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        remove_groups(&events);
    }
}

/// Removes the empty control groups that podman leaves behind if it did not detect the end of a container.
fn remove_groups(events: &str) {
    let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ids: BTreeSet<String> = events.filter_map(|event| event["ID"].as_str().map(str::to_owned)).collect();
    let groups = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(groups).unwrap().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([groups.to_owned()]) {
        for id in &ids {
            let _ = fs::remove_dir(hierarchy.join(format!("libpod_parent/libpod-{id}")));
        }
    }
}

fn driver(settings: &PodmanSettings) -> (PodmanDriver, UnboundedReceiver<DriverEvent>) {
    let (sender, events) = unbounded_channel();
    (PodmanDriver::new(settings.clone(), sender), events)
}

pub(crate) fn is_alive(pid: i32) -> bool {
    fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with(['Z', 'X']))
}

/// Kills a process, as an operator does with `kill -9`.
pub(crate) fn kill(pid: i32) {
    let _ = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Waits until the condition holds.
pub(crate) async fn wait_until(condition_name: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < MAX_WAIT, "waited too long until {condition_name}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
