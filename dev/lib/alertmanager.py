"""Tests the example for Alertmanager: sends alerts to a real Alertmanager, and checks the resulting mails and webhook calls.

usage: alertmanager.py ALERTMANAGER AMTOOL CONFIG
Replaces only addresses and files of the example. Its times remain, so the test takes half a minute. Exits with 1 and a message if
a check fails.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from sinks import Sinks, end_with_parent, free_port

HOST = "127.0.0.1"
PASSWORD = "sesame"
USER = "hactl@example.org"


class Failed(Exception):
    """A failed check, described in a sentence."""


def expect(condition, sentence):
    if not condition:
        raise Failed(sentence)


def wait_for(what, seconds, condition):
    """Repeats `condition` until its result is true, and returns the result."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise Failed(f"not within {seconds} s: {what}")


def adapted(config, replaced):
    """Returns the example with other addresses and files. Fails if the example lacks one of those to replace."""
    for known, new in replaced:
        expect(known in config, f"{known} is no longer in the example: change dev/lib/alertmanager.py")
        config = config.replace(known, new)
    return config


def certificate(directory):
    """Creates a self-signed certificate for loopback."""
    paths = directory / "certificate.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=mail",
         "-addext", f"subjectAltName=IP:{HOST}", "-out", paths[0], "-keyout", paths[1]],
        check=True, capture_output=True,
    )
    return paths


@contextlib.contextmanager
def running(command, environment, log):
    """Runs a program until the end of the block, or until this process ends."""
    with open(log, "wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, preexec_fn=end_with_parent)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_ready(process, url):
    expect(process.poll() is None, f"alertmanager ended with {process.poll()}")
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def check(alertmanager, amtool, example, directory):
    sinks = Sinks()
    cert, key = certificate(directory)
    http = sinks.serve_http(HOST, 0)
    smtp = sinks.serve_smtp(HOST, free_port(HOST), cert, key, USER, PASSWORD)
    password = directory / "smtp-password"
    password.write_text(PASSWORD)
    config = directory / "alertmanager.yaml"
    config.write_text(adapted(Path(example).read_text(), [
        ("mail.example.org:587", f"{HOST}:{smtp}"),
        ("https://pager.example.org/", f"http://{HOST}:{http}/"),
        ("/etc/prometheus/smtp-password", str(password)),
    ]))
    url = f"http://{HOST}:{free_port(HOST)}"
    command = [alertmanager, f"--config.file={config}", f"--storage.path={directory}/data", "--cluster.listen-address=",
               f"--web.listen-address={url.removeprefix('http://')}"]
    # The example does not define the trusted certificates.
    environment = {**os.environ, "SSL_CERT_FILE": str(cert), "NO_PROXY": HOST, "no_proxy": HOST}
    log = directory / "alertmanager.log"
    try:
        with running(command, environment, log) as process:
            wait_for("alertmanager is ready", 30, lambda: is_ready(process, url))
            for alert in (
                ["HactlNodeFenced", "severity=critical", "node=node1"],
                ["HactlNodeUnknown", "severity=critical", "node=node1"],
                ["HactlReservationFailed", "severity=warning"],
            ):
                subprocess.run(
                    [amtool, f"--alertmanager.url={url}", "alert", "add", *alert, "cluster=default",
                     "--annotation=summary=as the rules say it"],
                    check=True, env=environment,
                )
            expect_routes(sinks)
    except Failed as failed:
        lines = log.read_text().splitlines()[-20:]
        raise Failed("\n".join([str(failed), *lines])) from None


def expect_routes(sinks):
    # A route sends a second mail for a group only if it fires again, which takes longer than this test.
    def mail(alert):
        return [one for one in sinks.of("smtp") if alert in one["headers"].get("Subject", "")]

    critical = wait_for("a mail of what is critical", 40, lambda: mail("HactlNodeFenced"))[0]
    expect(critical["to"] == ["operators@example.org"], f"it went to {critical['to']}")
    expect(critical["from"] == "hactl@example.org", f"it came from {critical['from']}")
    expect(critical["tls"] and critical["user"] == USER, f"TLS: {critical['tls']}, user: {critical['user']}")
    expect(re.match(r"\[FIRING:1\]", critical["headers"]["Subject"]), critical["headers"]["Subject"])
    expect("as the rules say it" in critical["text"], "the summary is not in the mail")
    calls = wait_for("a call of the pager", 40, lambda: sinks.of("http"))
    expect(calls[0]["path"] == "/hooks/hactl", f"the pager was called at {calls[0]['path']}")
    told = json.loads(calls[0]["text"])
    expect(told["receiver"] == "operators-pager" and told["status"] == "firing", f"the pager was told {told}")
    labels = told["alerts"][0]["labels"]
    expect(labels["alertname"] == "HactlNodeFenced" and labels["node"] == "node1", f"the pager was told {labels}")
    warning = wait_for("a mail of the warning", 60, lambda: mail("HactlReservationFailed"))[0]
    expect(warning["to"] == ["operators@example.org"], f"the warning went to {warning['to']}")
    # By now, any other critical alert that is not inhibited would have arrived too.
    names = {alert["labels"]["alertname"] for call in sinks.of("http") for alert in json.loads(call["text"])["alerts"]}
    expect(names == {"HactlNodeFenced"}, f"the pager was also called for {names}")
    expect(not mail("HactlNodeUnknown"), "a node that was fenced is also told as unknown")


def main():
    with tempfile.TemporaryDirectory(prefix="hactl-alertmanager-") as directory:
        try:
            check(*sys.argv[1:4], Path(directory))
        except Failed as failed:
            print(f"alertmanager: {failed}")
            return 1
    print("alertmanager: mail and webhook get what the example's routes say")
    return 0


if __name__ == "__main__":
    sys.exit(main())
