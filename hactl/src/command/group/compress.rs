//! `hactl group compress`: plans how to empty a group.

use super::input::{ClusterInput, LoadedCluster};
use super::moves::{Moves, PlanOutput};
use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::render::cpus::cpus;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::names::count_with_noun;
use ha_scheduler::balance::groups::AllGroups;
use ha_scheduler::balance::groups::compress::{Candidate, FreeCapacity, Verdict, best, compress};
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
    input: ClusterInput,
    #[command(flatten)]
    output: PlanOutput,
}

impl Compress {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let loaded = self.input.read(session).await?;
        let all_groups = loaded.all_groups();
        let candidates = compress(&all_groups);
        let chosen = best(&all_groups, &candidates);
        let moves = Moves::new(&loaded, &all_groups, chosen.map_or(&[], |(_, moved)| moved));
        let emptied_group = chosen.map(|(candidate, _)| loaded.group(candidate.group));
        let value = moves.with_moves(json_output(&loaded, &all_groups, &candidates, emptied_group));
        let final_text = match emptied_group {
            None => "\nNo group can be emptied. Nothing to move.\n".to_owned(),
            Some(group) => format!("\nMoves that empty group {group}:\n{}{}", moves.text(), moves.cost()),
        };
        let rendered = (text(session, &loaded, &all_groups, &candidates) + &final_text, value);
        moves.output_and_apply(session, &self.output, "hactl group compress", format, rendered).await?;
        Ok(Exit::Done)
    }
}

/// Returns the verdict on emptying a group, as text.
fn verdict(all_groups: &AllGroups<'_>, candidate: &Candidate) -> (String, Style) {
    match &candidate.verdict {
        Verdict::Empty => ("already empty".to_owned(), Style::Good),
        Verdict::Excluded(reason) => (format!("no: {reason}"), Style::Plain),
        Verdict::TooMuch(lack) => (format!("no: {lack} elsewhere"), Style::Plain),
        Verdict::NoEligibleGroup(no_eligible_group) => {
            let instance = all_groups.service_name(no_eligible_group.service);
            (
                format!("no: no eligible node for {instance}: {}", no_eligible_group.reasons(all_groups)),
                Style::Plain,
            )
        }
        Verdict::CanBeEmptied(moved) => {
            (format!("with {}", count_with_noun(moved.len(), "move")), Style::Good)
        }
    }
}

fn text(
    session: &Session,
    loaded: &LoadedCluster,
    all_groups: &AllGroups<'_>,
    candidates: &[Candidate],
) -> String {
    let heading =
        ["GROUP", "MEMORY USED", "FREE", "DISK USED", "FREE", "CPUS USED", "FREE", "CAN BE EMPTIED"];
    let mut table = Table::new(&heading);
    let mut row = |name: &str, used: Amount, free: &FreeCapacity, verdict: (String, Style)| {
        let (used, free) = (amount_numbers(loaded, used), free_numbers(loaded, free));
        let mut cells = vec![Cell::plain(name)];
        for number in used.map(Some).into_iter().zip(free).flat_map(|(used, free)| [used, free]) {
            cells.push(Cell::plain(&number.map_or_else(String::new, |number| number.to_string())));
        }
        cells.push(Cell::styled(&verdict.0, verdict.1));
        table.add_row(cells);
    };
    for candidate in candidates {
        row(loaded.group(candidate.group), candidate.used, &candidate.free, verdict(all_groups, candidate));
    }
    let (used, free) = total(candidates);
    row("total", used, &free, (String::new(), Style::Plain));
    table.render(session.terminal(), 0)
}

fn total(candidates: &[Candidate]) -> (Amount, FreeCapacity) {
    let (mut used, mut free) = (Amount::default(), FreeCapacity::default());
    for candidate in candidates {
        used = used + candidate.used;
        free.amount = free.amount + candidate.free.amount;
        free.nodes.extend(&candidate.free.nodes);
    }
    (used, free)
}

fn json_output(
    loaded: &LoadedCluster,
    all_groups: &AllGroups<'_>,
    candidates: &[Candidate],
    emptied_group: Option<&str>,
) -> Value {
    let candidate_document = |candidate: &Candidate| {
        json!({
            "group": loaded.group(candidate.group),
            "used": amounts_value(amount_numbers(loaded, candidate.used)),
            "free": amounts_value(free_numbers(loaded, &candidate.free)),
            "freeElsewhere": amounts_value(free_numbers(loaded, &candidate.free_elsewhere)),
            "canBeEmptied": matches!(candidate.verdict, Verdict::CanBeEmptied(_)),
            "verdict": verdict(all_groups, candidate).0,
        })
    };
    let (used, free) = total(candidates);
    json!({
        "groups": candidates.iter().map(candidate_document).collect::<Vec<_>>(),
        "total": { "used": amounts_value(amount_numbers(loaded, used)), "free": amounts_value(free_numbers(loaded, &free)) },
        "empties": emptied_group,
    })
}

/// Returns memory, disk and CPUs of an amount.
fn amount_numbers(loaded: &LoadedCluster, amount: Amount) -> [Number; 3] {
    [amount.memory.into(), amount.disk.into(), cpus(amount.vcpus, loaded.cluster.cpus_in_thousandths)]
}

/// Returns free memory, disk and CPUs; `None` where a node's capacity is unknown.
fn free_numbers(loaded: &LoadedCluster, free: &FreeCapacity) -> [Option<Number>; 3] {
    let [memory, disk, cpus] = loaded.has_known_capacity(&free.nodes);
    let [free_memory, free_disk, free_cpus] = amount_numbers(loaded, free.amount).map(Some);
    [free_memory.filter(|_| memory), free_disk.filter(|_| disk), free_cpus.filter(|_| cpus)]
}

/// Returns sizes as JSON.
fn amounts_value(numbers: [impl Into<Value>; 3]) -> Value {
    let [memory, disk, vcpus] = numbers.map(Into::into);
    json!({ "memory": memory, "disk": disk, "vcpus": vcpus })
}
