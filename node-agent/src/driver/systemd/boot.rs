//! Units that systemd starts on its own, at boot or on demand: such a unit could run on two nodes.

use super::bus::{BusError, Session};
use super::state::UnitState;
use super::verdict::never_here;
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
pub(super) struct Starter {
    /// The unit that is enabled: the service's own unit, or one that starts it on demand.
    pub(super) unit: String,
    /// Cause as the predicate of a sentence about the unit, such as `is enabled at boot`.
    pub(super) how: String,
    /// `true` if `systemctl disable` prevents it.
    pub(super) can_be_disabled: bool,
}

/// Returns the reason why the boot starts a unit; `None` if it does not.
pub(super) fn boot_starter(unit: &str, state: &UnitState) -> Option<Starter> {
    let (how, can_be_disabled) = match state.file_state.as_str() {
        "enabled" | "enabled-runtime" => ("is enabled at boot".to_owned(), true),
        "generated" => (
            "is created and started at boot by a generator (such as from /etc/init.d or /etc/fstab)"
                .to_owned(),
            false,
        ),
        // Linked into a target by the package or by an operator, or enabled by another name.
        _ => {
            let starts = |other: &&String| BOOT_TARGETS.contains(&other.as_str()) || is_boot(other);
            (format!("is started at boot by {}", state.wanted_by.iter().find(starts)?), true)
        }
    };
    Some(Starter { unit: unit.to_owned(), how, can_be_disabled })
}

fn is_boot(target: &str) -> bool {
    target.ends_with(".target") && is_essential_unit(target)
}

/// Returns all reasons why systemd starts a unit on its own.
pub(super) async fn starters(
    session: &Session,
    unit: &str,
    state: &UnitState,
) -> Result<Vec<Starter>, BusError> {
    let mut found: Vec<Starter> = boot_starter(unit, state).into_iter().collect();
    for trigger in &state.triggered_by {
        let by = session.unit(trigger).await?;
        if let Some(starter) = boot_starter(trigger, &by) {
            found.push(Starter { how: format!("{} and starts {unit} on demand", starter.how), ..starter });
        } else if !by.has_ended() {
            let how = format!("is active and starts {unit} on demand");
            found.push(Starter { unit: trigger.clone(), how, can_be_disabled: true });
        }
    }
    Ok(found)
}

/// Disables a unit, and the units that start it on demand. Returns the reasons that remain.
pub(super) async fn disable(
    session: &Session,
    unit: &str,
    found: Vec<Starter>,
) -> Result<Vec<Starter>, BusError> {
    if found.is_empty() {
        return Ok(found);
    }
    let names: Vec<&str> = found.iter().map(|starter| starter.unit.as_str()).collect();
    session.disable(&names).await?;
    tracing::info!(unit, disabled = names.join(" "), "disabled units at boot because of disableAtBoot");
    for starter in found.iter().filter(|starter| starter.unit != unit) {
        session.stop(&starter.unit, super::manager::Mode::Replace).await?.ended().await;
    }
    let state = session.unit(unit).await?;
    starters(session, unit, &state).await
}

/// Returns the failure of a unit that systemd starts on its own and that therefore cannot be a service.
pub(super) fn refusal(left: &[Starter], disable: bool) -> Option<DriverFailure> {
    let first = left.first()?;
    let Starter { unit, how, can_be_disabled } = first;
    let remedy = match (disable, can_be_disabled) {
        (false, true) => format!(
            "run `systemctl disable {unit}` on every node, or set `disableAtBoot: true` in spec.driver.systemd"
        ),
        (true, true) => "disableAtBoot has no effect on it (run `systemctl show -p WantedBy,RequiredBy` to find the units that require it)"
            .to_owned(),
        (_, false) => "remove it from that configuration".to_owned(),
    };
    Some(never_here(Reason::BadConfiguration, format!("{unit} {how}, so it could run twice: {remedy}")))
}

#[cfg(test)]
mod tests {
    use super::super::state::testing::unit;
    use super::*;
    use zbus::zvariant::Value;

    #[test]
    fn what_starts_at_boot_is_known() {
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
            let found = boot_starter("web.service", &state);
            assert_eq!(
                found.as_ref().map(|found| (found.how.as_str(), found.can_be_disabled)),
                expected,
                "{file}"
            );
        }
    }

    #[test]
    fn the_refusal_says_what_to_do() {
        let check = |disable: bool, can_be_disabled: bool, expected: &str| {
            let starter = Starter {
                unit: "web.socket".to_owned(),
                how: "is enabled at boot".to_owned(),
                can_be_disabled,
            };
            let failure = refusal(&[starter], disable).unwrap();
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
