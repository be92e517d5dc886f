//! The script of a random run: faults and commands at their times, each with its end, then everything is put right.

use super::cluster::{Cluster, pick};
use crate::random::Random;
use ha_api_types::time::Millis;
use serde_json::{Value, json};

/// Before this nothing fails: the cluster comes up.
pub(super) const QUIET_START_MS: Millis = 30_000;

/// The steps of a run, in order, and when the last one is done.
pub(super) fn steps(random: &mut Random, cluster: &Cluster, most_ms: Millis) -> (Vec<Value>, Millis) {
    let mut script = Script { lines: Vec::new(), replaced: Vec::new(), random, cluster };
    for name in &cluster.added {
        // While every machine answers: what runs on one that does not is not looked for.
        let node = pick(script.random, &cluster.nodes);
        script.at(QUIET_START_MS, format!("add {name} {node} running"));
    }
    script.fill(most_ms);
    let end = script.lines.iter().map(|line| line.at).max().unwrap_or(0) + 1;
    script.put_right(end);
    let mut lines = script.lines;
    lines.sort_by_key(|line| line.at);
    let last_ms = lines.last().map_or(0, |line| line.at);
    (lines.into_iter().map(Line::into_step).collect(), last_ms)
}

/// One line of a script.
struct Line {
    at: Millis,
    only_if: Vec<String>,
    text: String,
}

impl Line {
    fn into_step(self) -> Value {
        let mut step = json!({"at": format!("{}ms", self.at), "do": self.text});
        if !self.only_if.is_empty() {
            step["if"] = json!(self.only_if);
        }
        step
    }
}

/// A script that is being made.
pub(super) struct Script<'a> {
    lines: Vec<Line>,
    /// Machines that another took the place of: an operator says so in the end.
    pub(super) replaced: Vec<String>,
    pub(super) random: &'a mut Random,
    pub(super) cluster: &'a Cluster,
}

impl Script<'_> {
    pub(super) fn at(&mut self, at: Millis, text: impl Into<String>) {
        self.at_if(at, &[], text);
    }

    /// Done only if all of this holds then.
    pub(super) fn at_if(&mut self, at: Millis, only_if: &[&str], text: impl Into<String>) {
        let only_if = only_if.iter().map(|condition| (*condition).to_owned()).collect();
        self.lines.push(Line { at, only_if, text: text.into() });
    }

    /// A machine that takes services.
    pub(super) fn worker(&mut self) -> String {
        pick(self.random, &self.cluster.nodes)
    }

    /// Any machine.
    pub(super) fn node(&mut self) -> String {
        if let Some(idle) = &self.cluster.idle
            && self.random.chance(0.1)
        {
            return idle.clone();
        }
        self.worker()
    }

    pub(super) fn resource(&mut self) -> String {
        pick(self.random, &self.cluster.resources)
    }

    /// A length between two.
    pub(super) fn ms(&mut self, least: Millis, most: Millis) -> Millis {
        self.random.between_ms(least, most)
    }

    /// A length that is short, as long as the protocol's own times, or long.
    pub(super) fn length_ms(&mut self) -> Millis {
        match self.random.below(3) {
            0 => self.ms(100, 3_000),
            1 => self.ms(2_000, 25_000),
            _ => self.ms(10_000, 90_000),
        }
    }

    /// How long faults go on: the time is halved again and again by chance, so that most runs are minutes full of faults and
    /// few are hours.
    fn time_of_faults_ms(&mut self, most_ms: Millis) -> Millis {
        let mut time_ms = most_ms;
        while time_ms > 240_000 && self.random.chance(0.97) {
            time_ms /= 2;
        }
        self.ms(time_ms / 2, time_ms)
    }

    /// Storylines one after another, single faults among them.
    fn fill(&mut self, most_ms: Millis) {
        let begin = QUIET_START_MS + 5_000;
        let time_ms = self.time_of_faults_ms(most_ms);
        let storylines = 1 + self.random.below(4);
        let mut at = begin + self.ms(0, 10_000);
        for _ in 0..storylines {
            let end = self.storyline(at);
            at = if self.random.chance(0.3) { self.ms(at, end) } else { end + self.ms(1_000, 30_000) };
        }
        let mut at = begin;
        for _ in 0..self.random.below(16) {
            // Faults come alone or close together.
            at = if self.random.chance(0.5) { at + self.ms(0, 4_000) } else { begin + self.ms(0, time_ms) };
            self.fault(at);
        }
    }

    /// Every fault ends; what ends by itself later is started again once more.
    fn put_right(&mut self, end: Millis) {
        let mut nodes = self.cluster.nodes.clone();
        nodes.extend(self.cluster.idle.clone());
        self.at(end, "store latency 0ms");
        self.at(end, "arm");
        for node in &nodes {
            for text in [
                "network on",
                "clock rate 1",
                "controller resume",
                "agent resume",
                "journal ok",
                "fence-device ok",
            ] {
                let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
                self.at(end, format!("{verb} {node} {rest}"));
            }
            self.at(end, format!("maintenance {node} disable"));
            self.at(end + 1, format!("power {node} on"));
        }
        // Machines that shut down go down in their own time.
        for after in [10_000, 30_000, 60_000, 120_000, 180_000] {
            for node in &nodes {
                self.at(end + after, format!("power {node} on"));
                self.at(end + after, format!("agent {node} start"));
                if Some(node) != self.cluster.idle.as_ref() {
                    self.at(end + after, format!("controller {node} start"));
                }
            }
        }
        for node in std::mem::take(&mut self.replaced) {
            self.at(end + 60_000, format!("confirm-fenced {node}"));
        }
    }
}
