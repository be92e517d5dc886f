//! Services whose secondary is replaced while they run: the command in parallel to the service, its ends, and its
//! remains.

use crate::node::{Node, wait_until};
use ha_api_types::reason::Reason;
use ha_api_types::record::Observed;
use ha_api_types::resource::ServiceDefinition;
use ha_node_agent::driver::Driver;
use serde_json::json;

/// Returns a service of either kind that runs indefinitely and replaces its secondary with this script; `$0` is the
/// node's directory.
fn service(node: &Node, supervised: bool, script: &str) -> ServiceDefinition {
    let sh = |script: &str| json!(["/bin/sh", "-c", script, node.directory.path()]);
    node.service(&if supervised {
        json!({"command": sh("exec tail -f $0/token"), "replaceSecondary": sh(script)})
    } else {
        json!({
            "start": sh("rm -f pid; setsid sh -c 'echo $$ > pid; exec tail -f $0/token' $0 & while [ ! -s pid ]; do sleep 0.01; done"),
            "stop": sh("test ! -s pid || kill $(cat pid); rm -f pid"),
            "monitor": sh("test -s pid && kill -0 $(cat pid) || exit 7"),
            "replaceSecondary": sh(script),
        })
    })
}

/// A script that runs indefinitely, even outside its process group, and creates a file once it has begun.
const COPY_SCRIPT: &str =
    "(setsid sh -c 'touch $0/copies; exec tail -f $0/token $0/token' $0 &); tail -f $0/token $0/token";

#[tokio::test]
async fn replacement_command_receives_both_secondaries() {
    for supervised in [true, false] {
        let node = Node::new(true);
        let script =
            "echo $HA_RESOURCE on $HA_NODE from ${HA_SECONDARY-unset}. to $HA_NEW_SECONDARY >> $0/replaced";
        let service = service(&node, supervised, script);
        node.driver.start(&service).await.unwrap();
        let before = node.processes();
        node.driver.replace_secondary(&service, Some(&"node2".into()), &"node3".into()).await.unwrap();
        node.driver.replace_secondary(&service, None, &"node2".into()).await.unwrap();
        assert_eq!(
            node.read("replaced"),
            "web on node1 from node2. to node3\nweb on node1 from . to node2\n"
        );
        assert_eq!(node.driver.probe(&service).await, Observed::Running);
        assert_eq!(node.processes(), before, "the same processes");
        node.driver.stop(&service, 20_000).await.unwrap();
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn failed_replacement_command_explains_why() {
    let node = Node::new(true);
    let failing = service(&node, true, "echo no room on $HA_NEW_SECONDARY >&2; exit 3");
    let failure =
        node.driver.replace_secondary(&failing, Some(&"node2".into()), &"node3".into()).await.unwrap_err();
    assert_eq!(failure.reason, Reason::ReplaceFailed);
    assert_eq!(failure.message, "replaceSecondary command failed: exit status 3: no room on node3");
    let mut endless = service(&node, true, "tail -f $0/token");
    endless.timeouts.replace_seconds = 0.3;
    let failure =
        node.driver.replace_secondary(&endless, Some(&"node2".into()), &"node3".into()).await.unwrap_err();
    assert_eq!(failure.reason, Reason::TimedOut);
    wait_until("all processes have ended", || node.processes().is_empty()).await;
    let no_script = node.shell("exec tail -f $1/token");
    let failure =
        node.driver.replace_secondary(&no_script, Some(&"node2".into()), &"node3".into()).await.unwrap_err();
    assert_eq!(failure.message, "spec.driver.exec has no replaceSecondary command");
}

/// Returns a running service with a canceled replacement, one of whose processes remains.
async fn canceled(supervised: bool) -> (Node, ServiceDefinition, Vec<i32>) {
    let node = Node::new(true);
    let service = service(&node, supervised, COPY_SCRIPT);
    node.driver.start(&service).await.unwrap();
    let before = node.processes();
    {
        let (present, new) = ("node2".into(), "node3".into());
        let mut copying = std::pin::pin!(node.driver.replace_secondary(&service, Some(&present), &new));
        tokio::select! {
            _ = &mut copying => panic!("the copy must not end"),
            () = wait_until("the copy is in progress", || node.path("copies").exists()) => {}
        }
    }
    wait_until("the process group of the copy has ended", || node.processes().len() == before.len() + 1)
        .await;
    (node, service, before)
}

#[tokio::test]
async fn next_agent_ends_leftover_replacement_command() {
    for supervised in [true, false] {
        let (node, service, before) = canceled(supervised).await;
        let node = node.restart_agent();
        assert_eq!(node.driver.probe(&service).await, Observed::Running);
        node.driver.end_replacement(&service).await.unwrap();
        assert_eq!(node.processes(), before);
        assert_eq!(node.driver.probe(&service).await, Observed::Running);
        node.driver.end_replacement(&service).await.unwrap();
        node.driver.stop(&service, 20_000).await.unwrap();
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn leftover_replacement_command_is_not_the_service() {
    for (supervised, kills) in [(true, true), (false, true), (true, false), (false, false)] {
        let (node, service, before) = canceled(supervised).await;
        for pid in &before {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL)
                .unwrap();
        }
        wait_until("the service has ended", || node.processes().len() == 1).await;
        // A killed process remains until its parent has reaped it.
        while node.driver.probe(&service).await == Observed::Running {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(
            node.driver.probe(&service).await,
            Observed::NotRunning,
            "processes of a copy do not count as the service"
        );
        assert_eq!(node.processes().len(), 1, "the service keeps running");
        if kills {
            node.driver.kill(&service).await.unwrap();
        } else {
            node.driver.stop(&service, 20_000).await.unwrap();
        }
        node.assert_nothing_left(&service).await;
    }
}
