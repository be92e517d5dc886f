//! The watchdog with real processes: daemon, simulated watchdog, and a process tree to kill in its own pid namespace.
#![cfg(feature = "shell")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking"
)]

#[path = "watchdog/node.rs"]
mod node;
#[path = "watchdog/wrong_settings.rs"]
mod wrong_settings;

use ha_node_agent::watchdog::client::{Client, ClientError, Event};
use ha_node_agent::watchdog::clock;
use ha_node_agent::watchdog::protocol::{Arm, LargestTimeouts, Purpose, Refusal, State};
use nix::sys::signal::Signal;
use node::{Node, SecondClient, connect_until_accepted};
use std::time::Duration;

/// Th of these tests, milliseconds.
const HEARTBEAT_VALID_MS: u32 = 4000;

/// Tolerated deviation on a busy machine, milliseconds.
const SLACK_MS: u64 = 1000;

fn arm(deadline_in_ms: Option<u64>) -> Arm {
    Arm {
        timeout_seconds: 2,
        largest: LargestTimeouts {
            sliding_retained_seconds: 2,
            fixed_retained_seconds: 1,
            not_retained_seconds: 1,
        },
        heartbeat_valid_ms: HEARTBEAT_VALID_MS,
        deadline: deadline_in_ms.map(|ms| clock::now().plus_ms(ms)),
        purpose: Purpose::Guard,
    }
}

async fn connect(node: &Node) -> Client {
    connect_until_accepted(&node.socket()).await.0
}

/// Renews the deadline for this time, as heartbeats do. Returns the last deadline, milliseconds of the boot clock.
async fn renew_for(client: &Client, time: Duration) -> u64 {
    let end_time = clock::now().plus_ms(u64::try_from(time.as_millis()).unwrap());
    loop {
        let deadline = clock::now().plus_ms(3000);
        let status = client.deadline(deadline).await.expect("acknowledged");
        assert_eq!(status.state, State::Armed { deadline });
        if clock::now().remaining_ns(end_time).is_none() {
            return deadline.boottime_ns / 1_000_000;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Waits for the end of the tree, and checks that it occurred at most shortly before this deadline.
fn assert_dies_at_deadline(node: &mut Node, deadline_ms: u64) {
    node.wait_for_death();
    let expired_ms = node.expired_at_ms().expect("the simulated watchdog reports the time of the reset");
    assert!(expired_ms <= deadline_ms + SLACK_MS, "{} ms after the deadline", expired_ms - deadline_ms);
    // A pet is due every 0.2 s and sets whole seconds.
    assert!(
        expired_ms + 1000 + SLACK_MS >= deadline_ms,
        "{} ms before the deadline",
        deadline_ms - expired_ms
    );
}

#[tokio::test]
async fn node_without_renewed_deadline_is_reset() {
    let mut node = Node::start();
    let (client, status, mut events) = connect_until_accepted(&node.socket()).await;
    assert_eq!(status.state, State::Released);
    let status = client.arm(arm(Some(3000))).await.expect("armed");
    let device = status.device.expect("open");
    assert!(device.sliding && device.descriptor_retained);
    assert_eq!((device.timeout_seconds, device.identity.as_str()), (2, "ha-watchdog-standin"));
    let deadline_ms = renew_for(&client, Duration::from_secs(5)).await;
    assert!(node.is_alive(), "killed although renewed");
    assert_dies_at_deadline(&mut node, deadline_ms);
    // The deadline passes directly after the timeout of the last pet.
    assert!(matches!(events.recv().await, Some(Event::Expired(_) | Event::DeviceFailed { .. })));
}

#[tokio::test]
async fn killed_daemon_does_not_prevent_the_reset() {
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let mut node = Node::start();
        let client = connect(&node).await;
        client.arm(arm(Some(3000))).await.expect("armed");
        let deadline_ms = renew_for(&client, Duration::from_secs(1)).await;
        node.signal_daemon(signal);
        node.wait_for_death();
        let expired_ms = node.expired_at_ms().expect("the simulated watchdog reports the time of the reset");
        assert!(expired_ms <= deadline_ms + SLACK_MS, "{signal}");
    }
}

#[tokio::test]
async fn lost_agent_does_not_change_the_deadline() {
    let mut node = Node::start();
    let client = connect(&node).await;
    client.arm(arm(Some(3000))).await.expect("armed");
    let deadline_ms = renew_for(&client, Duration::ZERO).await;
    drop(client);
    assert_dies_at_deadline(&mut node, deadline_ms);
}

/// FENCING R4.9: a deadline that a closed connection sent, and that the daemon has not read yet, does not count.
#[tokio::test]
async fn unread_messages_of_a_closed_connection_are_dropped() {
    let node = Node::start();
    let (client, _, mut events) = connect_until_accepted(&node.socket()).await;
    let armed = client.arm(arm(Some(3000))).await.expect("armed").state;
    node.signal_daemon(Signal::SIGSTOP);
    let later = client.deadline(clock::now().plus_ms(60_000));
    tokio::time::timeout(Duration::from_millis(100), later).await.expect_err("sent, and not answered");
    drop(client);
    while events.recv().await.is_some() {}
    node.signal_daemon(Signal::SIGCONT);
    let (_client, status, _events) = connect_until_accepted(&node.socket()).await;
    assert_eq!(status.state, armed);
}

#[tokio::test]
async fn staying_or_released_node_is_not_reset() {
    let released = Node::start();
    let client = connect(&released).await;
    client.arm(arm(Some(3000))).await.expect("armed");
    let status = client.release().await.expect("released");
    assert_eq!((status.state, status.device), (State::Released, None));

    let staying = Node::start();
    let other = connect(&staying).await;
    other.arm(arm(None)).await.expect("armed");
    renew_for(&other, Duration::ZERO).await;
    assert_eq!(other.stay().await.expect("staying").state, State::Staying);
    drop((client, other));
    // The wait exceeds every deadline and timeout; no event marks its end.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(released.is_alive() && staying.is_alive());
}

#[tokio::test]
async fn daemon_shutdown_stops_device_without_deadline() {
    let mut node = Node::start();
    let client = connect(&node).await;
    client.arm(arm(None)).await.expect("armed");
    node.signal_daemon(Signal::SIGTERM);
    assert!(node.wait_for_daemon().success());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(node.is_alive());
}

#[tokio::test]
async fn daemon_accepts_one_agent_connection() {
    let node = Node::start();
    let mut first = SecondClient::connect(&node.socket());
    let refusal = |result: Result<_, ClientError>| match result {
        Err(ClientError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    };
    let result = Client::connect(&node.socket()).await.map(|_| ());
    assert_eq!(refusal(result), Refusal::AnotherPeer { pid: first.pid() });
    first.drop_connection();
    // The first process has closed its end but is alive, so the second is still not served.
    let result = Client::connect(&node.socket()).await.map(|_| ());
    assert_eq!(refusal(result), Refusal::PreviousPeerAlive { pid: first.pid() });
    first.end();
    let client = connect(&node).await;
    client.status().await.expect("served");
    drop(client);
    // The same process may reconnect, and is served immediately once its old connection is closed.
    let (client, _, mut events) = connect_until_accepted(&node.socket()).await;
    drop(client);
    while events.recv().await.is_some() {}
    for _ in 0..20 {
        let (client, _, mut events) = Client::connect(&node.socket()).await.expect("served immediately");
        drop(client);
        while events.recv().await.is_some() {}
    }
}

#[tokio::test]
async fn a_new_daemon_takes_over_when_the_agent_arms_again() {
    let mut node = Node::start();
    let (client, _, mut events) = connect_until_accepted(&node.socket()).await;
    client.arm(arm(Some(3000))).await.expect("armed");
    node.signal_daemon(Signal::SIGKILL);
    assert_eq!(events.recv().await, Some(Event::Lost));
    assert_eq!(client.status().await, Err(ClientError::Lost));
    node.wait_for_daemon();
    node.start_daemon();
    let (client, status, _events) = connect_until_accepted(&node.socket()).await;
    // The daemon found the timer running and has no deadline.
    assert!(matches!(status.state, State::Expired { .. }), "{status:?}");
    let deadline = clock::now().plus_ms(3000);
    assert_eq!(client.deadline(deadline).await, Err(ClientError::Refused(Refusal::NotArmed)));
    client.arm(arm(Some(3000))).await.expect("armed again");
    let deadline_ms = renew_for(&client, Duration::from_secs(4)).await;
    assert!(node.is_alive());
    assert_dies_at_deadline(&mut node, deadline_ms);
}

#[tokio::test]
async fn service_manager_keeps_the_daemon_record() {
    let mut node = Node::start_with_service_manager();
    let client = connect(&node).await;
    assert!(node.service_manager_messages().contains("FDSTORE=1\nFDNAME=record"));
    client.arm(arm(None)).await.expect("armed");
    let record = node.open_record();
    node.signal_daemon(Signal::SIGKILL);
    node.wait_for_daemon();
    node.start_daemon_with_record(record);
    // No client connects to the new daemon, so the daemon must continue without a client.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(node.is_alive());
    let (_client, status, _events) = connect_until_accepted(&node.socket()).await;
    assert_eq!(status.state, State::Staying);
}

#[tokio::test]
async fn a_second_daemon_is_refused() {
    let node = Node::start();
    let client = connect(&node).await;
    let output = node.daemon_command().output().expect("runs");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("another ha-watchdogd uses this socket"), "{text}");
    client.status().await.expect("the first one serves on");
}

#[tokio::test]
async fn unsupported_timeout_is_refused() {
    let node = Node::start();
    let client = connect(&node).await;
    let refused = Arm { timeout_seconds: 3, ..arm(None) };
    assert_eq!(
        client.arm(refused).await,
        Err(ClientError::Refused(Refusal::TimeoutTooLong { read_back_seconds: 3, largest_seconds: 2 }))
    );
    let too_far = Arm { deadline: Some(clock::now().plus_ms(60_000)), ..arm(None) };
    assert!(matches!(
        client.arm(too_far).await,
        Err(ClientError::Refused(Refusal::DeadlineTooFar { heartbeat_valid_ms: HEARTBEAT_VALID_MS, .. }))
    ));
    assert_eq!(client.status().await.expect("served").device, None);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(node.is_alive(), "a refused device was left running");
}

/// Not a test: the second process of `daemon_accepts_one_agent_connection`, which starts this program again.
#[tokio::test]
#[ignore = "a helper process of another test"]
async fn helper_process() {
    node::helper_main().await;
}
