"""Dashboard of controller internals: leadership, decisions, etcd and the API."""

from .parts import GREEN, NEUTRAL, RED, YELLOW, graph, happened, heat_panel, of, page, row, rows, stat_panel, timeline


def quantiles(metric, by=""):
    """Returns queries for the median and the 99th percentile over the time between two points."""
    inner = f'sum by ({by}le) (rate({of(metric + "_bucket")}[$__rate_interval]))'
    return {share: f"histogram_quantile({share}, {inner})" for share in (0.5, 0.99)}


def make():
    made = page("hactl-controller", "hactl / Controller internals", "Leadership, the loop that decides, the store as controllers see it, the API.")
    decide = quantiles("hactl_reconcile_duration_seconds")
    answer = quantiles("hactl_api_request_duration_seconds", "method, ")
    row(
        made, "Now",
        stat_panel("Leader", "The controller that leads. None: nothing is decided.", f'{of("hactl_leader")} == 1', "{{instance}}", name=True,
                   colors=(GREEN,), width=6, none="none", alerts=["HactlNoLeader"]),
        stat_panel("The leader waits for", "So many things: proofs, starts, operations. hactl status says what.", f'max({of("hactl_waiting")})',
                   colors=NEUTRAL, decimals=0),
        stat_panel("Cannot watch the store", "Controllers that do not see what changes. All of them: nothing is decided.",
                   f'count({of("hactl_store_reachable")} == 0) or vector(0)', alerts=["HactlStoreUnreachable"]),
        stat_panel("Keys not readable", "Keys whose value this version cannot read; what they are about is left alone. After a downgrade: upgrade.",
                   f'max({of("hactl_unreadable_keys")})'),
        stat_panel("Things waiting", "What has happened and was not looked at yet, of the busiest controller. More than a few for long: starved.",
                   f'max({of("hactl_reconcile_queue_length")})', colors=(GREEN, (10, YELLOW), (100, RED)), decimals=0),
        stat_panel("Behind the store", "Revisions that the view of decisions is behind the newest one heard of. It is 0 but for moments.",
                   f'max({of("hactl_store_revision_lag")})', colors=(GREEN, (20, YELLOW), (200, RED)), decimals=0),
        stat_panel("First certificate ends in", "Of all that controllers and agents use; below zero it has expired or cannot be read.",
                   f'min({of("hactl_certificate_not_after_timestamp_seconds")} - time())', unit="s", decimals=1,
                   colors=(RED, (7 * 86400, YELLOW), (14 * 86400, GREEN)), alerts=["HactlCertificateExpiry"]),
    )
    row(
        made, "Leadership",
        timeline("Who leads", "Exactly one at a time, but for seconds after a failure.", of("hactl_leader"), "{{instance}}",
                 texts={1: ("leads", GREEN), 0: ("follows", "#30363d")}, width=16, height=6, alerts=["HactlNoLeader"]),
        graph("Changes of leadership", "How often controllers became leader or lost that. Again and again: the store or the network is slow.",
              f'sum by (transition) (increase({of("hactl_leader_transitions_total")}[$__rate_interval]))', "{{transition}}", width=8, height=6,
              bars=True, alerts=["HactlLeaderFlapping"]),
        rows("Processes", "Versions should be the same, but for the time of an upgrade.",
             {"Up": f'max by (instance, component, version) (time() - {of("hactl_process_start_time_seconds")} + on (instance) group_left'
                    f' (component, version) 0 * {of("hactl_build_info")})'},
             names={"instance": "Target", "component": "Program", "version": "Version"}, units={"Up": ("s", 0)}, height=7),
        rows("Certificates", "What is left of each; the alert comes with 14 days.",
             {"Left": f'min by (instance, certificate) ({of("hactl_certificate_not_after_timestamp_seconds")} - time())'},
             names={"instance": "Target", "certificate": "Certificate"}, units={"Left": ("s", 1)}, order=("Left", False), height=7,
             colors={"Left": (RED, (7 * 86400, YELLOW), (14 * 86400, GREEN))}, alerts=["HactlCertificateExpiry"]),
    )
    row(
        made, "Decisions",
        heat_panel("How long decisions take", "The time of the core for each next step. Above a second: the machine is starved.",
                   f'sum by (le) (increase({of("hactl_reconcile_duration_seconds_bucket")}[$__rate_interval]))', width=8),
        graph("Decisions: median and 99 %", "The same, as times.", {"median": decide[0.5], "99 %": decide[0.99]}, unit="s", width=8),
        graph("Waiting", "What has happened and was not looked at yet, and what the leader waits for.",
              {"to be looked at: {{instance}}": f'max by (instance) ({of("hactl_reconcile_queue_length")})',
               "the leader waits for": f'max({of("hactl_waiting")})'}, width=8, decimals=0),
        graph("Operations", "That came to their end, by result. Failed: hactl get operations says why.",
              happened(of("hactl_operations_total"), "action, result"), "{{action}} {{result}}", bars=True,
              stacked=True),
        graph("Asked for and not got", "Commits that were overtaken (conflict), refused, or whose outcome is not known. A few conflicts are"
              " usual; unknown means that the store is slow.",
              f'sum by (error) (rate({of("hactl_reconcile_errors_total")}[$__rate_interval]))', "{{error}}", unit="ops"),
    )
    row(
        made, "Store",
        timeline("Watch works", "Per controller. Without it its view is old, and it does not lead.", of("hactl_store_reachable"), "{{instance}}",
                 texts={1: ("yes", GREEN), 0: ("no", RED)}, width=12, height=6, alerts=["HactlStoreUnreachable"]),
        graph("Watches begun again", "They broke off: a member of the store was restarted, or the network failed.",
              f'sum by (instance) (increase({of("hactl_store_watch_restarts_total")}[$__rate_interval]))', "{{instance}}", height=6, bars=True),
        graph("Commits by outcome", "Transactions of controllers. Unknown: it may yet be applied, and is waited for.",
              f'sum by (outcome) (rate({of("hactl_store_commits_total")}[$__rate_interval]))', "{{outcome}}", width=8, unit="ops", stacked=True),
        graph("Requests by kind", "What controllers ask of the store.",
              f'sum by (request) (rate({of("hactl_store_requests_total")}[$__rate_interval]))', "{{request}}", width=8, unit="ops"),
        graph("Revisions a second, and lag", "How fast the store changes, and how far views are behind.",
              {"revisions a second": f'max(rate({of("hactl_store_revision")}[$__rate_interval]))',
               "behind: {{instance}}": f'max by (instance) ({of("hactl_store_revision_lag")})'}, width=8),
    )
    row(
        made, "API",
        graph("Requests by code", "4xx: what clients did wrong; 5xx: what the controller could not do.",
              f'sum by (code) (rate({of("hactl_api_requests_total")}[$__rate_interval]))', "{{code}}", width=6, unit="reqps", stacked=True),
        graph("Requests by route", "Who asks for much shows here.",
              f'topk(8, sum by (method, route) (rate({of("hactl_api_requests_total")}[$__rate_interval])))', "{{method}} {{route}}", width=6,
              unit="reqps"),
        graph("Time to answer", "Until the answer begins, by method: median and 99 %.",
              {"{{method}} median": answer[0.5], "{{method}} 99 %": answer[0.99]}, width=6, unit="s"),
        graph("Watches open", "Watches and event streams, by controller.", f'max by (instance) ({of("hactl_api_watches")})', "{{instance}}",
              width=6, decimals=0, minimum=0),
    )
    return made
