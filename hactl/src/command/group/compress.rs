//! `hactl group compress`: plans how to empty a group.

use super::input::{Input, Read};
use super::moves::{Moves, Output};
use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::render::cpus::cpus;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::names::count;
use ha_scheduler::balance::groups::Span;
use ha_scheduler::balance::groups::compress::{Candidate, Free, Verdict, best, compress};
use ha_scheduler::balance::state::Amount;
use serde_json::{Number, Value, json};

/// Plan moves that empty a group
#[derive(Args, Debug)]
#[command(
    after_help = "A group can be emptied if groups with the same storage have enough free memory, disk and CPUs for its instances. \
        The group with the most nodes, then the most memory, is chosen.\n\n\
        Exit status: 0 done or no group can be emptied; 2 invalid input. With --apply, also 1 if a move failed or the command was interrupted."
)]
pub(super) struct Compress {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    output: Output,
}

impl Compress {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let read = self.input.read(session).await?;
        let span = read.span();
        let candidates = compress(&span);
        let chosen = best(&span, &candidates);
        let moves = Moves::new(&read, &span, chosen.map_or(&[], |(_, moved)| moved));
        let empties = chosen.map(|(candidate, _)| read.group(candidate.group));
        let value = moves.with_moves(document(&read, &span, &candidates, empties));
        let end = match empties {
            None => "\nNo group can be emptied. Nothing to move.\n".to_owned(),
            Some(group) => format!("\nMoves that empty group {group}:\n{}{}", moves.text(), moves.cost()),
        };
        let said = (text(session, &read, &span, &candidates) + &end, value);
        moves.finish(session, &self.output, "hactl group compress", format, said).await?;
        Ok(Exit::Done)
    }
}

/// Returns whether a group can be emptied, as text.
fn verdict(span: &Span<'_>, candidate: &Candidate) -> (String, Style) {
    match &candidate.verdict {
        Verdict::Empty => ("already empty".to_owned(), Style::Good),
        Verdict::Stays(why) => (format!("no: {why}"), Style::Plain),
        Verdict::TooMuch(lack) => (format!("no: {lack} elsewhere"), Style::Plain),
        Verdict::NoPlace(no_place) => {
            let instance = span.name(no_place.guest);
            (format!("no: no eligible node for {instance}: {}", no_place.reasons(span)), Style::Plain)
        }
        Verdict::CanBeEmptied(moved) => (format!("with {}", count(moved.len(), "move")), Style::Good),
    }
}

fn text(session: &Session, read: &Read, span: &Span<'_>, candidates: &[Candidate]) -> String {
    let heading =
        ["GROUP", "MEMORY USED", "FREE", "DISK USED", "FREE", "CPUS USED", "FREE", "CAN BE EMPTIED"];
    let mut table = Table::new(&heading);
    let mut row = |name: &str, used: Amount, free: &Free, verdict: (String, Style)| {
        let (used, free) = (numbers(read, used), free_numbers(read, free));
        let mut cells = vec![Cell::plain(name)];
        for number in used.map(Some).into_iter().zip(free).flat_map(|(used, free)| [used, free]) {
            cells.push(Cell::plain(&number.map_or_else(String::new, |number| number.to_string())));
        }
        cells.push(Cell::styled(&verdict.0, verdict.1));
        table.row(cells);
    };
    for candidate in candidates {
        row(read.group(candidate.group), candidate.used, &candidate.free, verdict(span, candidate));
    }
    let (used, free) = total(candidates);
    row("total", used, &free, (String::new(), Style::Plain));
    table.render(session.terminal(), 0)
}

fn total(candidates: &[Candidate]) -> (Amount, Free) {
    let (mut used, mut free) = (Amount::default(), Free::default());
    for candidate in candidates {
        used = used + candidate.used;
        free.amount = free.amount + candidate.free.amount;
        free.nodes.extend(&candidate.free.nodes);
    }
    (used, free)
}

fn document(read: &Read, span: &Span<'_>, candidates: &[Candidate], empties: Option<&str>) -> Value {
    let one = |candidate: &Candidate| {
        json!({
            "group": read.group(candidate.group),
            "used": value(numbers(read, candidate.used)),
            "free": value(free_numbers(read, &candidate.free)),
            "freeElsewhere": value(free_numbers(read, &candidate.free_elsewhere)),
            "canBeEmptied": matches!(candidate.verdict, Verdict::CanBeEmptied(_)),
            "verdict": verdict(span, candidate).0,
        })
    };
    let (used, free) = total(candidates);
    json!({
        "groups": candidates.iter().map(one).collect::<Vec<_>>(),
        "total": { "used": value(numbers(read, used)), "free": value(free_numbers(read, &free)) },
        "empties": empties,
    })
}

/// Returns memory, disk and CPUs of an amount.
fn numbers(read: &Read, amount: Amount) -> [Number; 3] {
    [amount.memory.into(), amount.disk.into(), cpus(amount.vcpus, read.cluster.cpus_in_thousandths)]
}

/// Returns free memory, disk and CPUs; `None` where a node's capacity is unknown.
fn free_numbers(read: &Read, free: &Free) -> [Option<Number>; 3] {
    let [memory, disk, cpus] = read.known(&free.nodes);
    let [free_memory, free_disk, free_cpus] = numbers(read, free.amount).map(Some);
    [free_memory.filter(|_| memory), free_disk.filter(|_| disk), free_cpus.filter(|_| cpus)]
}

/// Returns sizes as JSON.
fn value(numbers: [impl Into<Value>; 3]) -> Value {
    let [memory, disk, vcpus] = numbers.map(Into::into);
    json!({ "memory": memory, "disk": disk, "vcpus": vcpus })
}
