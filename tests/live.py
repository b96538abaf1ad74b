"""A real gateway process on a free port, for tests that speak HTTP."""

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families


def becomes(true: Callable[[], bool], seconds: float) -> bool:
    """Whether it comes true in that time; it is asked every now and then."""
    limit = time.monotonic() + seconds
    while not true():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def put_echo(models: Path, name: str, settings: str = "") -> None:
    """A model in the folder that answers with what it was sent; `settings` are further lines of its model.toml."""
    (models / name).mkdir(parents=True)
    (models / name / "model.toml").write_text(f'backend = "echo"\n{settings}')


class LiveGateway:
    """A running `tensorgate serve`."""

    def __init__(self, *arguments: str) -> None:
        self._errors = tempfile.NamedTemporaryFile()  # noqa: SIM115 - it lives until `stop`
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", *arguments, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.url = self._wait_for_banner()
        self.port = int(self.url.rpartition(":")[2])

    def _wait_for_banner(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = re.search(r"on (http://\S+)", line)
            if found:
                return found[1]
        said = self.errors()
        self.stop()
        raise AssertionError(f"the gateway did not start: {said}")

    def errors(self) -> str:
        """Everything on stderr so far: the access log and the program's own log."""
        return Path(self._errors.name).read_text("utf-8", "replace")

    def wait_for_log(self, text: str, seconds: float = 10.0) -> None:
        """Wait until stderr holds the text; the access log is written a few times a second."""
        assert becomes(lambda: text in self.errors(), seconds), f"{text} is not in the log"

    def wait_until(self, path: str, status: int, seconds: float = 20.0) -> httpx.Response:
        """Ask until the path answers with that status."""
        reply = httpx.Response(0)

        def answers() -> bool:
            nonlocal reply
            reply = httpx.get(f"{self.url}{path}")
            return reply.status_code == status

        assert becomes(answers, seconds), reply.text
        return reply

    def metric(self, name: str, **labels: str) -> float:
        """What the samples of /metrics with that name and those labels add up to."""
        families = text_string_to_metric_families(httpx.get(f"{self.url}/metrics").text)
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def wait_for_metric(self, name: str, value: float, seconds: float = 10.0, **labels: str) -> None:
        """Ask until the metric has the value."""
        as_wanted = becomes(lambda: self.metric(name, **labels) == value, seconds)
        assert as_wanted, f"{name} is {self.metric(name, **labels)}, not {value}"

    def stop(self, number: int = signal.SIGTERM, seconds: float = 40.0) -> int:
        """Send the signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        finally:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self._errors.close()


@contextlib.contextmanager
def gateway(*arguments: str | Path) -> Iterator[LiveGateway]:
    """Serve with those arguments of `tensorgate serve` for the length of a `with` block."""
    live = LiveGateway(*map(str, arguments))
    try:
        yield live
    finally:
        live.stop()
