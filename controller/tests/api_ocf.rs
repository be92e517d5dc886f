//! Tests of the check of OCF parameters on apply, against resource agents that are installed on this machine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/http.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod http;

use ha_controller::api::ApiOptions;
use ha_store::MemoryStore;
use http::Api;
use serde_json::{Value, json};
use std::path::PathBuf;

fn api(root: &str) -> Api<MemoryStore> {
    let mut options = ApiOptions::new("c1", "test");
    options.ocf_root = Some(PathBuf::from(root));
    Api::with(MemoryStore::new(), options)
}

fn address(agent: &str, parameters: &Value) -> Value {
    json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": "address"},
        "spec": {"driver": {"ocf": {"agent": agent, "parameters": parameters}}}})
}

#[tokio::test]
async fn wrong_parameters_are_refused_at_their_path() {
    let api = api("/usr/lib/ocf");
    for (parameters, field, message) in [
        (
            json!({"ip": "192.0.2.1", "cidr_netmaks": "24"}),
            "spec.driver.ocf.parameters.cidr_netmaks",
            "ocf:heartbeat:IPaddr2 has no parameter cidr_netmaks; did you mean cidr_netmask?",
        ),
        (
            json!({"cidr_netmask": "24"}),
            "spec.driver.ocf.parameters.ip",
            "ocf:heartbeat:IPaddr2 requires the parameter ip (IPv4 or IPv6 address)",
        ),
        (
            json!({"ip": "192.0.2.1", "lvs_support": "later"}),
            "spec.driver.ocf.parameters.lvs_support",
            "must be true or false, got \"later\"",
        ),
        (
            json!({"ip": "192.0.2.1", "arp_count": "some"}),
            "spec.driver.ocf.parameters.arp_count",
            "must be an integer, got \"some\"",
        ),
    ] {
        let refused = api.post("resources", &address("heartbeat:IPaddr2", &parameters)).await;
        assert_eq!(refused.code, 422, "{parameters}: {}", refused.body);
        assert_eq!(refused.at("/details/causes/0/field"), field);
        assert_eq!(refused.at("/details/causes/0/message"), message);
    }
    let accepted = api.post("resources", &address("heartbeat:IPaddr2", &json!({"ip": "192.0.2.1"}))).await;
    assert_eq!(
        (accepted.code, accepted.warnings.len()),
        (201, 0),
        "{:?} {}",
        accepted.warnings,
        accepted.body
    );
    let changed = json!({"spec": {"driver": {"ocf": {"parameters": {"nick": "eth0"}}}}});
    assert_eq!(api.merge("resources/address", &changed).await.code, 422);
}

#[tokio::test]
async fn unverifiable_parameters_are_accepted_with_one_warning() {
    let api = api("/nonexistent");
    let accepted = api.post("resources", &address("heartbeat:IPaddr2", &json!({"anything": "goes"}))).await;
    assert_eq!(accepted.code, 201);
    let expected = "spec.driver.ocf.parameters: not checked because ocf:heartbeat:IPaddr2 is not installed on the \
         controller that handled the request";
    assert!(accepted.warnings.iter().any(|warning| warning.contains(expected)), "{:?}", accepted.warnings);
    let other = api.merge("resources/address", &json!({"spec": {"comment": "c"}})).await;
    assert_eq!((other.code, other.warnings.len()), (200, 0), "{:?}", other.warnings);
}
