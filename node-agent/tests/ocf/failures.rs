//! Agents that fail in every way.

use crate::node::{Node, own, wait_until};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_node_agent::driver::{Driver, DriverEvent};

/// An agent script that keeps a file while the service runs. A test can prepend other cases.
const TEST_SCRIPT: &str = r#"
echo "$1" >> $HERE/asked
case $1 in
  meta-data) echo '<resource-agent><actions><action name="start" timeout="90s"/><action name="validate-all"/></actions></resource-agent>' ;;
  start) touch $HERE/runs ;;
  stop) rm -f $HERE/runs ;;
  monitor) test -e $HERE/runs || exit 7 ;;
  validate-all) ;;
  *) exit 3 ;;
esac
"#;

fn before(first: &str) -> String {
    format!("{first}\n{TEST_SCRIPT}")
}

#[tokio::test]
async fn start_failures_have_class_and_reason() {
    for (action, script, class, reason, message) in [
        (
            "start",
            "echo 'ocf-exit-reason:the disk is missing' >&2; exit 1",
            FailureClass::RetryHere,
            Reason::StartFailed,
            "resource agent action start failed: exit status 1: the disk is missing",
        ),
        (
            "start",
            "exit 7",
            FailureClass::RetryHere,
            Reason::StartFailed,
            "resource agent action start failed: exit status 7 (not running)",
        ),
        (
            "start",
            "exit 0",
            FailureClass::RetryHere,
            Reason::StartFailed,
            "resource agent reports that the service does not run after its start",
        ),
        (
            "start",
            "kill -9 $$",
            FailureClass::RetryHere,
            Reason::StartFailed,
            "resource agent action start was killed by signal 9",
        ),
        (
            "start",
            "exit 4",
            FailureClass::NeverHere,
            Reason::StartFailed,
            "resource agent action start failed: exit status 4 (not permitted)",
        ),
        (
            "validate-all",
            "echo 'no such file' >&2; exit 6",
            FailureClass::ConfigurationWrong,
            Reason::BadConfiguration,
            "resource agent action validate-all failed: exit status 6 (not configured): no such file",
        ),
        (
            "validate-all",
            "exit 5",
            FailureClass::NeverHere,
            Reason::NotInstalled,
            "resource agent action validate-all failed: exit status 5 (not installed)",
        ),
    ] {
        let node = Node::with_agent(&before(&format!("[ $1 != {action} ] || {{ {script}; }}")));
        let service = own();
        let failure = node.driver.start(&service).await.unwrap_err();
        assert_eq!((failure.class, failure.reason, failure.message.as_str()), (class, reason, message));
        let started = node.read("asked").lines().any(|line| line == "start");
        assert!(
            action != "validate-all" || !started,
            "the service is not started after a failed validate-all"
        );
        node.driver.stop(&service, 20_000).await.unwrap();
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    }
}

#[tokio::test]
async fn timed_out_start_is_killed_with_children() {
    let node = Node::with_agent(&before("[ $1 != start ] || { tail -f $HERE/token & tail -f $HERE/token; }"));
    let mut service = own();
    service.timeouts.start_seconds = 0.5;
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!((failure.class, failure.reason), (FailureClass::RetryHere, Reason::TimedOut));
    wait_until("the process group has ended", || node.processes().is_empty()).await;
    assert_eq!(node.driver.timeouts(&service).await.start_ms(), 500, "the resource's own wins");
    let usual = own();
    assert_eq!(
        node.driver.timeouts(&usual).await.start_ms(),
        90_000,
        "the timeout of the agent's metadata has precedence over the default"
    );
}

#[tokio::test]
async fn interrupted_start_does_not_count_as_stopped() {
    let script = "[ $1 != start ] || { (setsid sh -c 'touch $0/left; exec tail -f $0/token' $HERE &); exec tail -f $HERE/token; }";
    let node = Node::with_agent(&before(script));
    let service = own();
    {
        let mut starting = std::pin::pin!(node.driver.start(&service));
        tokio::select! {
            _ = &mut starting => panic!("the start must not end"),
            () = wait_until("the start is in progress", || node.path("left").exists()) => {}
        }
    }
    let node = node.restart_agent("boot1");
    let Observed::Unknown(message) = node.driver.probe(&service).await else { panic!("something is left") };
    assert!(message.starts_with("resource agent reports not running, but processes remain: "), "{message}");
    node.driver.stop(&service, 20_000).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    assert!(node.processes().is_empty());
}

#[tokio::test]
async fn failing_service_is_reported_and_counts_running() {
    let mut node = Node::with_agent(TEST_SCRIPT);
    let mut service = own();
    service.driver.ocf.as_mut().unwrap().monitor_interval_seconds = Some(0.1);
    node.driver.start(&service).await.unwrap();
    node.agent(&before("[ $1 != monitor ] || { echo 'ocf-exit-reason:it hangs' >&2; exit 1; }"));
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    let DriverEvent::Exited { message, .. } = node.event().await else { panic!("the event must be Exited") };
    assert_eq!(message, "resource agent action monitor failed: exit status 1: it hangs");
    // After a reboot the state of the service is unknown, so the probe is inconclusive.
    let node = node.restart_agent("boot2");
    assert!(matches!(node.driver.probe(&service).await, Observed::Unknown(_)));
    // A failed service is stopped before it is started again, and that stop must succeed.
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!(failure.reason, Reason::StopFailed);
    node.agent(&before(
        "[ $1 != monitor ] || [ -e $HERE/stopped ] || exit 1; [ $1 != stop ] || touch $HERE/stopped",
    ));
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
}

#[tokio::test]
async fn failed_stop_kills_and_needs_monitor_confirmation() {
    let running = "[ $1 != start ] || { setsid tail -f $HERE/token > /dev/null 2>&1 & }";
    for stop in ["exit 1", "sleep 1000000"] {
        let node = Node::with_agent(&before(&format!(
            "{running}\n[ $1 != stop ] || [ -e $HERE/tried ] || {{ touch $HERE/tried; {stop}; }}"
        )));
        let service = own();
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.processes().len(), 1);
        node.driver.stop(&service, 500).await.unwrap();
        assert!(node.processes().is_empty());
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    }
    let node = Node::with_agent(&before("[ $1 != stop ] || { echo busy >&2; exit 1; }"));
    let service = own();
    node.driver.start(&service).await.unwrap();
    for stopped in [node.driver.stop(&service, 500).await, node.driver.kill(&service).await] {
        let failure = stopped.unwrap_err();
        assert_eq!(failure.reason, Reason::StopFailed);
        assert_eq!(
            failure.message,
            "resource agent action stop failed: exit status 1: busy; resource agent reports that the service still runs"
        );
    }
}

#[tokio::test]
async fn kill_covers_children_without_service_environment() {
    // The environment is missing, as for the children of a server that overwrites it with process titles.
    let hiding = "setsid sh -c 'env -i tail -f $0/token & exec tail -f $0/token' $HERE > /dev/null 2>&1 &";
    let node = Node::without_groups(&before(&format!("[ $1 != start ] || {{ {hiding} }}")));
    let service = own();
    node.driver.start(&service).await.unwrap();
    wait_until("both run", || node.processes().len() == 2).await;
    node.driver.kill(&service).await.unwrap();
    assert!(node.processes().is_empty(), "left is {:?}", node.processes());
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
}

#[tokio::test]
async fn removed_resource_agent_makes_service_unknown() {
    let node = Node::with_agent(TEST_SCRIPT);
    let service = own();
    node.driver.start(&service).await.unwrap();
    std::fs::remove_file(node.path("ocf/resource.d/test/Agent")).unwrap();
    assert!(matches!(node.driver.probe(&service).await, Observed::Unknown(_)));
    assert_eq!(node.driver.stop(&service, 500).await.unwrap_err().reason, Reason::StopFailed);
    std::fs::remove_dir_all(node.path("ocf/resource.d/test")).unwrap();
    let cause = node.driver.check_usable().await.unwrap_err();
    assert!(cause.ends_with("install the package resource-agents"), "{cause}");
}

#[tokio::test]
async fn agent_without_validation_is_started() {
    let node = Node::with_agent(&before(
        "[ $1 != meta-data ] || { echo nonsense; exit 0; }\n[ $1 != validate-all ] || exit 3",
    ));
    let service = own();
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
}
