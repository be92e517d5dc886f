//! `hactl evacuate`: plans moves for all instances on some nodes.

use super::group::input::{ClusterInput, LoadedCluster};
use super::group::moves::{Moves, PlanOutput};
use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::session::Session;
use clap::Args;
use ha_scheduler::balance::groups::AllGroups;
use ha_scheduler::balance::groups::evacuate::{EvacuatedCopies, Evacuation, evacuate};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Plan the move of all services away from nodes
#[derive(Args, Debug)]
#[command(
    after_help = "Targets in the same group are preferred. Moves to another group are printed as (group, nodes), and are part of -C, -S and \
        --apply only with --inter-group.\n\n\
        Exit status: 0 all services can be moved; 1 some cannot; 2 invalid input. With --apply, also 1 if a move failed or the command was interrupted."
)]
pub(crate) struct Evacuate {
    /// Names of the nodes
    #[arg(value_name = "NODE", required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    input: ClusterInput,
    #[command(flatten)]
    output: PlanOutput,
    /// Include moves to other groups in -C, -S and --apply
    #[arg(long)]
    inter_group: bool,
    /// Move only the primaries of instances away from the nodes
    #[arg(long, conflicts_with = "secondary_only")]
    primary_only: bool,
    /// Move only the secondaries of instances away from the nodes
    #[arg(long)]
    secondary_only: bool,
}

impl Evacuate {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let loaded = self.input.read(session).await?;
        for name in &self.nodes {
            if !loaded.cluster.nodes.iter().any(|node| node.name == *name) {
                return Err(Failure::failed(format!("node {name:?} not found")));
            }
        }
        let names: BTreeSet<String> = self.nodes.iter().cloned().collect();
        if loaded.is_live {
            for name in names.difference(&loaded.settings.drained) {
                session.terminal().warn(&format!(
                    "node/{name} is not cordoned, so services that prefer the node move back; run \"hactl cordon {name}\" \
                     first"
                ));
            }
        }
        let all_groups = loaded.all_groups_without(&names);
        let problem_nodes: Vec<usize> = (0..all_groups.problem.nodes.len())
            .filter(|&problem_node| names.contains(all_groups.node_name(problem_node)))
            .collect();
        let evacuated_copies = match (self.primary_only, self.secondary_only) {
            (true, _) => EvacuatedCopies::Primaries,
            (false, true) => EvacuatedCopies::Secondaries,
            (false, false) => EvacuatedCopies::All,
        };
        let evacuation = evacuate(&all_groups, &problem_nodes, evacuated_copies);
        let all_moves: Vec<_> = evacuation.inside.iter().chain(&evacuation.outside).cloned().collect();
        let moves = Moves::new(&loaded, &all_groups, &all_moves);
        let value = moves.with_moves(json_output(&names, &all_groups, &evacuation));
        let rendered = (self.text(&loaded, &all_groups, &evacuation, &moves), value);
        let applied_moves = if self.inter_group { &all_moves } else { &evacuation.inside };
        let applied_moves = Moves::new(&loaded, &all_groups, applied_moves);
        applied_moves.output_and_apply(session, &self.output, "hactl evacuate", format, rendered).await?;
        Ok(if evacuation.immovable.is_empty() { Exit::Done } else { Exit::Failed })
    }

    fn text(
        &self,
        loaded: &LoadedCluster,
        all_groups: &AllGroups<'_>,
        evacuation: &Evacuation,
        moves: &Moves<'_>,
    ) -> String {
        let mut text = moves.text();
        for stuck in &evacuation.immovable {
            text += &format!(
                "{}: no eligible node: {}\n",
                all_groups.service_name(stuck.service),
                stuck.reasons(all_groups)
            );
        }
        if text.is_empty() {
            return "Nothing to move.\n".to_owned();
        }
        text += &moves.cost();
        if !evacuation.outside.is_empty() && !self.inter_group {
            text += &format!(
                "{} of them between groups, applied only with --inter-group\n",
                evacuation.outside.len()
            );
        }
        let has_several_groups = loaded.cluster.groups.len() > 1;
        if !evacuation.immovable.is_empty() && has_several_groups && !all_groups.inter_group_moves {
            text += "Moves between groups are disabled.\n";
        }
        text
    }
}

fn json_output(nodes: &BTreeSet<String>, all_groups: &AllGroups<'_>, evacuation: &Evacuation) -> Value {
    let stuck = evacuation.immovable.iter().map(
        |stuck| json!({ "instance": all_groups.service_name(stuck.service), "reason": stuck.reasons(all_groups) }),
    );
    json!({ "nodes": nodes, "unplaced": stuck.collect::<Vec<_>>() })
}
