//! The commands of hactl, one module each.

mod allocate;
mod api_resources;
mod apply;
mod auth;
mod backup;
pub(crate) mod balance;
mod capacity;
mod check;
mod cluster_info;
mod completion;
mod config;
mod convert;
mod create;
mod delete;
mod describe;
mod diff;
mod disarm;
mod doctor;
mod drain;
mod dry_run;
mod edit;
mod evacuate;
mod events;
mod explain;
mod get;
mod group;
pub(crate) mod htools;
mod import;
mod in_place;
mod init;
mod label;
mod logs;
mod node;
mod notify;
mod operate;
mod patch;
mod pki;
mod restore;
mod set;
mod simulate;
mod status;
mod stop_first;
mod store;
mod support;
mod sync;
mod timing;
mod token;
pub(crate) mod top;
mod trace;
mod version;
mod wait;
mod why;

use crate::failure::{Exit, Failure, Outcome};
use crate::names::Target;
use crate::session::Session;
use clap::Subcommand;
use ha_api_types::kind::Kind;

/// The commands of hactl.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Show the cluster: etcd, leader, agents, services and problems
    Status(status::Status),
    /// List objects
    Get(get::Get),
    /// Show an object with its conditions and events
    Describe(describe::Describe),
    /// Explain why each node is or is not eligible for a resource
    Why(why::Why),
    /// Show measured resource usage of nodes or services
    Top(top::Top),
    /// List events with their reasons
    Events(events::Events),
    /// Print the log of a service from its driver
    Logs(logs::Logs),
    /// Trace an operation or action across controllers and agents
    Trace(trace::Trace),
    /// Create or update objects from files
    Apply(apply::Apply),
    /// Show what an apply would change, and which services it would affect
    Diff(diff::Diff),
    /// Apply the objects of a Git repository at regular intervals
    Sync(sync::Sync),
    /// Convert files to the current field names
    Convert(convert::Convert),
    /// Create an object from flags
    Create(create::Create),
    /// Edit an object
    Edit(edit::Edit),
    /// Plan and apply moves that balance the load of the nodes
    Balance(balance::Balance),
    /// Check node groups and plan moves between them
    Group(group::Group),
    /// Rank node groups and nodes for a new service
    Allocate(allocate::Allocate),
    /// Plan the move of all services away from nodes
    Evacuate(evacuate::Evacuate),
    /// Compute how many more services of a given size fit
    Capacity(capacity::Capacity),
    /// Set fields in the spec of an object
    Set(set::Set),
    /// Set or remove labels of objects
    Label(label::Label),
    /// Set or remove annotations of objects
    Annotate(label::Annotate),
    /// Change fields of an object with a merge patch or a JSON patch
    Patch(patch::Patch),
    /// Delete objects; services keep running unless --stop is given
    Delete(delete::Delete),
    /// Start a service and set its requested state to Started
    Start(operate::Start),
    /// Stop a service and set its requested state to Stopped
    Stop(operate::Stop),
    /// Stop a service and start it on the same node
    Restart(operate::Restart),
    /// Migrate a service to a node, live if its driver supports it
    #[command(visible_alias = "move")]
    Migrate(operate::Migrate),
    /// Relocate a service: stop it, then start it on another node
    Relocate(operate::Relocate),
    /// Replace the secondary node of a running replicated service
    ReplaceSecondary(operate::ReplaceSecondary),
    /// Clear the Error state of a resource
    #[command(visible_alias = "cleanup")]
    ClearError(operate::ClearError),
    /// Manage nodes: maintenance, watchdog tests, fencing
    Node(node::Node),
    /// Block new placements on nodes; their services keep running
    Cordon(drain::Cordon),
    /// Allow placements on nodes again; ends their maintenance
    Uncordon(drain::Uncordon),
    /// Enable maintenance of nodes and wait until they are empty
    Drain(drain::Drain),
    /// Test notification targets
    Notify(notify::Notify),
    /// Suspend watchdogs and fencing for work on etcd or the network
    #[command(visible_alias = "maintenance-mode")]
    Disarm(disarm::Disarm),
    /// Resume watchdogs and fencing after a disarm
    Arm(disarm::Arm),
    /// Wait for a condition of objects
    Wait(wait::Wait),
    /// Describe a kind, a field or a resource agent
    Explain(explain::Explain),
    /// Simulate a cluster from a scenario file
    Simulate(simulate::Simulate),
    /// Check the health of a node or the cluster and suggest fixes
    Doctor(doctor::Doctor),
    /// Check failover capacity (N+1)
    Check(check::Check),
    /// Compute the worst-case failover time of each node
    Timing(timing::Timing),
    /// Convert the configuration of another cluster manager to objects
    Import(import::Import),
    /// Generate the initial configuration of this host
    Init(init::Init),
    /// Save and verify a backup of etcd
    Backup(backup::Backup),
    /// Prepare an etcd backup for the restore of a cluster
    Restore(restore::Restore),
    /// Collect diagnostic information for support
    Support(support::Support),
    /// Set up and verify the users and permissions of etcd
    Store(store::StoreCommand),
    /// Issue, renew and revoke the certificates of a cluster
    Pki(pki::Pki),
    /// Manage the tokens that controllers accept, in a file on each controller
    Token(token::TokenCommand),
    /// Manage contexts, the connection settings of clusters
    Config(config::Config),
    /// List the global options
    Options,
    /// Show the versions of hactl and the controller
    Version(version::Version),
    /// Show the addresses of the controllers and etcd members
    ClusterInfo(cluster_info::ClusterInfo),
    /// List the kinds that the API serves
    ApiResources(api_resources::ApiResources),
    /// Check permissions
    Auth(auth::Auth),
    /// Print the completion script for a shell
    Completion(completion::Completion),
    /// Write man pages and completion scripts to a directory, for packages
    #[command(hide = true)]
    Generate(completion::Generate),
}

pub(crate) async fn run(session: &Session, command: Command) -> Outcome {
    match command {
        Command::Status(status) => status.run(session).await,
        Command::Get(get) => get.run(session).await,
        Command::Describe(describe) => describe.run(session).await,
        Command::Why(command) => command.run(session).await,
        Command::Top(top) => top.run(session).await,
        Command::Events(events) => events.run(session).await,
        Command::Logs(logs) => logs.run(session).await,
        Command::Trace(trace) => trace.run(session).await,
        Command::Apply(apply) => apply.run(session).await,
        Command::Diff(diff) => diff.run(session).await,
        Command::Sync(sync) => sync.run(session).await,
        Command::Create(create) => create.run(session).await,
        Command::Edit(edit) => edit.run(session).await,
        Command::Balance(balance) => balance.run(session).await,
        Command::Group(group) => group.run(session).await,
        Command::Allocate(allocate) => allocate.run(session).await,
        Command::Evacuate(evacuate) => evacuate.run(session).await,
        Command::Capacity(capacity) => capacity.run(session).await,
        Command::Set(set) => set.run(session).await,
        Command::Label(label) => label.run(session).await,
        Command::Annotate(annotate) => annotate.run(session).await,
        Command::Patch(patch) => patch.run(session).await,
        Command::Delete(delete) => delete.run(session).await,
        Command::Start(start) => start.run(session).await,
        Command::Stop(stop) => stop.run(session).await,
        Command::Restart(restart) => restart.run(session).await,
        Command::Migrate(migrate) => migrate.run(session).await,
        Command::Relocate(relocate) => relocate.run(session).await,
        Command::ReplaceSecondary(replace) => replace.run(session).await,
        Command::ClearError(clear_error) => clear_error.run(session).await,
        Command::Node(node) => node.run(session).await,
        Command::Cordon(cordon) => cordon.run(session).await,
        Command::Uncordon(uncordon) => uncordon.run(session).await,
        Command::Drain(drain) => drain.run(session).await,
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
        Command::Init(init) => init.run(session).await,
        Command::Backup(backup) => backup.run(session).await,
        Command::Restore(restore) => restore.run(session).await,
        Command::Support(support) => support.run(session).await,
        Command::Convert(convert) => convert.run(session),
        Command::Store(store) => store.run(session).await,
        Command::Pki(pki) => pki.run(session).await,
        Command::Token(token) => token.run(session),
        Command::Config(config) => config.run(session),
        Command::Options => {
            session.terminal().print(&crate::help::options());
            Ok(Exit::Done)
        }
        Command::Version(version) => version.run(session).await,
        Command::ClusterInfo(info) => info.run(session).await,
        Command::ApiResources(resources) => resources.run(session).await,
        Command::Auth(auth) => auth.run(session).await,
        Command::Completion(completion) => Ok(completion.run(session)),
        Command::Generate(generate) => generate.run(),
    }
}

/// Parses a resource given as `name`, `type:name` or `resource/name`, for commands that accept only resources.
fn parse_resource(text: &str) -> Result<Target, Failure> {
    parse_target_of_kind(Kind::Resource, text, "specify NAME or TYPE:NAME, such as web or vm:100")
}

/// Parses a node given as `name` or `node/name`, for commands that accept only nodes.
fn parse_node(text: &str) -> Result<Target, Failure> {
    let text = if text.contains('/') { text.to_owned() } else { format!("node/{text}") };
    parse_target_of_kind(Kind::Node, &text, "specify the NAME of the node")
}

fn parse_target_of_kind(kind: Kind, text: &str, help: &str) -> Result<Target, Failure> {
    let target = Target::parse(text)?;
    if target.kind == kind {
        Ok(target)
    } else {
        Err(Failure::usage(format!("{} is not a {}", target.display_name(), kind.singular())).help(help))
    }
}
