//! Health checks that the agent runs.

use crate::node::{IMAGE, Node, service};
use ha_api_types::reason::Reason;
use ha_api_types::resource::ServiceDefinition;
use ha_node_agent::driver::Driver;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// Returns a service that is healthy while the file `ok` exists in the node's directory.
fn checked(node: &Node, command: &Value) -> ServiceDefinition {
    let directory = node.podman.path("state");
    fs::create_dir_all(&directory).unwrap();
    let mut service = service(&json!({
        "image": IMAGE, "command": ["/bin/sh", "-c", "while :; do sleep 0.05; done"],
        "mounts": [{"source": directory, "target": "/state"}],
        "healthCheck": {"command": command, "intervalSeconds": 0.1, "timeoutSeconds": 10, "retries": 2},
    }));
    service.timeouts.start_seconds = 60.0;
    service
}

/// Returns the processes whose command line matches, one per line.
fn processes(pattern: &str) -> String {
    let output = std::process::Command::new("pgrep").args(["-f", pattern]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn container_health_determines_start_and_crash() {
    let mut node = Node::new().await;
    let script = "echo x >> /state/asked; test -e /state/ok || { echo not ok; exit 3; }";
    let service = checked(&node, &json!(["/bin/sh", "-c", script]));
    let state = node.podman.path("state");
    let well_soon = async {
        crate::node::wait_until("the health check has run", || state.join("asked").exists()).await;
        fs::write(state.join("ok"), "").unwrap();
    };
    let (started, ()) = tokio::join!(node.driver.start(&service), well_soon);
    started.unwrap();
    let length = || fs::metadata(state.join("asked")).map_or(0, |file| file.len());
    let before = length();
    crate::node::wait_until("the health check runs again", || length() > before).await;
    assert!(node.events.try_recv().is_err());
    let conmon = format!("conmon.*{}", node.podman.inspect("hactl-web", ".Id"));
    let asking = || processes(&conmon).lines().count();
    crate::node::wait_until("no process is left of a check that ended", || asking() == 1).await;
    fs::remove_file(state.join("ok")).unwrap();
    let (message, stopped_externally) = node.exit().await;
    assert_eq!(message, "container is unhealthy: health check failed 2 times in a row: not ok");
    assert!(!stopped_externally);
    node.driver.kill(&service).await.unwrap();
    node.assert_nothing_left(&service).await;
    let length_after_stop = length();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(length(), length_after_stop, "no health check runs in a stopped container");
    assert!(node.events.try_recv().is_err());
}

#[tokio::test]
async fn container_that_is_never_healthy_fails_start() {
    let node = Node::new().await;
    let mut service = checked(&node, &json!(["/bin/sh", "-c", "echo no answer; exit 1"]));
    service.timeouts.start_seconds = 5.0;
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!(failure.reason, Reason::TimedOut);
    assert!(failure.message.contains("no answer"), "{}", failure.message);
    node.driver.stop(&service, 1000).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn hanging_health_check_is_ended_and_fails() {
    let mut node = Node::new().await;
    let script = "test -e /state/hang && exec sleep 4321; exit 0";
    let mut service = checked(&node, &json!(["/bin/sh", "-c", script]));
    if let Some(check) = service.driver.podman.as_mut().and_then(|podman| podman.health_check.as_mut()) {
        check.timeout_seconds = 2.0;
    }
    node.driver.start(&service).await.unwrap();
    fs::write(node.podman.path("state").join("hang"), "").unwrap();
    let (message, _) = node.exit().await;
    assert!(message.ends_with("timed out after 2 s"), "{message}");
    assert_eq!(processes("^sleep 4321$"), "", "no check is left");
    node.driver.kill(&service).await.unwrap();
}

#[tokio::test]
async fn existing_container_uses_its_own_health_check() {
    let mut node = Node::new().await;
    let mut service = crate::existing::manually_created_service(
        &node,
        &["--health-cmd=test ! -e /bad || { echo it is bad; exit 4; }", "--health-interval=disable"],
    );
    let check = json!({"intervalSeconds": 0.1, "retries": 1});
    service.driver.podman.as_mut().unwrap().health_check = serde_json::from_value(check).unwrap();
    node.driver.start(&service).await.unwrap();
    node.podman.run(&["exec", "db", "touch", "/bad"]);
    let (message, _) = node.exit().await;
    assert_eq!(message, "container is unhealthy: health check failed 1 times in a row: it is bad");
    node.driver.kill(&service).await.unwrap();
    node.podman.run(&["rm", "db"]);

    crate::existing::manually_created_service(&node, &[]);
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!(failure.reason, Reason::BadConfiguration);
    assert!(failure.message.contains("--health-cmd"), "{}", failure.message);
}
