"""What a real gateway tells of requests: spans to a collector, stages to the caller, payloads to files, and back."""

import itertools
import json
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from collector import Collector
from live import LiveGateway, becomes, gateway, put_echo

CONFIG = """
models_dir = "models"
[gateway]
device = "cpu"
[telemetry]
endpoint = "%s"
headers = { x-tenant = "lab" }
sample = %s
service_name = "gate"
[payload_log]
dir = "payloads"
redact = ["password"]
[services.still]
app_auth = true
app_codes = ["opensesame"]
"""
COUNTING = """
class Counting:
    def predict(self, X, names=None):
        return X

    def metrics(self):
        return [
            {"type": "COUNTER", "key": "seen", "value": 2, "tags": {"kind": "test"}},
            {"type": "TIMER", "key": "looked", "value": 20.0},
        ]
"""
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
KEY = {"Authorization": "Bearer opensesame"}
STAGES = ["receive", "queue", "decode", "run", "encode"]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("observed")


@pytest.fixture(scope="module")
def live(root: Path, collector: Collector) -> Iterator[LiveGateway]:
    put_echo(root / "models", "still")
    put_echo(root / "models", "open")
    (root / "models" / "counting" / "1").mkdir(parents=True)
    (root / "models" / "counting" / "1" / "Counting.py").write_text(COUNTING)
    (root / "models" / "counting" / "model.toml").write_text('backend = "pyclass"\n[pyclass]\nentry = "Counting"\n')
    (root / "gateway.toml").write_text(CONFIG % (collector.url, "0.0"))
    with gateway(root / "gateway.toml") as live:
        yield live


def ask(live: LiveGateway, model: str = "still", **headers: str) -> httpx.Response:
    return httpx.post(
        f"{live.url}/v1/models/{model}:predict?token=opensesame", json={"instances": [1.5]}, headers={**KEY, **headers}
    )


def records(root: Path) -> list[dict[str, Any]]:
    """The lines of the payload log."""
    texts = [file.read_text() for file in sorted((root / "payloads").iterdir())]
    return [json.loads(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_spans(live: LiveGateway, collector: Collector) -> None:
    """A traced caller finds the request below its own span, and the stages below that, one after another."""
    assert ask(live, traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="vendor=1").status_code == 200
    spans = collector.trace(TRACE, 1 + len(STAGES))
    request = spans["tfserving predict"]
    assert request.parent_span_id.hex() == PARENT
    assert request.trace_state == "vendor=1"
    told = {one.key: one.value for one in request.attributes}
    assert told["http.response.status_code"].int_value == 200
    assert told["tensorgate.service"].string_value == "still"
    assert {spans[stage].parent_span_id for stage in STAGES} == {request.span_id}
    times = [(spans[stage].start_time_unix_nano, spans[stage].end_time_unix_nano) for stage in STAGES]
    assert times[0][0] == pytest.approx(request.start_time_unix_nano, abs=1000)
    assert all(before[1] == pytest.approx(after[0], abs=1000) for before, after in itertools.pairwise(times))
    assert times[-1][1] <= request.end_time_unix_nano
    assert collector.resources[0]["service.name"] == "gate"
    assert collector.headers[0]["x-tenant"] == "lab"


def test_the_share_of_traces(live: LiveGateway, collector: Collector) -> None:
    """Requests that nobody asks to be traced follow the configured share, here none; malformed ones count as such."""
    for traceparent in ("", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"00-{'a' * 32}-{PARENT}-00"):
        assert ask(live, traceparent=traceparent).status_code == 200
    other = "b" * 32
    ask(live, traceparent=f"00-{other}-{PARENT}-01")
    collector.trace(other, 1 + len(STAGES))
    assert {span.trace_id.hex() for span in collector.spans} <= {TRACE, other}


def test_server_timing(live: LiveGateway) -> None:
    """Who asks for it is told in milliseconds how long the stages took; others are not."""
    told = ask(live, **{"X-Tensorgate-Timing": "1"}).headers["server-timing"]
    names = re.findall(r"(\w+);dur=\d+\.\d{3}", told)
    assert names == [*STAGES, "total"]
    parts = [float(number) for number in re.findall(r"dur=([\d.]+)", told)]
    assert sum(parts[:-1]) <= parts[-1] + 0.01
    assert "server-timing" not in ask(live).headers


def test_stages_are_scraped(live: LiveGateway) -> None:
    """The metrics page counts each stage of a service's requests."""
    before = live.metric("tensorgate_stage_seconds_count", service="still", stage="run")
    ask(live)
    live.wait_for_metric("tensorgate_stage_seconds_count", before + 1, service="still", stage="run")


def test_what_a_class_measures_is_scraped(live: LiveGateway) -> None:
    """A user's class's metrics are on the metrics page, whatever protocol its callers speak."""
    data = {"data": {"ndarray": [[1.0]]}}
    replies = [
        httpx.post(f"{live.url}/seldon/counting/api/v1.0/predictions", json=data),
        httpx.post(f"{live.url}/v1/models/counting:predict", json={"instances": [[1.0]]}),
    ]
    assert [reply.status_code for reply in replies] == [200, 200], [reply.text for reply in replies]
    assert live.metric("seen_total", service="counting", kind="test") == 4
    assert live.metric("looked_seconds_count", service="counting") == 2
    assert live.metric("looked_seconds_bucket", service="counting", le="0.01") == 0
    assert live.metric("tensorgate_user_metrics_dropped_total") == 0


def test_what_a_worker_does_is_below_the_run(live: LiveGateway, collector: Collector) -> None:
    """The wait for a worker, and the worker's own run with its process, within the request."""
    traced = "c" * 32
    assert ask(live, "counting", traceparent=f"00-{traced}-{PARENT}-01").status_code == 200
    spans = collector.trace(traced, 1 + len(STAGES) + 2)
    run, wait, work = (spans[name] for name in ("run", "worker.wait", "worker.run"))
    assert {wait.parent_span_id, work.parent_span_id} == {run.span_id}
    assert run.start_time_unix_nano <= wait.start_time_unix_nano <= wait.end_time_unix_nano
    assert wait.end_time_unix_nano == work.start_time_unix_nano < work.end_time_unix_nano <= run.end_time_unix_nano
    (pid,) = (one.value.int_value for one in work.attributes if one.key == "process.pid")
    assert psutil.Process(pid).ppid() == live.process.pid


def test_payloads_hold_no_secrets(live: LiveGateway, root: Path) -> None:
    """The log has bodies and answers, no key that came in a header or a query, and not what is to be redacted."""
    body = {"instances": [1.5], "password": "swordfish"}
    httpx.post(f"{live.url}/v1/models/still:predict", json=body, headers={**KEY, "Cookie": "opensesame"})
    httpx.post(f"{live.url}/v1/models/still:predict", json=body, headers={"Authorization": "Bearer intruder"})
    done = {"X-Request-Id": "the-last"}
    ask(live, **done)
    assert becomes(lambda: any(one["id"] == "the-last" for one in records(root)), 10)
    last = records(root)[-1]
    assert last["request"]["text"] == '{"instances":[1.5]}'
    assert json.loads(last["answer"]["text"]) == {"predictions": [1.5]}
    assert (last["service"], last["status"], last["protocol"]) == ("still", 200, "tfserving")
    for file in (root / "payloads").iterdir():
        text = file.read_text()
        assert not [secret for secret in ("opensesame", "swordfish", "intruder") if secret in text]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_replay(live: LiveGateway, root: Path) -> None:
    """A log can be asked again of a gateway: it reports statuses, times and differences, and exits by them."""
    ask(live, "open", **{"X-Request-Id": "to-replay"})
    assert becomes(lambda: any(one["id"] == "to-replay" for one in records(root)), 10)
    (line,) = (one for one in records(root) if one["id"] == "to-replay")
    log = root / "again.jsonl"
    log.write_text(json.dumps(line) + "\n")
    same = run_replay(live, log)
    assert (same.returncode, same.stderr) == (0, "")
    assert "1 requests asked again" in same.stdout
    assert "200 -> 200: 1" in same.stdout
    assert "1 same, 0 different" in same.stdout
    line["answer"]["text"] = '{"predictions": [1.75]}'
    log.write_text(json.dumps(line) + "\nno record\n")
    other = run_replay(live, log)
    assert other.returncode == 1
    assert "predictions[0]: 1.5 instead of 1.75" in other.stdout
    assert "1 skipped: not a record" in other.stdout


def run_replay(live: LiveGateway, log: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", "replay", str(log), "--url", live.url.removeprefix("http://")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_collector_that_is_gone_harms_nobody(tmp_path: Path) -> None:
    """Without a collector requests are answered, and the process leaves in time."""
    put_echo(tmp_path / "models", "still")
    (tmp_path / "gateway.toml").write_text(CONFIG % ("http://127.0.0.1:9/v1/traces", "1.0"))
    with gateway(tmp_path / "gateway.toml") as live:
        assert ask(live).status_code == 200
        assert live.stop(seconds=20) == 0
