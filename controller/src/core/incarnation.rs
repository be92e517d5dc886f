//! Identity of etcd's data: the first leader creates the identity, and an operator permits a node to follow it
//! (FENCING, R1.26, R1.32).

use super::plan::{OnApplied, Plan, Subject, serialized};
use super::plan_input::PlanInput;
use ha_api_types::id::NodeName;
use ha_api_types::record::Incarnation;
use ha_store::{Guard, Transaction};

/// Creates the incarnation of data without one: new data, or data of a version that had no incarnations.
pub(super) fn plan(input: &PlanInput<'_>, plan: &mut Plan) {
    let cluster_view = input.cluster_view;
    let key = cluster_view.keys.incarnation();
    if cluster_view.incarnation.is_some() {
        return;
    }
    // The value is unique, because the instance of the process and its term are unique.
    let value = format!("{}-{}", input.config.instance, input.term);
    let incarnation = Incarnation { value, ..Incarnation::default() };
    let transaction = Transaction::new().put(key, Guard::Absent, serialized(&incarnation));
    plan.add_action(Subject::Incarnation, transaction, Vec::new(), OnApplied::None);
}

/// Returns the transaction that allows a node to follow this data, regardless of the data that it followed before.
/// `None` if the node is already allowed to, or if there is no incarnation yet.
pub(super) fn allow_to_follow(input: &PlanInput<'_>, node: &NodeName) -> Option<Transaction> {
    let stored_incarnation = input.cluster_view.incarnation.as_ref()?;
    if stored_incarnation.value.is_followed_by(node) {
        return None;
    }
    let mut incarnation = stored_incarnation.value.clone();
    incarnation.followers.push(node.to_owned());
    let key = input.cluster_view.keys.incarnation();
    Some(Transaction::new().put(
        key,
        Guard::Unchanged(stored_incarnation.mod_revision),
        serialized(&incarnation),
    ))
}
