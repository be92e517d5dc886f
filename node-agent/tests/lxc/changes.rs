//! Changes without a command of the agent: crashes, restarts from inside, stops and starts by hand, health.

use crate::node::{Node, RUN_SCRIPT, is_alive, signal, wait_until};
use ha_api_types::record::Observed;
use ha_node_agent::driver::{Driver, DriverEvent};
use serde_json::json;
use std::fs;
use std::time::Duration;

#[tokio::test]
async fn a_crash_is_reported_immediately() {
    let mut node = Node::new(RUN_SCRIPT);
    let service = node.service();
    node.driver.start(&service).await.unwrap();
    signal("KILL", node.process());
    let (message, stopped_externally) = node.exit().await;
    assert_eq!(message.trim_end(), "init process was killed by signal 9: ready");
    assert!(!stopped_externally);
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
}

#[tokio::test]
async fn container_shutdown_from_inside_is_not_manual_stop() {
    let mut node = Node::new("until test -e /tmp/end; do sleep 0.05; done; echo over; exit 3");
    let service = node.service();
    node.driver.start(&service).await.unwrap();
    fs::write(node.path("rootfs/tmp/end"), "").unwrap();
    let (message, stopped_externally) = node.exit().await;
    assert_eq!(message.trim_end(), "init process exited with status 3: over");
    assert!(!stopped_externally);
}

// The driver must detect `lxc-stop` while this test waits for the end of that program. `lxc-stop` waits for the hook, which
// gives the driver enough time on a busy machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_by_hand_is_distinguished_from_a_crash() {
    let mut node = Node::new(RUN_SCRIPT);
    node.configure("lxc.hook.post-stop = /bin/sh -c 'sleep 2'");
    let service = node.service();
    for arguments in [&["--kill"][..], &["--timeout", "20"]] {
        node.driver.start(&service).await.unwrap();
        node.run("lxc-stop", arguments);
        assert!(node.exit().await.1, "lxc-stop {arguments:?}");
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    }
}

#[tokio::test]
async fn a_start_by_hand_is_reported() {
    let mut node = Node::new(RUN_SCRIPT);
    let service = node.service();
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    node.run("lxc-start", &["-d"]);
    assert!(matches!(node.event().await, DriverEvent::Appeared { name, .. } if name == "web"));
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    node.driver.stop(&service, 20_000).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn container_reboot_from_inside_is_no_crash() {
    let script = "until test -e /tmp/again; do sleep 0.05; done; rm /tmp/again; busybox reboot -f; sleep 100";
    let mut node = Node::new(script);
    let service = node.service();
    node.driver.start(&service).await.unwrap();
    let (process, monitor) = (node.process(), node.monitor());
    let marker = node.path("rootfs/tmp/again");
    fs::write(&marker, "").unwrap();
    wait_until("the container has begun to restart", || !marker.exists()).await;
    wait_until("the container has another first process", || {
        node.state() == "RUNNING"
            && !is_alive(process)
            && node.run("lxc-info", &["-p", "-H"]).parse::<i32>().is_ok()
    })
    .await;
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    assert_eq!(node.monitor(), monitor);
    assert!(node.events.try_recv().is_err(), "a restart is not an end");
    // The watch follows the next run.
    signal("KILL", node.process());
    assert!(!node.exit().await.1);
}

#[tokio::test]
async fn a_killed_monitor_ends_the_container() {
    let mut node = Node::new(RUN_SCRIPT);
    let service = node.service();
    node.driver.start(&service).await.unwrap();
    let process = node.process();
    signal("KILL", node.monitor());
    assert!(!node.exit().await.1);
    wait_until("the kernel has killed the container", || !is_alive(process)).await;
    node.driver.kill(&service).await.unwrap();
    node.assert_nothing_left(&service).await;
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
}

#[tokio::test]
async fn unresponsive_container_monitor_is_killed() {
    let node = Node::new(RUN_SCRIPT);
    let service = node.service();
    node.driver.start(&service).await.unwrap();
    let (process, monitor) = (node.process(), node.monitor());
    signal("STOP", monitor);
    assert!(matches!(node.driver.probe(&service).await, Observed::Unknown(_)));
    node.driver.kill(&service).await.unwrap();
    assert!(!is_alive(process) && !is_alive(monitor));
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn an_unhealthy_container_is_reported() {
    let mut node = Node::new(RUN_SCRIPT);
    let check = json!({"healthCheck": {"command": ["/bin/test", "-e", "/tmp/well"], "intervalSeconds": 0.1, "retries": 2}});
    let service = node.service_with(&check);
    let well = node.path("rootfs/tmp/well");
    let start = node.driver.start(&service);
    let get_well = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        fs::write(&well, "").unwrap();
    };
    let (started, ()) = tokio::join!(start, get_well);
    started.unwrap();
    node.run("lxc-freeze", &[]);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(node.events.try_recv().is_err(), "the health of a frozen container is unknown");
    node.run("lxc-unfreeze", &[]);
    fs::remove_file(&well).unwrap();
    let (message, stopped_externally) = node.exit().await;
    assert_eq!(
        message,
        "container is unhealthy: health check failed 2 times in a row: exit status 1: no output"
    );
    assert!(!stopped_externally);
}

#[tokio::test]
async fn hanging_health_check_is_killed() {
    let mut node = Node::new(RUN_SCRIPT);
    let script = "test -e /tmp/hang || exit 0; echo $$ >/tmp/pid; exec sleep 1000";
    let check = json!({"healthCheck": {"command": ["/bin/sh", "-c", script], "intervalSeconds": 0.1,
        "timeoutSeconds": 1, "retries": 1}});
    let service = node.service_with(&check);
    node.driver.start(&service).await.unwrap();
    fs::write(node.path("rootfs/tmp/hang"), "").unwrap();
    let (message, _) = node.exit().await;
    assert!(message.ends_with("timed out after 1 s"), "{message}");
    let check_is_running = || {
        let pids = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        pids.filter(|pid| {
            fs::read_to_string(pid.join("cgroup")).is_ok_and(|group| group.contains(&node.name))
        })
        .any(|pid| fs::read(pid.join("cmdline")).is_ok_and(|line| line.starts_with(b"sleep\x001000")))
    };
    wait_until("the check is gone", || !check_is_running()).await;
}

#[tokio::test]
async fn process_title_in_container_is_no_monitor() {
    let node = Node::new(RUN_SCRIPT);
    let title = format!("[lxc monitor] {} {}", node.path("..").canonicalize().unwrap().display(), node.name);
    let mut other = std::process::Command::new("unshare");
    other.args(["--pid", "--fork", "--kill-child", "bash", "-c", "exec -a \"$0\" sleep 1000", &title]);
    let mut other = other.spawn().unwrap();
    let title_is_set = || {
        let mut pids = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        pids.any(|pid| fs::read(pid.join("cmdline")).is_ok_and(|line| line.starts_with(title.as_bytes())))
    };
    wait_until("the title is set", title_is_set).await;
    assert_eq!(node.driver.probe(&node.service()).await, Observed::NotRunning);
    node.driver.kill(&node.service()).await.unwrap();
    assert!(title_is_set(), "a process of another container was killed");
    other.kill().unwrap();
    other.wait().unwrap();
}
