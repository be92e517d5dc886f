//! Generates the script of a random run: timed faults and commands, the end of each fault, and the final repair.

use super::cluster::{Cluster, random_name};
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

pub(super) fn generate_steps(random: &mut Random, cluster: &Cluster, max_ms: Millis) -> Steps {
    let mut script = Script {
        timed_actions: Vec::new(),
        replaced_nodes: Vec::new(),
        links: Vec::new(),
        upgraded: false,
        broken: Vec::new(),
        random,
        cluster,
    };
    for name in &cluster.added_names {
        // All machines are reachable at this time; a running service on an unreachable machine would not be discovered.
        let node = random_name(script.random, &cluster.nodes);
        script.add_action(QUIET_START_MS, format!("add {name} {node} running"));
    }
    script.add_faults(max_ms);
    let faults_end_ms = script.timed_actions.iter().map(|action| action.time_ms).max().unwrap_or(0) + 1;
    script.end_faults(faults_end_ms);
    script.break_permanently(faults_end_ms);
    let broken = script.broken;
    let mut timed_actions = script.timed_actions;
    timed_actions.sort_by_key(|action| action.time_ms);
    let last_ms = timed_actions.last().map_or(0, |action| action.time_ms);
    Steps { actions: timed_actions.into_iter().map(TimedAction::into_step).collect(), last_ms, broken }
}

/// A line of a script.
struct TimedAction {
    time_ms: Millis,
    only_if: Vec<String>,
    text: String,
}

impl TimedAction {
    /// Returns `true` if the action changes the machine itself or its processes.
    fn acts_on(&self, node: &str) -> bool {
        let mut words = self.text.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let machine_verbs = [
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
        machine_verbs.contains(&verb) && words.next() == Some(node)
    }

    fn into_step(self) -> Value {
        let mut step = json!({"at": format!("{}ms", self.time_ms), "do": self.text});
        if !self.only_if.is_empty() {
            step["if"] = json!(self.only_if);
        }
        step
    }
}

/// A script under construction.
pub(super) struct Script<'a> {
    timed_actions: Vec<TimedAction>,
    /// Machines that were replaced: in the end, an operator confirms that the former machines are off.
    pub(super) replaced_nodes: Vec<String>,
    /// Links that were cut, each as the names of its two ends.
    pub(super) links: Vec<String>,
    /// `true` if some processes run the next version. If so, all processes run the next version in the end.
    pub(super) upgraded: bool,
    /// Nodes that stay broken to the end.
    broken: Vec<String>,
    pub(super) random: &'a mut Random,
    pub(super) cluster: &'a Cluster,
}

impl Script<'_> {
    pub(super) fn add_action(&mut self, time_ms: Millis, text: impl Into<String>) {
        self.add_action_if(time_ms, &[], text);
    }

    /// Adds an action that happens only if all conditions hold at that time.
    pub(super) fn add_action_if(&mut self, time_ms: Millis, only_if: &[&str], text: impl Into<String>) {
        let only_if = only_if.iter().map(|condition| (*condition).to_owned()).collect();
        self.timed_actions.push(TimedAction { time_ms, only_if, text: text.into() });
    }

    /// Draws a machine that runs services.
    pub(super) fn random_worker(&mut self) -> String {
        random_name(self.random, &self.cluster.nodes)
    }

    /// Draws a machine.
    pub(super) fn random_node(&mut self) -> String {
        if let Some(idle) = &self.cluster.idle_node
            && self.random.draw_chance(0.1)
        {
            return idle.clone();
        }
        self.random_worker()
    }

    pub(super) fn random_resource(&mut self) -> String {
        random_name(self.random, &self.cluster.resources)
    }

    /// Draws a duration between two bounds.
    pub(super) fn random_ms(&mut self, min: Millis, max: Millis) -> Millis {
        self.random.draw_between_ms(min, max)
    }

    /// Draws a duration that is short, similar to the protocol's own times, or long.
    pub(super) fn random_duration_ms(&mut self) -> Millis {
        match self.random.draw_below(3) {
            0 => self.random_ms(100, 3_000),
            1 => self.random_ms(2_000, 25_000),
            _ => self.random_ms(10_000, 90_000),
        }
    }

    /// Draws the time during which faults happen. The limit is halved a random number of times, so most runs last
    /// minutes, and a few last hours.
    fn random_fault_period_ms(&mut self, max_ms: Millis) -> Millis {
        let mut period_ms = max_ms;
        while period_ms > 240_000 && self.random.draw_chance(0.97) {
            period_ms /= 2;
        }
        self.random_ms(period_ms / 2, period_ms)
    }

    /// Adds storylines one at a time, and single faults among them.
    fn add_faults(&mut self, max_ms: Millis) {
        let start_ms = QUIET_START_MS + 5_000;
        let period_ms = self.random_fault_period_ms(max_ms);
        let storyline_count = 1 + self.random.draw_below(4);
        let mut fault_ms = start_ms + self.random_ms(0, 10_000);
        for _ in 0..storyline_count {
            let storyline_end_ms = self.add_storyline(fault_ms);
            fault_ms = if self.random.draw_chance(0.3) {
                self.random_ms(fault_ms, storyline_end_ms)
            } else {
                storyline_end_ms + self.random_ms(1_000, 30_000)
            };
        }
        let mut fault_ms = start_ms;
        for _ in 0..self.random.draw_below(16) {
            // Faults come one at a time or close together.
            fault_ms = if self.random.draw_chance(0.5) {
                fault_ms + self.random_ms(0, 4_000)
            } else {
                start_ms + self.random_ms(0, period_ms)
            };
            self.add_fault(fault_ms);
        }
    }

    /// Ends every fault. The script starts a process or machine several times if it may still end later.
    fn end_faults(&mut self, end_ms: Millis) {
        let mut nodes = self.cluster.nodes.clone();
        nodes.extend(self.cluster.idle_node.clone());
        self.add_action(end_ms, "store latency 0ms");
        self.add_action(end_ms, "store full off");
        self.add_action(end_ms, "arm");
        for link in std::mem::take(&mut self.links) {
            self.add_action(end_ms, format!("link {link} on"));
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
                let (verb, arguments) = text.split_once(' ').unwrap_or((text, ""));
                self.add_action(end_ms, format!("{verb} {node} {arguments}"));
            }
            self.add_action(end_ms, format!("maintenance {node} disable"));
            self.add_action(end_ms + 1, format!("power {node} on"));
        }
        // A machine that shuts down is off only later, so the script switches each machine on several times.
        for delay_ms in [10_000, 30_000, 60_000, 120_000, 180_000] {
            for node in &nodes {
                self.add_action(end_ms + delay_ms, format!("power {node} on"));
                self.add_action(end_ms + delay_ms, format!("agent {node} start"));
                if Some(node) != self.cluster.idle_node.as_ref() {
                    self.add_action(end_ms + delay_ms, format!("controller {node} start"));
                }
            }
        }
        if self.upgraded {
            for node in &nodes {
                self.add_action(end_ms + 210_000, format!("agent {node} upgrade"));
                if Some(node) != self.cluster.idle_node.as_ref() {
                    self.add_action(end_ms + 220_000, format!("controller {node} upgrade"));
                }
            }
        }
        for node in std::mem::take(&mut self.replaced_nodes) {
            self.add_action(end_ms + 60_000, format!("confirm-fenced {node}"));
        }
    }

    /// Breaks up to a minority of the nodes from a random time on, among them at most one etcd member. May also end one
    /// controller.
    fn break_permanently(&mut self, end_ms: Millis) {
        if self.random.draw_chance(0.5) {
            return;
        }
        let nodes = self.cluster.nodes.clone();
        let max_broken = (nodes.len() - 1) / 2;
        let break_ms =
            if self.random.draw_chance(0.5) { end_ms } else { self.random_ms(QUIET_START_MS, end_ms) };
        for _ in 0..self.random.draw_below(max_broken + 1) {
            let node = self.random_worker();
            let is_member = |node: &String| self.cluster.store_members.contains(node);
            if self.broken.contains(&node) || (is_member(&node) && self.broken.iter().any(is_member)) {
                continue;
            }
            self.timed_actions.retain(|action| action.time_ms < break_ms || !action.acts_on(&node));
            let text = match self.random.draw_below(6) {
                0..=3 => format!("power {node} off"),
                4 => format!("network {node} off"),
                _ => format!("link {node} store off"),
            };
            self.timed_actions
                .retain(|action| action.time_ms < break_ms || action.text != text.replace(" off", " on"));
            self.add_action(break_ms, text);
            self.broken.push(node);
        }
        // One controller ends and is not started again, while another controller keeps running.
        if self.random.draw_chance(0.4) {
            let controllers: Vec<String> = nodes.iter().take(3).cloned().collect();
            let node = random_name(self.random, &controllers);
            if !self.broken.iter().any(|broken| controllers.contains(broken)) {
                let is_of_other_controller =
                    |action: &TimedAction| !action.text.starts_with(&format!("controller {node} "));
                self.timed_actions
                    .retain(|action| action.time_ms < break_ms || is_of_other_controller(action));
                self.add_action(end_ms + 200_000, format!("controller {node} kill"));
            }
        }
    }
}
