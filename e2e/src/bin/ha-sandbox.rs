//! The sandbox: a whole cluster on this machine for experiments. `./dev/up`, `./dev/down` and `./dev/node` call this program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use ha_e2e::cluster::Cluster;
use ha_e2e::init::{self, InitSpec};
use ha_e2e::machine::Role;
use ha_e2e::plan::Plan;
use ha_e2e::program::{exit_code_of, print_line};
use ha_e2e::registry::Lifetime;
use nix::sys::signal::Signal;

#[derive(Parser)]
#[command(name = "ha-sandbox", about = "Run a whole cluster on this host for tests")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster; default: 3 etcd members, 3 controllers and 3 nodes
    Up {
        /// Directory for data, logs and certificates
        #[arg(long = "folder")]
        directory: PathBuf,
        /// Timing profile: Default, Fast or Conservative
        #[arg(long, default_value = "Default")]
        profile: String,
        /// Number of etcd members
        #[arg(long, default_value_t = 3)]
        etcd: u8,
        /// Number of controllers; 0 starts only etcd
        #[arg(long, default_value_t = 3)]
        controllers: u8,
        /// Number of nodes
        #[arg(long, default_value_t = 3)]
        nodes: u8,
    },
    /// Stop the sandbox and remove all of its data
    Down {
        /// Directory of the sandbox
        #[arg(long = "folder")]
        directory: PathBuf,
    },
    /// List machines, or inject and repair faults of one machine
    Machine {
        /// Directory of the sandbox
        #[arg(long = "folder")]
        directory: PathBuf,
        /// Name of the machine; without a name, all machines are listed
        name: Option<String>,
        /// Action
        action: Option<Action>,
        /// Program to kill, stop or continue; without it, kill cuts the power
        program: Option<String>,
    },
    /// Run as process 1 of a machine (internal)
    #[command(hide = true)]
    Init {
        /// File with the list of programs
        spec: PathBuf,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Action {
    /// Cut the power of the machine, or kill a program, which is then restarted
    Kill,
    /// Power on the machine with a new boot id
    PowerOn,
    /// Shut down the machine
    ShutDown,
    /// Disconnect the network link of the machine
    Cut,
    /// Reconnect the network link of the machine
    Heal,
    /// Freeze a program (SIGSTOP)
    Stop,
    /// Continue a frozen program (SIGCONT)
    Continue,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Up { directory, profile, etcd, controllers, nodes } => {
            let lifetime = Lifetime::UntilStopped;
            up(Plan { etcd, controllers, nodes, profile, lifetime, ..Plan::test(&directory) })
        }
        Command::Down { directory } => down(&directory),
        Command::Machine { directory, name: None, .. } => list(&directory),
        Command::Machine { directory, name: Some(name), action: None, .. } => show(&directory, &name),
        Command::Machine { directory, name: Some(name), action: Some(action), program } => {
            run_action(&directory, &name, action, program.as_deref())
        }
        Command::Init { spec } => start_init(&spec),
    };
    exit_code_of("error", outcome)
}

fn up(mut plan: Plan) -> Result<()> {
    fs::create_dir_all(&plan.directory).with_context(|| plan.directory.display().to_string())?;
    plan.directory = plan.directory.canonicalize()?;
    let cluster = Cluster::start(plan)?;
    print_line(&format!("Sandbox started in {}", cluster.directory().display()))
}

fn down(directory: &Path) -> Result<()> {
    let Ok(directory) = directory.canonicalize() else { return print_line("No sandbox is running") };
    match Cluster::open(&directory) {
        Ok(cluster) => cluster.remove()?,
        Err(error) => return print_line(&format!("{error:#}")),
    }
    print_line("Sandbox removed")
}

/// Opens the sandbox in a directory.
///
/// # Errors
/// Fails if no sandbox runs.
fn open_sandbox(directory: &Path) -> Result<Cluster> {
    // The error of a missing directory contains no other information.
    let Ok(directory) = directory.canonicalize() else { bail!("no sandbox is running; run \"./dev/up\"") };
    Cluster::open(&directory)
}

fn list(directory: &Path) -> Result<()> {
    let cluster = open_sandbox(directory)?;
    for role in [Role::Etcd, Role::Controller, Role::Node] {
        for name in cluster.machine_names(role) {
            show_machine(&cluster, &name)?;
        }
    }
    Ok(())
}

fn show(directory: &Path, name: &str) -> Result<()> {
    show_machine(&Cluster::open(&directory.canonicalize()?)?, name)
}

fn show_machine(cluster: &Cluster, name: &str) -> Result<()> {
    let machine = cluster.machine(name)?;
    let programs: Vec<String> = machine
        .programs
        .iter()
        .map(|program| {
            let pid = machine
                .program(&program.name)
                .map_or_else(|| "-".to_owned(), |process| process.pid.to_string());
            format!("{}={pid}", program.name)
        })
        .collect();
    let power = if machine.is_on() { "on" } else { "off" };
    print_line(&format!("{name:<12} {power:<4} {:<15} {}", machine.address, programs.join(" ")))
}

fn run_action(directory: &Path, name: &str, action: Action, program: Option<&str>) -> Result<()> {
    let mut cluster = open_sandbox(directory)?;
    let required_program = || {
        program.with_context(|| {
            format!("no program of {name} specified; run \"./dev/node {name}\" to list the programs")
        })
    };
    match (action, program) {
        (Action::Kill, None) => cluster.power_off(name),
        (Action::Kill, Some(program)) => cluster.machine(name)?.kill(program),
        (Action::PowerOn, _) => cluster.power_on(name),
        (Action::ShutDown, _) => cluster.shut_down(name),
        (Action::Cut, _) => cluster.cut(name),
        (Action::Heal, _) => cluster.heal(name),
        (Action::Stop, _) => cluster.machine(name)?.signal(required_program()?, Signal::SIGSTOP),
        (Action::Continue, _) => cluster.machine(name)?.signal(required_program()?, Signal::SIGCONT),
    }
}

fn start_init(path: &Path) -> Result<()> {
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    let spec: InitSpec = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    init::run(&spec)
}
