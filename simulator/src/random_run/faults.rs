//! Faults made by chance: each with its end, then everything is put right.

use super::cluster::{Cluster, pick};
use crate::random::Random;
use ha_api_types::time::Millis;
use serde_json::{Value, json};

/// Before this nothing fails: the cluster comes up.
pub(super) const QUIET_START_MS: Millis = 30_000;

/// The steps of a run, in order.
pub(super) fn steps(random: &mut Random, cluster: &Cluster, most_ms: Millis) -> Vec<Value> {
    let mut script = Script { lines: Vec::new(), random, cluster };
    for name in &cluster.added {
        // While every machine answers: what runs on one that does not is not looked for.
        let node = pick(script.random, &cluster.nodes);
        script.at(QUIET_START_MS, format!("add {name} {node} running"));
    }
    let most_ms = script.time_of_faults_ms(most_ms);
    let count = 5 + script.random.below(20);
    let mut at = QUIET_START_MS + 5_000;
    for _ in 0..count {
        // Faults come alone or close together.
        at = if script.random.chance(0.5) {
            at + script.random.between_ms(0, 4_000)
        } else {
            QUIET_START_MS + 5_000 + script.random.between_ms(0, most_ms)
        };
        script.fault(at);
    }
    let end = script.lines.iter().map(|(at, _)| *at).max().unwrap_or(0) + 1;
    script.put_right(end);
    let mut lines = script.lines;
    lines.sort_by_key(|(at, _)| *at);
    lines.into_iter().map(|(at, text)| json!({"at": format!("{at}ms"), "do": text})).collect()
}

struct Script<'a> {
    lines: Vec<(Millis, String)>,
    random: &'a mut Random,
    cluster: &'a Cluster,
}

impl Script<'_> {
    fn at(&mut self, at: Millis, text: String) {
        self.lines.push((at, text));
    }

    fn node(&mut self) -> String {
        if let Some(idle) = &self.cluster.idle
            && self.random.chance(0.1)
        {
            return idle.clone();
        }
        pick(self.random, &self.cluster.nodes)
    }

    /// How long faults go on: the time is halved again and again by chance, so that minutes are as likely as hours.
    fn time_of_faults_ms(&mut self, most_ms: Millis) -> Millis {
        let mut time_ms = most_ms;
        while time_ms > 240_000 && self.random.chance(0.75) {
            time_ms /= 2;
        }
        self.random.between_ms(time_ms / 2, time_ms)
    }

    /// A length that is short, as long as the protocol's own times, or long.
    fn length_ms(&mut self) -> Millis {
        match self.random.below(3) {
            0 => self.random.between_ms(100, 3_000),
            1 => self.random.between_ms(2_000, 25_000),
            _ => self.random.between_ms(10_000, 90_000),
        }
    }

    fn fault(&mut self, at: Millis) {
        let later = at + self.length_ms();
        match self.random.below(28) {
            0..=2 => {
                let node = self.node();
                self.at(at, format!("power {node} off"));
                self.at(later, format!("power {node} on"));
            }
            3..=6 => {
                let node = self.node();
                self.at(at, format!("network {node} off"));
                self.at(later, format!("network {node} on"));
            }
            7..=8 => self.agent(at, later, "kill", "start"),
            9..=10 => self.agent(at, later, "hang", "resume"),
            11 => self.agent(at, later, "stop", "start"),
            12 => self.agent(at, later, "restart", "start"),
            13..=14 => self.controller(at, later, "hang", "resume"),
            15 => self.controller(at, later, "kill", "start"),
            16 => self.controller(at, later, "restart", "start"),
            17 => {
                let length = later - at;
                self.at(at, format!("store outage {length}ms"));
            }
            18 => {
                let text = match self.random.below(3) {
                    0 => "store leader-change".to_owned(),
                    1 => "store compact".to_owned(),
                    _ => format!("store leader-pause {}ms", self.random.between_ms(500, 8_000)),
                };
                self.at(at, text);
            }
            19 => {
                let latency = self.random.between_ms(5, 300);
                self.at(at, format!("store latency {latency}ms"));
                self.at(later, "store latency 0ms".to_owned());
            }
            20 => self.suspend(at),
            21 => {
                let node = self.node();
                // Two clocks differ by at most ρ.
                let rate = 0.9995 + 0.0001 * self.random.between_ms(0, 10) as f64;
                self.at(at, format!("clock {node} rate {rate:.4}"));
            }
            22 => {
                let node = self.node();
                self.at(at, format!("maintenance {node} enable"));
                self.at(later, format!("maintenance {node} disable"));
            }
            23 => {
                let resource = pick(self.random, &self.cluster.resources);
                self.at(at, format!("crash {resource}"));
            }
            _ => self.command(at, later),
        }
    }

    fn agent(&mut self, at: Millis, later: Millis, begin: &str, end: &str) {
        let node = self.node();
        self.at(at, format!("agent {node} {begin}"));
        self.at(later, format!("agent {node} {end}"));
    }

    fn controller(&mut self, at: Millis, later: Millis, begin: &str, end: &str) {
        let node = pick(self.random, &self.cluster.nodes);
        let begins = if self.random.chance(0.5) { "leader".to_owned() } else { node };
        self.at(at, format!("controller {begins} {begin}"));
        if begins == "leader" {
            // By then another one leads: all that may have been meant go on.
            for node in &self.cluster.nodes {
                self.lines.push((later, format!("controller {node} {end}")));
            }
        } else {
            self.at(later, format!("controller {begins} {end}"));
        }
    }

    /// Only a machine that is never armed may sleep for long (FENCING, section 4: an armed one is kept from sleeping).
    fn suspend(&mut self, at: Millis) {
        if let Some(idle) = self.cluster.idle.clone() {
            let length = self.length_ms();
            self.at(at, format!("suspend {idle} {length}ms"));
        } else if !self.cluster.stops_fail {
            let node = self.node();
            let length = self.random.between_ms(10, self.cluster.heartbeat_valid_ms / 16);
            self.at(at, format!("suspend {node} {length}ms"));
        }
    }

    fn command(&mut self, at: Millis, later: Millis) {
        let resource = pick(self.random, &self.cluster.resources);
        let node = pick(self.random, &self.cluster.nodes);
        match self.random.below(12) {
            0..=3 => self.at(at, format!("migrate {resource} {node}")),
            4..=5 => self.at(at, format!("relocate {resource} {node}")),
            6..=7 => {
                self.at(at, format!("set {resource} state=Stopped"));
                self.at(later, format!("set {resource} state=Started"));
            }
            8 => self.at(at, format!("restart {resource}")),
            9 => {
                self.at(at, format!("set {resource} state=Disabled"));
                self.at(later, format!("set {resource} state=Started"));
            }
            10 => self.at(at, format!("clear-error {resource}")),
            _ => self.at(at, format!("delete {resource}")),
        }
    }

    /// Every fault ends; what ends by itself later is started again once more.
    fn put_right(&mut self, end: Millis) {
        let mut nodes = self.cluster.nodes.clone();
        nodes.extend(self.cluster.idle.clone());
        self.at(end, "store latency 0ms".to_owned());
        for node in &nodes {
            for text in ["network on", "clock rate 1", "controller resume", "agent resume"] {
                let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
                self.at(end, format!("{verb} {node} {rest}"));
            }
            self.at(end, format!("maintenance {node} disable"));
            self.at(end + 1, format!("power {node} on"));
        }
        for after in [10_000, 30_000, 60_000] {
            for node in &nodes {
                self.at(end + after, format!("agent {node} start"));
                if Some(node) != self.cluster.idle.as_ref() {
                    self.at(end + after, format!("controller {node} start"));
                }
            }
        }
    }
}
