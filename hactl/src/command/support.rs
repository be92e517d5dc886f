//! `hactl support`: collects data for the analysis of a problem.

use crate::client::{Client, Collection};
use crate::failure::{Exit, Failure, Outcome};
use crate::render;
use crate::session::Session;
use clap::{Args, Subcommand, ValueHint};
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::redact::redact;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Collect diagnostic information for support
#[derive(Args, Debug)]
pub(crate) struct Support {
    #[command(subcommand)]
    action: Action,
}

/// The commands for support.
#[derive(Subcommand, Debug)]
enum Action {
    /// Write objects, events, status reports and etcd keys to a directory
    Dump(Dump),
}

/// Write objects, events, status reports and etcd keys to a directory
#[derive(Args, Debug)]
#[command(
    after_help = "Passwords, tokens and all environment values are replaced by (redacted), based on the names of fields and options. \
        Check the files before you share them. To replay the cluster: `hactl simulate --from-dump DIR`. Logs are not included: run `journalctl -u ha-node-agent -u ha-watchdogd -u ha-controller`.\n\n\
        Exit status: 0 written; 1 incomplete, see problems.txt; 2 invalid usage; 3 unreachable; 4 permission denied."
)]
struct Dump {
    /// Directory to write to; must be empty or not exist
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "hactl-support")]
    directory: PathBuf,
}

impl Support {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.action {
            Action::Dump(dump) => dump.run(session).await,
        }
    }
}

/// File with all keys of the cluster, from which `hactl simulate --from-dump` continues.
pub(crate) const STATE_FILE: &str = "state.json";

/// Data that could not be read, with the causes.
#[derive(Debug, Default)]
struct CollectionProblems(Vec<String>);

impl CollectionProblems {
    fn record_failure<T, E: Into<Failure>>(&mut self, operation: &str, read: Result<T, E>) -> Option<T> {
        read.map_err(|error| self.0.push(format!("{operation}: {}", error.into().message))).ok()
    }
}

impl Dump {
    async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        check_directory_is_empty(&self.directory)?;
        let client = session.client()?;
        // If no controller answers, this request fails before a directory is created.
        client.list(Collection::Kind(Kind::Cluster), &[]).await?;
        std::fs::create_dir_all(&self.directory).map_err(|error| {
            Failure::usage(format!("cannot create {}: {error}", self.directory.display()))
        })?;
        let mut problems = CollectionProblems::default();
        let server =
            problems.record_failure("controller version", client.get_document::<Value>(&["version"]).await);
        let versions = json!({"client": env!("CARGO_PKG_VERSION"), "server": server});
        let mut files = vec![("versions.yaml".to_owned(), versions)];
        for kind in Kind::ALL {
            let name = format!("{}.yaml", kind.plural());
            session.terminal().progress(&name);
            let list = client.list(Collection::Kind(kind), &[]).await;
            if let Some(list) = problems.record_failure(&name, list) {
                files.push((name, list_of(&list.items)));
            }
        }
        let events = client.list(Collection::Events, &[]).await;
        if let Some(list) = problems.record_failure("events.yaml", events) {
            files.push(("events.yaml".to_owned(), list_of(&list.items)));
        }
        for (name, view) in collect_views(client).await {
            if let Some(view) = problems.record_failure(name, view) {
                files.push((name.to_owned(), view));
            }
        }
        for (name, value) in &mut files {
            redact(value);
            write(&self.directory, name, &render::yaml(value)?)?;
        }
        let mut written = files.len();
        if let Some(mut state) = problems.record_failure(STATE_FILE, client.state().await) {
            redact(&mut state.controller);
            state.keys.iter_mut().for_each(|stored| redact(&mut stored.value));
            let text = serde_json::to_string_pretty(&state).unwrap_or_default();
            write(&self.directory, STATE_FILE, &text)?;
            written += 1;
        }
        if !problems.0.is_empty() {
            write(&self.directory, "problems.txt", &format!("{}\n", problems.0.join("\n")))?;
        }
        for problem in &problems.0 {
            session.terminal().warn(&format!("missing in the dump: {problem}"));
        }
        session.terminal().report(&format!("{written} files written to {}", self.directory.display()));
        Ok(if problems.0.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

/// Returns the views that the leader and the controller have of the cluster.
async fn collect_views(client: &Client) -> [(&'static str, Result<Value, Failure>); 3] {
    fn value<T: serde::Serialize>(read: Result<T, Failure>) -> Result<Value, Failure> {
        // Serialization of the project's types cannot fail.
        read.map(|read| serde_json::to_value(read).unwrap_or_default())
    }
    [
        ("overview.yaml", value(client.overview().await)),
        ("usage.yaml", value(client.usage().await)),
        ("reservation.yaml", value(client.reservation(1, "node", false).await)),
    ]
}

fn list_of(items: &[Value]) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "List", "items": items})
}

/// Checks whether the directory is empty or missing.
fn check_directory_is_empty(directory: &Path) -> Result<(), Failure> {
    let directory_text = directory.display();
    let problem = match directory.read_dir().map(|mut entries| entries.next().is_some()) {
        Ok(false) => return Ok(()),
        Ok(true) => format!("{directory_text}: directory is not empty"),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => format!("{directory_text}: not a readable directory: {error}"),
    };
    Err(Failure::usage(problem).help("specify a directory that is empty or does not exist"))
}

fn write(directory: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = directory.join(name);
    std::fs::write(&path, text)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}
