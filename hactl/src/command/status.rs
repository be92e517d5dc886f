//! `hactl status`: shows the cluster on one screen.

use crate::failure::{Exit, Failure, Outcome};
use crate::render::columns::state_style;
use crate::render::table::{Cell, Table};
use crate::render::{Format, age};
use crate::session::Session;
use crate::terminal::{Style, Terminal, byte_text};
use clap::Args;
use ha_api_types::node::WatchdogStatus;
use ha_api_types::reason::Reason;
use ha_api_types::record::BackupRecord;
use ha_api_types::time::{DecimalSeconds, Timestamp};
use ha_api_types::view::{ControllerState, Health, NodeOverview, Overview, Severity};

/// Show the cluster: etcd, leader, agents, services and problems
#[derive(Args, Debug)]
#[command(after_help = "Exit status: 0 healthy; 1 degraded, all requested services run; \
        2 a requested service does not run, or no leader; 3 unreachable; 4 permission denied.")]
pub(crate) struct Status {}

impl Status {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Wide, Format::Yaml, Format::Json])?;
        let overview = session.client()?.overview().await?;
        let value = serde_json::to_value(&overview)
            .map_err(|error| Failure::failed(format!("cannot print the status: {error}")))?;
        if !session.print_value(format, &value)? {
            let wide = format == Some(&Format::Wide);
            session.terminal().print(&overview_text(session.terminal(), &overview, wide));
        }
        Ok(match overview.health() {
            Health::Healthy => Exit::Done,
            Health::Degraded => Exit::Failed,
            Health::Failed => Exit::Usage,
        })
    }
}

fn overview_text(terminal: &Terminal, overview: &Overview, wide: bool) -> String {
    let (health_word, style) = match overview.health() {
        Health::Healthy => ("healthy", Style::Good),
        Health::Degraded => ("degraded", Style::Warn),
        Health::Failed => ("failed", Style::Bad),
    };
    let mut text = format!("Cluster {}: {}", overview.cluster, terminal.paint(style, health_word));
    if !overview.arming.is_empty() && overview.arming != "Armed" {
        text += &format!(", {}", terminal.paint(Style::Warn, &overview.arming));
    }
    text += &format!("  (answered by {})\n", overview.answered_by);
    text += &etcd_section(terminal, overview, wide);
    text += &controllers_section(terminal, overview);
    let disarmed = !overview.arming.is_empty() && overview.arming != "Armed";
    text += &nodes_section(terminal, &overview.nodes, wide, disarmed);
    text += &services_section(terminal, overview);
    text += &fencing_section(terminal, overview);
    text += &problems_section(terminal, overview);
    text
}

fn heading(terminal: &Terminal, title: &str, summary: &str) -> String {
    let gap = if summary.is_empty() { "" } else { "  " };
    format!("\n{}{gap}{summary}\n", terminal.paint(Style::Bold, title))
}

fn etcd_section(terminal: &Terminal, overview: &Overview, wide: bool) -> String {
    let members = &overview.store.members;
    let healthy = members.iter().filter(|member| member.healthy).count();
    let quorum = if overview.store.quorum {
        terminal.paint(Style::Good, "quorum")
    } else {
        terminal.paint(Style::Bad, "no quorum")
    };
    let mut text = heading(terminal, "etcd", &format!("{healthy} of {} members, {quorum}", members.len()));
    let mut table = Table::new(if wide {
        &["MEMBER", "STATE", "VERSION", "SIZE", "URL", "MESSAGE"]
    } else {
        &["MEMBER", "STATE", "VERSION", "SIZE", "MESSAGE"]
    });
    for member in members {
        let state = match (member.healthy, member.leader) {
            (true, true) => Cell::styled("leader", Style::Good),
            (true, false) => Cell::styled("follower", Style::Good),
            (false, _) => Cell::styled("unreachable", Style::Bad),
        };
        let name = if member.name.is_empty() { &member.url } else { &member.name };
        let size = if member.database_bytes == 0 { String::new() } else { byte_text(member.database_bytes) };
        let mut row = vec![Cell::plain(name), state, Cell::plain(&member.version), Cell::plain(&size)];
        if wide {
            row.push(Cell::plain(&member.url));
        }
        row.push(if member.problem.is_empty() {
            Cell::blank()
        } else {
            Cell::styled(&member.problem, Style::Bad)
        });
        table.add_row(row);
    }
    text += &table.render(terminal, 2);
    text + &backup_line(overview.store.backup.as_ref())
}

/// Returns the line about the last backup; empty if none was recorded.
fn backup_line(backup: Option<&BackupRecord>) -> String {
    let Some(backup) = backup else { return String::new() };
    let encryption = if backup.encrypted { ", encrypted" } else { "" };
    format!("  Last backup: {} ago, {}{encryption}\n", age(Some(&backup.at)), byte_text(backup.size_bytes))
}

fn controllers_section(terminal: &Terminal, overview: &Overview) -> String {
    let leader = match &overview.leader {
        Some(leader) => {
            let leader_age = age(Some(&leader.since));
            format!("leader {} (for {leader_age})", terminal.paint(Style::Good, &leader.id))
        }
        None => terminal.paint(Style::Bad, "no leader"),
    };
    let mut text = heading(terminal, "Controllers", &leader);
    let mut table = Table::new(&["CONTROLLER", "STATE", "LAST SEEN", "VERSION", "URL"]);
    for controller in &overview.controllers {
        let state = match controller.state {
            ControllerState::Leading => Cell::styled("Leading", Style::Good),
            ControllerState::Standby => Cell::styled("Standby", Style::Good),
            ControllerState::Lost => Cell::styled("Lost", Style::Bad),
        };
        table.add_row(vec![
            Cell::plain(&controller.id),
            state,
            Cell::plain(&last_seen_text(controller.silent_seconds, None)),
            Cell::plain(&controller.version),
            Cell::plain(&controller.url),
        ]);
    }
    text += &table.render(terminal, 2);
    text
}

fn nodes_section(terminal: &Terminal, nodes: &[NodeOverview], wide: bool, disarmed: bool) -> String {
    let mut text =
        heading(terminal, "Nodes", if nodes.is_empty() { "no node has registered yet" } else { "" });
    if nodes.is_empty() {
        return text;
    }
    let mut header = vec!["NODE", "STATE", "AGENT", "LEASE", "WATCHDOG", "LAST SEEN", "SERVICES"];
    if disarmed {
        header.push("ARMING");
    }
    if wide {
        header.extend(["MODE", "REGISTRATION", "REGISTRATION STATE", "VERSION"]);
    }
    header.push("MESSAGE");
    let mut table = Table::new(&header);
    for node in nodes {
        let state = format!("{:?}", node.state);
        let watchdog = node.watchdog.as_ref().map_or("", WatchdogStatus::summary);
        let watchdog_style = if watchdog == "none" { Style::Bad } else { Style::Plain };
        let lease =
            if node.lease { Cell::styled("held", Style::Good) } else { Cell::styled("gone", Style::Bad) };
        let mut row = vec![
            Cell::plain(&node.name),
            Cell::styled(&state, state_style(&state)),
            Cell::styled(&node.agent, state_style(&node.agent)),
            lease,
            Cell::styled(watchdog, watchdog_style),
            Cell::plain(&last_seen_text(node.silent_seconds, node.last_heartbeat_time.as_ref())),
            Cell::plain(&node.services.to_string()),
        ];
        if disarmed {
            row.push(Cell::styled(&node.arming, Style::Warn));
        }
        if wide {
            row.extend(
                [&node.mode, &node.registration.to_string(), &node.registration_state, &node.version]
                    .map(|cell| Cell::plain(cell)),
            );
        }
        // A received heartbeat needs no message.
        let is_message_redundant =
            node.message.is_empty() || matches!(node.reason, Reason::NodeReady | Reason::Maintenance);
        row.push(if is_message_redundant { Cell::blank() } else { Cell::plain(&node.message) });
        table.add_row(row);
    }
    text += &table.render(terminal, 2);
    text
}

fn services_section(terminal: &Terminal, overview: &Overview) -> String {
    let counts: Vec<String> = overview
        .services
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(state, count)| {
            let state = format!("{state:?}");
            format!("{count} {}", terminal.paint(state_style(&state), &state))
        })
        .collect();
    let mut text =
        heading(terminal, "Services", &if counts.is_empty() { "none".to_owned() } else { counts.join(", ") });
    for sentence in &overview.waiting_for {
        text += &format!("  waiting: {sentence}\n");
    }
    text
}

fn fencing_section(terminal: &Terminal, overview: &Overview) -> String {
    if overview.recent_fences.is_empty() {
        return String::new();
    }
    let mut text = heading(terminal, "Recent fencing", "");
    for fence in overview.recent_fences.iter().rev().take(5) {
        text += &format!("  {} {} ago: {}\n", fence.node, age(Some(&fence.at)), fence.message);
    }
    text
}

fn problems_section(terminal: &Terminal, overview: &Overview) -> String {
    if overview.problems.is_empty() {
        return String::new();
    }
    let mut text = heading(terminal, "Problems", "");
    for problem in &overview.problems {
        let style = match problem.severity {
            Severity::Degraded => Style::Warn,
            Severity::Failed => Style::Bad,
        };
        let sentence = if problem.message.is_empty() { problem.reason.sentence() } else { &problem.message };
        text += &format!("  {}: {sentence}\n", terminal.paint(style, &problem.about));
        if !problem.help.is_empty() {
            text += &format!("    → {}\n", problem.help);
        }
    }
    text
}

/// Returns the time since an observation: by the answering controller's own clock, or else by the stored time.
fn last_seen_text(silent: Option<DecimalSeconds>, stored: Option<&Timestamp>) -> String {
    match (silent, stored) {
        (Some(silent), _) => format!("{:.1}s", silent.ms() as f64 / 1000.0),
        (None, Some(stored)) => age(Some(stored)),
        (None, None) => "never".to_owned(),
    }
}
