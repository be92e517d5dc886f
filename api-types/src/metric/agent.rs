//! Metrics of every agent about itself.

use super::metrics;

metrics! { Agent:
    STATE = Gauge "hactl_agent_state" ["state"]
        "1 for the state of the agent, 0 for the others: WaitForLock (waiting for registration), Active, LostLock.";
    EPOCH = Gauge "hactl_agent_epoch" []
        "Number of the registration under which the agent acts; 0 if the agent is not registered.";
    LEASE_REMAINING = Gauge "hactl_agent_lease_remaining_seconds" []
        "Time until the end of the last confirmed heartbeat's lifetime; absent without a confirmed heartbeat.";
    WATCHDOG_ARMED = Gauge "hactl_agent_watchdog_armed" []
        "1 if the watchdog is recorded in etcd as armed, 0 otherwise.";
    WATCHDOG_TIMEOUT = Gauge "hactl_agent_watchdog_timeout_seconds" []
        "Watchdog timeout reported by the driver; absent without a watchdog.";
    WATCHDOG_MARGIN = Gauge "hactl_agent_watchdog_margin_seconds" []
        "Minimum time left on the watchdog at a renewal since the watchdog was armed; absent if the watchdog has not been armed.";
    SERVICES = Gauge "hactl_agent_services" []
        "Number of services that run, or may run, on the node.";
    EXCLUSIVE_SERVICES = Gauge "hactl_agent_exclusive_services" []
        "Number of exclusive services that run, or may run, on the node; the watchdog is armed for them.";
    WORKERS = Gauge "hactl_agent_workers" []
        "Number of driver commands in progress.";
    WORKER_QUEUE = Gauge "hactl_agent_worker_queue_length" []
        "Number of services whose next command waits for a free worker.";
    HEARTBEATS = Counter "hactl_agent_heartbeats_total" []
        "Number of heartbeats started.";
    COMMITS = Counter "hactl_agent_commits_total" []
        "Number of etcd commits started, excluding heartbeats.";
    COMMANDS = Counter "hactl_agent_commands_total" ["driver", "command"]
        "Number of driver commands started.";
    JOURNAL_WRITES = Counter "hactl_agent_journal_writes_total" []
        "Number of journal writes.";
}
