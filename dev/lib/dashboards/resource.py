"""Dashboard of one resource: state, availability, nodes and reasons of moves."""

from .parts import BLUE, CLUSTER, GREEN, NEUTRAL, ORANGE, RED, YELLOW, graph, happened, of, page, row, stat_panel, timeline, variable

OBJECTIVES = ["99", "99.9", "99.99", "99.999", "99.9999", "99.99999"]
DAYS = {"30d": 30, "365d": 365}
QUALITY = (RED, (0.99, ORANGE), (0.999, YELLOW), (0.9999, GREEN))
ME = {"resource": "$resource"}
MOVES = of("hactl_resource_relocations_total", **ME)


def left(window):
    """Returns queries for the downtime that each objective still allows in the period."""
    seconds = DAYS[window] * 86400
    down = f'max({of("hactl_resource_downtime_seconds", window=window, **ME)})'
    # Four decimals suffice for the exact value of every objective.
    return {f"{text} %": f"{round((100 - float(text)) / 100 * seconds, 4)} - {down}" for text in OBJECTIVES}


def make():
    made = page("hactl-resource", "hactl / Resource", "State, availability, remaining downtime and moves of one resource.",
                since="now-24h")
    made.with_variable(variable("resource", "Resource", f"label_values(hactl_resource_info{{{CLUSTER}}}, resource)", "Name of the resource."))
    row(
        made, "Now",
        stat_panel("Running", "Whether the service runs, as reported by the agent. If not, run hactl why RESOURCE.",
                   f'max({of("hactl_resource_running", **ME)})', texts={1: ("running", GREEN), 0: ("not running", RED)},
                   alerts=["HactlResourceNotRunning"]),
        stat_panel("State", "State of the service, as seen by the leader (docs/services.md).",
                   f'max by (state) ({of("hactl_resource_state", **ME)})', "{{state}}", name=True, colors=NEUTRAL),
        stat_panel("Requested", "Requested state, as set by hactl start, hactl stop or spec.state.",
                   f'max by (state) ({of("hactl_resource_desired_state", **ME)})', "{{state}}", name=True, colors=NEUTRAL),
        stat_panel("Node", "Node on which the service runs or is being started.", f'max by (node) ({of("hactl_resource_node", **ME)})', "{{node}}", name=True,
                   colors=NEUTRAL),
        stat_panel("Driver", "Driver of the service, and group with its preferred nodes.",
                   f'max by (driver, group) ({of("hactl_resource_info", **ME)})', "{{driver}} {{group}}", name=True, colors=NEUTRAL),
        stat_panel("Since", "Time since the resource became ready or not ready.",
                   f'time() - max({of("hactl_resource_last_transition_timestamp_seconds", **ME)})', unit="s", decimals=1, colors=NEUTRAL),
        stat_panel("Restarts", "Number of restarts on the same node after crashes since the last start by the controller. If it grows, check the log of the service.",
                   f'max({of("hactl_resource_restarts_total", **ME)})', decimals=0, colors=(GREEN, (1, YELLOW), (3, RED)),
                   alerts=["HactlResourceFlapping"]),
        stat_panel("Moves", "Number of moves to another node in the selected time range.",
                   f'sum(max_over_time({MOVES}[$__range]) - ({MOVES} offset $__range or 0 * max_over_time({MOVES}[$__range]))) or vector(0)', decimals=0,
                   colors=(GREEN, (1, YELLOW), (3, RED)), alerts=["HactlResourceFlapping"]),
    )
    row(
        made, "Availability",
        stat_panel("30 days", "Share of the requested time in which the service ran over 30 days, as far as recorded.",
                   f'max({of("hactl_resource_availability_ratio", window="30d", **ME)})', unit="percentunit", decimals=5, colors=QUALITY,
                   width=4),
        stat_panel("365 days", "Share of the requested time in which the service ran over 365 days, as far as recorded.", f'max({of("hactl_resource_availability_ratio", window="365d", **ME)})',
                   unit="percentunit", decimals=5, colors=QUALITY, width=4),
        stat_panel("Downtime in 30 days", "Time in the last 30 days in which the service was requested and did not run.",
                   f'max({of("hactl_resource_downtime_seconds", window="30d", **ME)})', unit="s", decimals=1, colors=NEUTRAL, width=4),
        stat_panel("Downtime in 365 days", "Time in the last 365 days in which the service was requested and did not run.", f'max({of("hactl_resource_downtime_seconds", window="365d", **ME)})', unit="s",
                   decimals=1, colors=NEUTRAL, width=4),
        graph("Downtime", "Downtime in each period. It falls when a day with downtime leaves the period.",
              {"30 days": f'max({of("hactl_resource_downtime_seconds", window="30d", **ME)})',
               "365 days": f'max({of("hactl_resource_downtime_seconds", window="365d", **ME)})'}, unit="s", width=8, height=4),
        stat_panel("Downtime left in 30 days, by objective",
                   "Remaining downtime that each objective permits in the last 30 days. Below zero, the objective is missed by that time."
                   " docs/availability.md explains the cost of a failover.",
                   left("30d"), unit="s", decimals=2, colors=(RED, (0, GREEN)), width=24, background=True),
        stat_panel("Downtime left in 365 days, by objective", "Remaining downtime that each objective permits in the last 365 days.", left("365d"), unit="s", decimals=2,
                   colors=(RED, (0, GREEN)), width=24, background=True),
    )
    row(
        made, "Recent events",
        timeline("State over time", "States of the service. Fence: waiting for its node to be fenced. Recovery: waiting for an eligible node.",
                 f'max by (state) ({of("hactl_resource_state", **ME)})', "{{state}}", texts={1: ("active", BLUE)}, height=8,
                 alerts=["HactlResourceError"]),
        timeline("Node over time", "Nodes of the service.", f'max by (node) ({of("hactl_resource_node", **ME)})', "{{node}}", texts={1: ("here", GREEN)}, height=5),
        timeline("Running over time", "Whether the service ran, and the reason while no node was eligible.",
                 {"running": f'max({of("hactl_resource_running", **ME)})',
                  "no eligible node: {{reason}}": f'2 * max by (reason) ({of("hactl_resource_unplaced", **ME)})'},
                 texts={1: ("running", GREEN), 0: ("not running", RED), 2: ("no eligible node", ORANGE)}, height=5,
                 alerts=["HactlResourceUnplaced"]),
        graph("Moves by reason", "Moves of the service by reason. After failures: Recovered, StartFailed. Planned: Migrate, Relocate, Maintenance and"
              " rebalancing.",
              happened(of("hactl_resource_relocations_total", **ME), "reason"), "{{reason}}", bars=True,
              stacked=True),
        graph("Restarts on the same node", "Number of restarts after crashes since the last start by the controller.",
              f'max({of("hactl_resource_restarts_total", **ME)})', "restarts", decimals=0, alerts=["HactlResourceFlapping"]),
    )
    return made
