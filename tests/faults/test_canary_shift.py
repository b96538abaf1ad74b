"""A canary that comes, grows, takes over, goes and comes again under load: no request fails, none goes astray."""

import contextlib
import http.client
import json
import signal
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import pytest
from live import LiveGateway, becomes, gateway, put_echo

CLIENTS = 3
CONFIG = """
models_dir = "models"
[gateway]
access_log = "off"
[services.digits]
model = "old"
"""
SLOW_MS = 400


def canary(weight: int, model: str = "new") -> str:
    """The table of a canary."""
    return f'[services.digits.canary]\nmodel = "{model}"\nweight = {weight}\n'


class Operator:
    """Edits the configuration file and has it read again."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "gateway.toml"
        self.file.write_text(CONFIG)
        self.live: LiveGateway

    def says(self, text: str, answer: str = "services are read from the file again") -> None:
        """Once this returns, every request that is sent obeys."""
        before = self.live.errors().count(answer)
        self.file.write_text(text)
        self.live.process.send_signal(signal.SIGHUP)
        assert becomes(lambda: self.live.errors().count(answer) > before, 20), self.live.errors()


class Load:
    """Clients that ask without a pause, and what became of it."""

    def __init__(self, live: LiveGateway) -> None:
        self._live = live
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._answers: Counter[tuple[str, str]] = Counter()
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def sees(self, requests: int) -> Counter[tuple[str, str]]:
        """The next so many answers at least, by variant and output; those on their way now are not among them."""
        self._after(CLIENTS + 1)
        return self._after(requests)

    def _after(self, requests: int) -> Counter[tuple[str, str]]:
        with self._lock:
            self._answers.clear()
        assert becomes(lambda: self._answers.total() >= requests or bool(self.failures), 20), "nobody answers"
        with self._lock:
            return self._answers.copy()

    def _ask(self) -> None:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._live.port, timeout=20)) as connection:
            while not self._over.is_set():
                try:
                    connection.request("POST", "/services/digits/v2/models/digits/infer", ONE)
                    reply = connection.getresponse()
                    body = reply.read()
                except (OSError, http.client.HTTPException) as error:
                    self.failures.append(repr(error))
                    return
                self._note(reply, body)

    def _note(self, reply: http.client.HTTPResponse, body: bytes) -> None:
        with self._lock:
            if reply.status != 200:
                self.failures.append(f"{reply.status} {body!r}")
            else:
                output = json.loads(body)["outputs"][0]["name"]
                self._answers[reply.headers.get("x-tensorgate-variant", ""), output] += 1


ONE = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()
OLD, NEW = ("stable", "x_old"), ("canary", "x_new")


def test_no_request_fails_while_the_canary_moves(tmp_path: Path) -> None:
    """Each weight holds, exactly, for all that come after it; over, off and again."""
    for name in ("old", "new"):
        put_echo(tmp_path / "models", name, f'[echo]\nsuffix = "_{name}"\n')
    operator = Operator(tmp_path)
    with gateway(operator.file) as live, Load(live) as load:
        operator.live = live
        assert set(load.sees(100)) == {("", "x_old")}
        for weight in (0, 30, 70, 100):
            operator.says(CONFIG + canary(weight))
            seen = load.sees(200)
            share = seen[NEW] * 100 / seen.total()
            assert set(seen) <= {OLD, NEW}
            # The answers that are counted need not be a run of requests: each client may be one off at either end.
            assert share == pytest.approx(weight, abs=200 * (CLIENTS + 1) / seen.total())
        operator.says(CONFIG.replace('"old"', '"new"'))
        assert set(load.sees(100)) == {("", "x_new")}
        operator.says(CONFIG.replace('"old"', '"new"') + canary(50, "old"))
        assert set(load.sees(100)) == {("stable", "x_new"), ("canary", "x_old")}
        operator.says(CONFIG)
        assert set(load.sees(100)) == {("", "x_old")}
        assert load.failures == []


def test_what_is_on_its_way_is_answered_by_whom_it_reached(tmp_path: Path) -> None:
    """The canary goes offline while it works."""
    put_echo(tmp_path / "models", "old", '[echo]\nsuffix = "_old"\n')
    put_echo(tmp_path / "models", "new", f'[echo]\nsuffix = "_new"\ndelay_ms = {SLOW_MS}\n')
    operator = Operator(tmp_path)
    operator.file.write_text(CONFIG + canary(100))
    with (
        gateway(operator.file) as live,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", live.port, timeout=20)) as connection,
    ):
        operator.live = live
        connection.request("POST", "/v2/models/digits/infer", ONE)
        live.wait_for_metric("tensorgate_requests_running", 1, service="digits")
        operator.says(CONFIG)
        reply = connection.getresponse()
        assert (reply.status, reply.headers["x-tensorgate-variant"]) == (200, "canary")
        assert json.loads(reply.read())["outputs"][0]["name"] == "x_new"


CHAT = Path(__file__).resolve().parents[2] / "configs" / "models" / "tinychat"
TALK = f"""
[models]
tinychat = {json.dumps(str(CHAT))}
[services.talk]
model = "tinychat"
"""


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ("", 200),
        ('state = "stopped"', 503),
        ("expires_at = 2020-01-01T00:00:00Z", 503),
        ('app_auth = true\napp_codes = ["new"]', 401),
    ],
    ids=["offline", "stopped", "expired", "locked"],
)
def test_a_stream_that_has_begun_ends_as_it_would(tmp_path: Path, change: str, status: int) -> None:
    """Whatever becomes of its canary, its service or its key; the next request obeys."""
    operator = Operator(tmp_path)
    operator.file.write_text(f"{TALK}[services.talk.canary]\nweight = 100\n")
    body = {"model": "talk", "messages": [{"role": "user", "content": "Tell me a story"}]}
    long = {"stream": True, "max_tokens": 900, "ignore_eos": True, "n": 8}
    with gateway(operator.file) as live:
        operator.live = live
        url = f"{live.url}/v1/chat/completions"
        live.wait_until("/readyz", 200)
        with httpx.stream("POST", url, json={**body, **long}, timeout=30) as reply:
            events = reply.iter_lines()
            assert next(events).startswith("data: {")
            operator.says(TALK + change)
            assert live.metric("tensorgate_requests_running", service="talk") == 1
            assert httpx.post(url, json={**body, "max_tokens": 1}, timeout=30).status_code == status
            rest = [line for line in events if line]
        assert (reply.status_code, reply.headers["x-tensorgate-variant"]) == (200, "canary")
        assert rest[-1] == "data: [DONE]"
        assert '"finish_reason":"' in rest[-2].replace(" ", "")


ANALYSIS = """
[services.digits.canary.analysis]
steps = [40]
window_seconds = 0.1
samples = 20
latency_ms = 80
take_over = true
"""


@pytest.mark.parametrize(
    ("delay_ms", "end", "told"),
    [
        (0, ("", "x_new"), "services.digits.canary: take_over: "),
        (150, OLD, "services.digits.canary: roll_back: its 95th percentile is "),
    ],
)
def test_a_canary_finds_its_own_way(tmp_path: Path, delay_ms: int, end: tuple[str, str], told: str) -> None:
    """A good one takes over, one that is much slower is rolled back, and nobody's request fails."""
    put_echo(tmp_path / "models", "old", '[echo]\nsuffix = "_old"\n')
    put_echo(tmp_path / "models", "new", f'[echo]\nsuffix = "_new"\ndelay_ms = {delay_ms}\n')
    operator = Operator(tmp_path)
    operator.file.write_text(CONFIG + canary(0) + ANALYSIS)
    with gateway(operator.file) as live, Load(live) as load:
        live.wait_for_log("services.digits.canary: start: the canary begins with 40 %", 20)
        live.wait_for_log(told, 30)
        assert set(load.sees(50)) == {end}
        assert load.failures == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[services", "gateway.toml: not TOML"),
        (CONFIG + canary(101), "services.digits.canary.weight: Expected `int` <= 100"),
        (CONFIG + "app_auth = true", "services.digits.app_codes: app_auth is on, so at least one code is needed"),
    ],
)
def test_a_wrong_file_changes_nothing(tmp_path: Path, text: str, told: str) -> None:
    """The log says why, and the services go on as they were, until the next file that is right."""
    for name in ("old", "new"):
        put_echo(tmp_path / "models", name, f'[echo]\nsuffix = "_{name}"\n')
    operator = Operator(tmp_path)
    operator.file.write_text(CONFIG + canary(100))
    with gateway(operator.file) as live, Load(live) as load:
        operator.live = live
        operator.says(text, told)
        assert set(load.sees(20)) == {NEW}
        operator.says(CONFIG)
        assert set(load.sees(20)) == {("", "x_old")}
        assert load.failures == []
