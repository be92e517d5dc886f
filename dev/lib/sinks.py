"""A mail server (aiosmtpd) and a web server that record all requests. As a program, they append a JSON line for each to a file.

usage: sinks.py --record FILE --host ADDRESS [--http-port N] [--smtp-port N] [--certificate FILE --key FILE --user NAME --password TEXT]
With a certificate, the mail server requires STARTTLS and accepts mail only from that user. Prints {"http": PORT, "smtp": PORT}
once both servers listen. Ends with its parent process.
"""

import argparse
import ctypes
import email
import email.policy
import json
import os
import signal
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

PR_SET_PDEATHSIG = 1


def end_with_parent():
    """Makes the kernel kill this process when its parent ends. Also usable as `preexec_fn`."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Sinks:
    """The received requests, in order."""

    def __init__(self, record=None):
        self.got = []
        self.record = record
        self.lock = threading.Lock()

    def keep(self, what):
        what["at"] = time.time()
        with self.lock:
            self.got.append(what)
            if self.record:
                with open(self.record, "a", encoding="utf-8") as file:
                    file.write(json.dumps(what) + "\n")

    def of(self, kind):
        with self.lock:
            return [what for what in self.got if what["sink"] == kind]

    async def handle_DATA(self, server, session, envelope):
        """Records a received mail; called by aiosmtpd."""
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        body = message.get_body(("plain", "html"))
        self.keep({
            "sink": "smtp",
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "hello": session.host_name,
            "tls": session.ssl is not None,
            "user": session.auth_data,
            "headers": {name: str(value) for name, value in message.items()},
            "text": body.get_content() if body else "",
        })
        return "250 taken"

    def serve_http(self, host, port):
        sinks = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                sinks.keep({
                    "sink": "http",
                    "path": self.path,
                    "headers": {name.lower(): value for name, value in self.headers.items()},
                    "text": body.decode(),
                })
                self.send_response(204)
                self.end_headers()

            def log_message(self, format, *args):
                pass

        server = ThreadingHTTPServer((host, port), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_address[1]

    def serve_smtp(self, host, port, certificate=None, key=None, user=None, password=None):
        options = {}
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)

            def authenticate(server, session, envelope, mechanism, data):
                good = data.login.decode() == user and data.password.decode() == password
                return AuthResult(success=good, handled=good, auth_data=user)

            options = {
                "tls_context": context,
                "require_starttls": True,
                "authenticator": authenticate,
                "auth_required": True,
                # Some clients wait for the prompts of common servers, which differ from those of this mechanism.
                "auth_exclude_mechanism": ["LOGIN"],
            }
        controller = Controller(self, hostname=host, port=port, **options)
        controller.start()
        return controller.server.sockets[0].getsockname()[1]


def free_port(host):
    """Returns a free port. aiosmtpd needs one, because it checks its start at the configured port."""
    import socket

    with socket.create_server((host, 0)) as found:
        return found.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    for name in ("record", "host", "certificate", "key", "user", "password"):
        parser.add_argument(f"--{name}", required=name in ("record", "host"))
    for name in ("http-port", "smtp-port"):
        parser.add_argument(f"--{name}", type=int, default=0)
    options = parser.parse_args()
    end_with_parent()
    sinks = Sinks(options.record)
    http = sinks.serve_http(options.host, options.http_port)
    smtp = sinks.serve_smtp(
        options.host,
        options.smtp_port or free_port(options.host),
        options.certificate,
        options.key,
        options.user,
        options.password,
    )
    print(json.dumps({"http": http, "smtp": smtp}), flush=True)
    signal.pause()


if __name__ == "__main__":
    sys.exit(main())
