"""Generates the dashboards in the chart, or with --check reports the files that differ. Run by dev/dashboards."""

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from . import capacity, controller, node, overview, resource

FOLDER = Path("charts/hactl/files/dashboards")
PAGES = {"overview": overview, "resource": resource, "node": node, "controller": controller, "capacity": capacity}


def text(module):
    made = json.loads(json.dumps(module.make().build(), cls=JSONEncoder))
    for variable in made["templating"]["list"]:
        # The library adds these interval settings to every kind of variable, but Grafana's schema does not define them.
        for name in ("auto", "auto_count", "auto_min"):
            del variable[name]
    # Ids follow the order of the panels, so that links remain valid.
    for number, panel in enumerate(made["panels"], 1):
        panel["id"] = number
    return json.dumps(made, indent=2, sort_keys=True) + "\n"


def main():
    check = sys.argv[1:] == ["--check"]
    wrong = [str(path) for path in FOLDER.glob("*.json") if path.stem not in PAGES]
    for name, module in PAGES.items():
        path = FOLDER / f"{name}.json"
        wanted = text(module)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted)
        elif not path.exists() or path.read_text() != wanted:
            wrong.append(str(path))
    if wrong:
        sys.exit(f"error: not up to date: {', '.join(wrong)}\n  dev/dashboards regenerates them")


main()
