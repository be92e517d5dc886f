//! systemd's own watchdog settings, and what is wrong with them.

/// Where our drop-in lies, and how a change takes effect.
const MEND: &str = "in /etc/systemd/system.conf.d/50-ha-watchdogd.conf, then systemctl daemon-reexec";

/// What systemd does with the watchdog, as its files say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerSettings {
    /// RuntimeWatchdogSec: it pets the watchdog itself while the machine runs.
    pub runtime: String,
    /// RebootWatchdogSec: it arms the watchdog anew at reboot.
    pub reboot: String,
}

impl ManagerSettings {
    /// What is wrong with RuntimeWatchdogSec: (what was seen, the line that mends it).
    pub fn runtime_problem(&self) -> Option<(String, String)> {
        (!is_off(&self.runtime)).then(|| {
            (
                format!("systemd pets the watchdog itself (RuntimeWatchdogSec={})", self.runtime),
                format!("set RuntimeWatchdogSec=0 {MEND}"),
            )
        })
    }

    /// The same of RebootWatchdogSec.
    pub fn reboot_problem(&self) -> Option<(String, String)> {
        (!is_off(&self.reboot)).then(|| {
            (
                format!(
                    "systemd gives the watchdog {} at reboot, so a machine that hangs on its way down is reset late",
                    self.reboot
                ),
                format!("set RebootWatchdogSec=0 {MEND}"),
            )
        })
    }
}

fn is_off(value: &str) -> bool {
    value == "off" || value.trim_end_matches(|unit: char| unit.is_ascii_alphabetic() || unit == ' ') == "0"
}
