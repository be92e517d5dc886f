//! Metrics of the leader about the objects of the cluster.

use super::metrics;

metrics! { Leader:
    WAITING = Gauge "hactl_waiting" []
        "What the leader waits for, counted; hactl status says what.";
    NOTIFICATIONS_WAITING = Gauge "hactl_notifications_waiting" []
        "Notifications that some target of Cluster.spec.notifications does not have yet.";
    CLUSTER_ARMING = Gauge "hactl_cluster_arming" ["state"]
        "1 for how far arming or disarming the cluster is, 0 for the other states.";
    FAILURE_TOLERANCE = Gauge "hactl_failure_tolerance_nodes" []
        "So many nodes may fail at once with a place for every service, as far as is checked: 1 or 0; nothing while it is not known.";
    RESERVATION_STATE = Gauge "hactl_reservation_state" ["state"]
        "The reservation check (N+1): 1 for what it found, Holds, Failed or Undecided, 0 for the others; nothing before the first check has ended.";
    SLACK_CPU = Gauge "hactl_slack_cpu_cores" []
        "Cpus that would be left for services after the failure of whichever node leaves the fewest; below 0, not all would find a place. Nothing where no node says what it has.";
    SLACK_MEMORY = Gauge "hactl_slack_memory_bytes" []
        "The same for memory.";
    SLACK_DISK = Gauge "hactl_slack_disk_bytes" []
        "The same for disk.";
    BALANCE_SCORE = Gauge "hactl_balance_score_ratio" []
        "How uneven the load of nodes is: standard deviation over mean, what scheduler.autoRebalance.threshold is compared with; 0 is even.";
    NODE_STATE = Gauge "hactl_node_state" ["node", "state"]
        "1 for the state that a node is in, 0 for the others.";
    NODE_FENCE_STATE = Gauge "hactl_node_fence_state" ["node", "state"]
        "1 for the state of a node's epoch (Open, Fencing, Fenced, Closed), 0 for the others.";
    NODE_MAINTENANCE = Gauge "hactl_node_maintenance" ["node"]
        "1 for a node that is wanted in maintenance.";
    NODE_HEARTBEAT_AGE = Gauge "hactl_node_heartbeat_age_seconds" ["node"]
        "How long ago the leader last saw the node's heartbeat.";
    NODE_WATCHDOG_ARMED = Gauge "hactl_node_watchdog_armed" ["node"]
        "1 while the node's watchdog is committed as armed; it is armed only while something is active there.";
    NODE_WATCHDOG_USABLE = Gauge "hactl_node_watchdog_usable" ["node"]
        "1 while exclusive services may be started there, as far as its watchdog and fence devices are concerned (condition Watchdog).";
    NODE_AGENT_AWAY = Gauge "hactl_node_agent_away" ["node"]
        "1 while the node's agent is away for a restart and its services are frozen.";
    NODE_CAPACITY_CPU = Gauge "hactl_node_capacity_cpu_cores" ["node"]
        "Cpus that a node has, as declared or reported.";
    NODE_CAPACITY_MEMORY = Gauge "hactl_node_capacity_memory_bytes" ["node"]
        "Memory that a node has.";
    NODE_CAPACITY_DISK = Gauge "hactl_node_capacity_disk_bytes" ["node"]
        "Disk that a node has.";
    NODE_ALLOCATED_CPU = Gauge "hactl_node_allocated_cpu_cores" ["node"]
        "Cpus that the services of a node ask for.";
    NODE_ALLOCATED_MEMORY = Gauge "hactl_node_allocated_memory_bytes" ["node"]
        "Memory that they ask for.";
    NODE_ALLOCATED_DISK = Gauge "hactl_node_allocated_disk_bytes" ["node"]
        "Disk that they ask for.";
    NODE_SERVICES = Gauge "hactl_node_services" ["node"]
        "Services assigned to a node.";
    RESOURCE_INFO = Gauge "hactl_resource_info" ["resource", "driver", "group"]
        "What a resource is; always 1.";
    RESOURCE_NODE = Gauge "hactl_resource_node" ["resource", "node"]
        "1 for the node where a resource's service is, or is to be.";
    RESOURCE_STATE = Gauge "hactl_resource_state" ["resource", "state"]
        "1 for the state that a resource is in; the others are left out.";
    RESOURCE_DESIRED_STATE = Gauge "hactl_resource_desired_state" ["resource", "state"]
        "1 for the state that is wanted of a resource; the others are left out.";
    RESOURCE_RUNNING = Gauge "hactl_resource_running" ["resource"]
        "1 while the service runs, as its node's agent reports.";
    RESOURCE_LAST_TRANSITION = Gauge "hactl_resource_last_transition_timestamp_seconds" ["resource"]
        "When the resource last became ready, or ceased to be, in seconds since 1970.";
    RESOURCE_RESTARTS = Counter "hactl_resource_restarts_total" ["resource"]
        "Restarts in place after crashes; begins again at 0 with each start by the controller.";
    RESOURCE_RELOCATIONS = Counter "hactl_resource_relocations_total" ["resource", "reason"]
        "Moves to another node that this controller, leading, has begun, by what for.";
    RESOURCE_AVAILABILITY = Gauge "hactl_resource_availability_ratio" ["resource", "window"]
        "The share of the time in which a resource was wanted in which it ran, over the last 30 days (30d) or year (365d) of UTC with today, as far as it is recorded (status.availability); nothing when it was not wanted.";
    RESOURCE_DOWNTIME = Gauge "hactl_resource_downtime_seconds" ["resource", "window"]
        "How long in those days a resource was wanted and did not run: what is to be taken from the time that an objective leaves.";
    RESOURCE_UNPLACED = Gauge "hactl_resource_unplaced" ["resource", "reason"]
        "1 for a resource that is wanted started and has no place to run, by why.";
}
