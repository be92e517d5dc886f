//! Shared helpers: a node with its driver, and test agents in addition to the installed ones.

use ha_api_types::driver::DriverSpec;
use ha_api_types::resource::{Resource, ServiceDefinition};
use ha_node_agent::driver::DriverEvent;
use ha_node_agent::driver::ocf::{OcfDriver, OcfSettings};
use ha_node_agent::driver::program::ProgramSettings;
use ha_runtime::local_values::LocalValues;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A limit that suffices for the slowest machine; only a failing test reaches it.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A node's directories and its driver.
pub(crate) struct Node {
    directory: Directory,
    pub(crate) driver: OcfDriver,
    events: UnboundedReceiver<DriverEvent>,
    settings: OcfSettings,
}

impl Node {
    /// Creates a node with the agents that are installed on this machine.
    pub(crate) fn new(name: &str, cgroups: bool) -> Node {
        Node::with_root(name, cgroups, Some("/usr/lib/ocf".into()))
    }

    /// Creates a node with one agent, `test:Agent`: a shell script that runs `body` for each action.
    pub(crate) fn with_agent(body: &str) -> Node {
        let node = Node::with_root("node1", true, None);
        node.agent(body);
        node
    }

    /// Behaves like [`Node::with_agent`], but processes are found without control groups.
    pub(crate) fn without_groups(body: &str) -> Node {
        let node = Node::with_root("node1", false, None);
        node.agent(body);
        node
    }

    fn with_root(name: &str, cgroups: bool, root: Option<PathBuf>) -> Node {
        let directory = Directory(tempfile::tempdir().unwrap());
        let settings = OcfSettings {
            programs: ProgramSettings {
                node: name.into(),
                boot_id: "boot1".into(),
                state_directory: directory.path().join("state"),
                shim_path: env!("CARGO_BIN_EXE_ha-exec-shim").into(),
                cgroups,
                log_bytes_max: 1024 * 1024,
                values: LocalValues {
                    secrets_directory: directory.path().join("secrets"),
                    credentials_directory: None,
                },
            },
            root: root.unwrap_or_else(|| directory.path().join("ocf")),
            run: directory.path().join("run"),
        };
        fs::write(directory.path().join("token"), "").unwrap();
        let (driver, events) = driver(&settings);
        Node { directory, driver, events, settings }
    }

    /// Ends the agent and starts a new agent, in the same boot or in another boot.
    pub(crate) fn restart_agent(self, boot_id: &str) -> Node {
        let Node { directory, driver: old, events, mut settings } = self;
        drop((old, events));
        settings.programs.boot_id = boot_id.into();
        let (driver, events) = driver(&settings);
        Node { directory, driver, events, settings }
    }

    /// Rewrites the agent. In the script, `$1` is the action and `$HERE` the node's directory.
    pub(crate) fn agent(&self, body: &str) {
        let program = self.settings.root.join("resource.d/test/Agent");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        let text = format!("#!/bin/sh\nHERE={}\n{body}\n", self.directory.path().display());
        // The file is written under another name: a process that another test forks in the meantime could keep it open
        // for writing. The kernel would then refuse to execute it.
        let command = r#"printf '%s' "$1" > "$2.new" && chmod 755 "$2.new" && mv "$2.new" "$2""#;
        let status =
            std::process::Command::new("sh").args(["-c", command, "sh", &text]).arg(&program).status();
        assert!(status.unwrap().success());
        assert!(fs::metadata(&program).unwrap().permissions().mode() & 0o111 != 0);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) async fn event(&mut self) -> DriverEvent {
        tokio::time::timeout(MAX_WAIT, self.events.recv()).await.expect("an event in time").expect("an event")
    }

    /// Returns the output of the service's agent.
    pub(crate) fn log(&self, resource: &str) -> String {
        fs::read_to_string(self.driver.log(resource)).unwrap_or_default()
    }

    /// Returns the living processes with the node's directory on their command line.
    pub(crate) fn processes(&self) -> Vec<i32> {
        living("cmdline", self.directory.path())
    }
}

/// The node's directory.
struct Directory(TempDir);

impl Directory {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Directory {
    /// Kills leftover processes, because a failed test must not leave any behind.
    fn drop(&mut self) {
        for file in ["cmdline", "environ"] {
            for pid in living(file, self.path()) {
                kill(pid);
            }
        }
    }
}

pub(crate) fn of_agent(agent: &str, parameters: &Value) -> ServiceDefinition {
    service(&json!({"agent": agent, "parameters": parameters}))
}

/// Returns a service of the node's test agent.
pub(crate) fn own() -> ServiceDefinition {
    of_agent("test:Agent", &json!({}))
}

/// Returns a service with this ocf driver spec.
pub(crate) fn service(ocf: &Value) -> ServiceDefinition {
    let mut resource = Resource::default();
    resource.metadata.name = "web".into();
    resource.metadata.uid = "uid-1".into();
    resource.spec.driver = serde_json::from_value::<DriverSpec>(json!({"ocf": ocf})).unwrap();
    ServiceDefinition::of(&resource)
}

fn driver(settings: &OcfSettings) -> (OcfDriver, UnboundedReceiver<DriverEvent>) {
    let (sender, events) = unbounded_channel();
    (OcfDriver::new(settings.clone(), sender).unwrap(), events)
}

fn living(file: &str, directory: &Path) -> Vec<i32> {
    let directory = directory.display().to_string();
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let Some(pid) = entry.unwrap().file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        if String::from_utf8_lossy(&text).contains(&directory) && pid != std::process::id().cast_signed() {
            pids.push(pid);
        }
    }
    pids
}

/// Kills a process, as an operator does with `kill -9`.
pub(crate) fn kill(pid: i32) {
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
}

/// Waits until the condition holds.
pub(crate) async fn wait_until(condition_name: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < MAX_WAIT, "waited too long until {condition_name}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
