"""Compares hactl under the names hail, hcheck and hspace with Ganeti's programs: exit status, and both streams.

    htools.py PROGRAMS OURS DIRECTORY [hail|hcheck|hspace ...]

PROGRAMS has Ganeti's programs, OURS has hactl under their names, and DIRECTORY has the data files of Ganeti's tests.
Runs both programs on every data file with several sets of options, and on generated clusters. Prints a line for each
difference, a table, and as its last line the result. A simulated rebalance of hcheck may end below that of Ganeti. hail
may choose other nodes with the same score.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

import hail_requests
from comparison import FAILS_EARLIER, REJECTED, report, run
from hbal_clusters import generated

# As in FAILS_EARLIER; hbal plans the same for this file.
FAILS_EARLIER_TOO = ["missing-resources.data"]
# Ganeti's programs end with an internal error.
CRASHES = ["hbal-split-insts.data"]
HCHECK = [
    ["--no-simulation"],
    ["--no-simulation", "--machine-readable"],
    ["--no-simulation", "--no-capacity-checks"],
    ["--no-simulation", "--exclusion-tags", "test"],
    ["--machine-readable"],
    [],
]
HSPACE = [
    [],
    ["--machine-readable", "--no-capacity-checks", "-l", "40"],
    ["--independent-groups", "-l", "10", "-v", "-v", "-v"],
    ["--machine-readable", "--disk-template", "drbd", "--standard-alloc", "10g,2g,2", "--tiered-alloc", "80g,6g,4", "-l", "20"],
    ["--machine-readable", "--disk-template", "plain", "--tiered-alloc", "80G,6G,4", "--min-disk", "0.1", "-l", "20"],
    ["--accept-existing-errors", "--disk-template", "ext", "--standard-alloc", "10g,3g,2", "--max-cpu", "2", "-l", "20"],
]
# hspace refuses files with forthcoming instances in some modes, and counts them differently from hbal.
FORTHCOMING = ["hbal-forth.data"]
# Ganeti's hspace takes ten seconds for this file, in each mode. hbal-soft-errors2.data is similar and smaller.
SLOW = ["hbal-soft-errors.data"]
SIMULATIONS = [
    ["p,4,8T,64g,16"],
    ["p,3,100g,8g,4,7"],
    ["p,3,200g,12g,4", "u,2,1t,64g,16", "a,3,300G,16G,8,2"],
    ["p,1,8T,64g,16"],
    ["p,0,1g,1g,1"],
    ["p,4"],
    ["p,4,8T,64g,x"],
]
# Generated clusters. Ganeti's hspace takes seconds for one of them.
GENERATED = 12
GENERATED_FOR_HSPACE = 4
# Options that both programs refuse.
HSPACE_REFUSED = [
    ["--disk-template", "foo"],
    ["--standard-alloc", "1,2"],
    ["--standard-alloc", "1g,2x,2"],
    ["--spindle-use", "-1"],
    ["-O", "nosuch"],
    ["--machine-readable=maybe"],
    ["argument"],
]
# Options of hail for Ganeti's requests and generated ones.
HAIL = [[], ["--no-capacity-checks"], ["--ignore-soft-errors"], ["-v"], ["-p"], ["--ignore-dynu"]]
# Options with Ganeti's requests for new instances only, because the positions in other requests are those of their cluster.
HAIL_SOURCES = [
    ["-t", "partly-used.data"],
    ["-t", "shared-n1-restriction.data"],
    ["-t", "partly-used.data", "--restrict-allocation-to", "node-01,node-02,node-03"],
    ["--simulate=p,4,8T,64g,16"],
]
HAIL_REFUSED = [["/dev/null"], ["nosuch.json"], [], ["-q"], ["--mond=maybe"], ["--static-kvm-node-memory=x"]]
# Invalid requests.
HAIL_TEXTS = ["[]", "{}", '{"request": 0}', '{"request": {}}', '{"request": {}, "nodegroups": []}', '{"a"']


def close(one: str, other: str) -> bool:
    """Returns True if two lines are equal, except for the last digit of a score."""
    number = re.compile(r"\d+\.\d{8}")
    # Haskell's form of groups, of which hactl prints the names.
    one, other = (re.sub(r"(?<=all groups: )\[.*?\](?=\"\])", "", text) for text in (one, other))
    if number.sub("", one) != number.sub("", other):
        return False
    return all(abs(float(a) - float(b)) <= 1.1e-8 for a, b in zip(number.findall(one), number.findall(other)))


def lower_rebalance(theirs: list[str], ours: list[str]) -> bool:
    """Returns True if the outputs differ only in amounts after the rebalance, and no score there is higher."""
    if len(theirs) != len(ours):
        return False
    rebalanced = False
    for one, other in zip(theirs, ours):
        rebalanced |= "after rebalancing" in one or one.startswith("HCHECK_FINAL")
        if close(one, other):
            continue
        names = [re.sub(r"[\d.]+$|True$|False$", "", line) for line in (one, other)]
        values = [re.sub(r"^.*[:=] ?", "", line).replace("False", "0").replace("True", "1") for line in (one, other)]
        if not rebalanced or names[0] != names[1]:
            return False
        if "score" in names[0].lower() and float(values[1]) > float(values[0]) + 1e-6:
            return False
    return True


def other_nodes(theirs: list[str], ours: list[str]) -> bool:
    """Returns True if two answers of hail differ only in nodes that it chooses among equal ones."""

    def masked(line: str) -> str:
        answer = json.loads(line)
        text = json.dumps([answer["info"], answer["result"]])
        return re.sub(r"node[-\w]*(?=[\"/ ])", "NODE", text)

    success = [line for line in (*theirs, *ours) if line.startswith('{"success":true')]
    return len(theirs) == len(ours) == 1 and len(success) == 2 and close(masked(theirs[0]), masked(ours[0]))


def compare(name: str, programs: Path, ours: Path, arguments: list[str]) -> tuple[str, str]:
    """Returns the outcome, and a description of the difference."""
    their_status, *their_streams = run(programs / name, arguments)
    # More evaluations than by default, which are those of Ganeti's single steps, so that no plan ends above Ganeti's.
    searching = ["--evaluations=25000"] if name == "hcheck" else []
    status, *streams = run(ours / name, [*arguments, *searching])
    their_streams, streams = ([text.splitlines() for text in texts] for texts in (their_streams, streams))
    differs = [f"status {status}, not {their_status}"] if status != their_status else []
    for stream, theirs_, ours_ in zip(("stdout", "stderr"), their_streams, streams):
        if stream == "stderr" and sorted(theirs_) == sorted(ours_):
            # The order of the nodes in warnings.
            continue
        if len(theirs_) == len(ours_) and all(close(*pair) for pair in zip(theirs_, ours_)):
            continue
        if name == "hcheck" and stream == "stdout" and status <= their_status and lower_rebalance(theirs_, ours_):
            return "better", ""
        if name == "hail" and stream == "stdout" and status == their_status and other_nodes(theirs_, ours_):
            return "other nodes", ""
        pairs = [(one, other) for one, other in zip(theirs_, ours_) if not close(one, other)]
        shown = [f"{one!r} of Ganeti, {other!r} of hactl" for one, other in pairs[:3]]
        differs += [f"{stream}: {'; '.join(shown) or f'{len(theirs_)} lines, not {len(ours_)}'}"]
    # Both refuse the input; the cause may have other words.
    if status == their_status and status in (1, 2) and not their_streams[0] and not streams[0]:
        return "both refuse", ""
    return ("differs", "; ".join(differs)) if differs else ("alike", "")


def data_files(directory: Path, scratch: Path) -> list[Path]:
    """Returns the files to compare: those of Ganeti, and generated ones."""
    files = [path for path in sorted(directory.glob("*.data")) if path.name not in REJECTED + FAILS_EARLIER + FAILS_EARLIER_TOO + CRASHES]
    for seed in range(GENERATED):
        cluster, placements = generated(seed, 10)
        path = scratch / f"seed-{seed}.data"
        path.write_text(cluster.text(placements))
        files.append(path)
    return files


def hail_cases(directory: Path, scratch: Path) -> list[list[str]]:
    """Returns the arguments of each case of hail, and writes generated requests."""
    given = [str(path) for path in sorted(directory.glob("hail-*.json"))]
    # hactl marks a full node as failing N+1 from the beginning, as in FAILS_EARLIER.
    made = [[*options, path] for path in given for options in HAIL if not ("dedicated" in path and options == ["-p"])]
    # With these options, hactl does not see the cluster tag about desired locations in the request.
    new = [path for path in given if "/hail-alloc-" in path and "secondary" not in path and "desired" not in path]
    for path in new:
        for options in HAIL_SOURCES:
            made.append([str(directory / word) if word.endswith(".data") else word for word in options] + [path])
    made += HAIL_REFUSED
    texts = dict(enumerate(HAIL_TEXTS))
    for seed in range(16):
        message = hail_requests.cluster(seed)
        for label, request in hail_requests.requests(seed, message):
            texts[f"{seed} {label} {len(texts)}"] = hail_requests.text(request)
    for number, (label, text) in enumerate(texts.items()):
        path = scratch / f"request {label}.json"
        path.write_text(text)
        made.append([*HAIL[number % 3], str(path)])
    return made


def cases(name: str, directory: Path, files: list[Path], scratch: Path) -> list[list[str]]:
    """Returns the arguments of each case."""
    if name == "hail":
        return hail_cases(directory, scratch)
    if name == "hcheck":
        return [["-t", str(path), *options] for path in files for options in HCHECK]
    if name == "hspace":
        simulated = [[f"--simulate={group}" for group in groups] for groups in SIMULATIONS]
        compared = files[: len(files) - GENERATED + GENERATED_FOR_HSPACE]
        sources = [["-t", str(path)] for path in compared if path.name not in FORTHCOMING + SLOW]
        sources += [[*options, "-p", "--spindle-use", "2"] for options in simulated]
        refused = [[*simulated[0], *options] for options in HSPACE_REFUSED]
        return [[*source, *options] for source in sources for options in HSPACE] + refused
    return []


def main() -> int:
    programs, ours, directory = (Path(argument) for argument in sys.argv[1:4])
    scratch = tempfile.TemporaryDirectory()
    files = data_files(directory, Path(scratch.name))
    table: dict[str, int] = {}
    failed = 0
    for name in sys.argv[4:] or ["hail", "hcheck", "hspace"]:
        for arguments in cases(name, directory, files, Path(scratch.name)):
            outcome, difference = compare(name, programs, ours, arguments)
            table[f"{name}: {outcome}"] = table.get(f"{name}: {outcome}", 0) + 1
            if outcome == "differs":
                failed += 1
                print(f"{name} {' '.join(arguments)}: {difference}".replace(str(directory), "").replace(scratch.name, ""))
    return report(table, failed)


sys.exit(main())
