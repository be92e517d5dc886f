"""Dashboard of capacity and balance: capacity of the nodes, requests of the services, and headroom after a failure."""

from .parts import GREEN, ORANGE, RED, RESERVATION, YELLOW, bars_panel, coded, graph, happened, of, page, row, rows, stat_panel, states, timeline

KINDS = {"CPU": ("cpu_cores", "none"), "Memory": ("memory_bytes", "bytes"), "Disk": ("disk_bytes", "bytes")}
LOAD = (GREEN, (0.8, YELLOW), (1, RED))


def share(kind):
    """Returns a query for the requested share of each node's capacity."""
    suffix = KINDS[kind][0]
    return f'max by (node) ({of("hactl_node_allocated_" + suffix)}) / max by (node) ({of("hactl_node_capacity_" + suffix)})'


def make():
    made = page("hactl-capacity", "hactl / Capacity and balance", "Failover capacity, headroom, and load of the nodes.")
    slack = [
        stat_panel(f"{kind} headroom", "Headroom for services after the worst node failure. Below zero, some services cannot be scheduled:"
                   " add a node, or lower requests.",
                   f'max({of("hactl_slack_" + suffix)})', unit=unit, decimals=1, colors=(RED, (0, GREEN)), width=4,
                   alerts=["HactlReservationFailed"])
        for kind, (suffix, unit) in KINDS.items()
    ]
    row(
        made, "Failover capacity",
        stat_panel("Failover capacity (N+1)", "Whether every service could be scheduled after the failure of any one node. hactl check n+1 lists"
                   " the services that could not.",
                   coded("hactl_reservation_state", RESERVATION, "cluster"), texts=states(RESERVATION), width=4, alerts=["HactlReservationFailed"]),
        stat_panel("Tolerated failures", "Number of simultaneous node failures that the cluster can absorb, as far as checked.", f'max({of("hactl_failure_tolerance_nodes")})',
                   colors=(RED, (1, GREEN)), width=4, alerts=["HactlFailureToleranceZero"]),
        *slack,
        stat_panel("Load imbalance", "Standard deviation over mean of the nodes' load; 0 is balanced. Above scheduler.autoRebalance.threshold,"
                   " services are moved automatically if that is enabled; hactl balance shows possible moves.",
                   f'max({of("hactl_balance_score_ratio")})', unit="percentunit", decimals=1, colors=(GREEN, (0.3, YELLOW), (0.6, ORANGE)),
                   width=4),
        timeline("Failover capacity over time", "Result of the failover capacity (N+1) check over time.", coded("hactl_reservation_state", RESERVATION, "cluster"), "result",
                 texts=states(RESERVATION), width=12, height=5, alerts=["HactlReservationFailed"]),
        graph("Load imbalance over time", "Load imbalance, which failures and maintenance increase and moves decrease.", f'max({of("hactl_balance_score_ratio")})',
              "imbalance", width=12, height=5, unit="percentunit"),
    )
    row(
        made, "Nodes now",
        *[bars_panel(f"{kind} requests", "Share of each node's capacity that its services request. Near 100 %, no further services are scheduled there.",
                     share(kind), "{{node}}", width=8, height=6, unit="percentunit", decimals=1, colors=LOAD, maximum=1) for kind in KINDS],
        rows("Nodes", "Capacity and requests of each node.",
             {"Services": f'max by (node) ({of("hactl_node_services")})',
              "CPUs": f'max by (node) ({of("hactl_node_capacity_cpu_cores")})',
              "CPU requests": f'max by (node) ({of("hactl_node_allocated_cpu_cores")})',
              "Memory": f'max by (node) ({of("hactl_node_capacity_memory_bytes")})',
              "Memory requests": f'max by (node) ({of("hactl_node_allocated_memory_bytes")})',
              "Disk": f'max by (node) ({of("hactl_node_capacity_disk_bytes")})',
              "Disk requests": f'max by (node) ({of("hactl_node_allocated_disk_bytes")})'},
             names={"node": "Node"}, units={"CPU requests": ("none", 2), **{name: ("bytes", 1) for name in
                    ("Memory", "Memory requests", "Disk", "Disk requests")}}, order=("Node", False), width=24, height=7),
    )
    row(
        made, "Over time",
        *[graph(f"{kind} requests over time", "Share of each node's capacity that its services request.", share(kind), "{{node}}", width=8,
                unit="percentunit", limit=("transparent", (1, RED))) for kind in KINDS],
        graph("Services by node", "Number of services on each node. After a failure, hactl balance evens the load.",
              f'max by (node) ({of("hactl_node_services")})', "{{node}}", stacked=True, decimals=0),
        graph("Moves by reason", "Moves of services by reason. If services move back and forth, raise scheduler.autoRebalance.threshold.",
              happened(of("hactl_resource_relocations_total"), "reason"), "{{reason}}", bars=True, stacked=True,
              alerts=["HactlResourceFlapping"]),
    )
    return made
