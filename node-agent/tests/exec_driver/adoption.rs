//! Services that outlive their agent: the next agent finds them, or how they ended.

use crate::node::{Node, is_alive, signal, wait_until};
use ha_api_types::record::Observed;
use ha_node_agent::driver::{Driver, DriverEvent};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

#[tokio::test]
async fn next_agent_adopts_running_services() {
    for cgroups in [true, false] {
        let node = Node::new(cgroups);
        let service = node.shell("exec tail -f $1/token");
        node.driver.start(&service).await.unwrap();
        let main = node.main_process().unwrap();
        let mut node = node.restart_agent();
        assert!(is_alive(main), "the service keeps running");
        assert_eq!(node.driver.probe(&service).await, Observed::Running);
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.main_process(), Some(main), "adopted, not started again");
        signal(main, "KILL");
        assert!(matches!(node.event().await, DriverEvent::Exited { .. }), "an adopted service is watched");
        node.driver.start(&service).await.unwrap();
        let node = node.restart_agent();
        node.driver.stop(&service, 20_000).await.unwrap();
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn next_agent_learns_how_service_ended() {
    let node = Node::new(true);
    let service = node.shell("trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done");
    node.driver.start(&service).await.unwrap();
    wait_until("the service is ready", || node.log().contains("ready")).await;
    let (main, supervisor) = (node.main_process().unwrap(), node.supervisor().unwrap());
    let node = node.restart_agent_with(|_| signal(main, "USR1"));
    wait_until("the supervisor has ended", || !is_alive(supervisor)).await;
    assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
    assert_eq!(node.driver.last_exit("web").as_deref(), Some("exit status 9"));
}

#[tokio::test]
async fn changed_control_group_use_leaves_no_processes() {
    for cgroups in [true, false] {
        let node = Node::new(cgroups);
        let service = node.shell("(env -i setsid tail -f $1/token &) ; exec tail -f $1/token");
        node.driver.start(&service).await.unwrap();
        wait_until("both run", || node.processes().len() == 2).await;
        let node = node.restart_agent_with(|settings| settings.programs.cgroups = !cgroups);
        assert_eq!(node.driver.probe(&service).await, Observed::Running);
        node.driver.kill(&service).await.unwrap();
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn recreated_resource_finds_the_old_copy() {
    let node = Node::new(true);
    let old = node.shell("exec tail -f $1/token");
    node.driver.start(&old).await.unwrap();
    let mut new = old.clone();
    new.uid = "uid-2".to_owned().into();
    let node = node.restart_agent();
    assert_eq!(node.driver.probe(&new).await, Observed::Running, "the resource was deleted without a stop");
    node.driver.stop(&new, 20_000).await.unwrap();
    node.assert_nothing_left(&new).await;
}

#[tokio::test]
async fn services_of_other_local_nodes_are_untouched() {
    let (first, second) = (Node::new(false), Node::new(false));
    let ours = first.shell("exec tail -f $1/token");
    let theirs = second.shell("exec tail -f $1/token");
    first.driver.start(&ours).await.unwrap();
    second.driver.start(&theirs).await.unwrap();
    first.driver.kill(&ours).await.unwrap();
    first.assert_nothing_left(&ours).await;
    assert_eq!(second.driver.probe(&theirs).await, Observed::Running);
    second.driver.kill(&theirs).await.unwrap();
}

/// Writes a record that names this process as the service.
fn forge(node: &Node, boot_id: &str, pid: u32, started_ticks: u64) {
    let directory = node.path("state/exec/web");
    std::fs::create_dir_all(&directory).unwrap();
    let who = json!({"pid": pid, "startedTicks": started_ticks});
    let record = json!({"uid": "uid-1", "bootId": boot_id, "supervisor": who, "main": who, "cgroup": null});
    std::fs::write(directory.join("process.json"), record.to_string()).unwrap();
}

fn started_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap()
}

#[tokio::test]
async fn reused_pid_is_not_the_service() {
    let node = Node::new(false);
    let service = node.shell("exec tail -f $1/token");
    // The process is a session leader, as a main process is.
    let mut innocent =
        Command::new("setsid").args(["sleep", "1000000"]).stdin(Stdio::null()).spawn().unwrap();
    let pid = innocent.id();
    let ticks = started_ticks(pid);
    // The record has another start time, or the correct start time but an earlier boot.
    for (boot_id, ticks) in [("boot1", ticks + 1), ("boot0", ticks)] {
        forge(&node, boot_id, pid, ticks);
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
        node.driver.stop(&service, 1000).await.unwrap();
        node.driver.kill(&service).await.unwrap();
        assert!(innocent.try_wait().unwrap().is_none(), "an unrelated process must not be killed");
    }
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

#[tokio::test]
async fn service_is_found_despite_damaged_record() {
    let node = Node::new(true);
    let service = node.shell("exec tail -f $1/token");
    node.driver.start(&service).await.unwrap();
    std::fs::write(node.path("state/exec/web/process.json"), "{").unwrap();
    let node = node.restart_agent();
    assert!(
        matches!(node.driver.probe(&service).await, Observed::Unknown(_)),
        "the lock is held by an unknown process"
    );
    node.driver.stop(&service, 0).await.unwrap();
    node.assert_nothing_left(&service).await;
    let record: Result<Value, _> = serde_json::from_str(&node.read("state/exec/web/process.json"));
    assert!(record.is_err());
}
