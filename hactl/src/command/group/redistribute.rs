//! `hactl group redistribute`: plans moves out of unhealthy groups.

use super::check::{health_words, reason_text, unhealthy_nodes};
use super::input::{ClusterInput, LoadedCluster};
use super::moves::{Moves, PlanOutput};
use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::session::Session;
use clap::Args;
use ha_scheduler::balance::groups::redistribute::{Redistribution, RedistributionFailure, redistribute};
use ha_scheduler::balance::groups::{AllGroups, check::Health};
use serde_json::{Value, json};

/// Plan moves out of unhealthy groups
#[derive(Args, Debug)]
#[command(
    after_help = "Instances are moved in this order: instances on offline nodes, secondaries on nodes that fail N+1, primaries on nodes \
        that fail N+1. Targets are healthy groups with the same storage: preferred groups first. Unallocable groups are excluded.\n\n\
        If instances of offline nodes fit only on nodes that then fail N+1, they are moved there, and the groups of these nodes are listed.\n\n\
        Exit status: 0 all groups are healthy, or become healthy; 1 not possible; 2 invalid input. With --apply, also 1 if a move failed or the command was interrupted."
)]
pub(super) struct Redistribute {
    #[command(flatten)]
    input: ClusterInput,
    #[command(flatten)]
    output: PlanOutput,
}

impl Redistribute {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let loaded = self.input.read(session).await?;
        let all_groups = loaded.all_groups();
        let redistribution = redistribute(&all_groups);
        let moved = redistribution.result.as_deref().unwrap_or_default();
        let moves = Moves::new(&loaded, &all_groups, moved);
        let rendered = (
            text(&loaded, &all_groups, &redistribution, &moves),
            moves.with_moves(json_output(&loaded, &all_groups, &redistribution)),
        );
        moves.output_and_apply(session, &self.output, "hactl group redistribute", format, rendered).await?;
        Ok(if redistribution.repairs_all() { Exit::Done } else { Exit::Failed })
    }
}

fn text(
    loaded: &LoadedCluster,
    all_groups: &AllGroups<'_>,
    redistribution: &Redistribution,
    moves: &Moves<'_>,
) -> String {
    if redistribution.unhealthy.is_empty() {
        return "All groups are healthy. Nothing to move.\n".to_owned();
    }
    let health_line = |(group, health): &(usize, Health), when: &str| {
        let (_, health_word, _) = health_words(health);
        format!("Group {} is {health_word}{when}: {}\n", loaded.group(*group), reason_text(loaded, health))
    };
    let mut text: String = redistribution.unhealthy.iter().map(|group| health_line(group, "")).collect();
    for (group, reason) in &redistribution.skipped {
        text += &format!("Group {} is skipped: {reason}\n", loaded.group(*group));
    }
    match &redistribution.result {
        Err(blocked) => {
            text += &format!("Cannot redistribute: {}\n", blocked_reason(loaded, all_groups, blocked));
        }
        Ok(moved) if moved.is_empty() => {}
        Ok(_) => {
            text += &moves.text();
            text += &moves.cost();
            text.extend(redistribution.remaining.iter().map(|group| health_line(group, " after the moves")));
        }
    }
    text
}

fn blocked_reason(
    loaded: &LoadedCluster,
    all_groups: &AllGroups<'_>,
    blocked: &RedistributionFailure,
) -> String {
    match blocked {
        RedistributionFailure::NothingHealthy => "no healthy group accepts instances".to_owned(),
        RedistributionFailure::NoEligibleGroup { group, no_eligible_group } => {
            let (instance, group) =
                (all_groups.service_name(no_eligible_group.service), loaded.group(*group));
            format!(
                "no eligible node for {instance} of group {group}: {}",
                no_eligible_group.reasons(all_groups)
            )
        }
        RedistributionFailure::StillFailing { group, nodes } => format!(
            "group {} has no more instances whose move would fix N+1 on {}",
            loaded.group(*group),
            loaded.nodes(nodes).join(", ")
        ),
    }
}

fn json_output(loaded: &LoadedCluster, all_groups: &AllGroups<'_>, redistribution: &Redistribution) -> Value {
    let group_document = |(group, health): &(usize, Health)| {
        let (offline, failing) = unhealthy_nodes(health);
        json!({
            "group": loaded.group(*group),
            "health": health_words(health).0,
            "offlineNodes": loaded.nodes(offline),
            "failingNodes": loaded.nodes(failing),
        })
    };
    let skipped = redistribution
        .skipped
        .iter()
        .map(|(group, reason)| json!({ "group": loaded.group(*group), "reason": reason.to_string() }));
    json!({
        "unhealthy": redistribution.unhealthy.iter().map(group_document).collect::<Vec<_>>(),
        "skipped": skipped.collect::<Vec<_>>(),
        "blocked": redistribution.result.as_ref().err().map(|blocked| blocked_reason(loaded, all_groups, blocked)),
        "remaining": redistribution.remaining.iter().map(group_document).collect::<Vec<_>>(),
        "heals": redistribution.repairs_all(),
    })
}
