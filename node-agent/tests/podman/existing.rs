//! Containers that were created outside hactl.

use crate::node::{IMAGE, Node, RUN_SCRIPT, is_alive, service};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_node_agent::driver::Driver;
use serde_json::json;

/// Creates a container `db` by hand, and returns a service that uses it.
pub(crate) fn manually_created_service(node: &Node, options: &[&str]) -> ServiceDefinition {
    let mut arguments = vec![
        "create",
        "--name=db",
        "--network=none",
        "--ulimit=nofile=1024:1024",
        "--ulimit=nproc=1024:1024",
    ];
    arguments.extend(options);
    arguments.extend([IMAGE, "/bin/sh", "-c", RUN_SCRIPT]);
    node.podman.run(&arguments);
    service(&json!({"container": "db"}))
}

#[tokio::test]
async fn existing_container_is_kept_after_stop() {
    let mut node = Node::new().await;
    let service = manually_created_service(&node, &[]);
    let id = node.podman.inspect("db", ".Id");
    for graceful_ms in [20_000, 0] {
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.driver.probe(&service).await, Observed::Running);
        let process = node.podman.process("db");
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.podman.process("db"), process, "a second start adopts");
        node.driver.stop(&service, graceful_ms).await.unwrap();
        assert!(!is_alive(process));
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
        assert_eq!(node.podman.inspect("db", ".Id"), id, "the container is not removed");
    }
    // A crash after a stop and a new start counts as a crash: the stop's entries in podman's events must not count.
    node.driver.start(&service).await.unwrap();
    crate::node::kill(node.podman.process("db"));
    assert!(!node.exit().await.1);
}

#[tokio::test]
async fn a_container_managed_elsewhere_is_refused_with_a_fix() {
    let node = Node::new().await;
    for (option, message_part) in [
        ("--pid=host", "--pid=host"),
        ("--label=PODMAN_SYSTEMD_UNIT=db.service", "driver systemd"),
        ("--rm", "--rm"),
    ] {
        let service = manually_created_service(&node, &[option]);
        let failure = node.driver.start(&service).await.unwrap_err();
        assert_eq!(
            (failure.class, failure.reason),
            (FailureClass::NeverHere, Reason::BadConfiguration),
            "{option}"
        );
        assert!(failure.message.contains(message_part), "{}", failure.message);
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
        node.podman.run(&["rm", "db"]);
    }
}

/// Newer versions of podman can remove the restart policy of an existing container.
#[tokio::test]
async fn restart_policy_is_removed_or_refused() {
    let node = Node::new().await;
    let service = manually_created_service(&node, &["--restart=always"]);
    let version = node.podman.run(&["version", "--format={{.Client.Version}}"]);
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap());
    if (parts.next().unwrap(), parts.next().unwrap()) >= (5, 1) {
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.podman.inspect("db", ".HostConfig.RestartPolicy.Name"), "no");
    } else {
        let failure = node.driver.start(&service).await.unwrap_err();
        assert_eq!((failure.class, failure.reason), (FailureClass::NeverHere, Reason::BadConfiguration));
        assert!(failure.message.contains("podman update --restart=no db"), "{}", failure.message);
    }
}

#[tokio::test]
async fn missing_existing_container_is_reported() {
    let node = Node::new().await;
    let service = service(&json!({"container": "db"}));
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!((failure.class, failure.reason), (FailureClass::NeverHere, Reason::NotInstalled));
    assert!(failure.message.contains("podman create"), "{}", failure.message);
    node.driver.stop(&service, 1000).await.unwrap();
}

#[tokio::test]
async fn container_with_conflicting_name_is_untouched() {
    let node = Node::new().await;
    manually_created_service(&node, &[]);
    node.podman.run(&["start", "db"]);
    let process = node.podman.process("db");
    let service = service(&json!({"image": IMAGE, "container": "db"}));
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!((failure.class, failure.reason), (FailureClass::NeverHere, Reason::BadConfiguration));
    assert!(failure.message.contains("podman rm"), "{}", failure.message);
    node.driver.stop(&service, 1000).await.unwrap();
    node.driver.kill(&service).await.unwrap();
    assert!(is_alive(process), "a container of another creator is not killed");
}
