"""Many processes on one port: they are killed, stopped, replaced and reloaded while requests come."""

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
from live import LiveGateway, becomes, gateway, put_echo
from onnx_models import model, node, value, weight, write

BODY = {"instances": [1.0, 2.0]}
PREDICT = "/v1/models/{}:predict"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with one model that answers with what it was sent."""
    put_echo(tmp_path / "models", "echo")
    return tmp_path / "models"


def put_adder(folder: Path, number: float) -> None:
    """A version of a model of y = x + number, there at once."""
    adds = model(
        [node("Add", ["x", "number"], ["y"])],
        [value("x", "float32")],
        [value("y", "float32")],
        [weight("number", np.float32([number]))],
    )
    write(adds, folder.with_name(".incoming"))
    folder.with_name(".incoming").rename(folder)


def fronts(live: LiveGateway) -> list[int]:
    """The processes that answer requests."""
    return sorted(child.pid for child in psutil.Process(live.process.pid).children())


def gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)


def summary(live: LiveGateway) -> list[tuple[int, str]]:
    """Each slot's restarts and state."""
    page = httpx.get(f"{live.url}/statusz").json()
    return [(one["restarts"], one["state"]) for one in page["processes"]]


class Load:
    """Clients that keep asking, each on a connection of its own."""

    def __init__(self, ask: Callable[[httpx.Client], object], clients: int = 4) -> None:
        self.seen: Counter[object] = Counter()
        self._ask = ask
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def _run(self) -> None:
        with httpx.Client(timeout=20) as client:
            while not self._over.is_set():
                try:
                    self.seen[self._ask(client)] += 1
                except httpx.HTTPError as error:
                    self.seen[type(error).__name__] += 1

    @contextmanager
    def running(self) -> Iterator["Load"]:
        for thread in self._threads:
            thread.start()
        assert becomes(lambda: self.seen.total() > 20, 20)
        try:
            yield self
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()

    def goes_on(self, requests: int = 50) -> bool:
        """Whether so many more are answered."""
        goal = self.seen.total() + requests
        return becomes(lambda: self.seen.total() >= goal, 20)


def asking(live: LiveGateway, model: str = "echo") -> Load:
    return Load(lambda client: client.post(f"{live.url}{PREDICT.format(model)}", json=BODY).status_code)


def test_a_killed_process_takes_only_its_own_requests_with_it(models: Path) -> None:
    """Who was connected to it must connect again; everybody else is answered, and another takes its place."""
    with gateway("--models", models, "--workers", "2") as live, asking(live).running() as load:
        before = fronts(live)
        os.kill(before[0], signal.SIGKILL)
        assert becomes(lambda: len(fronts(live)) == 2 and before[0] not in fronts(live), 5)
        assert becomes(lambda: sorted(summary(live)) == [(0, "serving"), (1, "serving")], 5)
        assert load.goes_on()
    failed = load.seen.total() - load.seen[200]
    assert failed <= 4, load.seen
    assert set(load.seen) <= {200, "RemoteProtocolError", "ReadError", "ConnectError", "WriteError"}


def test_connections_in_the_queue_of_a_killed_process_are_answered_by_the_next(models: Path) -> None:
    """The socket outlives the process, so whoever the kernel has connected already only waits."""
    with gateway("--models", models, "--workers", "2") as live:
        before = fronts(live)
        for pid in before:
            os.kill(pid, signal.SIGSTOP)
        load = Load(lambda client: client.post(f"{live.url}{PREDICT.format('echo')}", json=BODY).status_code, 8)
        for thread in load._threads:
            thread.start()
        time.sleep(0.2)  # the requests are on their way; nothing can say that they have arrived
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert becomes(lambda: load.seen.total() >= 50, 20)
        load._over.set()
        for thread in load._threads:
            thread.join()
    assert set(load.seen) == {200}


def test_a_process_that_hangs_is_replaced(models: Path, tmp_path: Path) -> None:
    """A process whose event loop stands still answers no beat, and is ended."""
    config = tmp_path / "gateway.toml"
    config.write_text('models_dir = "models"\n[gateway]\nworkers = 2\nhang_seconds = 0.5\n')
    with gateway(config) as live:
        before = fronts(live)
        os.kill(before[0], signal.SIGSTOP)
        assert becomes(lambda: before[0] not in fronts(live) and len(fronts(live)) == 2, 10)
        assert before[1] in fronts(live)


def test_hanging_up_replaces_every_process_and_no_request_fails(models: Path) -> None:
    """SIGHUP brings new processes on the same sockets, one after another, under whatever load."""
    with gateway("--models", models, "--workers", "2") as live, asking(live).running() as load:
        before = fronts(live)
        live.process.send_signal(signal.SIGHUP)
        live.wait_for_log("every process is a new one", 20)
        assert not set(before) & set(fronts(live))
        assert load.goes_on()
    assert set(load.seen) == {200}


def test_hanging_up_reads_the_configuration_again(models: Path, tmp_path: Path) -> None:
    """What the file says then holds; a file that is wrong changes nothing."""
    config = tmp_path / "gateway.toml"
    config.write_text('models_dir = "models"\n[gateway]\nworkers = 2\n')
    with gateway(config) as live:
        assert httpx.post(f"{live.url}{PREDICT.format('mirror')}", json=BODY).status_code == 404
        config.write_text('models_dir = "models"\n[gateway]\nworkers = 2\n[services.mirror]\nmodel = "echo"\n')
        live.process.send_signal(signal.SIGHUP)
        live.wait_for_log("every process is a new one", 20)
        before = fronts(live)
        assert {httpx.post(f"{live.url}{PREDICT.format('mirror')}", json=BODY).status_code for _ in range(8)} == {200}
        config.write_text("nonsense = 1\n")
        live.process.send_signal(signal.SIGHUP)
        live.wait_for_log("not reloaded: gateway.toml", 20)
        assert fronts(live) == before


def test_no_process_answers_by_a_version_after_it_was_taken_offline(tmp_path: Path) -> None:
    """Once anybody was told that the new version is available, nobody gets the old one."""
    folder = tmp_path / "models" / "line"
    put_adder(folder / "1", 1.0)
    with gateway("--models", tmp_path / "models", "--workers", "3") as live:
        told = threading.Event()
        mixed: list[object] = []

        def ask(client: httpx.Client) -> object:
            late = told.is_set()
            with httpx.Client(timeout=20) as fresh:  # a new connection comes to any of the processes
                answer = fresh.post(f"{live.url}{PREDICT.format('line')}", json={"instances": [0.0]}).json()
                state = fresh.get(f"{live.url}/v1/models/line").json()["model_version_status"]
            if late and answer != {"predictions": [2.0]}:
                mixed.append(answer)
            if any(one["version"] == "2" and one["state"] == "AVAILABLE" for one in state):
                told.set()
            return str(answer)

        with Load(ask).running() as load:
            put_adder(folder / "2", 2.0)
            assert told.wait(20)
            assert load.goes_on()
    assert not mixed
    assert set(load.seen) == {"{'predictions': [1.0]}", "{'predictions': [2.0]}"}


def test_the_metrics_count_what_all_processes_have_done(models: Path) -> None:
    """Whichever process is asked, and even after one has ended."""
    with gateway("--models", models, "--workers", "2") as live:
        for _ in range(20):
            httpx.post(f"{live.url}{PREDICT.format('echo')}", json=BODY)
        assert live.metric("tensorgate_requests_total", service="echo") == 20
        assert live.metric("tensorgate_processes") == 2
        os.kill(fronts(live)[0], signal.SIGKILL)
        assert becomes(lambda: live.metric("tensorgate_process_restarts_total") == 1, 5)
        assert live.metric("tensorgate_requests_total", service="echo") == 20
        live.wait_for_metric("tensorgate_processes", 2)
        assert live.metric("tensorgate_model_state", model="echo", state="AVAILABLE") == 1
        live.wait_for_log('"service":"echo"')


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_drains_every_process(models: Path, number: signal.Signals) -> None:
    """The exit code is 0, and nothing is left."""
    live = LiveGateway("--models", str(models), "--workers", "2")
    before = fronts(live)
    assert len(before) == 2
    assert live.stop(number) == 0
    assert gone(before)


def test_without_their_supervisor_the_processes_leave(models: Path) -> None:
    """They finish what they have, and then nobody listens on the port."""
    live = LiveGateway("--models", str(models), "--workers", "2")
    before = fronts(live)
    live.stop(signal.SIGKILL)
    assert becomes(lambda: gone(before), 10)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{live.url}/healthz")


def test_processes_that_cannot_begin_are_given_up(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start, a process that ends again and again is told of, and so is what the configuration has wrong."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'gateway.front' in sys.orig_argv:\n    os._exit(7)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    with pytest.raises(AssertionError, match=r"ended 3 times before it could serve: it ended with exit code 7"):
        LiveGateway("--models", str(models), "--workers", "2")
