"""Dashboard of controller internals: leadership, decisions, etcd and the API."""

from .parts import GREEN, NEUTRAL, RED, YELLOW, graph, happened, heat_panel, of, page, row, rows, stat_panel, timeline


def quantiles(metric, by=""):
    """Returns queries for the median and the 99th percentile over the time between two points."""
    inner = f'sum by ({by}le) (rate({of(metric + "_bucket")}[$__rate_interval]))'
    return {share: f"histogram_quantile({share}, {inner})" for share in (0.5, 0.99)}


def make():
    made = page("hactl-controller", "hactl / Controller internals", "Leadership, reconcile loop, etcd as seen by controllers, and API.")
    decide = quantiles("hactl_reconcile_duration_seconds")
    answer = quantiles("hactl_api_request_duration_seconds", "method, ")
    row(
        made, "Now",
        stat_panel("Leader", "Controller that is leader. None: no service is recovered.", f'{of("hactl_leader")} == 1', "{{instance}}", name=True,
                   colors=(GREEN,), width=6, none="none", alerts=["HactlNoLeader"]),
        stat_panel("Pending work", "Number of events that the leader waits for, such as fencing, starts, operations. hactl status lists them.", f'max({of("hactl_waiting")})',
                   colors=NEUTRAL, decimals=0),
        stat_panel("Cannot watch etcd", "Number of controllers without a working etcd watch. If all are affected, no service is recovered.",
                   f'count({of("hactl_store_reachable")} == 0) or vector(0)', alerts=["HactlStoreUnreachable"]),
        stat_panel("Unreadable keys", "Number of etcd keys with a value that this version cannot read; their objects are not changed. After a downgrade, upgrade again.",
                   f'max({of("hactl_unreadable_keys")})'),
        stat_panel("Reconcile queue length", "Number of unprocessed events of the busiest controller. If it stays high, the controller lacks CPU time.",
                   f'max({of("hactl_reconcile_queue_length")})', colors=(GREEN, (10, YELLOW), (100, RED)), decimals=0),
        stat_panel("Revision lag", "Number of revisions by which the view of a controller is behind etcd. Usually 0; higher values last only a moment.",
                   f'max({of("hactl_store_revision_lag")})', colors=(GREEN, (20, YELLOW), (200, RED)), decimals=0),
        stat_panel("Next certificate expiry", "Time until the first certificate of controllers and agents expires. Below zero: expired or not readable.",
                   f'min({of("hactl_certificate_not_after_timestamp_seconds")} - time())', unit="s", decimals=1,
                   colors=(RED, (7 * 86400, YELLOW), (14 * 86400, GREEN)), alerts=["HactlCertificateExpiry"]),
    )
    row(
        made, "Leadership",
        timeline("Leader over time", "Leader over time. Exactly one controller is leader, except for a few seconds after a failure.", of("hactl_leader"), "{{instance}}",
                 texts={1: ("leader", GREEN), 0: ("follower", "#30363d")}, width=16, height=6, alerts=["HactlNoLeader"]),
        graph("Leader changes", "Leadership gains (became) and losses (lost). Frequent changes: etcd or the network is slow.",
              f'sum by (transition) (increase({of("hactl_leader_transitions_total")}[$__rate_interval]))', "{{transition}}", width=8, height=6,
              bars=True, alerts=["HactlLeaderFlapping"]),
        rows("Processes", "Version and uptime of each process. All versions should be the same, except during an upgrade.",
             {"Up": f'max by (instance, component, version) (time() - {of("hactl_process_start_time_seconds")} + on (instance) group_left'
                    f' (component, version) 0 * {of("hactl_build_info")})'},
             names={"instance": "Target", "component": "Program", "version": "Version"}, units={"Up": ("s", 0)}, height=7),
        rows("Certificates", "Time until each certificate expires. The alert fires 14 days before.",
             {"Left": f'min by (instance, certificate) ({of("hactl_certificate_not_after_timestamp_seconds")} - time())'},
             names={"instance": "Target", "certificate": "Certificate"}, units={"Left": ("s", 1)}, order=("Left", False), height=7,
             colors={"Left": (RED, (7 * 86400, YELLOW), (14 * 86400, GREEN))}, alerts=["HactlCertificateExpiry"]),
    )
    row(
        made, "Decisions",
        heat_panel("Reconcile duration", "Time to compute the next actions. Above 1 s, the machine lacks CPU time.",
                   f'sum by (le) (increase({of("hactl_reconcile_duration_seconds_bucket")}[$__rate_interval]))', width=8),
        graph("Reconcile duration: median and 99 %", "Median and 99th percentile of the time to compute the next actions.", {"median": decide[0.5], "99 %": decide[0.99]}, unit="s", width=8),
        graph("Queue and pending work", "Number of unprocessed events, and of events that the leader waits for.",
              {"queue: {{instance}}": f'max by (instance) ({of("hactl_reconcile_queue_length")})',
               "pending work": f'max({of("hactl_waiting")})'}, width=8, decimals=0),
        graph("Operations", "Completed operations by result. For the reason of a failure, run hactl get operations.",
              happened(of("hactl_operations_total"), "action, result"), "{{action}} {{result}}", bars=True,
              stacked=True),
        graph("Reconcile errors", "Commits that were overtaken (conflict), refused, or have an unknown outcome. A few conflicts are"
              " normal; unknown outcomes mean that etcd is slow.",
              f'sum by (error) (rate({of("hactl_reconcile_errors_total")}[$__rate_interval]))', "{{error}}", unit="ops"),
    )
    row(
        made, "etcd",
        timeline("etcd watch", "Whether the etcd watch of each controller works. Without it, the controller cannot be leader.", of("hactl_store_reachable"), "{{instance}}",
                 texts={1: ("yes", GREEN), 0: ("no", RED)}, width=12, height=6, alerts=["HactlStoreUnreachable"]),
        graph("Watch restarts", "etcd watches that failed and were restarted, such as after a restart of an etcd member or a network failure.",
              f'sum by (instance) (increase({of("hactl_store_watch_restarts_total")}[$__rate_interval]))', "{{instance}}", height=6, bars=True),
        graph("Commits by outcome", "Transactions of controllers. Unknown: the transaction may still be applied, and the controller waits for the outcome.",
              f'sum by (outcome) (rate({of("hactl_store_commits_total")}[$__rate_interval]))', "{{outcome}}", width=8, unit="ops", stacked=True),
        graph("Requests by kind", "Requests of controllers to etcd.",
              f'sum by (request) (rate({of("hactl_store_requests_total")}[$__rate_interval]))', "{{request}}", width=8, unit="ops"),
        graph("Revisions per second, and lag", "Number of etcd revisions per second, and lag of the views of controllers.",
              {"revisions per second": f'max(rate({of("hactl_store_revision")}[$__rate_interval]))',
               "lag: {{instance}}": f'max by (instance) ({of("hactl_store_revision_lag")})'}, width=8),
    )
    row(
        made, "API",
        graph("Requests by code", "Requests by status code. 4xx: errors of clients. 5xx: errors of the controller.",
              f'sum by (code) (rate({of("hactl_api_requests_total")}[$__rate_interval]))', "{{code}}", width=6, unit="reqps", stacked=True),
        graph("Requests by route", "The most frequent requests.",
              f'topk(8, sum by (method, route) (rate({of("hactl_api_requests_total")}[$__rate_interval])))', "{{method}} {{route}}", width=6,
              unit="reqps"),
        graph("API latency", "Time until the response starts, by method: median and 99th percentile.",
              {"{{method}} median": answer[0.5], "{{method}} 99 %": answer[0.99]}, width=6, unit="s"),
        graph("Open watches", "Number of open watches and event streams, by controller.", f'max by (instance) ({of("hactl_api_watches")})', "{{instance}}",
              width=6, decimals=0, minimum=0),
    )
    return made
