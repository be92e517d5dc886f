//! Starts that fail, in each class of failure. No container remains.

use crate::node::{IMAGE, Node, service};
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;
use ha_node_agent::driver::Driver;
use serde_json::{Value, json};

/// Checks that this change to a valid container makes its start fail with this class, reason and text.
async fn check(node: &Node, change: Value, class: FailureClass, reason: Reason, message_part: &str) {
    let mut podman = json!({"image": IMAGE, "command": ["/bin/sleep", "1000"]});
    podman.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    let service = service(&podman);
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!((failure.class, failure.reason), (class, reason), "{change}: {}", failure.message);
    assert!(failure.message.contains(message_part), "{change}: {}", failure.message);
    // The agent stops the service after a failure.
    node.driver.stop(&service, 1000).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn starts_fail_in_classes() {
    use FailureClass::{ConfigurationWrong, NeverHere, RetryHere, TryElsewhere};
    let node = Node::new().await;
    let shell = |script: &str| json!({"command": ["/bin/sh", "-c", script]});
    for (change, class, reason, message_part) in [
        (json!({"command": ["/bin/nope"]}), NeverHere, Reason::NotInstalled, "/bin/nope"),
        (json!({"command": ["/etc"]}), NeverHere, Reason::BadConfiguration, "exec: \"/etc\""),
        (shell("nope"), NeverHere, Reason::NotInstalled, "exit status 127: /bin/sh: nope: not found"),
        (shell("/etc"), NeverHere, Reason::BadConfiguration, "exit status 126"),
        (shell("echo no luck >&2; exit 3"), RetryHere, Reason::StartFailed, "exit status 3: no luck"),
        (shell("exit 0"), RetryHere, Reason::StartFailed, "exit status 0"),
        (
            json!({"mounts": [{"source": "/nope", "target": "/x"}]}),
            NeverHere,
            Reason::BadConfiguration,
            "source /nope of a mount does not exist",
        ),
        (json!({"user": "joe"}), NeverHere, Reason::BadConfiguration, "joe"),
        (json!({"workingDirectory": "/nope"}), NeverHere, Reason::BadConfiguration, "/nope"),
        (json!({"network": "nope"}), NeverHere, Reason::BadConfiguration, "nope"),
        (json!({"image": "localhost/none:1"}), NeverHere, Reason::NotInstalled, "is not on this node"),
        (json!({"image": "UPPER:::x"}), ConfigurationWrong, Reason::BadConfiguration, "reference"),
        // No registry listens at this address.
        (json!({"image": "127.0.0.1:9/none:1"}), TryElsewhere, Reason::StartFailed, "127.0.0.1:9"),
    ] {
        check(&node, change, class, reason, message_part).await;
    }
}
