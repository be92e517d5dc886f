//! `hactl group balance`: plans moves that balance load between groups.

use super::input::{Input, Read};
use super::moves::{Moves, Output};
use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use clap::Args;
use ha_scheduler::balance::groups::level::{Levelled, level};
use serde_json::{Value, json};

/// Plan moves that balance the load between groups
#[derive(Args, Debug)]
#[command(
    after_help = "The load of a group is the load of its instances per working node: the measured load of -U, or else 1 each for \
        CPU, memory, disk and network. Instances are not moved from preferred to last-resort groups, or to \
        unallocable groups.\n\nExit status: 0 done or nothing to move; 2 invalid input. With --apply, also 1 if a move failed or the command was interrupted."
)]
pub(super) struct Balance {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    output: Output,
    /// Minimum decrease of the standard deviation of group loads per move
    #[arg(long, short = 'g', value_name = "DELTA", default_value_t = 0.01)]
    min_gain: f64,
    /// Maximum number of moves
    #[arg(long, short = 'l', value_name = "N")]
    max_length: Option<usize>,
}

impl Balance {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let read = self.input.read(session).await?;
        let span = read.span();
        let found = level(&span, self.min_gain, self.max_length.unwrap_or(usize::MAX));
        let moves = Moves::new(&read, &span, &found.moved);
        let end = if found.moved.is_empty() {
            "Nothing to move.\n".to_owned()
        } else {
            moves.text() + &moves.cost()
        };
        let value = moves.with_moves(document(&read, &found));
        let said = (text(session, &read, &found) + &end, value);
        moves.finish(session, &self.output, "hactl group balance", format, said).await?;
        Ok(Exit::Done)
    }
}

fn text(session: &Session, read: &Read, found: &Levelled) -> String {
    let mut table = Table::new(&["GROUP", "LOAD BEFORE", "AFTER", ""]);
    for group in &found.groups {
        table.row(vec![
            Cell::plain(read.group(group.group)),
            Cell::plain(&format!("{:.4}", group.before)),
            Cell::plain(&format!("{:.4}", group.after)),
            Cell::plain(&group.skipped.map_or_else(String::new, |why| format!("skipped: {why}"))),
        ]);
    }
    table.row(vec![
        Cell::plain("deviation"),
        Cell::plain(&format!("{:.4}", found.before)),
        Cell::plain(&format!("{:.4}", found.after)),
        Cell::plain(""),
    ]);
    table.render(session.terminal(), 0)
}

fn document(read: &Read, found: &Levelled) -> Value {
    let groups = found.groups.iter().map(|group| {
        json!({
            "group": read.group(group.group),
            "loadBefore": group.before,
            "loadAfter": group.after,
            "skipped": group.skipped.map(|why| why.to_string()),
        })
    });
    json!({
        "groups": groups.collect::<Vec<_>>(),
        "initialScore": found.before,
        "finalScore": found.after,
    })
}
