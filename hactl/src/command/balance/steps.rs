//! The steps of a plan, as text or as JSON.

use super::planned::{GroupPlan, Source};
use ha_scheduler::balance::moves::Operation;
use ha_scheduler::balance::plan::Step;
use serde_json::{Value, json};

/// Returns a numbered line per step: instance, source, target, the score after the step, and the operations.
pub(super) fn text(source: &Source, group_plan: &GroupPlan) -> String {
    let problem = &group_plan.problem;
    let width = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
    let names =
        width(&mut (0..problem.services.len()).map(|service| source.instance(problem, service).len()));
    let placements = 1 + 2 * width(
        &mut (0..problem.nodes.len()).map(|problem_node| source.node_name(problem, problem_node).len()),
    );
    let line = |(step, number): (&Step, usize)| {
        format!(
            "{number:5}. {:names$} {:placements$} => {:placements$} {:12.8} a={}\n",
            source.instance(problem, step.service),
            source.placement(problem, step.from),
            source.placement(problem, step.to),
            step.score,
            operations(source, group_plan, step).join(" ")
        )
    };
    group_plan.plan.steps.iter().zip(1..).map(line).collect()
}

/// Returns a step as JSON.
pub(super) fn json_output(source: &Source, group_plan: &GroupPlan, step: &Step) -> Value {
    let problem = &group_plan.problem;
    let name = |instance_index: usize| source.cluster.instances[instance_index].name.as_str();
    let service = &problem.services[step.service];
    let mut document = json!({
        "instance": name(service.instance),
        "from": source.nodes(problem, step.from),
        "to": source.nodes(problem, step.to),
        "score": step.score,
        "ops": operations(source, group_plan, step),
    });
    if !service.partners.is_empty() {
        document["with"] = service.partners.iter().map(|&instance_index| name(instance_index)).collect();
    }
    document
}

/// Returns the operations of a step in order: `f`, `r:X` and `fa:X`.
pub(crate) fn operations(source: &Source, group_plan: &GroupPlan, step: &Step) -> Vec<String> {
    let node = |problem_node: usize| source.node_name(&group_plan.problem, problem_node);
    let operation = |operation: Operation| match operation {
        Operation::Failover => "f".to_owned(),
        Operation::Replace(problem_node) => format!("r:{}", node(problem_node)),
        Operation::MoveTo(problem_node) => format!("fa:{}", node(problem_node)),
    };
    step.kind.operations(step.from, step.to).into_iter().map(operation).collect()
}
