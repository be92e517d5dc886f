"""Dashboard of capacity and balance: capacity of the nodes, requests of the services, and headroom after a failure."""

from .parts import GREEN, ORANGE, RED, RESERVATION, YELLOW, bars_panel, coded, graph, happened, of, page, row, rows, stat_panel, states, timeline

KINDS = {"Cpu": ("cpu_cores", "none"), "Memory": ("memory_bytes", "bytes"), "Disk": ("disk_bytes", "bytes")}
LOAD = (GREEN, (0.8, YELLOW), (1, RED))


def share(kind):
    """Returns a query for the requested share of each node's capacity."""
    suffix = KINDS[kind][0]
    return f'max by (node) ({of("hactl_node_allocated_" + suffix)}) / max by (node) ({of("hactl_node_capacity_" + suffix)})'


def make():
    made = page("hactl-capacity", "hactl / Capacity and balance", "Whether the next failure fits, how much room is left, how even the load is.")
    slack = [
        stat_panel(f"Slack: {kind.lower()}", "What would be left for services after the failure of whichever node leaves the least. Below zero,"
                   " not all would find a place: add a node, or ask for less.",
                   f'max({of("hactl_slack_" + suffix)})', unit=unit, decimals=1, colors=(RED, (0, GREEN)), width=4,
                   alerts=["HactlReservationFailed"])
        for kind, (suffix, unit) in KINDS.items()
    ]
    row(
        made, "Does a failure fit",
        stat_panel("Reservation (N+1)", "Whether every service would find a place after the failure of any one node. hactl check n+1 names"
                   " those that would not.",
                   coded("hactl_reservation_state", RESERVATION, "cluster"), texts=states(RESERVATION), width=4, alerts=["HactlReservationFailed"]),
        stat_panel("Failures that fit", "So many nodes may fail at once, as far as is checked.", f'max({of("hactl_failure_tolerance_nodes")})',
                   colors=(RED, (1, GREEN)), width=4, alerts=["HactlFailureToleranceZero"]),
        *slack,
        stat_panel("Unevenness", "Standard deviation over mean of the nodes' load; 0 is even. Above scheduler.autoRebalance.threshold hactl moves"
                   " services by itself, if it may; hactl balance shows what would help.",
                   f'max({of("hactl_balance_score_ratio")})', unit="percentunit", decimals=1, colors=(GREEN, (0.3, YELLOW), (0.6, ORANGE)),
                   width=4),
        timeline("Reservation over time", "When it did not hold.", coded("hactl_reservation_state", RESERVATION, "cluster"), "reservation",
                 texts=states(RESERVATION), width=12, height=5, alerts=["HactlReservationFailed"]),
        graph("Unevenness over time", "It rises with failures and maintenance, and falls with moves.", f'max({of("hactl_balance_score_ratio")})',
              "unevenness", width=12, height=5, unit="percentunit"),
    )
    row(
        made, "Nodes now",
        *[bars_panel(f"{kind} asked for", "The share of what a node has that its services ask for. Near one, no further service is put there.",
                     share(kind), "{{node}}", width=8, height=6, unit="percentunit", decimals=1, colors=LOAD, maximum=1) for kind in KINDS],
        rows("Nodes", "What each has and what is asked of it.",
             {"Services": f'max by (node) ({of("hactl_node_services")})',
              "Cpus": f'max by (node) ({of("hactl_node_capacity_cpu_cores")})',
              "Cpus asked for": f'max by (node) ({of("hactl_node_allocated_cpu_cores")})',
              "Memory": f'max by (node) ({of("hactl_node_capacity_memory_bytes")})',
              "Memory asked for": f'max by (node) ({of("hactl_node_allocated_memory_bytes")})',
              "Disk": f'max by (node) ({of("hactl_node_capacity_disk_bytes")})',
              "Disk asked for": f'max by (node) ({of("hactl_node_allocated_disk_bytes")})'},
             names={"node": "Node"}, units={"Cpus asked for": ("none", 2), **{name: ("bytes", 1) for name in
                    ("Memory", "Memory asked for", "Disk", "Disk asked for")}}, order=("Node", False), width=24, height=7),
    )
    row(
        made, "Over time",
        *[graph(f"{kind} asked for", "The share of what a node has that its services ask for, by node.", share(kind), "{{node}}", width=8,
                unit="percentunit", limit=("transparent", (1, RED))) for kind in KINDS],
        graph("Services by node", "Where services are. After a failure they are elsewhere; hactl balance brings evenness back.",
              f'max by (node) ({of("hactl_node_services")})', "{{node}}", stacked=True, decimals=0),
        graph("Moves by reason", "What services were moved for: balance among it. Moves to and fro: raise the threshold.",
              happened(of("hactl_resource_relocations_total"), "reason"), "{{reason}}", bars=True, stacked=True,
              alerts=["HactlResourceFlapping"]),
    )
    return made
