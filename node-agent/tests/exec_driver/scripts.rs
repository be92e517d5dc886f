//! Services with start, stop, monitor and migrate commands.

use crate::node::{Node, wait_until};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_node_agent::driver::{Driver, DriverEvent};
use serde_json::json;

/// Returns a classic daemon with a pid file. `$0` is the node's directory.
fn daemon(node: &Node) -> ServiceDefinition {
    let sh = |script: &str| json!(["/bin/sh", "-c", script, node.directory.path()]);
    node.service(&json!({
        "start": sh("rm -f pid; setsid sh -c 'echo $$ > pid; exec tail -f $0/token' $0 & while [ ! -s pid ]; do sleep 0.01; done"),
        "stop": sh("test ! -s pid || kill $(cat pid); rm -f pid"),
        "monitor": sh("test -s pid && kill -0 $(cat pid) || exit 7"),
        "migrate": sh("echo $HA_RESOURCE from $HA_NODE to $HA_TARGET > moved; kill $(cat pid); rm pid"),
    }))
}

#[tokio::test]
async fn configured_commands_start_monitor_and_stop_daemon() {
    for cgroups in [true, false] {
        let node = Node::new(cgroups);
        let service = daemon(&node);
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.driver.probe(&service).await, Observed::Running);
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.processes().len(), 1, "a second start adopts");
        let node = node.restart_agent();
        assert_eq!(node.driver.probe(&service).await, Observed::Running, "the agent's end changes nothing");
        node.driver.stop(&service, 20_000).await.unwrap();
        node.assert_nothing_left(&service).await;
        node.driver.start(&service).await.unwrap();
        node.driver.kill(&service).await.unwrap();
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn monitor_exit_status_determines_state() {
    let node = Node::new(true);
    for (script, expected) in [
        ("exit 0", "running"),
        ("exit 7", "not running"),
        ("echo no database >&2; exit 1", "monitor command failed: exit status 1: no database"),
        ("kill -9 $$", "monitor command failed: killed by signal 9"),
        ("sleep 1000000", "monitor command timed out"),
    ] {
        let mut service =
            node.service(&json!({"start": ["true"], "stop": ["true"], "monitor": ["/bin/sh", "-c", script]}));
        service.timeouts.monitor_seconds = if expected.contains("timed out") { 0.1 } else { 20.0 };
        let outcome = match node.driver.probe(&service).await {
            Observed::Running => "running".to_owned(),
            Observed::NotRunning => "not running".to_owned(),
            Observed::Remnant(message) | Observed::Unknown(message) => message,
        };
        assert_eq!(outcome, expected, "{script}");
    }
}

#[tokio::test]
async fn a_start_that_takes_too_long_is_killed_with_its_group() {
    let node = Node::new(true);
    let mut service = node.service(&json!({
        "start": ["/bin/sh", "-c", "tail -f $0/token & tail -f $0/token", node.directory.path()],
        "stop": ["true"],
        "monitor": ["/bin/sh", "-c", "exit 7"],
    }));
    service.timeouts.start_seconds = 0.3;
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!((failure.class, failure.reason), (FailureClass::RetryHere, Reason::TimedOut));
    wait_until("the process group has ended", || node.processes().is_empty()).await;
}

#[tokio::test]
async fn failed_start_reports_its_output() {
    let node = Node::new(true);
    let service = node.service(&json!({
        "start": ["/bin/sh", "-c", "echo 'disk is missing' >&2; exit 2"],
        "stop": ["true"],
        "monitor": ["/bin/sh", "-c", "exit 7"],
    }));
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!(failure.reason, Reason::StartFailed);
    assert_eq!(failure.message, "start command failed: exit status 2: disk is missing");
}

#[tokio::test]
async fn interrupted_start_does_not_count_as_stopped() {
    for cgroups in [true, false] {
        let node = Node::new(cgroups);
        let service = node.service(&json!({
            // The program leaves its process group, so a kill of that group does not reach it.
            "start": ["/bin/sh", "-c", "(setsid sh -c 'touch $0/left; exec tail -f $0/token' $0 &); exec tail -f $0/token",
                node.directory.path()],
            "stop": ["true"],
            "monitor": ["/bin/sh", "-c", "exit 7"],
        }));
        {
            let mut starting = std::pin::pin!(node.driver.start(&service));
            tokio::select! {
                _ = &mut starting => panic!("the start must not end"),
                () = wait_until("the start is in progress", || node.path("left").exists()) => {}
            }
        }
        assert!(matches!(node.driver.probe(&service).await, Observed::Unknown(_)));
        node.driver.stop(&service, 20_000).await.unwrap();
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn a_stop_that_fails_or_hangs_is_followed_by_a_kill() {
    for stop in ["exit 1", "sleep 1000000"] {
        let node = Node::new(true);
        let mut service = daemon(&node);
        service.driver.exec.as_mut().unwrap().stop = ["/bin/sh", "-c", stop].map(String::from).to_vec();
        node.driver.start(&service).await.unwrap();
        node.driver.stop(&service, 300).await.unwrap();
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn stop_contradicted_by_monitor_fails() {
    let node = Node::new(true);
    let service = node.service(&json!({
        "start": ["true"],
        "stop": ["/bin/sh", "-c", "echo busy; exit 1"],
        "monitor": ["true"],
    }));
    for failure in
        [node.driver.stop(&service, 1000).await.unwrap_err(), node.driver.kill(&service).await.unwrap_err()]
    {
        assert_eq!(failure.reason, Reason::StopFailed);
        let expected =
            "stop command failed: exit status 1: busy; monitor command reports that the service still runs";
        assert_eq!(failure.message, expected);
    }
}

#[tokio::test]
async fn migration_runs_its_configured_command() {
    let node = Node::new(true);
    let service = daemon(&node);
    node.driver.start(&service).await.unwrap();
    node.driver.receive(&service).await.unwrap();
    node.driver.migrate(&service, &"node2".into()).await.unwrap();
    assert_eq!(node.read("moved"), "web from node1 to node2\n");
    node.assert_nothing_left(&service).await;
    let failure = node.driver.migrate(&node.shell("exec sleep 1000000"), &"node2".into()).await.unwrap_err();
    assert_eq!(failure.reason, Reason::MoveFailed);
}

#[tokio::test]
async fn monitor_detects_the_end_of_daemon() {
    let mut node = Node::with(|settings| settings.monitor_interval = std::time::Duration::from_millis(20));
    let service = daemon(&node);
    node.driver.start(&service).await.unwrap();
    crate::node::signal(node.processes()[0], "KILL");
    assert!(matches!(node.event().await, DriverEvent::Exited { stopped_externally: false, .. }));
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    node.driver.stop(&service, 20_000).await.unwrap();
    node.assert_nothing_left(&service).await;
}
