//! Shared helpers: a node with its own directory of containers, its driver, services, and a view of containers
//! independent of the driver.

use crate::containers::{self, MAX_WAIT};
use ha_api_types::record::Observed;
use ha_api_types::resource::ServiceDefinition;
use ha_node_agent::driver::lxc::{LxcDriver, LxcSettings};
use ha_node_agent::driver::{Driver, DriverEvent};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A script that runs until it receives SIGPWR, which LXC sends, or SIGTERM.
pub(crate) const RUN_SCRIPT: &str =
    "trap 'echo bye; exit 0' PWR TERM; echo ready; while :; do sleep 0.05; done";

/// A node: a directory of containers with one container, and the driver. Dropping this value removes all its files and
/// processes.
pub(crate) struct Node {
    pub(crate) driver: LxcDriver,
    pub(crate) events: UnboundedReceiver<DriverEvent>,
    /// Name of the container, unique on this machine as its control groups are.
    pub(crate) name: String,
    directory: tempfile::TempDir,
    settings: LxcSettings,
}

impl Node {
    /// Returns a node with a container that runs a shell script.
    pub(crate) fn new(script: &str) -> Node {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("ha-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lxc");
        let settings = LxcSettings {
            // Changes must be detected without the periodic query.
            poll_interval: Duration::from_secs(3600),
            ..LxcSettings::new("node1".into(), path, &directory.path().join("state"))
        };
        let (driver, events) = driver(&settings);
        let node = Node { driver, events, name, directory, settings };
        node.define(script);
        node
    }

    /// Returns a path in the directory of the container.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.settings.path.join(&self.name).join(name)
    }

    /// Writes the container: its root file system consists of one program with several names.
    fn define(&self, script: &str) {
        let root = self.path("rootfs");
        for directory in ["bin", "dev", "etc", "proc", "sys", "tmp", "srv"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::copy("/usr/bin/busybox", root.join("bin/busybox")).expect("the package busybox-static");
        for name in ["false", "rm", "sh", "sleep", "test", "true"] {
            symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        let init = root.join("bin/run");
        fs::write(&init, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).unwrap();
        let mut text = String::new();
        for (key, value) in [
            ("uts.name", self.name.as_str()),
            ("rootfs.path", &format!("dir:{}", root.display())),
            ("net.0.type", "empty"),
            ("apparmor.profile", "unconfined"),
            ("pty.max", "16"),
            ("init.cmd", "/bin/run"),
        ] {
            writeln!(text, "lxc.{key} = {value}").unwrap();
        }
        fs::write(self.path("config"), text).unwrap();
    }

    /// Adds a line to the configuration of the container.
    pub(crate) fn configure(&self, line: &str) {
        let text = fs::read_to_string(self.path("config")).unwrap();
        fs::write(self.path("config"), format!("{text}{line}\n")).unwrap();
    }

    /// Ends the agent and starts a new agent.
    pub(crate) fn restart_agent(&mut self) {
        (self.driver, self.events) = driver(&self.settings);
    }

    /// Returns the service that runs the container.
    pub(crate) fn service(&self) -> ServiceDefinition {
        self.service_with(&json!({}))
    }

    /// Returns the service that runs the container, with more fields of its driver.
    pub(crate) fn service_with(&self, fields: &Value) -> ServiceDefinition {
        let mut lxc = json!({"container": self.name});
        lxc.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        containers::web(json!({"lxc": lxc}))
    }

    /// Runs a program of LXC by hand. Returns its output.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(["-n", &self.name, "-P"]).arg(&self.settings.path).args(arguments);
        let output = command.stdin(Stdio::null()).output().expect("the package lxc");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub(crate) fn state(&self) -> String {
        self.run("lxc-info", &["-s", "-H"]).replace("State:", "").trim().to_owned()
    }

    /// Returns the pid of the container's first process.
    pub(crate) fn process(&self) -> i32 {
        self.run("lxc-info", &["-p", "-H"]).parse().expect("a pid")
    }

    /// Returns the pid of the container's monitor.
    pub(crate) fn monitor(&self) -> i32 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process())).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) async fn event(&mut self) -> DriverEvent {
        containers::event(&mut self.events).await
    }

    /// Returns the next event, which must be the end of the service: its message, and whether it was stopped by hand.
    pub(crate) async fn exit(&mut self) -> (String, bool) {
        containers::exit(&mut self.events).await
    }

    /// Asserts that no process of the container remains, according to LXC and to the driver.
    pub(crate) async fn assert_nothing_left(&self, service: &ServiceDefinition) {
        assert_eq!(self.state(), "STOPPED");
        assert_eq!(self.driver.probe(service).await, Observed::NotRunning);
    }
}

impl Node {
    /// Removes the empty control groups that LXC leaves behind if its monitor was killed.
    fn remove_groups(&self) {
        let groups = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(groups).unwrap().flatten().map(|entry| entry.path());
        for hierarchy in hierarchies.chain([groups.to_owned()]) {
            for group in fs::read_dir(hierarchy).into_iter().flatten().flatten() {
                let name = group.file_name().to_string_lossy().into_owned();
                let owner = name.strip_prefix("lxc.monitor.").or_else(|| name.strip_prefix("lxc.payload."));
                let suffix = owner.and_then(|owner| owner.strip_prefix(&self.name));
                if suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-')) {
                    let _ = fs::remove_dir(group.path());
                }
            }
        }
    }
}

impl Drop for Node {
    /// Kills the container, because a failed test must not leave processes or mounts behind.
    fn drop(&mut self) {
        self.run("lxc-stop", &["--kill", "--nolock"]);
        assert!(self.directory.path().exists());
        self.remove_groups();
    }
}

fn driver(settings: &LxcSettings) -> (LxcDriver, UnboundedReceiver<DriverEvent>) {
    let (sender, events) = unbounded_channel();
    (LxcDriver::new(settings.clone(), sender).unwrap(), events)
}

pub(crate) fn is_alive(pid: i32) -> bool {
    fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with(['Z', 'X']))
}

/// Sends a signal to a process, as an operator does with `kill`.
pub(crate) fn signal(name: &str, pid: i32) {
    let _ = Command::new("kill").args(["-s", name, &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Waits until the condition holds.
pub(crate) async fn wait_until(condition_name: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < MAX_WAIT, "waited too long until {condition_name}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
