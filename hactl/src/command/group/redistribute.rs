//! `hactl group redistribute`: plans moves out of unhealthy groups.

use super::check::{because, nodes, words};
use super::input::{Input, Read};
use super::moves::{Moves, Output};
use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::session::Session;
use clap::Args;
use ha_scheduler::balance::groups::redistribute::{Blocked, Redistribution, redistribute};
use ha_scheduler::balance::groups::{Span, check::Health};
use serde_json::{Value, json};

/// Plan moves out of unhealthy groups
#[derive(Args, Debug)]
#[command(
    after_help = "Instances are moved in this order: instances on offline nodes, secondaries on nodes that fail N+1, primaries on nodes \
        that fail N+1. Targets are healthy groups with the same storage: preferred groups first. Unallocable groups are excluded.\n\n\
        If the instances of offline nodes fit only where a node then fails N+1, they are moved there, and that group is listed.\n\n\
        Exit status: 0 all groups are healthy, or become healthy; 1 not possible; 2 invalid input. With --apply, also 1 if a move failed or the command was interrupted."
)]
pub(super) struct Redistribute {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    output: Output,
}

impl Redistribute {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let read = self.input.read(session).await?;
        let span = read.span();
        let found = redistribute(&span);
        let moved = found.result.as_deref().unwrap_or_default();
        let moves = Moves::new(&read, &span, moved);
        let said = (text(&read, &span, &found, &moves), moves.with_moves(document(&read, &span, &found)));
        moves.finish(session, &self.output, "hactl group redistribute", format, said).await?;
        Ok(if found.heals() { Exit::Done } else { Exit::Refused })
    }
}

fn text(read: &Read, span: &Span<'_>, found: &Redistribution, moves: &Moves<'_>) -> String {
    if found.unhealthy.is_empty() {
        return "All groups are healthy. Nothing to move.\n".to_owned();
    }
    let ill = |(group, health): &(usize, Health), when: &str| {
        let (_, word, _) = words(health);
        format!("Group {} is {word}{when}: {}\n", read.group(*group), because(read, health))
    };
    let mut text: String = found.unhealthy.iter().map(|group| ill(group, "")).collect();
    for (group, why) in &found.skipped {
        text += &format!("Group {} is skipped: {why}\n", read.group(*group));
    }
    match &found.result {
        Err(blocked) => text += &format!("Cannot redistribute: {}\n", reason(read, span, blocked)),
        Ok(moved) if moved.is_empty() => {}
        Ok(_) => {
            text += &moves.text();
            text += &moves.cost();
            text.extend(found.remaining.iter().map(|group| ill(group, " after the moves")));
        }
    }
    text
}

fn reason(read: &Read, span: &Span<'_>, blocked: &Blocked) -> String {
    match blocked {
        Blocked::NothingHealthy => "no healthy group accepts instances".to_owned(),
        Blocked::NoPlace { group, no_place } => {
            let (instance, group) = (span.name(no_place.guest), read.group(*group));
            format!("no eligible node for {instance} of group {group}: {}", no_place.reasons(span))
        }
        Blocked::StillFailing { group, nodes } => format!(
            "group {} has no more instances whose move would fix N+1 on {}",
            read.group(*group),
            read.nodes(nodes).join(", ")
        ),
    }
}

fn document(read: &Read, span: &Span<'_>, found: &Redistribution) -> Value {
    let one = |(group, health): &(usize, Health)| {
        let (offline, failing) = nodes(health);
        json!({
            "group": read.group(*group),
            "health": words(health).0,
            "offlineNodes": read.nodes(offline),
            "failingNodes": read.nodes(failing),
        })
    };
    let skipped = found
        .skipped
        .iter()
        .map(|(group, why)| json!({ "group": read.group(*group), "reason": why.to_string() }));
    json!({
        "unhealthy": found.unhealthy.iter().map(one).collect::<Vec<_>>(),
        "skipped": skipped.collect::<Vec<_>>(),
        "blocked": found.result.as_ref().err().map(|blocked| reason(read, span, blocked)),
        "remaining": found.remaining.iter().map(one).collect::<Vec<_>>(),
        "heals": found.heals(),
    })
}
