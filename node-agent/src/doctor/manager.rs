//! systemd's own watchdog settings, and problems with them.

/// Location of the drop-in, and the command that applies a change.
const HOW_TO_APPLY: &str =
    "in /etc/systemd/system.conf.d/50-ha-watchdogd.conf, then run systemctl daemon-reexec";

/// systemd's watchdog settings from its configuration files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerSettings {
    /// `RuntimeWatchdogSec`: if on, systemd itself pets the watchdog while the machine runs.
    pub runtime_watchdog_sec: String,
    /// `RebootWatchdogSec`: if on, systemd arms the watchdog again at reboot.
    pub reboot_watchdog_sec: String,
}

impl ManagerSettings {
    /// Returns the problem with `RuntimeWatchdogSec`, if any: the observation, and the suggested fix.
    pub fn runtime_problem(&self) -> Option<(String, String)> {
        (!is_off(&self.runtime_watchdog_sec)).then(|| {
            (
                format!(
                    "systemd renews the watchdog itself (RuntimeWatchdogSec={})",
                    self.runtime_watchdog_sec
                ),
                format!("set RuntimeWatchdogSec=0 {HOW_TO_APPLY}"),
            )
        })
    }

    /// Returns the problem with `RebootWatchdogSec`, if any: the observation, and the suggested fix.
    pub fn reboot_problem(&self) -> Option<(String, String)> {
        (!is_off(&self.reboot_watchdog_sec)).then(|| {
            (
                format!(
                    "systemd sets the watchdog timeout to {} at reboot, so a machine that hangs during shutdown is reset late",
                    self.reboot_watchdog_sec
                ),
                format!("set RebootWatchdogSec=0 {HOW_TO_APPLY}"),
            )
        })
    }
}

fn is_off(value: &str) -> bool {
    value == "off" || value.trim_end_matches(|unit: char| unit.is_ascii_alphabetic() || unit == ' ') == "0"
}
