//! Sleep protection: a machine that sleeps neither sends heartbeats nor is reset in time (FENCING R5.32 to R5.34).

use super::options::{Options, SleepMode};
use super::{Inputs, inhibitor};
use crate::core::Input;
use crate::watchdog::system_conf;
use ha_api_types::record::SleepProtection;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin};

/// Interval at which the settings of the service manager are read again and a missing inhibitor is requested.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time within which systemd-logind must grant an inhibitor.
const GRANT_TIMEOUT: Duration = Duration::from_secs(5);

/// An inhibitor that was granted. The child, and with it the inhibitor, ends when its standard input closes.
struct HeldInhibitor {
    child: Child,
    _input: ChildStdin,
}

/// Protects this machine from sleep from now on, as far as possible, and reports every change. Returns the protection
/// that exists before the watchdog is armed.
pub(super) async fn prevent_sleep(options: &Options, inputs: Inputs) -> SleepProtection {
    let states = std::fs::read_to_string("/sys/power/state").unwrap_or_default();
    let sleeps = match options.sleeps {
        SleepMode::Auto => can_sleep(&states),
        SleepMode::No => false,
    };
    if !sleeps {
        return SleepProtection::NotNeeded;
    }
    let mut held_inhibitor = None;
    let initial_protection = protection(&mut held_inhibitor).await;
    if initial_protection == SleepProtection::None {
        tracing::warn!(
            "no inhibitor keeps this machine awake, so missed heartbeats do not confirm a failure: mask its sleep targets (hactl doctor)"
        );
    }
    tokio::spawn(watch(inputs, held_inhibitor, initial_protection));
    initial_protection
}

/// Reports when the protection is lost or restored.
async fn watch(inputs: Inputs, mut held_inhibitor: Option<HeldInhibitor>, mut reported: SleepProtection) {
    loop {
        let ended = async {
            match &mut held_inhibitor {
                Some(held_inhibitor) => drop(held_inhibitor.child.wait().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ended => {}
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
        let is_lost = held_inhibitor
            .as_mut()
            .is_some_and(|held_inhibitor| !matches!(held_inhibitor.child.try_wait(), Ok(None)));
        if is_lost {
            held_inhibitor = None;
            if reported == SleepProtection::Inhibitor && !is_masked() {
                // The loss is reported before another inhibitor is requested, because the machine may have slept in the
                // meantime.
                tracing::warn!("lost the inhibitor that kept this machine awake");
                reported = SleepProtection::None;
                if inputs.send(Input::Sleep(reported)).is_err() {
                    return;
                }
            }
        }
        let present = protection(&mut held_inhibitor).await;
        if present != reported {
            tracing::info!(protection = present.name(), "sleep protection changed");
            reported = present;
            if inputs.send(Input::Sleep(reported)).is_err() {
                return;
            }
        }
    }
}

/// Returns the current protection. Requests an inhibitor if there is no other protection.
async fn protection(held_inhibitor: &mut Option<HeldInhibitor>) -> SleepProtection {
    if is_masked() {
        return SleepProtection::Masked;
    }
    if held_inhibitor.is_none() {
        *held_inhibitor = acquire_inhibitor().await;
    }
    if held_inhibitor.is_some() && inhibitor::is_available() {
        SleepProtection::Inhibitor
    } else {
        SleepProtection::None
    }
}

fn is_masked() -> bool {
    system_conf::is_sleep_disabled(Path::new("/"))
}

/// Takes a sleep inhibitor from systemd-logind. Returns `None` if the inhibitor is not granted in time.
async fn acquire_inhibitor() -> Option<HeldInhibitor> {
    if !inhibitor::is_available() {
        return None;
    }
    let mut child =
        inhibitor::acquire("sleep", "block", "the watchdog protects the services of this node").ok()?;
    // Waiting for the child would close its standard input.
    let input = child.stdin.take()?;
    let mut lines = BufReader::new(child.stdout.take()?).lines();
    let granted = tokio::time::timeout(GRANT_TIMEOUT, lines.next_line()).await;
    matches!(granted, Ok(Ok(Some(line))) if line == "held").then_some(HeldInhibitor { child, _input: input })
}

fn can_sleep(states: &str) -> bool {
    states.split_whitespace().any(|state| matches!(state, "mem" | "disk" | "standby" | "freeze"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_capability_follows_kernel_sleep_states() {
        assert!(can_sleep("freeze mem disk\n"));
        assert!(can_sleep("disk\n"));
        assert!(!can_sleep("\n"));
        assert!(!can_sleep(""));
    }
}
