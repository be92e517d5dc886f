//! Tests of values that one version writes and another cannot read (FENCING, section 1): upgrades in both orders of
//! controllers and agents, and rollbacks.

use super::fencing::running_on;
use super::lab::{Lab, Lens};
use crate::core::world::ClusterView;
use ha_api_types::cluster::{CLUSTER_NAME, ClusterSpec, ClusterStatus, Disarmed};
use ha_api_types::id::{Epoch, Revision};
use ha_api_types::keys::{Key, Keys};
use ha_api_types::kind::Kind;
use ha_api_types::node::NodeSpec;
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::protocol::Protocol;
use ha_api_types::reason::Reason;
use ha_api_types::record::FenceState;
use ha_api_types::resource::ServiceState;
use ha_api_types::time::MonotonicTime;
use ha_store::Entry;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A word of a future version.
const NOVEL: &str = "Novel";

/// Location of a word: the type of the key, and the field as a JSON pointer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WordLocation {
    key_type: String,
    field: String,
}

/// Returns the type of a key, which is the same for all nodes and resources.
fn key_type(keys: &Keys, key: &str) -> Option<String> {
    Some(match keys.parse(key)? {
        Key::Spec(kind, _) => format!("spec/{}", kind.singular()),
        Key::Status(kind, _) => format!("status/{}", kind.singular()),
        Key::Assignment(_) => "assignment".to_owned(),
        Key::Tombstone(_) => "tombstone".to_owned(),
        Key::Fence(_) => "fence".to_owned(),
        Key::Alive(_) => "alive".to_owned(),
        Key::NodeReport(_) => "report/node".to_owned(),
        Key::ServiceReport(..) => "report/resource".to_owned(),
        Key::Candidate(_) => "candidate".to_owned(),
        Key::Refresh(_) => "refresh".to_owned(),
        Key::NotificationRecord
        | Key::Backup
        | Key::RestoreMarker
        | Key::Incarnation
        | Key::Leader
        | Key::DoctorReport(_)
        | Key::UsageReport(_)
        | Key::Event(..)
        | Key::LogRequest(..)
        | Key::JoinToken(..)
        | Key::IssuedCertificate(..)
        | Key::LogAnswer(..) => {
            return None;
        }
    })
}

fn with_changed_value(entry: &Entry, change: impl FnOnce(&mut Value)) -> Entry {
    let mut value: Value = serde_json::from_slice(&entry.value).expect("records are JSON");
    change(&mut value);
    Entry { value: value.to_string().into_bytes().into(), ..entry.clone() }
}

/// Returns the lens of a version that cannot read the words at this location: in every entry, or only in entries that
/// were written up to a revision.
fn unreadable_word_lens(keys: &Keys, location: &WordLocation, until: Option<Revision>) -> Lens {
    let (keys, location) = (keys.clone(), location.clone());
    Rc::new(move |entry| {
        let matches_location = key_type(&keys, &entry.key).as_ref() == Some(&location.key_type)
            && until.is_none_or(|until| entry.mod_revision <= until);
        if !matches_location {
            return entry.clone();
        }
        with_changed_value(entry, |value| {
            if let Some(word) = value.pointer_mut(&location.field) {
                *word = json!(NOVEL);
            }
        })
    })
}

fn word_at(key_type: &str, field: &str) -> WordLocation {
    WordLocation { key_type: key_type.to_owned(), field: field.to_owned() }
}

/// Collects the pointers of all strings in a value.
pub(super) fn strings(value: &Value, prefix: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(prefix.to_owned()),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                strings(item, &format!("{prefix}/{index}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                strings(field, &format!("{prefix}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_readable(keys: &Keys, entry: &Entry) -> bool {
    let mut cluster_view = ClusterView::new(keys.clone());
    cluster_view.replace(vec![entry.clone()], entry.mod_revision, MonotonicTime(0));
    cluster_view.unreadable.is_empty()
}

/// Returns records of a varied history: starts, a lost node, fencing without a device, an operation, a disarmed
/// cluster.
fn samples() -> (Keys, Vec<Entry>) {
    let (mut lab, node) = running_on(&["node1", "node2", "node3"]);
    let mut samples = Vec::new();
    let mut take = |lab: &Lab| samples.extend(lab.state.list(lab.keys.root()).entries);
    take(&lab);
    let spec = OperationSpec {
        action: OperationAction::Migrate,
        resource: Some("web".to_owned()),
        node: ["node1", "node2"].into_iter().find(|name| *name != node).map(Into::into),
        ..OperationSpec::default()
    };
    lab.create_operation("move", spec);
    for _ in 0..20 {
        lab.step();
        take(&lab);
    }
    lab.run_until(20_000, "moved", |lab| lab.operation("move").phase == OperationPhase::Succeeded);
    let node = lab.status("web").node.unwrap_or(node);
    lab.agent(&node).power_off();
    for _ in 0..150 {
        lab.step();
        take(&lab);
    }
    lab.edit::<ClusterSpec>(CLUSTER_NAME, |cluster| cluster.spec.disarmed = Some(Disarmed::Freeze));
    lab.run(3_000);
    take(&lab);
    (lab.keys.clone(), samples)
}

/// Returns the locations of all stored words: strings that make the value unreadable if they are replaced.
fn stored_words() -> BTreeSet<WordLocation> {
    let (keys, samples) = samples();
    let mut locations = BTreeSet::new();
    for entry in samples {
        let Some(key_type) = key_type(&keys, &entry.key) else { continue };
        assert!(is_readable(&keys, &entry), "{entry:?}");
        let value: Value = serde_json::from_slice(&entry.value).expect("records are JSON");
        let mut pointers = Vec::new();
        strings(&value, "", &mut pointers);
        for field in pointers {
            let location = WordLocation { key_type: key_type.clone(), field };
            if locations.contains(&location) {
                continue;
            }
            if !is_readable(&keys, &unreadable_word_lens(&keys, &location, None)(&entry)) {
                locations.insert(location);
            }
        }
    }
    locations
}

#[test]
fn an_unknown_field_keeps_a_value_readable() {
    fn add(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.values_mut().for_each(add);
                fields.insert("novel".to_owned(), json!({"of": ["a", "version", "to", "come"]}));
            }
            Value::Array(items) => items.iter_mut().for_each(add),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let (keys, samples) = samples();
    for entry in samples {
        // Specs and statuses contain maps in which every key is valid, such as labels and quantities.
        if key_type(&keys, &entry.key)
            .is_none_or(|key_type| key_type.starts_with("spec") || key_type.starts_with("status"))
        {
            continue;
        }
        let more = with_changed_value(&entry, add);
        let fails = String::from_utf8_lossy(&more.value).into_owned();
        assert!(is_readable(&keys, &more), "{} {fails}", more.key);
    }
    let request = json!({"candidate": "c0", "sentSequence": 3, "bootId": "b", "epoch": 2, "novel": {"a": 1}});
    let request: ha_api_types::record::HoldRequest =
        serde_json::from_value(request).expect("a request with an unknown field is readable");
    assert_eq!((request.epoch, request.sent_sequence), (Epoch(2), 3));
}

/// For each stored word, a version that cannot read the word causes neither a second copy nor a lost failover. The
/// services recover once every process has the same version again.
#[test]
fn unknown_enum_values_cause_no_second_copy() {
    let locations = stored_words();
    for known in [
        "fence",
        "alive",
        "assignment",
        "report/node",
        "report/resource",
        "status/resource",
        "status/cluster",
    ] {
        assert!(
            known == "alive" || locations.iter().any(|location| location.key_type == known),
            "no word in {known}: {locations:?}"
        );
    }
    assert!(locations.len() > 25, "{locations:?}");
    for location in &locations {
        upgrade_agents_first(location);
        roll_back_after_unknown_word(location);
    }
}

/// Agents and a former leader write the word, and the current leader cannot read it. A node dies. Then the upgrade
/// ends.
fn upgrade_agents_first(location: &WordLocation) {
    let (mut lab, node) = running_on(&["node1", "node2", "node3"]);
    lab.replace_controller(0, "old", Some(unreadable_word_lens(&lab.keys, location, None)));
    // Keys of the leader are excluded, because a leader can read every word that it writes. A leader that could not
    // would rewrite its keys without end in this test.
    let own = ["fence", "assignment", "tombstone", "status/"]
        .iter()
        .any(|key_type| location.key_type.starts_with(key_type));
    if own {
        return;
    }
    lab.run(10_000);
    lab.agent(&node).power_off();
    lab.run(30_000);
    lab.replace_controller(0, "new", None);
    lab.run_until(60_000, &format!("{location:?}: recovered"), |lab| {
        lab.is_in_state("web", ServiceState::Started) && lab.running_nodes("web").len() == 1
    });
    assert!(!lab.running_nodes("web").contains(&node));
}

/// The version before a rollback stored the word. The process that now writes the key cannot read the word, and a node
/// dies.
fn roll_back_after_unknown_word(location: &WordLocation) {
    let (mut lab, node) = running_on(&["node1", "node2", "node3"]);
    let until = lab.state.revision();
    lab.replace_controller(0, "old", Some(unreadable_word_lens(&lab.keys, location, Some(until))));
    lab.run(15_000);
    if location.key_type == "fence" {
        // For an unreadable fence, only an operator's confirmation is a proof.
        assert_eq!(lab.running_nodes("web"), [node.as_str()], "{location:?}");
        return;
    }
    lab.agent(&node).power_off();
    lab.run(40_000);
    if ["report", "alive", "spec"].iter().any(|key_type| location.key_type.starts_with(key_type)) {
        // The dead node does not rewrite its reports, and only users write specs.
        lab.replace_controller(0, "new", None);
    }
    lab.run_until(60_000, &format!("{location:?}: recovered"), |lab| {
        lab.is_in_state("web", ServiceState::Started) && lab.running_nodes("web").len() == 1
    });
    assert!(!lab.running_nodes("web").contains(&node));
}

#[test]
fn an_unreadable_service_report_is_an_active_copy() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    // Silence does not prove the loss of a virtual machine.
    lab.agent(&node).is_virtual = true;
    lab.run(2_000);
    lab.replace_controller(
        0,
        "old",
        Some(unreadable_word_lens(&lab.keys, &word_at("report/resource", "/phase"), None)),
    );
    lab.run(8_000);
    lab.agent(&node).isolated = true;
    lab.run(60_000);
    assert_eq!(lab.fence(&node).state, FenceState::Open, "{}", lab.show());
    lab.edit::<NodeSpec>(&node, |node| node.spec.fencing.trust_watchdog_on_virtual_machine = true);
    lab.run_until(30_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
}

#[test]
fn an_unreadable_service_report_of_an_earlier_epoch_does_not_count() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).power_off();
    lab.run_until(30_000, "recovered", |lab| !lab.running_nodes("web").is_empty());
    // The report of the previous boot stays in the store.
    lab.agent(&node).boot_again();
    lab.agent(&node).faults.ignores_probes = true;
    lab.run_until(20_000, "back", |lab| lab.fence(&node).state == FenceState::Open);
    lab.run(2_000);
    lab.replace_controller(
        0,
        "old",
        Some(unreadable_word_lens(&lab.keys, &word_at("report/resource", "/phase"), None)),
    );
    lab.run(8_000);
    lab.agent(&node).power_off();
    lab.run_until(20_000, "closed immediately", |lab| lab.fence(&node).state == FenceState::Closed);
}

#[test]
fn an_unreadable_node_report_proves_nothing() {
    for field in ["/mode/kind", "/watchdog/kind", "/onStoreLoss"] {
        let (mut lab, node) = running_on(&["node1", "node2"]);
        lab.replace_controller(
            0,
            "old",
            Some(unreadable_word_lens(&lab.keys, &word_at("report/node", field), None)),
        );
        lab.run(8_000);
        lab.agent(&node).isolated = true;
        lab.run(60_000);
        assert_ne!(lab.fence(&node).state, FenceState::Fenced, "{field} {}", lab.show());
        lab.replace_controller(0, "new", None);
        lab.run_until(30_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    }
}

#[test]
fn an_unreadable_fence_counts_as_fencing_until_an_operator_confirms() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let other = if node == "node1" { "node2" } else { "node1" };
    lab.replace_controller(
        0,
        "old",
        Some(unreadable_word_lens(&lab.keys, &word_at("fence", "/state"), Some(lab.state.revision()))),
    );
    lab.run(5_000);
    lab.agent(&node).power_off();
    lab.run(60_000);
    assert!(lab.running_nodes("web").is_empty(), "{}", lab.show());
    let before = lab.fence(&node);
    lab.operate_node(OperationAction::ConfirmFenced, &node);
    lab.run_until(20_000, "confirmed", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert!(lab.fence(&node).epoch > before.epoch);
    lab.agent(other).power_off();
    lab.agent(other).boot_again();
    lab.run(30_000);
    // The other node's fence is also unreadable. That node registers once an operator has confirmed it off too.
    let fence = lab.fence(other);
    assert_eq!(fence.state, FenceState::Open);
}

#[test]
fn unreadable_cluster_object_changes_nothing() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.edit::<ClusterSpec>(CLUSTER_NAME, |cluster| cluster.spec.disarmed = Some(Disarmed::Freeze));
    lab.run(3_000);
    let status: ClusterStatus = lab.read(&lab.keys.status(Kind::Cluster, CLUSTER_NAME)).expect("written");
    assert_eq!(status.active.and_then(|active| active.disarmed), Some(Disarmed::Freeze));
    for instance in ["old", "older"] {
        lab.replace_controller(
            0,
            instance,
            Some(unreadable_word_lens(&lab.keys, &word_at("spec/cluster", "/spec/shutdownPolicy"), None)),
        );
        lab.run(15_000);
    }
    lab.agent(&node).isolated = true;
    lab.run(60_000);
    assert_eq!(lab.fence(&node).state, FenceState::Open, "nothing is fenced on silence: {}", lab.show());
    // If the active settings are unreadable too, the leader plans no action.
    let (keys, hidden_word) = (
        lab.keys.clone(),
        unreadable_word_lens(&lab.keys, &word_at("spec/cluster", "/spec/shutdownPolicy"), None),
    );
    let neither: Lens = Rc::new(move |entry| {
        let entry = hidden_word(entry);
        if entry.key != keys.status(Kind::Cluster, CLUSTER_NAME) {
            return entry;
        }
        with_changed_value(&entry, |value| value["active"] = json!(NOVEL))
    });
    lab.edit::<ClusterSpec>(CLUSTER_NAME, |cluster| cluster.spec.disarmed = None);
    lab.replace_controller(0, "oldest", Some(neither));
    let before = lab.members[0].commits.len();
    lab.run(60_000);
    assert_eq!(lab.fence(&node).state, FenceState::Open);
    let written =
        lab.members[0].commits[before..].iter().flat_map(|(_, transaction, _)| transaction.writes().keys());
    let planned: Vec<&String> = written
        .filter(|key| !key.contains("/candidate/") && !key.contains("/refresh/") && !key.ends_with("/leader"))
        .collect();
    assert!(planned.is_empty(), "{planned:?}");
    assert!(lab.members[0].core.wait_conditions().iter().any(|waiting| waiting.reason == Reason::Unreadable));
}

#[test]
fn cluster_keeps_the_lowest_protocol_version() {
    let mut lab = Lab::new(2, &["node1", "node2"]);
    lab.wait_until_nodes_online();
    let protocol = |lab: &Lab| {
        let status: ClusterStatus = lab.read(&lab.keys.status(Kind::Cluster, CLUSTER_NAME)).expect("written");
        status.protocol
    };
    lab.run(2_000);
    // The scripted agents do not report a version.
    assert_eq!(protocol(&lab), Protocol::FIRST);
    for name in ["node1", "node2"] {
        lab.agent(name).protocol = Protocol::CURRENT;
    }
    lab.run(3_000);
    assert_eq!(protocol(&lab), Protocol::CURRENT);
    // A node that is no longer registered does not count.
    lab.agent("node2").protocol = Protocol::FIRST;
    lab.run(3_000);
    assert_eq!(protocol(&lab), Protocol::FIRST);
    lab.agent("node2").power_off();
    lab.run(20_000);
    assert_eq!(protocol(&lab), Protocol::CURRENT);
}
