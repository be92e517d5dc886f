//! Tests of fields whose name or location in etcd has changed: the API accepts earlier names with a warning, and serves
//! objects that are stored with earlier names and locations.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/http.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod http;

use futures::StreamExt;
use ha_api_types::kind::Kind;
use ha_api_types::renamed::{INTERNAL, internal_status_fields};
use ha_store::{MemoryStore, Store};
use http::{APPLY, Api, resource};
use serde_json::{Value, json};

const WARNING: &str = "spec.after is now spec.dependsOn";

fn resource_with(name: &str, field: &str, value: Value) -> Value {
    let mut resource = resource(name);
    resource["spec"][field] = value;
    resource
}

fn has_rename_warning(warnings: &[String]) -> bool {
    warnings.iter().any(|text| text.contains(WARNING) && text.contains("hactl convert"))
}

async fn stored(api: &Api<MemoryStore>, name: &str) -> Value {
    let reading = api.store.get(&api.keys.spec(Kind::Resource, name)).await.unwrap();
    serde_json::from_slice(&reading.entries[0].value).unwrap()
}

#[tokio::test]
async fn former_field_name_is_accepted_with_warning() {
    let api = Api::over(MemoryStore::new());
    let created =
        api.post("resources?fieldValidation=Strict", &resource_with("web", "after", json!(["db"]))).await;
    assert_eq!(
        (created.code, created.at("/spec/dependsOn")),
        (201, &json!(["db"])),
        "{}",
        created.at("/message")
    );
    assert!(has_rename_warning(&created.warnings), "{:?}", created.warnings);
    assert_eq!(created.at("/spec/after"), &Value::Null);
    // Controllers and agents of the previous version read the object, too.
    assert_eq!(stored(&api, "web").await["spec"]["after"], json!(["db"]));
    assert_eq!(stored(&api, "web").await["spec"]["dependsOn"], Value::Null);
    let current = api.post("resources", &resource_with("new", "dependsOn", json!(["db"]))).await;
    assert!(current.code == 201 && !has_rename_warning(&current.warnings), "{:?}", current.warnings);
    let both_names = json!({"spec": {"after": ["db"], "dependsOn": ["db"]}});
    let refused = api.merge("resources/web", &both_names).await;
    assert_eq!((refused.code, refused.at("/details/causes/0/field")), (422, &json!("spec.after")));
}

#[tokio::test]
async fn patches_with_the_earlier_name_change_the_field() {
    let api = Api::over(MemoryStore::new());
    api.post("resources", &resource_with("web", "dependsOn", json!(["db"]))).await;
    let merged = api.merge("resources/web", &json!({"spec": {"after": ["a", "b"]}})).await;
    assert_eq!(merged.at("/spec/dependsOn"), &json!(["a", "b"]));
    assert!(has_rename_warning(&merged.warnings), "{:?}", merged.warnings);
    let patch = json!([{"op": "replace", "path": "/spec/after/0", "value": "c"}]);
    let patched = api.call("PATCH", "resources/web", "application/json-patch+json", &patch).await;
    assert_eq!(patched.at("/spec/dependsOn"), &json!(["c", "b"]), "{}", patched.at("/message"));
    assert!(has_rename_warning(&patched.warnings), "{:?}", patched.warnings);
    let removed = api.merge("resources/web", &json!({"spec": {"after": null}})).await;
    assert_eq!(removed.at("/spec/dependsOn"), &Value::Null);
}

#[tokio::test]
async fn a_field_stored_under_its_earlier_name_keeps_its_owner() {
    let api = Api::over(MemoryStore::new());
    let mut old = resource_with("web", "after", json!(["db"]));
    old["metadata"]["uid"] = json!("u");
    old["metadata"]["managedFields"] = json!([{
        "manager": "site", "operation": "Apply", "apiVersion": "hactl.io/v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:after": {}}},
    }]);
    api.write(&api.keys.spec(Kind::Resource, "web"), &old).await;
    let read = api.get("resources/web").await;
    assert_eq!((read.at("/spec/dependsOn"), read.at("/spec/after")), (&json!(["db"]), &Value::Null));
    // The owner of the field is known: another manager conflicts, and the owner removes the field.
    let applied = |spec: Value| json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "web"}, "spec": spec});
    let path = "resources/web?fieldManager=";
    let refused = api.call("PATCH", &format!("{path}other"), APPLY, &applied(json!({"after": ["x"]}))).await;
    assert_eq!((refused.code, refused.at("/details/causes/0/field")), (409, &json!(".spec.dependsOn")));
    let stored =
        api.call("PATCH", &format!("{path}site"), APPLY, &applied(json!({"after": ["db", "x"]}))).await;
    assert_eq!(stored.at("/spec/dependsOn"), &json!(["db", "x"]), "{}", stored.at("/message"));
    let removed =
        api.call("PATCH", &format!("{path}site"), APPLY, &applied(json!({"state": "Stopped"}))).await;
    assert_eq!(removed.at("/spec/dependsOn"), &Value::Null, "{}", removed.at("/message"));
}

#[tokio::test]
async fn internal_fields_of_a_status_are_served_in_their_own_map() {
    let api = Api::over(MemoryStore::new());
    api.post("resources", &resource("web")).await;
    let stored = json!({
        "observedGeneration": 1, "uid": "u", "state": "Started", "node": "node1", "epoch": 2, "actionUid": "1-1",
        "probeGeneration": 1, "probeArming": 1, "askedIdentity": "simulated/web", "askedGeneration": 1,
        "replicas": ["node1", "node2"], "declaredSecondary": "node2",
    });
    api.status(Kind::Resource, "web", &stored).await;
    let mut served = json!({});
    for (name, value) in stored.as_object().unwrap() {
        let is_internal = internal_status_fields(Kind::Resource).contains(&name.as_str());
        let target = if is_internal { &mut served[INTERNAL] } else { &mut served };
        target[name] = value.clone();
    }
    assert_eq!(served[INTERNAL].as_object().unwrap().len(), internal_status_fields(Kind::Resource).len());

    let read = api.get("resources/web").await;
    assert_eq!(read.at("/status"), &served);
    assert_eq!(api.get("resources/web/status").await.at("/status"), &served);
    for list in ["resources", "resources?fieldSelector=status.internal.epoch%3D2"] {
        assert_eq!(api.get(list).await.at("/items/0/status"), &served, "{list}");
    }
    assert_eq!(api.get("resources?fieldSelector=status.epoch%3D2").await.code, 400);
    let mut events = api.watch("resources?watch=1").await;
    assert_eq!(events.next().await.unwrap().1["status"], served, "ADDED");
    let mut labeled = read.body.clone();
    labeled["metadata"]["labels"] = json!({"a": "b"});
    let replaced = api.put("resources/web?fieldValidation=Strict", &labeled).await;
    assert_eq!((replaced.code, replaced.at("/status")), (200, &served), "{}", replaced.at("/message"));
    assert_eq!(events.next().await.unwrap().1["status"], served, "MODIFIED");

    // An object that a client read from an earlier version has both the earlier and the current fields. The API ignores
    // every status.
    let earlier = json!({"metadata": {"labels": {"a": "c"}}, "status": stored});
    let patched = api.merge("resources/web?fieldValidation=Strict", &earlier).await;
    assert_eq!((patched.code, patched.at("/status")), (200, &served), "{}", patched.at("/message"));
    let entry = api.store.get(&api.keys.status(Kind::Resource, "web")).await.unwrap();
    assert_eq!(*entry.entries[0].value, *stored.to_string().as_bytes(), "etcd keeps the places");
}
