"""Compares hactl under the name hbal with Ganeti's hbal: exit status, messages, initial score, and the score at the end.

    hbal.py HBAL OURS DIRECTORY   DIRECTORY has the data files of Ganeti's tests

Runs both programs on every data file with several sets of options, and on generated clusters. Prints a line for each
difference, a table, and as its last line the result. Fails if an answer differs in more than the plan, or if a plan ends
above that of hbal.
"""

import re
import sys
import tempfile
from pathlib import Path

from comparison import FAILS_EARLIER, REJECTED, report, run
from hbal_clusters import generated

OPTIONS = [[], ["-q"], ["-l", "2"], ["--ignore-soft-errors"], ["--no-disk-moves"], ["-C"], ["--print-nodes=name,pcnt,scnt"]]
# Output that depends on the plan.
PLAN = re.compile(
    r"^ +\d+\. |^Cluster score improved|^Solution length|^No solution found|^  +echo |^  +gnt-|^Commands to run|^ *$|^ (node|Name)"
)


def answer(program: str, arguments: list[str]) -> tuple[int, list[str], list[str], float | None]:
    """Runs a program. Returns the status, the lines of both streams without the plan, and the score at the end."""
    status, *texts = run(program, arguments)
    # The last one counts: without a plan, the score stays that of the start.
    scores = re.findall(r"(?:Initial score:|improved from [\d.]+ to) *([\d.]+)", texts[0])
    streams = [[line for line in text.splitlines() if not PLAN.match(line)] for text in texts]
    return status, *streams, float(scores[-1]) if scores else None


def main() -> int:
    theirs, ours, directory = sys.argv[1:4]
    cases = [
        (path.name, path.name, str(path), options) for path in sorted(Path(directory).glob("*.data")) for options in OPTIONS
    ]
    scratch = tempfile.TemporaryDirectory()
    for seed in range(24):
        cluster, placements = generated(seed, 12)
        path = Path(scratch.name) / f"{seed}.data"
        path.write_text(cluster.text(placements))
        cases.append((cluster.kind, f"seed {seed} ({cluster.kind})", str(path), []))
    table: dict[str, int] = {}
    failed = 0
    for kind, name, path, options in cases:
        arguments = ["-t", path, *options]
        their_status, *their_streams, their_end = answer(theirs, arguments)
        # The tests of Ganeti's command line cover what hbal rejects.
        if their_status != 0:
            continue
        if kind in REJECTED + FAILS_EARLIER:
            table[f"{kind}: not compared"] = table.get(f"{kind}: not compared", 0) + 1
            continue
        # Fewer evaluations than by default, because the program is built without optimization.
        status, *streams, end = answer(ours, [*arguments, "--evaluations=10000"])
        differs = [f"status {status}"] if status != their_status else []
        for stream, theirs_, ours_ in zip(("stdout", "stderr"), their_streams, streams):
            differs += [f"{stream}: {line!r} missing" for line in theirs_ if line not in ours_]
            differs += [f"{stream}: {line!r} added" for line in ours_ if line not in theirs_]
        if their_end is None or end is None:
            outcome = "same" if their_end == end else "differs"
        else:
            outcome = "same" if abs(end - their_end) <= 1e-6 else "lower" if end < their_end else "higher"
        if differs or outcome in ("higher", "differs"):
            failed += 1
            print(f"{name} {' '.join(options)}: score {their_end} of hbal, {end} of hactl; {'; '.join(differs[:4])}")
        group = "Ganeti's files" if kind.endswith(".data") else kind
        table[f"{group}: {outcome}"] = table.get(f"{group}: {outcome}", 0) + 1
    return report(table, failed)


sys.exit(main())
