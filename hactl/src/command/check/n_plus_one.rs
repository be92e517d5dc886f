//! `hactl check n+1`: checks the failover capacity, that is, whether all services could still run if nodes failed now.

use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::view::{FailureReport, ReservationReport, ReservationVerdict, UnplacedService};
use serde_json::Value;

/// Check that all services can be scheduled after any node failure
#[derive(Args, Debug)]
#[command(after_help = "Capacity, rules, storage and priorities are checked together.\n\n\
        Exit status: 0 services survive every failure; 1 they do not, or the check has no result; 3 unreachable; \
        4 permission denied.")]
pub(crate) struct NPlusOne {
    /// Number of simultaneous node failures; 2 checks every pair
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    failures: u32,
    /// Failure domain: node, group (node group), or a node label
    #[arg(long = "by", value_name = "node|group|LABEL", default_value = "node")]
    domain: String,
    /// Show the node on which each service would run
    #[arg(long)]
    show_placement: bool,
}

impl NPlusOne {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        if self.failures == 2 && self.domain != "node" {
            return Err(Failure::usage("--failures 2 cannot be combined with --by"));
        }
        let proof = self.show_placement || format.is_some();
        let report = session.client()?.reservation(self.failures, &self.domain, proof).await?;
        if report.checked == 0 && !["node", "group"].contains(&self.domain.as_str()) {
            return Err(Failure::failed(format!("no registered node has the label {}", self.domain))
                .help("run \"hactl get nodes --show-labels\""));
        }
        let value = serde_json::to_value(&report).unwrap_or(Value::Null);
        if !session.print_value(format, &value)? {
            session.terminal().print(&text(session, &report));
        }
        Ok(match report.verdict {
            ReservationVerdict::Survives => Exit::Done,
            ReservationVerdict::Unknown if report.checked == 0 => Exit::Done,
            ReservationVerdict::Unknown | ReservationVerdict::Fails => Exit::Failed,
        })
    }
}

fn text(session: &Session, report: &ReservationReport) -> String {
    let terminal = session.terminal();
    if report.checked == 0 {
        return "Nothing to check: no node has registered.\n".to_owned();
    }
    let mut table = Table::new(&["FAILURE", "VERDICT", "REASON"]);
    for item in &report.items {
        let (word, style) = match item.verdict {
            ReservationVerdict::Survives => ("survives", Style::Good),
            ReservationVerdict::Unknown => ("unknown", Style::Warn),
            ReservationVerdict::Fails => ("fails", Style::Bad),
        };
        table.add_row(vec![
            Cell::plain(&item.failed_part),
            Cell::styled(word, style),
            Cell::plain(&item.explanation),
        ]);
        for line in details(item) {
            table.add_row(vec![Cell::blank(), Cell::blank(), Cell::plain(&line)]);
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
            (1, 1) => "Failure tolerance: any 1 node (--failures 2 checks pairs).\n".to_owned(),
            (1, _) => "Failure tolerance: any 1 node, not any 2 nodes.\n".to_owned(),
            (_, _) => "Failure tolerance: any 2 nodes.\n".to_owned(),
        };
    }
    let counted =
        if report.count_stopped { "stopped services included" } else { "stopped services excluded" };
    text + &format!("Simulated failures: {} (basis: {:?}; {counted}).\n", report.checked, report.basis)
}

/// Returns the moves that show that the cluster survives a failure, or the missing capacity if it does not.
fn details(item: &FailureReport) -> Vec<String> {
    let moves = item.moves.iter().map(|service_move| {
        format!("  {}: {} → {}", service_move.resource, service_move.from, service_move.to)
    });
    let moves_to_free_capacity = item.preempted.iter().map(|service_move| {
        format!(
            "  {} moves to free capacity: {} → {}",
            service_move.resource, service_move.from, service_move.to
        )
    });
    moves.chain(moves_to_free_capacity).chain(item.unplaced.iter().flat_map(unplaced_lines)).collect()
}

fn unplaced_lines(service: &UnplacedService) -> Vec<String> {
    let mut lines = vec![format!("  {} of {}: no eligible node", service.resource, service.node)];
    lines.extend(
        service.lacks.iter().map(|lack| format!("    {}: {}: {}", lack.node, lack.reason, lack.message)),
    );
    if service.omitted > 0 {
        lines.push(format!("    and {} more", service.omitted));
    }
    lines
}
