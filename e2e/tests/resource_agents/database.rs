//! A PostgreSQL database in the shared directory: creation, queries, and observation from outside.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ha_e2e::background::BackgroundThread;
use ha_e2e::binaries::repository;
use ha_e2e::cluster::Cluster;
use ha_e2e::command::{output, tool};
use ha_e2e::container;
use ha_e2e::process::{self, ProcessId};
use ha_e2e::scenario::STEP_TIMEOUT;
use ha_e2e::wait::{monotonic_ns, wait_for};

/// Address at which clients of the example reach the database.
pub(crate) const ADDRESS: &str = "192.0.2.10";
pub(crate) const CLIENT: &str = "client";
/// Name of the server's program.
pub(crate) const SERVER: &str = "postgres";
/// Directory of the database on the node that runs it.
const DATA_DIRECTORY: &str = "/srv/database";

/// Version of PostgreSQL in the example.
const VERSION_OF_EXAMPLE: &str = "15";

/// Programs of the newest installed version of PostgreSQL.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    version: String,
}

impl Database {
    /// Creates the database in the shared directory like the example, except that clients need no password.
    pub(crate) fn create(cluster: &Cluster) -> Result<Self> {
        let installed = fs::read_dir("/usr/lib/postgresql").context("run ./dev/setup --test")?;
        let versions =
            installed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let version = versions.max().context("no version is in /usr/lib/postgresql")?.to_string();
        let database = Self { version };
        let script = r#"
            set -e
            mkdir -p /srv/shared/database
            chown postgres: /srv/shared/database
            runuser -u postgres -- "$0/initdb" --auth=trust --no-sync --locale=C "/srv/shared/database/$1"
            echo 'host all all 192.0.2.0/24 trust' >>"/srv/shared/database/$1/pg_hba.conf"
        "#;
        let command = ["sh", "-c", script, &database.programs(), &database.version];
        container::run_inside(cluster.machine("node1")?, &command)?;
        Ok(database)
    }

    fn programs(&self) -> String {
        format!("/usr/lib/postgresql/{}/bin", self.version)
    }

    /// Writes the example for the installed version, otherwise unchanged, and returns its path.
    pub(crate) fn example(&self, cluster: &Cluster) -> Result<String> {
        let mut text = fs::read_to_string(repository().join("manifests/examples/drivers/database.yaml"))?;
        for (before, after) in [("/usr/lib/postgresql/", "/bin/pg_ctl"), ("pgdata: /srv/database/", "\n")] {
            let path_in_example = format!("{before}{VERSION_OF_EXAMPLE}{after}");
            ensure!(text.contains(&path_in_example), "the example does not name {path_in_example:?}");
            text = text.replace(&path_in_example, &format!("{before}{}{after}", self.version));
        }
        let path = cluster.directory().join("database.yaml");
        fs::write(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn command(&self, namespace: &str, statement: &str) -> Vec<String> {
        let connection =
            format!("host={ADDRESS} user=postgres dbname=postgres connect_timeout=2 tcp_user_timeout=2000");
        let program = format!("{}/psql", self.programs());
        ["netns", "exec", namespace, &tool("timeout"), "10", &program, "-XAtq", &connection, "-c", statement]
            .map(str::to_owned)
            .to_vec()
    }

    /// Runs a statement as the client and returns its output.
    pub(crate) fn run_statement(&self, cluster: &Cluster, statement: &str) -> Result<String> {
        let result = output(tool("ip"), &self.command(&cluster.namespace(CLIENT), statement))?;
        if !result.status.success() {
            bail!("{statement}: {}", String::from_utf8_lossy(&result.stderr));
        }
        Ok(String::from_utf8_lossy(&result.stdout).into_owned())
    }

    /// Starts a statement that keeps the server's processor busy for longer than the client waits. Returns the client and the
    /// server process that executes the statement.
    pub(crate) fn keep_busy(&self, cluster: &Cluster) -> Result<(Child, ProcessId)> {
        let series = "generate_series(1, 200000)";
        let statement = format!("select count(*) from {series} one, {series} other where one + other < 0");
        let client = Command::new(tool("ip"))
            .args(self.command(&cluster.namespace(CLIENT), &statement))
            .stderr(Stdio::null())
            .spawn()?;
        let is_busy = |process: &ProcessId| {
            process::program_name(process.pid).as_deref() == Some(SERVER)
                && process::command_line(process.pid).ends_with(" SELECT")
        };
        let worker = wait_for("a worker process of the server", STEP_TIMEOUT, || {
            process::all_pids().into_iter().filter_map(ProcessId::of).find(is_busy)
        })?;
        Ok((client, worker))
    }

    /// Returns the numbers in the table.
    pub(crate) fn entries(&self, cluster: &Cluster) -> Result<BTreeSet<u64>> {
        let result = self.run_statement(cluster, "select number from entries")?;
        result.lines().map(|line| line.parse().with_context(|| line.to_owned())).collect()
    }
}

/// A client that writes consecutive numbers through the address, each over a new connection. It continues after failures.
pub(crate) struct Writer {
    committed: Arc<Mutex<Vec<(u64, u64)>>>,
    background: BackgroundThread,
}

impl Writer {
    pub(crate) fn start(cluster: &Cluster, database: &Database) -> Self {
        let committed = Arc::new(Mutex::new(Vec::new()));
        let (database, namespace) = (database.clone(), cluster.namespace(CLIENT));
        let background = BackgroundThread::start({
            let committed = Arc::clone(&committed);
            move |stop| {
                let mut number = 0;
                while !stop.is_requested() {
                    number += 1;
                    let statement = format!("insert into entries values ({number})");
                    let sent = monotonic_ns();
                    // A failed statement may have been committed, but the client received no confirmation.
                    let result = output(tool("ip"), &database.command(&namespace, &statement));
                    if result.is_ok_and(|result| result.status.success()) {
                        committed.lock().unwrap_or_else(PoisonError::into_inner).push((sent, number));
                    }
                    thread::sleep(Duration::from_millis(200));
                }
            }
        });
        Self { committed, background }
    }

    /// Waits for the commit of a statement that was sent after a time, and returns the time at which it was sent.
    pub(crate) fn wait_for_commit_after(&self, after_ns: u64) -> Result<u64> {
        wait_for("a commit", STEP_TIMEOUT, || {
            let committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
            committed.iter().map(|(sent, _)| *sent).find(|sent| *sent > after_ns)
        })
    }

    /// Stops the client, and returns the numbers whose commit was acknowledged.
    pub(crate) fn finish(mut self) -> Result<BTreeSet<u64>> {
        self.background.end().context("the client panicked")?;
        let committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(committed.iter().map(|(_, number)| *number).collect())
    }
}

/// An observer that checks continuously whether a server runs without its address or its files.
pub(crate) struct DependencyChecker(BackgroundThread<Observations>);

/// Servers that were seen, and descriptions of what they lacked.
type Observations = (BTreeSet<ProcessId>, Vec<String>);

impl DependencyChecker {
    pub(crate) fn watch() -> Self {
        Self(BackgroundThread::start(|stop| {
            let (mut servers, mut violations) = Observations::default();
            while !stop.is_requested() {
                for server in process::all_pids().into_iter().filter_map(ProcessId::of).filter(is_server) {
                    servers.insert(server);
                    violations.extend(missing_dependencies(server));
                }
                thread::sleep(Duration::from_millis(100));
            }
            (servers, violations)
        }))
    }

    /// Returns the servers that were seen.
    ///
    /// # Errors
    /// Fails if a server ever lacked its address or its files.
    pub(crate) fn finish(mut self) -> Result<BTreeSet<ProcessId>> {
        let (servers, violations) = self.0.end().context("the watch panicked")?;
        ensure!(violations.is_empty(), "out of order:\n{}", violations.join("\n"));
        Ok(servers)
    }
}

/// Returns `true` for the server's main process. Child processes overwrite their environment with their titles.
fn is_server(process: &ProcessId) -> bool {
    process::program_name(process.pid).as_deref() == Some(SERVER)
        && process::environment(process.pid).get("HA_RESOURCE").map(String::as_str) == Some("database")
}

/// Describes which of its dependencies a server lacks; `None` if it has both.
fn missing_dependencies(server: ProcessId) -> Option<String> {
    let pid = server.pid;
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).ok()?;
    let routes = fs::read_to_string(format!("/proc/{pid}/net/fib_trie")).ok()?;
    let has_files = mounts.lines().any(|line| line.split(' ').nth(4) == Some(DATA_DIRECTORY));
    let has_address = routes.lines().any(|line| line.trim_end().ends_with(&format!(" {ADDRESS}")));
    // A server that is still alive after both checks was alive during them.
    (!(has_files && has_address) && server.is_alive())
        .then(|| format!("server {pid} at {} ns: files {has_files}, address {has_address}", monotonic_ns()))
}
