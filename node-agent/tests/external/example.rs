//! The driver of manifests/examples/drivers.

use crate::node::{Node, service};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_node_agent::driver::{Driver, DriverEvent};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::Duration;

fn with_example(monitor_interval: Duration) -> Node {
    let node = Node::new("node1", monitor_interval);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/examples/drivers/directory");
    // The driver is installed as an administrator would install it.
    let status = std::process::Command::new("cp").arg(example).arg(node.path("second/directory")).status();
    assert!(status.unwrap().success());
    node
}

#[tokio::test]
async fn example_driver_starts_monitors_and_stops_service() {
    let mut node = with_example(Duration::from_secs(3600));
    assert_eq!(node.driver.published_capabilities().await.unwrap(), ["external:directory"]);
    fs::create_dir(node.path("data")).unwrap();
    let link = node.path("current");
    let service = service("directory", &json!({"link": link, "folders": {"node1": node.path("data")}}));
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    node.driver.start(&service).await.unwrap();
    assert_eq!(fs::read_link(&link).unwrap(), node.path("data"));

    // The driver itself reports the change, and its cause. Polling would take an hour.
    let missed = |event: &DriverEvent| matches!(event, DriverEvent::Exited { message, stopped_externally: true, .. } if message == "the link was removed");
    wait_for_monitor(&node).await;
    fs::remove_file(&link).unwrap();
    let event = node.event().await;
    assert!(missed(&event), "{event:?}");
    std::os::unix::fs::symlink(node.path("data"), &link).unwrap();
    let event = node.event().await;
    assert!(matches!(event, DriverEvent::Appeared { .. }), "{event:?}");

    let mut node = node.restart_agent();
    assert_eq!(node.driver.probe(&service).await, Observed::Running, "the agent's end changes nothing");
    node.driver.stop(&service, 20_000).await.unwrap();
    assert!(!link.exists());
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    wait_for_monitor(&node).await;
    std::os::unix::fs::symlink(node.path("data"), &link).unwrap();
    let event = node.event().await;
    assert!(matches!(event, DriverEvent::Appeared { .. }), "started by hand: {event:?}");
    node.driver.kill(&service).await.unwrap();
    assert!(!link.exists());
}

/// Waits until the driver's `monitor` has read its request, and therefore reports changes.
async fn wait_for_monitor(node: &Node) {
    let sleeping = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|place| place.contains("nanosleep"))
    };
    crate::node::wait_until("the driver's monitor watches", || node.processes().iter().any(sleeping)).await;
}

#[tokio::test]
async fn polling_detects_crash_without_events() {
    let mut node = Node::new("node1", Duration::from_millis(100));
    node.install("first", "test", r#"case $action in
        describe) echo '{"result":"done","name":"test","version":"1"}' ;;
        probe) if [ -e $HERE/runs ]; then echo '{"result":"running"}'; else echo '{"result":"notRunning"}'; fi ;;
        start) touch $HERE/runs; echo '{"result":"done"}' ;;
        stop) rm -f $HERE/runs; echo '{"result":"done"}' ;;
    esac"#);
    let service = service("test", &json!({}));
    node.driver.start(&service).await.unwrap();
    fs::remove_file(node.path("runs")).unwrap();
    let event = node.event().await;
    assert!(matches!(event, DriverEvent::Exited { stopped_externally: false, .. }), "{event:?}");
}

#[tokio::test]
async fn invalid_driver_settings_are_explained() {
    let node = with_example(Duration::from_secs(3600));
    for (settings, class, reason, message) in [
        (
            json!({"folders": {}, "lnik": "/x"}),
            FailureClass::ConfigurationWrong,
            Reason::BadConfiguration,
            "spec.driver.external.settings.lnik: unknown field \"spec.driver.external.settings.lnik\", did you mean \"link\"?; \
             spec.driver.external.settings.link: is missing",
        ),
        (
            json!({"link": 5, "folders": {"node1": true}}),
            FailureClass::ConfigurationWrong,
            Reason::BadConfiguration,
            "spec.driver.external.settings.folders.node1: must be a string, got true; \
             spec.driver.external.settings.link: must be a string, got 5",
        ),
        (
            json!({"link": "current", "folders": {"node1": "/"}}),
            FailureClass::ConfigurationWrong,
            Reason::BadConfiguration,
            "settings.link must be an absolute path",
        ),
        (
            json!({"link": "/nonexistent/link", "folders": {"node2": "/"}}),
            FailureClass::NeverHere,
            Reason::StartFailed,
            "settings.folders has no entry for node1",
        ),
        (
            json!({"link": "/nonexistent/link", "folders": {"node1": "/"}}),
            FailureClass::RetryHere,
            Reason::StartFailed,
            "[Errno 2] No such file or directory: '/' -> '/nonexistent/link.new'",
        ),
    ] {
        let failure = node.driver.start(&service("directory", &settings)).await.unwrap_err();
        assert_eq!((failure.class, failure.reason, failure.message.as_str()), (class, reason, message));
    }
}
