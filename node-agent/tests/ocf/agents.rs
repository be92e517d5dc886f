//! Installed agents: Dummy, which only simulates a service, and anything, which runs any program as a daemon.

use crate::node::{Node, kill, of_agent, service, wait_until};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_node_agent::driver::{Driver, DriverEvent};
use serde_json::json;

#[tokio::test]
async fn resource_agent_service_is_started_adopted_stopped() {
    let node = Node::new("node1", true);
    node.driver.check_usable().await.unwrap();
    let service = of_agent("heartbeat:Dummy", &json!({}));
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    assert!(node.path("run/resource-agents/Dummy-web.state").exists(), "in the node's own folder");
    let node = node.restart_agent("boot1");
    assert_eq!(node.driver.probe(&service).await, Observed::Running, "the agent's end changes nothing");
    node.driver.start(&service).await.unwrap();
    for graceful_ms in [20_000, 0] {
        node.driver.stop(&service, graceful_ms).await.unwrap();
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
        assert!(!node.path("state/ocf/web/begun.json").exists());
        node.driver.stop(&service, graceful_ms).await.expect("stopping twice succeeds");
        node.driver.start(&service).await.unwrap();
    }
    node.driver.kill(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
}

#[tokio::test]
async fn nodes_on_one_machine_have_separate_services() {
    let (node1, node2) = (Node::new("node1", true), Node::new("node2", true));
    let service = of_agent("heartbeat:Dummy", &json!({}));
    node1.driver.start(&service).await.unwrap();
    assert_eq!(node2.driver.probe(&service).await, Observed::NotRunning);
}

#[tokio::test]
async fn resource_agent_migrates_in_two_steps() {
    let (node1, node2) = (Node::new("node1", true), Node::new("node2", true));
    let moving = service(&json!({"agent": "heartbeat:Dummy", "allowMigrate": true}));
    node1.driver.start(&moving).await.unwrap();
    node2.driver.receive(&moving).await.unwrap();
    node1.driver.migrate(&moving, &"node2".into()).await.unwrap();
    assert_eq!(node1.driver.probe(&moving).await, Observed::NotRunning);
    assert_eq!(node2.driver.probe(&moving).await, Observed::NotRunning);
    node2.driver.arrive(&moving, &"node1".into()).await.unwrap();
    assert_eq!(node2.driver.probe(&moving).await, Observed::Running);
    assert!(node1.log("web").contains("Migrating web to node2"), "{}", node1.log("web"));
    node2.driver.stop(&moving, 20_000).await.unwrap();

    // A service for which migration is not allowed, and an agent that cannot migrate.
    let staying = service(&json!({"agent": "heartbeat:Dummy"}));
    assert_eq!(node1.driver.migrate(&staying, &"node2".into()).await.unwrap_err().reason, Reason::MoveFailed);
    let unable = service(&json!({"agent": "heartbeat:IPaddr2", "allowMigrate": true}));
    let failure = node2.driver.receive(&unable).await.unwrap_err();
    assert_eq!(
        failure.message,
        "ocf:heartbeat:IPaddr2 cannot live-migrate because it has no action migrate_from"
    );
}

#[tokio::test]
async fn a_killed_process_is_noticed() {
    for (cgroups, interval) in [(true, 0.2), (false, 0.2), (true, 3600.0)] {
        let mut node = Node::new("node1", cgroups);
        let service = service(&json!({
            "agent": "heartbeat:anything",
            "parameters": {
                "binfile": "/usr/bin/tail",
                "cmdline_options": format!("-f {}", node.path("token").display()),
            },
            "monitorIntervalSeconds": interval,
        }));
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.driver.probe(&service).await, Observed::Running);
        if interval > 1000.0 && !has_group() {
            // Without control groups, only the agent's hourly monitor would detect the end.
            node.driver.stop(&service, 20_000).await.unwrap();
            continue;
        }
        for pid in node.processes() {
            kill(pid);
        }
        assert!(matches!(node.event().await, DriverEvent::Exited { stopped_externally: false, .. }));
        node.driver.kill(&service).await.unwrap();
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.driver.probe(&service).await, Observed::Running);
        node.driver.stop(&service, 20_000).await.unwrap();
        wait_until("nothing is left", || node.processes().is_empty()).await;
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    }
}

/// Returns `true` if agents can create control groups on this machine.
fn has_group() -> bool {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().any(|mount| {
        let group = std::path::Path::new(mount).join(format!("ha-ocf-test-{}", std::process::id()));
        let can_kill_groups = std::fs::create_dir(&group).is_ok() && group.join("cgroup.kill").exists();
        let _ = std::fs::remove_dir(&group);
        can_kill_groups
    })
}

#[tokio::test]
async fn missing_agent_means_stopped_and_never_here() {
    let node = Node::new("node1", true);
    for (agent, expected) in [
        (
            "heartbeat:NoSuchAgent",
            "ocf:heartbeat:NoSuchAgent is not installed on this node: /usr/lib/ocf/resource.d/heartbeat/NoSuchAgent: No such file or directory",
        ),
        // The agent is installed, but the software that it manages is not.
        ("heartbeat:asterisk", "exit status 5 (not installed)"),
    ] {
        let service = of_agent(agent, &json!({}));
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning, "{agent}");
        let failure = node.driver.start(&service).await.unwrap_err();
        assert_eq!(
            (failure.class, failure.reason),
            (FailureClass::NeverHere, Reason::NotInstalled),
            "{failure:?}"
        );
        assert!(failure.message.contains(expected), "{failure:?}");
        node.driver.stop(&service, 20_000).await.unwrap();
        node.driver.kill(&service).await.unwrap();
    }
}
