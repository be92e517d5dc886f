//! `hactl check n+1`: the failover capacity check, whether every service could run if nodes failed now.

use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::view::{FailureReport, ReservationReport, ReservationVerdict, WithoutPlace};
use serde_json::Value;

/// Whether every service would find a place if a node failed now: room, rules, storage and priorities, all at once
#[derive(Args, Debug)]
#[command(
    after_help = "With -v it prints where each service would go, which proves that a failure is survived.\n\n\
        Exit status: 0 every failure is survived; 1 some is not, or it could not be decided; 3 unreachable; \
        4 not permitted."
)]
pub(crate) struct NPlusOne {
    /// So many nodes fail at once; 2 looks at every pair
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    failures: u32,
    /// What fails as one: a node, a node group, or all nodes with the same value of this label
    #[arg(long, value_name = "node|group|LABEL", default_value = "node")]
    by: String,
}

impl NPlusOne {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        if self.failures == 2 && self.by != "node" {
            return Err(Failure::usage("--failures 2 is about nodes: leave out --by"));
        }
        let proof = session.terminal().is_verbose() || format.is_some();
        let report = session.client()?.reservation(self.failures, &self.by, proof).await?;
        let value = serde_json::to_value(&report).unwrap_or(Value::Null);
        if !session.print_value(format, &value)? {
            session.terminal().out(&text(session, &report));
        }
        Ok(match report.verdict {
            ReservationVerdict::Survives => Exit::Done,
            ReservationVerdict::Unknown if report.checked == 0 => Exit::Done,
            ReservationVerdict::Unknown | ReservationVerdict::Fails => Exit::Refused,
        })
    }
}

fn text(session: &Session, report: &ReservationReport) -> String {
    let terminal = session.terminal();
    if report.checked == 0 {
        return "There is nothing that could fail: no node is registered, or none bears the label.\n"
            .to_owned();
    }
    let mut table = Table::new(&["FAILS", "VERDICT", "BECAUSE"]);
    for item in &report.items {
        let (word, style) = match item.verdict {
            ReservationVerdict::Survives => ("survives", Style::Good),
            ReservationVerdict::Unknown => ("unknown", Style::Warn),
            ReservationVerdict::Fails => ("fails", Style::Bad),
        };
        table.row(vec![Cell::plain(&item.what), Cell::styled(word, style), Cell::plain(&item.because)]);
        for line in details(item) {
            table.row(vec![Cell::blank(), Cell::blank(), Cell::plain(&line)]);
        }
    }
    let mut text = table.render(terminal, 0);
    text += "\n";
    text += &summary(report);
    text
}

fn summary(report: &ReservationReport) -> String {
    let mut text = if report.message.is_empty() { String::new() } else { format!("{}.\n", report.message) };
    if let Some(tolerance) = report.failure_tolerance {
        text += &match (tolerance, report.failures) {
            (0, _) => "Failure tolerance: 0 nodes.\n".to_owned(),
            (1, 1) => "Failure tolerance: any one node (--failures 2 looks at pairs).\n".to_owned(),
            (1, _) => "Failure tolerance: any one node, not any two.\n".to_owned(),
            (_, _) => "Failure tolerance: any two nodes.\n".to_owned(),
        };
    }
    let counted =
        if report.count_stopped { "stopped services count" } else { "stopped services do not count" };
    text + &format!("{} failures thought through, by {:?}; {counted}.\n", report.checked, report.basis)
}

/// Returns the moves that prove that a failure is survived, or the lacking capacity if it is not.
fn details(item: &FailureReport) -> Vec<String> {
    let moves = item.moves.iter().map(|one| format!("  {}: {} → {}", one.resource, one.from, one.to));
    let room =
        item.make_room.iter().map(|one| format!("  {} makes room: {} → {}", one.resource, one.from, one.to));
    moves.chain(room).chain(item.without_place.iter().flat_map(lacks)).collect()
}

fn lacks(service: &WithoutPlace) -> Vec<String> {
    let mut lines = vec![format!("  {} of {} finds no place", service.resource, service.node)];
    lines.extend(
        service.lacks.iter().map(|lack| format!("    {}: {}: {}", lack.node, lack.reason, lack.message)),
    );
    if service.more > 0 {
        lines.push(format!("    and {} nodes more", service.more));
    }
    lines
}
