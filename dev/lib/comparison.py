"""What the comparisons with Ganeti's programs share: files without a comparison, a run, and the table at the end."""

import re
import subprocess

# Files with two instances of one name, which Ganeti's programs count as one, and hactl rejects.
REJECTED = ["hroller-full.data", "multiple-tags.data"]
# A node of which the free memory equals the reserved memory fails N+1 in hactl from the beginning, as in Ganeti 3.1.
FAILS_EARLIER = ["hbal-location-2.data"]


def run(program: str, arguments: list[str]) -> tuple[int, str, str]:
    """Runs a program. Returns the status and both streams."""
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600)
    # Rounding errors of a score of 0.
    return ran.returncode, *[re.sub(r"\d\.\d+e-1\d", "0.000000", text) for text in (ran.stdout, ran.stderr)]


def report(table: dict[str, int], failed: int) -> int:
    """Prints the number of cases by outcome, and the result. Returns the exit status."""
    for group, count in sorted(table.items()):
        print(f"{count:5} {group}")
    total = sum(table.values())
    print(f"test result: {'ok' if failed == 0 else 'FAILED'}. {total - failed} passed; {failed} failed")
    return 1 if failed else 0
