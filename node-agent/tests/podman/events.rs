//! Changes that the driver detects without a command: crashes and manual operations.

use crate::node::{Node, RUN_SCRIPT, is_alive, kill};
use ha_api_types::record::Observed;
use ha_node_agent::driver::{Driver, DriverEvent};
use std::time::Duration;

const CONTAINER_NAME: &str = "hactl-web";

#[tokio::test]
async fn container_crash_is_reported_with_last_output() {
    let mut node = Node::new().await;
    let service =
        Node::shell("echo first; trap 'echo out of luck; exit 5' USR1; while :; do sleep 0.05; done");
    for _ in 0..2 {
        node.driver.start(&service).await.unwrap();
        let process = node.podman.process(CONTAINER_NAME);
        let _ = std::process::Command::new("kill").args(["-s", "USR1", &process.to_string()]).status();
        assert_eq!(node.exit().await, ("exit status 5: out of luck".to_owned(), false));
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
        // The agent also kills the service before it starts it again.
        node.driver.kill(&service).await.unwrap();
    }
    node.driver.start(&service).await.unwrap();
    kill(node.podman.process(CONTAINER_NAME));
    assert_eq!(node.exit().await, ("exit status 137 (signal 9): first".to_owned(), false));
}

#[tokio::test]
async fn manual_container_stop_is_distinguished_from_crash() {
    let mut node = Node::new().await;
    let service = Node::shell(RUN_SCRIPT);
    for stopped_externally in [
        &["stop", CONTAINER_NAME][..],
        &["kill", CONTAINER_NAME],
        &["rm", "--force", CONTAINER_NAME],
        &["stop", "--time=0", CONTAINER_NAME],
    ] {
        node.driver.start(&service).await.unwrap();
        node.podman.run(stopped_externally);
        let (message, recognized) = node.exit().await;
        assert!(recognized, "{stopped_externally:?}: {message}");
        node.driver.kill(&service).await.unwrap();
    }
    assert!(node.events.try_recv().is_err(), "one event for each end");
}

#[tokio::test]
async fn manually_restarted_container_is_still_monitored() {
    let mut node = Node::new().await;
    let service = Node::shell(RUN_SCRIPT);
    node.driver.start(&service).await.unwrap();
    let process = node.podman.process(CONTAINER_NAME);
    node.podman.run(&["restart", CONTAINER_NAME]);
    // Between the end and the start, the driver may have detected a manual stop.
    let _ = tokio::time::timeout(Duration::from_secs(2), node.events.recv()).await;
    assert!(!is_alive(process));
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    kill(node.podman.process(CONTAINER_NAME));
    assert!(node.exit().await.0.contains("signal 9"));
}

#[tokio::test]
async fn changes_during_podman_outage_are_detected() {
    let mut node = Node::new().await;
    let service = Node::shell(RUN_SCRIPT);
    node.driver.start(&service).await.unwrap();
    let process = node.podman.process(CONTAINER_NAME);
    node.podman.end_service();
    assert!(is_alive(process), "the container keeps running");
    let observed = node.driver.probe(&service).await;
    assert!(matches!(&observed, Observed::Unknown(cause) if cause.contains("podman.sock")), "{observed:?}");
    let cause = node.driver.check_usable().await.unwrap_err();
    assert!(cause.contains("podman.socket"), "{cause}");
    kill(process);
    node.podman.start_service().await;
    assert!(node.exit().await.0.contains("signal 9"));
}

#[tokio::test]
async fn container_without_process_and_conmon_has_stopped() {
    // Podman emits no event for this, and continues to report the container as running.
    let mut node = Node::with_poll(Duration::from_millis(200)).await;
    let service = Node::shell(RUN_SCRIPT);
    node.driver.start(&service).await.unwrap();
    let process = node.podman.process(CONTAINER_NAME);
    kill(node.podman.inspect(CONTAINER_NAME, ".State.ConmonPid").parse().unwrap());
    assert_eq!(node.driver.probe(&service).await, Observed::Running, "without conmon it still runs");
    kill(process);
    let (message, stopped_externally) = node.exit().await;
    assert!(message.contains("conmon") && !stopped_externally, "{message}");
    assert_eq!(node.podman.inspect(CONTAINER_NAME, ".State.Status"), "running");
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    node.driver.start(&service).await.unwrap();
    assert!(is_alive(node.podman.process(CONTAINER_NAME)));
    // A kill also ends a container that has lost its conmon.
    let process = node.podman.process(CONTAINER_NAME);
    kill(node.podman.inspect(CONTAINER_NAME, ".State.ConmonPid").parse().unwrap());
    node.driver.kill(&service).await.unwrap();
    assert!(!is_alive(process));
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn manually_started_container_is_reported() {
    let mut node = Node::new().await;
    let service = crate::existing::manually_created_service(&node, &[]);
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    node.podman.run(&["start", "db"]);
    let event = node.event().await;
    assert_eq!(event, DriverEvent::Appeared { name: "web".into(), uid: "uid-1".into() });
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
}
