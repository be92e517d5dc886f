//! Shared helpers: a node with its driver, and external drivers in its directory.

use ha_api_types::driver::DriverSpec;
use ha_api_types::resource::{Resource, ServiceDefinition};
use ha_node_agent::driver::DriverEvent;
use ha_node_agent::driver::external::{ExternalDriver, ExternalSettings};
use ha_node_agent::driver::program::ProgramSettings;
use ha_runtime::local_values::LocalValues;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A limit that suffices for the slowest machine; only a failing test reaches it.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A node's directories and its driver.
pub(crate) struct Node {
    directory: Directory,
    pub(crate) driver: ExternalDriver,
    events: UnboundedReceiver<DriverEvent>,
    settings: ExternalSettings,
}

impl Node {
    /// Creates a node that polls its services at this interval.
    pub(crate) fn new(name: &str, monitor_interval: Duration) -> Node {
        let directory = Directory(tempfile::tempdir().unwrap());
        let settings = ExternalSettings {
            programs: ProgramSettings {
                node: name.into(),
                boot_id: "boot1".into(),
                state_directory: directory.path().join("state"),
                shim_path: env!("CARGO_BIN_EXE_ha-exec-shim").into(),
                cgroups: true,
                log_bytes_max: 1024 * 1024,
                values: LocalValues {
                    secrets_directory: directory.path().join("secrets"),
                    credentials_directory: None,
                },
            },
            directories: vec![directory.path().join("first"), directory.path().join("second")],
            monitor_interval,
        };
        for directory in &settings.directories {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(directory.path().join("token"), "").unwrap();
        let (driver, events) = driver(&settings);
        Node { directory, driver, events, settings }
    }

    /// Creates a node with a driver `test`: a shell script with the action in `$action`, the request in `$request` and
    /// the node's directory in `$HERE`.
    pub(crate) fn with_driver(script: &str) -> Node {
        let node = Node::new("node1", Duration::from_secs(3600));
        node.install("second", "test", script);
        node
    }

    /// Ends the agent and starts a new agent.
    pub(crate) fn restart_agent(self) -> Node {
        let Node { directory, driver: old, events, settings } = self;
        drop((old, events));
        let (driver, events) = driver(&settings);
        Node { directory, driver, events, settings }
    }

    /// Installs a driver.
    pub(crate) fn install(&self, directory: &str, name: &str, script: &str) {
        let text = format!(
            "#!/bin/sh\nHERE={}\nrequest=$(cat)\naction=${{request#*'\"action\":\"'}}; action=${{action%%'\"'*}}\n{script}\n",
            self.directory.path().display()
        );
        // The file is written under another name: a process that another test forks in the meantime could keep it open
        // for writing. The kernel would then refuse to execute it.
        let command = r#"printf '%s' "$1" > "$2.new" && chmod 755 "$2.new" && mv "$2.new" "$2""#;
        let program = self.path(directory).join(name);
        let status =
            std::process::Command::new("sh").args(["-c", command, "sh", &text]).arg(&program).status();
        assert!(status.unwrap().success());
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

    /// Returns the living processes with the node's directory on their command line.
    pub(crate) fn processes(&self) -> Vec<i32> {
        living("cmdline", self.directory.path())
    }
}

pub(crate) fn service(driver: &str, settings: &Value) -> ServiceDefinition {
    let mut resource = Resource::default();
    resource.metadata.name = "web".into();
    resource.metadata.uid = "uid-1".into();
    let external = json!({"name": driver, "settings": settings, "allowMigrate": true});
    resource.spec.driver = serde_json::from_value::<DriverSpec>(json!({"external": external})).unwrap();
    ServiceDefinition::of(&resource)
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

fn driver(settings: &ExternalSettings) -> (ExternalDriver, UnboundedReceiver<DriverEvent>) {
    let (sender, events) = unbounded_channel();
    (ExternalDriver::new(settings.clone(), sender).unwrap(), events)
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
