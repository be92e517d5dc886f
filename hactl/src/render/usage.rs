//! Measured use, for people.

use ha_api_types::usage::Usage;

/// All that was measured, in one line.
pub(crate) fn sentence(usage: &Usage) -> String {
    let parts = [
        usage.cpu.map(|cpu| format!("cpu {cpu}")),
        usage.memory.map(|memory| format!("memory {memory}")),
        usage.disk_rate.map(|rate| format!("disk {rate}/s")),
        usage.network_rate.map(|rate| format!("network {rate}/s")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
