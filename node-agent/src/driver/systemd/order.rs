//! The order of a shutdown: the agent ends before the units that it manages, and stops them itself.
//!
//! systemd stops the units of a machine that shuts down all at once, unless they are ordered. A managed unit without an order would be
//! stopped beside the agent, which would take it for a stop by hand, or under the agent's hands while it still moves services away. So
//! each is ordered before the agent: a transient one by its properties, one of the node by a drop-in in /run, which ends with the boot.
//! While systemd stops the agent, its jobs for these units therefore wait for the agent's end; the agent's own stops must not, and
//! are asked for without regard to any order.

use super::bus::{BusError, Session};
use super::manager::Mode;
use super::state::UnitState;
use std::fs;
use std::io;
use std::path::Path;

/// Where drop-ins lie that end with the boot.
const FOLDER: &str = "/run/systemd/system";

/// The service that this process is; `None`: it is none, as one that was started by hand.
pub(super) async fn own_unit(session: &Session) -> Result<Option<UnitState>, BusError> {
    match session.unit_of(std::process::id()).await {
        Ok(own) => Ok(Some(own).filter(|own| own.id.ends_with(".service"))),
        Err(BusError::Refused { .. }) => Ok(None),
        Err(error @ BusError::Unreachable(_)) => Err(error),
    }
}

/// How a stop must be asked for.
pub(super) async fn stop_mode(session: &Session) -> Result<Mode, BusError> {
    let job = own_unit(session).await?.map_or(0, |own| own.job);
    let ends = job != 0 && matches!(session.job_type(job).await.as_deref(), Some("stop" | "restart"));
    Ok(if ends { Mode::AtOnce } else { Mode::Replace })
}

/// Whether a unit has to be ordered before the agent; one that is ordered after it by its own file cannot be.
fn is_missing(unit: &UnitState, agent: &str) -> bool {
    !unit.before.iter().chain(&unit.after).any(|other| other == agent)
}

/// Orders a unit of the node before the agent, if it is not yet.
pub(super) async fn ensure(
    session: &Session,
    name: &str,
    unit: &UnitState,
    agent: &str,
) -> Result<(), BusError> {
    if !is_missing(unit, agent) {
        return Ok(());
    }
    if let Err(error) = write(Path::new(FOLDER), name, agent) {
        // Only the order of a shutdown suffers.
        tracing::warn!(unit = name, %error, "the unit cannot be ordered before the agent: a shutdown may stop it first");
        return Ok(());
    }
    session.reload().await
}

fn write(folder: &Path, unit: &str, agent: &str) -> io::Result<()> {
    let folder = folder.join(format!("{unit}.d"));
    fs::create_dir_all(&folder)?;
    let text = format!(
        "# Written by ha-node-agent, for this boot: at a shutdown the agent ends first, and stops this unit itself.\n[Unit]\nBefore={agent}\n"
    );
    let new = folder.join("50-hactl.conf.new");
    fs::write(&new, text)?;
    fs::rename(new, folder.join("50-hactl.conf"))
}

#[cfg(test)]
mod tests {
    use super::super::state::testing::unit;
    use super::*;
    use zbus::zvariant::Value;

    #[test]
    fn units_are_ordered_once() {
        let agent = "ha-node-agent.service";
        assert!(is_missing(&unit(&[("Before", Value::from(vec!["shutdown.target"]))]), agent));
        assert!(!is_missing(&unit(&[("Before", Value::from(vec!["shutdown.target", agent]))]), agent));
        // That would be a cycle.
        assert!(!is_missing(&unit(&[("After", Value::from(vec![agent]))]), agent));
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "web@1.service", agent).unwrap();
        let text = fs::read_to_string(folder.path().join("web@1.service.d/50-hactl.conf")).unwrap();
        assert!(text.ends_with("[Unit]\nBefore=ha-node-agent.service\n"), "{text}");
    }
}
