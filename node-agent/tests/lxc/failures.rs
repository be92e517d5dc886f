//! Containers that cannot be services, and starts that fail.

use crate::node::{Node, RUN_SCRIPT};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_node_agent::driver::Driver;
use serde_json::json;
use std::fs;

async fn check(node: &Node, class: FailureClass, reason: Reason, part: &str) {
    let service = node.service();
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!((failure.class, failure.reason), (class, reason), "{}", failure.message);
    assert!(failure.message.contains(part), "{}", failure.message);
    node.driver.kill(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
}

#[tokio::test]
async fn a_container_that_starts_at_boot_is_refused() {
    let node = Node::new(RUN_SCRIPT);
    node.configure("lxc.start.auto = 1");
    check(&node, FailureClass::NeverHere, Reason::BadConfiguration, "set lxc.start.auto = 0 in").await;
    assert_eq!(node.state(), "STOPPED");
    // The same applies to a container that already runs.
    node.run("lxc-start", &["-d"]);
    let service = node.service();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    assert!(node.driver.start(&service).await.is_err());
}

#[tokio::test]
async fn a_missing_container_is_not_installed() {
    let node = Node::new(RUN_SCRIPT);
    fs::remove_file(node.path("config")).unwrap();
    check(&node, FailureClass::NeverHere, Reason::NotInstalled, "does not exist on this node").await;
}

#[tokio::test]
async fn missing_lxc_program_is_not_installed() {
    let node = Node::new(RUN_SCRIPT);
    node.configure("lxc.init.cmd = /nope");
    check(&node, FailureClass::NeverHere, Reason::NotInstalled, "Failed to exec \"/nope\"").await;
}

#[tokio::test]
async fn invalid_container_configuration_is_reported() {
    let node = Node::new(RUN_SCRIPT);
    node.configure("lxc.nope = 1");
    check(&node, FailureClass::NeverHere, Reason::BadConfiguration, "lxc.nope").await;
}

#[tokio::test]
async fn missing_root_file_system_fails_with_try_elsewhere() {
    let node = Node::new(RUN_SCRIPT);
    fs::rename(node.path("rootfs"), node.path("gone")).unwrap();
    check(&node, FailureClass::TryElsewhere, Reason::StartFailed, "rootfs").await;
}

#[tokio::test]
async fn a_container_that_ends_immediately_has_not_started() {
    let node = Node::new("echo no license; exit 4");
    check(&node, FailureClass::RetryHere, Reason::StartFailed, "no license").await;
}

#[tokio::test]
async fn a_container_that_is_not_healthy_in_time_has_not_started() {
    let node = Node::new(RUN_SCRIPT);
    let mut service = node.service_with(&json!({"healthCheck": {"command": ["/bin/false"]}}));
    service.timeouts = serde_json::from_value(json!({"startSeconds": 1})).unwrap();
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!(failure.reason, Reason::TimedOut);
    assert!(failure.message.contains("exit status 1"), "{}", failure.message);
}
