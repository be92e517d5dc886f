//! Metrics of the leader about the objects of the cluster.

use super::metrics;

metrics! { Leader:
    WAITING = Gauge "hactl_waiting" []
        "Number of waiting actions of the leader; hactl status lists them.";
    NOTIFICATIONS_WAITING = Gauge "hactl_notifications_waiting" []
        "Number of notifications that have not been delivered to every target of Cluster.spec.notifications.";
    BACKUP_TIMESTAMP = Gauge "hactl_backup_timestamp_seconds" []
        "Time at which the last verified backup of etcd began, in seconds since 1970; absent if hactl backup never ran.";
    BACKUP_SIZE = Gauge "hactl_backup_size_bytes" []
        "Size of the last verified backup of etcd; absent if hactl backup never ran.";
    CLUSTER_ARMING = Gauge "hactl_cluster_arming" ["state"]
        "1 for the arming state of the cluster, 0 for the others.";
    FAILURE_TOLERANCE = Gauge "hactl_failure_tolerance_nodes" []
        "Number of simultaneous node failures that the cluster can absorb (0 or 1); absent if the check has no result.";
    RESERVATION_STATE = Gauge "hactl_reservation_state" ["state"]
        "1 for the result of the failover capacity (N+1) check, 0 for the others: Holds, Failed or Undecided; absent if the check has no result.";
    HEADROOM_CPU = Gauge "hactl_slack_cpu_cores" []
        "Headroom in CPUs for services after the worst node failure; below 0, some services cannot be scheduled. Absent if no node reports its capacity.";
    HEADROOM_MEMORY = Gauge "hactl_slack_memory_bytes" []
        "Headroom in memory for services after the worst node failure; below 0, some services cannot be scheduled.";
    HEADROOM_DISK = Gauge "hactl_slack_disk_bytes" []
        "Headroom in disk space for services after the worst node failure; below 0, some services cannot be scheduled.";
    BALANCE_SCORE = Gauge "hactl_balance_score_ratio" []
        "Load imbalance of the nodes: standard deviation over mean, compared with scheduler.autoRebalance.threshold; 0 if balanced.";
    REBALANCE_STATE = Gauge "hactl_rebalance_state" ["cause", "state"]
        "1 for the state of automatic rebalancing, 0 for the others: Balanced, Waiting (another action is in progress), Holding (the imbalance has not lasted for holdSeconds), Moving, or NoMove (no eligible move reduces the imbalance enough). By cause: Load (scheduler.autoRebalance) or Services (reservation.overUtilization); absent if disabled.";
    NODE_STATE = Gauge "hactl_node_state" ["node", "state"]
        "1 for the state of a node, 0 for the others.";
    NODE_FENCE_STATE = Gauge "hactl_node_fence_state" ["node", "state"]
        "1 for the state of a node's registration, 0 for the others: Open, Fencing, Fenced, Closed.";
    NODE_MAINTENANCE = Gauge "hactl_node_maintenance" ["node"]
        "1 if maintenance of a node is requested, 0 otherwise.";
    NODE_HEARTBEAT_AGE = Gauge "hactl_node_heartbeat_age_seconds" ["node"]
        "Time since the leader last received a heartbeat from a node.";
    NODE_WATCHDOG_ARMED = Gauge "hactl_node_watchdog_armed" ["node"]
        "1 if the watchdog of a node is recorded in etcd as armed, 0 otherwise; armed only while an active service requires it.";
    NODE_WATCHDOG_USABLE = Gauge "hactl_node_watchdog_usable" ["node"]
        "1 if the watchdog of a node permits exclusive services (condition Fenceable), 0 otherwise.";
    NODE_FENCE_DEVICES_HEALTHY = Gauge "hactl_node_fence_devices_healthy" ["node"]
        "1 if every fence device of a node responds (condition FenceDevicesHealthy), 0 otherwise; only for nodes with fence devices.";
    NODE_AGENT_AWAY = Gauge "hactl_node_agent_away" ["node"]
        "1 if the agent of a node is stopped for a restart and its services are unmonitored (Freeze), 0 otherwise.";
    NODE_CAPACITY_CPU = Gauge "hactl_node_capacity_cpu_cores" ["node"]
        "Number of CPUs of a node, as declared or reported.";
    NODE_CAPACITY_MEMORY = Gauge "hactl_node_capacity_memory_bytes" ["node"]
        "Memory of a node, as declared or reported.";
    NODE_CAPACITY_DISK = Gauge "hactl_node_capacity_disk_bytes" ["node"]
        "Disk space of a node, as declared or reported.";
    NODE_ALLOCATED_CPU = Gauge "hactl_node_allocated_cpu_cores" ["node"]
        "Number of CPUs that the services of a node request.";
    NODE_ALLOCATED_MEMORY = Gauge "hactl_node_allocated_memory_bytes" ["node"]
        "Memory that the services of a node request.";
    NODE_ALLOCATED_DISK = Gauge "hactl_node_allocated_disk_bytes" ["node"]
        "Disk space that the services of a node request.";
    NODE_SERVICES = Gauge "hactl_node_services" ["node"]
        "Number of services assigned to a node.";
    RESOURCE_INFO = Gauge "hactl_resource_info" ["resource", "driver", "group"]
        "Driver and group of a resource; always 1.";
    RESOURCE_NODE = Gauge "hactl_resource_node" ["resource", "node"]
        "1 for the node on which a resource runs or is being started.";
    RESOURCE_STATE = Gauge "hactl_resource_state" ["resource", "state"]
        "1 for the current state of a resource; series of other states are absent.";
    RESOURCE_DESIRED_STATE = Gauge "hactl_resource_desired_state" ["resource", "state"]
        "1 for the requested state of a resource; series of other states are absent.";
    RESOURCE_RUNNING = Gauge "hactl_resource_running" ["resource"]
        "1 if the service of a resource runs, as reported by the agent, 0 otherwise.";
    RESOURCE_LAST_TRANSITION = Gauge "hactl_resource_last_transition_timestamp_seconds" ["resource"]
        "Time when a resource last became ready or not ready, in seconds since 1970.";
    RESOURCE_RESTARTS = Counter "hactl_resource_restarts_total" ["resource"]
        "Number of restarts on the same node after crashes; reset to 0 whenever the controller starts the service.";
    RESOURCE_RELOCATIONS = Counter "hactl_resource_relocations_total" ["resource", "reason"]
        "Number of moves to another node started by this controller as leader, by reason.";
    RESOURCE_AVAILABILITY = Gauge "hactl_resource_availability_ratio" ["resource", "window"]
        "Share of the requested time in which a resource ran, over the last 30 (30d) or 365 (365d) UTC days including today, as far as recorded (status.availability); absent if the resource was not requested.";
    RESOURCE_DOWNTIME = Gauge "hactl_resource_downtime_seconds" ["resource", "window"]
        "Time in the last 30 (30d) or 365 (365d) UTC days in which a resource was requested and did not run; subtract it from the downtime budget.";
    RESOURCE_UNPLACED = Gauge "hactl_resource_unplaced" ["resource", "reason"]
        "1 if a resource is requested Started and no node is eligible, by reason.";
}
