//! Tests of containers that are created from an image: start, stop, kill, adoption, measurement.

use crate::containers::kill_during_a_stop;
use crate::node::{IMAGE, Node, RUN_SCRIPT, is_alive, service, wait_until};
use crate::secrets::write_secret;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::time::MonotonicTime;
use ha_node_agent::core::Meter;
use ha_node_agent::driver::Driver;
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

const CONTAINER_NAME: &str = "hactl-web";

#[tokio::test]
async fn container_runs_until_it_is_stopped() {
    let mut node = Node::new().await;
    assert_eq!(node.driver.check_usable().await, Ok(()));
    let service = Node::shell(RUN_SCRIPT);
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    assert_eq!(node.podman.inspect(CONTAINER_NAME, ".HostConfig.RestartPolicy.Name"), "no");
    let process = node.podman.process(CONTAINER_NAME);
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.podman.process(CONTAINER_NAME), process, "a second start adopts");
    node.driver.stop(&service, 20_000).await.unwrap();
    assert!(!is_alive(process));
    node.assert_nothing_left(&service).await;
    node.driver.stop(&service, 20_000).await.unwrap();
    node.driver.kill(&service).await.unwrap();
    node.driver.start(&service).await.unwrap();
    let process = node.podman.process(CONTAINER_NAME);
    node.driver.kill(&service).await.unwrap();
    assert!(!is_alive(process));
    node.assert_nothing_left(&service).await;
    assert!(node.events.try_recv().is_err(), "a requested change causes no event");
}

#[tokio::test]
async fn container_receives_its_configured_settings() {
    let node = Node::new().await;
    let (data, read_only_directory) = (node.podman.path("data"), node.podman.path("read"));
    fs::create_dir_all(&data).unwrap();
    fs::create_dir_all(&read_only_directory).unwrap();
    let script = "env > /data/env; pwd > /data/pwd; id -u > /data/user; touch /read/x 2> /data/refused; \
                  ulimit -n > /data/files; touch /data/done; exec sleep 1000";
    let service = service(&json!({
        "image": IMAGE, "container": "named", "command": ["/bin/sh", "-c", script],
        "environment": {"GREETING": "hello"}, "user": "0:33", "workingDirectory": "/tmp",
        "mounts": [{"source": data, "target": "/data"}, {"source": read_only_directory, "target": "/read", "readOnly": true}],
        "limits": {"cpu": "500m", "memory": "64Mi", "tasks": 20},
        "ulimits": {"nofile": "500:600", "nproc": "1024:1024"}, "network": "host",
    }));
    node.driver.start(&service).await.unwrap();
    wait_until("the container wrote all lines", || data.join("done").exists()).await;
    let read_file = |name: &str| fs::read_to_string(data.join(name)).unwrap();
    let environment = read_file("env");
    for line in ["HA_RESOURCE=web", "HA_RESOURCE_UID=uid-1", "HA_NODE=node1", "GREETING=hello"] {
        assert!(
            environment.lines().any(|environment_line| environment_line == line),
            "{line} in {environment}"
        );
    }
    assert_eq!(
        (read_file("pwd").as_str(), read_file("user").as_str(), read_file("files").as_str()),
        ("/tmp\n", "0\n", "500\n")
    );
    assert!(read_file("refused").contains("Read-only"), "{}", read_file("refused"));
    let inspect = |field: &str| node.podman.inspect("named", field);
    assert_eq!(inspect(".HostConfig.CpuQuota"), "50000");
    assert_eq!(inspect(".HostConfig.Memory"), "67108864");
    assert_eq!(inspect(".HostConfig.PidsLimit"), "20");
    assert_eq!(inspect(".HostConfig.NetworkMode"), "host");
    node.driver.kill(&service).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn container_ignoring_sigterm_is_killed() {
    let node = Node::new().await;
    let service = Node::shell("trap '' TERM; while :; do sleep 0.05; done");
    node.driver.start(&service).await.unwrap();
    node.driver.stop(&service, 1).await.unwrap();
    node.assert_nothing_left(&service).await;
    // A kill does not wait for a graceful stop in progress.
    kill_during_a_stop(&node.driver, &service).await;
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn stop_finds_containers_of_canceled_commands() {
    let node = Node::new().await;
    let service = Node::shell(RUN_SCRIPT);
    for pause_ms in [0, 20, 60, 100, 150, 200, 300] {
        let limit = Duration::from_millis(pause_ms);
        let _ = tokio::time::timeout(limit, node.driver.start(&service)).await;
        node.driver.kill(&service).await.unwrap();
        // Podman continues an operation after its client has ended. The agent repeats the kill until a probe finds no
        // container.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            if node.driver.probe(&service).await == Observed::NotRunning {
                break;
            }
            assert!(Instant::now() < deadline, "the process is restarted repeatedly");
            node.driver.kill(&service).await.unwrap();
        }
    }
    node.driver.start(&service).await.unwrap();
    let _ = tokio::time::timeout(Duration::from_millis(5), node.driver.stop(&service, 20_000)).await;
    node.driver.stop(&service, 20_000).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn next_agent_adopts_and_redefinition_replaces_container() {
    let mut node = Node::new().await;
    let service = Node::shell(RUN_SCRIPT);
    node.driver.start(&service).await.unwrap();
    let process = node.podman.process(CONTAINER_NAME);
    node.restart_agent();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.podman.process(CONTAINER_NAME), process);
    let mut changed = service.clone();
    changed.driver.podman.as_mut().unwrap().environment.insert("A".into(), "b".into());
    node.driver.start(&changed).await.unwrap();
    assert!(!is_alive(process), "the old one is gone");
    assert!(node.podman.inspect(CONTAINER_NAME, ".Config.Env").contains("A=b"));
    assert!(node.events.try_recv().is_err());
}

#[tokio::test]
async fn variables_come_from_the_node_and_a_missing_one_prevents_the_start() {
    let node = Node::new().await;
    let data = node.podman.path("data");
    fs::create_dir_all(&data).unwrap();
    let service = service(&json!({
        "image": IMAGE, "command": ["/bin/sh", "-c", "env > /data/env; touch /data/done; exec sleep 1000"],
        "mounts": [{"source": data, "target": "/data"}],
        "environment": {"PASSWORD": {"valueFrom": {"file": "db"}}},
    }));
    let failure = node.driver.start(&service).await.unwrap_err();
    assert!(failure.message.contains("PASSWORD: file db: cannot read"), "{}", failure.message);
    assert_eq!((failure.class, failure.reason), (FailureClass::RetryHere, Reason::StartFailed));
    assert_eq!(node.podman.run(&["ps", "--all", "--quiet"]), "");
    let secret = write_secret(&node.podman.path("secrets"), "db", "planted\n");
    node.driver.start(&service).await.unwrap();
    wait_until("the container wrote its environment", || data.join("done").exists()).await;
    let environment = fs::read_to_string(data.join("env")).unwrap();
    assert!(environment.lines().any(|line| line == "PASSWORD=planted"), "{environment}");
    // Without the file, the container is still adopted and stopped.
    fs::remove_file(&secret).unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    node.driver.start(&service).await.unwrap();
    node.driver.stop(&service, 20_000).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn restart_creates_a_fresh_container() {
    let node = Node::new().await;
    let service = Node::shell("test ! -e /was-here && touch /was-here && while :; do sleep 0.05; done");
    node.driver.start(&service).await.unwrap();
    crate::node::kill(node.podman.process(CONTAINER_NAME));
    wait_until("the container exited", || node.podman.inspect(CONTAINER_NAME, ".State.Status") == "exited")
        .await;
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
}

#[tokio::test]
async fn a_paused_container_counts_as_running_and_can_be_stopped() {
    let node = Node::new().await;
    let service = Node::shell(RUN_SCRIPT);
    for graceful_ms in [20_000, 0] {
        node.driver.start(&service).await.unwrap();
        node.podman.run(&["pause", CONTAINER_NAME]);
        assert_eq!(node.driver.probe(&service).await, Observed::Running);
        node.driver.stop(&service, graceful_ms).await.unwrap();
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn container_usage_is_measured_while_running() {
    let node = Node::new().await;
    let service = Node::shell("while :; do :; done");
    assert_eq!(node.driver.measure(&service, MonotonicTime(1)).await, None);
    node.driver.start(&service).await.unwrap();
    let total = async || match node.driver.measure(&service, MonotonicTime(1)).await.unwrap().cpu {
        Some(Meter::Total(total)) => total,
        other => panic!("{other:?}"),
    };
    let first = total().await;
    let begin = Instant::now();
    while total().await < first + 100_000 {
        assert!(begin.elapsed() < Duration::from_secs(60), "the CPU time does not grow");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let sample = node.driver.measure(&service, MonotonicTime(5)).await.unwrap();
    assert_eq!(sample.at, MonotonicTime(5));
    assert!(sample.memory.is_some_and(|memory| memory > 0));
    node.driver.kill(&service).await.unwrap();
    assert_eq!(node.driver.measure(&service, MonotonicTime(9)).await, None);
}
