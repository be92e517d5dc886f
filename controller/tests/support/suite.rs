//! Properties of the API that must hold over every store.

use crate::http::{Answer, Api, MERGE, group, resource};
use futures::StreamExt;
use ha_api_types::id::Epoch;
use ha_api_types::keys::Key;
use ha_api_types::kind::Kind;
use ha_api_types::record::{Assignment, Fence, FenceState};
use ha_store::Store;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) async fn clients_cannot_change_server_owned_fields<S: Store>(store: S) {
    let api = Api::over(store);
    let mut sent = resource("100");
    sent["metadata"]["uid"] = json!("mine");
    sent["status"] = json!({"state": "Started"});
    let created = api.post("resources", &sent).await;
    assert_eq!(created.code, 201, "{}", created.body);
    assert_eq!(created.at("/metadata/generation"), 1);
    assert_ne!(created.at("/metadata/uid"), "mine");
    assert_eq!(created.at("/status"), &Value::Null);
    assert_eq!(created.at("/metadata/finalizers"), &json!(["hactl.io/managed"]));
    assert_eq!(api.post("resources", &sent).await.code, 409);

    // The status makes the object newer, so that a replacement of the old version conflicts.
    api.status(Kind::Resource, "100", &json!({"state": "Queued"})).await;
    let mut stale = created.body.clone();
    stale["spec"]["priority"] = json!(5);
    let conflict = api.put("resources/100", &stale).await;
    assert_eq!((conflict.code, conflict.at("/reason")), (409, &json!("Conflict")));
    let mut fresh = api.get("resources/vm:100").await.body;
    fresh["spec"]["priority"] = json!(5);
    fresh["metadata"]["finalizers"] = json!([]);
    fresh["metadata"]["generation"] = json!(77);
    let replaced = api.put("resources/100", &fresh).await;
    assert_eq!((replaced.code, replaced.at("/metadata/generation")), (200, &json!(2)));
    assert_eq!(replaced.at("/metadata/uid"), created.at("/metadata/uid"));
    assert_eq!(replaced.at("/metadata/finalizers"), &json!(["hactl.io/managed"]));
    assert_eq!(replaced.at("/status/state"), "Queued");

    // A change of metadata does not count as a new generation, and an equal object is not a change.
    let labeled = api.merge("resources/100", &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(labeled.at("/metadata/generation"), 2);
    let second_create = api
        .merge("resources/100", &json!({"metadata": {"labels": {"a": "b"}}, "status": {"state": "x"}}))
        .await;
    assert_eq!(second_create.body, labeled.body);
    let wrong_type = api.get("resources/ct:100").await;
    assert_eq!(wrong_type.code, 400);
    assert!(wrong_type.at("/message").as_str().unwrap().contains("vm:100"));
    assert_eq!(api.merge("resources/100", &json!({"metadata": {"resourceVersion": "1"}})).await.code, 409);
    assert_eq!(api.merge("resources/100", &json!({"metadata": {"name": "101"}})).await.code, 400);
    for method in ["PUT", "PATCH"] {
        assert_eq!(api.call(method, "resources/100/status", MERGE, &json!({})).await.code, 405);
    }
}

pub(crate) async fn deletion_waits_for_leader_and_empty_node<S: Store>(store: S) {
    let api = Api::over(store);
    api.post("resources", &resource("web")).await;
    let other_uid = json!({"preconditions": {"uid": "other"}});
    assert_eq!(api.call("DELETE", "resources/web", "application/json", &other_uid).await.code, 409);
    let marked = api.delete("resources/web").await;
    assert!(marked.at("/metadata/deletionTimestamp").is_string(), "{}", marked.body);
    // A client cannot remove the finalizer.
    api.merge("resources/web", &json!({"metadata": {"finalizers": null, "deletionTimestamp": null}})).await;
    let still = api.get("resources/web").await;
    assert_eq!(still.at("/metadata/finalizers"), &json!(["hactl.io/managed"]));
    assert!(still.at("/metadata/deletionTimestamp").is_string());

    let node = json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": "node1"}});
    api.post("nodes", &node).await;
    let fence = |state| json!(Fence { epoch: Epoch(1), state, ..Fence::default() });
    for (state, code) in [(FenceState::Open, 409), (FenceState::Fencing, 409)] {
        api.write(&api.keys.fence(&"node1".into()), &fence(state)).await;
        assert_eq!(api.delete("nodes/node1").await.code, code);
    }
    api.write(&api.keys.fence(&"node1".into()), &fence(FenceState::Fenced)).await;
    let assignment = Assignment { node: "node1".into(), ..Assignment::default() };
    api.write(&api.keys.assignment(&"web".into()), &json!(assignment)).await;
    let refused = api.delete("nodes/node1").await;
    assert_eq!(refused.code, 409);
    assert!(refused.at("/message").as_str().unwrap().contains("web"));
    api.write(&api.keys.assignment(&"web".into()), &json!(Assignment { node: "node2".into(), ..assignment }))
        .await;
    api.status(Kind::Node, "node1", &json!({"state": "Unknown"})).await;
    assert_eq!(api.delete("nodes/node1").await.code, 200);
    assert_eq!(api.get("nodes/node1").await.code, 404);
    // The status Gone stays for an hour, and the fence key is never deleted.
    assert_eq!(api.store.get(&api.keys.status(Kind::Node, "node1")).await.unwrap().entries.len(), 1);
    assert_eq!(api.store.get(&api.keys.fence(&"node1".into())).await.unwrap().entries.len(), 1);
}

pub(crate) async fn watch_continues_from_list_revision<S: Store>(store: S) {
    let api = Api::over(store);
    api.post("groups", &group("a")).await;
    let list = api.get("groups").await;
    let version = list.at("/metadata/resourceVersion").as_str().unwrap().to_owned();
    assert_eq!(list.at("/items/0/metadata/name"), "a");
    api.status(Kind::Group, "a", &json!({"observedGeneration": 1})).await;
    api.post("groups", &group("b")).await;
    api.delete("groups/b").await;
    let mut events = api.watch(&format!("groups?watch=1&resourceVersion={version}")).await;
    let mut last = version.parse::<i64>().unwrap();
    for (expected, name) in [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "b")] {
        let (event_type, object) = events.next().await.unwrap();
        assert_eq!((event_type.as_str(), object["metadata"]["name"].as_str().unwrap()), (expected, name));
        let revision: i64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(revision > last);
        last = revision;
    }
    api.post("resources", &resource("web")).await;
    api.merge("groups/a", &json!({"spec": {"comment": "c"}})).await;
    let (event_type, object) = events.next().await.unwrap();
    assert_eq!((event_type.as_str(), object["spec"]["comment"].as_str()), ("MODIFIED", Some("c")));

    // A second watch begins with the existing objects, and a third exceeds the limit.
    let mut other =
        api.watch("groups?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan").await;
    assert_eq!(other.next().await.unwrap().0, "ADDED");
    let (event_type, bookmark) = other.next().await.unwrap();
    assert_eq!(event_type, "BOOKMARK");
    assert_eq!(bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(api.get("groups?watch=1").await.code, 429);
    drop((events, other));
    assert_eq!(api.watch("groups?watch=1").await.next().await.unwrap().0, "ADDED");
}

/// The parameters `resourceVersion`, `resourceVersionMatch`, `limit` and `continue`, as in Kubernetes.
pub(crate) async fn a_list_has_the_requested_version<S: Store>(store: S) {
    let api = Api::over(store);
    for name in ["a", "b", "c"] {
        assert_eq!(api.post("groups", &group(name)).await.code, 201);
    }
    let names = |answer: &Answer| -> Vec<String> {
        let items = answer.at("/items").as_array().unwrap();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let first = api.get("groups?limit=1").await;
    let version = first.at("/metadata/resourceVersion").as_str().unwrap();
    let token = first.at("/metadata/continue").as_str().unwrap();
    assert_eq!((names(&first), first.at("/metadata/remainingItemCount")), (vec!["a".to_owned()], &json!(2)));
    // The later pages are those of the first page's version.
    api.delete("groups/b").await;
    api.post("groups", &group("b2")).await;
    let second_page = api.get(&format!("groups?limit=9&continue={token}")).await;
    assert_eq!(names(&second_page), ["b", "c"]);
    assert_eq!(second_page.at("/metadata/resourceVersion"), version);
    let exact = format!("groups?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(names(&api.get(&exact).await), ["a", "b", "c"]);
    let newest = format!("groups?resourceVersion={version}&resourceVersionMatch=NotOlderThan");
    assert_eq!(names(&api.get(&newest).await), ["a", "b2", "c"]);
    for newest in ["groups", "groups?resourceVersion=0", "groups?resourceVersion=1"] {
        assert_eq!(names(&api.get(newest).await), ["a", "b2", "c"], "{newest}");
    }
    for refused in [
        "groups?resourceVersion=abc",
        "groups?resourceVersion=-1",
        "groups?resourceVersionMatch=Exact",
        "groups?resourceVersion=0&resourceVersionMatch=Exact",
        "groups?resourceVersion=5&resourceVersionMatch=Bogus",
        "groups?continue=eyJyZXZpc2lvbiI6MX0",
        &format!("groups?continue={token}&resourceVersion={version}"),
        &format!("groups?continue={token}&resourceVersionMatch=NotOlderThan"),
        "groups?watch=1&sendInitialEvents=true",
        "groups?watch=1&resourceVersion=1&resourceVersionMatch=Exact",
    ] {
        assert_eq!(api.get(refused).await.code, 400, "{refused}");
    }
    for future in ["", "&resourceVersionMatch=Exact", "&resourceVersionMatch=NotOlderThan"] {
        let refused = api.get(&format!("groups?resourceVersion=99999999{future}")).await;
        assert_eq!(refused.code, 504, "{future}");
        assert_eq!(refused.at("/details/causes/0/reason"), "ResourceVersionTooLarge");
    }
}

pub(crate) async fn concurrent_patches_are_all_applied<S: Store>(store: S) {
    let api = Arc::new(Api::over(store));
    api.post("groups", &group("g")).await;
    let tasks: Vec<_> = (0..6)
        .map(|n| {
            let api = Arc::clone(&api);
            tokio::spawn(async move {
                let patch = json!({"metadata": {"labels": {format!("l{n}"): "x"}}});
                api.merge("groups/g", &patch).await.code
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 200);
    }
    let labels = api.get("groups/g").await;
    assert_eq!(labels.at("/metadata/labels").as_object().unwrap().len(), 6);
}

/// Answers the next request for a log as the agent of node1, and returns the request. The answer is sent unchanged.
async fn answer_as_agent<S: Store>(api: Arc<Api<S>>, answer: Value) -> Value {
    let (key, request) = loop {
        let reading = api.store.list(&api.keys.log_requests_of(&"node1".into())).await.unwrap();
        if let Some(entry) = reading.entries.first() {
            assert_ne!(entry.lease, ha_store::LeaseId::NONE, "a request vanishes");
            break (entry.key.clone(), serde_json::from_slice(&entry.value).unwrap());
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    let Some(Key::LogRequest(node, id)) = api.keys.parse(&key) else { unreachable!("{key} is no request") };
    api.write(&api.keys.log_answer(&node, id), &answer).await;
    request
}

pub(crate) async fn a_log_is_answered_by_the_agent_of_the_node<S: Store>(store: S) {
    let api = Arc::new(Api::over(store));
    for (path, code) in [
        ("resources/web/log", 404),
        ("resources/web/log?tailLines=0", 400),
        ("resources/web/log?tailLines=10001", 400),
        ("resources/web/log?sinceSeconds=x", 400),
    ] {
        let refused = api.get(path).await;
        assert_eq!((refused.code, refused.at("/kind")), (code, &json!("Status")), "{path}");
    }
    api.post("resources", &resource("web")).await;
    let unassigned = api.get("resources/web/log").await;
    assert_eq!(unassigned.code, 409, "{}", unassigned.body);
    assert!(unassigned.at("/message").as_str().unwrap().contains("is not assigned to a node"));
    assert_eq!(api.get("resources/ct:web/log").await.code, 400, "a wrong type");
    assert_eq!(api.get("resources/web/log?node=node7").await.code, 404);
    api.status(Kind::Resource, "web", &json!({"state": "Started", "node": "node1"})).await;
    let offline = api.get("resources/web/log").await;
    assert_eq!(offline.code, 503);
    assert!(offline.at("/message").as_str().unwrap().contains("node1 is not online"));
    api.write(&api.keys.alive(&"node1".into()), &json!({"instance": "a", "epoch": 1, "sequence": 1})).await;

    let agent =
        tokio::spawn(answer_as_agent(Arc::clone(&api), json!({"text": "one\ntwo\n", "truncated": true})));
    let path = "resources/vm:web/log?tailLines=2&sinceSeconds=60";
    let response = api.send("GET", path, "", Vec::new()).await;
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
    assert!(response.headers()["warning"].to_str().unwrap().contains("older lines were omitted"));
    let text = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    assert_eq!(text.as_ref(), b"one\ntwo\n");
    let requests = agent.await.unwrap();
    assert_eq!((&requests["tailLines"], &requests["sinceSeconds"]), (&json!(2), &json!(60)));
    assert_eq!(requests["definition"]["name"], "web");
    for remaining in [api.keys.log_requests_of(&"node1".into()), api.keys.log_answers_of(&"node1".into())] {
        assert!(api.store.list(&remaining).await.unwrap().entries.is_empty(), "{remaining}");
    }

    for (kind, code) in [("NotKept", 400), ("Unreadable", 500)] {
        let answer = json!({"failure": {"kind": kind, "message": "so it is"}});
        let agent = tokio::spawn(answer_as_agent(Arc::clone(&api), answer));
        let failed = api.get("resources/web/log").await;
        assert_eq!(failed.code, code, "{}", failed.body);
        assert!(failed.at("/message").as_str().unwrap().ends_with("so it is"), "{}", failed.body);
        agent.await.unwrap();
    }
}

pub(crate) async fn requests_that_wait_for_an_agent_are_limited<S: Store>(store: S) {
    let api = Arc::new(Api::over(store));
    api.post("resources", &resource("web")).await;
    api.status(Kind::Resource, "web", &json!({"state": "Started", "node": "node1"})).await;
    api.write(&api.keys.alive(&"node1".into()), &json!({"instance": "a", "epoch": 1, "sequence": 1})).await;
    let waiting = |_| {
        let api = Arc::clone(&api);
        tokio::spawn(async move { api.get("resources/web/log").await.code })
    };
    let tasks: Vec<_> = (0..8).map(waiting).collect();
    while api.store.list(&api.keys.log_requests_of(&"node1".into())).await.unwrap().entries.len() < 8 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(api.get("resources/web/log").await.code, 429);
    for task in tasks {
        assert_eq!(task.await.unwrap(), 504);
    }
    let remaining = api.store.list(&api.keys.log_requests_of(&"node1".into())).await.unwrap();
    assert!(remaining.entries.is_empty(), "{:?}", remaining.entries);
}
