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
    made = page("hactl-resource", "hactl / Resource", "One resource: its state, its availability with the downtime that is left, its moves.",
                since="now-24h")
    made.with_variable(variable("resource", "Resource", f"label_values(hactl_resource_info{{{CLUSTER}}}, resource)", "Which resource."))
    row(
        made, "Now",
        stat_panel("Runs", "As its node's agent reports. If it is wanted and does not: hactl why says why.",
                   f'max({of("hactl_resource_running", **ME)})', texts={1: ("running", GREEN), 0: ("not running", RED)},
                   alerts=["HactlResourceNotRunning"]),
        stat_panel("Is", "The state that the leader has it in; docs/services.md says what each means.",
                   f'max by (state) ({of("hactl_resource_state", **ME)})', "{{state}}", name=True, colors=NEUTRAL),
        stat_panel("Wanted", "What is asked of it: hactl start, stop, disable.",
                   f'max by (state) ({of("hactl_resource_desired_state", **ME)})', "{{state}}", name=True, colors=NEUTRAL),
        stat_panel("On", "The node where it is, or is to be.", f'max by (node) ({of("hactl_resource_node", **ME)})', "{{node}}", name=True,
                   colors=NEUTRAL),
        stat_panel("Driver", "What runs it, and the group that says where.",
                   f'max by (driver, group) ({of("hactl_resource_info", **ME)})', "{{driver}} {{group}}", name=True, colors=NEUTRAL),
        stat_panel("For", "How long it has been ready, or not ready.",
                   f'time() - max({of("hactl_resource_last_transition_timestamp_seconds", **ME)})', unit="s", decimals=1, colors=NEUTRAL),
        stat_panel("Restarts", "Restarts in place after crashes since the controller last started it. Rising: look at its log.",
                   f'max({of("hactl_resource_restarts_total", **ME)})', decimals=0, colors=(GREEN, (1, YELLOW), (3, RED)),
                   alerts=["HactlResourceFlapping"]),
        stat_panel("Moves", "Moves to another node in the time shown.",
                   f'sum(max_over_time({MOVES}[$__range]) - ({MOVES} offset $__range or 0 * max_over_time({MOVES}[$__range]))) or vector(0)', decimals=0,
                   colors=(GREEN, (1, YELLOW), (3, RED)), alerts=["HactlResourceFlapping"]),
    )
    row(
        made, "Availability",
        stat_panel("30 days", "The share of the time in which it was wanted in which it ran, as far as it is recorded.",
                   f'max({of("hactl_resource_availability_ratio", window="30d", **ME)})', unit="percentunit", decimals=5, colors=QUALITY,
                   width=4),
        stat_panel("A year", "The same over 365 days.", f'max({of("hactl_resource_availability_ratio", window="365d", **ME)})',
                   unit="percentunit", decimals=5, colors=QUALITY, width=4),
        stat_panel("Down in 30 days", "How long it was wanted and did not run.",
                   f'max({of("hactl_resource_downtime_seconds", window="30d", **ME)})', unit="s", decimals=1, colors=NEUTRAL, width=4),
        stat_panel("Down in a year", "The same over 365 days.", f'max({of("hactl_resource_downtime_seconds", window="365d", **ME)})', unit="s",
                   decimals=1, colors=NEUTRAL, width=4),
        graph("Time down", "It rises while the resource is wanted and does not run, and falls when a bad day leaves the period.",
              {"30 days": f'max({of("hactl_resource_downtime_seconds", window="30d", **ME)})',
               "a year": f'max({of("hactl_resource_downtime_seconds", window="365d", **ME)})'}, unit="s", width=8, height=4),
        stat_panel("Downtime left in 30 days, by objective",
                   "How long it may still be down in these 30 days. Below zero the objective is missed already, by so much."
                   " docs/availability.md says what a failover costs.",
                   left("30d"), unit="s", decimals=2, colors=(RED, (0, GREEN)), width=24, background=True),
        stat_panel("Downtime left in a year, by objective", "The same for 365 days.", left("365d"), unit="s", decimals=2,
                   colors=(RED, (0, GREEN)), width=24, background=True),
    )
    row(
        made, "What happened",
        timeline("State", "A row for each state that it was in. Fence: it waits for the proof that its node is dead; Recovery: for a place.",
                 f'max by (state) ({of("hactl_resource_state", **ME)})', "{{state}}", texts={1: ("in it", BLUE)}, height=8,
                 alerts=["HactlResourceError"]),
        timeline("Node", "Where it was.", f'max by (node) ({of("hactl_resource_node", **ME)})', "{{node}}", texts={1: ("here", GREEN)}, height=5),
        timeline("Running", "Whether it ran, and while it had no place, why.",
                 {"running": f'max({of("hactl_resource_running", **ME)})',
                  "no place: {{reason}}": f'2 * max by (reason) ({of("hactl_resource_unplaced", **ME)})'},
                 texts={1: ("running", GREEN), 0: ("not running", RED), 2: ("no place", ORANGE)}, height=5,
                 alerts=["HactlResourceUnplaced"]),
        graph("Moves by reason", "What it was moved for. After failures: Recovered, StartFailed; by will: Migrate, Relocate, Maintenance and"
              " balance.",
              happened(of("hactl_resource_relocations_total", **ME), "reason"), "{{reason}}", bars=True,
              stacked=True),
        graph("Restarts in place", "Since the controller last started it: it begins at 0 then.",
              f'max({of("hactl_resource_restarts_total", **ME)})', "restarts", decimals=0, alerts=["HactlResourceFlapping"]),
    )
    return made
