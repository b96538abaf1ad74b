"""Every protocol under load while versions come, workers are killed, and services change by file and by API."""

import json
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
from admin import Admin
from live import LiveGateway, gateway
from onnx_models import model, node, value, weight, write

CONFIG = """
models_dir = "models"
[gateway]
device = "cpu"
poll_seconds = 0.05
access_log = "off"
data_dir = "data"
admin_port = 0
operator_pages = "always"
[services.doubler]
type = "any"
[services.shifting]
model = "one"
[services.shifting.canary]
model = "two"
weight = 50
[services.locked]
model = "one"
app_auth = true
[services.other]
model = "two"
"""
DOUBLER = "import numpy as np\n\nclass Doubler:\n    def predict(self, X, names):\n        return np.asarray(X) * 2\n"
TINYCHAT = Path(__file__).parents[2] / "configs" / "models" / "tinychat"
SAID = {"model": "tinychat", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 4}
PAUSE_SECONDS = 0.7


def put_version(models: Path, number: int, name: str = "adder") -> None:
    """A version of y = x + number, there at once."""
    adds = model(
        [node("Add", ["x", "number"], ["y"])],
        [value("x", "float32")],
        [value("y", "float32")],
        [weight("number", np.float32([number]))],
    )
    write(adds, models.parent / "incoming")
    (models / name).mkdir(exist_ok=True)
    (models.parent / "incoming").rename(models / name / str(number))


class Scene:
    """A gateway, the folder it serves and the newest version of the adder in it."""

    def __init__(self, live: LiveGateway, models: Path) -> None:
        self.live = live
        self.models = models
        self.newest = 1
        self.client = httpx.Client(base_url=live.url, timeout=20)
        self.said = self.stream()
        self.admin = Admin(live)
        self.code: str = self.admin("POST", "/services/locked/keys", {"id": "chaos"}, 201)["code"]
        self.key = "chaos"
        self.runs = True
        """Whether the service that is started and stopped runs."""

    def stream(self) -> str:
        """What the language model says, without what differs from one answer to the next."""
        reply = self.client.post("/v1/chat/completions", json={**SAID, "stream": True})
        assert reply.status_code == 200, reply.text
        events = [line[6:] for line in reply.text.splitlines() if line.startswith("data: {")]
        assert "data: [DONE]" in reply.text
        return "".join(json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events)

    def post(self, path: str, content: object) -> httpx.Response:
        return self.client.post(path, json=content)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    models = tmp_path / "models"
    (models / "doubler" / "1").mkdir(parents=True)
    (models / "doubler" / "model.toml").write_text('backend = "pyclass"\n[pyclass]\nentry = "doubler:Doubler"\n')
    (models / "doubler" / "1" / "doubler.py").write_text(DOUBLER)
    shutil.copytree(TINYCHAT, models / "tinychat")
    put_version(models, 1)
    put_version(models, 1, "one")
    put_version(models, 2, "two")
    (tmp_path / "gateway.toml").write_text(CONFIG)
    with gateway(tmp_path / "gateway.toml") as live:
        scene = Scene(live, models)
        with closing(scene.client):
            yield scene


def _added(scene: Scene, path: str, body: Callable[[list[float]], object], rows: Callable[[dict], list]) -> str:
    """Ask the adder; its answer is that of one version that was there."""
    x = np.random.default_rng().integers(-50, 50, 3).astype(np.float32)
    reply = scene.post(path, body(x.tolist()))
    assert reply.status_code == 200, reply.text
    numbers = set((np.float32(rows(reply.json())) - x).tolist())
    assert len(numbers) == 1, (path, reply.text)
    assert numbers <= set(range(1, scene.newest + 1))
    return path


def _instances(x: list[float]) -> object:
    return {"instances": x}


def _v2(x: list[float]) -> object:
    return {"inputs": [{"name": "x", "shape": [len(x)], "datatype": "FP32", "data": x}]}


def _scores(reply: dict) -> list:
    return [score for row in reply["predictions"] for score in row.values()]


def _doubled(scene: Scene) -> str:
    """Ask the class; while no worker is there it may say so."""
    x = np.random.default_rng().integers(-50, 50, (1, 3)).astype(np.float32)
    reply = scene.post("/seldon/ns/doubler/api/v1.0/predictions", {"data": {"ndarray": x.tolist()}})
    if reply.status_code == 503:
        return "seldon, told to come again"
    assert reply.status_code == 200, reply.text
    assert (x * 2).tolist() == reply.json()["data"]["ndarray"]
    return "seldon"


def _streamed(scene: Scene) -> str:
    assert scene.said == scene.stream()
    return "openai"


def _shifted(scene: Scene) -> str:
    """Ask the service whose canary's weight moves; either deployment may answer, and says which it was."""
    reply = scene.post("/v1/models/shifting:predict", {"instances": [3.0]})
    assert reply.status_code == 200, reply.text
    expected = {"stable": 4.0, "canary": 5.0}[reply.headers["x-tensorgate-variant"]]
    assert [expected] == reply.json()["predictions"], reply.text
    return "canary"


def _opened(scene: Scene) -> str:
    """Ask with the key, which is replaced meanwhile, and now and then without."""
    headers = {"Authorization": f"APPCODE {scene.code}"}
    reply = scene.client.post("/v1/models/locked:predict", json={"instances": [3.0]}, headers=headers)
    assert (reply.status_code, reply.json().get("predictions")) == (200, [4.0]), reply.text
    stranger = scene.client.post("/v1/models/locked:predict", json={"instances": [3.0]})
    assert stranger.status_code in (401, 429)  # of so many without a key from one address some are told to wait
    return "key"


CALLERS: tuple[Callable[[Scene], str], ...] = (
    lambda scene: _added(scene, "/v1/models/adder:predict", _instances, lambda reply: reply["predictions"]),
    lambda scene: _added(scene, "/endpoints/adder/invocations", _instances, _scores),
    lambda scene: _added(scene, "/v2/models/adder/infer", _v2, lambda reply: reply["outputs"][0]["data"]),
    _doubled,
    _streamed,
    _shifted,
    _opened,
)


def disturb(scene: Scene, dice: random.Random) -> None:
    """One thing that happens to a gateway in its life."""
    what = dice.choice(("version", "kill", "hang up", "weight", "nodes", "key", "other"))
    if what == "version":
        scene.newest += 1
        put_version(scene.models, scene.newest)
    elif what == "kill":
        for worker in psutil.Process(scene.live.process.pid).children():
            worker.send_signal(signal.SIGKILL)
    elif what == "weight":
        scene.admin("PUT", "/services/shifting/canary/weight", {"weight": dice.randrange(101)})
    elif what == "nodes":
        scene.admin("PUT", "/services/doubler/nodes", {"nodes": dice.randint(1, 3)})
    elif what == "key":
        made = scene.admin("POST", f"/services/locked/keys/{scene.key}/rotate", {"overlap": "30s"}, 201)
        scene.code, scene.key = made["code"], made["key"]["id"]
    elif what == "other":
        scene.runs = not scene.runs
        scene.admin("POST", f"/services/other/{'start' if scene.runs else 'stop'}", {})
        status = 200 if scene.runs else 503
        assert scene.post("/v1/models/other:predict", {"instances": [3.0]}).status_code == status
    else:
        scene.live.process.send_signal(signal.SIGHUP)


def run(scene: Scene, seconds: float, seed: int) -> Counter[str]:
    """Call by every protocol at once, disturbed, and return how many answers each got."""
    answers: Counter[str] = Counter()
    failures: list[BaseException] = []
    until = time.monotonic() + seconds

    def call(caller: Callable[[Scene], str]) -> None:
        try:
            while time.monotonic() < until and not failures:
                answers[caller(scene)] += 1
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=call, args=[caller]) for caller in CALLERS]
    for thread in threads:
        thread.start()
    dice = random.Random(seed)
    while time.monotonic() < until and not failures:
        disturb(scene, dice)
        time.sleep(PAUSE_SECONDS)
    for thread in threads:
        thread.join()
    assert not failures, (seed, failures, scene.live.errors()[-2000:])
    scene.live.wait_for_metric("tensorgate_requests_in_flight", 0)
    print(seed, dict(answers))  # noqa: T201 - the figures of the run
    return answers


def test_every_answer_is_right_whatever_happens(scene: Scene) -> None:
    """In ten seconds of all that a gateway lives through no answer is wrong; without a worker it is 503."""
    answers = run(scene, 10, 6)
    assert len(answers - Counter({"seldon, told to come again": 1 << 30})) == len(CALLERS)


@pytest.mark.soak
def test_nor_in_two_minutes_of_a_new_seed(scene: Scene) -> None:
    """The same holds for two minutes of disturbances that are new each time."""
    answers = run(scene, 120, random.SystemRandom().randrange(1 << 32))
    assert answers["seldon"] > answers["seldon, told to come again"]
