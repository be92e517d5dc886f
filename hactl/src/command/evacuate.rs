//! `hactl evacuate`: plans moves for all instances on some nodes.

use super::group::input::{Input, Read};
use super::group::moves::{Moves, Output};
use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::session::Session;
use clap::Args;
use ha_scheduler::balance::groups::Span;
use ha_scheduler::balance::groups::evacuate::{Evacuation, Part, evacuate};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Plan new places for all that lives on some nodes: inside the group first, else in another group of the partition
#[derive(Args, Debug)]
#[command(
    after_help = "What goes to another group is printed as (group, nodes). It is part of -C, -S and --apply only with --inter-group.\n\n\
        Exit status: 0 everything finds a place; 1 something does not, with the reason; 2 bad input. With --apply also 1: a move failed, or it was interrupted."
)]
pub(crate) struct Evacuate {
    /// The nodes
    #[arg(value_name = "NODE", required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    output: Output,
    /// Execute also what goes to another group
    #[arg(long)]
    inter_group: bool,
    /// Only instances whose primary is there
    #[arg(long, conflicts_with = "secondary_only")]
    primary_only: bool,
    /// Only instances whose secondary is there
    #[arg(long)]
    secondary_only: bool,
}

impl Evacuate {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let read = self.input.read(session).await?;
        for name in &self.nodes {
            if !read.cluster.nodes.iter().any(|node| node.name == *name) {
                return Err(Failure::usage(format!("{name}: the cluster has no such node")));
            }
        }
        let names: BTreeSet<String> = self.nodes.iter().cloned().collect();
        let span = read.draining(&names);
        let hosts: Vec<usize> =
            (0..span.problem.hosts.len()).filter(|&host| names.contains(span.node(host))).collect();
        let part = match (self.primary_only, self.secondary_only) {
            (true, _) => Part::Primaries,
            (false, true) => Part::Secondaries,
            (false, false) => Part::All,
        };
        let found = evacuate(&span, &hosts, part);
        let all: Vec<_> = found.inside.iter().chain(&found.outside).cloned().collect();
        let moves = Moves::new(&read, &span, &all);
        let value = moves.with_moves(document(&names, &span, &found));
        let said = (self.text(&read, &span, &found, &moves), value);
        let executed = if self.inter_group { &all } else { &found.inside };
        let executed = Moves::new(&read, &span, executed);
        executed.finish(session, &self.output, "hactl evacuate", format, said).await?;
        Ok(if found.stuck.is_empty() { Exit::Done } else { Exit::Refused })
    }

    fn text(&self, read: &Read, span: &Span<'_>, found: &Evacuation, moves: &Moves<'_>) -> String {
        let nodes = self.nodes.join(", ");
        let mut text = moves.text();
        for stuck in &found.stuck {
            text += &format!("{} finds no place: {}\n", span.name(stuck.guest), stuck.reasons(span));
        }
        if text.is_empty() {
            return format!("Nothing is to be moved away from {nodes}; nothing to do.\n");
        }
        text += &moves.cost();
        if !found.outside.is_empty() && !self.inter_group {
            text += &format!("{} of them between groups: only with --inter-group\n", found.outside.len());
        }
        let several = read.cluster.groups.len() > 1;
        if !found.stuck.is_empty() && several && !span.inter_group_moves {
            text += "Everything stays inside its group: moves between groups are switched off.\n";
        }
        text
    }
}

fn document(nodes: &BTreeSet<String>, span: &Span<'_>, found: &Evacuation) -> Value {
    let stuck = found
        .stuck
        .iter()
        .map(|stuck| json!({ "instance": span.name(stuck.guest), "reason": stuck.reasons(span) }));
    json!({ "nodes": nodes, "unplaced": stuck.collect::<Vec<_>>() })
}
