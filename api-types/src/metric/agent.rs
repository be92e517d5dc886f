//! Metrics of every agent about itself.

use super::metrics;

metrics! { Agent:
    STATE = Gauge "hactl_agent_state" ["state"]
        "1 for the state of the agent: WaitForLock (waits for an epoch), Active, LostLock; 0 for the others.";
    EPOCH = Gauge "hactl_agent_epoch" []
        "The epoch that it acts under; 0 for none.";
    LEASE_REMAINING = Gauge "hactl_agent_lease_remaining_seconds" []
        "Time left to the deadline last proven; nothing without one.";
    WATCHDOG_ARMED = Gauge "hactl_agent_watchdog_armed" []
        "1 while armed is committed.";
    WATCHDOG_TIMEOUT = Gauge "hactl_agent_watchdog_timeout_seconds" []
        "The timeout of the watchdog, as read back from it; nothing without one.";
    WATCHDOG_MARGIN = Gauge "hactl_agent_watchdog_margin_seconds" []
        "The least time that was left on the watchdog when it was petted, since it was armed; nothing before.";
    SERVICES = Gauge "hactl_agent_services" []
        "Services that run, or may run, here.";
    EXCLUSIVE_SERVICES = Gauge "hactl_agent_exclusive_services" []
        "Those of them that must not run twice: for these the watchdog is armed.";
    WORKERS = Gauge "hactl_agent_workers" []
        "Commands of drivers under way.";
    WORKER_QUEUE = Gauge "hactl_agent_worker_queue_length" []
        "Services whose next command waits for a free worker.";
    HEARTBEATS = Counter "hactl_agent_heartbeats_total" []
        "Heartbeats begun.";
    COMMITS = Counter "hactl_agent_commits_total" []
        "Commits begun, heartbeats left out.";
    COMMANDS = Counter "hactl_agent_commands_total" ["driver", "command"]
        "Commands of drivers begun.";
    JOURNAL_WRITES = Counter "hactl_agent_journal_writes_total" []
        "Journals written.";
}
