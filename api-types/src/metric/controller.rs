//! Metrics of every controller about itself.

use super::metrics;

metrics! { Controller:
    LEADER = Gauge "hactl_leader" []
        "1 if this controller is the leader, 0 otherwise.";
    LEADER_TRANSITIONS = Counter "hactl_leader_transitions_total" ["transition"]
        "Number of leadership gains (became) and losses (lost) of this controller.";
    FAILOVERS = Counter "hactl_failovers_total" []
        "Number of services that this controller, as leader, scheduled on another node after their node had failed.";
    FAILOVER_DURATION = Histogram "hactl_failover_duration_seconds" ["phase"]
        "Time of each failover phase seen by this controller as leader: detect (last heartbeat until the registration is revoked) and fence (until fencing is confirmed), once per node; place (until the service is scheduled) and start (until the service runs), once per service.";
    FENCES = Counter "hactl_fences_total" ["method", "result"]
        "Number of fencing attempts that ended while this controller was leader, by method (such as Silence for the watchdog, Device for a fence device) and result (Confirmed or Failed). Clean shutdowns are not counted.";
    OPERATIONS = Counter "hactl_operations_total" ["action", "driver", "result"]
        "Number of operations that ended while this controller was leader. The label driver is empty for operations without a service.";
    NOTIFICATIONS = Counter "hactl_notifications_total" ["target", "result"]
        "Number of notifications by this controller as leader, by result: Sent (delivered), Failed (to be retried), GivenUp (discarded after failures), Dropped (discarded because too many were pending).";
    RECONCILE_DURATION = Histogram "hactl_reconcile_duration_seconds" []
        "Time to compute the next actions.";
    PLAN_DURATION = Gauge "hactl_plan_duration_seconds" []
        "Time of the longest plan in the last 10 minutes.";
    PLAN_LIMIT = Gauge "hactl_plan_limit_seconds" []
        "Time limit for a plan: half the heartbeat lifetime or the leader lease, whichever is shorter.";
    RECONCILE_QUEUE = Gauge "hactl_reconcile_queue_length" []
        "Number of queued inputs of the controller that have not been processed.";
    RECONCILE_ERRORS = Counter "hactl_reconcile_errors_total" ["error"]
        "Number of commits and leases that failed: rejected by etcd (refused), overtaken by another commit (conflict), outcome unknown (unknown), lease missing (lease_not_found).";
    UNREADABLE_KEYS = Gauge "hactl_unreadable_keys" []
        "Number of etcd keys with a value that this version cannot read; their objects are not changed.";
    STORE_COMMITS = Counter "hactl_store_commits_total" ["outcome"]
        "Number of etcd transactions of this controller, by outcome, without those of its API.";
    STORE_REQUESTS = Counter "hactl_store_requests_total" ["request"]
        "Number of etcd requests of this controller, by kind, without those of its API.";
    STORE_REACHABLE = Gauge "hactl_store_reachable" []
        "1 if the etcd watch works, 0 otherwise; the same as in /readyz.";
    STORE_WATCH_RESTARTS = Counter "hactl_store_watch_restarts_total" []
        "Number of etcd watches that failed and were restarted.";
    STORE_REVISION = Gauge "hactl_store_revision" []
        "Latest etcd revision that this controller has seen.";
    STORE_REVISION_LAG = Gauge "hactl_store_revision_lag" []
        "Number of revisions by which the controller's view is behind the latest revision seen.";
    API_REQUESTS = Counter "hactl_api_requests_total" ["method", "route", "code"]
        "Number of API requests, by method, route and status code.";
    API_REQUEST_DURATION = Histogram "hactl_api_request_duration_seconds" ["method"]
        "Time from an API request to the start of its response, by method.";
    API_WATCHES = Gauge "hactl_api_watches" []
        "Number of open watches and event streams of the API.";
}
