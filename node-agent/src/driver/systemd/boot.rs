//! Units that systemd starts automatically, at boot or on demand. Such a unit could run on two nodes.

use super::bus::{BusError, Session};
use super::state::UnitState;
use super::verdict::never_here_failure;
use crate::core::DriverFailure;
use ha_api_types::driver::is_essential_unit;
use ha_api_types::reason::Reason;

/// Targets that a machine reaches at boot, in addition to those that every node needs.
const BOOT_TARGETS: [&str; 9] = [
    "getty.target",
    "network-online.target",
    "network.target",
    "paths.target",
    "printer.target",
    "remote-fs.target",
    "sockets.target",
    "swap.target",
    "timers.target",
];

/// A reason why systemd starts a unit without a request of hactl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AutomaticStart {
    /// The unit that is enabled: the service's own unit, or a unit that starts it on demand.
    pub(super) unit: String,
    /// Cause as the predicate of a sentence about the unit, such as `is enabled at boot`.
    pub(super) cause: String,
    /// `true` if `systemctl disable` prevents the start.
    pub(super) can_be_disabled: bool,
}

/// Returns the reason why the boot starts a unit; `None` if the boot does not start the unit.
pub(super) fn boot_start(unit: &str, state: &UnitState) -> Option<AutomaticStart> {
    let (cause, can_be_disabled) = match state.file_state.as_str() {
        "enabled" | "enabled-runtime" => ("is enabled at boot".to_owned(), true),
        "generated" => (
            "is created and started at boot by a generator (such as from /etc/init.d or /etc/fstab)"
                .to_owned(),
            false,
        ),
        // The unit is linked into a target by the package or by an operator, or enabled by another name.
        _ => {
            let is_reached_at_boot =
                |target: &&String| BOOT_TARGETS.contains(&target.as_str()) || is_essential_target(target);
            (format!("is started at boot by {}", state.wanted_by.iter().find(is_reached_at_boot)?), true)
        }
    };
    Some(AutomaticStart { unit: unit.to_owned(), cause, can_be_disabled })
}

fn is_essential_target(target: &str) -> bool {
    target.ends_with(".target") && is_essential_unit(target)
}

/// Returns all reasons why systemd starts a unit automatically.
pub(super) async fn automatic_starts(
    session: &Session,
    unit: &str,
    state: &UnitState,
) -> Result<Vec<AutomaticStart>, BusError> {
    let mut starts: Vec<AutomaticStart> = boot_start(unit, state).into_iter().collect();
    for trigger in &state.triggered_by {
        let trigger_state = session.unit(trigger).await?;
        if let Some(automatic_start) = boot_start(trigger, &trigger_state) {
            starts.push(AutomaticStart {
                cause: format!("{} and starts {unit} on demand", automatic_start.cause),
                ..automatic_start
            });
        } else if !trigger_state.has_ended() {
            let cause = format!("is active and starts {unit} on demand");
            starts.push(AutomaticStart { unit: trigger.clone(), cause, can_be_disabled: true });
        }
    }
    Ok(starts)
}

/// Disables a unit, and the units that start it on demand. Returns the reasons that remain.
pub(super) async fn disable(
    session: &Session,
    unit: &str,
    starts: Vec<AutomaticStart>,
) -> Result<Vec<AutomaticStart>, BusError> {
    if starts.is_empty() {
        return Ok(starts);
    }
    let names: Vec<&str> = starts.iter().map(|automatic_start| automatic_start.unit.as_str()).collect();
    session.disable(&names).await?;
    tracing::info!(unit, disabled = names.join(" "), "disabled units at boot because of disableAtBoot");
    for automatic_start in starts.iter().filter(|automatic_start| automatic_start.unit != unit) {
        session.stop(&automatic_start.unit, super::manager::Mode::Replace).await?.wait_for_end().await;
    }
    let state = session.unit(unit).await?;
    automatic_starts(session, unit, &state).await
}

/// Returns the failure of a unit that cannot be a service because systemd starts it automatically.
pub(super) fn refusal(remaining: &[AutomaticStart], disable_at_boot: bool) -> Option<DriverFailure> {
    let first = remaining.first()?;
    let AutomaticStart { unit, cause, can_be_disabled } = first;
    let remedy = match (disable_at_boot, can_be_disabled) {
        (false, true) => format!(
            "run `systemctl disable {unit}` on every node, or set `disableAtBoot: true` in spec.driver.systemd"
        ),
        (true, true) => "disableAtBoot has no effect on it (run `systemctl show -p WantedBy,RequiredBy` to find the units that require it)"
            .to_owned(),
        (_, false) => "remove it from that configuration".to_owned(),
    };
    Some(never_here_failure(
        Reason::BadConfiguration,
        format!("{unit} {cause}, so it could run twice: {remedy}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::state::testing::unit;
    use super::*;
    use zbus::zvariant::Value;

    #[test]
    fn units_started_at_boot_are_recognized() {
        for (file, wanted_by, expected) in [
            ("disabled", vec![], None),
            ("static", vec![], None),
            ("static", vec!["app.target", "other.service"], None),
            ("transient", vec![], None),
            ("", vec![], None),
            ("enabled", vec!["multi-user.target"], Some(("is enabled at boot", true))),
            ("enabled-runtime", vec![], Some(("is enabled at boot", true))),
            ("linked", vec!["x.service"], None),
            ("linked", vec!["multi-user.target"], Some(("is started at boot by multi-user.target", true))),
            (
                "static",
                vec!["x.service", "sockets.target"],
                Some(("is started at boot by sockets.target", true)),
            ),
            (
                "generated",
                vec!["multi-user.target"],
                Some((
                    "is created and started at boot by a generator (such as from /etc/init.d or /etc/fstab)",
                    false,
                )),
            ),
        ] {
            let state = unit(&[("UnitFileState", Value::from(file)), ("WantedBy", Value::from(wanted_by))]);
            let start = boot_start("web.service", &state);
            assert_eq!(
                start.as_ref().map(|start| (start.cause.as_str(), start.can_be_disabled)),
                expected,
                "{file}"
            );
        }
    }

    #[test]
    fn boot_start_refusal_suggests_a_fix() {
        let check = |disable: bool, can_be_disabled: bool, expected: &str| {
            let automatic_start = AutomaticStart {
                unit: "web.socket".to_owned(),
                cause: "is enabled at boot".to_owned(),
                can_be_disabled,
            };
            let failure = refusal(&[automatic_start], disable).unwrap();
            assert_eq!(failure.reason, Reason::BadConfiguration);
            assert!(failure.message.starts_with("web.socket is enabled at boot, so it could run twice: "));
            assert!(failure.message.contains(expected), "{}", failure.message);
        };
        check(false, true, "run `systemctl disable web.socket` on every node, or set `disableAtBoot: true`");
        check(true, true, "disableAtBoot has no effect");
        check(true, false, "remove it from that configuration");
        assert_eq!(refusal(&[], false), None);
    }
}
