//! Objects and the paths of their problems.

use super::problems;
use crate::kind::Kind;
use crate::schema;
use serde_json::{Value, json};

/// Checks the paths of all problems of an object of this kind, given as name and spec.
#[allow(clippy::needless_pass_by_value, reason = "tables read better without references")]
fn check(kind: Kind, name: &str, spec: Value, expected: &[&str]) {
    let object =
        json!({"apiVersion": "hactl.io/v1", "kind": kind.name(), "metadata": {"name": name}, "spec": spec});
    let problems = problems(kind, &object);
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, expected, "{object}: {problems:#?}");
    if expected.is_empty() {
        assert_eq!(schema::unknown_fields(schema::of(kind), &object), Vec::new(), "{object}");
    }
}

#[test]
fn resources_are_validated() {
    let exec = json!({"exec": {"command": ["/bin/sleep", "inf"]}});
    let resource_spec = |fields: Value| {
        let mut spec = json!({"driver": exec});
        if let (Some(spec), Some(fields)) = (spec.as_object_mut(), fields.as_object()) {
            spec.extend(fields.clone());
        }
        spec
    };
    check(
        Kind::Resource,
        "101",
        resource_spec(json!({"state": "started", "group": "g1", "requests": {"cpu": "900m", "memory": 5}})),
        &[],
    );
    check(
        Kind::Resource,
        "web",
        resource_spec(json!({"state": "Enabled", "group": null, "comment": null})),
        &[],
    );
    check(Kind::Resource, "web", json!({}), &["spec.driver"]);
    check(
        Kind::Resource,
        "Web",
        json!({"driver": {"exec": {}, "podman": {}}}),
        &["metadata.name", "spec.driver", "spec.driver.exec", "spec.driver.podman"],
    );
    check(
        Kind::Resource,
        "web",
        resource_spec(json!({"maxRestart": -1, "maxRelocate": 101, "state": "Running", "failback": "yes"})),
        &["spec.maxRestart", "spec.maxRelocate", "spec.state", "spec.failback"],
    );
    check(
        Kind::Resource,
        "web",
        resource_spec(json!({"requests": {"memory": "4GiB"}, "priority": 3_000_000_000_u64})),
        &["spec.requests.memory", "spec.priority"],
    );
    let hook = |program: Value| json!({"driver": {"exec": {"command": ["a"], "replaceSecondary": program}}});
    check(Kind::Resource, "web", hook(json!(["/usr/local/bin/copy", "--to-secondary"])), &[]);
    check(Kind::Resource, "web", hook(json!([""])), &["spec.driver.exec.replaceSecondary[0]"]);
    check(Kind::Resource, "web", hook(json!("copy")), &["spec.driver.exec.replaceSecondary"]);
    check(
        Kind::Resource,
        "web",
        resource_spec(json!({"timeouts": {"replaceSeconds": 0}})),
        &["spec.timeouts.replaceSeconds"],
    );
    check(
        Kind::Resource,
        "web",
        json!({"driver": {"exec": {"start": ["a"]}}}),
        &["spec.driver.exec.stop", "spec.driver.exec.monitor"],
    );
    check(
        Kind::Resource,
        "web",
        resource_spec(json!({"dependsOn": ["db", "db", "exec:web"], "timeouts": {"stopSeconds": -1}})),
        &["spec.dependsOn[1]", "spec.dependsOn[2]", "spec.timeouts.stopSeconds"],
    );
}

#[test]
fn groups_and_rules_are_validated() {
    check(Kind::Group, "g", json!({"nodes": {"node1": 2, "node4": null}}), &[]);
    check(Kind::Group, "g", json!({"nodes": ["node1", "node2"], "restricted": true}), &[]);
    check(Kind::Group, "g", json!({"restricted": true}), &["spec.nodes"]);
    check(Kind::Group, "g", json!({"nodes": "node1:2,node2:1,node3"}), &[]);
    check(Kind::Group, "g", json!({"nodes": "node1:high"}), &["spec"]);
    check(Kind::Group, "g", json!({"nodes": 5}), &["spec.nodes"]);
    check(Kind::Group, "g", json!({"nodes": {"node1": "high"}}), &["spec.nodes.node1"]);
    check(Kind::AffinityRule, "r", json!({}), &["spec"]);
    check(
        Kind::AffinityRule,
        "r",
        json!({"resourceAffinity": {"resources": ["vm:1", "2"], "affinity": "negative"}}),
        &[],
    );
    check(
        Kind::AffinityRule,
        "r",
        json!({"nodeAffinity": {"resources": ["a", "vm:a"]}}),
        &["spec.nodeAffinity.resources[1]", "spec.nodeAffinity.nodes"],
    );
}

#[test]
fn nodes_clusters_and_operations_are_validated() {
    check(
        Kind::Node,
        "node1.example.com",
        json!({"fencing": {"devices": [
        {"name": "ipmi", "parts": [{"agent": "fence_ipmilan", "attributes": {"ip": "10.0.0.1"}}]}]}}),
        &[],
    );
    check(
        Kind::Node,
        "node1",
        json!({"fencing": {"devices": [{"name": "x", "parts": [{"agent": "/bin/sh"}]}]}}),
        &["spec.fencing.devices[0].parts[0].agent"],
    );
    check(
        Kind::Cluster,
        "default",
        json!({"timing": {"profile": "Fast"}, "fencing": {"maxFencing": 2}}),
        &[],
    );
    check(
        Kind::Cluster,
        "other",
        json!({"fencing": {"maxFencing": "half"}, "timing": {"heartbeatLifetimeSeconds": 1}}),
        &["metadata.name", "spec.timing.heartbeatLifetimeSeconds", "spec.fencing.maxFencing"],
    );
    check(
        Kind::Cluster,
        "default",
        json!({"timing": {"ioDrainSeconds": -1}}),
        &["spec.timing.ioDrainSeconds"],
    );
    let cluster = |spec: Value, expected: &[&str]| check(Kind::Cluster, "default", spec, expected);
    cluster(json!({"reservation": {"overUtilization": 100, "scaleDown": 100, "intervalSeconds": 1}}), &[]);
    cluster(json!({"reservation": {"overUtilization": 399, "basis": "Max", "enforce": true}}), &[]);
    cluster(
        json!({"reservation": {"intervalSeconds": 0, "overUtilization": 400, "scaleDown": 0}}),
        &[
            "spec.reservation.intervalSeconds",
            "spec.reservation.overUtilization",
            "spec.reservation.scaleDown",
        ],
    );
    cluster(
        json!({"reservation": {"overUtilization": 99, "scaleDown": 101}}),
        &["spec.reservation.overUtilization", "spec.reservation.scaleDown"],
    );
    cluster(json!({"reservation": {"basis": "Guessed"}}), &["spec.reservation.basis"]);
    check(Kind::Operation, "o", json!({"action": "Migrate", "resource": "vm:100", "node": "node2"}), &[]);
    check(
        Kind::Operation,
        "o",
        json!({"action": "ReplaceSecondary", "resource": "web", "node": "node3"}),
        &[],
    );
    check(Kind::Operation, "o", json!({"action": "ReplaceSecondary", "resource": "web"}), &["spec.node"]);
    check(
        Kind::Operation,
        "o",
        json!({"action": "Restart", "node": "node2"}),
        &["spec.resource", "spec.node"],
    );
    for spec in [
        json!({"action": "Explode"}),
        json!({"resource": "web", "node": "node2"}),
        json!({"action": null}),
        Value::Null,
    ] {
        check(Kind::Operation, "o", spec, &["spec.action"]);
    }
    let bare = json!({"apiVersion": "hactl.io/v1", "kind": "Operation", "metadata": {"name": "o"}});
    let problems = problems(Kind::Operation, &bare);
    assert!(
        problems[0].path == "spec.action" && problems[0].message.contains("Migrate, Relocate"),
        "{problems:?}"
    );
}

#[test]
fn object_metadata_is_validated() {
    let object = json!({"apiVersion": "v1", "kind": "Group", "metadata": {"name": "g"}, "spec": 3});
    let paths: Vec<String> = problems(Kind::Group, &object).into_iter().map(|problem| problem.path).collect();
    assert_eq!(paths, ["spec", "apiVersion"]);
    let object = json!({"apiVersion": "hactl.io/v1", "kind": "Group", "metadata":
        {"name": "g", "namespace": "default", "labels": {"a/b/c": "x", "a.b/c": "-x"}, "finalizers": ["mine"]}});
    let paths: Vec<String> = problems(Kind::Group, &object).into_iter().map(|problem| problem.path).collect();
    assert_eq!(
        paths,
        ["metadata.namespace", "metadata.labels[a.b/c]", "metadata.labels[a/b/c]", "metadata.finalizers[0]"]
    );
}

#[test]
fn unknown_fields_suggest_the_most_similar_name() {
    let object = json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "a", "label": {}},
        "spec": {"driver": {"exec": {"comand": ["x"]}}, "maxrestart": 2, "tmeouts": {}}});
    let unknown_fields = schema::unknown_fields(schema::of(Kind::Resource), &object);
    let texts: Vec<&str> = unknown_fields.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(unknown_fields.len(), 4, "{texts:?}");
    for (text, near) in texts.iter().zip(["labels", "command", "maxRestart", "timeouts"]) {
        assert!(text.contains(&format!("did you mean \"{near}\"")), "{text}");
    }
}

proptest::proptest! {
    /// Any input must get a verdict without a panic.
    #[test]
    fn any_json_is_validated_without_panic(text in "\\PC*", number in proptest::num::f64::ANY, field in "[a-zA-Z]{0,12}") {
        for kind in Kind::ALL {
            for value in [json!(text), json!({field.as_str(): text}), json!({"spec": {field.as_str(): number}}),
                json!({"apiVersion": "hactl.io/v1", "kind": kind.name(), "metadata": {"name": text}, "spec": {field.as_str(): [text]}})] {
                let _ = problems(kind, &value);
                let _ = schema::unknown_fields(schema::of(kind), &value);
            }
        }
    }
}

#[test]
fn every_policy_is_accepted() {
    for (on_etcd_loss, disarmed) in [("Hold", "Freeze"), ("Stop", "Ignore")] {
        let spec = json!({"fencing": {"onEtcdLoss": on_etcd_loss}, "disarmed": disarmed});
        check(Kind::Cluster, "default", spec, &[]);
    }
}

#[test]
fn notification_settings_are_validated() {
    let cluster_spec = |spec: Value| json!({"notifications": spec});
    let path = |rest: &str| format!("spec.notifications.{rest}");
    let check_notifications = |spec: Value, expected: &[&str]| {
        let expected: Vec<String> = expected.iter().map(|rest| path(rest)).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(Kind::Cluster, "default", cluster_spec(spec), &expected);
    };
    let mail = |fields: Value| {
        let mut smtp = json!({"server": "mail.example.org", "from": "a@b.c", "to": "d@e.f"});
        if let (Some(smtp), Some(fields)) = (smtp.as_object_mut(), fields.as_object()) {
            smtp.extend(fields.clone());
        }
        json!({"smtp": smtp})
    };
    check_notifications(json!({"webhooks": ["https://a.example/x", "http://127.0.0.1:9000"]}), &[]);
    let webhook =
        json!({"url": "https://a.example", "bearerTokenFile": "/a", "hmacKeyFile": "b", "caFile": "c.pem"});
    check_notifications(json!({"kinds": ["NodeFenced"], "webhooks": [webhook]}), &[]);
    check_notifications(
        json!({"webhooks": ["ftp://a", "https://", "https://a b"]}),
        &["webhooks[0]", "webhooks[1]", "webhooks[2]"],
    );
    check_notifications(
        json!({"webhooks": [{"url": "http://a.example", "bearerTokenFile": "/a"}, {"url": "https://a", "caFile": "a/b", "hmacKeyFile": ".."}]}),
        &["webhooks[0].bearerTokenFile", "webhooks[1].hmacKeyFile", "webhooks[1].caFile"],
    );
    check_notifications(json!({"kinds": ["Test"]}), &["kinds[0]"]);
    check_notifications(json!({"kinds": ["NodeDied"]}), &["kinds[0]"]);
    check_notifications(mail(json!({})), &[]);
    check_notifications(
        mail(json!({"to": ["d@e.f", "g@h.i"], "user": "a", "passwordFile": "/p", "tls": "TLS"})),
        &[],
    );
    check_notifications(json!({"smtp": {}}), &["smtp.server", "smtp.from", "smtp.to"]);
    check_notifications(
        mail(json!({"server": "smtp://mail", "from": "Ops <a@b.c>", "to": ["x", "a@b\r\nBcc: c@d"]})),
        &["smtp.server", "smtp.from", "smtp.to[0]", "smtp.to[1]"],
    );
    check_notifications(mail(json!({"tls": "IfPossible"})), &["smtp.tls"]);
    check_notifications(mail(json!({"user": "a"})), &["smtp.passwordFile"]);
    check_notifications(mail(json!({"user": "a", "passwordFile": "/p", "tls": "None"})), &["smtp.tls"]);
    check_notifications(mail(json!({"passwordFile": "secrets/p"})), &["smtp.user", "smtp.passwordFile"]);
}
