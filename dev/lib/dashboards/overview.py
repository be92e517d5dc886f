"""Overview dashboard: current problems and recent events."""

from grafana_foundation_sdk.models.dashboard import VariableHide

from .parts import (ARMING, CLUSTER, GREEN, NODE_STATES, ORANGE, RED, YELLOW, coded, graph, happened, heat_panel, of, page, row, rows,
                    stat_panel, states, timeline, variable)

MISSING = (f'max by (resource) ({of("hactl_resource_desired_state", state="Started")})'
           f' unless max by (resource) ({of("hactl_resource_running")}) == 1')
FAILOVERS = 'hactl_failover_duration_seconds_bucket'


def make():
    made = page("hactl-overview", "hactl / Overview", "State of nodes and services, current problems, and recent events.")
    targets = variable("job", "Jobs", f"label_values(hactl_build_info{{{CLUSTER}}}, job)", "Prometheus jobs that scrape this cluster.")
    made.with_variable(targets.include_all(True).multi(True).hide(VariableHide.HIDE_VARIABLE))
    row(
        made, "Now",
        stat_panel("Leader", "Whether a controller is leader. Without a leader, running services continue, but failed services are not recovered.",
                   f'sum({of("hactl_leader")})', texts={0: ("none", RED), 1: ("elected", GREEN)}, colors=(ORANGE,), alerts=["HactlNoLeader"]),
        stat_panel("Arming", "While the cluster is disarmed, no node is fenced and no service is recovered. After the work, run hactl arm --wait.",
                   coded("hactl_cluster_arming", ARMING, "cluster"), texts=states(ARMING), alerts=["HactlDisarmed"]),
        stat_panel("Nodes not online", "Number of nodes that are unreachable, fenced, in maintenance or shut down. No services are started there.",
                   f'count(max by (node) ({of("hactl_node_state", state="Online")}) == 0) or vector(0)', colors=(GREEN, (1, ORANGE)),
                   alerts=["HactlNodeUnknown", "HactlNodeFenced"]),
        stat_panel("Desired, not running", "Number of resources that are requested Started and do not run. The table below lists them. For the reason, run hactl why RESOURCE.",
                   f"count({MISSING}) or vector(0)", alerts=["HactlResourceNotRunning"]),
        stat_panel("In error", "Number of resources in Error. No further attempt is made until an operator clears the error (hactl clear-error RESOURCE).",
                   f'sum(max by (resource) ({of("hactl_resource_state", state="Error")})) or vector(0)', alerts=["HactlResourceError"]),
        stat_panel("Tolerated failures", "Number of simultaneous node failures that the cluster can absorb. 0: after the next failure, some services cannot be scheduled.",
                   f'max({of("hactl_failure_tolerance_nodes")})', colors=(RED, (1, GREEN)), alerts=["HactlReservationFailed"]),
        stat_panel("Lowest availability", "Availability of the worst resource over 30 days. The dashboard of the resource shows the remaining downtime.",
                   f'min(max by (resource) ({of("hactl_resource_availability_ratio", window="30d")}))', unit="percentunit", decimals=3,
                   colors=(RED, (0.99, ORANGE), (0.999, YELLOW), (0.9999, GREEN))),
        stat_panel("Targets down", "Number of controllers and agents that Prometheus cannot scrape. Their metrics are missing on the dashboards.",
                   f'count({of("up", job="~$job")} == 0) or vector(0)', colors=(GREEN, (1, ORANGE))),
    )
    row(
        made, "Needs attention",
        rows("Firing alerts", "Firing alerts of hactl. Each has a runbook.",
             {"Firing": f'count by (alertname, severity, node, resource) ({of("ALERTS", alertname="~Hactl.*", alertstate="firing")})'},
             names={"severity": "Severity", "alertname": "Alert", "node": "Node", "resource": "Resource"}, height=7,
             hidden=True, order=("Severity", False)),
        rows("Desired but not running", "Resources that are requested Started and do not run, with their state. For the reason on each node, run hactl why RESOURCE.",
             {"State": f'max by (resource, state) ({of("hactl_resource_state")}) and on (resource) ({MISSING})'},
             names={"resource": "Resource", "state": "State"}, hidden=True, height=7, alerts=["HactlResourceNotRunning"]),
        rows("Unschedulable resources", "Resources that are requested Started and have no eligible node, with the most frequent reason.",
             {"Without": f'max by (resource, reason) ({of("hactl_resource_unplaced")})'}, names={"resource": "Resource", "reason": "Reason"},
             hidden=True, height=7, alerts=["HactlResourceUnplaced"]),
        rows("Least available resources", "Share of the requested time in which each resource ran, and its downtime, over 30 days.",
             {"Availability": f'bottomk(10, max by (resource) ({of("hactl_resource_availability_ratio", window="30d")}))',
              "Down": f'max by (resource) ({of("hactl_resource_downtime_seconds", window="30d")})'
                      f' and on (resource) bottomk(10, max by (resource) ({of("hactl_resource_availability_ratio", window="30d")}))'},
             names={"resource": "Resource"}, units={"Availability": ("percentunit", 5), "Down": ("s", 1)}, order=("Availability", False),
             height=7, colors={"Availability": (RED, (0.99, ORANGE), (0.999, YELLOW), (0.9999, GREEN))}),
    )
    row(
        made, "Over time",
        timeline("Nodes", "State of each node. Unknown: the heartbeat is late. Fence: fencing in progress.",
                 coded("hactl_node_state", NODE_STATES, "node"), "{{node}}", texts=states(NODE_STATES), height=7,
                 alerts=["HactlNodeUnknown", "HactlFenceStuck"]),
        graph("Resources by state", "Number of resources in each state. Check resources that stay in a state other than Started and Stopped.",
              f'sum by (state) (max by (resource, state) ({of("hactl_resource_state")}))', "{{state}}", stacked=True, decimals=0),
        graph("Failovers and moves", "Failovers, and moves by reason. If there are many moves without failures, see the dashboard Capacity and balance.",
              {"failover": f'sum(increase({of("hactl_failovers_total")}[$__rate_interval]))',
               "move: {{reason}}": happened(of("hactl_resource_relocations_total"), "reason")},
              bars=True, stacked=True),
    )
    row(
        made, "Failovers",
        rows("Phases of failovers", "Duration of each phase in the selected time range. The timing settings limit detect and fence (hactl timing);"
             " start depends on the service.",
             {"Count": f'sum by (phase) (increase({of("hactl_failover_duration_seconds_count")}[$__range]))',
              "Mean": f'sum by (phase) (increase({of("hactl_failover_duration_seconds_sum")}[$__range]))'
                      f' / sum by (phase) (increase({of("hactl_failover_duration_seconds_count")}[$__range]))',
              "99 %": f'histogram_quantile(0.99, sum by (phase, le) (increase({of(FAILOVERS)}[$__range])))'},
             names={"phase": "Phase"}, units={"Count": ("short", 0), "Mean": ("s", 1), "99 %": ("s", 1)}, width=8),
        heat_panel("Phase durations", "Durations of all phases by the time of their end. Darker: more phases.",
                   f'sum by (le) (increase({of(FAILOVERS)}[$__rate_interval]))', width=8),
        graph("Fenced nodes", "Fencing attempts by method: Silence is the fencing delay with a watchdog, Device a fence device."
              " Failed: not confirmed, exclusive services wait.",
              f'sum by (method, result) (increase({of("hactl_fences_total")}[$__rate_interval]))', "{{method}} {{result}}", width=8, bars=True,
              stacked=True, alerts=["HactlNodeFenced", "HactlFenceStuck"]),
    )
    return made
