//! The report of the N+1 check: each failure with its verdict and evidence.

use crate::core::reservation::{check_failed_message, nodes_named};
use ha_api_types::id::NodeName;
use ha_api_types::view::{
    FailureReport, ReservationLack, ReservationMove, ReservationReport, ReservationVerdict, UnplacedService,
};
use ha_scheduler::View;
use ha_scheduler::reservation::{Certificate, MAX_SEARCH_STEPS, Model, Move, Unplaced, Verdict};
use std::collections::BTreeSet;

/// Limit of candidates that one report examines, which takes some seconds; further failures stay undecided.
const MAX_EFFORT: u64 = 200_000_000;
/// Maximum number of listed failures.
const MAX_LISTED: usize = 2_000;

/// Parameters of the report.
#[derive(Clone, Debug)]
pub(super) struct ReportOptions {
    pub(super) cluster: String,
    pub(super) failures: u32,
    pub(super) proof: bool,
}

impl Default for ReportOptions {
    fn default() -> ReportOptions {
        ReportOptions { cluster: String::new(), failures: 1, proof: false }
    }
}

/// Nodes that fail together.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) failed_part: String,
    pub(super) nodes: BTreeSet<NodeName>,
}

pub(super) fn build_report(view: View, options: &ReportOptions, failures: &[Failure]) -> ReservationReport {
    let (basis, count_stopped) = (view.reservation.basis, view.reservation.count_stopped);
    let model = Model::of(view);
    let single_nodes = failures.iter().all(|failure| failure.failed_part.starts_with("node "));
    let mut builder = ReportBuilder {
        model: &model,
        proof: options.proof,
        effort: 0,
        report: ReservationReport::default(),
    };
    for failure in failures {
        builder.check(failure, true);
    }
    let mut tolerance = u32::from(builder.all_survive());
    if options.failures == 2 {
        for (index, survival_failure) in failures.iter().enumerate() {
            for other in &failures[index + 1..] {
                let nodes: BTreeSet<NodeName> = survival_failure.nodes.union(&other.nodes).cloned().collect();
                let failed_part = format!("nodes {}", nodes.iter().cloned().collect::<Vec<_>>().join(", "));
                builder.check(&Failure { failed_part, nodes }, false);
            }
        }
        tolerance += u32::from(tolerance == 1 && builder.all_survive());
    }
    let mut report = builder.report;
    report.message = message(&options.cluster, &report);
    ReservationReport {
        cluster: options.cluster.clone(),
        basis,
        count_stopped,
        failures: options.failures,
        failure_tolerance: single_nodes.then_some(tolerance),
        ..report
    }
}

/// Returns the summary of failures that are not survived: single nodes if there are any, otherwise sets of nodes.
fn message(cluster: &str, report: &ReservationReport) -> String {
    let fails = |item: &&FailureReport| item.verdict == ReservationVerdict::Fails;
    let failing: Vec<&FailureReport> = report.items.iter().filter(fails).collect();
    let single: Vec<&str> =
        failing.iter().filter_map(|item| item.failed_part.strip_prefix("node ")).collect();
    match (single.is_empty(), failing.is_empty()) {
        (false, _) => check_failed_message(cluster, &nodes_named(single)),
        (true, false) => {
            let labels: Vec<&str> = failing.iter().map(|item| item.failed_part.as_str()).collect();
            check_failed_message(cluster, &labels.join("; "))
        }
        (true, true) => String::new(),
    }
}

struct ReportBuilder<'m> {
    model: &'m Model,
    proof: bool,
    effort: u64,
    report: ReservationReport,
}

impl ReportBuilder<'_> {
    fn all_survive(&self) -> bool {
        self.report.items.iter().all(|item| item.verdict == ReservationVerdict::Survives)
            && self.report.verdict == ReservationVerdict::Survives
    }

    /// Checks a failure. A failure that is survived is listed only if `list` is set.
    fn check(&mut self, failure: &Failure, list: bool) {
        if self.report.checked == 0 {
            self.report.verdict = ReservationVerdict::Survives;
        }
        self.report.checked += 1;
        let mut item = FailureReport {
            failed_part: failure.failed_part.clone(),
            nodes: failure.nodes.iter().cloned().collect(),
            ..FailureReport::default()
        };
        if self.effort >= MAX_EFFORT {
            "not checked within the time limit: request fewer failures".clone_into(&mut item.explanation);
        } else {
            let (verdict, steps) = self.model.check_and_count(&failure.nodes, MAX_SEARCH_STEPS);
            self.effort += steps;
            set_verdict(&mut item, verdict, self.proof);
        }
        self.report.verdict = self.report.verdict.max(item.verdict);
        let survives = item.verdict == ReservationVerdict::Survives;
        if (list || self.proof || !survives) && self.report.items.len() < MAX_LISTED {
            self.report.items.push(item);
        }
    }
}

fn set_verdict(item: &mut FailureReport, verdict: Verdict, proof: bool) {
    match verdict {
        Verdict::Survives(proof_of_survival) => {
            item.verdict = ReservationVerdict::Survives;
            item.explanation = match (proof_of_survival.moves.len(), proof_of_survival.preempted.len()) {
                (0, _) => "no service needs another node".to_owned(),
                (count, 0) => scheduled_elsewhere(count),
                (count, 1) => {
                    format!("{} after 1 service of lower priority is stopped", scheduled_elsewhere(count))
                }
                (count, room) => {
                    format!(
                        "{} after {room} services of lower priority are stopped",
                        scheduled_elsewhere(count)
                    )
                }
            };
            if proof {
                item.moves = moves(proof_of_survival.moves);
                item.preempted = moves(proof_of_survival.preempted);
            }
        }
        Verdict::Fails(failing) => {
            item.verdict = ReservationVerdict::Fails;
            item.explanation = match failing.certificate {
                Certificate::NoNode => "no eligible node".to_owned(),
                Certificate::Capacity { message, .. } | Certificate::AntiAffinity { message } => message,
                Certificate::Exhausted => {
                    "no placement fits all services (all placements checked)".to_owned()
                }
            };
            item.unplaced = failing.services.into_iter().map(unplaced_service).collect();
        }
        Verdict::Unknown(undecided) => {
            item.verdict = ReservationVerdict::Unknown;
            "no placement found within the search limit".clone_into(&mut item.explanation);
            item.unplaced = undecided.into_iter().map(unplaced_service).collect();
        }
    }
}

fn scheduled_elsewhere(count: usize) -> String {
    if count == 1 {
        "1 service can be scheduled on other nodes".to_owned()
    } else {
        format!("{count} services can be scheduled on other nodes")
    }
}

fn moves(moves: Vec<Move>) -> Vec<ReservationMove> {
    moves
        .into_iter()
        .map(|forecast_move| ReservationMove {
            resource: forecast_move.service,
            from: forecast_move.from,
            to: forecast_move.to,
        })
        .collect()
}

fn unplaced_service(service: Unplaced) -> UnplacedService {
    let blocked_nodes = service.blocked_nodes.into_iter().map(|blocked| ReservationLack {
        node: blocked.node,
        reason: blocked.reason,
        message: blocked.message,
    });
    UnplacedService {
        resource: service.service,
        node: service.node,
        lacks: blocked_nodes.collect(),
        omitted: service.omitted,
    }
}
