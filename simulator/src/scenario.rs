//! A scenario file: a cluster, what happens to it, and what must come of it.

pub mod action;
pub mod condition;

use crate::duration::Duration;
use action::Action;
use condition::Condition;
use ha_api_types::quantity::Amounts;
use ha_api_types::resource::ServiceState;
use ha_api_types::timing::TimingSpec;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// A scenario as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// Decides every delay and tie.
    #[serde(default = "one")]
    pub seed: u64,
    /// Virtual time at which the run ends at the latest.
    #[serde(default = "two_hours")]
    pub duration: Duration,
    /// How long nothing must be pending after the last step for the run to end.
    #[serde(default = "two_minutes")]
    pub settle: Duration,
    /// As in `Cluster.spec.timing`.
    #[serde(default)]
    pub timing: TimingSpec,
    /// The machines.
    pub nodes: Vec<Machine>,
    /// API objects, inline or `{file: …}`.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// Where services lie at time 0.
    #[serde(default)]
    pub place: BTreeMap<String, Place>,
    /// Objects that a step adds by name.
    #[serde(default)]
    pub later: Vec<Value>,
    /// Where the store's members live; absent: outside.
    #[serde(default)]
    pub store: Option<StorePlace>,
    /// What happens.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// What must come of it.
    #[serde(default)]
    pub expect: Expectations,
}

/// A machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Whether it is on at time 0.
    #[serde(default)]
    pub power: Power,
    /// Whether a controller runs here too.
    #[serde(default = "yes")]
    pub controller: bool,
    /// What it has.
    #[serde(default)]
    pub capacity: Amounts,
}

/// On or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// On.
    #[default]
    On,
    /// Off.
    Off,
}

/// Where a service lies at time 0.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
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

/// Where the store's members live.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StorePlace {
    /// One member on each of these nodes; they share its power and network.
    pub on: Vec<String>,
}

/// A step: when, and what is done or checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// At this time.
    #[serde(default)]
    pub at: Option<Duration>,
    /// So long after the previous step.
    #[serde(default)]
    pub after: Option<Duration>,
    /// As soon as this becomes true.
    #[serde(default)]
    pub when: Option<String>,
    /// How long `when` may take.
    #[serde(default)]
    pub within: Option<Duration>,
    /// What is done.
    #[serde(rename = "do", default)]
    pub actions: Option<Value>,
    /// What must hold then.
    #[serde(default)]
    pub check: Option<String>,
}

/// What must come of it; a missing key is not checked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
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
    pub max_moves: Option<usize>,
    /// Sets on one node.
    pub together: Vec<Vec<String>>,
    /// Sets on different nodes.
    pub apart: Vec<Vec<String>>,
    /// Services on one of these nodes.
    pub on_one_of: BTreeMap<String, Vec<String>>,
    /// Running services on a node, at most.
    pub max_per_node: Option<usize>,
    /// Commands that must have been refused.
    pub refused: Option<Vec<String>>,
}

/// What must come of a service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExpectedService {
    /// Its state.
    pub state: Option<ServiceState>,
    /// Its node.
    pub node: Option<String>,
    /// Whether it runs.
    pub running: Option<bool>,
}

fn one() -> u64 {
    1
}
fn two_hours() -> Duration {
    Duration(7_200_000)
}
fn two_minutes() -> Duration {
    Duration(120_000)
}
fn yes() -> bool {
    true
}

/// What a step does, read.
#[derive(Clone, Debug, PartialEq)]
pub enum Doing {
    /// A verb, with its text word for word.
    Verb(String, Action),
    /// An object is applied.
    Apply(Value),
}

/// When a step happens, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At this time.
    At(Duration),
    /// So long after the previous step.
    After(Duration),
    /// When this becomes true, within so long.
    When(Condition, Duration),
}

impl Step {
    /// When it happens: exactly one of `at`, `after` and `when`; none: right after the previous step.
    pub fn moment(&self) -> Result<Moment, String> {
        match (&self.at, &self.after, &self.when) {
            (Some(at), None, None) => Ok(Moment::At(*at)),
            (None, Some(after), None) => Ok(Moment::After(*after)),
            (None, None, Some(text)) => {
                Ok(Moment::When(Condition::parse(text)?, self.within.unwrap_or(Duration(600_000))))
            }
            (None, None, None) => Ok(Moment::After(Duration(0))),
            _ => Err("a step has one of at, after and when".to_owned()),
        }
    }

    /// What it does.
    pub fn doings(&self) -> Result<Vec<Doing>, String> {
        let items = match &self.actions {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items.clone(),
            Some(one) => vec![one.clone()],
        };
        items
            .into_iter()
            .map(|item| match item {
                Value::String(text) => Action::parse(&text).map(|action| Doing::Verb(text, action)),
                Value::Object(mut map) if map.len() == 1 => match map.remove("apply") {
                    Some(object) => Ok(Doing::Apply(object)),
                    None => Err("an object under `do` must be {apply: …}".to_owned()),
                },
                other @ (Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_)) => Err(format!("{other} is not an action")),
            })
            .collect()
    }

    /// What must hold then.
    pub fn checked(&self) -> Result<Option<Condition>, String> {
        self.check.as_deref().map(Condition::parse).transpose()
    }
}

impl Scenario {
    /// Reads a scenario and checks all that can be checked before it runs. `name` is the file, for messages.
    pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Scenario, String> {
        let mut scenario: Scenario =
            serde_yaml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        if scenario.nodes.is_empty() {
            return Err(format!("{name}: nodes: at least one is needed"));
        }
        for (at, step) in scenario.steps.iter().enumerate() {
            let place = |problem: String| format!("{name}: steps[{at}]: {problem}");
            step.moment().map_err(place)?;
            step.doings().map_err(|problem| format!("{name}: steps[{at}]: {problem}"))?;
            step.checked().map_err(|problem| format!("{name}: steps[{at}]: {problem}"))?;
        }
        scenario.objects = with_files(name, &scenario.objects, folder)?;
        scenario.later = with_files(name, &scenario.later, folder)?;
        Ok(scenario)
    }
}

/// Replaces `{file: …}` by the documents of the file.
fn with_files(name: &str, objects: &[Value], folder: &Path) -> Result<Vec<Value>, String> {
    let mut found = Vec::new();
    for object in objects {
        match object.get("file").and_then(Value::as_str) {
            None => found.push(object.clone()),
            Some(file) => {
                let path = folder.join(file);
                let text = std::fs::read_to_string(&path)
                    .map_err(|error| format!("{name}: objects: {}: {error}", path.display()))?;
                let documents: Vec<Value> = serde_yaml::from_multiple(&text)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                found.extend(documents.into_iter().filter(|document| !document.is_null()));
            }
        }
    }
    Ok(found)
}
