//! Metrics of every controller about itself.

use super::metrics;

metrics! { Controller:
    LEADER = Gauge "hactl_leader" []
        "1 while this controller leads.";
    LEADER_TRANSITIONS = Counter "hactl_leader_transitions_total" ["transition"]
        "How often this controller became leader, or lost that.";
    FAILOVERS = Counter "hactl_failovers_total" []
        "Services that this controller, leading, put on another node after theirs had failed.";
    FAILOVER_DURATION = Histogram "hactl_failover_duration_seconds" ["phase"]
        "How long the phases of failovers took that this controller, leading, saw: detect (last heartbeat to the close of the node's epoch) and fence (to the proof) once a node; place (to the assignment elsewhere) and start (until it ran) once a service.";
    FENCES = Counter "hactl_fences_total" ["method", "result"]
        "Attempts to prove a node dead that came to their end while this controller led: by the kind of proof (FENCING, section 5; Device: a fence device), Confirmed or Failed. What left cleanly is not counted.";
    OPERATIONS = Counter "hactl_operations_total" ["action", "driver", "result"]
        "Operations that came to their end while this controller led. The driver is empty for what is about no service.";
    NOTIFICATIONS = Counter "hactl_notifications_total" ["target", "result"]
        "Notifications that this controller, leading, delivered to a webhook or mail server (Sent), failed to and tries again (Failed), gave up for it (GivenUp), or dropped since too many waited (Dropped).";
    RECONCILE_DURATION = Histogram "hactl_reconcile_duration_seconds" []
        "How long the core took to decide what to do next.";
    PLAN_DURATION = Gauge "hactl_plan_duration_seconds" []
        "Time that the longest plan of the last ten minutes took.";
    PLAN_LIMIT = Gauge "hactl_plan_limit_seconds" []
        "Time within which a plan must be made: half the heartbeat lifetime or the leader lease, whichever is shorter.";
    RECONCILE_QUEUE = Gauge "hactl_reconcile_queue_length" []
        "Things that have happened and wait to be looked at.";
    RECONCILE_ERRORS = Counter "hactl_reconcile_errors_total" ["error"]
        "What the core asked for and did not get: a commit that was refused by the store (refused), was overtaken by another (conflict), or whose outcome is not known (unknown), a lease that was gone (lease_not_found).";
    UNREADABLE_KEYS = Gauge "hactl_unreadable_keys" []
        "Keys of the store whose value this version cannot read; what they are about is left alone.";
    STORE_COMMITS = Counter "hactl_store_commits_total" ["outcome"]
        "Transactions of the controller's core, by what became of them.";
    STORE_REQUESTS = Counter "hactl_store_requests_total" ["request"]
        "Requests of the controller's core to the store, by kind.";
    STORE_REACHABLE = Gauge "hactl_store_reachable" []
        "1 while the watch of the store works, as in /readyz.";
    STORE_WATCH_RESTARTS = Counter "hactl_store_watch_restarts_total" []
        "Watches of the store that broke off and were begun again.";
    STORE_REVISION = Gauge "hactl_store_revision" []
        "The newest revision of the store that this controller has heard of.";
    STORE_REVISION_LAG = Gauge "hactl_store_revision_lag" []
        "How many revisions the view that decisions are made from is behind the newest one heard of.";
    API_REQUESTS = Counter "hactl_api_requests_total" ["method", "route", "code"]
        "Requests to the API, by method, route and status code.";
    API_REQUEST_DURATION = Histogram "hactl_api_request_duration_seconds" ["method"]
        "How long requests to the API took until their answer began, by method.";
    API_WATCHES = Gauge "hactl_api_watches" []
        "Watches and event streams of the API that are open.";
}
