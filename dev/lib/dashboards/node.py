"""Dashboard of one node: fencing state, watchdog, agent and services."""

from .parts import (AGENT_STATES, CLUSTER, FENCE_STATES, GREEN, GREY, NEUTRAL, NODE_STATES, ORANGE, RED, YELLOW, YES_NO, coded, graph, of, page,
                    row, rows, stat_panel, states, timeline, variable)

ME = {"node": "$node"}


def make():
    made = page("hactl-node", "hactl / Node", "One node: whether it is heard, what guards it, what runs there. The numbers of agents need"
                " targets with a label `node` (docs/dashboards.md).")
    made.with_variable(variable("node", "Node", f"label_values(hactl_node_state{{{CLUSTER}}}, node)", "Which node."))
    row(
        made, "Now",
        stat_panel("State", "As the leader sees it. Unknown: its heartbeat is late; Fence: it is being proven dead.",
                   coded("hactl_node_state", NODE_STATES, "node", **ME), texts=states(NODE_STATES), alerts=["HactlNodeUnknown"]),
        stat_panel("Epoch", "Open: its agent may act. Fencing: closed, and not yet proven dead; Fenced: proven dead. Closed: it left cleanly.",
                   coded("hactl_node_fence_state", FENCE_STATES, "node", **ME), texts=states(FENCE_STATES),
                   alerts=["HactlNodeFenced", "HactlFenceStuck"]),
        stat_panel("Heartbeat", "How long ago the leader last saw one. A few seconds are usual; hactl timing has the bound.",
                   f'max({of("hactl_node_heartbeat_age_seconds", **ME)})', unit="s", decimals=1, colors=(GREEN, (5, ORANGE), (15, RED)),
                   alerts=["HactlNodeUnknown"]),
        stat_panel("Watchdog armed", "Armed only while something is active there that must not run twice.",
                   f'max({of("hactl_node_watchdog_armed", **ME)})', texts={1: ("armed", GREEN), 0: ("not armed", GREY)},
                   alerts=["HactlWatchdogNotArmed"]),
        stat_panel("Watchdog usable", "Whether exclusive services may be started there. If not: hactl doctor NODE.",
                   f'max({of("hactl_node_watchdog_usable", **ME)})', texts=YES_NO, alerts=["HactlWatchdogNotArmed"]),
        stat_panel("Agent away", "Its agent left for a restart; services are frozen: they go on, and nobody watches them.",
                   f'max({of("hactl_node_agent_away", **ME)})', texts={1: ("away", ORANGE), 0: ("there", GREEN)}, alerts=["HactlAgentFrozen"]),
        stat_panel("Maintenance", "It is wanted empty. The end: hactl node maintenance disable NODE.",
                   f'max({of("hactl_node_maintenance", **ME)})', texts={1: ("yes", ORANGE), 0: ("no", GREEN)},
                   alerts=["HactlMaintenanceForgotten"]),
        stat_panel("Services", "Assigned to it.", f'max({of("hactl_node_services", **ME)})', colors=NEUTRAL, decimals=0),
    )
    row(
        made, "Guarding it",
        timeline("State", "As the leader sees it.", coded("hactl_node_state", NODE_STATES, "node", **ME), "state", texts=states(NODE_STATES),
                 width=12, height=4),
        timeline("Agent", "WaitForLock: it waits for an epoch; LostLock: it could not prove its lease and has stopped what it ran.",
                 coded("hactl_agent_state", AGENT_STATES, "node", **ME), "agent", texts=states(AGENT_STATES), width=12, height=4),
        graph("Heartbeat and lease", "The age of the last heartbeat, as the leader sees it, and the time that is left to the deadline which the"
              " agent last proved. When that ends its services are stopped.",
              {"age of the heartbeat": f'max({of("hactl_node_heartbeat_age_seconds", **ME)})',
               "left of the lease": f'max({of("hactl_agent_lease_remaining_seconds", **ME)})'}, unit="s", alerts=["HactlNodeUnknown"]),
        graph("Watchdog", "The timeout, and the least time that was left when it was petted. Near zero the machine was nearly reset: it is"
              " starved.",
              {"timeout": f'max({of("hactl_agent_watchdog_timeout_seconds", **ME)})',
               "least left": f'min({of("hactl_agent_watchdog_margin_seconds", **ME)})'}, unit="s", alerts=["HactlWatchdogMarginLow"]),
    )
    row(
        made, "What it carries",
        rows("Resources", "Those that are there or are to be, and whether they run.",
             {"Runs": f'max by (resource) ({of("hactl_resource_running")})'
                      f' and on (resource) max by (resource) ({of("hactl_resource_node", **ME)})'},
             names={"resource": "Resource"}, texts={"Runs": {1: ("running", GREEN), 0: ("not running", RED)}}, width=8,
             colors={"Runs": (GREEN,)}),
        graph("Services", "Those that run or may run there; for the exclusive ones the watchdog is armed.",
              {"assigned": f'max({of("hactl_node_services", **ME)})', "active": f'max({of("hactl_agent_services", **ME)})',
               "of these exclusive": f'max({of("hactl_agent_exclusive_services", **ME)})',
               "watchdog armed": f'max({of("hactl_agent_watchdog_armed", **ME)})'}, width=8, decimals=0, alerts=["HactlWatchdogNotArmed"]),
        graph("Commands of drivers", "Starts, stops, checks. Failing services show as many starts.",
              f'sum by (driver, command) (rate({of("hactl_agent_commands_total", **ME)}[$__rate_interval]))', "{{driver}} {{command}}", width=8,
              unit="ops"),
    )
    row(
        made, "Its agent",
        graph("Workers", "Commands under way, and services whose next command waits for a worker. Waiting for long: commands hang.",
              {"under way": f'max({of("hactl_agent_workers", **ME)})', "waiting": f'max({of("hactl_agent_worker_queue_length", **ME)})'},
              width=6, decimals=0),
        graph("Writes", "Heartbeats and other commits to the store, and writes of the journal, a second.",
              {"heartbeats": f'sum(rate({of("hactl_agent_heartbeats_total", **ME)}[$__rate_interval]))',
               "commits": f'sum(rate({of("hactl_agent_commits_total", **ME)}[$__rate_interval]))',
               "journal": f'sum(rate({of("hactl_agent_journal_writes_total", **ME)}[$__rate_interval]))'}, width=6, unit="ops"),
        graph("Epoch", "It rises with each registration: after a fence, a boot, a clean return.",
              f'max({of("hactl_agent_epoch", **ME)})', "epoch", width=6, decimals=0, minimum=None),
        rows("Process", "The agent's version, how long it has run, and how long its certificates last.",
             {"Up": f'max by (version) (time() - {of("hactl_process_start_time_seconds", **ME)} + on (instance) group_left (version)'
                    f' 0 * {of("hactl_build_info", **ME)})',
              "Certificates": f'min by (version) ({of("hactl_certificate_not_after_timestamp_seconds", **ME)} - time() + on (instance)'
                              f' group_left (version) 0 * {of("hactl_build_info", **ME)})'},
             names={"version": "Version"}, units={"Up": ("s", 0), "Certificates": ("s", 0)}, width=6,
             colors={"Certificates": (RED, (7 * 86400, YELLOW), (14 * 86400, GREEN))}, alerts=["HactlCertificateExpiry"]),
    )
    return made
