"""Requests to hail in JSON: all types, on generated clusters."""

import json
import random
from typing import Any

TEMPLATES = ["drbd", "drbd", "drbd", "ext", "plain", "sharedfile"]
Request = dict[str, Any]


def ipolicy(exclusive: bool) -> dict[str, Any]:
    """Returns a policy with one range of sizes, or several for nodes with exclusive storage."""

    def size(memory: int, disk: int, cpus: int, disks: int, spindles: int) -> dict[str, int]:
        return {
            "memory-size": memory, "cpu-count": cpus, "disk-size": disk,
            "disk-count": disks, "nic-count": 1, "spindle-use": spindles,
        }  # fmt: skip

    ranges = [{"min": size(128, 512, 1, 1, 1), "max": size(16384, 1048576, 8, 16, 12)}]
    if exclusive:
        ranges = [{"min": size(6000, 40000, 2, 1, 2), "max": size(16384, 1048576, 8, 16, 12)}] + ranges
    return {
        "std": size(128, 1024, 1, 1, 1), "minmax": ranges, "vcpu-ratio": 4.0, "spindle-ratio": 32.0,
        "disk-templates": ["sharedfile", "diskless", "plain", "drbd", "file", "ext", "rbd", "blockdev"],
    }  # fmt: skip


def instance(random_: random.Random, template: str) -> dict[str, Any]:
    """Returns an instance without nodes."""
    sizes = [random_.choice([1024, 2048, 5120]) for _ in range(random_.choice([1, 1, 1, 2]))]
    return {
        "disks": [{"size": size, "mode": "rw", "spindles": 1} for size in sizes],
        "disk_space_total": sum(sizes) + (128 if template == "drbd" else 0),
        "memory": random_.choice([512, 1024, 2048, 4096]), "vcpus": random_.choice([1, 1, 2]),
        "tags": random_.choice([[], [], [], ["service:web"], ["service:db", "other"]]),
        "disk_template": template, "spindle_use": 1, "os": "debian",
        "admin_state": random_.choice(["up", "up", "up", "down", "offline"]),
        "nics": [{"mac": "aa:00:00:00:00:01", "ip": None, "network": random_.choice([None, None, "net1"])}],
    }  # fmt: skip


def new_instance(random_: random.Random, name: str, template: str) -> dict[str, Any]:
    """Returns the fields of a request for a new instance."""
    made = instance(random_, template)
    return {**made, "name": name, "required_nodes": 2 if template == "drbd" else 1}


def cluster(seed: int) -> Request:
    """Returns a message with a cluster of one to three groups, and without a request."""
    random_ = random.Random(seed)
    exclusive, load = seed % 7 == 6, random_.uniform(0.05, 0.7)
    groups: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    for number in range(random_.choice([1, 2, 2, 3])):
        groups[f"uuid-{number}"] = {
            "name": f"group{number}", "tags": [], "ipolicy": ipolicy(exclusive),
            "networks": random_.choice([["net1"], ["net1", "net2"], []]),
            "alloc_policy": random_.choice(["preferred", "preferred", "last_resort", "unallocable"] if number else ["preferred"]),
        }  # fmt: skip
        for member in range(random_.randint(2, 5)):
            memory = random_.choice([8192, 16384])
            nodes[f"node{number}{member}"] = {
                "group": f"uuid-{number}", "offline": random_.random() < 0.08, "drained": random_.random() < 0.05,
                "vm_capable": True, "tags": random_.choice([[], ["rack:a"], ["rack:b"]]),
                "ndparams": {"exclusive_storage": exclusive, "spindle_count": 4},
                "total_memory": memory, "reserved_memory": 512, "free_memory": memory - 512,
                "total_disk": 200000, "free_disk": 200000, "total_cpus": 8, "reserved_cpus": 1,
                "total_spindles": 12, "free_spindles": 12,
            }  # fmt: skip
    instances: dict[str, Any] = {}
    failures = 0
    while failures < 12:
        template = random_.choice(TEMPLATES)
        made = instance(random_, template)
        primary = random_.choice(list(nodes))
        peers = [name for name, node in nodes.items() if name != primary and node["group"] == nodes[primary]["group"]]
        hosts = [primary] + ([random_.choice(peers)] if template == "drbd" else [])
        used = nodes[primary]["total_memory"] - 512 - nodes[primary]["free_memory"]
        runs = made["admin_state"] == "up"
        if used + made["memory"] * runs > (nodes[primary]["total_memory"] - 512) * load:
            failures += 1
            continue
        if any(exclusive and nodes[host]["free_spindles"] < len(made["disks"]) for host in hosts):
            failures += 1
            continue
        nodes[primary]["free_memory"] -= made["memory"] * runs
        for host in hosts if template in ("drbd", "plain") else []:
            nodes[host]["free_disk"] -= made["disk_space_total"]
            nodes[host]["free_spindles"] -= len(made["disks"]) if exclusive else 0
        instances[f"instance{len(instances)}"] = {**made, "nodes": hosts}
    tags = random_.choice([[], ["htools:iextags:service"], ["htools:iextags:service", "htools:nlocation:rack"]])
    return {
        "cluster_name": "cluster", "cluster_tags": tags, "enabled_hypervisors": [random_.choice(["xen-pvm", "kvm"])],
        "nodegroups": groups, "nodes": nodes, "instances": instances, "ipolicy": ipolicy(exclusive), "version": 2,
    }  # fmt: skip


def requests(seed: int, message: Request) -> list[tuple[str, Request]]:
    """Returns requests of all types for a cluster, each with its type and the details that matter."""
    random_ = random.Random(seed + 1000)
    made = []

    def add(kind: str, label: str, **fields: Any) -> None:
        made.append((label, {**message, "request": {"type": kind, **fields}}))

    names, groups = list(message["instances"]), list(message["nodegroups"].values())
    for template in ("drbd", "ext", "plain"):
        add("allocate", f"allocate {template}", **new_instance(random_, "new", template))
    fields = new_instance(random_, "new", "drbd")
    add("allocate", "allocate in group", **fields, group_name=random_.choice(groups)["name"])
    add("allocate", "allocate on nodes", **fields, **{"restrict-to-nodes": random_.sample(list(message["nodes"]), 2)})
    each = [new_instance(random_, f"new{number}", random_.choice(["drbd", "ext"])) for number in range(4)]
    add("multi-allocate", "multi-allocate", instances=each)
    add("multi-allocate", "multi-allocate in group", instances=each, group_name=random_.choice(groups)["name"])
    for name in random_.sample(names, min(len(names), 2)):
        hosts = message["instances"][name]["nodes"]
        add("relocate", "relocate", name=name, required_nodes=1, relocate_from=[hosts[-1]])
    chosen = random_.choice(list(message["nodes"]))
    on_node = [name for name in names if chosen in message["instances"][name]["nodes"]]
    primaries = [name for name in on_node if message["instances"][name]["nodes"][0] == chosen]
    secondaries = [name for name in on_node if name not in primaries]
    add("node-evacuate", "evacuate primary", instances=primaries, evac_mode="primary-only")
    add("node-evacuate", "evacuate secondary", instances=secondaries, evac_mode="secondary-only")
    add("node-evacuate", "evacuate all", instances=on_node[:6], evac_mode="all")
    add("change-group", "change-group", instances=on_node[:3], target_groups=[])
    add("change-group", "change-group to group", instances=on_node[:3], target_groups=[groups[-1]["name"]])
    for name in [name for name in names if message["instances"][name]["disk_template"] == "plain"][:1]:
        add("allocate-secondary", "allocate-secondary", name=name)
    return made


def text(request: Request) -> str:
    """Returns a request as text."""
    return json.dumps(request, indent=1)
