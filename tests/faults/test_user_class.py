"""What a user's class may do to its own process does no more than that: its callers are told, and others go on."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from live import LiveGateway, gateway

BACK_SECONDS = 15.0
"""Three times what a worker may take to be back."""

MOODY = """
import os
import time

held = []
seen = []

class Moody:
    def predict(self, X, names):
        mood = str(X[0])
        seen.append(mood)
        if mood == "sleep":
            seen[:] = [mood]
            time.sleep(0.7)
        if mood == "seen":
            return seen
        if mood == "raise":
            raise ValueError("not today")
        if mood == "exit":
            os._exit(3)
        if mood == "exit once" and not os.path.exists(os.environ["MARK"]):
            open(os.environ["MARK"], "w").close()
            os._exit(3)
        if mood == "hang":
            while True:
                pass
        if mood == "leak":
            while True:
                held.append(b"x" * (1 << 20))
                time.sleep(0.001)
        if mood == "grab":
            bytearray(8 << 30)
        if mood == "print":
            line = "y" * 1023
            for _ in range(50 << 10):
                print(line)
            return ["printed"]
        if mood == "fork":
            if os.fork() == 0:
                time.sleep(60)
        return [str(os.getpid())]
"""

SETTINGS = """
backend = "pyclass"
[pyclass]
entry = "moody:Moody"
deadline_ms = 1500
memory_mb = 256
environment = { MARK = "%s" }
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway with one class that has moods, and a neighbour."""
    with gateway("--models", folder(tmp_path_factory.mktemp("models"))) as live:
        live.wait_until("/readyz", 200)
        yield live


def folder(root: Path) -> Path:
    """The two models."""
    (root / "moody" / "1").mkdir(parents=True)
    (root / "moody" / "1" / "moody.py").write_text(MOODY)
    (root / "moody" / "model.toml").write_text(SETTINGS % (root / ".mark"))
    (root / "still").mkdir()
    (root / "still" / "model.toml").write_text('backend = "echo"\n')
    return root


def ask(live: LiveGateway, mood: str) -> httpx.Response:
    return httpx.post(f"{live.url}/v1/models/moody:predict", json={"instances": [mood]}, timeout=30)


def pid(live: LiveGateway) -> int:
    """The process that answers now; asked until there is one."""
    until = time.monotonic() + BACK_SECONDS
    while (reply := ask(live, "pid")).status_code != 200:
        assert reply.status_code in (503, 504), reply.text
        assert time.monotonic() < until, "no worker is back"
        time.sleep(0.05)
    return int(reply.json()["predictions"][0])


def neighbour_answers(live: LiveGateway) -> bool:
    reply = httpx.post(f"{live.url}/v1/models/still:predict", json={"instances": [1.5]}, timeout=1)
    return bool(reply.json() == {"predictions": [1.5]})


def gone(number: int, seconds: float = BACK_SECONDS) -> bool:
    """Whether the process has ended, or does in time."""
    until = time.monotonic() + seconds
    while psutil.pid_exists(number) and psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_an_exception_is_an_answer(live: LiveGateway) -> None:
    """The caller gets the exception's text, the log its traceback, and the worker stays."""
    before = pid(live)
    reply = ask(live, "raise")
    assert (reply.status_code, reply.json()) == (500, {"error": "not today"})
    live.wait_for_log("moody version 1: ValueError: not today")
    assert pid(live) == before


def test_a_worker_that_exits_is_replaced(live: LiveGateway) -> None:
    """A request that ends its worker twice is told that it may be repeated; the next one finds a new worker."""
    before = pid(live)
    reply = ask(live, "exit")
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "1"
    assert "worker ended with exit code 3 while it answered" in reply.json()["error"]
    assert neighbour_answers(live)
    assert pid(live) != before


def test_a_call_is_made_once_more(live: LiveGateway) -> None:
    """Where only the worker was at fault, its successor answers, and the caller sees nothing of it."""
    assert ask(live, "exit once").status_code == 200


def test_a_hanging_class_is_ended(live: LiveGateway) -> None:
    """Past the deadline the caller gets 504, and soon another worker answers; neighbours do not wait."""
    before = pid(live)
    replies: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: replies.append(ask(live, "hang")))
    started = time.monotonic()
    thread.start()
    assert neighbour_answers(live)
    thread.join(30)
    assert replies[0].status_code == 504
    assert 1.4 < time.monotonic() - started < 4.5
    assert pid(live) != before
    assert gone(before)


@pytest.mark.parametrize(
    ("mood", "words"), [("leak", "used more memory than its limit of 256 MiB"), ("grab", "ran out of memory")]
)
def test_memory_has_a_limit(live: LiveGateway, mood: str, words: str) -> None:
    """Whether it leaks or grabs, a worker that takes more than its share is replaced, and the caller told why."""
    before = pid(live)
    reply = ask(live, mood)
    assert reply.status_code == 503
    assert words in reply.json()["error"]
    assert neighbour_answers(live)
    assert pid(live) != before


def test_a_killed_worker_costs_no_request(live: LiveGateway) -> None:
    """At 50 requests a second, with two SIGKILLs in their midst, every request is answered."""
    statuses: list[int] = []
    threads = [threading.Thread(target=lambda: statuses.append(ask(live, "pid").status_code)) for _ in range(100)]
    victim = pid(live)
    for number, thread in enumerate(threads):
        thread.start()
        if number in (20, 70):
            os.kill(victim if number == 20 else pid(live), signal.SIGKILL)
        time.sleep(0.02)
    for thread in threads:
        thread.join(30)
    assert statuses == [200] * 100


def test_printing_neither_blocks_nor_fills(live: LiveGateway) -> None:
    """50 MB of output pass by: the call ends in time, the gateway's memory and log hardly grow."""
    process = psutil.Process(live.process.pid)
    memory, logged = process.memory_info().rss, len(live.errors())
    replies: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: replies.append(ask(live, "print")))
    thread.start()
    while thread.is_alive():
        assert neighbour_answers(live)
    assert replies[0].json() == {"predictions": ["printed"]}
    live.wait_for_log("bytes of output are left out")
    assert process.memory_info().rss - memory < 30 << 20
    assert len(live.errors()) - logged < 4 << 20


def test_what_the_class_started_ends_with_it(live: LiveGateway) -> None:
    """A child of a worker does not outlive it."""
    worker = pid(live)
    ask(live, "fork")
    children = [child.pid for child in psutil.Process(worker).children(recursive=True)]
    assert children
    ask(live, "exit")
    assert all(map(gone, children))


# Classes that do not even load...

BROKEN = {
    "import": ("import no_such_library\n", "ModuleNotFoundError: No module named 'no_such_library'"),
    "syntax": ("class Moody:\n    def predict(self X):\n", "SyntaxError: "),
    "class": ("class Other:\n    pass\n", "there is no class 'Moody' in moody.py"),
    "constructor": ("class Moody:\n    def __init__(self, size):\n        pass\n", "TypeError: "),
    "load": ("class Moody:\n    def load(self):\n        open('/no/such/file')\n", "No such file or directory: file"),
    "exit": ("import os\nos._exit(7)\n", "the worker ended with exit code 7 before it was ready; the log has"),
    "words": (
        "import os\nprint('no room', flush=True)\nos._exit(7)\n",
        "the worker ended with exit code 7 before it was ready: no room",
    ),
}


def test_a_class_that_does_not_load_says_why(tmp_path: Path) -> None:
    """Its status tells the reason without a path, its neighbours serve, and once it is mended it serves too."""
    for name, (text, _) in BROKEN.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "moody.py").write_text(text)
        (tmp_path / name / "model.toml").write_text('backend = "pyclass"\n[pyclass]\nentry = "moody:Moody"\n')
    folder(tmp_path)
    with gateway("--models", tmp_path) as live:
        for name, (_, reason) in BROKEN.items():
            status = httpx.get(f"{live.url}/v1/models/{name}").json()["model_version_status"][0]
            assert status["state"] == "END"
            assert reason in status["status"]["error_message"]
            assert str(tmp_path) not in status["status"]["error_message"]
        assert neighbour_answers(live)
        (tmp_path / "syntax" / "1" / "moody.py").write_text(MOODY)
        live.wait_for_log("syntax version 1: available")
        reply = httpx.post(f"{live.url}/v1/models/syntax:predict", json={"instances": ["pid"]})
        assert reply.status_code == 200


def test_a_broken_update_leaves_the_old_class_serving(tmp_path: Path) -> None:
    """A syntax error that is saved over a serving class is told of, and the class that was loaded answers on."""
    with gateway("--models", folder(tmp_path)) as live:
        live.wait_until("/readyz", 200)
        before = pid(live)
        (tmp_path / "moody" / "1" / "moody.py").write_text("class Moody\n")
        live.wait_for_log("moody version 1: not loaded: SyntaxError")
        assert pid(live) == before


# No process is left behind...


@pytest.mark.parametrize(
    ("number", "mood"), [(signal.SIGTERM, "pid"), (signal.SIGKILL, "pid"), (signal.SIGKILL, "hang")]
)
def test_no_worker_outlives_the_gateway(tmp_path: Path, number: int, mood: str) -> None:
    """However the gateway ends, and whatever its worker is doing then."""
    with gateway("--models", folder(tmp_path)) as live:
        live.wait_until("/readyz", 200)
        worker = pid(live)
        threading.Thread(target=lambda: _ignoring_errors(live, mood)).start()
        if mood == "hang":
            live.wait_for_metric("tensorgate_requests_in_flight", 1)
        live.stop(number)
        assert gone(worker)


def _ignoring_errors(live: LiveGateway, mood: str) -> None:
    with contextlib.suppress(httpx.HTTPError):
        ask(live, mood)


def test_a_caller_who_leaves_gives_up_the_turn(live: LiveGateway) -> None:
    """A call whose caller has left before the class came to it never reaches the class."""
    first = threading.Thread(target=lambda: ask(live, "sleep"))
    first.start()
    live.wait_for_metric("tensorgate_requests_in_flight", 1)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{live.url}/v1/models/moody:predict", json={"instances": ["left"]}, timeout=0.2)
    first.join(30)
    assert ask(live, "seen").json()["predictions"] == ["sleep", "seen"]
