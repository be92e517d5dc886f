//! Generates the script of a random run: timed faults and commands, the end of each fault, and the final repair.

use super::cluster::{Cluster, pick};
use crate::random::Random;
use ha_api_types::time::Millis;
use serde_json::{Value, json};

/// Milliseconds without faults at the beginning, so that the cluster can start.
pub(super) const QUIET_START_MS: Millis = 30_000;

/// The steps of a run, in order.
pub(super) struct Steps {
    pub(super) actions: Vec<Value>,
    /// Time of the last step.
    pub(super) last_ms: Millis,
    /// Nodes that stay broken to the end.
    pub(super) broken: Vec<String>,
}

/// Generates the steps of a run.
pub(super) fn steps(random: &mut Random, cluster: &Cluster, max_ms: Millis) -> Steps {
    let mut script = Script {
        lines: Vec::new(),
        replaced: Vec::new(),
        links: Vec::new(),
        upgraded: false,
        broken: Vec::new(),
        random,
        cluster,
    };
    for name in &cluster.added {
        // All machines are reachable at this time; a running service on an unreachable machine would not be discovered.
        let node = pick(script.random, &cluster.nodes);
        script.add_action(QUIET_START_MS, format!("add {name} {node} running"));
    }
    script.add_faults(max_ms);
    let end = script.lines.iter().map(|line| line.at).max().unwrap_or(0) + 1;
    script.end_faults(end);
    script.break_permanently(end);
    let broken = script.broken;
    let mut lines = script.lines;
    lines.sort_by_key(|line| line.at);
    let last_ms = lines.last().map_or(0, |line| line.at);
    Steps { actions: lines.into_iter().map(TimedAction::into_step).collect(), last_ms, broken }
}

/// A line of a script.
struct TimedAction {
    at: Millis,
    only_if: Vec<String>,
    text: String,
}

impl TimedAction {
    /// Returns `true` if the action changes the machine itself or its processes.
    fn acts_on(&self, node: &str) -> bool {
        let mut words = self.text.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let machine = [
            "power",
            "network",
            "reboot",
            "shutdown",
            "replace",
            "agent",
            "controller",
            "suspend",
            "watchdog",
            "watchdogd",
            "pets",
            "fence",
        ];
        machine.contains(&verb) && words.next() == Some(node)
    }

    fn into_step(self) -> Value {
        let mut step = json!({"at": format!("{}ms", self.at), "do": self.text});
        if !self.only_if.is_empty() {
            step["if"] = json!(self.only_if);
        }
        step
    }
}

/// A script under construction.
pub(super) struct Script<'a> {
    lines: Vec<TimedAction>,
    /// Machines that were replaced: in the end, an operator confirms that the former ones are off.
    pub(super) replaced: Vec<String>,
    /// Links that were cut, each as the names of its two ends.
    pub(super) links: Vec<String>,
    /// Whether some processes run the next version: in the end, all do.
    pub(super) upgraded: bool,
    /// Nodes that stay broken to the end.
    broken: Vec<String>,
    pub(super) random: &'a mut Random,
    pub(super) cluster: &'a Cluster,
}

impl Script<'_> {
    pub(super) fn add_action(&mut self, at: Millis, text: impl Into<String>) {
        self.add_action_if(at, &[], text);
    }

    /// Adds an action that happens only if all conditions hold at that time.
    pub(super) fn add_action_if(&mut self, at: Millis, only_if: &[&str], text: impl Into<String>) {
        let only_if = only_if.iter().map(|condition| (*condition).to_owned()).collect();
        self.lines.push(TimedAction { at, only_if, text: text.into() });
    }

    /// Draws a machine that runs services.
    pub(super) fn random_worker(&mut self) -> String {
        pick(self.random, &self.cluster.nodes)
    }

    /// Draws a machine.
    pub(super) fn random_node(&mut self) -> String {
        if let Some(idle) = &self.cluster.idle
            && self.random.chance(0.1)
        {
            return idle.clone();
        }
        self.random_worker()
    }

    pub(super) fn random_resource(&mut self) -> String {
        pick(self.random, &self.cluster.resources)
    }

    /// Draws a duration between two bounds.
    pub(super) fn random_ms(&mut self, min: Millis, max: Millis) -> Millis {
        self.random.between_ms(min, max)
    }

    /// Draws a duration that is short, similar to the protocol's own times, or long.
    pub(super) fn random_duration_ms(&mut self) -> Millis {
        match self.random.below(3) {
            0 => self.random_ms(100, 3_000),
            1 => self.random_ms(2_000, 25_000),
            _ => self.random_ms(10_000, 90_000),
        }
    }

    /// Draws the time during which faults happen. The limit is halved a random number of times, so most runs last
    /// minutes and few last hours.
    fn random_fault_period_ms(&mut self, max_ms: Millis) -> Millis {
        let mut time_ms = max_ms;
        while time_ms > 240_000 && self.random.chance(0.97) {
            time_ms /= 2;
        }
        self.random_ms(time_ms / 2, time_ms)
    }

    /// Adds storylines one at a time, and single faults among them.
    fn add_faults(&mut self, max_ms: Millis) {
        let begin = QUIET_START_MS + 5_000;
        let time_ms = self.random_fault_period_ms(max_ms);
        let storylines = 1 + self.random.below(4);
        let mut at = begin + self.random_ms(0, 10_000);
        for _ in 0..storylines {
            let end = self.storyline(at);
            at = if self.random.chance(0.3) {
                self.random_ms(at, end)
            } else {
                end + self.random_ms(1_000, 30_000)
            };
        }
        let mut at = begin;
        for _ in 0..self.random.below(16) {
            // Faults come alone or close together.
            at = if self.random.chance(0.5) {
                at + self.random_ms(0, 4_000)
            } else {
                begin + self.random_ms(0, time_ms)
            };
            self.fault(at);
        }
    }

    /// Ends every fault. A process or machine that may end later is started several times.
    fn end_faults(&mut self, end: Millis) {
        let mut nodes = self.cluster.nodes.clone();
        nodes.extend(self.cluster.idle.clone());
        self.add_action(end, "store latency 0ms");
        self.add_action(end, "store full off");
        self.add_action(end, "arm");
        for link in std::mem::take(&mut self.links) {
            self.add_action(end, format!("link {link} on"));
        }
        for node in &nodes {
            for text in [
                "network on",
                "migration-network on",
                "watchdogd start",
                "pets ok",
                "clock rate 1",
                "controller resume",
                "agent resume",
                "journal ok",
                "fence-device ok",
            ] {
                let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
                self.add_action(end, format!("{verb} {node} {rest}"));
            }
            self.add_action(end, format!("maintenance {node} disable"));
            self.add_action(end + 1, format!("power {node} on"));
        }
        // Machines that shut down are off only later, so each is switched on several times.
        for after in [10_000, 30_000, 60_000, 120_000, 180_000] {
            for node in &nodes {
                self.add_action(end + after, format!("power {node} on"));
                self.add_action(end + after, format!("agent {node} start"));
                if Some(node) != self.cluster.idle.as_ref() {
                    self.add_action(end + after, format!("controller {node} start"));
                }
            }
        }
        if self.upgraded {
            for node in &nodes {
                self.add_action(end + 210_000, format!("agent {node} upgrade"));
                if Some(node) != self.cluster.idle.as_ref() {
                    self.add_action(end + 220_000, format!("controller {node} upgrade"));
                }
            }
        }
        for node in std::mem::take(&mut self.replaced) {
            self.add_action(end + 60_000, format!("confirm-fenced {node}"));
        }
    }

    /// Leaves up to a minority of the nodes, one controller and one etcd member broken, from some time in the run on.
    fn break_permanently(&mut self, end: Millis) {
        if self.random.chance(0.5) {
            return;
        }
        let nodes = self.cluster.nodes.clone();
        let max_broken = (nodes.len() - 1) / 2;
        let since = if self.random.chance(0.5) { end } else { self.random_ms(QUIET_START_MS, end) };
        for _ in 0..self.random.below(max_broken + 1) {
            let node = self.random_worker();
            let is_member = |node: &String| self.cluster.store.contains(node);
            if self.broken.contains(&node) || (is_member(&node) && self.broken.iter().any(is_member)) {
                continue;
            }
            self.lines.retain(|line| line.at < since || !line.acts_on(&node));
            let text = match self.random.below(6) {
                0..=3 => format!("power {node} off"),
                4 => format!("network {node} off"),
                _ => format!("link {node} store off"),
            };
            self.lines.retain(|line| line.at < since || line.text != text.replace(" off", " on"));
            self.add_action(since, text);
            self.broken.push(node);
        }
        // One controller ends and is not started again, while another one keeps running.
        if self.random.chance(0.4) {
            let controllers: Vec<String> = nodes.iter().take(3).cloned().collect();
            let node = pick(self.random, &controllers);
            if !self.broken.iter().any(|broken| controllers.contains(broken)) {
                let is_of_other_controller =
                    |line: &TimedAction| !line.text.starts_with(&format!("controller {node} "));
                self.lines.retain(|line| line.at < since || is_of_other_controller(line));
                self.add_action(end + 200_000, format!("controller {node} kill"));
            }
        }
    }
}
