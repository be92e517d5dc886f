//! Random clusters: machines with their watchdogs and fence devices, timings, and settings.

use super::Size;
use crate::random::Random;
use ha_api_types::timing::{TimingSpec, Timings};
use serde_json::{Map, Value, json};

/// The cluster of a random run.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    /// Names of the machines that run services.
    pub(super) nodes: Vec<String>,
    /// Machine that never runs a service. Its watchdog is therefore never armed, and the machine may be suspended for
    /// long.
    pub(super) idle_node: Option<String>,
    /// Machines with a fence device.
    pub(super) nodes_with_device: Vec<String>,
    /// Names of the services.
    pub(super) resources: Vec<String>,
    /// Names of services that are created while they already run.
    pub(super) added_names: Vec<String>,
    /// Section `timing` of the scenario.
    pub(super) timing: Value,
    /// The timings as numbers.
    pub(super) timings: Timings,
    /// Section `nodes` of the scenario.
    pub(super) machines: Vec<Value>,
    /// Section `objects` of the scenario.
    pub(super) objects: Vec<Value>,
    /// Section `later` of the scenario.
    pub(super) later_objects: Vec<Value>,
    /// Nodes with an etcd member, for section `store` of the scenario; empty: etcd runs outside the nodes.
    pub(super) store_members: Vec<String>,
    /// `true` if some service cannot be stopped on some node: only a reset ends it, so no armed machine may be
    /// suspended.
    pub(super) some_stops_fail: bool,
}

impl Cluster {
    pub(super) fn random(random: &mut Random, size: Size) -> Cluster {
        let count = random_between(random, 3, size.nodes);
        let nodes: Vec<String> = (1..=count).map(|number| format!("node{number}")).collect();
        let timing = random_timing(random);
        let timings =
            Timings::from(&serde_json::from_value::<TimingSpec>(timing.clone()).unwrap_or_default());
        let mut cluster = Cluster {
            idle_node: random.draw_chance(0.3).then(|| "idle".to_owned()),
            nodes_with_device: Vec::new(),
            resources: Vec::new(),
            added_names: Vec::new(),
            timing,
            timings,
            machines: Vec::new(),
            objects: Vec::new(),
            later_objects: Vec::new(),
            store_members: if random.draw_chance(0.15) {
                nodes.iter().take(3).cloned().collect()
            } else {
                Vec::new()
            },
            some_stops_fail: false,
            nodes,
        };
        cluster.add_settings(random);
        cluster.add_machines(random);
        cluster.add_services(random, size);
        cluster
    }

    /// Adds the Cluster object with random settings.
    fn add_settings(&mut self, random: &mut Random) {
        let policy = ["Conditional", "Freeze", "Failover", "Migrate"][random.draw_below(4)];
        let mode = ["Basic", "Static", "Dynamic"][random.draw_below(3)];
        let method = ["BestScore", "Topsis"][random.draw_below(2)];
        let spec = json!({
            // In most runs, all lost nodes may be fenced at the same time. In the other runs, the second lost node
            // waits for minutes.
            "fencing": {"maxFencing": if random.draw_chance(0.8) { "100%" } else { "50%" },
                "windowSeconds": 120, "allowSimulatedWatchdog": true,
                "onEtcdLoss": if random.draw_chance(0.5) { "Hold" } else { "Stop" }},
            "shutdownPolicy": policy,
            "scheduler": {
                "mode": mode, "preemption": random.draw_chance(0.3), "rebalanceOnStart": random.draw_chance(0.2),
                "autoRebalance": {
                    "enabled": random.draw_chance(0.2), "method": method,
                    "threshold": 0.1, "holdSeconds": 2 + random.draw_below(30), "maxMoves": 1 + random.draw_below(2),
                },
            },
            "reservation": {"enabled": random.draw_chance(0.2), "overUtilization": 100 + random.draw_below(150)},
            "maxWorkers": 1 + random.draw_below(6),
            "maxMigrations": 1 + random.draw_below(3),
        });
        self.objects.push(object("Cluster", "default", &spec));
    }

    fn add_machines(&mut self, random: &mut Random) {
        let limits_capacity = random.draw_chance(0.5);
        for (index, name) in self.nodes.clone().iter().enumerate() {
            let watchdog = match random.draw_below(20) {
                0..=12 => "sliding",
                13..=17 => "fixed",
                18 => "standIn",
                // No exclusive service may start on this machine.
                _ => "none",
            };
            let mut machine = Map::new();
            machine.insert("name".to_owned(), json!(name));
            machine.insert("controller".to_owned(), json!(index < 3 || random.draw_chance(0.3)));
            machine.insert("watchdog".to_owned(), json!(watchdog));
            if limits_capacity {
                let memory = |gibibytes: usize| format!("{gibibytes}Gi");
                let capacity =
                    json!({"cpu": 2 + random.draw_below(7), "memory": memory(6 + random.draw_below(11))});
                machine.insert("capacity".to_owned(), capacity);
            }
            let mut fencing = Map::new();
            if random.draw_chance(0.1) {
                machine.insert("virtual".to_owned(), json!(true));
                fencing.insert("trustWatchdogOnVirtualMachine".to_owned(), json!(true));
            }
            if random.draw_chance(0.2) {
                let action = ["Reboot", "Off"][random.draw_below(2)];
                let device = json!({"name": "ipmi", "kind": "Power", "action": action, "parts": [{"agent": "fence_ipmilan"}]});
                fencing.insert("devices".to_owned(), json!([device]));
                self.nodes_with_device.push(name.clone());
            }
            if !fencing.is_empty() {
                self.objects.push(object("Node", name, &json!({"fencing": fencing})));
            }
            self.machines.push(Value::Object(machine));
        }
        if let Some(idle_node) = &self.idle_node {
            self.machines.push(json!({"name": idle_node, "controller": false}));
            self.objects.push(object("Node", idle_node, &json!({"unschedulable": true})));
        }
    }
}

/// Draws a profile, or timings with the smallest margins that the rules of FENCING 4 allow. With these, a violation of
/// a rule has an effect.
fn random_timing(random: &mut Random) -> Value {
    let shutdown_seconds = 20 + random.draw_below(60);
    let profile = match random.draw_below(20) {
        0..=3 => "Default",
        4..=8 => "Fast",
        9 => "Conservative",
        _ => {
            let interval_ms = random.draw_between_ms(800, 2_000);
            let margin_ms = random.draw_between_ms(500, 1_500);
            let valid_ms = 2 * interval_ms + margin_ms + random.draw_between_ms(500, 3_000);
            let watchdog_seconds = [1, 1, 1, 2, 3][random.draw_below(5)];
            let seconds = |ms: u64| ms as f64 / 1000.0;
            return json!({
                "heartbeatIntervalSeconds": seconds(interval_ms),
                "heartbeatLifetimeSeconds": seconds(valid_ms),
                "selfFenceMarginSeconds": seconds(margin_ms),
                "watchdogTimeoutSeconds": watchdog_seconds,
                "watchdogMaxDelaySeconds": seconds(random.draw_between_ms(50, 400)),
                "shutdownTimeoutSeconds": shutdown_seconds,
            });
        }
    };
    json!({"profile": profile, "shutdownTimeoutSeconds": shutdown_seconds})
}

pub(super) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Draws a number from `min` to `max`, both included; returns `max` if `max < min`.
pub(super) fn random_between(random: &mut Random, min: usize, max: usize) -> usize {
    let min = min.min(max);
    min + random.draw_below(max - min + 1)
}

/// Draws one of the names; returns an empty name if the list is empty.
pub(super) fn random_name(random: &mut Random, names: &[String]) -> String {
    names.get(random.draw_below(names.len())).cloned().unwrap_or_default()
}
