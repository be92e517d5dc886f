"""Dashboard of one node: fencing state, watchdog, agent and services."""

from .parts import (AGENT_STATES, CLUSTER, FENCE_STATES, GREEN, GREY, NEUTRAL, NODE_STATES, ORANGE, RED, YELLOW, YES_NO, coded, graph, of, page,
                    row, rows, stat_panel, states, timeline, variable)

ME = {"node": "$node"}


def make():
    made = page("hactl-node", "hactl / Node", "Heartbeat, watchdog, agent and services of one node. Metrics of agents need targets with a"
                " label `node` (docs/dashboards.md).")
    made.with_variable(variable("node", "Node", f"label_values(hactl_node_state{{{CLUSTER}}}, node)", "Name of the node."))
    row(
        made, "Now",
        stat_panel("State", "State of the node, as seen by the leader. Unknown: the heartbeat is late. Fence: fencing in progress.",
                   coded("hactl_node_state", NODE_STATES, "node", **ME), texts=states(NODE_STATES), alerts=["HactlNodeUnknown"]),
        stat_panel("Registration", "Open: the agent may act. Fencing: revoked, fencing not confirmed yet. Fenced: fencing confirmed. Closed: clean shutdown.",
                   coded("hactl_node_fence_state", FENCE_STATES, "node", **ME), texts=states(FENCE_STATES),
                   alerts=["HactlNodeFenced", "HactlFenceStuck"]),
        stat_panel("Heartbeat", "Time since the leader last received a heartbeat. A few seconds are normal; hactl timing shows the limit.",
                   f'max({of("hactl_node_heartbeat_age_seconds", **ME)})', unit="s", decimals=1, colors=(GREEN, (5, ORANGE), (15, RED)),
                   alerts=["HactlNodeUnknown"]),
        stat_panel("Watchdog armed", "Whether the watchdog is armed, which it is only while exclusive services are active on the node.",
                   f'max({of("hactl_node_watchdog_armed", **ME)})', texts={1: ("armed", GREEN), 0: ("not armed", GREY)},
                   alerts=["HactlWatchdogNotArmed"]),
        stat_panel("Watchdog usable", "Whether the watchdog permits exclusive services on the node. If not, run hactl doctor NODE.",
                   f'max({of("hactl_node_watchdog_usable", **ME)})', texts=YES_NO, alerts=["HactlWatchdogNotArmed"]),
        stat_panel("Agent down", "Whether the agent is stopped for a restart. Its services keep running, but are unmonitored.",
                   f'max({of("hactl_node_agent_away", **ME)})', texts={1: ("down", ORANGE), 0: ("up", GREEN)}, alerts=["HactlAgentFrozen"]),
        stat_panel("Maintenance", "Whether maintenance is requested. To end it, run hactl node maintenance disable NODE.",
                   f'max({of("hactl_node_maintenance", **ME)})', texts={1: ("yes", ORANGE), 0: ("no", GREEN)},
                   alerts=["HactlMaintenanceForgotten"]),
        stat_panel("Services", "Number of services assigned to the node.", f'max({of("hactl_node_services", **ME)})', colors=NEUTRAL, decimals=0),
    )
    row(
        made, "Watchdog and lease",
        timeline("State over time", "State of the node, as seen by the leader.", coded("hactl_node_state", NODE_STATES, "node", **ME), "state", texts=states(NODE_STATES),
                 width=12, height=4),
        timeline("Agent", "State of the agent. WaitForLock: waiting for registration. LostLock: the lease ended, and the agent stopped its services.",
                 coded("hactl_agent_state", AGENT_STATES, "node", **ME), "agent", texts=states(AGENT_STATES), width=12, height=4),
        graph("Heartbeat and lease", "Age of the last heartbeat, as seen by the leader, and remaining lease of the agent. When the lease"
              " ends, the agent stops its services.",
              {"heartbeat age": f'max({of("hactl_node_heartbeat_age_seconds", **ME)})',
               "remaining lease": f'max({of("hactl_agent_lease_remaining_seconds", **ME)})'}, unit="s", alerts=["HactlNodeUnknown"]),
        graph("Watchdog", "Watchdog timeout, and minimum time left at a renewal. Near zero, the machine was nearly reset because it lacks"
              " CPU time.",
              {"timeout": f'max({of("hactl_agent_watchdog_timeout_seconds", **ME)})',
               "minimum left": f'min({of("hactl_agent_watchdog_margin_seconds", **ME)})'}, unit="s", alerts=["HactlWatchdogMarginLow"]),
    )
    row(
        made, "Workload",
        rows("Resources", "Resources that run or are being started on the node.",
             {"Running": f'max by (resource) ({of("hactl_resource_running")})'
                      f' and on (resource) max by (resource) ({of("hactl_resource_node", **ME)})'},
             names={"resource": "Resource"}, texts={"Running": {1: ("running", GREEN), 0: ("not running", RED)}}, width=8,
             colors={"Running": (GREEN,)}),
        graph("Services over time", "Number of services that run or may run on the node. The watchdog is armed for exclusive services.",
              {"assigned": f'max({of("hactl_node_services", **ME)})', "active": f'max({of("hactl_agent_services", **ME)})',
               "exclusive": f'max({of("hactl_agent_exclusive_services", **ME)})',
               "watchdog armed": f'max({of("hactl_agent_watchdog_armed", **ME)})'}, width=8, decimals=0, alerts=["HactlWatchdogNotArmed"]),
        graph("Driver commands", "Starts, stops and checks per second. Failing services cause many starts.",
              f'sum by (driver, command) (rate({of("hactl_agent_commands_total", **ME)}[$__rate_interval]))', "{{driver}} {{command}}", width=8,
              unit="ops"),
    )
    row(
        made, "Agent",
        graph("Workers", "Commands in progress, and services whose next command waits for a worker. If services wait for a long time, commands hang.",
              {"in progress": f'max({of("hactl_agent_workers", **ME)})', "waiting": f'max({of("hactl_agent_worker_queue_length", **ME)})'},
              width=6, decimals=0),
        graph("Writes", "Heartbeats, other commits to etcd, and journal writes, per second.",
              {"heartbeats": f'sum(rate({of("hactl_agent_heartbeats_total", **ME)}[$__rate_interval]))',
               "commits": f'sum(rate({of("hactl_agent_commits_total", **ME)}[$__rate_interval]))',
               "journal": f'sum(rate({of("hactl_agent_journal_writes_total", **ME)}[$__rate_interval]))'}, width=6, unit="ops"),
        graph("Registration number", "Number of the registration, which increases after fencing, a boot, or a clean shutdown.",
              f'max({of("hactl_agent_epoch", **ME)})', "registration", width=6, decimals=0, minimum=None),
        rows("Process", "Version and uptime of the agent, and time until its first certificate expires.",
             {"Up": f'max by (version) (time() - {of("hactl_process_start_time_seconds", **ME)} + on (instance) group_left (version)'
                    f' 0 * {of("hactl_build_info", **ME)})',
              "Certificates": f'min by (version) ({of("hactl_certificate_not_after_timestamp_seconds", **ME)} - time() + on (instance)'
                              f' group_left (version) 0 * {of("hactl_build_info", **ME)})'},
             names={"version": "Version"}, units={"Up": ("s", 0), "Certificates": ("s", 0)}, width=6,
             colors={"Certificates": (RED, (7 * 86400, YELLOW), (14 * 86400, GREEN))}, alerts=["HactlCertificateExpiry"]),
    )
    return made
