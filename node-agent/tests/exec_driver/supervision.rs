//! Supervised processes: start, stop, kill, crash.

use crate::node::{Node, is_alive, signal, wait_until};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_node_agent::driver::{Driver, DriverEvent};
use serde_json::json;

/// A script that runs indefinitely.
const RUN_SCRIPT: &str = "tail -f $1/token & wait";

fn exited(event: DriverEvent) -> String {
    match event {
        DriverEvent::Exited { name, uid, message, stopped_externally } => {
            assert_eq!((name.as_str(), uid.as_str(), stopped_externally), ("web", "uid-1", false));
            message
        }
        DriverEvent::Appeared { .. }
        | DriverEvent::Progress { .. }
        | DriverEvent::RequestedAmounts { .. } => {
            panic!("{event:?}")
        }
    }
}

#[tokio::test]
async fn supervised_program_runs_until_stopped() {
    for cgroups in [true, false] {
        let node = Node::new(cgroups);
        assert_eq!(node.driver.check_usable().await, Ok(()));
        let service = node.shell(RUN_SCRIPT);
        assert_eq!(node.driver.probe(&service).await, Observed::NotRunning);
        assert!(!node.path("state/exec/web").exists(), "a probe leaves no trace");
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.driver.probe(&service).await, Observed::Running);
        wait_until("the service runs", || node.processes().len() == 2).await;
        let before = node.processes();
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.processes(), before, "a second start adopts");
        node.driver.stop(&service, 20_000).await.unwrap();
        node.assert_nothing_left(&service).await;
        node.driver.stop(&service, 20_000).await.unwrap();
        node.driver.kill(&service).await.unwrap();
        node.driver.start(&service).await.unwrap();
        assert_eq!(node.driver.probe(&service).await, Observed::Running, "and again");
        node.driver.kill(&service).await.unwrap();
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn graceful_stop_emits_no_event() {
    let mut node = Node::new(true);
    let service = node.shell("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
    node.driver.start(&service).await.unwrap();
    wait_until("the service is ready", || node.log().contains("ready")).await;
    node.driver.stop(&service, 20_000).await.unwrap();
    assert_eq!(node.log(), "ready\nbye\n");
    assert_eq!(node.driver.last_exit("web").as_deref(), Some("exit status 0"));
    assert!(node.events.try_recv().is_err());
}

#[tokio::test]
async fn stop_command_runs_before_sigterm() {
    let node = Node::new(true);
    let directory = node.directory.path().display().to_string();
    let service = node.service(&json!({
        "command": ["/bin/sh", "-c", "trap '' TERM; while [ ! -e asked ]; do sleep 0.05; done; exit 4", "sh", directory],
        "stop": ["/bin/sh", "-c", "echo $HA_RESOURCE > asked"],
    }));
    node.driver.start(&service).await.unwrap();
    node.driver.stop(&service, 20_000).await.unwrap();
    assert_eq!(node.read("asked"), "web\n");
    assert_eq!(node.driver.last_exit("web").as_deref(), Some("exit status 4"));
}

#[tokio::test]
async fn program_ignoring_sigterm_is_killed_after_timeout() {
    for cgroups in [true, false] {
        let node = Node::new(cgroups);
        let service = node.shell("trap '' TERM; echo ready; while :; do sleep 0.05; done");
        node.driver.start(&service).await.unwrap();
        wait_until("the service is ready", || node.log().contains("ready")).await;
        node.driver.stop(&service, 100).await.unwrap();
        node.assert_nothing_left(&service).await;
        assert_eq!(node.driver.last_exit("web").as_deref(), Some("killed by signal 9 (SIGKILL)"));
    }
}

/// Daemons: forked twice, in separate sessions. One daemon has an empty environment.
const DAEMONS_SCRIPT: &str =
    "(setsid tail -f $1/token &) ; (env -i setsid tail -f $1/token &) ; exec tail -f $1/token";

#[tokio::test]
async fn daemons_do_not_escape_a_stop_or_a_kill() {
    for (cgroups, hard) in [(true, true), (true, false), (false, true), (false, false)] {
        let node = Node::new(cgroups);
        let service = node.shell(DAEMONS_SCRIPT);
        node.driver.start(&service).await.unwrap();
        wait_until("all three run", || node.processes().len() == 3).await;
        if hard {
            node.driver.kill(&service).await.unwrap();
        } else {
            node.driver.stop(&service, 20_000).await.unwrap();
        }
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn daemons_do_not_outlive_the_main_process() {
    for cgroups in [true, false] {
        let mut node = Node::new(cgroups);
        let service = node.shell(DAEMONS_SCRIPT);
        node.driver.start(&service).await.unwrap();
        wait_until("all three run", || node.processes().len() == 3).await;
        signal(node.main_process().unwrap(), "KILL");
        assert_eq!(exited(node.event().await), "killed by signal 9 (SIGKILL)");
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn daemons_without_supervisor_are_found() {
    for cgroups in [true, false] {
        let node = Node::new(cgroups);
        // Without control groups, a process with an empty environment in another session cannot be found once the
        // supervisor has ended. The daemons write to /dev/null, because tail ends when its output is closed.
        let daemon = "tail -f $1/token >/dev/null 2>&1";
        let service = node.shell(&format!("(setsid {daemon} &) ; ({daemon} &) ; exec {daemon}"));
        node.driver.start(&service).await.unwrap();
        wait_until("all three run", || node.processes().len() == 3).await;
        signal(node.supervisor().unwrap(), "KILL");
        wait_until("the main process died with it", || node.processes().len() == 2).await;
        let observed = node.driver.probe(&service).await;
        assert!(matches!(observed, Observed::Unknown(_)), "{observed:?} {:?}", node.processes());
        node.driver.stop(&service, 20_000).await.unwrap();
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn crash_is_reported_and_restart_succeeds() {
    for cgroups in [true, false] {
        let mut node = Node::new(cgroups);
        let service = node.shell("trap 'exit 5' USR1; echo ready; tail -f $1/token & while :; do wait; done");
        for round in 1..=3 {
            node.driver.start(&service).await.unwrap();
            wait_until("the service is ready", || node.log().matches("ready").count() == round).await;
            signal(node.main_process().unwrap(), "USR1");
            assert_eq!(exited(node.event().await), "exit status 5");
            node.assert_nothing_left(&service).await;
        }
        assert!(node.events.try_recv().is_err(), "one event for each crash");
    }
}

#[tokio::test]
async fn killed_supervisor_kills_the_main_process() {
    let mut node = Node::new(false);
    let service = node.shell("exec tail -f $1/token >/dev/null 2>&1");
    node.driver.start(&service).await.unwrap();
    wait_until("the service runs", || node.processes().len() == 1).await;
    signal(node.supervisor().unwrap(), "KILL");
    assert_eq!(exited(node.event().await), "supervisor of the service was killed");
    node.driver.start(&service).await.unwrap();
    assert_eq!(node.driver.probe(&service).await, Observed::Running);
    node.driver.kill(&service).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn a_supervisor_that_hangs_does_not_prevent_a_kill() {
    let node = Node::new(false);
    let service = node.shell("exec tail -f $1/token");
    node.driver.start(&service).await.unwrap();
    wait_until("the service runs", || node.processes().len() == 1).await;
    let supervisor = node.supervisor().unwrap();
    signal(supervisor, "STOP");
    node.driver.kill(&service).await.unwrap();
    assert!(!is_alive(supervisor));
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn program_that_exits_immediately_fails_to_start() {
    let mut node = Node::new(true);
    let service = node.shell("echo starting; echo 'port is taken' >&2; exit 3");
    let failure = node.driver.start(&service).await.unwrap_err();
    assert_eq!((failure.class, failure.reason), (FailureClass::RetryHere, Reason::StartFailed));
    assert_eq!(failure.message, "service exited immediately after its start: exit status 3: port is taken");
    node.driver.stop(&service, 1000).await.unwrap();
    node.assert_nothing_left(&service).await;
    assert!(node.events.try_recv().is_err());
}

#[tokio::test]
async fn timed_out_start_leaves_no_process() {
    for cgroups in [true, false] {
        let node = Node::new(cgroups);
        let mut service = node.service(&json!({
            "command": ["/bin/sh", "-c", DAEMONS_SCRIPT, "sh", node.directory.path()],
            "monitor": ["/bin/sh", "-c", "exit 7"],
        }));
        service.timeouts.start_seconds = 0.6;
        let failure = node.driver.start(&service).await.unwrap_err();
        assert_eq!((failure.class, failure.reason), (FailureClass::RetryHere, Reason::TimedOut));
        node.assert_nothing_left(&service).await;
    }
}

#[tokio::test]
async fn program_is_started_once_monitor_succeeds() {
    let node = Node::new(true);
    let service = node.service(&json!({
        "command": ["/bin/sh", "-c", "sleep 0.4; touch ready; exec tail -f $0/token", node.directory.path()],
        "monitor": ["/bin/sh", "-c", "test -e ready || exit 7"],
    }));
    node.driver.start(&service).await.unwrap();
    assert!(node.path("ready").exists());
    node.driver.kill(&service).await.unwrap();
}

#[tokio::test]
async fn two_failed_monitors_are_a_crash() {
    let mut node = Node::with(|settings| settings.monitor_interval = std::time::Duration::from_millis(20));
    let service = node.service(&json!({
        "command": ["/bin/sh", "-c", "exec tail -f $0/token", node.directory.path()],
        "monitor": ["/bin/sh", "-c", "test ! -e broken || exit 7; test ! -e unclear"],
    }));
    node.driver.start(&service).await.unwrap();
    std::fs::write(node.path("unclear"), "").unwrap();
    std::fs::write(node.path("broken"), "").unwrap();
    assert!(exited(node.event().await).contains("monitor"));
    node.driver.stop(&service, 1000).await.unwrap();
    node.assert_nothing_left(&service).await;
}

#[tokio::test]
async fn stop_removes_processes_of_canceled_start() {
    for cgroups in [true, false] {
        for turns in 0..12 {
            let node = Node::new(cgroups);
            let service = node.service(&json!({
                "command": ["/bin/sh", "-c", DAEMONS_SCRIPT, "sh", node.directory.path()],
                "monitor": ["/bin/sh", "-c", "exit 7"],
            }));
            {
                let mut starting = std::pin::pin!(node.driver.start(&service));
                // The start is canceled at different points: before, during and after the launch.
                let cancel = tokio::time::sleep(std::time::Duration::from_millis(turns * 3));
                tokio::select! {
                    _ = &mut starting => panic!("the start must not succeed"),
                    () = cancel => {}
                }
            }
            node.driver.stop(&service, 0).await.unwrap();
            node.assert_nothing_left(&service).await;
        }
    }
}
