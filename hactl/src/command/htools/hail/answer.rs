//! The answers of hail: JSON with success, information and result.

use ha_scheduler::balance::htools::evacuation::{Evacuation, MovedInstance, Step};
use ha_scheduler::balance::htools::group_choice::node_names;
use ha_scheduler::balance::model::Cluster;
use serde_json::{Value, json};

/// The fields of an answer, and the cluster after the changes.
pub(super) struct Answer {
    pub(super) cluster: Cluster,
    pub(super) information: String,
    pub(super) result: Value,
}

/// Returns the line for standard output.
pub(super) fn line(answer: Result<&Answer, &String>) -> String {
    let value = match answer {
        Ok(Answer { information, result, .. }) => {
            json!({ "success": true, "info": format!("Request successful: {information}"), "result": result })
        }
        Err(reason) => json!({ "success": false, "info": format!("Request failed: {reason}"), "result": [] }),
    };
    value.to_string()
}

/// Returns the answer about moved instances.
pub(super) fn moves(cluster: &Cluster, evacuation: Evacuation) -> Answer {
    let name = |index: usize| cluster.instances[index].name.as_str();
    let moved: Vec<Value> = evacuation
        .moved
        .iter()
        .map(|moved| {
            let group = cluster.nodes[moved.nodes.0].group;
            json!([name(moved.instance), cluster.groups[group].name, node_names(cluster, moved.nodes)])
        })
        .collect();
    let failed: Vec<Value> =
        evacuation.failed.iter().map(|(index, reason)| json!([name(*index), reason])).collect();
    let jobs: Vec<Value> = evacuation.moved.iter().map(|moved| job(cluster, moved)).collect();
    let information =
        format!("{} instances failed to move and {} were moved successfully", failed.len(), moved.len());
    Answer { cluster: evacuation.cluster, information, result: json!([moved, failed, jobs]) }
}

/// Returns the operations of a move.
fn job(cluster: &Cluster, moved: &MovedInstance) -> Value {
    let instance = &cluster.instances[moved.instance];
    let name = instance.name.as_str();
    let node = |node: usize| cluster.nodes[node].name.as_str();
    let failover = |target: Option<usize>| {
        let mut operation = if instance.forthcoming {
            json!({ "OP_ID": "OP_INSTANCE_FAILOVER", "instance_name": name, "shutdown_timeout": 120,
                "ignore_consistency": false })
        } else {
            json!({ "OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": name })
        };
        let further = if instance.forthcoming {
            json!({ "ignore_ipolicy": false, "cleanup": false })
        } else {
            json!({ "allow_runtime_changes": false, "ignore_ipolicy": false, "cleanup": false,
                "allow_failover": true, "ignore_hvversions": true })
        };
        if let (Value::Object(operation), Value::Object(further)) = (&mut operation, further) {
            if let Some(target) = target {
                operation.insert("target_node".to_owned(), json!(node(target)));
            }
            operation.extend(further);
        }
        operation
    };
    let operation = |step: &Step| match step {
        Step::Failover => failover(None),
        Step::FailoverTo(target) => failover(Some(*target)),
        Step::ReplaceSecondary(target) => json!({
            "OP_ID": "OP_INSTANCE_REPLACE_DISKS", "instance_name": name, "early_release": false,
            "ignore_ipolicy": false, "mode": "replace_new_secondary", "disks": [], "remote_node": node(*target)
        }),
    };
    moved.steps.iter().map(operation).collect()
}
