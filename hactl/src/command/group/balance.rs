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

/// Plan moves that even the load between groups; nothing but load is looked at
#[derive(Args, Debug)]
#[command(
    after_help = "The load of a group is what its instances load, for each of its nodes that work: the measured use of -U, else 1 each for \
        cpu, memory, disk and network. What is in a preferred group does not go to one of last resort, nothing to an \
        unallocable one.\n\nExit status: 0, also when nothing is to be done; 2 bad input. With --apply also 1: a move failed, or it was interrupted."
)]
pub(super) struct Balance {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    output: Output,
    /// What every move must lower the deviation by
    #[arg(long, short = 'g', value_name = "DELTA", default_value_t = 0.01)]
    min_gain: f64,
    /// Plan no more moves than this
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
        let end =
            if found.moved.is_empty() { "Nothing to do.\n".to_owned() } else { moves.text() + &moves.cost() };
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
