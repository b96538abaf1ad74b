"""Inferences that are answered later, over HTTP in SageMaker's dialect: what lies in the results folder."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from live import LiveGateway, gateway

CSV = {"X-Amzn-SageMaker-Content-Type": "text/csv", "X-Amzn-SageMaker-Accept": "application/json"}
LATER = "/endpoints/{name}/async-invocations"


def lay_out(base: Path, tables: str = "", delay_ms: int = 0) -> Path:
    """A configuration with the echo `open`, the echo `keyed`, a results folder, and objects under s3://bucket."""
    for name in ("open", "keyed"):
        (base / "models" / name).mkdir(parents=True)
        (base / "models" / name / "model.toml").write_text(
            f'backend = "echo"\n[echo]\ndelay_ms = {delay_ms}\n[echo.inputs.x]\ndtype = "float32"\nshape = [-1, 2]\n'
        )
    (base / "objects").mkdir()
    (base / "objects" / "in.csv").write_text("5,6\n")
    (base / "gateway.toml").write_text(
        f'models_dir = "models"\n{tables}\n[results]\ndir = "results"\nuri = "s3://out/x"\n'
        '[results.inputs]\n"s3://bucket" = "objects"\n'
        '[services.keyed]\napp_auth = true\napp_codes = ["k"]\n'
    )
    return base / "gateway.toml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deferred")


@pytest.fixture(scope="module")
def live(folder: Path) -> Iterator[LiveGateway]:
    with gateway(lay_out(folder)) as running:
        running.wait_until("/readyz", 200)
        yield running


def defer(live: LiveGateway, body: str = "1,2\n3,4", name: str = "open", **headers: str) -> httpx.Response:
    """An asynchronous call with those headers, underscores as hyphens."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return httpx.post(live.url + LATER.format(name=name), content=body, headers=CSV | named)


def kept(folder: Path, uri: str) -> bytes:
    """The answer that the client was told of, once it is there."""
    path = folder / "results" / uri.removeprefix("s3://out/x/")
    until = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} did not come; {sorted(path.parent.iterdir())}"
        time.sleep(0.02)
    return path.read_bytes()


def test_the_answer_is_that_of_a_plain_call(live: LiveGateway, folder: Path) -> None:
    """Byte for byte, under the name that the 202 told."""
    told = defer(live, X_Amzn_SageMaker_Inference_Id="order-1")
    assert (told.status_code, told.json()) == (202, {"InferenceId": "order-1"})
    assert told.headers["x-amzn-sagemaker-outputlocation"] == "s3://out/x/order-1.out"
    assert told.headers["x-amzn-sagemaker-failurelocation"] == "s3://out/x/order-1.error"
    plain = httpx.post(
        f"{live.url}/endpoints/open/invocations",
        content="1,2\n3,4",
        headers={"Content-Type": "text/csv", "Accept": "application/json"},
    )
    assert kept(folder, "s3://out/x/order-1.out") == plain.content
    assert not (folder / "results" / "order-1.error").exists()


def test_an_object_is_read_where_it_lies(live: LiveGateway, folder: Path) -> None:
    """When its turn has come."""
    told = defer(live, "", X_Amzn_SageMaker_InputLocation="s3://bucket/in.csv")
    answer = json.loads(kept(folder, told.headers["x-amzn-sagemaker-outputlocation"]))
    assert answer == {"predictions": [{"x": [5.0, 6.0]}]}


@pytest.mark.parametrize(
    ("body", "headers", "text"),
    [
        ("1,2\n3,x", {}, "row 2"),
        ("1,2,3", {}, "2"),
        ("", {"X_Amzn_SageMaker_InputLocation": "s3://bucket/absent.csv"}, "there is no object"),
        ("1,2", {"X_Amzn_SageMaker_Accept": "image/png"}, "image/png"),
    ],
)
def test_what_is_wrong_with_the_input_is_told_later(
    live: LiveGateway, folder: Path, body: str, headers: dict[str, str], text: str
) -> None:
    """202, and then the body of the error that a plain call would get."""
    told = defer(live, body, **headers)
    assert told.status_code == 202
    error = json.loads(kept(folder, told.headers["x-amzn-sagemaker-failurelocation"]))
    assert text in error["Message"]
    assert str(folder) not in json.dumps(error)


@pytest.mark.parametrize(
    ("name", "headers", "status"),
    [
        ("nothing", {}, 400),
        ("keyed", {}, 403),
        ("keyed", {"Authorization": "APPCODE wrong"}, 403),
        ("open", {"X_Amzn_SageMaker_InputLocation": "s3://bucket/in.csv"}, 400),
    ],
)
def test_what_is_wrong_with_the_call_is_told_at_once(
    live: LiveGateway, folder: Path, name: str, headers: dict[str, str], status: int
) -> None:
    """An unknown endpoint, no key, or two inputs: nothing is deferred."""
    before = set((folder / "results").iterdir())
    assert defer(live, name=name, **headers).status_code == status
    assert set((folder / "results").iterdir()) == before


@pytest.mark.parametrize("location", ["s3://other/x", "s3://bucket/../gateway.toml", "file:///etc/passwd"])
def test_a_location_outside_the_inputs_is_refused_at_once(live: LiveGateway, location: str) -> None:
    """As the client's mistake."""
    reply = defer(live, "", X_Amzn_SageMaker_InputLocation=location)
    assert 400 <= reply.status_code < 500
    assert "input location" in reply.text


def test_a_key_opens_a_protected_service(live: LiveGateway, folder: Path) -> None:
    """The answer is then kept like any other."""
    told = defer(live, name="keyed", X_Tensorgate_Key="k")
    assert json.loads(kept(folder, told.headers["x-amzn-sagemaker-outputlocation"]))


def test_an_id_used_again_gets_an_answer_of_its_own(live: LiveGateway, folder: Path) -> None:
    """Both are told of the same id, and of different places."""
    first = defer(live, "1,2", X_Amzn_SageMaker_Inference_Id="twice")
    second = defer(live, "3,4", X_Amzn_SageMaker_Inference_Id="twice")
    places = [told.headers["x-amzn-sagemaker-outputlocation"] for told in (first, second)]
    assert [told.json() for told in (first, second)] == [{"InferenceId": "twice"}] * 2
    answers = [json.loads(kept(folder, place))["predictions"] for place in places]
    assert answers == [[{"x": [1.0, 2.0]}], [{"x": [3.0, 4.0]}]]


def test_nothing_is_deferred_without_a_folder(tmp_path: Path) -> None:
    """403, with the key to set."""
    with gateway("--models", lay_out(tmp_path).parent / "models") as live:
        live.wait_until("/readyz", 200)
        reply = defer(live)
        assert reply.status_code == 403
        assert "results.dir" in reply.text


# Leaving...


def test_a_leaving_gateway_finishes_what_is_pending(tmp_path: Path) -> None:
    """Those that run and those that wait, within the time to drain."""
    with gateway(lay_out(tmp_path, delay_ms=300)) as live:
        live.wait_until("/readyz", 200)
        told = [defer(live, X_Amzn_SageMaker_Inference_Id=f"i{number}").status_code for number in range(6)]
        live.process.send_signal(signal.SIGTERM)
        assert (set(told), live.process.wait(30)) == ({202}, 0)
    answers = {path.name for path in (tmp_path / "results").iterdir() if not path.name.startswith(".")}
    assert answers == {f"i{number}.out" for number in range(6)}


@pytest.mark.parametrize("signals", [1, 2])
def test_what_cannot_be_finished_says_so(tmp_path: Path, signals: int) -> None:
    """When the time is over, or at a second signal, what is pending gets an error that asks to send it again."""
    seconds = 1 if signals == 1 else 60
    tables = f"[gateway]\ndrain_seconds = {seconds}\n"
    with gateway(lay_out(tmp_path, tables, delay_ms=600_000)) as live:
        live.wait_until("/readyz", 200)
        for number in range(4):
            defer(live, X_Amzn_SageMaker_Inference_Id=f"i{number}")
        for _ in range(signals):
            live.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        assert live.process.wait(30) == 0
    for number in range(4):
        assert b"send it again" in (tmp_path / "results" / f"i{number}.error").read_bytes()
    assert list((tmp_path / "results").glob(".*.pending")) == []
