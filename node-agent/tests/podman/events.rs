//! Changes that the driver notices without a command: crashes and manual operations.

use crate::node::{Node, RUN, is_alive, kill};
use ha_api_types::record::Observed;
use ha_node_agent::driver::{Driver, DriverEvent};
use std::time::Duration;

const NAME: &str = "hactl-web";

#[tokio::test]
async fn a_crash_is_told_with_its_last_words_and_it_can_be_started_again() {
    let mut node = Node::new().await;
    let service =
        Node::shell("echo first; trap 'echo out of luck; exit 5' USR1; while :; do sleep 0.05; done");
    for _ in 0..2 {
        node.driver.start(&service).await.unwrap();
        let process = node.podman.process(NAME);
        let _ = std::process::Command::new("kill").args(["-s", "USR1", &process.to_string()]).status();
        assert_eq!(node.exit().await, ("exit status 5: out of luck".to_owned(), false));
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
        // The agent also kills the service before it starts it again.
        node.driver.kill(&service).await.unwrap();
    }
    node.driver.start(&service).await.unwrap();
    kill(node.podman.process(NAME));
    assert_eq!(node.exit().await, ("exit status 137 (signal 9): first".to_owned(), false));
}

#[tokio::test]
async fn a_stop_by_hand_is_told_from_a_crash() {
    let mut node = Node::new().await;
    let service = Node::shell(RUN);
    for stopped_externally in
        [&["stop", NAME][..], &["kill", NAME], &["rm", "--force", NAME], &["stop", "--time=0", NAME]]
    {
        node.driver.start(&service).await.unwrap();
        node.podman.run(stopped_externally);
        let (message, told) = node.exit().await;
        assert!(told, "{stopped_externally:?}: {message}");
        node.driver.kill(&service).await.unwrap();
    }
    assert!(node.events.try_recv().is_err(), "one event for each end");
}

#[tokio::test]
async fn one_that_was_restarted_by_hand_is_watched_on() {
    let mut node = Node::new().await;
    let service = Node::shell(RUN);
    node.driver.start(&service).await.unwrap();
    let process = node.podman.process(NAME);
    node.podman.run(&["restart", NAME]);
    // Between the end and the start, the driver may have seen a manual stop.
    let _ = tokio::time::timeout(Duration::from_secs(2), node.events.recv()).await;
    assert!(!is_alive(process));
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    kill(node.podman.process(NAME));
    assert!(node.exit().await.0.contains("signal 9"));
}

#[tokio::test]
async fn what_happens_while_podmans_service_is_away_is_seen_when_it_is_back() {
    let mut node = Node::new().await;
    let service = Node::shell(RUN);
    node.driver.start(&service).await.unwrap();
    let process = node.podman.process(NAME);
    node.podman.end_service();
    assert!(is_alive(process), "the container keeps running");
    let seen = node.driver.probe(&service).await;
    assert!(matches!(&seen, Observed::Unknown(why) if why.contains("podman.sock")), "{seen:?}");
    let why = node.driver.check_usable().await.unwrap_err();
    assert!(why.contains("podman.socket"), "{why}");
    kill(process);
    node.podman.start_service().await;
    assert!(node.exit().await.0.contains("signal 9"));
}

#[tokio::test]
async fn a_container_whose_conmon_was_killed_too_is_no_longer_taken_for_running() {
    // Podman emits no event for this, and continues to report the container as running.
    let mut node = Node::with_poll(Duration::from_millis(200)).await;
    let service = Node::shell(RUN);
    node.driver.start(&service).await.unwrap();
    let process = node.podman.process(NAME);
    kill(node.podman.inspect(NAME, ".State.ConmonPid").parse().unwrap());
    assert_eq!(node.driver.probe(&service).await, Observed::Running, "without conmon it still runs");
    kill(process);
    let (message, stopped_externally) = node.exit().await;
    assert!(message.contains("conmon") && !stopped_externally, "{message}");
    assert_eq!(node.podman.inspect(NAME, ".State.Status"), "running");
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    node.driver.start(&service).await.unwrap();
    assert!(is_alive(node.podman.process(NAME)));
    // A kill also ends a container that has lost its conmon.
    let process = node.podman.process(NAME);
    kill(node.podman.inspect(NAME, ".State.ConmonPid").parse().unwrap());
    node.driver.kill(&service).await.unwrap();
    assert!(!is_alive(process));
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn a_container_that_is_started_by_hand_appears() {
    let mut node = Node::new().await;
    let service = crate::existing::made_by_hand(&node, &[]);
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    node.podman.run(&["start", "db"]);
    let event = node.event().await;
    assert_eq!(event, DriverEvent::Appeared { name: "web".into(), uid: "uid-1".into() });
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
}
