"""The clients' own environment, and a server that answers with any error of the house."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from clients.environments import interpreter

from adapters._eventstream import MEDIA_TYPE, encode_exception, encode_part
from adapters.sagemaker import errors
from gateway.types import Call

HERE = Path(__file__).resolve().parent
SECONDS = 120


def run(script: str, *arguments: str, sent: str = "") -> Any:
    """What a script beside this file prints, run by that Python; nothing but loopback is meant to be reached."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.devnull,
        "PYTHONWARNINGS": "ignore",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "*",
        "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
    }
    done = subprocess.run(
        [interpreter("sagemaker"), HERE / script, *arguments],
        env=environment,
        input=sent,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # the SDK logs to standard output


class Failing(BaseHTTPRequestHandler):
    """Answers a call of endpoint X with the error class X of the house, or with a stream that breaks."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Any operation of the runtime API."""
        self.rfile.read(int(self.headers["Content-Length"]))
        name = self.path.split("/")[2]
        if name == "stream":
            frames = encode_part(b'{"token": "a"}\n') + encode_exception("backend failed", "StreamBroken")
            self._send(200, frames, [("Content-Type", MEDIA_TYPE)])
            return
        kind = next(kind for kind, *_ in (*errors.CONTAINER, *errors.RUNTIME) if kind.__name__ == name)
        headers = [(key.lower().encode(), value.encode("latin-1")) for key, value in self.headers.items()]
        reply = errors.encode(kind(f"no {name}"), Call("POST", self.path, {"model": name}, "", headers, b"", "r-1"))
        assert isinstance(reply.body, bytes)
        self._send(reply.status, reply.body, [("Content-Type", reply.media_type), *reply.headers])

    def _send(self, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def failing_server() -> Iterator[str]:
    """The address of such a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Failing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
