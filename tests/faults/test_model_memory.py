"""More models than the memory may hold, on a real gateway: every request is answered, and what is unloaded is gone."""

import concurrent.futures
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
from live import LiveGateway, becomes, gateway
from onnx_models import model as model_of
from onnx_models import node, value, weight

MODELS = 8
MIB = 1 << 20
CONFIG = """
models_dir = "models"
[gateway]
protocols = ["tfserving", "v2"]
device = "cpu"
poll_seconds = 0.05
access_log = "off"
model_memory = "60MiB"
"""


def _adds(number: float) -> bytes:
    """A model of y = x + number with 16 MiB of weights."""
    weights = [weight("number", np.float32([number])), weight("padding", np.zeros(16 * MIB, np.uint8))]
    nodes = [node("Add", ["x", "number"], ["y"]), node("Identity", ["padding"], ["unused"])]
    return bytes(model_of(nodes, [value("x", "float32")], [value("y", "float32")], weights).SerializeToString())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memory")


@pytest.fixture(scope="module")
def live(root: Path) -> Iterator[LiveGateway]:
    for number in range(MODELS):
        folder = root / "models" / f"m{number}" / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(_adds(number))
    broad = root / "models" / "broad"
    (broad / "1").mkdir(parents=True)
    (broad / "1" / "model.onnx").write_bytes(_adds(99))
    (broad / "model.toml").write_text('memory = "1GiB"')
    config = root / "gateway.toml"
    config.write_text(CONFIG)
    with gateway(config) as live:
        yield live


def _ask(live: LiveGateway, number: int) -> None:
    reply = httpx.post(f"{live.url}/v1/models/m{number}:predict", json={"instances": [1.0]})
    assert reply.json() == {"predictions": [1.0 + number]}


def test_every_model_answers_within_the_budget(live: LiveGateway) -> None:
    """Models that do not fit together all answer, in whatever order they are asked, and the process stays small."""
    process = psutil.Process(live.process.pid)
    for number in range(MODELS):
        _ask(live, number)
    before = process.memory_info().rss
    for step in range(5 * MODELS):
        _ask(live, step * 3 % MODELS)
        assert live.metric("tensorgate_model_memory_bytes") <= 60 * MIB
    assert process.memory_info().rss - before < 24 * MIB
    assert live.metric("tensorgate_model_reloads_total") > 20
    assert live.metric("tensorgate_model_evictions_total", reason="room") > 20


def test_many_callers_at_once(live: LiveGateway) -> None:
    """Requests for all of the models at the same time wait for their turn, and none fails."""
    with concurrent.futures.ThreadPoolExecutor(8) as callers:
        asked = [callers.submit(_ask, live, step % MODELS) for step in range(4 * MODELS)]
        for one in asked:
            one.result()
    live.wait_for_metric("tensorgate_requests_in_flight", 0)


def test_what_is_unloaded_is_ready(live: LiveGateway) -> None:
    """A model that made room is still told as available by every protocol: a request is all that it takes."""
    for number in range(MODELS):
        status = httpx.get(f"{live.url}/v1/models/m{number}").json()
        assert status["model_version_status"][0]["state"] == "AVAILABLE"
        assert httpx.get(f"{live.url}/v2/models/m{number}/ready").status_code == 200
    notes = [one["note"] for one in httpx.get(f"{live.url}/statusz").json()["models"]]
    assert "unloaded; the next request loads it" in notes


def test_what_never_fits_says_so(live: LiveGateway) -> None:
    """A model larger than the budget is listed with the reason, and its callers are told."""
    told = httpx.get(f"{live.url}/v1/models/broad").json()["model_version_status"][0]
    reason = "broad version 1 takes 1 GiB, which does not fit into the 60 MiB of model_memory"
    assert (told["state"], reason in told["status"]["error_message"]) == ("END", True)


def test_files_that_change_while_unloaded(live: LiveGateway, root: Path) -> None:
    """A model whose files change while it is unloaded answers as the new ones say, and no request fails meanwhile."""
    for number in (1, 2, 3, 4):
        _ask(live, number)
    assert live.metric("tensorgate_model_memory_bytes", model="m0") == 0
    folder = root / "models" / "m0" / "1"
    (folder / ".incoming").write_bytes(_adds(50))
    (folder / ".incoming").rename(folder / "model.onnx")
    answers = []

    def changed() -> bool:
        reply = httpx.post(f"{live.url}/v1/models/m0:predict", json={"instances": [1.0]})
        answers.append(reply.json()["predictions"][0])
        return answers[-1] == 51.0

    assert becomes(changed, 10)
    assert set(answers) <= {1.0, 51.0}


def test_a_deadline_is_kept(live: LiveGateway) -> None:
    """A caller who cannot wait for the load gets the protocol's deadline error, or the answer in time."""
    for number in range(MODELS):
        reply = httpx.post(
            f"{live.url}/v1/models/m{number}:predict",
            json={"instances": [1.0]},
            headers={"X-Tensorgate-Deadline-Ms": "1"},
        )
        assert reply.status_code in (200, 504), reply.text
    _ask(live, 1)
