//! The output of `hactl timing`. `ha_api_types::timing` computes all values.

use crate::render::table::{Cell, Table};
use crate::terminal::{Style, Terminal};
use ha_api_types::time::Millis;
use ha_api_types::timing::{
    FailoverParts, Profile, StoreTimes, Timings, WatchdogBounds, failover_parts, named_parts, problems,
};
use serde::Serialize;

/// The subject of a failover: a node, or a kind of watchdog.
pub(super) struct FailoverSubject {
    pub(super) name: String,
    pub(super) device: String,
    /// Active timings and watchdog of the subject; `None` if the agent has not committed them yet.
    pub(super) timings_and_watchdog: Option<(Timings, WatchdogBounds)>,
}

/// The whole output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    profile: Profile,
    /// Settings of the cluster, resolved from its profile.
    settings: Timings,
    /// Problems of the settings, each with the setting to change.
    problems: Vec<String>,
    /// Assumptions about etcd.
    etcd: StoreTimes,
    /// Failovers; nodes with equal values form one entry.
    failovers: Vec<Failover>,
    /// Nodes whose agent has not committed timings yet.
    unreported_nodes: Vec<String>,
}

/// Longest failovers of nodes with equal values.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failover {
    nodes: Vec<String>,
    device: String,
    watchdog: WatchdogBounds,
    /// Active timings of the nodes.
    timings: Timings,
    /// `true` if the timings differ from the cluster's settings.
    differs_from_settings: bool,
    fencing_delay_ms: Millis,
    /// Bound if only the node fails.
    node: Bound,
    /// Bound if the leader fails together with the node.
    leader_node: Bound,
}

/// A bound with its parts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Bound {
    total_ms: Millis,
    parts: FailoverParts,
}

impl Report {
    pub(super) fn new(
        profile: Profile,
        settings: Timings,
        store: &StoreTimes,
        subjects: &[FailoverSubject],
    ) -> Report {
        let mut failovers: Vec<Failover> = Vec::new();
        let mut unreported_nodes = Vec::new();
        for subject in subjects {
            let Some((timings, watchdog)) = subject.timings_and_watchdog else {
                unreported_nodes.push(subject.name.clone());
                continue;
            };
            let equal_failover = failovers.iter_mut().find(|failover| {
                failover.timings == timings
                    && failover.watchdog == watchdog
                    && failover.device == subject.device
            });
            if let Some(equal_failover) = equal_failover {
                equal_failover.nodes.push(subject.name.clone());
                continue;
            }
            let bound = |leader_dies| {
                let parts = failover_parts(&timings, &watchdog, store, leader_dies);
                Bound { total_ms: parts.total_ms(), parts }
            };
            let (node, leader_node) = (bound(false), bound(true));
            failovers.push(Failover {
                nodes: vec![subject.name.clone()],
                device: subject.device.clone(),
                watchdog,
                timings,
                differs_from_settings: timings != settings,
                fencing_delay_ms: node.parts.wait.total_ms(),
                node,
                leader_node,
            });
        }
        let problems = problems(&settings)
            .into_iter()
            .map(|(field, text)| format!("Cluster.spec.timing.{field} {text}"))
            .collect();
        Report { profile, settings, problems, etcd: *store, failovers, unreported_nodes }
    }

    /// Returns `true` if the cluster's timings are valid and active on every node.
    pub(super) fn is_complete(&self) -> bool {
        self.problems.is_empty()
            && self.unreported_nodes.is_empty()
            && !self.failovers.iter().any(|failover| failover.differs_from_settings)
    }

    /// Returns the phases of the failovers, five lines each.
    pub(super) fn summary(&self, terminal: &Terminal) -> String {
        let mut sections = vec![self.problems(terminal)];
        let is_single = self.failovers.len() == 1 && self.unreported_nodes.is_empty();
        for failover in &self.failovers {
            let name = terminal.paint(Style::Bold, &failover.nodes.join(", "));
            let heading = if is_single { String::new() } else { format!("{name}\n") };
            sections.push(heading + &failover.warning(terminal) + &failover.phases(terminal));
        }
        sections.push(self.unreported_nodes(terminal));
        sections.retain(|section| !section.is_empty());
        sections.join("\n")
    }

    /// Returns the settings, and every part of the failovers.
    pub(super) fn explanation(&self, terminal: &Terminal) -> String {
        let heading = terminal.paint(Style::Bold, "Settings (Cluster.spec.timing)");
        let mut sections = vec![format!(
            "{heading}  profile {:?}\n{}{}",
            self.profile,
            self.settings(terminal),
            self.problems(terminal)
        )];
        sections.extend(self.failovers.iter().map(|failover| failover.explanation(terminal)));
        sections.push(self.unreported_nodes(terminal));
        sections.retain(|section| !section.is_empty());
        sections.join("\n")
    }

    fn problems(&self, terminal: &Terminal) -> String {
        let invalid = terminal.paint(Style::Bad, "invalid:");
        self.problems.iter().map(|problem| format!("  {invalid} {problem}\n")).collect()
    }

    fn unreported_nodes(&self, terminal: &Terminal) -> String {
        let not_reported =
            terminal.paint(Style::Warn, "the agent has not reported its watchdog and timing settings yet");
        let line = |name: &String| format!("{}  {not_reported}\n", terminal.paint(Style::Bold, name));
        self.unreported_nodes.iter().map(line).collect()
    }

    fn settings(&self, terminal: &Terminal) -> String {
        let settings = &self.settings;
        let percent = |ppm: u64| format!("{} %", ppm as f64 / 10_000.0);
        let mut table = Table::new(&["", "", ""]);
        for (symbol, value, field) in [
            ("Ki", seconds(settings.heartbeat_interval_ms), "heartbeatIntervalSeconds"),
            ("Th", seconds(settings.heartbeat_valid_ms), "heartbeatLifetimeSeconds"),
            ("Ts", seconds(settings.stop_margin_ms), "selfFenceMarginSeconds"),
            ("Tw", seconds(settings.watchdog_timeout_ms), "watchdogTimeoutSeconds"),
            ("ρw", percent(settings.watchdog_rate_error_ppm), "watchdogClockSkewPercent"),
            ("δw", seconds(settings.watchdog_lateness_ms), "watchdogMaxDelaySeconds"),
            ("ρ", percent(settings.clock_rate_error_ppm), "clockRateErrorPercent"),
            ("δio", seconds(settings.io_drain_ms), "ioDrainSeconds"),
            ("", seconds(settings.leader_lease_ms), "leaderLeaseSeconds"),
        ] {
            let symbol = if symbol.is_empty() { Cell::blank() } else { Cell::plain(symbol) };
            table.add_row(vec![symbol, Cell::plain(&value), Cell::styled(field, Style::Dim)]);
        }
        table.render(terminal, 2)
    }
}

impl Bound {
    /// Returns the phases and their total, each with its name, its duration, and the event that ends it. The phases are
    /// those of the metric of failovers: detection ends with the lifetime of the last heartbeat, and each later phase
    /// with a commit.
    fn phases(&self) -> [(&'static str, Millis, &'static str); 5] {
        let (parts, wait) = (&self.parts, &self.parts.wait);
        let delays_ms = parts.candidate_check_ms + parts.next_leader_ms;
        let detect_ms = parts.observed_ms + wait.heartbeat_valid_ms + delays_ms;
        let commit_ms = parts.commits_ms / 3;
        let fence_ms = wait.total_ms() - wait.heartbeat_valid_ms + commit_ms;
        [
            ("detect", detect_ms, "from the last heartbeat until the node is considered failed"),
            ("fence", fence_ms, "until fencing is confirmed"),
            ("decide", commit_ms + parts.unanswered_ms, "until its services are scheduled on other nodes"),
            ("start", parts.commits_ms - 2 * commit_ms, "until the starts are authorized"),
            ("total", self.total_ms, "until the services start"),
        ]
    }
}

impl Failover {
    /// Returns the phases, which add up to the bound; a column for the leader's node if its bound is longer.
    fn phases(&self, terminal: &Terminal) -> String {
        let leader_differs = self.node.total_ms != self.leader_node.total_ms;
        let mut table =
            Table::new(if leader_differs { &["", "NODE", "LEADER'S NODE", ""] } else { &["", "", ""] });
        for ((phase, ms, phase_end), (_, leader_ms, _)) in
            self.node.phases().into_iter().zip(self.leader_node.phases())
        {
            let mut cells = vec![Cell::plain(phase), Cell::plain(&seconds(ms))];
            if leader_differs {
                cells.push(Cell::plain(&seconds(leader_ms)));
            }
            cells.push(Cell::styled(phase_end, Style::Dim));
            table.add_row(cells);
        }
        table.render(terminal, 0)
    }

    /// Returns a warning if the timings differ from the cluster's settings.
    fn warning(&self, terminal: &Terminal) -> String {
        if !self.differs_from_settings {
            return String::new();
        }
        let warning =
            "the agent has not applied the cluster's settings yet; times are for its active settings";
        format!("  {}\n", terminal.paint(Style::Warn, warning))
    }

    fn explanation(&self, terminal: &Terminal) -> String {
        let kind = match (self.watchdog.descriptor_retained, self.watchdog.sliding) {
            (true, true) => "sliding timeout",
            (true, false) => "fixed timeout",
            (false, _) => "descriptor not retained",
        };
        let name = self.nodes.join(", ");
        let mut text = terminal.paint(Style::Bold, &name);
        if name != kind {
            let device = if self.device.is_empty() { "watchdog" } else { &self.device };
            text += &format!("  {device}, {kind}, watchdog timeout {}", seconds(self.watchdog.timeout_ms));
        }
        text.push('\n');
        text + &self.warning(terminal) + &self.parts(terminal)
    }

    fn parts(&self, terminal: &Terminal) -> String {
        let mut table = Table::new(&["PART", "NODE", "LEADER'S NODE"]);
        for part in named_parts(&self.node.parts, &self.leader_node.parts, &self.watchdog) {
            let style = if part.is_sum { Style::Bold } else { Style::Plain };
            let cell = |ms: Millis| Cell::styled(&seconds(ms), style);
            table.add_row(vec![
                Cell::styled(part.name, style),
                cell(part.node_ms),
                cell(part.leader_node_ms),
            ]);
        }
        table.render(terminal, 2)
    }
}

/// Returns milliseconds as seconds, the unit of the settings.
fn seconds(ms: Millis) -> String {
    format!("{} s", ms as f64 / 1000.0)
}
