//! Random single faults and commands, each with its end.

use super::cluster::random_name;
use super::script::Script;
use ha_api_types::time::Millis;

impl Script<'_> {
    pub(super) fn add_fault(&mut self, start_ms: Millis) {
        let end_ms = start_ms + self.random_duration_ms();
        match self.random.draw_below(44) {
            0..=2 => {
                let node = self.random_node();
                self.add_action(start_ms, format!("power {node} off"));
                self.add_action(end_ms, format!("power {node} on"));
            }
            3..=6 => {
                let node = self.random_node();
                self.add_action(start_ms, format!("network {node} off"));
                self.add_action(end_ms, format!("network {node} on"));
            }
            7..=8 => self.disturb_agent(start_ms, end_ms, "kill", "start"),
            9..=10 => self.disturb_agent(start_ms, end_ms, "hang", "resume"),
            11 => self.disturb_agent(start_ms, end_ms, "stop", "start"),
            12 => self.disturb_agent(start_ms, end_ms, "restart", "start"),
            13..=14 => self.disturb_controllers(start_ms, end_ms, "hang", "resume"),
            15 => self.disturb_controllers(start_ms, end_ms, "kill", "start"),
            16 => {
                let verb = if self.random.draw_chance(0.5) { "restart" } else { "stop" };
                self.disturb_controllers(start_ms, end_ms, verb, "start");
            }
            17..=20 => self.disturb_store(start_ms, end_ms),
            21 => self.suspend_node(start_ms),
            22 => self.change_clock_rate(start_ms),
            23 => {
                let node = self.random_node();
                self.add_action(start_ms, format!("maintenance {node} enable"));
                self.add_action(end_ms, format!("maintenance {node} disable"));
            }
            24..=25 => {
                let resource = self.random_resource();
                self.add_action(start_ms, format!("crash {resource}"));
            }
            26 => {
                let node = self.random_worker();
                self.add_action(start_ms, format!("journal {node} full"));
                self.add_action(end_ms, format!("journal {node} ok"));
            }
            27 => {
                let node = self.random_worker();
                // The pause is shorter than the device's timeout; a longer one would reset a healthy machine.
                let duration_ms = self.watchdog_pause_ms();
                self.add_action(start_ms, format!("watchdog {node} stop {duration_ms}ms"));
            }
            34..=43 => self.add_rare_fault(start_ms, end_ms),
            28..=29 => {
                let resource = self.random_resource();
                let (cpu, memory) = (self.random.draw_below(8), self.random.draw_below(12));
                self.add_action(start_ms, format!("load {resource} cpu={cpu} memory={memory}Gi"));
            }
            _ => self.add_command(start_ms, end_ms),
        }
    }

    /// Draws the length of a pause of a watchdog daemon. The pause alone does not cause a reset of the machine.
    pub(super) fn watchdog_pause_ms(&mut self) -> Millis {
        let max_ms = self.cluster.timings.watchdog_timeout_ms - 400;
        self.random_ms(max_ms / 4, max_ms)
    }

    fn disturb_agent(&mut self, start_ms: Millis, end_ms: Millis, start_verb: &str, end_verb: &str) {
        let node = self.random_node();
        self.add_action(start_ms, format!("agent {node} {start_verb}"));
        self.add_action(end_ms, format!("agent {node} {end_verb}"));
    }

    fn disturb_controllers(&mut self, start_ms: Millis, end_ms: Millis, start_verb: &str, end_verb: &str) {
        let node = self.random_worker();
        let target = if self.random.draw_chance(0.5) { "leader".to_owned() } else { node };
        self.add_action(start_ms, format!("controller {target} {start_verb}"));
        // The leader at that time is not known when the script is generated, so the script starts all controllers.
        for node in &self.cluster.nodes {
            self.add_action(end_ms, format!("controller {node} {end_verb}"));
        }
    }

    fn disturb_store(&mut self, start_ms: Millis, end_ms: Millis) {
        let duration_ms = end_ms - start_ms;
        match self.random.draw_below(8) {
            0..=1 => self.add_action(start_ms, format!("store outage {duration_ms}ms")),
            2 => self.add_action(start_ms, "store leader-change"),
            3 => self.add_action(start_ms, "store compact"),
            4 => {
                let duration_ms = self.random_ms(500, 8_000);
                self.add_action(start_ms, format!("store leader-pause {duration_ms}ms"));
            }
            5 => self.raise_store_latency(start_ms, end_ms),
            6 => {
                let duration_ms = self.random_ms(2_000, 20_000);
                self.add_action(start_ms, format!("store flaky {duration_ms}ms"));
            }
            _ => {
                let node =
                    if self.random.draw_chance(0.5) { "leader".to_owned() } else { self.random_worker() };
                let duration_ms = self.random_ms(1_000, 20_000);
                self.add_action(start_ms, format!("store lag {node} {duration_ms}ms"));
            }
        }
    }

    /// Sets a latency of etcd: low, or as high as a heartbeat tolerates, or so high that every attempt times out.
    fn raise_store_latency(&mut self, start_ms: Millis, end_ms: Millis) {
        let interval_ms = self.cluster.timings.heartbeat_interval_ms;
        let latency_ms = match self.random.draw_below(3) {
            0 => self.random_ms(5, 50),
            1 => self.random_ms(interval_ms / 8, interval_ms / 2),
            _ => self.random_ms(interval_ms, 3_000),
        };
        self.add_action(start_ms, format!("store latency {latency_ms}ms"));
        self.add_action(end_ms, "store latency 0ms");
    }

    /// Changes a clock's rate. The rates of two clocks differ by at most ρ, and the extreme rates are the most likely.
    fn change_clock_rate(&mut self, start_ms: Millis) {
        let node = self.random_node();
        let rate = match self.random.draw_below(4) {
            0 => 0.9995,
            1 => 1.0005,
            _ => 0.9995 + 0.0001 * self.random_ms(0, 10) as f64,
        };
        self.add_action(start_ms, format!("clock {node} rate {rate:.4}"));
    }

    /// Suspends a machine. Only a machine that is never armed may sleep long (FENCING, section 4).
    fn suspend_node(&mut self, start_ms: Millis) {
        if let Some(idle) = self.cluster.idle_node.clone() {
            let duration_ms = self.random_duration_ms();
            self.add_action(start_ms, format!("suspend {idle} {duration_ms}ms"));
        } else if !self.cluster.some_stops_fail {
            let node = self.random_node();
            let duration_ms = self.random_ms(10, self.cluster.timings.heartbeat_valid_ms / 16);
            self.add_action(start_ms, format!("suspend {node} {duration_ms}ms"));
        }
    }

    pub(super) fn add_command(&mut self, start_ms: Millis, end_ms: Millis) {
        let resource = self.random_resource();
        let node = random_name(self.random, &self.cluster.nodes);
        match self.random.draw_below(16) {
            0..=3 => self.add_action(start_ms, format!("migrate {resource} {node}")),
            4..=5 => self.add_action(start_ms, format!("relocate {resource} {node}")),
            6..=7 => {
                self.add_action(start_ms, format!("set {resource} state=Stopped"));
                self.add_action(end_ms, format!("set {resource} state=Started"));
            }
            8 => self.add_action(start_ms, format!("restart {resource}")),
            9 => {
                self.add_action(start_ms, format!("set {resource} state=Disabled"));
                self.add_action(end_ms, format!("set {resource} state=Started"));
            }
            10 => self.add_action(start_ms, format!("clear-error {resource}")),
            11 => {
                let seconds = self.random_ms(0, 40) / 10;
                self.add_action(start_ms, format!("stop {resource} {seconds}s"));
                self.add_action(end_ms, format!("start {resource}"));
            }
            12 => {
                let memory = self.random_ms(256, 8_192);
                self.add_action(start_ms, format!("set {resource} requests.memory={memory}Mi"));
                self.add_action(end_ms, format!("set {resource} requests.memory=256Mi"));
            }
            13 => {
                let priority = self.random_ms(0, 5);
                self.add_action(start_ms, format!("set {resource} priority={priority}"));
            }
            14 => self.add_action(start_ms, format!("load {resource} cpu=2 memory=4Gi")),
            _ => self.add_action(start_ms, format!("delete {resource}")),
        }
    }
}
