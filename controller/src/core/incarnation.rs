//! Identity of etcd's data: the first leader creates it, and an operator lets a node follow it (FENCING, R1.26,
//! R1.32).

use super::plan::{Note, Plan, Subject, stored};
use super::situation::Situation;
use ha_api_types::id::NodeName;
use ha_api_types::record::Incarnation;
use ha_store::{Guard, Transaction};

/// Creates the incarnation of data without one: new data, or data of a version that had no incarnations.
pub(super) fn plan(situation: &Situation<'_>, plan: &mut Plan) {
    let world = situation.world;
    let key = world.keys.incarnation();
    if world.incarnation.is_some() {
        return;
    }
    // Unique, because the instance of the process and its term are unique.
    let value = format!("{}-{}", situation.config.instance, situation.term);
    let incarnation = Incarnation { value, ..Incarnation::default() };
    let transaction = Transaction::new().put(key, Guard::Absent, stored(&incarnation));
    plan.act(Subject::Incarnation, transaction, Vec::new(), Note::None);
}

/// Returns the transaction that allows a node to follow this data, regardless of the data that it followed before.
/// `None` if the node is already allowed to, or if there is no incarnation yet.
pub(super) fn let_follow(situation: &Situation<'_>, node: &NodeName) -> Option<Transaction> {
    let known = situation.world.incarnation.as_ref()?;
    if known.value.is_followed_by(node) {
        return None;
    }
    let mut incarnation = known.value.clone();
    incarnation.followers.push(node.to_owned());
    let key = situation.world.keys.incarnation();
    Some(Transaction::new().put(key, Guard::Unchanged(known.modified), stored(&incarnation)))
}
