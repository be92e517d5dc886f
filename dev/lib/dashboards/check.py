"""Checks the dashboards in the chart with tsc against Grafana's schema, which must refuse broken dashboards. Run by dev/dashboards."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path("charts/hactl/files/dashboards")
# Directory that contains node_modules.
FOLDER = Path(os.environ["DASHBOARDS_SCHEMA"])


def of_type(dashboard, kind):
    return next(panel for panel in dashboard["panels"] if panel["type"] == kind)


def break_panel_type(dashboard):
    of_type(dashboard, "stat")["type"] = "stats"


def break_option_name(dashboard):
    of_type(dashboard, "stat")["options"]["colourMode"] = "value"


def break_option_value(dashboard):
    of_type(dashboard, "stat")["options"]["colorMode"] = "loud"


def break_custom_field(dashboard):
    of_type(dashboard, "timeseries")["fieldConfig"]["defaults"]["custom"]["lineWidht"] = 1


def break_grid(dashboard):
    del of_type(dashboard, "timeseries")["gridPos"]["w"]


def break_threshold(dashboard):
    of_type(dashboard, "stat")["fieldConfig"]["defaults"]["thresholds"]["mode"] = "relative"


def break_query(dashboard):
    del of_type(dashboard, "table")["targets"][0]["expr"]


def break_variable(dashboard):
    dashboard["templating"]["list"][0]["type"] = "source"


def break_annotation(dashboard):
    del dashboard["annotations"]["list"][0]["target"]


def break_link(dashboard):
    dashboard["links"][0]["type"] = "page"


def break_without_uid(dashboard):
    del dashboard["uid"]


def break_without_description(dashboard):
    del of_type(dashboard, "stat")["description"]


def write(path, dashboard):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"import type {{ Document }} from '../document.js';\nexport const it: Document = {json.dumps(dashboard, indent=1)};\n")


def layout(dashboard):
    """Returns an error if panels overlap or exceed the grid, which the schema does not check; else None."""
    taken = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                if x >= 24 or other != panel["title"]:
                    return f"{panel['title']} overlaps {other}, or exceeds the grid"
    return None


def main():
    here = Path(__file__).parent / "schema"
    for name in ("document.ts", "tsconfig.json"):
        shutil.copy(here / name, FOLDER / name)
    for name in ("checked", "refused"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    dashboards = {path.stem: json.loads(path.read_text()) for path in sorted(SOURCES.glob("*.json"))}
    for name, dashboard in dashboards.items():
        write(FOLDER / "checked" / f"{name}.ts", dashboard)
    wrong = {name: function for name, function in globals().items() if name.startswith("break_")}
    for name, function in wrong.items():
        broken = copy.deepcopy(dashboards["overview"])
        function(broken)
        write(FOLDER / "refused" / f"{name}.ts", broken)
    done = subprocess.run([FOLDER / "node_modules/.bin/tsc", "--project", FOLDER, "--pretty", "false"], capture_output=True, text=True, check=False)
    said = {}
    for line in done.stdout.splitlines():
        found = re.match(r"(?:.*/)?((?:checked|refused)/\w+)\.ts\(", line)
        said.setdefault(found.group(1) if found else "", []).append(line)
    results = {"tsc itself": None if "" not in said or all(line.startswith(" ") for line in said[""]) else "\n".join(said[""])}
    if done.returncode not in (0, 1, 2):
        results["tsc itself"] = done.stdout + done.stderr
    for name, dashboard in dashboards.items():
        errors = said.get(f"checked/{name}")
        results[f"schema {name}"] = "\n".join(errors) if errors else None
        results[f"layout {name}"] = layout(dashboard)
    for name in wrong:
        results[f"refused {name.removeprefix('break_')}"] = None if f"refused/{name}" in said else "Grafana's schema accepts it"
    failed = 0
    for name, error in results.items():
        print(f"test {name} ... {'FAILED' if error else 'ok'}")
        if error:
            failed += 1
            print(error)
    print(f"test result: {'FAILED' if failed else 'ok'}. {len(results) - failed} passed; {failed} failed")
    sys.exit(1 if failed or not dashboards else 0)


main()
