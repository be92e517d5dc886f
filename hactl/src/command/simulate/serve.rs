//! `hactl simulate --serve`: the interactive simulator, with the console in the browser.

use super::{DEFAULT_SCENARIO_YAML, parent_directory, read};
use crate::duration::now;
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::yaml;
use ha_simulation_server::{InteractiveError, InteractiveServer};
use ha_simulator::dump::Dump;
use ha_simulator::interactive::{Beginning, Simulation};
use ha_simulator::scenario::Scenario;
use serde_json::{Value, json};
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name of the file in the directory of an interactive simulation.
const STATE_FILE: &str = "scenario.yaml";

/// Flags of the interactive simulator.
#[derive(Args, Debug)]
pub(crate) struct ServeFlags {
    /// Simulate live, with the web console in the browser
    ///
    /// Without a path, the default cluster runs: three nodes with six services, and a spare machine. With FILE, its
    /// scenario runs. With DIR, the simulation is saved there, and resumes at the next start.
    #[arg(long, conflicts_with_all = ["random", "print_default", "why"])]
    pub(super) serve: bool,
    /// Address of the console, on loopback; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", requires = "serve", default_value = "127.0.0.1:7480")]
    listen: SocketAddr,
    /// Do not open the browser
    #[arg(long, requires = "serve")]
    no_browser: bool,
}

impl ServeFlags {
    pub(super) fn run(&self, session: &Session, path: Option<&Path>, dump: Option<Dump>) -> Outcome {
        let (simulation, file) = begin(path, dump)?;
        let terminal = session.terminal();
        let has_directory = file.is_some();
        let serve = async {
            let server = InteractiveServer::bind(simulation, self.listen, file).await?;
            let url = server.url();
            terminal.print_line(&format!("Simulated cluster: {}", terminal.paint(Style::Good, &url)));
            terminal.print_line(if has_directory {
                "Press Ctrl-C to save the simulation and exit."
            } else {
                "Press Ctrl-C to exit without saving. To save a simulation, run: hactl simulate --serve DIR"
            });
            if !self.no_browser {
                open_browser(&url);
            }
            server.run().await
        };
        // The server has its own runtime in its own thread, because the simulation may occupy a thread for seconds.
        let run = || -> Outcome {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}")))?;
            runtime.block_on(serve).map_err(|error| failure(&error))?;
            Ok(Exit::Done)
        };
        std::thread::scope(|scope| scope.spawn(run).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Returns the simulation with the file in which it is saved.
fn begin(path: Option<&Path>, dump: Option<Dump>) -> Result<(Simulation, Option<PathBuf>), Failure> {
    let begin = |name: &str, text: &str, directory: &Path| {
        let beginning = dump.map_or(Beginning::Scenario, |dump| Beginning::Dump(Box::new(dump)));
        Simulation::new(beginning, name, text, directory.to_owned(), &now()).map_err(Failure::usage)
    };
    let Some(path) = path else {
        return Ok((begin("the default cluster", &default_cluster()?, Path::new("."))?, None));
    };
    if path.is_file() {
        return Ok((begin(&path.display().to_string(), &read(path)?, parent_directory(path))?, None));
    }
    std::fs::create_dir_all(path)
        .map_err(|error| Failure::usage(format!("cannot create {}: {error}", path.display())))?;
    let file = path.join(STATE_FILE);
    if !file.exists() {
        return Ok((begin("the default cluster", &default_cluster()?, Path::new("."))?, Some(file)));
    }
    let (name, text) = (file.display().to_string(), read(&file)?);
    let saved = Scenario::parse(&name, &text, path).map_err(Failure::usage)?;
    let mut simulation = begin(&name, &text, path)?;
    simulation.go_to(saved.duration.0).map_err(Failure::usage)?;
    Ok((simulation, Some(file)))
}

/// Returns the cluster of the default scenario without its steps, with etcd on its nodes and with a spare machine.
fn default_cluster() -> Result<String, Failure> {
    let invalid = || Failure::failed("the default scenario is invalid");
    let mut documents = yaml::documents(DEFAULT_SCENARIO_YAML).map_err(|_| invalid())?;
    let mut scenario = documents.pop().map(|document| document.value).ok_or_else(invalid)?;
    let sections = scenario.as_object_mut().ok_or_else(invalid)?;
    sections.remove("steps");
    let nodes = sections.get_mut("nodes").and_then(Value::as_array_mut).ok_or_else(invalid)?;
    let names: Vec<Value> = nodes.iter().map(|node| node["name"].clone()).collect();
    nodes.push(json!({"name": format!("node{}", names.len() + 1), "power": "off", "controller": false,
        "capacity": nodes.first().map(|node| node["capacity"].clone())}));
    sections.insert("store".to_owned(), json!({"on": names}));
    yaml::to_text(&scenario).map_err(|_| invalid())
}

/// Opens the console in the browser of the user, if there is one.
fn open_browser(url: &str) {
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if has_display {
        // The address was printed, so that the user can open it if this fails.
        let _ = Command::new("xdg-open")
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
    }
}

fn failure(error: &InteractiveError) -> Failure {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    let message = format!("{error}{cause}");
    match error {
        InteractiveError::Server(_) => Failure::usage(message).help("select another address with --listen"),
        InteractiveError::Signals(_) | InteractiveError::NotSaved(_) => Failure::failed(message),
    }
}
