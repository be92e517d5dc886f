//! Tests of start, stop, kill, adoption, measurement, and the log.

use crate::containers::kill_during_a_stop;
use crate::node::{Node, RUN_SCRIPT, is_alive, signal, wait_until};
use ha_api_types::record::Observed;
use ha_api_types::time::MonotonicTime;
use ha_node_agent::core::Meter;
use ha_node_agent::driver::{Driver, LogQuery};
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_container_runs_until_it_is_stopped() {
    let mut node = Node::new(RUN_SCRIPT);
    assert_eq!(node.driver.check_usable().await, Ok(()));
    let service = node.service();
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    let process = node.process();
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.process(), process, "a second start adopts");
    node.driver.stop(&service, 20_000).await.unwrap();
    assert!(!is_alive(process));
    node.assert_nothing_left(&service).await;
    let log = node.driver.read_log(&service, LogQuery { lines: 10, since_seconds: None }).await.unwrap();
    assert_eq!(log.text.replace('\r', ""), "ready\nbye\n", "the stop was clean");
    node.driver.stop(&service, 20_000).await.unwrap();
    node.driver.kill(&service).await.unwrap();
    node.driver.start(&service).await.unwrap();
    let process = node.process();
    node.driver.kill(&service).await.unwrap();
    assert!(!is_alive(process));
    node.assert_nothing_left(&service).await;
    assert!(node.events.try_recv().is_err(), "a requested change causes no event");
}

#[tokio::test]
async fn a_container_that_ignores_the_stop_is_killed() {
    let node = Node::new("trap '' PWR TERM; while :; do sleep 0.05; done");
    let service = node.service();
    node.driver.start(&service).await.unwrap();
    node.driver.stop(&service, 1).await.unwrap();
    node.assert_nothing_left(&service).await;
    // A kill does not wait for a graceful stop in progress.
    kill_during_a_stop(&node.driver, &service).await;
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn a_frozen_container_runs_and_is_stopped() {
    let node = Node::new(RUN_SCRIPT);
    let service = node.service();
    node.driver.start(&service).await.unwrap();
    node.run("lxc-freeze", &[]);
    assert_eq!(node.state(), "FROZEN");
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    let begin = Instant::now();
    node.driver.stop(&service, 50_000).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(45), "the container was not thawed for its stop");
    node.assert_nothing_left(&service).await;
    node.driver.start(&service).await.unwrap();
    node.run("lxc-freeze", &[]);
    node.driver.kill(&service).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn kill_finds_container_of_canceled_command() {
    let node = Node::new(RUN_SCRIPT);
    let service = node.service();
    for pause_ms in [0, 2, 5, 10, 20, 40, 80, 160] {
        let limit = Duration::from_millis(pause_ms);
        let _ = tokio::time::timeout(limit, node.driver.start(&service)).await;
        node.driver.kill(&service).await.unwrap();
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning, "after {pause_ms} ms");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning, "later, after {pause_ms} ms");
    }
    node.driver.start(&service).await.unwrap();
    let _ = tokio::time::timeout(Duration::from_millis(5), node.driver.stop(&service, 20_000)).await;
    node.driver.stop(&service, 20_000).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn the_next_agent_adopts_a_container() {
    let mut node = Node::new(RUN_SCRIPT);
    let service = node.service();
    node.driver.start(&service).await.unwrap();
    let process = node.process();
    node.restart_agent();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.process(), process);
    node.driver.stop(&service, 20_000).await.unwrap();
    // A container that was started by hand is adopted too, and then watched.
    node.run("lxc-start", &["-d"]);
    let process = node.process();
    node.restart_agent();
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.process(), process);
    signal("KILL", process);
    assert!(!node.exit().await.1);
}

#[tokio::test]
async fn a_monitor_in_the_foreground_is_recognized() {
    let node = Node::new(RUN_SCRIPT);
    let service = node.service();
    let mut monitor = std::process::Command::new("lxc-start");
    // The same options as in the unit lxc@.service.
    monitor.args(["-F", "-n", &node.name, "-P"]).arg(node.path("..").canonicalize().unwrap());
    monitor.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    let mut monitor = monitor.spawn().unwrap();
    wait_until("the container runs", || node.state() == "RUNNING").await;
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    node.driver.stop(&service, 20_000).await.unwrap();
    node.assert_nothing_left(&service).await;
    monitor.wait().unwrap();
}

#[tokio::test]
async fn container_configuration_may_be_elsewhere() {
    let node = Node::new(RUN_SCRIPT);
    let other = node.path("rootfs").join("srv/config");
    fs::rename(node.path("config"), &other).unwrap();
    let service = node.service_with(&json!({"config": other}));
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    node.driver.stop(&service, 20_000).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
}

#[tokio::test]
async fn container_limits_are_set_and_usage_measured() {
    let node = Node::new("trap 'exit 0' PWR; while :; do :; done");
    let limits = json!({"limits": {"cpu": "500m", "memory": "64Mi", "tasks": 20}});
    let service = node.service_with(&limits);
    assert_eq!(node.driver.measure(&service, MonotonicTime(1)).await, None);
    node.driver.start(&service).await.unwrap();
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", node.process())).unwrap();
    let group = groups.lines().next().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let read = |files: [&str; 2]| {
        let directories = ["", "memory", "pids", "cpu"].map(|kind| format!("/sys/fs/cgroup/{kind}{group}"));
        let content = directories.iter().find_map(|directory| {
            files.iter().find_map(|file| fs::read_to_string(format!("{directory}/{file}")).ok())
        });
        content.unwrap_or_default().trim().to_owned()
    };
    assert_eq!(read(["memory.max", "memory.limit_in_bytes"]), "67108864");
    assert_eq!(read(["pids.max", "pids.max"]), "20");
    assert!(read(["cpu.max", "cpu.cfs_quota_us"]).starts_with("50000"));
    let started = Instant::now();
    loop {
        let sample = node.driver.measure(&service, MonotonicTime(5)).await.unwrap();
        assert!(sample.memory.is_some_and(|bytes| bytes > 0), "{sample:?}");
        if matches!(sample.cpu, Some(Meter::Total(us)) if us > 50_000) {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{sample:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    node.driver.kill(&service).await.unwrap();
}
