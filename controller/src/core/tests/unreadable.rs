//! Tests of values that one version writes and another cannot read (FENCING, section 1): upgrades in both orders of
//! controllers and agents, and rollbacks.

use super::fencing::cluster_with_running_service;
use super::test_cluster::{EntryReader, TestCluster};
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

/// Returns the reader of a version that cannot read the words at this location: in every entry, or only in entries that
/// were written up to a revision.
fn reader_without_word(keys: &Keys, location: &WordLocation, until: Option<Revision>) -> EntryReader {
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
pub(super) fn strings(value: &Value, prefix: &str, texts: &mut Vec<String>) {
    match value {
        Value::String(_) => texts.push(prefix.to_owned()),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                strings(item, &format!("{prefix}/{index}"), texts);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                strings(field, &format!("{prefix}/{}", name.replace('~', "~0").replace('/', "~1")), texts);
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
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2", "node3"]);
    let mut samples = Vec::new();
    let mut take = |cluster: &TestCluster| samples.extend(cluster.state.list(cluster.keys.root()).entries);
    take(&cluster);
    let spec = OperationSpec {
        action: OperationAction::Migrate,
        resource: Some("web".to_owned()),
        node: ["node1", "node2"].into_iter().find(|name| *name != node).map(Into::into),
        ..OperationSpec::default()
    };
    cluster.create_operation("move", spec);
    for _ in 0..20 {
        cluster.step();
        take(&cluster);
    }
    cluster
        .run_until(20_000, "moved", |cluster| cluster.operation("move").phase == OperationPhase::Succeeded);
    let node = cluster.status("web").node.unwrap_or(node);
    cluster.agent(&node).power_off();
    for _ in 0..150 {
        cluster.step();
        take(&cluster);
    }
    cluster.edit::<ClusterSpec>(CLUSTER_NAME, |settings| settings.spec.disarmed = Some(Disarmed::Freeze));
    cluster.run(3_000);
    take(&cluster);
    (cluster.keys.clone(), samples)
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
            if !is_readable(&keys, &reader_without_word(&keys, &location, None)(&entry)) {
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
        let extended = with_changed_value(&entry, add);
        let fails = String::from_utf8_lossy(&extended.value).into_owned();
        assert!(is_readable(&keys, &extended), "{} {fails}", extended.key);
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
    for known_key in [
        "fence",
        "alive",
        "assignment",
        "report/node",
        "report/resource",
        "status/resource",
        "status/cluster",
    ] {
        assert!(
            known_key == "alive" || locations.iter().any(|location| location.key_type == known_key),
            "no word in {known_key}: {locations:?}"
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
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2", "node3"]);
    cluster.replace_controller(0, "old", Some(reader_without_word(&cluster.keys, location, None)));
    // Keys of the leader are excluded, because a leader can read every word that it writes. A leader that could not
    // would rewrite its keys without end in this test.
    let is_of_leader = ["fence", "assignment", "tombstone", "status/"]
        .iter()
        .any(|key_type| location.key_type.starts_with(key_type));
    if is_of_leader {
        return;
    }
    cluster.run(10_000);
    cluster.agent(&node).power_off();
    cluster.run(30_000);
    cluster.replace_controller(0, "new", None);
    cluster.run_until(60_000, &format!("{location:?}: recovered"), |cluster| {
        cluster.is_in_state("web", ServiceState::Started) && cluster.running_nodes("web").len() == 1
    });
    assert!(!cluster.running_nodes("web").contains(&node));
}

/// The version before a rollback stored the word. The process that now writes the key cannot read the word, and a node
/// dies.
fn roll_back_after_unknown_word(location: &WordLocation) {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2", "node3"]);
    let until = cluster.state.revision();
    cluster.replace_controller(0, "old", Some(reader_without_word(&cluster.keys, location, Some(until))));
    cluster.run(15_000);
    if location.key_type == "fence" {
        // For an unreadable fence, only an operator's confirmation is a proof.
        assert_eq!(cluster.running_nodes("web"), [node.as_str()], "{location:?}");
        return;
    }
    cluster.agent(&node).power_off();
    cluster.run(40_000);
    if ["report", "alive", "spec"].iter().any(|key_type| location.key_type.starts_with(key_type)) {
        // The dead node does not rewrite its reports, and only users write specs.
        cluster.replace_controller(0, "new", None);
    }
    cluster.run_until(60_000, &format!("{location:?}: recovered"), |cluster| {
        cluster.is_in_state("web", ServiceState::Started) && cluster.running_nodes("web").len() == 1
    });
    assert!(!cluster.running_nodes("web").contains(&node));
}

#[test]
fn an_unreadable_service_report_is_an_active_copy() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    // Silence does not prove the loss of a virtual machine.
    cluster.agent(&node).is_virtual = true;
    cluster.run(2_000);
    cluster.replace_controller(
        0,
        "old",
        Some(reader_without_word(&cluster.keys, &word_at("report/resource", "/phase"), None)),
    );
    cluster.run(8_000);
    cluster.agent(&node).isolated = true;
    cluster.run(60_000);
    assert_eq!(cluster.fence(&node).state, FenceState::Open, "{}", cluster.show());
    cluster.edit::<NodeSpec>(&node, |node| node.spec.fencing.trust_watchdog_on_virtual_machine = true);
    cluster.run_until(30_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
}

#[test]
fn an_unreadable_service_report_of_an_earlier_epoch_does_not_count() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).power_off();
    cluster.run_until(30_000, "recovered", |cluster| !cluster.running_nodes("web").is_empty());
    // The report of the previous boot stays in the store.
    cluster.agent(&node).boot_again();
    cluster.agent(&node).faults.ignores_probes = true;
    cluster.run_until(20_000, "back", |cluster| cluster.fence(&node).state == FenceState::Open);
    cluster.run(2_000);
    cluster.replace_controller(
        0,
        "old",
        Some(reader_without_word(&cluster.keys, &word_at("report/resource", "/phase"), None)),
    );
    cluster.run(8_000);
    cluster.agent(&node).power_off();
    cluster
        .run_until(20_000, "closed immediately", |cluster| cluster.fence(&node).state == FenceState::Closed);
}

#[test]
fn an_unreadable_node_report_proves_nothing() {
    for field in ["/mode/kind", "/watchdog/kind", "/onStoreLoss"] {
        let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
        cluster.replace_controller(
            0,
            "old",
            Some(reader_without_word(&cluster.keys, &word_at("report/node", field), None)),
        );
        cluster.run(8_000);
        cluster.agent(&node).isolated = true;
        cluster.run(60_000);
        assert_ne!(cluster.fence(&node).state, FenceState::Fenced, "{field} {}", cluster.show());
        cluster.replace_controller(0, "new", None);
        cluster.run_until(30_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    }
}

#[test]
fn an_unreadable_fence_counts_as_fencing_until_an_operator_confirms() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let other = if node == "node1" { "node2" } else { "node1" };
    cluster.replace_controller(
        0,
        "old",
        Some(reader_without_word(&cluster.keys, &word_at("fence", "/state"), Some(cluster.state.revision()))),
    );
    cluster.run(5_000);
    cluster.agent(&node).power_off();
    cluster.run(60_000);
    assert!(cluster.running_nodes("web").is_empty(), "{}", cluster.show());
    let before = cluster.fence(&node);
    cluster.operate_node(OperationAction::ConfirmFenced, &node);
    cluster.run_until(20_000, "confirmed", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    assert!(cluster.fence(&node).epoch > before.epoch);
    cluster.agent(other).power_off();
    cluster.agent(other).boot_again();
    cluster.run(30_000);
    // The other node's fence is also unreadable. That node registers once an operator has confirmed it off too.
    let fence = cluster.fence(other);
    assert_eq!(fence.state, FenceState::Open);
}

#[test]
fn unreadable_cluster_object_changes_nothing() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.edit::<ClusterSpec>(CLUSTER_NAME, |settings| settings.spec.disarmed = Some(Disarmed::Freeze));
    cluster.run(3_000);
    let status: ClusterStatus =
        cluster.read(&cluster.keys.status(Kind::Cluster, CLUSTER_NAME)).expect("written");
    assert_eq!(status.active.and_then(|active| active.disarmed), Some(Disarmed::Freeze));
    for instance in ["old", "older"] {
        cluster.replace_controller(
            0,
            instance,
            Some(reader_without_word(&cluster.keys, &word_at("spec/cluster", "/spec/shutdownPolicy"), None)),
        );
        cluster.run(15_000);
    }
    cluster.agent(&node).isolated = true;
    cluster.run(60_000);
    assert_eq!(
        cluster.fence(&node).state,
        FenceState::Open,
        "nothing is fenced on silence: {}",
        cluster.show()
    );
    // If the active settings are unreadable too, the leader plans no action.
    let (keys, hidden_word) = (
        cluster.keys.clone(),
        reader_without_word(&cluster.keys, &word_at("spec/cluster", "/spec/shutdownPolicy"), None),
    );
    let neither: EntryReader = Rc::new(move |entry| {
        let entry = hidden_word(entry);
        if entry.key != keys.status(Kind::Cluster, CLUSTER_NAME) {
            return entry;
        }
        with_changed_value(&entry, |value| value["active"] = json!(NOVEL))
    });
    cluster.edit::<ClusterSpec>(CLUSTER_NAME, |settings| settings.spec.disarmed = None);
    cluster.replace_controller(0, "oldest", Some(neither));
    let before = cluster.controllers[0].commits.len();
    cluster.run(60_000);
    assert_eq!(cluster.fence(&node).state, FenceState::Open);
    let written = cluster.controllers[0].commits[before..]
        .iter()
        .flat_map(|(_, transaction, _)| transaction.writes().keys());
    let planned: Vec<&String> = written
        .filter(|key| !key.contains("/candidate/") && !key.contains("/refresh/") && !key.ends_with("/leader"))
        .collect();
    assert!(planned.is_empty(), "{planned:?}");
    assert!(
        cluster.controllers[0]
            .core
            .wait_conditions()
            .iter()
            .any(|waiting| waiting.reason == Reason::Unreadable)
    );
}

#[test]
fn cluster_keeps_the_lowest_protocol_version() {
    let mut cluster = TestCluster::new(2, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    let protocol = |cluster: &TestCluster| {
        let status: ClusterStatus =
            cluster.read(&cluster.keys.status(Kind::Cluster, CLUSTER_NAME)).expect("written");
        status.protocol
    };
    cluster.run(2_000);
    // The scripted agents do not report a version.
    assert_eq!(protocol(&cluster), Protocol::FIRST);
    for name in ["node1", "node2"] {
        cluster.agent(name).protocol = Protocol::CURRENT;
    }
    cluster.run(3_000);
    assert_eq!(protocol(&cluster), Protocol::CURRENT);
    // A node that is no longer registered does not count.
    cluster.agent("node2").protocol = Protocol::FIRST;
    cluster.run(3_000);
    assert_eq!(protocol(&cluster), Protocol::FIRST);
    cluster.agent("node2").power_off();
    cluster.run(20_000);
    assert_eq!(protocol(&cluster), Protocol::CURRENT);
}
