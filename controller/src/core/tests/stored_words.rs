//! Tests of every stored enum, record and request: unknown words and fields of another version hide no other value
//! (FENCING, R1.16).
//!
//! The enums are read from the sources of the API types, so that a new enum without a sample here fails the test.

use super::unreadable::strings;
use crate::core::world::ClusterView;
use ha_api_types::cluster::{Cluster, ClusterStatus};
use ha_api_types::event::Event;
use ha_api_types::id::Revision;
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_api_types::node::{Node, NodeGroup, NodeStatus};
use ha_api_types::operation::{Operation, OperationStatus};
use ha_api_types::placement::AffinityRule;
use ha_api_types::record::{
    Alive, Assignment, Candidate, DoctorReport, Fence, HoldAnswer, HoldRequest, Incarnation, Leader,
    NodeReport, NotificationRecord, Refresh, RestoreMarker, ServiceReport, Tombstone, UsageReport,
};
use ha_api_types::resource::{Resource, ResourceStatus};
use ha_api_types::time::MonotonicTime;
use ha_store::Entry;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A word of a future version.
const NOVEL: &str = "Novel";

/// A stored value or a request: its key (if the leader reads it), the value, and how its type reads the value.
struct Sample {
    key: Option<String>,
    value: Value,
    read: fn(&Value) -> Result<Value, String>,
}

fn read<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Value, String> {
    let read: T = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    serde_json::to_value(read).map_err(|error| error.to_string())
}

fn sample<T: DeserializeOwned + Serialize>(key: impl Into<Option<String>>, value: Value) -> Sample {
    Sample { key: key.into(), value, read: read::<T> }
}

/// Returns a value of each stored type and each request, with every word of the type.
fn samples() -> Vec<Sample> {
    let keys = Keys::new("test");
    let definition = json!({"name": "web", "uid": "u", "driver": {"simulated": {"type": "vm"}}});
    let copy = json!({"node": "n1", "epoch": 2, "bootId": "b", "definition": definition});
    let conditions = json!([{"type": "Ready", "status": "True", "reason": "Running", "message": "m"}]);
    let meta = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "hactl.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let mut samples = vec![
        sample::<Candidate>(keys.candidate(&"c1".into()), json!({"id": "c1", "protocol": 2})),
        sample::<Refresh>(keys.refresh(&"c1".into()), json!({"instance": "i", "sequence": 3})),
        sample::<Leader>(keys.leader(), json!({"id": "c1", "instance": "i"})),
        sample::<Alive>(keys.alive(&"n1".into()), json!({"instance": "i", "epoch": 2, "sequence": 3})),
        sample::<NotificationRecord>(
            keys.notification_record(),
            json!({"told": {}, "queue": [{"notification": {"kind": "NodeFenced", "severity": "Warning"}}]}),
        ),
        sample::<RestoreMarker>(keys.restore_marker(), json!({"at": "now", "backupRevision": 3})),
        sample::<Incarnation>(keys.incarnation(), json!({"id": "a"})),
        sample::<DoctorReport>(keys.doctor_report(&"n1".into()), json!({"bootId": "b"})),
        sample::<UsageReport>(keys.usage_report(&"n1".into()), json!({"epoch": 2, "bootId": "b"})),
        sample::<Tombstone>(
            keys.tombstone(&"web".into()),
            json!({"uid": "u", "nodes": ["n1"], "copies": [copy]}),
        ),
        sample::<ServiceReport>(
            keys.service_report(&"n1".into(), &"web".into()),
            json!({"uid": "u", "epoch": 2, "phase": "Failed", "failure": "RetryHere", "reason": "Running",
                "definition": definition, "replacement": {"uid": "r", "phase": "Begun", "reason": "Running"}}),
        ),
        sample::<Event>(
            None,
            json!({"kind": "Resource", "name": "web", "uid": "u", "type": "Warning", "reason": "Running", "message": "m",
                "source": "agent/n1", "at": "2026-01-01T00:00:00Z"}),
        ),
        sample::<HoldRequest>(None, json!({"candidate": "c1", "sentSequence": 3, "bootId": "b", "epoch": 2})),
        sample::<HoldAnswer>(None, json!({"granted": true, "reason": "Waiting"})),
    ];
    for action in [
        json!({"kind": "start"}),
        json!({"kind": "stop"}),
        json!({"kind": "migrate", "target": "n2", "targetEpoch": 1, "targetBootId": "b"}),
    ] {
        samples.push(sample::<Assignment>(
            keys.assignment(&"web".into()),
            json!({"node": "n1", "epoch": 2, "actionUid": "1-1", "action": action, "definition": definition,
                "replacement": {"uid": "r", "node": "n2", "definition": definition}}),
        ));
    }
    for proof in [json!({"kind": "nothingActive"}), json!({"kind": "cleanLeave", "leave": "Reboot"})] {
        samples.push(sample::<Fence>(
            keys.fence(&"n1".into()),
            json!({"epoch": 2, "state": "Closed", "proof": proof, "device": {"name": "d", "switch": "On"},
                "hold": {"candidateGeneration": 3}}),
        ));
    }
    for mode in [json!({"kind": "Active"}), json!({"kind": "Left", "leave": "Poweroff"})] {
        samples.push(sample::<NodeReport>(
            keys.node_report(&"n1".into()),
            json!({"epoch": 2, "mode": mode, "sleepProtection": "Masked", "watchdog": {"kind": "Kernel"},
                "onStoreLoss": "Hold", "notStopped": [{"name": "web"}]}),
        ));
    }
    let storage = json!({"pool": "p", "mode": "Replicated", "secondary": "n2"});
    let resource = json!({"driver": {"simulated": {"type": "vm"}}, "state": "Started", "storage": storage,
        "externalStop": "Accept"});
    samples.push(sample::<Resource>(keys.spec(Kind::Resource, "web"), meta("Resource", "web", resource)));
    samples.push(sample::<ResourceStatus>(
        keys.status(Kind::Resource, "web"),
        json!({"uid": "u", "state": "Started", "copies": [copy], "conditions": conditions,
            "availability": {"standing": "Up"}}),
    ));
    let devices = json!([{"name": "d", "kind": "Power", "action": "Off"}]);
    let node = json!({"fencing": {"devices": devices}, "allocationPolicy": "Preferred"});
    samples.push(sample::<Node>(keys.spec(Kind::Node, "n1"), meta("Node", "n1", node)));
    samples.push(sample::<NodeStatus>(
        keys.status(Kind::Node, "n1"),
        json!({"state": "Online", "conditions": conditions}),
    ));
    let cluster = json!({"timing": {"profile": "Fast"}, "fencing": {"onStoreLoss": "Hold", "maxFencing": "50%"},
        "shutdownPolicy": "Migrate", "disarmed": "Freeze",
        "scheduler": {"mode": "Static", "autoRebalance": {"method": "Topsis"}}, "reservation": {"basis": "Requests"},
        "notifications": {"smtp": {"tls": "None"}}});
    samples.push(sample::<Cluster>(keys.spec(Kind::Cluster, "default"), meta("Cluster", "default", cluster)));
    samples.push(sample::<ClusterStatus>(
        keys.status(Kind::Cluster, "default"),
        json!({"disarm": "Freeze", "conditions": conditions}),
    ));
    samples.push(sample::<Operation>(
        keys.spec(Kind::Operation, "o"),
        meta("Operation", "o", json!({"action": "Stop", "resource": "web"})),
    ));
    samples.push(sample::<OperationStatus>(
        keys.status(Kind::Operation, "o"),
        json!({"phase": "Running", "reason": "Waiting", "conditions": conditions}),
    ));
    let rule = json!({"resourceAffinity": {"resources": ["a", "b"], "affinity": "Negative"}});
    let group = json!({"allocationPolicy": "LastResort"});
    samples.push(sample::<NodeGroup>(keys.spec(Kind::NodeGroup, "g"), meta("NodeGroup", "g", group)));
    samples.push(sample::<AffinityRule>(keys.spec(Kind::AffinityRule, "r"), meta("AffinityRule", "r", rule)));
    samples
}

/// Returns the known words that an error lists: `unknown variant …, expected one of …`.
fn expected(error: &str) -> Option<BTreeSet<String>> {
    let (_, list) = error.split_once("unknown variant `Novel`, expected ")?;
    Some(list.split('`').skip(1).step_by(2).map(str::to_lowercase).collect())
}

/// Returns the enums of a source file that are read from stored text, with their stored variants in lower case.
fn enums(source: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut enums = Vec::new();
    let mut attributes = String::new();
    let mut current: Option<(String, BTreeSet<String>)> = None;
    let mut stored_name: Option<&str> = None;
    for line in source.lines() {
        if let Some((_, variants)) = &mut current {
            let renaming = line.strip_prefix("    #[serde(rename = \"");
            stored_name = renaming.and_then(|rest| rest.split('"').next()).or(stored_name);
            let is_variant =
                line.starts_with("    ") && line[4..].starts_with(|first: char| first.is_ascii_uppercase());
            if is_variant {
                let variant: String =
                    line.trim_start().chars().take_while(char::is_ascii_alphanumeric).collect();
                variants.insert(stored_name.take().unwrap_or(&variant).to_lowercase());
            } else if line == "}" {
                enums.extend(current.take());
            }
        } else if let Some(name) = line.strip_prefix("pub enum ") {
            if attributes.contains("Deserialize") {
                current = Some((name.trim_end_matches(" {").to_owned(), BTreeSet::new()));
            }
            attributes.clear();
        } else if line.is_empty() || line == "}" {
            attributes.clear();
        } else {
            attributes += line;
        }
    }
    enums
}

fn read_sources(directory: &Path, sources: &mut Vec<String>) {
    let entries = fs::read_dir(directory).expect("the sources are there");
    for path in entries.map(|entry| entry.expect("readable").path()) {
        if path.is_dir() && !path.ends_with("view") && !path.ends_with("metric") {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(fs::read_to_string(&path).expect("text"));
        }
    }
}

/// Enums without a stored value or request, or with unknown words that another rule covers.
const EXEMPT: [(&str, &str); 9] = [
    ("DriverKind", "a driver is stored as the name of a field; one that is unknown is R3.9"),
    ("Protocol", "the ports of a podman container: within a resource's spec, which is unreadable as a whole"),
    ("CountOrPercent", "a number or any text"),
    ("Webhook", "a URL or its settings, without words"),
    ("Recipients", "an address or several, without words"),
    ("Observed", "between a driver and its agent, never stored"),
    ("LogFailure", "of an answer to `hactl logs`, which decides nothing"),
    ("Verdict", "of a doctor's check, which decides nothing"),
    ("Role", "of a token, in a file on the controllers"),
];

#[test]
fn each_stored_enum_has_unknown_value_sample() {
    let mut sampled_enums: Vec<BTreeSet<String>> = Vec::new();
    for sample in samples() {
        let result = (sample.read)(&sample.value);
        assert!(result.is_ok(), "{result:?}: {}", sample.value);
        let mut pointers = Vec::new();
        strings(&sample.value, "", &mut pointers);
        for pointer in pointers {
            let mut novel = sample.value.clone();
            *novel.pointer_mut(&pointer).expect("the word exists in the sample") = json!(NOVEL);
            let Err(error) = (sample.read)(&novel) else { continue };
            sampled_enums.extend(expected(&error));
            // The leader records the key as unreadable. The value must not count as absent.
            if let Some(key) = &sample.key {
                assert!(is_noticed(key, &novel), "{key} {pointer}");
            }
        }
    }
    let mut texts = Vec::new();
    read_sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../api-types/src")), &mut texts);
    let enums: Vec<_> = texts.iter().flat_map(|text| enums(text)).collect();
    assert!(enums.len() > 25, "{enums:?}");
    let missing: Vec<&str> = enums
        .iter()
        .filter(|(name, variants)| {
            !EXEMPT.iter().any(|(exempt, _)| exempt == name)
                && !sampled_enums.iter().any(|words| variants.is_subset(words))
        })
        .map(|(name, _)| name.as_str())
        .collect();
    assert!(missing.is_empty(), "no sample has a word of {missing:?}");
}

fn is_noticed(key: &str, value: &Value) -> bool {
    let mut cluster_view = ClusterView::new(Keys::new("test"));
    let value = value.to_string().into_bytes().into();
    let entry = Entry {
        key: key.to_owned(),
        value,
        create_revision: Revision(1),
        mod_revision: Revision(1),
        lease: ha_store::LeaseId::NONE,
    };
    cluster_view.replace(vec![entry], Revision(1), MonotonicTime(0));
    cluster_view.unreadable.contains_key(key)
}

#[test]
fn unknown_record_fields_change_no_behavior() {
    for sample in samples() {
        let plain = (sample.read)(&sample.value).expect("the sample is readable");
        let mut extended = sample.value.clone();
        extended
            .as_object_mut()
            .expect("a record")
            .insert("novel".to_owned(), json!({"of": ["a", "version"]}));
        assert_eq!((sample.read)(&extended), Ok(plain.clone()), "{}", sample.value);
        if let Some(key) = &sample.key {
            assert!(!is_noticed(key, &extended), "{key}");
        }
        // Users can misspell fields of specs, and the API refuses that. A reader of stored specs accepts unknown
        // fields.
        if let Some(spec) = extended.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("novel".to_owned(), json!(1));
            assert_eq!((sample.read)(&extended), Ok(plain), "{}", sample.value);
        }
    }
}
