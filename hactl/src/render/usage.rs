//! Measured usage as text.

use ha_api_types::usage::Usage;

/// Returns all measured values in one line.
pub(crate) fn sentence(usage: &Usage) -> String {
    let parts = [
        usage.cpu.map(|cpu| format!("cpu {cpu}")),
        usage.memory.map(|memory| format!("memory {memory}")),
        usage.disk_rate.map(|rate| format!("disk {rate}/s")),
        usage.network_rate.map(|rate| format!("network {rate}/s")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
