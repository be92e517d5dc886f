//! The scenario file: a cluster, steps that change or break it, and the expected outcome.

pub mod action;
pub mod condition;
mod names;
mod objects;
mod reader;
mod sections;
mod step;
#[cfg(test)]
mod tests;

pub use step::{Moment, Step, StepCommand};

use crate::duration::Duration;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::node_policy::NodePolicy;
use ha_api_types::quantity::Amounts;
use ha_api_types::record::SleepProtection;
use ha_api_types::resource::ServiceState;
use ha_api_types::timing::TimingSpec;
use ha_api_types::yaml;
use reader::Reader;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A parsed and validated scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed of the run's generator, which decides every delay and the order of simultaneous events.
    pub seed: u64,
    /// Wall-clock time of the machines when the cluster begins to form, in milliseconds since 1970.
    pub wall_ms: i128,
    /// Latest virtual time at which the run ends.
    pub duration: Duration,
    /// Time without a pending action, after the last step, until the run ends.
    pub settle: Duration,
    /// Timing of the protocol, as in `Cluster.spec.timing`.
    pub timing: TimingSpec,
    /// Machines of the cluster.
    pub nodes: Vec<Machine>,
    /// API objects, including the Cluster object.
    pub objects: Vec<Value>,
    /// Placements at time 0, by resource.
    pub initial_placements: BTreeMap<ResourceName, InitialPlacement>,
    /// Objects that a step creates by name.
    pub later: Vec<Value>,
    /// Nodes that also run an etcd member, which fails with their power and network. Empty: etcd runs outside the nodes.
    pub store: Vec<NodeName>,
    /// Steps of the scenario.
    pub steps: Vec<Step>,
    /// Expected outcome.
    pub expect: Expectations,
}

/// A machine of the cluster.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Name of the node.
    pub name: NodeName,
    /// Power state at time 0.
    pub power: Power,
    /// `true` if the machine also runs a controller.
    pub has_controller: bool,
    /// Capacity that the agent reports.
    pub capacity: Amounts,
    /// Names of the drivers that the agent provides.
    pub drivers: Vec<String>,
    /// Policy of the node; `None`: every service.
    pub policy: Option<NodePolicy>,
    /// Kind of watchdog.
    pub watchdog: Device,
    /// `true` if the machine is itself virtual, so that it could be paused together with its clock.
    pub is_virtual: bool,
    /// Sleep protection that the agent reports; `None`: the agent reports none, and the machine can be suspended.
    pub sleep: Option<SleepProtection>,
    /// Node whose boot and machine ids this machine also has, as if one image had been started twice.
    pub clone_of: Option<NodeName>,
}

/// Power state of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    /// The machine is powered on.
    #[default]
    On,
    /// The machine is powered off.
    Off,
}

/// Kind of watchdog of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// A kernel device that accepts a new timeout with each pet.
    #[default]
    Sliding,
    /// A kernel device whose timeout is fixed once it is open.
    Fixed,
    /// A simulated watchdog, which is a process.
    Simulated,
    /// A kernel device that another process holds.
    Busy,
    /// A kernel device that accepts no timeout below one minute.
    Coarse,
    /// No watchdog.
    Missing,
}

/// The placement of a service at time 0.
#[derive(Clone, Debug, Default)]
pub struct InitialPlacement {
    /// Node on which the service is placed.
    pub node: NodeName,
    /// `true` if the service already runs there.
    pub running: bool,
    /// Stored state of the service; `None`: no state is stored.
    pub state: Option<ServiceState>,
    /// Stored target of a move; `None`: no target is stored.
    pub target: Option<NodeName>,
}

/// The expected outcome. Keys that the file omits are not checked.
#[derive(Clone, Debug, Default)]
pub struct Expectations {
    /// Expected outcome of services, by name.
    pub services: BTreeMap<ResourceName, ExpectedService>,
    /// Nodes whose fencing was confirmed, as a set.
    pub fenced: Option<Vec<NodeName>>,
    /// Nodes that their watchdog reset, as a set.
    pub watchdog_resets: Option<Vec<NodeName>>,
    /// Nodes in maintenance at the end, as a set.
    pub maintenance: Option<Vec<NodeName>>,
    /// Largest number of migrations plus relocations.
    pub max_moves: Option<u64>,
    /// Sets of services that must run on one node.
    pub affinity_sets: Vec<Vec<ResourceName>>,
    /// Sets of services that must run on different nodes.
    pub anti_affinity_sets: Vec<Vec<ResourceName>>,
    /// Allowed nodes of services, by service.
    pub on_one_of: BTreeMap<ResourceName, Vec<NodeName>>,
    /// Largest number of running services on a node.
    pub max_per_node: Option<u64>,
    /// Notifications that the targets received, in order: `NodeFenced node1`, `ResourceError web,db`.
    pub notified: Option<Vec<String>>,
    /// Commands that must have been refused.
    pub refused: Option<Vec<String>>,
    /// `true` if the run must end with progress: every Started service that can run on some node runs, the status of
    /// every other service states a reason, and every node is online. Only for scripts that end every fault that they
    /// begin.
    pub requires_progress: bool,
    /// Nodes that may be off or isolated at the end; the progress check skips such a node while it is off or isolated.
    pub broken: Vec<NodeName>,
}

/// The expected outcome of a service.
#[derive(Clone, Debug, Default)]
pub struct ExpectedService {
    /// Expected state; `None`: not checked.
    pub state: Option<ServiceState>,
    /// Assigned node; `Some(None)`: no node is assigned.
    pub node: Option<Option<NodeName>>,
    /// `true` if the service must run, `false` if it must not; `None`: not checked.
    pub running: Option<bool>,
}

/// Top-level keys of a scenario file.
const SCENARIO_KEYS: [&str; 12] = [
    "seed",
    "wallClock",
    "duration",
    "settle",
    "timing",
    "nodes",
    "objects",
    "place",
    "later",
    "store",
    "steps",
    "expect",
];

impl Scenario {
    /// Parses a scenario, with all checks that are possible before a run. `name` is the file name in messages;
    /// `{file: …}` is relative to `directory`.
    ///
    /// Errors: every defect, one per line, as `FILE:LINE: PATH: defect, and the accepted values`.
    pub fn parse(name: &str, text: &str, directory: &Path) -> Result<Scenario, String> {
        Scenario::parse_with(name, text, directory, Map::new())
    }

    /// Parses a scenario whose given sections are not in the file. Fails if the file contains one of them.
    pub(crate) fn parse_with(
        name: &str,
        text: &str,
        directory: &Path,
        added_sections: Map<String, Value>,
    ) -> Result<Scenario, String> {
        let documents = yaml::documents(text)
            .map_err(|error| format!("{name}:{}: {}", error.line.unwrap_or(1), error.message))?;
        let [document] = documents.as_slice() else {
            return Err(format!("{name}:1: a scenario is one YAML document, not {}", documents.len()));
        };
        let mut reader = Reader::new(name, &document.lines);
        let mut value = document.value.clone();
        for (section, section_value) in added_sections {
            if value.get(&section).is_some() {
                reader.add_problem(&section, "is given by the dump: remove it");
            } else if let Some(sections) = value.as_object_mut() {
                sections.insert(section, section_value);
            }
        }
        let scenario = read_scenario(&mut reader, &value, directory);
        match (scenario, reader.finish()) {
            (Some(scenario), None) => Ok(scenario),
            (_, problems) => Err(problems.unwrap_or_else(|| format!("{name}:1: must be a map"))),
        }
    }
}

/// Returns the word of a sleep protection in scenario files.
pub(crate) fn sleep_keyword(protection: SleepProtection) -> &'static str {
    // The list contains every kind of protection.
    sections::SLEEP_WORDS
        .iter()
        .find(|(_, named)| *named == protection)
        .map_or("unprotected", |(word, _)| word)
}

fn read_scenario(reader: &mut Reader<'_>, value: &Value, directory: &Path) -> Option<Scenario> {
    let fields = reader.read_fields(value, "", &SCENARIO_KEYS)?;
    let empty_list = json!([]);
    let get = |name: &str| fields.get(name);
    let list = |name: &str| fields.get(name).unwrap_or(&empty_list);
    let duration = |reader: &mut Reader<'_>, name: &str, default: u64| {
        get(name).and_then(|value| reader.read_duration(value, name)).unwrap_or(Duration(default))
    };
    let mut scenario = Scenario {
        seed: get("seed").and_then(|value| reader.read_unsigned(value, "seed")).unwrap_or(1),
        wall_ms: sections::read_wall_ms(reader, get("wallClock")),
        duration: duration(reader, "duration", 7_200_000),
        settle: duration(reader, "settle", 120_000),
        timing: sections::read_timing(reader, get("timing")),
        nodes: sections::read_nodes(reader, list("nodes")),
        objects: objects::read_objects(reader, list("objects"), "objects", directory),
        initial_placements: get("place")
            .map(|value| sections::read_initial_placements(reader, value))
            .unwrap_or_default(),
        later: objects::read_objects(reader, list("later"), "later", directory),
        store: get("store").map(|value| sections::read_store(reader, value)).unwrap_or_default(),
        steps: step::read_steps(reader, list("steps")),
        expect: get("expect").map(|value| sections::read_expect(reader, value)).unwrap_or_default(),
    };
    objects::ensure_cluster_object(reader, &mut scenario, get("timing").is_some());
    names::check_names(reader, &scenario);
    Some(scenario)
}
