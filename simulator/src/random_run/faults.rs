//! Random single faults and commands, each with its end.

use super::cluster::pick;
use super::script::Script;
use ha_api_types::time::Millis;

impl Script<'_> {
    pub(super) fn fault(&mut self, at: Millis) {
        let later = at + self.random_duration_ms();
        match self.random.below(44) {
            0..=2 => {
                let node = self.random_node();
                self.add_action(at, format!("power {node} off"));
                self.add_action(later, format!("power {node} on"));
            }
            3..=6 => {
                let node = self.random_node();
                self.add_action(at, format!("network {node} off"));
                self.add_action(later, format!("network {node} on"));
            }
            7..=8 => self.agent(at, later, "kill", "start"),
            9..=10 => self.agent(at, later, "hang", "resume"),
            11 => self.agent(at, later, "stop", "start"),
            12 => self.agent(at, later, "restart", "start"),
            13..=14 => self.controller(at, later, "hang", "resume"),
            15 => self.controller(at, later, "kill", "start"),
            16 => {
                let verb = if self.random.chance(0.5) { "restart" } else { "stop" };
                self.controller(at, later, verb, "start");
            }
            17..=20 => self.store(at, later),
            21 => self.suspend(at),
            22 => self.clock(at),
            23 => {
                let node = self.random_node();
                self.add_action(at, format!("maintenance {node} enable"));
                self.add_action(later, format!("maintenance {node} disable"));
            }
            24..=25 => {
                let resource = self.random_resource();
                self.add_action(at, format!("crash {resource}"));
            }
            26 => {
                let node = self.random_worker();
                self.add_action(at, format!("journal {node} full"));
                self.add_action(later, format!("journal {node} ok"));
            }
            27 => {
                let node = self.random_worker();
                // The pause is shorter than the device's timeout; a longer one would reset a healthy machine.
                let length = self.stop_of_a_watchdog_ms();
                self.add_action(at, format!("watchdog {node} stop {length}ms"));
            }
            34..=43 => self.edge(at, later),
            28..=29 => {
                let resource = self.random_resource();
                let (cpu, memory) = (self.random.below(8), self.random.below(12));
                self.add_action(at, format!("load {resource} cpu={cpu} memory={memory}Gi"));
            }
            _ => self.command(at, later),
        }
    }

    /// Draws a pause of a watchdog daemon that alone does not reset the machine.
    pub(super) fn stop_of_a_watchdog_ms(&mut self) -> Millis {
        let most = self.cluster.timings.watchdog_timeout_ms - 400;
        self.random_ms(most / 4, most)
    }

    fn agent(&mut self, at: Millis, later: Millis, begin: &str, end: &str) {
        let node = self.random_node();
        self.add_action(at, format!("agent {node} {begin}"));
        self.add_action(later, format!("agent {node} {end}"));
    }

    fn controller(&mut self, at: Millis, later: Millis, begin: &str, end: &str) {
        let node = self.random_worker();
        let begins = if self.random.chance(0.5) { "leader".to_owned() } else { node };
        self.add_action(at, format!("controller {begins} {begin}"));
        // The leader of that time is not known, so start all of them.
        for node in &self.cluster.nodes {
            self.add_action(later, format!("controller {node} {end}"));
        }
    }

    fn store(&mut self, at: Millis, later: Millis) {
        let length = later - at;
        match self.random.below(8) {
            0..=1 => self.add_action(at, format!("store outage {length}ms")),
            2 => self.add_action(at, "store leader-change"),
            3 => self.add_action(at, "store compact"),
            4 => {
                let length = self.random_ms(500, 8_000);
                self.add_action(at, format!("store leader-pause {length}ms"));
            }
            5 => self.latency(at, later),
            6 => {
                let length = self.random_ms(2_000, 20_000);
                self.add_action(at, format!("store flaky {length}ms"));
            }
            _ => {
                let node = if self.random.chance(0.5) { "leader".to_owned() } else { self.random_worker() };
                let length = self.random_ms(1_000, 20_000);
                self.add_action(at, format!("store lag {node} {length}ms"));
            }
        }
    }

    /// Sets a latency of etcd: low, or as high as a heartbeat tolerates, or so high that every attempt times out.
    fn latency(&mut self, at: Millis, later: Millis) {
        let interval = self.cluster.timings.heartbeat_interval_ms;
        let latency = match self.random.below(3) {
            0 => self.random_ms(5, 50),
            1 => self.random_ms(interval / 8, interval / 2),
            _ => self.random_ms(interval, 3_000),
        };
        self.add_action(at, format!("store latency {latency}ms"));
        self.add_action(later, "store latency 0ms");
    }

    /// Changes a clock's rate. Two clocks differ by at most ρ, and the extremes are the most likely.
    fn clock(&mut self, at: Millis) {
        let node = self.random_node();
        let rate = match self.random.below(4) {
            0 => 0.9995,
            1 => 1.0005,
            _ => 0.9995 + 0.0001 * self.random_ms(0, 10) as f64,
        };
        self.add_action(at, format!("clock {node} rate {rate:.4}"));
    }

    /// Suspends a machine. Only a machine that is never armed may sleep long (FENCING, section 4).
    fn suspend(&mut self, at: Millis) {
        if let Some(idle) = self.cluster.idle.clone() {
            let length = self.random_duration_ms();
            self.add_action(at, format!("suspend {idle} {length}ms"));
        } else if !self.cluster.stops_fail {
            let node = self.random_node();
            let length = self.random_ms(10, self.cluster.timings.heartbeat_valid_ms / 16);
            self.add_action(at, format!("suspend {node} {length}ms"));
        }
    }

    pub(super) fn command(&mut self, at: Millis, later: Millis) {
        let resource = self.random_resource();
        let node = pick(self.random, &self.cluster.nodes);
        match self.random.below(16) {
            0..=3 => self.add_action(at, format!("migrate {resource} {node}")),
            4..=5 => self.add_action(at, format!("relocate {resource} {node}")),
            6..=7 => {
                self.add_action(at, format!("set {resource} state=Stopped"));
                self.add_action(later, format!("set {resource} state=Started"));
            }
            8 => self.add_action(at, format!("restart {resource}")),
            9 => {
                self.add_action(at, format!("set {resource} state=Disabled"));
                self.add_action(later, format!("set {resource} state=Started"));
            }
            10 => self.add_action(at, format!("clear-error {resource}")),
            11 => {
                let seconds = self.random_ms(0, 40) / 10;
                self.add_action(at, format!("stop {resource} {seconds}s"));
                self.add_action(later, format!("start {resource}"));
            }
            12 => {
                let memory = self.random_ms(256, 8_192);
                self.add_action(at, format!("set {resource} requests.memory={memory}Mi"));
                self.add_action(later, format!("set {resource} requests.memory=256Mi"));
            }
            13 => {
                let priority = self.random_ms(0, 5);
                self.add_action(at, format!("set {resource} priority={priority}"));
            }
            14 => self.add_action(at, format!("load {resource} cpu=2 memory=4Gi")),
            _ => self.add_action(at, format!("delete {resource}")),
        }
    }
}
