//! Drivers whose answers are empty, invalid or late; migration, measurement, and processes that drivers leave behind.

use crate::node::{Node, service, wait_until};
use crate::secrets::write_secret;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::time::MonotonicTime;
use ha_node_agent::core::Meter;
use ha_node_agent::driver::Driver;
use serde_json::json;
use std::fs;

/// A driver script that keeps a file while the service runs. A test can prepend other cases.
const TEST_SCRIPT: &str = r#"
printf '%s\n' "$request" >> $HERE/asked
case $action in
  describe) echo '{"result":"done","name":"test","version":"1","actions":["receive","migrate","arrive","measure","kill"]}' ;;
  probe) if [ -e $HERE/runs ]; then echo '{"result":"running"}'; else echo '{"result":"notRunning"}'; fi ;;
  start|arrive) touch $HERE/runs; echo '{"result":"done"}' ;;
  stop|kill|migrate) rm -f $HERE/runs; echo '{"result":"done"}' ;;
  receive) echo '{"result":"done"}' ;;
  measure) echo '{"result":"done","cpuSeconds":2.5,"memoryBytes":1024,"networkBytes":7}' ;;
esac
"#;

fn before(first: &str) -> String {
    format!("{first}\n{TEST_SCRIPT}")
}

fn test_service() -> ha_api_types::resource::ServiceDefinition {
    service("test", &json!({}))
}

#[tokio::test]
async fn invalid_driver_answer_is_quoted_in_failure() {
    for (action, script, reason, message) in [
        ("start", "exit 0", Reason::StartFailed, "driver action start printed no answer"),
        (
            "start",
            "echo started; exit 0",
            Reason::StartFailed,
            "driver action start printed \"started\", which is not a valid answer: expected value at line 1 column 1",
        ),
        (
            "start",
            "echo 'no disk' >&2; exit 3",
            Reason::StartFailed,
            "driver action start failed: exit status 3: no disk",
        ),
        ("start", "kill -9 $$", Reason::StartFailed, "driver action start failed: killed by signal 9"),
        ("start", "sleep 1000000", Reason::TimedOut, "driver action start timed out and was killed"),
        (
            "start",
            "echo '{\"result\":\"done\"}'; exit 0",
            Reason::StartFailed,
            "driver reports that the service does not run after its start",
        ),
    ] {
        let node = Node::with_driver(&before(&format!("[ $action != {action} ] || {{ {script}; }}")));
        let mut service = test_service();
        service.timeouts.start_seconds = 0.5;
        let failure = node.driver.start(&service).await.unwrap_err();
        assert_eq!(
            (failure.class, failure.reason, failure.message.as_str()),
            (FailureClass::RetryHere, reason, message)
        );
        node.driver.stop(&service, 20_000).await.unwrap();
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    }
    let node = Node::with_driver(&before("[ $action != probe ] || { echo maybe; exit 0; }"));
    let Observed::Unknown(message) = node.driver.probe(&test_service()).await else {
        panic!("the probe must be Unknown")
    };
    assert!(message.starts_with("driver action probe printed \"maybe\""), "{message}");
}

#[tokio::test]
async fn unusable_external_drivers_explain_why() {
    let node = Node::with_driver(r#"echo '{"result":"failed","message":"the kernel module is missing"}'"#);
    assert_eq!(node.driver.check_usable().await.unwrap_err(), "test: the kernel module is missing");
    let failure = node.driver.start(&test_service()).await.unwrap_err();
    assert_eq!((failure.class, failure.reason), (FailureClass::NeverHere, Reason::NotInstalled));
    // Another driver is installed in the second directory, and the first one is fixed.
    node.install("second", "other", r#"echo '{"result":"done","name":"other"}'"#);
    assert_eq!(node.driver.published_capabilities().await.unwrap(), ["external:other"]);
    node.install("first", "test", TEST_SCRIPT);
    assert_eq!(node.driver.published_capabilities().await.unwrap(), ["external:other", "external:test"]);
}

#[tokio::test]
async fn missing_driver_means_stopped_unless_started() {
    let node = Node::with_driver(TEST_SCRIPT);
    let absent = service("absent", &json!({}));
    assert_eq!(node.driver.probe(&absent).await, Observed::NotRunning);
    let failure = node.driver.start(&absent).await.unwrap_err();
    assert_eq!((failure.class, failure.reason), (FailureClass::NeverHere, Reason::NotInstalled));
    node.driver.stop(&absent, 20_000).await.unwrap();
    let installed_service = test_service();
    node.driver.start(&installed_service).await.unwrap();
    std::fs::remove_file(node.path("second/test")).unwrap();
    assert!(matches!(node.driver.probe(&installed_service).await, Observed::Unknown(_)));
    assert_eq!(node.driver.stop(&installed_service, 20_000).await.unwrap_err().reason, Reason::StopFailed);
    let cause = node.driver.check_usable().await.unwrap_err();
    assert!(cause.starts_with("no external drivers in "), "{cause}");
}

#[tokio::test]
async fn processes_left_by_start_are_killed() {
    let script = "[ $action != start ] || { setsid tail -f $HERE/token > /dev/null 2>&1 & }";
    let node = Node::with_driver(&before(script));
    let service = test_service();
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.processes().len(), 1);
    node.driver.stop(&service, 20_000).await.unwrap();
    wait_until("nothing is left", || node.processes().is_empty()).await;
    node.driver.start(&service).await.unwrap();
    std::fs::remove_file(node.path("runs")).unwrap();
    let Observed::Unknown(message) = node.driver.probe(&service).await else { panic!("something is left") };
    assert!(message.starts_with("driver reports not running, but processes remain: "), "{message}");
    node.driver.kill(&service).await.unwrap();
    assert!(node.processes().is_empty());
}

#[tokio::test]
async fn a_stop_that_fails_is_followed_by_a_kill() {
    for stop in ["exit 1", "sleep 1000000", r#"echo '{"result":"failed"}'; exit 0"#] {
        let node = Node::with_driver(&before(&format!("[ $action != stop ] || {{ {stop}; }}")));
        let service = test_service();
        node.driver.start(&service).await.unwrap();
        node.driver.stop(&service, 500).await.unwrap();
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    }
    let node = Node::with_driver(&before("case $action in stop|kill) echo 'busy' >&2; exit 1;; esac"));
    let service = test_service();
    node.driver.start(&service).await.unwrap();
    let failure = node.driver.stop(&service, 500).await.unwrap_err();
    assert_eq!(failure.reason, Reason::StopFailed);
    assert_eq!(
        failure.message,
        "driver action kill failed: exit status 1: busy; driver reports that the service still runs"
    );
}

#[tokio::test]
async fn live_migration_sends_the_expected_requests() {
    let (node1, node2) = (Node::with_driver(TEST_SCRIPT), Node::with_driver(TEST_SCRIPT));
    let service = test_service();
    node1.driver.start(&service).await.unwrap();
    node2.driver.receive(&service).await.unwrap();
    node1.driver.migrate(&service, &"node2".into()).await.unwrap();
    assert_eq!(node1.driver.probe(&service).await, Observed::NotRunning);
    node2.driver.arrive(&service, &"node1".into()).await.unwrap();
    assert_eq!(node2.driver.probe(&service).await, Observed::Running);
    let request = |node: &Node, action: &str| -> serde_json::Value {
        let requests = node.read("asked");
        let line = requests.lines().rfind(|line| line.contains(&format!("\"action\":\"{action}\""))).unwrap();
        serde_json::from_str(line).unwrap()
    };
    assert_eq!(
        request(&node1, "migrate"),
        json!({"protocol": 1, "action": "migrate", "node": "node1", "resource": "web", "uid": "uid-1", "settings": {},
            "target": "node2", "timeoutMilliseconds": 600_000})
    );
    assert_eq!(request(&node2, "arrive")["source"], "node1");
    let sample = node2.driver.measure(&service, MonotonicTime(5)).await.unwrap();
    assert_eq!((sample.cpu, sample.memory), (Some(Meter::Total(2_500_000)), Some(1024)));

    let mut staying = test_service();
    staying.driver.external.as_mut().unwrap().allow_migrate = false;
    assert_eq!(node2.driver.migrate(&staying, &"node1".into()).await.unwrap_err().reason, Reason::MoveFailed);
}

#[tokio::test]
async fn driver_monitor_restarts_until_watch_ends() {
    let mut node = Node::with_driver(
        r#"case $action in
        describe) echo '{"result":"done","name":"test","version":"1","actions":["monitor"]}' ;;
        probe) echo >> $HERE/probes; if [ -e $HERE/runs ]; then echo '{"result":"running"}'; else echo '{"result":"notRunning"}'; fi ;;
        start) touch $HERE/runs; echo '{"result":"done"}' ;;
        stop) rm -f $HERE/runs; echo '{"result":"done"}' ;;
        monitor)
            echo >> $HERE/monitors
            [ $(wc -l < $HERE/monitors) -gt 1 ] || { echo nonsense; exit 0; }
            echo '{"event":"exited","message":"a false alarm"}'
            while [ -e $HERE/runs ]; do sleep 0.05; done
            echo '{"event":"exited","message":"no more file"}'
            exec tail -f $HERE/token ;;
        esac"#,
    );
    let service = test_service();
    node.driver.start(&service).await.unwrap();
    let probes = node.read("probes").lines().count();
    wait_until("the false alarm was looked into", || node.read("probes").lines().count() > probes).await;
    std::fs::remove_file(node.path("runs")).unwrap();
    let event = node.event().await;
    let ha_node_agent::driver::DriverEvent::Exited { message, .. } = event else {
        panic!("the event must be Exited")
    };
    assert_eq!(message, "no more file", "an event that the probe does not confirm is not reported");
    // The monitor follows the token indefinitely by now, and ends with the agent.
    wait_until("the monitor follows", || !node.processes().is_empty()).await;
    let node = node.restart_agent();
    wait_until("the monitor has ended", || node.processes().is_empty()).await;
}

#[tokio::test]
async fn settings_come_from_the_node_and_a_missing_one_prevents_only_the_start() {
    let node = Node::with_driver(&before(
        r#"[ $action != describe ] || { echo '{"result":"done","name":"test","version":"1","settings":{
            "type":"object","required":["password"],"properties":{"password":{"type":"string"}}}}'; exit; }"#,
    ));
    let service = service("test", &json!({"password": {"valueFrom": {"file": "db"}}}));
    let failure = node.driver.start(&service).await.unwrap_err();
    assert!(failure.message.contains("password: file db: cannot read"), "{}", failure.message);
    let secret = write_secret(&node.path("secrets"), "db", "planted\n");
    node.driver.start(&service).await.unwrap();
    let started = node.read("asked").lines().any(|request| {
        request.contains(r#""action":"start""#) && request.contains(r#""settings":{"password":"planted"}"#)
    });
    assert!(started, "{}", node.read("asked"));
    fs::remove_file(&secret).unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    node.driver.stop(&service, 20_000).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
}
