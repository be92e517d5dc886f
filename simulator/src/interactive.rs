//! A simulation that its user changes while it runs, and that can be saved as a scenario.

use crate::dump::Dump;
use crate::scenario::{Scenario, Step};
use crate::world::World;
use ha_api_types::keys::Keys;
use ha_api_types::time::{Millis, Timestamp};
use ha_api_types::yaml;
use ha_store::{Outcome, Transaction, Write};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The cluster at time 0.
#[derive(Debug)]
pub enum Beginning {
    /// The cluster that the scenario describes.
    Scenario,
    /// The cluster of a support dump. The scenario has only steps.
    Dump(Box<Dump>),
}

/// A simulated cluster with the steps of all actions of its user.
///
/// Guarantees: a run of the saved scenario ([`Simulation::scenario`]) ends in the same state.
#[derive(Debug)]
pub struct Simulation {
    world: World,
    beginning: Beginning,
    /// Name of the scenario in messages.
    name: String,
    /// Directory to which paths in the scenario are relative.
    directory: PathBuf,
    /// The scenario, with the steps so far and those that a replay will repeat.
    document: Map<String, Value>,
}

/// Sections that describe the end of a run.
const END_SECTIONS: [&str; 3] = ["duration", "settle", "expect"];

impl Simulation {
    /// Begins at time 0 of a scenario. Its expectations are ignored. Unless the scenario sets the wall-clock time, the cluster
    /// begins to form at `wall_clock`.
    ///
    /// Errors: the scenario is invalid.
    pub fn new(
        beginning: Beginning,
        name: &str,
        text: &str,
        directory: PathBuf,
        wall_clock: &Timestamp,
    ) -> Result<Simulation, String> {
        let documents = yaml::documents(if text.trim().is_empty() { "{}" } else { text })
            .map_err(|error| format!("{name}:{}: {}", error.line.unwrap_or(1), error.message))?;
        let document = match documents.as_slice() {
            [document] => document.value.as_object().cloned(),
            _ => None,
        };
        let mut document =
            document.ok_or_else(|| format!("{name}:1: a scenario is one YAML document with a map"))?;
        // The first parse names lines of the text.
        parse(&beginning, name, text, &directory)?;
        if matches!(beginning, Beginning::Scenario) {
            document.entry("wallClock").or_insert_with(|| json!(wall_clock));
        }
        document.retain(|section, _| !END_SECTIONS.contains(&section.as_str()));
        let world = new_world(&beginning, name, &document, &directory)?;
        Ok(Simulation { world, beginning, name: name.to_owned(), directory, document })
    }

    /// Returns the simulated cluster.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns the time since time 0, in milliseconds.
    pub fn elapsed_ms(&self) -> Millis {
        self.world.simulated_ms()
    }

    /// Returns the time of the next event; `None` if there is none.
    pub fn next_event_ms(&self) -> Option<Millis> {
        self.world.next_event_ms()
    }

    /// Handles all events until a time, while the caller wants to continue. Returns `true` if the time was reached.
    pub fn run_until(&mut self, elapsed_ms: Millis, may_continue: impl FnMut() -> bool) -> bool {
        self.world.run_until(elapsed_ms.max(self.elapsed_ms()), may_continue)
    }

    /// Returns the steps: those so far, and after [`Simulation::go_to`] also those that the simulation will repeat. Each has
    /// the form of a scenario file.
    pub fn steps(&self) -> &[Value] {
        self.document.get("steps").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of executed steps.
    pub fn executed_steps(&self) -> usize {
        self.world.executed_steps()
    }

    /// Executes an action of a scenario file, such as `power node1 off`. Steps that remain are discarded.
    ///
    /// Errors: the action is invalid, or the world refuses it. An invalid action leaves no step.
    pub fn play(&mut self, action: &Value) -> Result<(), String> {
        let (document, step) = self.with_step(action)?;
        self.document = document;
        self.world.play(step)
    }

    /// Commits a transaction of the API, as a step. Steps that remain are discarded if the transaction is applied.
    pub fn commit(&mut self, keys: &Keys, transaction: Transaction) -> Outcome {
        let mut values = Map::new();
        for (key, write) in transaction.writes() {
            let Some(relative) = key.strip_prefix(keys.root()) else {
                return Outcome::Refused(format!("{key} is not a key of the simulated cluster"));
            };
            let value = match write {
                Write::Delete => Value::Null,
                Write::Put { value, .. } => match serde_json::from_slice(value) {
                    Ok(value) => value,
                    Err(error) => return Outcome::Refused(format!("{key}: {error}")),
                },
            };
            values.insert(relative.to_owned(), value);
        }
        match self.with_step(&json!({"write": values})) {
            Err(message) => Outcome::Refused(message),
            Ok((document, step)) => {
                let outcome = self.world.play_commit(step, transaction);
                if outcome.applied().is_some() {
                    self.document = document;
                }
                outcome
            }
        }
    }

    /// Continues at another time: an earlier time repeats the steps until then.
    ///
    /// Errors: the steps cannot be repeated.
    pub fn go_to(&mut self, elapsed_ms: Millis) -> Result<(), String> {
        if elapsed_ms < self.elapsed_ms() {
            self.world = new_world(&self.beginning, &self.name, &self.document, &self.directory)?;
        }
        self.run_until(elapsed_ms, || true);
        Ok(())
    }

    /// Returns the scenario until now as YAML. `hactl simulate` runs it, and checks that every service ends where it is now.
    ///
    /// Errors: the scenario cannot be written as YAML.
    pub fn scenario(&self) -> Result<String, String> {
        let mut document = self.document.clone();
        let executed: Vec<Value> = self.steps().iter().take(self.executed_steps()).cloned().collect();
        document.insert("steps".to_owned(), Value::Array(executed));
        // The run ends at this time, even if nothing is pending.
        let end = format!("{}ms", self.elapsed_ms());
        document.insert("duration".to_owned(), json!(end));
        document.insert("settle".to_owned(), json!(end));
        let summary = self.world.summary();
        let services: Map<String, Value> = summary["services"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, service)| {
                let is_running = service["running"].as_array().is_some_and(|nodes| !nodes.is_empty());
                let expected =
                    json!({"state": service["state"], "node": service["node"], "running": is_running});
                (name.clone(), expected)
            })
            .collect();
        document.insert("expect".to_owned(), json!({"services": services}));
        yaml::to_text(&Value::Object(document)).map_err(|error| error.message)
    }

    /// Returns the scenario with a further step after those that were executed, and that step.
    fn with_step(&self, action: &Value) -> Result<(Map<String, Value>, Step), String> {
        let executed = self.executed_steps();
        let mut steps: Vec<Value> = self.steps().iter().take(executed).cloned().collect();
        steps.push(json!({"at": format!("{}ms", self.elapsed_ms() + 1), "do": action}));
        let mut document = self.document.clone();
        document.insert("steps".to_owned(), Value::Array(steps));
        let scenario = parse_document(&self.beginning, "step", &document, &self.directory)?;
        let step = scenario.steps.last().cloned().ok_or("the step is missing")?;
        Ok((document, step))
    }
}

fn parse_document(
    beginning: &Beginning,
    name: &str,
    document: &Map<String, Value>,
    directory: &Path,
) -> Result<Scenario, String> {
    let text = yaml::to_text(&Value::Object(document.clone())).map_err(|error| error.message)?;
    parse(beginning, name, &text, directory)
}

fn parse(beginning: &Beginning, name: &str, text: &str, directory: &Path) -> Result<Scenario, String> {
    match beginning {
        Beginning::Scenario => Scenario::parse(name, text, directory),
        Beginning::Dump(dump) => dump.scenario(name, text, directory),
    }
}

fn new_world(
    beginning: &Beginning,
    name: &str,
    document: &Map<String, Value>,
    directory: &Path,
) -> Result<World, String> {
    let mut world = match beginning {
        Beginning::Scenario => World::new(parse_document(beginning, name, document, directory)?)?,
        Beginning::Dump(dump) => {
            let text = yaml::to_text(&Value::Object(document.clone())).map_err(|error| error.message)?;
            World::of_dump(dump, name, &text, directory)?
        }
    };
    world.keep_events();
    Ok(world)
}

#[cfg(test)]
mod tests;
