//! Inventories: the set of objects that one source (such as a Git directory) manages, marked by a label on each object.

use crate::client::{Client, Collection};
use crate::failure::Failure;
use crate::manifest::ManifestObject;
use crate::merge;
use crate::object::AnyObject;
use crate::terminal::Terminal;
use ha_api_types::id::ObjectUid;
use ha_api_types::kind::Kind;
use ha_api_types::meta::ObjectMeta;
use serde_json::{Value, json};

/// Label with the name of the inventory to which an object belongs.
pub(crate) const INVENTORY_LABEL: &str = "hactl.io/inventory";

/// Kinds that prune deletes, in this order. Nodes register themselves, and the cluster is a single object, so neither
/// is pruned.
const PRUNABLE_KINDS: [Kind; 4] = [Kind::Resource, Kind::AffinityRule, Kind::Group, Kind::NodeGroup];

/// An object of the inventory that the files no longer contain.
pub(crate) struct PruneCandidate {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) uid: ObjectUid,
}

/// Marks all objects as members of an inventory.
///
/// # Errors
/// Fails if the name is not a valid label, or if a live object belongs to another inventory, because the two sources
/// would undo each other's changes.
pub(crate) fn add_to_inventory(
    name: &str,
    entries: &mut [ManifestObject],
    live_objects: &[Option<Value>],
) -> Result<(), Failure> {
    check_name("--inventory", name)?;
    let mut conflicts = Vec::new();
    for (entry, live) in entries.iter().zip(live_objects) {
        let metadata = live.as_ref().map(|live| AnyObject::from_value(live).metadata).unwrap_or_default();
        if let Some(owner) = inventory_of(&metadata).filter(|owner| *owner != name) {
            conflicts.push(format!(
                "{}: {} belongs to inventory {owner}",
                entry.location,
                entry.display_name()
            ));
        }
    }
    if !conflicts.is_empty() {
        return Err(Failure::failed(conflicts.join("\n")).help(format!(
            "nothing was changed; to take over the object, remove its label {INVENTORY_LABEL} first"
        )));
    }
    for entry in entries {
        merge::apply(&mut entry.object, &json!({"metadata": {"labels": {INVENTORY_LABEL: name}}}));
    }
    Ok(())
}

/// Checks the name of an inventory, which is given by this argument.
///
/// # Errors
/// Fails if the name is not a valid label.
pub(crate) fn check_name(argument: &str, name: &str) -> Result<(), Failure> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if bytes.len() > 63
        || !bytes.iter().copied().all(is_allowed)
        || !is_alphanumeric(bytes.first())
        || !is_alphanumeric(bytes.last())
    {
        return Err(Failure::usage(format!("{argument}: {name:?} is not a valid name"))
            .help("use up to 63 letters, digits, -, _ and ., with a letter or digit at both ends"));
    }
    Ok(())
}

/// Returns the objects of the inventory that are not among the entries.
pub(crate) async fn prune_candidates(
    client: &Client,
    name: &str,
    entries: &[ManifestObject],
    terminal: &Terminal,
) -> Result<Vec<PruneCandidate>, Failure> {
    let mut prune_candidates = Vec::new();
    for kind in PRUNABLE_KINDS.into_iter().chain([Kind::Node, Kind::Cluster]) {
        let list = client
            .list(Collection::Kind(kind), &[("labelSelector", format!("{INVENTORY_LABEL}={name}"))])
            .await?;
        for object in list.items {
            let metadata = AnyObject::from_value(&object).metadata;
            let is_in_files = entries.iter().any(|entry| entry.kind == kind && entry.name == metadata.name);
            // A server that ignores the label selector must not cause the deletion of other objects.
            if is_in_files || inventory_of(&metadata) != Some(name) || metadata.deletion_timestamp.is_some() {
                continue;
            }
            if !PRUNABLE_KINDS.contains(&kind) {
                terminal.warn(&format!(
                    "{}/{} is no longer in the files; objects of this kind are never pruned",
                    kind.singular(),
                    metadata.name
                ));
                continue;
            }
            prune_candidates.push(PruneCandidate { kind, name: metadata.name, uid: metadata.uid });
        }
    }
    Ok(prune_candidates)
}

fn inventory_of(metadata: &ObjectMeta) -> Option<&str> {
    metadata.labels.get(INVENTORY_LABEL).map(String::as_str)
}
