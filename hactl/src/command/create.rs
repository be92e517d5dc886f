//! `hactl create`: creates objects from flags, or prints them for Git.

mod driver;

use super::dry_run::{DryRun, DryRunFlag};
use super::wait::{WaitFlags, wait_until_ready};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::TypedName;
use crate::render::{self, Format};
use crate::session::Session;
use clap::{Args, Subcommand, ValueEnum};
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::validation;
use serde_json::{Map, Value, json};

/// Create an object from flags
#[derive(Args, Debug)]
#[command(
    after_help = "--dry-run=client -o yaml prints the object as a manifest, without contacting a cluster."
)]
pub(crate) struct Create {
    #[command(subcommand)]
    command: CreateCommand,
}

#[derive(Subcommand, Debug)]
enum CreateCommand {
    /// Create a resource, which keeps a service running
    Resource(Box<ResourceFlags>),
    /// Create a group of nodes with priorities
    Group(GroupFlags),
    /// Create an affinity or anti-affinity rule
    #[command(visible_alias = "affinityrule")]
    Rule(RuleFlags),
    /// Create a deleted node again
    Node(NodeFlags),
}

/// Flags of every `create`.
#[derive(Args, Debug)]
struct CommonFlags {
    #[command(flatten)]
    dry_run: DryRunFlag,
    /// Label, such as team=web; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Free-form comment
    #[arg(long)]
    comment: Option<String>,
    #[command(flatten)]
    wait: WaitFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StateFlag {
    #[value(alias = "enabled")]
    Started,
    Stopped,
    Disabled,
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StorageFlag {
    Shared,
    Replicated,
    Local,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hactl create resource vm:100 --group rack1 --max-restart 1 --max-relocate 1\n  \
    hactl create resource web --exec -- /usr/bin/python3 -m http.server 8080\n  \
    hactl create resource unit:db --unit postgresql@15-main.service --state stopped"
)]
struct ResourceFlags {
    /// NAME or TYPE:NAME; with type vm, ct or unit, no driver flag is needed
    name: String,
    /// Requested state
    #[arg(long, ignore_case = true)]
    state: Option<StateFlag>,
    /// Group of preferred nodes
    #[arg(long)]
    group: Option<String>,
    /// Maximum number of restarts on the same node after a failed start
    #[arg(long, value_name = "NUMBER")]
    max_restart: Option<u32>,
    /// Maximum number of relocations to other nodes after failed starts
    #[arg(long, value_name = "NUMBER")]
    max_relocate: Option<u32>,
    /// Do not return to a preferred node that is available again
    #[arg(long)]
    no_failback: bool,
    /// Priority; resources with a higher number are recovered first
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// CPU request, such as 2 or 500m
    #[arg(long, value_name = "QUANTITY", help_heading = "Requirements")]
    cpu: Option<String>,
    /// Memory request, such as 4Gi
    #[arg(long, value_name = "QUANTITY", help_heading = "Requirements")]
    memory: Option<String>,
    /// Disk request, such as 20Gi
    #[arg(long, value_name = "QUANTITY", help_heading = "Requirements")]
    disk: Option<String>,
    /// Storage pool of the data
    #[arg(long, value_name = "NAME", help_heading = "Requirements")]
    pool: Option<String>,
    /// Access to the storage pool
    #[arg(long, value_name = "MODE", requires = "pool", ignore_case = true, help_heading = "Requirements")]
    storage_mode: Option<StorageFlag>,
    /// WARNING: disables the protection against two running copies. The service starts elsewhere without fencing
    #[arg(long)]
    not_exclusive: bool,
    /// Dependencies: resources that start before this one
    #[arg(long, alias = "after", value_delimiter = ',', value_name = "NAME")]
    depends_on: Vec<String>,
    /// Scheduler tags
    #[arg(long = "tag", value_delimiter = ',', value_name = "TAG")]
    tags: Vec<String>,
    // These flags come before those of the driver, whose heading applies to all flags that follow.
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    driver: driver::DriverFlags,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  hactl create group mygroup1 --nodes node1:2,node2:1,node3:1,node4 --restricted"
)]
struct GroupFlags {
    /// Name of the object
    name: String,
    /// Nodes, with priorities after a colon; higher numbers are preferred
    #[arg(long, required = true, value_delimiter = ',', value_name = "NODE[:PRIORITY]")]
    nodes: Vec<String>,
    /// Restrict resources to members of the group
    #[arg(long)]
    restricted: bool,
    /// Do not return resources to a preferred node that is available again
    #[arg(long)]
    nofailback: bool,
    #[command(flatten)]
    common: CommonFlags,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hactl create rule near-data --resources web,db --nodes node1:2,node2 --strict\n  \
    hactl create rule apart --resources web1,web2 --apart"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct RuleFlags {
    /// Name of the object
    name: String,
    /// Resources of the rule
    #[arg(long, required = true, value_delimiter = ',', value_name = "NAME")]
    resources: Vec<String>,
    /// Allowed or preferred nodes
    #[arg(long, value_delimiter = ',', value_name = "NODE[:PRIORITY]", required_unless_present_any = ["together", "apart"],
        conflicts_with_all = ["together", "apart"])]
    nodes: Vec<String>,
    /// Keep the resources on the same node (affinity)
    #[arg(long, conflicts_with = "apart")]
    together: bool,
    /// Keep the resources on different nodes (anti-affinity)
    #[arg(long)]
    apart: bool,
    /// Make the rule strict
    #[arg(long, conflicts_with = "preferred")]
    strict: bool,
    /// Make the rule preferred
    #[arg(long)]
    preferred: bool,
    #[command(flatten)]
    common: CommonFlags,
}

#[derive(Args, Debug)]
#[command(
    after_help = "New nodes register without this command.\n\nExample:\n  hactl create node node4 --no-schedule"
)]
struct NodeFlags {
    /// Name of the node
    name: String,
    /// Cordon the node, so that no service is scheduled on it
    #[arg(long)]
    no_schedule: bool,
    #[command(flatten)]
    common: CommonFlags,
}

impl Create {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.command {
            CreateCommand::Resource(flags) => {
                let name = TypedName::parse(&flags.name)?;
                let spec = resource_spec(&name, flags)?;
                create_object(session, Kind::Resource, &name.name, spec, &flags.common).await
            }
            CreateCommand::Group(flags) => {
                create_object(session, Kind::Group, &flags.name, group_spec(flags)?, &flags.common).await
            }
            CreateCommand::Rule(flags) => {
                create_object(session, Kind::AffinityRule, &flags.name, rule_spec(flags)?, &flags.common)
                    .await
            }
            CreateCommand::Node(flags) => {
                create_object(session, Kind::Node, &flags.name, node_spec(flags), &flags.common).await
            }
        }
    }
}

async fn create_object(
    session: &Session,
    kind: Kind,
    name: &str,
    mut spec: Map<String, Value>,
    common: &CommonFlags,
) -> Outcome {
    let format = session.format(&[Format::Yaml, Format::Json, Format::Name])?;
    if let Some(comment) = &common.comment {
        spec.insert("comment".to_owned(), json!(comment));
    }
    let mut labels = Map::new();
    for label in &common.labels {
        let (key, value) = label
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--label: {label:?} is not KEY=VALUE")))?;
        labels.insert(key.to_owned(), json!(value));
    }
    let metadata = non_null_fields([("name", json!(name)), ("labels", null_if_empty(json!(labels)))]);
    let object = json!({"apiVersion": API_VERSION, "kind": kind.name(), "metadata": metadata, "spec": spec});
    let problems: Vec<String> = validation::problems(kind, &object).iter().map(ToString::to_string).collect();
    if !problems.is_empty() {
        return Err(Failure::usage(problems.join("\n"))
            .help("nothing was created; correct the values, then run the command again"));
    }
    let display_name = format!("{}/{name}", kind.singular());
    let result = match common.dry_run.mode.write_mode() {
        Some(write_mode) => session.client()?.create(kind, &object, write_mode).await?,
        None => object,
    };
    match format {
        Some(Format::Name) => session.terminal().print_line(&display_name),
        _ if session.print_value(format, &render::readable(&result))? => {}
        _ => session.terminal().report(&format!("{display_name} created{}", common.dry_run.mode.suffix())),
    }
    if common.wait.wait && common.dry_run.mode == DryRun::None {
        return wait_until_ready(session, &[(kind, name.to_owned())], &common.wait).await;
    }
    Ok(Exit::Done)
}

/// Returns a map of the fields that have a value; null means no value. Untyped, because a typed spec would also have
/// the defaults of all other fields.
fn non_null_fields<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns a list or map, or null if it is empty.
fn null_if_empty(value: Value) -> Value {
    let is_empty =
        value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
    if is_empty { Value::Null } else { value }
}

fn resource_spec(name: &TypedName, flags: &ResourceFlags) -> Result<Map<String, Value>, Failure> {
    let requests = non_null_fields([
        ("cpu", json!(flags.cpu)),
        ("memory", json!(flags.memory)),
        ("disk", json!(flags.disk)),
    ]);
    let mode = flags.storage_mode.map(|mode| format!("{mode:?}"));
    let storage = non_null_fields([("pool", json!(flags.pool)), ("mode", json!(mode))]);
    Ok(non_null_fields([
        ("driver", flags.driver.driver(name)?),
        ("state", json!(flags.state.map(|state| format!("{state:?}")))),
        ("group", json!(flags.group)),
        ("maxRestart", json!(flags.max_restart)),
        ("maxRelocate", json!(flags.max_relocate)),
        ("failback", json!(flags.no_failback.then_some(false))),
        ("priority", json!(flags.priority)),
        ("requests", null_if_empty(json!(requests))),
        ("storage", null_if_empty(json!(storage))),
        ("exclusive", json!(flags.not_exclusive.then_some(false))),
        ("dependsOn", null_if_empty(json!(flags.depends_on))),
        ("tags", null_if_empty(json!(flags.tags))),
    ]))
}

fn group_spec(flags: &GroupFlags) -> Result<Map<String, Value>, Failure> {
    Ok(non_null_fields([
        ("nodes", parse_nodes(&flags.nodes)?),
        ("restricted", json!(flags.restricted.then_some(true))),
        ("nofailback", json!(flags.nofailback.then_some(true))),
    ]))
}

fn rule_spec(flags: &RuleFlags) -> Result<Map<String, Value>, Failure> {
    let resources = ("resources", json!(flags.resources));
    let strict = ("strict", json!((flags.strict || flags.preferred).then_some(flags.strict)));
    Ok(if flags.together || flags.apart {
        let affinity = if flags.apart { "Negative" } else { "Positive" };
        let rule = non_null_fields([resources, ("affinity", json!(affinity)), strict]);
        non_null_fields([("resourceAffinity", json!(rule))])
    } else {
        let rule = non_null_fields([resources, ("nodes", parse_nodes(&flags.nodes)?), strict]);
        non_null_fields([("nodeAffinity", json!(rule))])
    })
}

fn node_spec(flags: &NodeFlags) -> Map<String, Value> {
    non_null_fields([("unschedulable", json!(flags.no_schedule.then_some(true)))])
}

/// Parses `node1:2,node2`.
fn parse_nodes(texts: &[String]) -> Result<Value, Failure> {
    let mut nodes = Map::new();
    for text in texts {
        let (name, priority) = text.split_once(':').unwrap_or((text, "0"));
        let priority: i64 = priority.parse().map_err(|_| {
            Failure::usage(format!("node {text:?}: {priority:?} is not a valid priority"))
                .help("specify NODE or NODE:NUMBER, such as node1:2")
        })?;
        if nodes.insert(name.to_owned(), json!(priority)).is_some() {
            return Err(Failure::usage(format!("node {name} is specified twice")));
        }
    }
    Ok(Value::Object(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use crate::command::Command;
    use clap::Parser;

    fn spec(line: &str) -> Result<Value, Failure> {
        let arguments =
            Arguments::try_parse_from(line.split(' ')).map_err(|error| Failure::usage(error.to_string()))?;
        let Command::Create(create) = arguments.command else { panic!("{line} is not a create command") };
        match create.command {
            CreateCommand::Resource(flags) => resource_spec(&TypedName::parse(&flags.name)?, &flags),
            CreateCommand::Group(flags) => group_spec(&flags),
            CreateCommand::Rule(flags) => rule_spec(&flags),
            CreateCommand::Node(flags) => Ok(node_spec(&flags)),
        }
        .map(Value::Object)
    }

    fn check(line: &str, expected: &Value) {
        assert_eq!(spec(line).unwrap_or_else(|failure| panic!("{line}: {failure:?}")), *expected, "{line}");
    }

    fn check_refused(line: &str, part: &str) {
        let failure = spec(line).expect_err(line);
        assert!(
            failure.message.contains(part) || failure.help.contains(part),
            "{failure:?} does not say {part:?}"
        );
    }

    #[test]
    fn create_flags_build_the_object() {
        check(
            "hactl create resource vm:100 --state started --group g --max-restart 1 --max-relocate 2",
            &json!({"driver": {"libvirt": {"domain": "100"}}, "state": "Started", "group": "g", "maxRestart": 1, "maxRelocate": 2}),
        );
        check(
            "hactl create resource web --env A=b --cpu 500m --memory 1Gi --exec -- sleep -x 1",
            &json!({"driver": {"exec": {"command": ["sleep", "-x", "1"], "environment": {"A": "b"}}},
                "requests": {"cpu": "500m", "memory": "1Gi"}}),
        );
        check("hactl create resource unit:db", &json!({"driver": {"systemd": {"unit": "db.service"}}}));
        check(
            "hactl create resource x --unit a@b.service --priority -3",
            &json!({"driver": {"systemd": {"unit": "a@b.service"}}, "priority": -3}),
        );
        check(
            "hactl create resource sim:x --no-failback",
            &json!({"driver": {"simulated": {}}, "failback": false}),
        );
        check(
            "hactl create resource ip --ocf heartbeat:IPaddr2 --parameter ip=10.0.0.1 --pool p --storage-mode local",
            &json!({"driver": {"ocf": {"agent": "heartbeat:IPaddr2", "parameters": {"ip": "10.0.0.1"}}},
                "storage": {"pool": "p", "mode": "Local"}}),
        );
        check(
            "hactl create group mygroup1 --nodes node1:2,node2:1,node3:1,node4 --restricted --nofailback",
            &json!({"nodes": {"node1": 2, "node2": 1, "node3": 1, "node4": 0}, "restricted": true, "nofailback": true}),
        );
        check(
            "hactl create rule r --resources a,b --apart",
            &json!({"resourceAffinity": {"resources": ["a", "b"], "affinity": "Negative"}}),
        );
        check(
            "hactl create rule r --resources a --nodes n1:2,n2 --strict",
            &json!({"nodeAffinity": {"resources": ["a"], "nodes": {"n1": 2, "n2": 0}, "strict": true}}),
        );
        check("hactl create node n4", &json!({}));
        check("hactl create node n4 --no-schedule", &json!({"unschedulable": true}));
    }

    #[test]
    fn contradictory_create_flags_are_refused() {
        check_refused("hactl create resource web", "driver");
        check_refused("hactl create resource vm:100 --unit x.service", "vm");
        check_refused("hactl create resource web --unit x.service --exec -- sleep 1", "one driver");
        check_refused("hactl create resource web --env A=b --unit x.service", "--exec");
        check_refused("hactl create group g --nodes node1:x", "priority");
        check_refused("hactl create group g --nodes a:1,a:2", "twice");
        check_refused("hactl create rule r --resources a", "--nodes");
    }
}
