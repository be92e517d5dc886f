//! `hactl group balance`: plans moves that balance load between groups.

use super::input::{ClusterInput, LoadedCluster};
use super::moves::{Moves, PlanOutput};
use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use clap::Args;
use ha_scheduler::balance::groups::balance_load::{BalancedGroups, balance_load};
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
    input: ClusterInput,
    #[command(flatten)]
    output: PlanOutput,
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
        let loaded = self.input.read(session).await?;
        let all_groups = loaded.all_groups();
        let balanced = balance_load(&all_groups, self.min_gain, self.max_length.unwrap_or(usize::MAX));
        let moves = Moves::new(&loaded, &all_groups, &balanced.moves);
        let final_text = if balanced.moves.is_empty() {
            "Nothing to move.\n".to_owned()
        } else {
            moves.text() + &moves.cost()
        };
        let value = moves.with_moves(json_output(&loaded, &balanced));
        let rendered = (text(session, &loaded, &balanced) + &final_text, value);
        moves.output_and_apply(session, &self.output, "hactl group balance", format, rendered).await?;
        Ok(Exit::Done)
    }
}

fn text(session: &Session, loaded: &LoadedCluster, balanced: &BalancedGroups) -> String {
    let mut table = Table::new(&["GROUP", "LOAD BEFORE", "LOAD AFTER", ""]);
    for group in &balanced.groups {
        table.add_row(vec![
            Cell::plain(loaded.group(group.group)),
            Cell::plain(&format!("{:.4}", group.load_before)),
            Cell::plain(&format!("{:.4}", group.load_after)),
            Cell::plain(
                &group.exclusion_reason.map_or_else(String::new, |reason| format!("skipped: {reason}")),
            ),
        ]);
    }
    table.add_row(vec![
        Cell::plain("deviation"),
        Cell::plain(&format!("{:.4}", balanced.deviation_before)),
        Cell::plain(&format!("{:.4}", balanced.deviation_after)),
        Cell::plain(""),
    ]);
    table.render(session.terminal(), 0)
}

fn json_output(loaded: &LoadedCluster, balanced: &BalancedGroups) -> Value {
    let groups = balanced.groups.iter().map(|group| {
        json!({
            "group": loaded.group(group.group),
            "loadBefore": group.load_before,
            "loadAfter": group.load_after,
            "skipped": group.exclusion_reason.map(|reason| reason.to_string()),
        })
    });
    json!({
        "groups": groups.collect::<Vec<_>>(),
        "initialScore": balanced.deviation_before,
        "finalScore": balanced.deviation_after,
    })
}
