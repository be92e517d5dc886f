"""Overview dashboard: current problems and recent events."""

from grafana_foundation_sdk.models.dashboard import VariableHide

from .parts import (ARMING, CLUSTER, GREEN, NODE_STATES, ORANGE, RED, YELLOW, coded, graph, happened, heat_panel, of, page, row, rows,
                    stat_panel, states, timeline, variable)

MISSING = (f'max by (resource) ({of("hactl_resource_desired_state", state="Started")})'
           f' unless max by (resource) ({of("hactl_resource_running")}) == 1')
FAILOVERS = 'hactl_failover_duration_seconds_bucket'


def make():
    made = page("hactl-overview", "hactl / Overview", "Whether services run where they should, what is wrong, and what happened.")
    targets = variable("job", "Jobs", f"label_values(hactl_build_info{{{CLUSTER}}}, job)", "The jobs of Prometheus that read this cluster.")
    made.with_variable(targets.include_all(True).multi(True).hide(VariableHide.HIDE_VARIABLE))
    row(
        made, "Now",
        stat_panel("Leader", "Whether a controller leads. Without one nothing is decided: what runs goes on, what fails is not recovered.",
                   f'sum({of("hactl_leader")})', texts={0: ("none", RED), 1: ("leads", GREEN)}, colors=(ORANGE,), alerts=["HactlNoLeader"]),
        stat_panel("Arming", "Disarmed, no node is declared dead and nothing is recovered. After the work: hactl arm --wait.",
                   coded("hactl_cluster_arming", ARMING, "cluster"), texts=states(ARMING), alerts=["HactlDisarmed"]),
        stat_panel("Nodes not online", "Nodes that are silent, fenced, in maintenance or have left. Nothing is started there.",
                   f'count(max by (node) ({of("hactl_node_state", state="Online")}) == 0) or vector(0)', colors=(GREEN, (1, ORANGE)),
                   alerts=["HactlNodeUnknown", "HactlNodeFenced"]),
        stat_panel("Wanted, not running", "Resources that are wanted started and do not run. The table below names them; hactl why says why.",
                   f"count({MISSING}) or vector(0)", alerts=["HactlResourceNotRunning"]),
        stat_panel("In error", "Resources for which nothing more is tried until somebody has looked and cleared the error (hactl clear-error).",
                   f'sum(max by (resource) ({of("hactl_resource_state", state="Error")})) or vector(0)', alerts=["HactlResourceError"]),
        stat_panel("Failures that fit", "So many nodes may fail with a place for every service. 0: the next failure leaves services without one.",
                   f'max({of("hactl_failure_tolerance_nodes")})', colors=(RED, (1, GREEN)), alerts=["HactlReservationFailed"]),
        stat_panel("Lowest availability", "Of the worst resource, over 30 days. Its page says what that leaves of an objective.",
                   f'min(max by (resource) ({of("hactl_resource_availability_ratio", window="30d")}))', unit="percentunit", decimals=3,
                   colors=(RED, (0.99, ORANGE), (0.999, YELLOW), (0.9999, GREEN))),
        stat_panel("Targets down", "Controllers and agents that Prometheus cannot read. What they would say is missing on these pages.",
                   f'count({of("up", job="~$job")} == 0) or vector(0)', colors=(GREEN, (1, ORANGE))),
    )
    row(
        made, "What needs somebody",
        rows("Alerts that fire", "Each has a page of what to do.",
             {"Firing": f'count by (alertname, severity, node, resource) ({of("ALERTS", alertname="~Hactl.*", alertstate="firing")})'},
             names={"severity": "Severity", "alertname": "Alert", "node": "Node", "resource": "Resource"}, height=7,
             hidden=True, order=("Severity", False)),
        rows("Resources that are wanted and do not run", "With the state that each is in. hactl why RESOURCE says why, node by node.",
             {"State": f'max by (resource, state) ({of("hactl_resource_state")}) and on (resource) ({MISSING})'},
             names={"resource": "Resource", "state": "State"}, hidden=True, height=7, alerts=["HactlResourceNotRunning"]),
        rows("Resources without a place", "Wanted started, and no node takes them; the reason is the commonest one.",
             {"Without": f'max by (resource, reason) ({of("hactl_resource_unplaced")})'}, names={"resource": "Resource", "reason": "Why"},
             hidden=True, height=7, alerts=["HactlResourceUnplaced"]),
        rows("Least available resources", "Share of the wanted time in which they ran, over 30 days, and what they were down for.",
             {"Availability": f'bottomk(10, max by (resource) ({of("hactl_resource_availability_ratio", window="30d")}))',
              "Down": f'max by (resource) ({of("hactl_resource_downtime_seconds", window="30d")})'
                      f' and on (resource) bottomk(10, max by (resource) ({of("hactl_resource_availability_ratio", window="30d")}))'},
             names={"resource": "Resource"}, units={"Availability": ("percentunit", 5), "Down": ("s", 1)}, order=("Availability", False),
             height=7, colors={"Availability": (RED, (0.99, ORANGE), (0.999, YELLOW), (0.9999, GREEN))}),
    )
    row(
        made, "Over time",
        timeline("Nodes", "The state of each node. Unknown: its heartbeat is late; Fence: it is being proven dead.",
                 coded("hactl_node_state", NODE_STATES, "node"), "{{node}}", texts=states(NODE_STATES), height=7,
                 alerts=["HactlNodeUnknown", "HactlFenceStuck"]),
        graph("Resources by state", "How many resources are in which state; anything but Started and Stopped for long wants a look.",
              f'sum by (state) (max by (resource, state) ({of("hactl_resource_state")}))', "{{state}}", stacked=True, decimals=0),
        graph("Services that have to be elsewhere", "Failovers, and moves by what for. Many moves without failures: see the page on balance.",
              {"failover": f'sum(increase({of("hactl_failovers_total")}[$__rate_interval]))',
               "move: {{reason}}": happened(of("hactl_resource_relocations_total"), "reason")},
              bars=True, stacked=True),
    )
    row(
        made, "Failovers",
        rows("Phases of failovers", "How long each phase took, in the time shown; 99 % of them were shorter than the last column, as far as buckets tell. Detect and fence are"
             " bounded by the timing settings (hactl timing); start is the service's own.",
             {"Count": f'sum by (phase) (increase({of("hactl_failover_duration_seconds_count")}[$__range]))',
              "Mean": f'sum by (phase) (increase({of("hactl_failover_duration_seconds_sum")}[$__range]))'
                      f' / sum by (phase) (increase({of("hactl_failover_duration_seconds_count")}[$__range]))',
              "99 %": f'histogram_quantile(0.99, sum by (phase, le) (increase({of(FAILOVERS)}[$__range])))'},
             names={"phase": "Phase"}, units={"Count": ("short", 0), "Mean": ("s", 1), "99 %": ("s", 1)}, width=8),
        heat_panel("How long they took", "All phases, when they ended: a dark field is many of that length.",
                   f'sum by (le) (increase({of(FAILOVERS)}[$__rate_interval]))', width=8),
        graph("Nodes proven dead", "By the kind of proof: Silence is the time W, Device a fence device that confirmed. Failed: nothing could"
              " be proven, and exclusive services wait.",
              f'sum by (method, result) (increase({of("hactl_fences_total")}[$__rate_interval]))', "{{method}} {{result}}", width=8, bars=True,
              stacked=True, alerts=["HactlNodeFenced", "HactlFenceStuck"]),
    )
    return made
