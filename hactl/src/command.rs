//! The commands of hactl, one module each.

mod allocate;
mod apply;
pub(crate) mod balance;
mod capacity;
mod check;
mod completion;
mod config;
mod create;
mod delete;
mod describe;
mod diff;
mod disarm;
mod doctor;
mod edit;
mod evacuate;
mod events;
mod explain;
mod get;
mod group;
mod import;
mod in_place;
mod init;
mod node;
mod notify;
mod operate;
mod restore;
mod set;
mod simulate;
mod status;
mod stop_first;
mod support;
mod timing;
pub(crate) mod top;
mod trace;
mod version;
mod wait;
mod why;

use crate::failure::{Failure, Outcome};
use crate::names::Target;
use crate::session::Session;
use clap::Subcommand;
use ha_api_types::kind::Kind;

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Show the cluster on one screen: store, leader, agents, services, and what is wrong
    Status(status::Status),
    /// Show objects
    Get(get::Get),
    /// Show an object in full, with its conditions and what happened to it
    Describe(describe::Describe),
    /// Say why a service is where it is: per node whether it may run there, or what speaks against it
    Why(why::Why),
    /// Show what nodes or services use, as measured
    Top(top::Top),
    /// Show what happened and why
    Events(events::Events),
    /// Follow one operation or action over controllers and agents
    Trace(trace::Trace),
    /// Make the cluster as the files say
    Apply(apply::Apply),
    /// Show what an apply would change, and what would start, stop or move
    Diff(diff::Diff),
    /// Create an object from flags
    Create(create::Create),
    /// Edit an object
    Edit(edit::Edit),
    /// Plan moves that balance the cluster, or one read from a file, and carry them out
    Balance(balance::Balance),
    /// Node groups: which are healthy, and moves between them
    Group(group::Group),
    /// Rank all groups and nodes for a new service, with reasons
    Allocate(allocate::Allocate),
    /// Plan new places for all that lives on some nodes
    Evacuate(evacuate::Evacuate),
    /// Count how many more services of a size fit
    Capacity(capacity::Capacity),
    /// Set fields of an object's spec
    Set(set::Set),
    /// Delete objects; a service itself is left as it is unless --stop is given
    Delete(delete::Delete),
    /// Start a service: its requested state becomes Started
    Start(operate::Start),
    /// Stop a service: its requested state becomes Stopped
    Stop(operate::Stop),
    /// Stop a service and start it in place
    Restart(operate::Restart),
    /// Move a service to a node, live if its driver can
    Migrate(operate::Migrate),
    /// Move a service to a node by stopping and starting it
    Relocate(operate::Relocate),
    /// Replace the secondary of a replicated service that runs
    ReplaceSecondary(operate::ReplaceSecondary),
    /// Let a service leave Error
    ClearError(operate::ClearError),
    /// Nodes: list, maintenance, a shutdown that waits, confirming that one is off
    Node(node::Node),
    /// Who is notified of fences and errors: try it
    Notify(notify::Notify),
    /// Disarm the cluster for work on the store or the network: no watchdog stays armed, nobody is declared dead
    Disarm(disarm::Disarm),
    /// Arm the cluster again
    Arm(disarm::Arm),
    /// Wait until objects are as described
    Wait(wait::Wait),
    /// Say what a kind or field means; needs no cluster
    Explain(explain::Explain),
    /// Run a whole cluster under a virtual clock, as a scenario file says; needs no cluster
    Simulate(simulate::Simulate),
    /// Examine a node, or the cluster: each check, what was seen, and the line that mends it
    Doctor(doctor::Doctor),
    /// Check whether every service would find a place if nodes failed now
    Check(check::Check),
    /// Show how long a failover takes at worst, part by part, for the settings in force and each node
    Timing(timing::Timing),
    /// Write objects from the configuration of another cluster manager; needs no cluster
    Import(import::Import),
    /// Write the first configuration of a machine: controller, node, command line; by flags, or by asking
    Init(init::Init),
    /// Prepare a backup of etcd for a cluster that has lost its store; needs no cluster
    Restore(restore::Restore),
    /// Gather what somebody needs who is to find out what happened
    Support(support::Support),
    /// The clusters that hactl knows
    Config(config::Config),
    /// Show the versions of hactl and of the controller
    Version(version::Version),
    /// Print a shell's completion script
    Completion(completion::Completion),
    /// Write man pages and completion scripts into a folder, for packages
    #[command(hide = true)]
    Generate(completion::Generate),
}

pub(crate) async fn run(session: &Session, command: Command) -> Outcome {
    match command {
        Command::Status(status) => status.run(session).await,
        Command::Get(get) => get.run(session).await,
        Command::Describe(describe) => describe.run(session).await,
        Command::Why(why) => why.run(session).await,
        Command::Top(top) => top.run(session).await,
        Command::Events(events) => events.run(session).await,
        Command::Trace(trace) => trace.run(session).await,
        Command::Apply(apply) => apply.run(session).await,
        Command::Diff(diff) => diff.run(session).await,
        Command::Create(create) => create.run(session).await,
        Command::Edit(edit) => edit.run(session).await,
        Command::Balance(balance) => balance.run(session).await,
        Command::Group(group) => group.run(session).await,
        Command::Allocate(allocate) => allocate.run(session).await,
        Command::Evacuate(evacuate) => evacuate.run(session).await,
        Command::Capacity(capacity) => capacity.run(session).await,
        Command::Set(set) => set.run(session).await,
        Command::Delete(delete) => delete.run(session).await,
        Command::Start(start) => start.run(session).await,
        Command::Stop(stop) => stop.run(session).await,
        Command::Restart(restart) => restart.run(session).await,
        Command::Migrate(migrate) => migrate.run(session).await,
        Command::Relocate(relocate) => relocate.run(session).await,
        Command::ReplaceSecondary(replace) => replace.run(session).await,
        Command::ClearError(clear_error) => clear_error.run(session).await,
        Command::Node(node) => node.run(session).await,
        Command::Notify(notify) => notify.run(session).await,
        Command::Disarm(disarm) => disarm.run(session).await,
        Command::Arm(arm) => arm.run(session).await,
        Command::Wait(wait) => wait.run(session).await,
        Command::Explain(explain) => explain.run(session).await,
        Command::Simulate(simulate) => simulate.run(session),
        Command::Doctor(doctor) => doctor.run(session).await,
        Command::Check(check) => check.run(session).await,
        Command::Timing(timing) => timing.run(session).await,
        Command::Import(import) => import.run(session),
        Command::Init(init) => init.run(session),
        Command::Restore(restore) => restore.run(session).await,
        Command::Support(support) => support.run(session).await,
        Command::Config(config) => config.run(session),
        Command::Version(version) => version.run(session).await,
        Command::Completion(completion) => Ok(completion.run(session)),
        Command::Generate(generate) => generate.run(),
    }
}

/// Parses a resource given as `name`, `type:name` or `resource/name`, for commands that accept only resources.
fn resource(text: &str) -> Result<Target, Failure> {
    of_kind(Kind::Resource, text, "write NAME or TYPE:NAME, as web or vm:100")
}

/// Parses a node given as `name` or `node/name`, for commands that accept only nodes.
fn node(text: &str) -> Result<Target, Failure> {
    let text = if text.contains('/') { text.to_owned() } else { format!("node/{text}") };
    of_kind(Kind::Node, &text, "write the node's NAME")
}

fn of_kind(kind: Kind, text: &str, help: &str) -> Result<Target, Failure> {
    let target = Target::parse(text)?;
    if target.kind == kind {
        Ok(target)
    } else {
        Err(Failure::usage(format!("{} is not a {}", target.shown(), kind.singular())).help(help))
    }
}
