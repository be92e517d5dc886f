//! Tests of rules in the API when objects are applied: warnings, refusals, and changes of objects.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/http.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod http;

use ha_store::MemoryStore;
use http::{Api, resource};
use serde_json::{Value, json};

#[tokio::test]
async fn questionable_objects_are_accepted_with_a_warning() {
    let api = Api::over(MemoryStore::new());
    let mut web = resource("web");
    web["spec"]["group"] = json!("nowhere");
    let created = api.post("resources", &web).await;
    assert_eq!((created.code, created.warnings.len()), (201, 1));
    assert!(created.warnings[0].contains("group nowhere does not exist yet"), "{:?}", created.warnings);
    let rule = |name: &str| {
        json!({"apiVersion": "hactl.io/v1", "kind": "AffinityRule", "metadata": {"name": name},
            "spec": {"nodeAffinity": {"resources": ["ct:web"], "nodes": ["node1"]}}})
    };
    let first = api.post("affinityrules", &rule("r1")).await;
    assert!(first.warnings.iter().any(|text| text.contains("specify vm:web")), "{:?}", first.warnings);
    assert!(!first.warnings.iter().any(|text| text.contains("not applied")), "{:?}", first.warnings);
    let second = api.post("affinityrules", &rule("r2")).await;
    assert!(
        second.warnings.iter().any(|text| text.contains("rule r2 is not applied")),
        "{:?}",
        second.warnings
    );
}

#[tokio::test]
async fn node_affinity_rule_removes_group_with_warning() {
    let api = Api::over(MemoryStore::new());
    let old = json!({"apiVersion": "hactl.io/v1", "kind": "Group", "metadata": {"name": "old"},
        "spec": {"nodes": {"node1": 2}, "restricted": true, "nofailback": true}});
    api.post("groups", &old).await;
    for name in ["web", "db"] {
        let mut resource = resource(name);
        resource["spec"]["group"] = json!("old");
        api.post("resources", &resource).await;
    }
    let rule = json!({"apiVersion": "hactl.io/v1", "kind": "AffinityRule", "metadata": {"name": "new"},
        "spec": {"nodeAffinity": {"resources": ["web"], "nodes": ["node1"]}}});
    let dry = api.post("affinityrules?dryRun=All", &rule).await;
    let contains = |warnings: &[String], part: &str| warnings.iter().any(|text| text.contains(part));
    assert!(contains(&dry.warnings, "group old is removed from the resource"), "{:?}", dry.warnings);
    assert_eq!(api.get("resources/web").await.at("/spec/group"), "old");
    let warnings = api.post("affinityrules", &rule).await.warnings;
    for part in
        ["resource web: node affinity rule new", "failback: false is kept", "was restricted", "{node1: 2}"]
    {
        assert!(contains(&warnings, part), "{warnings:?}");
    }
    let web = api.get("resources/web").await;
    assert_eq!((web.at("/spec/group"), web.at("/spec/failback")), (&Value::Null, &json!(false)));
    assert_eq!(web.at("/metadata/generation"), &json!(2));
    assert_eq!(api.get("resources/db").await.at("/spec/group"), "old", "no rule names it");
    // The user's file still names the group: the API warns again, and the object does not change.
    let repeated = api.merge("resources/web", &json!({"spec": {"group": "old"}})).await;
    assert!(
        contains(&repeated.warnings, "group old is removed from the resource"),
        "{:?}",
        repeated.warnings
    );
    assert_eq!((repeated.at("/spec/group"), repeated.at("/metadata/generation")), (&Value::Null, &json!(2)));
}

#[tokio::test]
async fn a_dependency_cycle_is_refused_and_a_stop_names_the_dependents() {
    let api = Api::over(MemoryStore::new());
    let with_dependencies = |name: &str, dependencies: &[&str]| {
        let mut resource = resource(name);
        resource["spec"]["dependsOn"] = json!(dependencies);
        resource
    };
    api.post("resources", &with_dependencies("web", &["vm:database"])).await;
    api.post("resources", &with_dependencies("database", &["files"])).await;
    let refused = api.post("resources", &with_dependencies("files", &["other", "web"])).await;
    assert_eq!(refused.code, 422);
    let message = refused.at("/details/causes/0/message").as_str().unwrap();
    assert_eq!(refused.at("/details/causes/0/field"), "spec.dependsOn[1]");
    assert!(message.contains("files → database → web → files"), "{message}");
    assert_eq!(api.get("resources/files").await.code, 404);
    assert_eq!(api.post("resources", &with_dependencies("files", &[])).await.code, 201);
    let refused = api.merge("resources/files", &json!({"spec": {"dependsOn": ["web"]}})).await;
    assert_eq!((refused.code, refused.at("/details/causes/0/field")), (422, &json!("spec.dependsOn[0]")));
    let stopped = api.merge("resources/files", &json!({"spec": {"state": "Stopped"}})).await;
    let names_database =
        |warnings: &[String]| warnings.iter().any(|text| text.contains("database depends on this resource"));
    assert!(names_database(&stopped.warnings), "{:?}", stopped.warnings);
    api.merge("resources/database", &json!({"spec": {"state": "Stopped"}})).await;
    let repeated = api.merge("resources/files", &json!({"spec": {"state": "Disabled"}})).await;
    assert!(!names_database(&repeated.warnings), "{:?}", repeated.warnings);
}

#[tokio::test]
async fn a_plan_refuses_a_dependency_cycle_of_its_changes() {
    let api = Api::over(MemoryStore::new());
    let with_dependencies = |name: &str, dependency: &str| {
        let mut resource = resource(name);
        resource["spec"]["dependsOn"] = json!([dependency]);
        resource
    };
    let plan = |objects: Vec<Value>| json!({"objects": objects, "deletions": []});
    let refused =
        api.post("plan", &plan(vec![with_dependencies("a", "b"), with_dependencies("b", "a")])).await;
    assert_eq!(refused.code, 422, "{:?}", refused.at("/message"));
    let accepted = api.post("plan", &plan(vec![with_dependencies("a", "b"), resource("b")])).await;
    assert_eq!(accepted.code, 200, "{:?}", accepted.at("/message"));
}
