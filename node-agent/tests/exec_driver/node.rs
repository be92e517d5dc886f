//! Shared helpers: a node with its driver, services, and a view of processes that is independent of the driver.

use ha_api_types::driver::DriverSpec;
use ha_api_types::resource::{Resource, ServiceDefinition};
use ha_node_agent::driver::exec::{ExecDriver, ExecSettings};
use ha_node_agent::driver::program::ProgramSettings;
use ha_node_agent::driver::{Driver, DriverEvent};
use ha_runtime::local_values::LocalValues;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A limit that suffices for the slowest machine; only a failing test reaches it.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A node's state directory and its driver.
pub(crate) struct Node {
    pub(crate) directory: Directory,
    pub(crate) driver: ExecDriver,
    pub(crate) events: UnboundedReceiver<DriverEvent>,
    settings: ExecSettings,
}

impl Node {
    pub(crate) fn new(cgroups: bool) -> Node {
        Node::with(|settings| settings.programs.cgroups = cgroups)
    }

    pub(crate) fn with(change: impl FnOnce(&mut ExecSettings)) -> Node {
        let directory = Directory(tempfile::tempdir().unwrap());
        let mut settings = ExecSettings {
            programs: ProgramSettings {
                node: "node1".into(),
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
            // Changes must be detected without polling.
            monitor_interval: Duration::from_secs(3600),
            journal: false,
        };
        change(&mut settings);
        let (driver, events) = driver(&settings);
        fs::write(directory.path().join("token"), "").unwrap();
        Node { directory, driver, events, settings }
    }

    /// Ends the agent and starts a new agent.
    pub(crate) fn restart_agent(self) -> Node {
        self.restart_agent_with(|_| {})
    }

    pub(crate) fn restart_agent_with(self, change: impl FnOnce(&mut ExecSettings)) -> Node {
        let Node { directory, driver: old, events, mut settings } = self;
        drop((old, events));
        change(&mut settings);
        let (driver, events) = driver(&settings);
        Node { directory, driver, events, settings }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns a service that runs a shell script in the node's directory. Its `tail -f token` runs indefinitely, and
    /// [`Node::processes`] sees it.
    pub(crate) fn shell(&self, script: &str) -> ServiceDefinition {
        self.service(&json!({"command": ["/bin/sh", "-c", script, "sh", self.directory.path()]}))
    }

    /// Returns a service with this exec driver spec, in the node's directory.
    pub(crate) fn service(&self, exec: &Value) -> ServiceDefinition {
        let mut exec = exec.clone();
        let fields = exec.as_object_mut().unwrap();
        fields.entry("workingDirectory").or_insert_with(|| json!(self.directory.path()));
        let mut resource = Resource::default();
        resource.metadata.name = "web".into();
        resource.metadata.uid = "uid-1".into();
        resource.spec.driver = serde_json::from_value::<DriverSpec>(json!({"exec": exec})).unwrap();
        ServiceDefinition::of(&resource)
    }

    /// Returns the living processes of the node's services: those with the node's directory on their command line.
    pub(crate) fn processes(&self) -> Vec<i32> {
        living("cmdline", |command| command.contains(&self.directory.path().display().to_string()))
    }

    /// Returns the pid of the supervisor, if any.
    pub(crate) fn supervisor(&self) -> Option<i32> {
        self.recorded("supervisor")
    }

    /// Returns the pid of the main process, as recorded.
    pub(crate) fn main_process(&self) -> Option<i32> {
        self.recorded("main")
    }

    fn recorded(&self, which: &str) -> Option<i32> {
        let record: Value = serde_json::from_str(&self.read("state/exec/web/process.json")).ok()?;
        record[which]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.driver.log("web")).unwrap_or_default()
    }

    pub(crate) async fn event(&mut self) -> DriverEvent {
        tokio::time::timeout(MAX_WAIT, self.events.recv()).await.expect("an event in time").expect("an event")
    }

    /// Asserts that no process of the service remains, according to /proc and to the driver.
    pub(crate) async fn assert_nothing_left(&self, service: &ServiceDefinition) {
        assert_eq!(self.processes(), Vec::<i32>::new());
        assert_eq!(self.driver.probe(service).await, ha_api_types::record::Observed::NotRunning);
    }
}

/// The node's directory.
pub(crate) struct Directory(tempfile::TempDir);

impl Directory {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Directory {
    /// Kills leftover processes, because a failed test must not leave any behind.
    fn drop(&mut self) {
        let path = self.path().display().to_string();
        for file in ["cmdline", "environ"] {
            for pid in living(file, |text| text.contains(&path)) {
                signal(pid, "KILL");
            }
        }
    }
}

fn driver(settings: &ExecSettings) -> (ExecDriver, UnboundedReceiver<DriverEvent>) {
    let (sender, events) = unbounded_channel();
    (ExecDriver::new(settings.clone(), sender).unwrap(), events)
}

/// Returns the living processes whose file of this name in /proc matches.
fn living(file: &str, is_counted: impl Fn(&str) -> bool) -> Vec<i32> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let Some(pid) = entry.unwrap().file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A zombie has no command line.
        let command = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if !command.is_empty() && is_counted(&command) {
            pids.push(pid);
        }
    }
    pids
}

pub(crate) fn is_alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with(['Z', 'X']))
}

/// Sends a signal to a process, as an operator does with `kill`.
pub(crate) fn signal(pid: i32, name: &str) {
    let _ = std::process::Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .stderr(std::process::Stdio::null())
        .status();
}

/// Waits until the condition holds.
pub(crate) async fn wait_until(condition_name: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < MAX_WAIT, "waited too long until {condition_name}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Creates an executable script.
pub(crate) fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    // Another process writes the file: a process that another test forks in the meantime could keep this one's
    // descriptor open for writing. The kernel would then refuse to execute the file.
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", r#"printf '%s' "$1" > "$2""#, "sh", text])
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success());
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
