"""A collector of OpenTelemetry's traces over OTLP/HTTP, which decodes what it is sent and keeps the spans."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from live import becomes
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Listens on a free port while the `with` block runs."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector._take(ExportTraceServiceRequest.FromString(body), dict(self.headers))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _take(self, message: Any, headers: dict[str, str]) -> None:
        self.headers.append(headers)
        for resource in message.resource_spans:
            self.resources.append({one.key: one.value.string_value for one in resource.resource.attributes})
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)

    def trace(self, trace_id: str, count: int, seconds: float = 15.0) -> dict[str, Any]:
        """The spans of a trace by name, once so many are here."""

        def found() -> dict[str, Any]:
            return {span.name: span for span in list(self.spans) if span.trace_id.hex() == trace_id}

        assert becomes(lambda: len(found()) >= count, seconds), f"only {sorted(found())} came"
        return found()
