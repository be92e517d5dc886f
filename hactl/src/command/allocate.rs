//! `hactl allocate`: ranks all groups and nodes for a new service, with reasons.

use super::group::input::{ClusterInput, LoadedCluster};
use super::group::size::{self, size_text};
use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::render::cpus::cpus;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::names::count_with_noun;
use ha_scheduler::balance::groups::allocate::{GroupCandidate, NodeCandidate, ScoredSecondary, allocate};
use ha_scheduler::balance::groups::new_service::NewService;
use ha_scheduler::balance::groups::partition::template_name;
use ha_scheduler::balance::model::Allocation;
use serde_json::{Value, json};

/// Rank node groups and nodes for a new service
#[derive(Args, Debug)]
#[command(
    after_help = "SPEC is memory=4Gi,disk=100Gi,vcpus=2 (also template=, tags=A+B, spindles=), or 100g,4g,2 for disk, memory and vCPUs.\n\
        Preferred groups rank before last-resort groups; unallocable groups are excluded. Among groups of the same policy, the lowest score is best.\n\n\
        Exit status: 0 at least one node is eligible; 1 no node is eligible; 2 invalid input."
)]
pub(crate) struct Allocate {
    /// Size of the service
    #[arg(value_name = "SPEC")]
    spec: String,
    #[command(flatten)]
    input: ClusterInput,
    /// Show all nodes of each group, not only the first 10
    #[arg(long)]
    show_placement: bool,
}

/// Number of nodes of a group that are printed without --show-placement.
const DEFAULT_SHOWN_NODES: usize = 10;

impl Allocate {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let loaded = self.input.read(session).await?.without_unknown_limits();
        let new_service = size::parse_size(&self.spec, &loaded)?;
        let candidates = allocate(&loaded.cluster, &loaded.settings, &new_service);
        if format.is_some() {
            session.print_value(format, &json_output(&loaded, &new_service, &candidates))?;
        } else {
            let max_nodes = if self.show_placement { usize::MAX } else { DEFAULT_SHOWN_NODES };
            session.terminal().print(&text(session, &loaded, &new_service, &candidates, max_nodes));
        }
        let is_allocatable = candidates.iter().any(|candidate| candidate.best().is_some());
        Ok(if is_allocatable { Exit::Done } else { Exit::Failed })
    }
}

fn text(
    session: &Session,
    loaded: &LoadedCluster,
    new_service: &NewService,
    candidates: &[GroupCandidate],
    max_nodes: usize,
) -> String {
    let mut text = format!("New service: {}\n", size_text(new_service));
    let mut table = Table::new(&["RANK", "GROUP", "POLICY", "NODES", "SCORE", "REASON"]);
    let mut rank = 0;
    for candidate in candidates {
        let group = loaded.group(candidate.group);
        let policy = policy_name(candidate.allocation);
        if let Some(refusal) = &candidate.refusal {
            let reason = Cell::styled(&refusal.to_string(), Style::Bad);
            table.add_row(
                vec!["-", group, policy, "-", "-"].into_iter().map(Cell::plain).chain([reason]).collect(),
            );
            continue;
        }
        for node in candidate.nodes.iter().take(max_nodes) {
            let name = &loaded.cluster.nodes[node.node].name;
            let cells = match &node.best {
                Ok(scored) => {
                    rank += 1;
                    let score = format!("{:.8}", scored.score);
                    let nodes = placement_names(loaded, node, scored).join(":");
                    [rank.to_string(), nodes, score, String::new()]
                }
                Err(shortage) => ["-".to_owned(), name.clone(), "-".to_owned(), shortage.to_string()],
            };
            let [rank, nodes, score, reason] = cells;
            table.add_row(vec![
                Cell::plain(&rank),
                Cell::plain(group),
                Cell::plain(policy),
                Cell::plain(&nodes),
                Cell::plain(&score),
                Cell::styled(&reason, Style::Bad),
            ]);
        }
        // The omitted nodes keep their ranks.
        rank += candidate.nodes.iter().skip(max_nodes).filter(|node| node.best.is_ok()).count();
        if candidate.nodes.len() > max_nodes {
            let omitted_nodes = count_with_noun(candidate.nodes.len() - max_nodes, "more node");
            let omitted_nodes = format!("{omitted_nodes}: add --show-placement");
            table.add_row(["", group, "", &omitted_nodes, "", ""].into_iter().map(Cell::plain).collect());
        }
    }
    text += &table.render(session.terminal(), 0);
    if !candidates.iter().any(|candidate| candidate.best().is_some()) {
        text += "No eligible node.\n";
    }
    text
}

fn policy_name(allocation: Allocation) -> &'static str {
    match allocation {
        Allocation::Preferred => "Preferred",
        Allocation::LastResort => "LastResort",
        Allocation::Unallocable => "Unallocable",
    }
}

fn placement_names<'a>(
    loaded: &'a LoadedCluster,
    node: &NodeCandidate,
    scored: &ScoredSecondary,
) -> Vec<&'a str> {
    let nodes: Vec<usize> = [Some(node.node), scored.secondary].into_iter().flatten().collect();
    loaded.nodes(&nodes)
}

fn json_output(loaded: &LoadedCluster, new_service: &NewService, candidates: &[GroupCandidate]) -> Value {
    let node = |node: &NodeCandidate| {
        let (nodes, score, reason) = match &node.best {
            Ok(scored) => (Some(placement_names(loaded, node, scored)), Some(scored.score), None),
            Err(shortage) => (None, None, Some(shortage.to_string())),
        };
        json!({ "node": loaded.cluster.nodes[node.node].name, "nodes": nodes, "score": score, "reason": reason })
    };
    let groups = candidates.iter().map(|candidate| {
        json!({
            "group": loaded.group(candidate.group),
            "allocationPolicy": policy_name(candidate.allocation),
            "score": candidate.best().map(|scored| scored.score),
            "reason": candidate.refusal.as_ref().map(ToString::to_string),
            "nodes": candidate.nodes.iter().map(node).collect::<Vec<_>>(),
        })
    });
    json!({ "size": size_value(new_service), "groups": groups.collect::<Vec<_>>() })
}

/// Returns a size for machine-readable output.
pub(super) fn size_value(size: &NewService) -> Value {
    json!({
        "memory": size.memory,
        "disk": size.disk,
        "vcpus": cpus(size.vcpus, size.nodes.is_some()),
        "template": size.nodes.is_none().then(|| template_name(size.template)),
        "spindles": size.spindle_use,
        "tags": size.tags,
    })
}
