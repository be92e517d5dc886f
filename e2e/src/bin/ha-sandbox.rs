//! The sandbox: a whole cluster on this machine for experiments. `./dev/up`, `./dev/down` and `./dev/node` call this program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use ha_e2e::cluster::Cluster;
use ha_e2e::init::{self, Spec};
use ha_e2e::machine::Role;
use ha_e2e::plan::Plan;
use ha_e2e::program::{end, say};
use ha_e2e::registry::Lifetime;
use nix::sys::signal::Signal;

#[derive(Parser)]
#[command(name = "ha-sandbox", about = "A whole cluster on this machine, to try and to break")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster: by default three members of the store, three controllers and three nodes
    Up {
        /// Where data, logs and certificates go
        #[arg(long)]
        folder: PathBuf,
        /// Timing profile: Default, Fast or Conservative
        #[arg(long, default_value = "Default")]
        profile: String,
        /// Members of the store
        #[arg(long, default_value_t = 3)]
        etcd: u8,
        /// Replicas of the controller; 0: the store alone
        #[arg(long, default_value_t = 3)]
        controllers: u8,
        /// Nodes
        #[arg(long, default_value_t = 3)]
        nodes: u8,
    },
    /// End the sandbox and remove everything of it
    Down {
        /// Its folder
        #[arg(long)]
        folder: PathBuf,
    },
    /// Break or mend one machine, or list them all
    Machine {
        /// The sandbox's folder
        #[arg(long)]
        folder: PathBuf,
        /// The machine's name; without it all are listed
        name: Option<String>,
        /// What to do to it
        action: Option<Action>,
        /// For kill and so on: one of its programs instead of the whole machine
        program: Option<String>,
    },
    /// Process 1 of a machine; not for people
    #[command(hide = true)]
    Init {
        /// The list of what runs
        spec: PathBuf,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Action {
    /// Cut its power, or kill one of its programs (which is started again)
    Kill,
    /// Switch it on, with a new boot id
    PowerOn,
    /// Switch it off in order
    ShutDown,
    /// Take its network link down
    Cut,
    /// Bring its network back
    Heal,
    /// Freeze one of its programs (SIGSTOP)
    Stop,
    /// Let a frozen program go on (SIGCONT)
    Continue,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Up { folder, profile, etcd, controllers, nodes } => {
            let lifetime = Lifetime::UntilStopped;
            up(Plan { etcd, controllers, nodes, profile, lifetime, ..Plan::test(&folder) })
        }
        Command::Down { folder } => down(&folder),
        Command::Machine { folder, name: None, .. } => list(&folder),
        Command::Machine { folder, name: Some(name), action: None, .. } => show(&folder, &name),
        Command::Machine { folder, name: Some(name), action: Some(action), program } => {
            act(&folder, &name, action, program.as_deref())
        }
        Command::Init { spec } => start_init(&spec),
    };
    end("error", outcome)
}

fn up(mut plan: Plan) -> Result<()> {
    fs::create_dir_all(&plan.folder).with_context(|| plan.folder.display().to_string())?;
    plan.folder = plan.folder.canonicalize()?;
    let cluster = Cluster::start(plan)?;
    say(&format!("the sandbox runs in {}", cluster.folder().display()))
}

fn down(folder: &Path) -> Result<()> {
    let Ok(folder) = folder.canonicalize() else { return say("no sandbox runs") };
    match Cluster::open(&folder) {
        Ok(cluster) => cluster.remove()?,
        Err(error) => return say(&format!("{error:#}")),
    }
    say("the sandbox is gone")
}

fn list(folder: &Path) -> Result<()> {
    let cluster = Cluster::open(&folder.canonicalize().context("no sandbox runs; ./dev/up starts one")?)?;
    for role in [Role::Etcd, Role::Controller, Role::Node] {
        for name in cluster.names(role) {
            show_machine(&cluster, &name)?;
        }
    }
    Ok(())
}

fn show(folder: &Path, name: &str) -> Result<()> {
    show_machine(&Cluster::open(&folder.canonicalize()?)?, name)
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
    say(&format!("{name:<12} {power:<4} {:<15} {}", machine.address, programs.join(" ")))
}

fn act(folder: &Path, name: &str, action: Action, program: Option<&str>) -> Result<()> {
    let mut cluster = Cluster::open(&folder.canonicalize().context("no sandbox runs; ./dev/up starts one")?)?;
    let needed = || program.with_context(|| format!("which program of {name}? ./dev/node {name} lists them"));
    match (action, program) {
        (Action::Kill, None) => cluster.power_off(name),
        (Action::Kill, Some(program)) => cluster.machine(name)?.kill(program),
        (Action::PowerOn, _) => cluster.power_on(name),
        (Action::ShutDown, _) => cluster.shut_down(name),
        (Action::Cut, _) => cluster.cut(name),
        (Action::Heal, _) => cluster.heal(name),
        (Action::Stop, _) => cluster.machine(name)?.signal(needed()?, Signal::SIGSTOP),
        (Action::Continue, _) => cluster.machine(name)?.signal(needed()?, Signal::SIGCONT),
    }
}

fn start_init(path: &Path) -> Result<()> {
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    let spec: Spec = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    init::run(&spec)
}
