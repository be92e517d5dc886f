//! The order of a shutdown: the agent ends before the units that it manages, and stops them itself.
//!
//! At a shutdown, systemd stops all units at the same time, unless they are ordered. If systemd stopped an unordered
//! unit together with the agent, the agent would interpret this as a stop by hand. systemd could also stop the unit
//! while the agent is still moving services away.
//!
//! Each unit is therefore ordered before the agent: a transient unit by its properties, a unit of the node by a drop-in
//! in /run until the next boot. systemd's stop jobs for these units then wait for the end of the agent. The agent's own
//! stop jobs must not wait, so the agent requests them without regard to the order.

use super::bus::{BusError, Session};
use super::manager::Mode;
use super::state::UnitState;
use std::fs;
use std::io;
use std::path::Path;

/// Directory of drop-ins that end with the boot.
const RUNTIME_UNIT_DIRECTORY: &str = "/run/systemd/system";

/// Returns the unit of this process; `None` if it is not a service, for example after a start by hand.
pub(super) async fn own_unit(session: &Session) -> Result<Option<UnitState>, BusError> {
    match session.unit_of(std::process::id()).await {
        Ok(unit) => Ok(Some(unit).filter(|unit| unit.id.ends_with(".service"))),
        Err(BusError::Refused { .. }) => Ok(None),
        Err(error @ BusError::Unreachable(_)) => Err(error),
    }
}

/// Returns the mode for a stop: without regard to the order if systemd is stopping the agent.
pub(super) async fn stop_mode(session: &Session) -> Result<Mode, BusError> {
    let job = own_unit(session).await?.map_or(0, |unit| unit.job);
    let is_agent_stopping =
        job != 0 && matches!(session.job_type(job).await.as_deref(), Some("stop" | "restart"));
    Ok(if is_agent_stopping { Mode::IgnoreDependencies } else { Mode::Replace })
}

/// Returns `true` if a unit needs an order before the agent. A unit that is already ordered after the agent cannot also
/// be ordered before it.
fn needs_order(unit: &UnitState, agent: &str) -> bool {
    !unit.before.iter().chain(&unit.after).any(|ordered_unit| ordered_unit == agent)
}

/// Orders a unit of the node before the agent, unless this order already exists.
pub(super) async fn ensure_ordered_before_agent(
    session: &Session,
    name: &str,
    unit: &UnitState,
    agent: &str,
) -> Result<(), BusError> {
    if !needs_order(unit, agent) {
        return Ok(());
    }
    if let Err(error) = write_drop_in(Path::new(RUNTIME_UNIT_DIRECTORY), name, agent) {
        // Not an error: only the order at a shutdown is affected.
        tracing::warn!(unit = name, %error, "cannot order the unit before the agent, so a shutdown may stop the unit first");
        return Ok(());
    }
    session.reload().await
}

fn write_drop_in(directory: &Path, unit: &str, agent: &str) -> io::Result<()> {
    let directory = directory.join(format!("{unit}.d"));
    fs::create_dir_all(&directory)?;
    let text = format!(
        "# Written by ha-node-agent for this boot: at shutdown the agent stops first, and stops this unit itself.\n[Unit]\nBefore={agent}\n"
    );
    let new = directory.join("50-hactl.conf.new");
    fs::write(&new, text)?;
    fs::rename(new, directory.join("50-hactl.conf"))
}

#[cfg(test)]
mod tests {
    use super::super::state::testing::unit;
    use super::*;
    use zbus::zvariant::Value;

    #[test]
    fn units_are_ordered_once() {
        let agent = "ha-node-agent.service";
        assert!(needs_order(&unit(&[("Before", Value::from(vec!["shutdown.target"]))]), agent));
        assert!(!needs_order(&unit(&[("Before", Value::from(vec!["shutdown.target", agent]))]), agent));
        // Another order would create a cycle.
        assert!(!needs_order(&unit(&[("After", Value::from(vec![agent]))]), agent));
        let directory = tempfile::tempdir().unwrap();
        write_drop_in(directory.path(), "web@1.service", agent).unwrap();
        let text = fs::read_to_string(directory.path().join("web@1.service.d/50-hactl.conf")).unwrap();
        assert!(text.ends_with("[Unit]\nBefore=ha-node-agent.service\n"), "{text}");
    }
}
