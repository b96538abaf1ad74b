"""A little HTTP server that greets, and counts in server-sent events; it needs nothing but Python."""

import argparse
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Greeter(BaseHTTPRequestHandler):
    """Answers GET."""

    greeting = "hello"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/ready":
            self._answer(200, {"ready": True})
        elif url.path == "/hello":
            name = parse_qs(url.query).get("name", ["world"])[0]
            self._answer(200, {"message": f"{self.greeting}, {name}"})
        elif url.path == "/count":
            self._count()
        else:
            self._answer(404, {"error": "there are /hello?name=NAME and /count"})

    def _answer(self, status: int, page: dict[str, object]) -> None:
        body = json.dumps(page).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _count(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for number in (1, 2, 3):
            self.wfile.write(f"data: {number}\n\n".encode())
            self.wfile.flush()
            time.sleep(0.1)

    def log_message(self, *_: object) -> None:
        """The gateway logs every request already."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--greeting", default="hello")
    Greeter.greeting = parser.parse_args().greeting
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Greeter).serve_forever()
