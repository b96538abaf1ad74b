"""Many front processes, and one that has all workers: which there are, and what becomes of calls as each is killed."""

import re
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from collector import Collector
from live import LiveGateway, becomes, gateway, put_echo

CLASS = """
import os, time
import numpy as np

class Told(Exception):
    status_code, reason = 418, "TEAPOT"
    def to_dict(self):
        return {}

class own:
    def predict(self, X, names=None, meta=None):
        value = float(np.ravel(X)[0])
        if value == 418:
            raise Told("a teapot")
        while value == 9 and os.path.exists(os.environ["HOLD"]):
            time.sleep(0.01)
        if value == 7:
            return self.parts()
        return [[os.getpid()]]

    def parts(self):
        for number in range(1000):
            yield [number]
"""
SERVER = """
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(os.getpid()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
CONFIG = """
models_dir = "models"
[gateway]
workers = 2
poll_seconds = 0.1
[services.own]
[services.echo]
[services.web]
type = "custom"
"""
TINYCHAT = Path(__file__).resolve().parents[2] / "configs" / "models" / "tinychat"
PREDICT = "/v1/models/{}:predict"


def put_class(folder: Path, version: int = 1) -> None:
    """A version of the class, there at once."""
    (folder / ".incoming").mkdir(parents=True)
    (folder / ".incoming" / "own.py").write_text(CLASS)
    table = '[pyclass]\nentry = "own:own"\nretry = false\nenvironment = { HOLD = "' + str(folder.parents[1] / "hold")
    (folder / "model.toml").write_text(f'backend = "pyclass"\n{table}" }}\n')
    (folder / ".incoming").rename(folder / str(version))


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveGateway]:
    """Two front processes, with a user's class, a server of a user's, and a model of the processes' own."""
    models = tmp_path / "models"
    put_echo(models, "echo")
    put_class(models / "own")
    (models / "web" / "1").mkdir(parents=True)
    (models / "web" / "1" / "server.py").write_text(SERVER)
    command = '["python", "server.py", "{port}"]'
    (models / "web" / "model.toml").write_text(f'backend = "custom"\n[custom]\ncommand = {command}\n')
    (tmp_path / "gateway.toml").write_text(CONFIG)
    with gateway(tmp_path / "gateway.toml") as live:
        yield live


def below(live: LiveGateway, text: str) -> list[psutil.Process]:
    """The gateway's processes whose command line has that text."""
    found = []
    for child in psutil.Process(live.process.pid).children(recursive=True):
        try:
            if text in " ".join(child.cmdline()) and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def pools(live: LiveGateway) -> psutil.Process:
    """The process that has the workers."""
    (found,) = below(live, "gateway.pools")
    return found


def own(live: LiveGateway, value: float = 1.0, name: str = "own") -> httpx.Response:
    """The answer to one value, over a connection of its own, which may come to any front process."""
    return httpx.post(f"{live.url}{PREDICT.format(name)}", json={"instances": [value]}, timeout=20)


def pids(live: LiveGateway, calls: int = 16) -> set[int]:
    """Which processes answer."""
    return {reply.json()["predictions"][0][0] for reply in (own(live) for _ in range(calls))}


def test_a_model_s_workers_and_a_service_s_server_are_there_once(live: LiveGateway) -> None:
    """However many processes answer, and in whatever protocol; errors keep the dialect of each."""
    (worker,), (server,) = below(live, "_child.py"), below(live, "server.py")
    assert {worker.pid} == pids(live)
    assert {str(server.pid)} == {httpx.get(f"{live.url}/services/web/").text for _ in range(16)}
    seldon = f"{live.url}/services/own/api/v1.0/predictions"
    assert [[worker.pid]] == httpx.post(seldon, json={"data": {"ndarray": [1]}}).json()["data"]["ndarray"]
    tensor = {"name": "X", "shape": [1], "datatype": "FP32", "data": [1]}
    v2 = httpx.post(f"{live.url}/v2/models/own/infer", json={"inputs": [tensor]}).json()
    assert [worker.pid] == v2["outputs"][0]["data"]
    assert str(worker.pid) in httpx.post(f"{live.url}/endpoints/own/invocations", json=[1.0]).text
    teapot = httpx.post(seldon, json={"data": {"ndarray": [418]}})
    assert (teapot.status_code, teapot.json()["status"]["reason"]) == (418, "TEAPOT")
    assert {"error"} == own(live, 418).json().keys()
    refused = httpx.post(f"{live.url}/v2/models/own/infer", json={"inputs": [tensor], "outputs": [{"name": "Z"}]})
    assert refused.status_code == 400
    assert "'Z'" in refused.json()["error"]


def test_a_stream_crosses_whole_and_ends_with_its_client(live: LiveGateway) -> None:
    """All parts in their order; a client that leaves gives the worker free."""
    url = f"{live.url}/endpoints/own/invocations-response-stream"
    with httpx.stream("POST", url, json=[7.0]) as reply:
        parts = re.findall(rb'"Y":(\d+)', reply.read())
    assert [int(part) for part in parts] == list(range(1000))
    with httpx.stream("POST", url, json=[7.0]) as reply:
        next(reply.iter_raw(16))
    assert own(live).status_code == 200


def test_only_what_had_its_workers_there_is_gone_with_the_process(live: LiveGateway) -> None:
    """503 in the caller's dialect and when to come again, then answers again; others notice nothing."""
    first, (before,), (server,) = pools(live), below(live, "_child.py"), below(live, "server.py")
    first.send_signal(signal.SIGSTOP)
    answers: list[httpx.Response] = []
    asking = [threading.Thread(target=lambda: answers.append(own(live))) for _ in range(6)]
    for thread in asking:
        thread.start()
    live.wait_for_metric("tensorgate_requests_in_flight", 6)
    first.kill()
    for thread in asking:
        thread.join()
    assert {(503, "1")} == {(reply.status_code, reply.headers["retry-after"]) for reply in answers}
    assert "workers has ended" in answers[0].json()["error"]
    assert own(live, name="echo").status_code == 200
    assert becomes(lambda: own(live).status_code == 200 and len(below(live, "gateway.pools")) == 1, 10)
    assert becomes(lambda: {200} == {own(live).status_code for _ in range(8)}, 10)
    assert before.pid not in pids(live)
    assert live.metric("tensorgate_pool_process_restarts_total") == 1
    assert becomes(lambda: not before.is_running() and not server.is_running(), 5)
    (now,) = below(live, "server.py")
    assert becomes(lambda: httpx.get(f"{live.url}/services/web/").text == str(now.pid), 10)


def test_a_killed_worker_takes_only_the_call_that_it_was_busy_with(live: LiveGateway, tmp_path: Path) -> None:
    """Those that wait behind it, of whatever process, are answered by the next."""
    hold, (worker,) = tmp_path / "hold", below(live, "_child.py")
    hold.touch()
    busy: list[httpx.Response] = []
    others: list[httpx.Response] = []
    first = threading.Thread(target=lambda: busy.append(own(live, 9)))
    first.start()
    live.wait_for_metric("tensorgate_requests_in_flight", 1)
    asking = [threading.Thread(target=lambda: others.append(own(live))) for _ in range(8)]
    for thread in asking:
        thread.start()
    live.wait_for_metric("tensorgate_requests_in_flight", 9)
    worker.kill()
    for thread in [first, *asking]:
        thread.join()
    assert [reply.status_code for reply in busy] == [503]
    assert {200} == {reply.status_code for reply in others}


def test_a_deadline_ends_the_call_and_a_worker_that_goes_on(live: LiveGateway, tmp_path: Path) -> None:
    """504 in time; a worker that does not come to an end is replaced, whoever asks next."""
    (tmp_path / "hold").touch()
    (worker,) = below(live, "_child.py")
    url, headers = live.url + PREDICT.format("own"), {"X-Tensorgate-Deadline-Ms": "200"}
    late = httpx.post(url, json={"instances": [9.0]}, headers=headers)
    assert late.status_code == 504
    assert worker.pid not in pids(live, 4)


def test_a_killed_front_process_takes_none_of_the_workers(live: LiveGateway) -> None:
    """Its successor has the same ones."""
    before = below(live, "gateway.front")
    answering = pids(live)
    before[0].kill()
    assert becomes(lambda: len(below(live, "gateway.front")) == 2 and before[0] not in below(live, "gateway.front"), 10)
    live.wait_until("/readyz", 200)
    live.wait_for_metric("tensorgate_processes", 2)
    assert answering == pids(live)


def test_versions_come_and_go_with_their_workers(live: LiveGateway, tmp_path: Path) -> None:
    """A version that is told of has its worker; the worker of one that has gone ends. A reload keeps them."""
    (first,) = below(live, "_child.py")
    put_class(tmp_path / "models" / "own", 2)

    def told() -> bool:
        states: list[dict[str, Any]] = httpx.get(f"{live.url}/v1/models/own").json()["model_version_status"]
        return any(one["version"] == "2" and one["state"] == "AVAILABLE" for one in states)

    assert becomes(told, 10)
    assert first.pid not in pids(live)
    assert becomes(lambda: not first.is_running(), 10)
    (second,) = below(live, "_child.py")
    live.process.send_signal(signal.SIGHUP)
    live.wait_for_log("every process is a new one", 20)
    assert {second.pid} == pids(live)
    shutil.rmtree(tmp_path / "models" / "own")
    assert becomes(lambda: not second.is_running(), 10)


def test_what_services_ask_of_their_models_holds_for_all_processes(live: LiveGateway, tmp_path: Path) -> None:
    """Nodes are counted once, from the start and after a change; another environment brings other workers, once."""
    config = tmp_path / "gateway.toml"

    def adopt(nodes: int, environment: str) -> set[int]:
        service = f'[services.own]\nnodes = {nodes}\nenvironment = {{ LEVEL = "{environment}" }}'
        config.write_text(CONFIG.replace("[services.own]", service))
        reloads = live.errors().count("every process is a new one")
        live.process.send_signal(signal.SIGHUP)
        assert becomes(lambda: live.errors().count("every process is a new one") > reloads, 20)
        assert becomes(lambda: len(below(live, "_child.py")) == nodes, 10)
        return {one.pid for one in below(live, "_child.py")}

    two = adopt(2, "a")
    three = adopt(3, "a")
    assert two < three
    pools(live).kill()
    assert becomes(lambda: {one.pid for one in below(live, "_child.py")}.isdisjoint(three), 10)
    assert becomes(lambda: len(below(live, "_child.py")) == 3, 10)
    other = adopt(2, "b")
    assert not other & (two | three)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(live: LiveGateway, number: signal.Signals) -> None:
    """However the supervisor ends."""
    everybody = psutil.Process(live.process.pid).children(recursive=True)
    sockets = psutil.Process(live.process.pid).net_connections("unix")
    folders = {Path(one.laddr).parent for one in sockets if "tensorgate-" in str(one.laddr)}
    assert len(everybody) == 5
    assert {0o700} == {folder.stat().st_mode & 0o777 for folder in folders}
    live.process.send_signal(number)
    assert becomes(lambda: not any(one.is_running() for one in everybody), 20)
    # Told to end, the supervisor takes the folder away last of all.
    assert becomes(lambda: not any(folder.exists() for folder in folders), 10)


def test_a_gateway_without_such_models_has_no_such_process(tmp_path: Path) -> None:
    """What nobody asks for is not started."""
    put_echo(tmp_path / "models", "echo")
    with gateway("--models", tmp_path / "models", "--workers", "2") as live:
        assert own(live, name="echo").status_code == 200
        assert below(live, "gateway.pools") == []


def test_traces_show_the_worker_behind_two_processes(tmp_path: Path) -> None:
    """Its wait and its run are below the request's, as if the front process had it itself."""
    put_class(tmp_path / "models" / "own")
    traced, parent = "d" * 32, "00f067aa0ba902b7"
    with Collector() as collector:
        telemetry = f'[telemetry]\nendpoint = "{collector.url}"\nsample = 0.0\n'
        (tmp_path / "gateway.toml").write_text(CONFIG.partition("[services.own]")[0] + telemetry)
        with gateway(tmp_path / "gateway.toml") as live:
            headers = {"traceparent": f"00-{traced}-{parent}-01"}
            reply = httpx.post(live.url + PREDICT.format("own"), json={"instances": [1.0]}, headers=headers)
            spans = collector.trace(traced, 8)
    run, wait, work = (spans[name] for name in ("run", "worker.wait", "worker.run"))
    assert {wait.parent_span_id, work.parent_span_id} == {run.span_id}
    assert run.start_time_unix_nano < wait.start_time_unix_nano < work.end_time_unix_nano < run.end_time_unix_nano
    (pid,) = (one.value.int_value for one in work.attributes if one.key == "process.pid")
    assert reply.json() == {"predictions": [[pid]]}


def test_workers_end_once_their_model_is_idle_in_every_process(tmp_path: Path) -> None:
    """And are there again for the next request, in whichever process it comes."""
    put_class(tmp_path / "models" / "own")
    memory = 'workers = 2\nmodel_memory = "1 GiB"\nmodel_idle_seconds = 0.3'
    (tmp_path / "gateway.toml").write_text(CONFIG.partition("[services.own]")[0].replace("workers = 2", memory))
    with gateway(tmp_path / "gateway.toml") as live:
        assert becomes(lambda: not below(live, "_child.py"), 10)
        assert own(live).status_code == 200
        assert becomes(lambda: not below(live, "_child.py"), 10)


def test_the_socket_needs_no_short_name_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a socket cannot lie, because names would be too long, it lies elsewhere."""
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    put_class(tmp_path / "models" / "own")
    with gateway("--models", tmp_path / "models", "--workers", "2") as live:
        assert own(live).status_code == 200
        assert [path.name for path in folder.iterdir() if path.name.startswith("tensorgate-")] == []


@pytest.mark.parametrize(("placement", "workers"), [("auto", 1), ("inline", 0)])
def test_a_language_model_is_there_once(tmp_path: Path, placement: str, workers: int) -> None:
    """In a worker that all processes ask, unless each is to have it; it streams as it does with one process."""
    shutil.copytree(TINYCHAT, tmp_path / "models" / "tinychat")
    settings = tmp_path / "models" / "tinychat" / "model.toml"
    settings.write_text(f'placement = "{placement}"\n{settings.read_text()}')
    (tmp_path / "gateway.toml").write_text(CONFIG.partition("[services.own]")[0])
    body = {"model": "tinychat", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 8}
    with gateway(tmp_path / "gateway.toml") as live:
        assert len(below(live, "gateway.worker")) == workers
        url = f"{live.url}/v1/chat/completions"
        whole = [httpx.post(url, json=body).json()["choices"][0]["message"]["content"] for _ in range(6)]
        streamed = httpx.post(url, json={**body, "stream": True}).text
    assert len(set(whole)) == 1
    assert "".join(re.findall(r'"content":"([^"]*)"', streamed)) == whole[0]
    assert streamed.endswith("data: [DONE]\n\n")
