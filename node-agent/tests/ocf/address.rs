//! IPaddr2 with a real address, in a network namespace.

use crate::node::{Node, of_agent};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_node_agent::driver::{Driver, DriverEvent};
use serde_json::json;
use std::process::Command;

/// Moves the calling thread, and the processes that it starts, to a network namespace with one link.
fn own_network() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("root may make network namespaces");
    for arguments in [
        "link set lo up",
        "link add here type veth peer name there",
        "link set here up",
        "link set there up",
        "address add 192.0.2.1/24 dev here",
    ] {
        ip(arguments);
    }
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn address_is_added_removed_and_monitored() {
    own_network();
    let mut node = Node::new("node1", true);
    let mut address = of_agent("heartbeat:IPaddr2", &json!({"ip": "192.0.2.10", "cidr_netmask": "24"}));
    let ocf = address.driver.ocf.as_mut().unwrap();
    ocf.monitor_interval_seconds = Some(0.2);
    let has_address = || ip("-oneline address show dev here").contains("192.0.2.10/24");
    assert_eq!(node.driver.probe(&address).await, Observed::NotRunning);
    node.driver.start(&address).await.unwrap();
    assert!(has_address());
    assert_eq!(node.driver.probe(&address).await, Observed::Running);
    ip("address del 192.0.2.10/24 dev here");
    assert!(matches!(node.event().await, DriverEvent::Exited { .. }));
    // The core kills a service before it starts it again.
    node.driver.kill(&address).await.unwrap();
    node.driver.start(&address).await.unwrap();
    assert!(has_address());
    node.driver.stop(&address, 20_000).await.unwrap();
    assert!(!has_address());
    node.driver.start(&address).await.unwrap();
    node.driver.kill(&address).await.unwrap();
    assert!(!has_address());
    assert_eq!(node.driver.probe(&address).await, Observed::NotRunning);
}

#[tokio::test]
async fn invalid_agent_parameter_is_configuration_failure() {
    own_network();
    let node = Node::new("node1", true);
    for (parameters, expected) in [
        (json!({}), "exit status 6 (not configured)"),
        (json!({"ip": "192.0.2.10", "cidr_netmask": "none"}), "exit status 6 (not configured)"),
    ] {
        let address = of_agent("heartbeat:IPaddr2", &parameters);
        // No action was begun with these parameters, so no service runs.
        assert_eq!(node.driver.probe(&address).await, Observed::NotRunning, "{parameters}");
        let failure = node.driver.start(&address).await.unwrap_err();
        assert_eq!(
            (failure.class, failure.reason),
            (FailureClass::ConfigurationWrong, Reason::BadConfiguration),
            "{failure:?}"
        );
        assert!(failure.message.contains(expected), "{failure:?}");
        node.driver
            .stop(&address, 20_000)
            .await
            .expect("a service that cannot have started counts as stopped");
        assert_eq!(node.driver.probe(&address).await, Observed::NotRunning);
    }
}
