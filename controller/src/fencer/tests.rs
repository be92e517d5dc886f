//! Tests of the fence-agent protocol with small agents that keep their state in a file.

use super::*;
use crate::core::RunId;
use crate::policy::{ControllerPolicy, Limits};
use ha_api_types::setting::Setting;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// An agent that reads its attributes from standard input and keeps `on` or `off` in the file `state`.
const AGENT: &str = r#"#!/bin/sh
while IFS='=' read -r name value; do eval "$name=\$value"; done
case "$action" in
  off|on) if [ "$stuck" = yes ]; then exit 0; fi; if [ -f "$state.fail" ]; then rm "$state.fail"; exit 1; fi
          echo "$action" > "$state" ;;
  status) if [ "$(cat "$state")" = on ]; then exit 0; else exit 2; fi ;;
  monitor) [ "$dead" != yes ] ;;
  *) echo "what is $action?" >&2; exit 1 ;;
esac
"#;

fn install(directory: &Path, name: &str, script: &str) {
    let path = directory.join(name);
    std::fs::write(&path, script).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

fn fence_part(directory: &Path, state: &str, extra_attributes: &[(&str, &str)]) -> FencePart {
    std::fs::write(directory.join(state), "on\n").expect("written");
    let file = directory.join(state).display().to_string();
    let to_owned_pair = |(name, value): &(&str, &str)| ((*name).to_owned(), Setting::from(*value));
    let attributes = std::iter::once(("state".to_owned(), Setting::from(file)))
        .chain(extra_attributes.iter().map(to_owned_pair))
        .collect();
    FencePart { agent: "fence_file".to_owned(), attributes, attributes_file: None }
}

fn fencer_run(parts: Vec<FencePart>, action: FencerAction, timeout_seconds: u32, retries: u32) -> FencerRun {
    let device =
        FenceDevice { name: "d".to_owned(), parts, timeout_seconds, retries, ..FenceDevice::default() };
    FencerRun { id: RunId(1), node: "node1".into(), device, action, limit_ms: 100_000 }
}

async fn run_fencer(
    directory: &Path,
    parts: Vec<FencePart>,
    action: FencerAction,
    timeout_seconds: u32,
) -> FencerOutcome {
    install(directory, "fence_file", AGENT);
    let run = FencerRun { limit_ms: 20_000, ..fencer_run(parts, action, timeout_seconds, 1) };
    Fencer::new(Some(directory.to_owned()), Limits::default()).run(&run).await
}

fn failure_message(outcome: FencerOutcome) -> String {
    match outcome {
        FencerOutcome::Failed(message) => message,
        FencerOutcome::Confirmed => panic!("confirmed"),
    }
}

#[tokio::test]
async fn attributes_come_from_the_secrets_directory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    install(directory.path(), "fence_file", AGENT);
    let policy = format!("secretsDirectory: {}", directory.path().display());
    let limits = Limits::new(Some(ControllerPolicy::parse(&policy).expect("a policy")));
    let mut part = fence_part(directory.path(), "plug", &[]);
    let reference = serde_json::json!({"valueFrom": {"file": "plug-path"}});
    part.attributes.insert("state".to_owned(), serde_json::from_value(reference).expect("a reference"));
    let run = fencer_run(vec![part], FencerAction::Off, 10, 0);
    let fencer = Fencer::new(Some(directory.path().to_owned()), limits);
    let message = failure_message(fencer.run(&run).await);
    assert!(message.contains("attribute state: file plug-path: cannot read"), "{message}");
    let value = directory.path().join("plug-path");
    std::fs::write(&value, format!("{}\n", directory.path().join("plug").display())).expect("written");
    std::fs::set_permissions(&value, std::fs::Permissions::from_mode(0o600)).expect("permitted");
    assert_eq!(fencer.run(&run).await, FencerOutcome::Confirmed);
    assert_eq!(std::fs::read_to_string(directory.path().join("plug")).expect("a state"), "off\n");
}

#[tokio::test]
async fn every_device_part_must_confirm_power_off() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let parts = vec![fence_part(directory.path(), "a", &[]), fence_part(directory.path(), "b", &[])];
    assert_eq!(run_fencer(directory.path(), parts, FencerAction::Off, 10).await, FencerOutcome::Confirmed);
    let parts =
        vec![fence_part(directory.path(), "a", &[]), fence_part(directory.path(), "b", &[("stuck", "yes")])];
    let message = failure_message(run_fencer(directory.path(), parts, FencerAction::Off, 1).await);
    assert!(message.contains("status is on, expected off"), "{message}");
}

#[tokio::test]
async fn failed_fence_attempt_is_repeated() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let parts = vec![fence_part(directory.path(), "a", &[])];
    std::fs::write(directory.path().join("a.fail"), "").expect("written");
    assert_eq!(run_fencer(directory.path(), parts, FencerAction::Off, 1).await, FencerOutcome::Confirmed);
}

#[tokio::test]
async fn device_part_can_be_switched_on_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let parts = vec![fence_part(directory.path(), "a", &[])];
    std::fs::write(directory.path().join("a"), "off\n").expect("written");
    assert_eq!(run_fencer(directory.path(), parts, FencerAction::On, 10).await, FencerOutcome::Confirmed);
    assert_eq!(std::fs::read_to_string(directory.path().join("a")).expect("read"), "on\n");
}

#[tokio::test]
async fn missing_fence_agent_is_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let missing = FencePart { agent: "fence_nobody".to_owned(), ..FencePart::default() };
    let message = failure_message(run_fencer(directory.path(), vec![missing], FencerAction::Off, 1).await);
    assert!(message.contains("fence_nobody is not installed"), "{message}");
    let path = FencePart { agent: "../sh".to_owned(), ..FencePart::default() };
    let message = failure_message(run_fencer(directory.path(), vec![path], FencerAction::Off, 1).await);
    assert!(message.contains("not a valid fence agent"), "{message}");
}

#[tokio::test]
async fn hanging_fence_agent_is_killed_with_children() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pid_file = directory.path().join("pid");
    let script = format!("#!/bin/sh\nsleep 1000 &\necho $! > {}\nwait\n", pid_file.display());
    install(directory.path(), "fence_hangs", &script);
    let hangs = FencePart { agent: "fence_hangs".to_owned(), ..FencePart::default() };
    let mut pid = String::new();
    // On a loaded machine, a short timeout may expire before the agent has started its child.
    for timeout_seconds in [1, 4, 16, 64] {
        let run = fencer_run(vec![hangs.clone()], FencerAction::Off, timeout_seconds, 0);
        let message = failure_message(
            Fencer::new(Some(directory.path().to_owned()), Limits::default()).run(&run).await,
        );
        assert!(message.contains("timed out"), "{message}");
        pid = std::fs::read_to_string(&pid_file).unwrap_or_default().trim().to_owned();
        if !pid.is_empty() {
            break;
        }
    }
    assert!(!pid.is_empty(), "the agent never started its child");
    let stat = format!("/proc/{pid}/stat");
    // The kernel needs a moment to end the process; a zombie counts as ended.
    while std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
