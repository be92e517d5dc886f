"""Generates clusters, plans for them with Ganeti's hbal and with hactl, and compares the scores at the end.

    hbal_clusters.py HBAL OURS [--count N] [--nodes N] [--evaluations N] [--distance SHARE]

Ganeti's hbal computes the scores of both ends. Prints a table by kind of cluster, and as its last line the result.
Fails if an end of hactl is above that of hbal, or if hactl leaves an instance on an offline node that hbal moves. Also
fails if the median distance to the minimum is above this share of that of hbal (default 0.5).

No placement has a score below the minimum: instances cannot be divided among nodes, and nodes reserve memory for the
failure of a peer. `minimum` computes a bound that is certain, but not always reached.
"""

import argparse
import math
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

KINDS = ["drbd", "shared", "mixed", "uneven"]
POLICY = "|128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|diskless,file,sharedfile,plain,blockdev,drbd,rbd,ext|4.0|32.0"
OWN_MEMORY, DISK, CPUS, SPINDLES = 512, 400000, 16, 4
# Rounding of the scores that hbal prints.
ROUNDING = 1e-6

Placement = tuple[int, int | None]


@dataclass
class Cluster:
    """A cluster without placements: memory of nodes, offline nodes, and instances with memory and disk."""

    kind: str
    memory: list[int]
    offline: set[int]
    instances: list[tuple[int, int]]

    def text(self, placements: list[Placement]) -> str:
        """Returns the cluster with these placements in the text format."""
        free, disk = [size - OWN_MEMORY for size in self.memory], [DISK] * len(self.memory)
        lines = []
        for number, ((size, space), (primary, secondary)) in enumerate(zip(self.instances, placements)):
            free[primary] -= size
            # Instances on shared storage do not use the disks of nodes.
            for node in () if secondary is None else (primary, secondary):
                disk[node] -= space
            second, template = ("", "ext") if secondary is None else (f"node-{secondary:02d}", "drbd")
            lines.append(f"i{number}|{size}|{space}|1|running|Y|node-{primary:02d}|{second}|{template}||1")
        nodes = [
            f"node-{node:02d}|{size}|{OWN_MEMORY}|{free[node]}|{DISK}|{disk[node]}|{CPUS}|"
            f"{'Y' if node in self.offline else 'N'}|fake-uuid-01|{SPINDLES}"
            for node, size in enumerate(self.memory)
        ]
        policies = [POLICY, f"group-01{POLICY}"]
        return "\n".join(["group-01|fake-uuid-01|preferred||", "", *nodes, "", *lines, "", *policies, ""])

    def on_offline(self, placements: list[Placement]) -> set[int]:
        """Returns the instances on offline nodes."""
        return {number for number, nodes in enumerate(placements) if self.offline & set(nodes)}

    def minimum(self, placements: list[Placement]) -> float:
        """Returns a score that no placement without offline nodes can be below."""
        nodes = sorted((size for node, size in enumerate(self.memory) if node not in self.offline), reverse=True)
        count, root = len(nodes), math.sqrt(len(nodes) - 1)
        replicated = sorted(
            (size for (size, _), (_, second) in zip(self.instances, placements) if second is not None), reverse=True
        )

        def uneven(number: int) -> float:
            share = number % count / count
            return math.sqrt(share * (1 - share))

        # Loads of cpu, memory and network, and virtual cpus, are those of primaries. Disk load also counts copies.
        primaries, copies = uneven(len(self.instances)), uneven(len(self.instances) + len(replicated))
        best = math.inf
        # A node with `most` secondaries deviates in its number of primaries or of copies.
        for most in range(math.ceil(len(replicated) / count), max(1, len(replicated)) + 1):
            reserved = sum(0.25 * size / memory for size, memory in zip(replicated[:: max(1, most)], nodes))
            deviation = max(copies, (most - len(replicated) / count) / root - primaries)
            best = min(best, primaries * (3 + 1 / CPUS) + deviation + reserved)
        return best


def generated(seed: int, largest: int) -> tuple[Cluster, list[Placement]]:
    """Returns a cluster of 8 to `largest` nodes, and its placements. Instances use 50 to 85 % of the memory of each node."""
    random_ = random.Random(seed)
    kind, count, load = KINDS[seed % 4], random_.randint(8, largest), random_.uniform(0.5, 0.85)
    memory = [random_.choice([8000, 16000, 32000]) if kind == "uneven" else 16000 for _ in range(count)]
    free, instances, placements, failures = [size * load for size in memory], [], [], 0
    while failures < 60:
        size, space, primary = random_.choice([512, 1024, 2048, 4096]), random_.choice([5000, 10000, 20000]), random_.randrange(count)
        replicated = kind in ("drbd", "uneven") or (kind == "mixed" and random_.random() < 0.6)
        secondary = random_.choice([node for node in range(count) if node != primary])
        if free[primary] < size:
            failures += 1
            continue
        free[primary] -= size
        instances.append((size, space))
        placements.append((primary, secondary if replicated else None))
    offline = seed % 3
    return Cluster(f"{kind}, {offline} offline", memory, set(random_.sample(range(count), offline)), instances), placements


def run(program: str, *arguments: str) -> str:
    """Runs a program, and returns its standard output."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program} {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def initial_score(output: str) -> float:
    """Returns the score at the beginning from the output of hbal."""
    return float(re.findall(r"(?:Initial score:|\(initial score) *([\d.e-]+)", output)[0])


def end(program: str, options: list[str], hbal: str, cluster: Cluster, path: Path) -> tuple[float, list[Placement]]:
    """Plans with a program. Returns the score at the end by hbal, and the placements."""
    saved = path.with_suffix(".saved")
    run(program, "-t", str(path), "-S", str(saved), *options)
    sections = Path(f"{saved}.balanced").read_text().split("\n\n")
    fields = [line.split("|") for line in sections[2].splitlines()]
    # hbal sorts the instances by name.
    places = {field[0]: (int(field[6][5:]), int(field[7][5:]) if field[7] else None) for field in fields}
    placements = [places[f"i{number}"] for number in range(len(cluster.instances))]
    scored = path.with_suffix(".end")
    scored.write_text(cluster.text(placements))
    return initial_score(run(hbal, "-t", str(scored), "-l", "0")), placements


@dataclass
class Row:
    """The results on one cluster."""

    theirs: float
    ours: float
    minimum: float
    left: int

    def distance(self) -> float:
        """Returns the distance to the minimum relative to that of hbal."""
        return (self.ours - self.minimum) / max(self.theirs - self.minimum, ROUNDING)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("hbal")
    parser.add_argument("ours")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--evaluations", type=int)
    parser.add_argument("--distance", type=float, default=0.5)
    given = parser.parse_args()
    options = [] if given.evaluations is None else [f"--evaluations={given.evaluations}"]
    table: dict[str, list[Row]] = {}
    failures = []
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(given.count):
            cluster, placements = generated(seed, given.nodes)
            path = Path(directory) / f"{seed}.data"
            path.write_text(cluster.text(placements))
            theirs, their_placements = end(given.hbal, [], given.hbal, cluster, path)
            ours, our_placements = end(given.ours, options, given.hbal, cluster, path)
            our_offline, their_offline = cluster.on_offline(our_placements), cluster.on_offline(their_placements)
            row = Row(theirs, ours, cluster.minimum(placements), len(our_offline - their_offline))
            table.setdefault(cluster.kind, []).append(row)
            if ours > theirs + ROUNDING:
                failures.append(f"seed {seed} ({cluster.kind}): score {ours} of hactl is above {theirs} of hbal")
            if row.left > 0:
                failures.append(f"seed {seed} ({cluster.kind}): {row.left} instances left on offline nodes, moved by hbal")
            if ours < row.minimum - ROUNDING:
                failures.append(f"seed {seed} ({cluster.kind}): score {ours} is below the minimum {row.minimum}")
    table["all"] = [row for rows in table.values() for row in rows]
    print("| cluster | count | above hbal | left | hactl ÷ hbal | highest | minimum ÷ hbal | distance to minimum |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, rows in sorted(table.items(), key=lambda item: (item[0] == "all", item[0])):
        ratios, distance = [row.ours / row.theirs for row in rows], median(row.distance() for row in rows)
        print(
            f"| {kind} | {len(rows)} | {sum(row.ours > row.theirs + ROUNDING for row in rows)} | {sum(row.left for row in rows)} "
            f"| {median(ratios):.3f} | {max(ratios):.3f} | {median(row.minimum / row.theirs for row in rows):.3f} | {distance:.3f} |"
        )
    if (middle := median(row.distance() for row in table["all"])) > given.distance:
        failures.append(f"median distance to the minimum {middle:.3f} is above {given.distance} of that of hbal")
    for failure in failures:
        print(failure)
    failed = min(len(failures), given.count)
    print(f"test result: {'ok' if failed == 0 else 'FAILED'}. {given.count - failed} passed; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
