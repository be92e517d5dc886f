//! A scenario file: a cluster, what happens to it, and what must come of it.

pub mod action;
pub mod condition;
mod names;
mod objects;
mod reader;
mod sections;
mod step;
#[cfg(test)]
mod tests;

pub use step::{Doing, Moment, Step};

use crate::duration::Duration;
use ha_api_types::quantity::Amounts;
use ha_api_types::record::SleepProtection;
use ha_api_types::resource::ServiceState;
use ha_api_types::timing::TimingSpec;
use ha_api_types::yaml;
use reader::Reader;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A scenario that was read and holds together.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Decides every delay and tie.
    pub seed: u64,
    /// Virtual time at which the run ends at the latest.
    pub duration: Duration,
    /// How long nothing must be pending after the last step for the run to end.
    pub settle: Duration,
    /// As in `Cluster.spec.timing`.
    pub timing: TimingSpec,
    /// The machines.
    pub nodes: Vec<Machine>,
    /// API objects; the Cluster is among them.
    pub objects: Vec<Value>,
    /// Where services lie at time 0, by resource.
    pub place: BTreeMap<String, Place>,
    /// Objects that a step adds by name.
    pub later: Vec<Value>,
    /// Nodes with a member of the store each, which shares their power and network; empty: the store is outside.
    pub store: Vec<String>,
    /// What happens.
    pub steps: Vec<Step>,
    /// What must come of it.
    pub expect: Expectations,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Whether it is on at time 0.
    pub power: Power,
    /// Whether a controller runs here too.
    pub controller: bool,
    /// What it has.
    pub capacity: Amounts,
    /// Drivers that it can serve.
    pub drivers: Vec<String>,
    /// Its watchdog.
    pub watchdog: Device,
    /// It is itself virtual, so that it could be paused with its clock.
    pub is_virtual: bool,
    /// What keeps it awake, as its agent says; `None`: the agent does not say, and it may sleep.
    pub sleep: Option<SleepProtection>,
    /// Another node whose ids it has: an image that was started twice.
    pub clone_of: Option<String>,
}

/// On or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    /// On.
    #[default]
    On,
    /// Off.
    Off,
}

/// What kind of watchdog a machine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// A kernel device that takes a new timeout with each pet.
    #[default]
    Sliding,
    /// A kernel device whose timeout is fixed once it is open.
    Fixed,
    /// A process that plays one.
    StandIn,
    /// A kernel device that another process holds.
    Busy,
    /// A kernel device that takes no timeout shorter than a minute.
    Coarse,
    /// None.
    Missing,
}

/// Where a service lies at time 0.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The node.
    pub node: String,
    /// Whether it already runs there.
    pub running: bool,
    /// A stored state.
    pub state: Option<ServiceState>,
    /// A stored target.
    pub target: Option<String>,
}

/// What must come of it; a missing key is not checked.
#[derive(Clone, Debug, Default)]
pub struct Expectations {
    /// Services by name.
    pub services: BTreeMap<String, ExpectedService>,
    /// Nodes whose fencing was acknowledged, as a set.
    pub fenced: Option<Vec<String>>,
    /// Nodes that their watchdog reset, as a set.
    pub watchdog_resets: Option<Vec<String>>,
    /// Nodes in maintenance at the end.
    pub maintenance: Option<Vec<String>>,
    /// Migrations plus relocations.
    pub max_moves: Option<u64>,
    /// Sets on one node.
    pub together: Vec<Vec<String>>,
    /// Sets on different nodes.
    pub apart: Vec<Vec<String>>,
    /// Services on one of these nodes.
    pub on_one_of: BTreeMap<String, Vec<String>>,
    /// Running services on a node, at most.
    pub max_per_node: Option<u64>,
    /// What the targets of notifications got, in order: `NodeFenced node1`, `ResourceError web,db`.
    pub notified: Option<Vec<String>>,
    /// Commands that must have been refused.
    pub refused: Option<Vec<String>>,
    /// Once everything has settled, every Started service that can run somewhere runs, every one that cannot says why, and
    /// every node is back. For scripts that end every fault that they begin.
    pub progress: bool,
    /// Nodes that stay broken to the end, as far as they are off or cut off then: the check of progress leaves them out.
    pub broken: Vec<String>,
}

/// What must come of a service.
#[derive(Clone, Debug, Default)]
pub struct ExpectedService {
    /// Its state.
    pub state: Option<ServiceState>,
    /// Its node; `Some(None)`: it has none.
    pub node: Option<Option<String>>,
    /// Whether it runs.
    pub running: Option<bool>,
}

/// The keys of a scenario.
const KEYS: [&str; 11] = [
    "seed", "duration", "settle", "timing", "nodes", "objects", "place", "later", "store", "steps", "expect",
];

impl Scenario {
    /// Reads a scenario and checks all that can be checked before it runs. `name` is the file, for messages; `{file: …}` is
    /// looked for from `folder`.
    ///
    /// Errors: everything that is wrong, one line each, as `FILE:LINE: PATH: what, and what is accepted`.
    pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Scenario, String> {
        let documents = yaml::documents(text)
            .map_err(|error| format!("{name}:{}: {}", error.line.unwrap_or(1), error.message))?;
        let [document] = documents.as_slice() else {
            return Err(format!("{name}:1: a scenario is one YAML document, not {}", documents.len()));
        };
        let mut reader = Reader::new(name, &document.lines);
        let scenario = read(&mut reader, &document.value, folder);
        match (scenario, reader.finish()) {
            (Some(scenario), None) => Ok(scenario),
            (_, problems) => Err(problems.unwrap_or_else(|| format!("{name}:1: must be a map"))),
        }
    }
}

fn read(reader: &mut Reader<'_>, value: &Value, folder: &Path) -> Option<Scenario> {
    let fields = reader.fields(value, "", &KEYS)?;
    let nothing = json!([]);
    let get = |name: &str| fields.get(name);
    let list = |name: &str| fields.get(name).unwrap_or(&nothing);
    let duration = |reader: &mut Reader<'_>, name: &str, default: u64| {
        get(name).and_then(|value| reader.duration(value, name)).unwrap_or(Duration(default))
    };
    let mut scenario = Scenario {
        seed: get("seed").and_then(|value| reader.whole(value, "seed")).unwrap_or(1),
        duration: duration(reader, "duration", 7_200_000),
        settle: duration(reader, "settle", 120_000),
        timing: sections::timing(reader, get("timing")),
        nodes: sections::nodes(reader, list("nodes")),
        objects: objects::read(reader, list("objects"), "objects", folder),
        place: get("place").map(|value| sections::place(reader, value)).unwrap_or_default(),
        later: objects::read(reader, list("later"), "later", folder),
        store: get("store").map(|value| sections::store(reader, value)).unwrap_or_default(),
        steps: step::read(reader, list("steps")),
        expect: get("expect").map(|value| sections::expect(reader, value)).unwrap_or_default(),
    };
    objects::settle_cluster(reader, &mut scenario, get("timing").is_some());
    names::check(reader, &scenario);
    Some(scenario)
}
