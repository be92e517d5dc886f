"""Tests of the Helm chart, run by dev/charts. Prints a line for each case, and exits with 1 if a case fails."""

import difflib
import os
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmError

CHART = Path("charts/hactl")
GOLDEN = Path("charts/golden")
REFUSED = Path("charts/refused")
HELM3 = os.environ["HELM3"]
RELEASE, NAMESPACE = "demo", "ha"
# The oldest supported version, one before and one after sleep hooks for pods, and the newest version with a schema.
KUBERNETES = ["1.25.0", "1.29.0", "1.32.0", kubernetes_validate.latest_version()]
# API groups of operators, for which no schemas are available here.
OPERATORS = ("cert-manager.io/", "monitoring.coreos.com/", "grafana.integreatly.org/")
PRIVILEGED = {"agent", "watchdog"}


class Failed(Exception):
    """A failed test, described in a sentence."""


def expect(condition, sentence):
    if not condition:
        raise Failed(sentence)


def values_of(path):
    return yaml.safe_load(path.read_text()) or {}


def helm3(*arguments):
    return subprocess.run([HELM3, *map(str, arguments)], capture_output=True, text=True, check=False)


def template3(files, *arguments, version="1.32.0"):
    flags = [flag for file in files for flag in ("--values", file)]
    done = helm3("template", RELEASE, CHART, "--namespace", NAMESPACE, "--kube-version", version, *flags, *arguments)
    expect(done.returncode == 0, f"helm template failed: {done.stderr.strip()}")
    return done.stdout


def objects_in(text):
    return [document for document in yaml.safe_load_all(text) if document]


def by_name(objects):
    named = {(o["apiVersion"], o["kind"], o["metadata"]["name"]): o for o in objects}
    expect(len(named) == len(objects), "two objects have the same name")
    return named


def pod_of(document):
    """Returns metadata and spec of the pod that an object creates; None if it creates no pod."""
    if document["kind"] == "Pod":
        return document
    return document.get("spec", {}).get("template")


def check_object(document):
    """Checks the rules for every object with any values, above all that an upgrade does not endanger a watchdog."""
    where = f"{document['kind']} {document['metadata']['name']}"
    pod = pod_of(document)
    if pod is None or document["kind"] == "Certificate":
        return
    spec = pod["spec"]
    component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
    expect(spec["automountServiceAccountToken"] is False, f"{where} can speak to Kubernetes")
    versions = [label for label in pod["metadata"]["labels"] if "version" in label or "chart" in label]
    expect(document["kind"] == "Pod" or not versions, f"{where}: an upgrade of the chart alone starts its pods anew, by the labels {versions}")
    for container in spec["containers"]:
        context = container["securityContext"]
        expect(context["readOnlyRootFilesystem"] is True, f"{where} may write into its image")
        if component in PRIVILEGED:
            expect(context["privileged"] is True and spec["hostPID"] is True, f"{where} does not reach the machine")
        else:
            expect(not context.get("privileged"), f"{where} is privileged")
            expect(not spec.get("hostPID") and not spec.get("hostNetwork"), f"{where} sees the machine")
            expect(spec["securityContext"]["runAsNonRoot"] is True, f"{where} runs as root")
            expect(context["capabilities"] == {"drop": ["ALL"]}, f"{where} has capabilities")
            expect(context["allowPrivilegeEscalation"] is False, f"{where} may gain privileges")
    if component in PRIVILEGED:
        expect(spec["priorityClassName"] == "system-node-critical", f"{where} may be evicted")
        expect({"operator": "Exists"} in spec["tolerations"], f"{where} is evicted by taints")
        for container in spec["containers"]:
            expect("livenessProbe" not in container, f"{where}: a liveness probe restarts what guards the machine")
            expect("startupProbe" not in container, f"{where}: a startup probe restarts what guards the machine")
            expect("limits" not in container["resources"], f"{where} has limits: it may be throttled or killed")
    if component == "watchdog":
        strategy = document["spec"]["updateStrategy"]
        expect(strategy == {"type": "OnDelete"}, f"{where}: an upgrade would end daemons of armed machines")
        mounts = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
        missing = {"/dev", "/run/hactl", "/run/systemd", "/etc", "/usr"} - mounts
        expect(not missing, f"{where} does not see {missing}: it could not tell whether systemd takes the watchdog")
    if component == "agent":
        strategy = document["spec"]["updateStrategy"]["rollingUpdate"]
        expect(strategy["maxSurge"] == 0, f"{where}: two agents of one node at a time")


def validate(objects, version):
    for document in objects:
        if document["apiVersion"].startswith(OPERATORS):
            continue
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            name = f"{document['kind']} {document['metadata']['name']}"
            raise Failed(f"Kubernetes {version} refuses {name}: {getattr(error, 'message', error)}") from error


def test_lint(path):
    done = helm3("lint", "--strict", CHART, "--values", path)
    expect(done.returncode == 0, f"Helm 3: {done.stdout}{done.stderr}")
    report = lint(CHART, values_of(path), strict=True, namespace=NAMESPACE)
    bad = report["errors"] + [m["error"] for m in report["messages"] if m["severity"] > 1]
    expect(not bad, f"Helm 4: {bad}")


def test_objects(path):
    for version in KUBERNETES:
        objects = objects_in(template3([path], version=version))
        expect(objects, "nothing was rendered")
        by_name(objects)
        validate(objects, version)
        for document in objects:
            check_object(document)


def test_selected(path):
    """Checks that every selector matches a pod, and that every mounted Secret and volume exists or is named by the values."""
    objects = objects_in(template3([path]))
    pods = [pod["metadata"]["labels"] for pod in map(pod_of, objects) if pod]
    for document in objects:
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            selector = spec["selector"]
        elif document["kind"] in ("PodDisruptionBudget", "DaemonSet", "StatefulSet"):
            selector = spec["selector"]["matchLabels"]
        elif document["kind"] == "NetworkPolicy":
            selector = spec["podSelector"]["matchLabels"]
        else:
            continue
        expect(any(selector.items() <= labels.items() for labels in pods), f"{document['kind']} {document['metadata']['name']} selects no pod")
    made = {o["spec"]["secretName"] for o in objects if o["kind"] == "Certificate"}
    named = path.read_text()
    for pod in filter(None, map(pod_of, objects)):
        volumes = pod["spec"].get("volumes", [])
        secrets = [v["secret"]["secretName"] for v in volumes if "secret" in v]
        secrets += [s["secret"]["name"] for v in volumes for s in v.get("projected", {}).get("sources", [])]
        for secret in secrets:
            expect(secret in made or secret in named, f"Secret {secret} is mounted, and nobody makes it")
        for container in pod["spec"]["containers"]:
            unknown = {m["name"] for m in container.get("volumeMounts", [])} - {v["name"] for v in volumes}
            unknown -= {c["metadata"]["name"] for o in objects for c in o["spec"].get("volumeClaimTemplates", [])}
            expect(not unknown, f"volumes {unknown} are mounted and not there")


def test_helm4(path):
    with Chart.load(CHART) as chart:
        rendered = chart.render(values_of(path), name=RELEASE, namespace=NAMESPACE)
    texts = [text for name, text in rendered.items() if not name.endswith("NOTES.txt")]
    four = by_name([o for text in texts for o in objects_in(text)])
    three = by_name(objects_in(template3([path])))
    different = [key for key in three.keys() | four.keys() if three.get(key) != four.get(key)]
    expect(not different, f"Helm 4 renders otherwise than Helm 3: {different}")
    notes = rendered[f"{CHART.name}/templates/NOTES.txt"]
    expect(RELEASE in notes and "<no value>" not in notes, "the notes are not whole")


def test_golden(path, update):
    golden = GOLDEN / path.name.replace("-values", "")
    text = template3([path])
    expect("<no value>" not in text, "a value is missing in the rendering")
    if update:
        golden.write_text(text)
    lines = difflib.unified_diff(golden.read_text().splitlines(), text.splitlines(), str(golden), "rendered", lineterm="")
    difference = "\n".join(lines)
    expect(not difference, f"{difference}\ndev/charts --update, if that is meant")


def test_refused(path):
    first = path.read_text().splitlines()[0]
    expect(first.startswith("# refused: "), "its first line does not say what the error names")
    word = first.removeprefix("# refused: ")
    done = helm3("template", RELEASE, CHART, "--values", path, "--kube-version", "1.32.0")
    expect(done.returncode != 0, "Helm 3 takes it")
    expect(word in done.stderr, f"Helm 3 does not name {word}: {done.stderr}")
    with Chart.load(CHART) as chart:
        try:
            chart.render(values_of(path), name=RELEASE)
        except HelmError as error:
            expect(word.replace(".", "/") in str(error), f"Helm 4 does not name {word}: {error}")
            return
    raise Failed("Helm 4 takes it")


def test_operators():
    """Checks that objects of the Prometheus operator are created only if the cluster has their kinds and the values allow it."""
    kinds = ["ServiceMonitor", "PrometheusRule"]
    has = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in kinds]

    def made(*arguments):
        return {o["kind"] for o in objects_in(template3([], *arguments))} & set(kinds)

    expect(made() == set(), "made although the cluster has no such kinds")
    expect(made(*has) == set(kinds), "not made although the cluster has them")
    expect(made(has[0]) == {"ServiceMonitor"}, "both made although the cluster has one of them")
    never = [f"--set=monitoring.{name}.create=never" for name in ("serviceMonitor", "prometheusRule")]
    expect(made(*has, *never) == set(), "made although the values say never")
    rules = [o for o in objects_in(template3([], *has)) if o["kind"] == "PrometheusRule"]
    copied = yaml.safe_load(Path("manifests/prometheus/rules.yaml").read_text())
    expect(rules[0]["spec"] == copied, "the rules are not those of manifests/prometheus")


def test_dashboards():
    """Checks that dashboards are created if a reader exists, and that objects of Grafana's operator name existing ConfigMaps."""
    sidecar, operator = "--api-versions=monitoring.coreos.com/v1/ServiceMonitor", "--api-versions=grafana.integreatly.org/v1beta1/GrafanaDashboard"
    wanted = {path.name: path.read_text() for path in Path("manifests/grafana").glob("*.json")}
    expect(len(wanted) == 5, f"manifests/grafana has {sorted(wanted)}")

    def made(*arguments):
        objects = objects_in(template3([], *arguments))
        maps = {o["metadata"]["name"]: o for o in objects if o["kind"] == "ConfigMap" and "-dashboard-" in o["metadata"]["name"]}
        return maps, [o["spec"] for o in objects if o["kind"] == "GrafanaDashboard"]

    expect(made() == ({}, []), "made although nothing reads them")
    maps, objects = made(sidecar)
    expect({name: text for o in maps.values() for name, text in o["data"].items()} == wanted, "they are not those of manifests/grafana")
    expect(all(o["metadata"]["labels"]["grafana_dashboard"] == "1" for o in maps.values()), "the sidecar does not see them")
    expect(not objects, "objects are made although the cluster has no such kind")
    maps, objects = made(operator)
    expect(len(objects) == len(wanted), "not every dashboard has its object")
    for spec in objects:
        reference = spec["configMapRef"]
        expect(reference["key"] in maps[reference["name"]]["data"], f"{reference} is not there")
    never = [f"--set=monitoring.dashboards.{name}=never" for name in ("create", "grafanaDashboard.create")]
    expect(made(sidecar, operator, *never) == ({}, []), "made although the values say never")


def test_metadata():
    chart = values_of(CHART / "Chart.yaml")
    cargo = Path("Cargo.toml").read_text().partition("[workspace.package]")[2]
    version = cargo.partition('version = "')[2].partition('"')[0]
    expect(chart["appVersion"] == version, f"appVersion is {chart['appVersion']}, the workspace's version {version}")


def test_packaged():
    """Checks that a packaged chart renders the same as its directory."""
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        done = helm3("package", CHART, "--destination", scratch)
        expect(done.returncode == 0, done.stderr)
        archive = next(Path(scratch).glob("*.tgz"))
        text = helm3("template", RELEASE, archive, "--namespace", NAMESPACE, "--kube-version", "1.32.0").stdout
    expect(text and text == template3([]), "the archive renders otherwise")


def main():
    update = sys.argv[1:] == ["--update"]
    cases = [("metadata", test_metadata), ("operators", test_operators), ("dashboards", test_dashboards), ("packaged", test_packaged)]
    files = sorted(CHART.glob("ci/*-values.yaml"))
    for path in [CHART / "values.yaml", *files]:
        for name, test in [("lint", test_lint), ("objects", test_objects), ("selected", test_selected), ("helm4", test_helm4)]:
            cases.append((f"{name} {path.name}", lambda test=test, path=path: test(path)))
    for path in files:
        cases.append((f"golden {path.name}", lambda path=path: test_golden(path, update)))
    known = {path.name.replace("-values", "") for path in files}
    stale = [path.name for path in GOLDEN.glob("*.yaml") if path.name not in known]
    cases.append(("golden: none without values", lambda: expect(not stale, f"remove from {GOLDEN}: {stale}")))
    for path in sorted(REFUSED.glob("*.yaml")):
        cases.append((f"refused {path.name}", lambda path=path: test_refused(path)))
    failed = 0
    for name, test in cases:
        try:
            test()
            print(f"test {name} ... ok")
        except Failed as failure:
            failed += 1
            print(f"test {name} ... FAILED\n{failure}")
    print(f"test result: {'FAILED' if failed else 'ok'}. {len(cases) - failed} passed; {failed} failed")
    sys.exit(1 if failed else 0)


main()
