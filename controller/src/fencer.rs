//! Fence devices, through ClusterLabs' fence agents: the implementation of the interface `Fencer`.
//!
//! Protocol: <https://github.com/ClusterLabs/fence-agents/blob/main/doc/FenceAgentAPI.md>. Attributes are written as
//! `name=value` lines to standard input. The exit status of `status` is 0 for on and 2 for off; any other status is a
//! failure.

mod agent;

use crate::core::{FencerAction, FencerOutcome, FencerRun};
use crate::policy::Limits;
use agent::{Agent, PowerState};
use futures::future::join_all;
use ha_api_types::node::{FenceDevice, FencePart};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// Runs fence devices.
#[derive(Clone, Debug)]
pub struct Fencer {
    /// Directories of the agents, in order of preference.
    directories: Vec<PathBuf>,
    limits: Limits,
}

/// Interval between status queries of a device that has not reached the desired state.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

impl Fencer {
    /// Creates a fencer that searches for agents in this directory first, then in the usual directories of
    /// distributions. It runs only what the limits allow.
    pub fn new(directory: Option<PathBuf>, limits: Limits) -> Fencer {
        let usual = ["/usr/sbin", "/usr/local/sbin"].into_iter().map(PathBuf::from);
        Fencer { directories: directory.into_iter().chain(usual).collect(), limits }
    }

    /// Runs a device to the end.
    ///
    /// Guarantees: `Confirmed` only if the device's own status confirmed it for every part, after the action. Once the
    /// limit has passed, no process of the run remains (its process groups are killed).
    pub async fn run(&self, run: &FencerRun) -> FencerOutcome {
        let limit = Duration::from_millis(run.limit_ms);
        match tokio::time::timeout(limit, self.run_with_retries(&run.device, run.action)).await {
            Ok(Ok(())) => FencerOutcome::Confirmed,
            Ok(Err(message)) => FencerOutcome::Failed(message),
            Err(_) => FencerOutcome::Failed(format!(
                "fence device {} timed out after {} s",
                run.device.name,
                limit.as_secs()
            )),
        }
    }

    async fn run_with_retries(&self, device: &FenceDevice, action: FencerAction) -> Result<(), String> {
        if device.parts.is_empty() {
            return Err(format!("fence device {} has no parts", device.name));
        }
        let mut last = String::new();
        for _ in 0..=device.retries {
            match self.attempt(device, action).await {
                Ok(()) => return Ok(()),
                Err(message) => last = message,
            }
        }
        Err(last)
    }

    /// Makes one attempt: the action on all parts at the same time, then the status of all parts.
    async fn attempt(&self, device: &FenceDevice, action: FencerAction) -> Result<(), String> {
        let within = Duration::from_secs(u64::from(device.timeout_seconds.max(1)));
        let deadline = Instant::now() + within;
        let run_parts = |verb: &'static str| {
            join_all(device.parts.iter().map(move |part| self.run_part(part, verb, deadline)))
        };
        let expected_state = match action {
            FencerAction::Monitor => return run_parts("monitor").await.into_iter().collect(),
            FencerAction::Off => PowerState::Off,
            FencerAction::On => PowerState::On,
        };
        // A part that already has the desired state may refuse the action. Only its status decides; the result of the
        // action does not.
        let is_switched: Vec<Result<(), String>> = run_parts(expected_state.verb()).await;
        let reached =
            join_all(device.parts.iter().map(|part| self.wait_for_state(part, expected_state, deadline)))
                .await;
        for (part, (is_switched, reached)) in device.parts.iter().zip(is_switched.into_iter().zip(reached)) {
            if let Err(message) = reached {
                let before = is_switched
                    .err()
                    .map_or_else(String::new, |error| format!(" (the action failed: {error})"));
                return Err(format!("{}: {message}{before}", part.agent));
            }
        }
        Ok(())
    }

    async fn run_part(&self, part: &FencePart, verb: &str, deadline: Instant) -> Result<(), String> {
        let exit = Agent::find(&self.directories, &self.limits, part)?.run(verb, deadline).await?;
        if exit.code == Some(0) { Ok(()) } else { Err(exit.sentence(verb)) }
    }

    /// Queries the status until the part has the desired state, or the time limit has passed.
    async fn wait_for_state(
        &self,
        part: &FencePart,
        expected_state: PowerState,
        deadline: Instant,
    ) -> Result<(), String> {
        let agent = Agent::find(&self.directories, &self.limits, part)?;
        loop {
            let exit = agent.run("status", deadline).await?;
            match exit.power() {
                Some(state) if state == expected_state => return Ok(()),
                Some(state) if Instant::now() + STATUS_INTERVAL >= deadline => {
                    return Err(format!("status is {}, expected {}", state.verb(), expected_state.verb()));
                }
                Some(_) => tokio::time::sleep(STATUS_INTERVAL).await,
                None => return Err(exit.sentence("status")),
            }
        }
    }
}

#[cfg(test)]
mod tests;
