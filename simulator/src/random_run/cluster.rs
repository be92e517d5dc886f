//! A cluster made by chance: machines, timings, groups, rules and services that fail in their own ways.

use super::Size;
use crate::random::Random;
use serde_json::{Map, Value, json};

/// What a random run is about.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    /// Names of machines that take services.
    pub(super) nodes: Vec<String>,
    /// The machine that never takes a service, so that it is never armed and may be suspended for long.
    pub(super) idle: Option<String>,
    /// Names of services.
    pub(super) resources: Vec<String>,
    /// Names of services that are added while they run already.
    pub(super) added: Vec<String>,
    /// `timing` of the scenario.
    pub(super) timing: Value,
    /// `nodes` of the scenario.
    pub(super) machines: Vec<Value>,
    /// `objects` of the scenario.
    pub(super) objects: Vec<Value>,
    /// `later` of the scenario.
    pub(super) later: Vec<Value>,
    /// Some service cannot be stopped on some node: then only a reset ends it, and no armed machine may be suspended.
    pub(super) stops_fail: bool,
    /// Th, milliseconds.
    pub(super) heartbeat_valid_ms: u64,
}

impl Cluster {
    pub(super) fn random(random: &mut Random, size: Size) -> Cluster {
        let count = between(random, 3, size.nodes);
        let nodes: Vec<String> = (1..=count).map(|number| format!("node{number}")).collect();
        let (profile, heartbeat_valid_ms) = match random.below(10) {
            0..=4 => ("Default", 6_000),
            5..=8 => ("Fast", 4_000),
            _ => ("Conservative", 20_000),
        };
        let mut cluster = Cluster {
            idle: random.chance(0.3).then(|| "idle".to_owned()),
            nodes,
            resources: Vec::new(),
            added: Vec::new(),
            timing: json!({"profile": profile}),
            machines: Vec::new(),
            objects: Vec::new(),
            later: Vec::new(),
            stops_fail: false,
            heartbeat_valid_ms,
        };
        for (at, name) in cluster.nodes.iter().enumerate() {
            let controller = at < 3 || random.chance(0.3);
            cluster.machines.push(json!({"name": name, "controller": controller}));
        }
        if let Some(idle) = &cluster.idle {
            cluster.machines.push(json!({"name": idle, "controller": false}));
            cluster.objects.push(object("Node", idle, &json!({"schedulable": false})));
        }
        let groups = cluster.add_groups(random);
        let services = between(random, 3, size.resources);
        for number in 1..=services {
            let name = format!("r{number}");
            let spec = cluster.spec(random, &groups);
            cluster.objects.push(object("Resource", &name, &spec));
            cluster.resources.push(name);
        }
        if random.chance(0.2) {
            let spec = cluster.spec(random, &groups);
            cluster.later.push(object("Resource", "added", &spec));
            cluster.added.push("added".to_owned());
        }
        cluster.add_rules(random);
        cluster
    }

    fn add_groups(&mut self, random: &mut Random) -> Vec<String> {
        let mut names = Vec::new();
        for number in 0..random.below(3) {
            let name = format!("group{number}");
            let members = 2 + random.below(self.nodes.len() - 1);
            let mut nodes = Map::new();
            for _ in 0..members {
                nodes.insert(pick(random, &self.nodes), json!(random.below(3)));
            }
            let restricted = nodes.len() > 1 && random.chance(0.3);
            let spec = json!({"nodes": nodes, "restricted": restricted, "nofailback": random.chance(0.3)});
            self.objects.push(object("Group", &name, &spec));
            names.push(name);
        }
        names
    }

    fn add_rules(&mut self, random: &mut Random) {
        if random.chance(0.25) {
            let (first, second) = (pick(random, &self.resources), pick(random, &self.resources));
            if first != second {
                let affinity = if random.chance(0.5) { "Positive" } else { "Negative" };
                let rule =
                    json!({"resources": [first, second], "affinity": affinity, "strict": random.chance(0.5)});
                self.objects.push(object("AffinityRule", "rule", &json!({"resourceAffinity": rule})));
            }
        }
    }

    fn spec(&mut self, random: &mut Random, groups: &[String]) -> Value {
        let mut driver = Map::new();
        driver.insert("type".to_owned(), json!("vm"));
        driver.insert("live".to_owned(), json!(random.chance(0.75)));
        driver.insert("startSeconds".to_owned(), json!(random.below(4)));
        driver.insert("stopSeconds".to_owned(), json!(random.below(4)));
        driver.insert("migrateSeconds".to_owned(), json!(1 + random.below(8)));
        if random.chance(0.2) {
            driver.insert("startFailures".to_owned(), json!(1 + random.below(3)));
        }
        if random.chance(0.15) {
            driver.insert("migrateFailures".to_owned(), json!(1 + random.below(2)));
        }
        if random.chance(0.05) {
            driver.insert("stopFails".to_owned(), json!(true));
            self.stops_fail = true;
        }
        if random.chance(0.3) {
            driver.insert("failOn".to_owned(), json!([pick(random, &self.nodes)]));
        }
        if random.chance(0.08) {
            driver.insert("missing".to_owned(), json!([pick(random, &self.nodes)]));
        }
        let mut spec = Map::new();
        spec.insert("driver".to_owned(), json!({"simulated": driver}));
        spec.insert("maxRestart".to_owned(), json!(random.below(3)));
        spec.insert("maxRelocate".to_owned(), json!(random.below(3)));
        spec.insert("priority".to_owned(), json!(random.below(3)));
        spec.insert("failback".to_owned(), json!(random.chance(0.7)));
        if random.chance(0.1) {
            spec.insert("state".to_owned(), json!("Stopped"));
        }
        if random.chance(0.07) {
            spec.insert("exclusive".to_owned(), json!(false));
        }
        if !groups.is_empty() && random.chance(0.5) {
            spec.insert("group".to_owned(), json!(pick(random, groups)));
        }
        Value::Object(spec)
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A number from `least` to `most`, both included; `most` when that is less.
fn between(random: &mut Random, least: usize, most: usize) -> usize {
    let least = least.min(most);
    least + random.below(most - least + 1)
}

/// One of them, by chance.
pub(super) fn pick(random: &mut Random, names: &[String]) -> String {
    names.get(random.below(names.len())).cloned().unwrap_or_default()
}
