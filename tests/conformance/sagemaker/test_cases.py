"""The recorded cases over HTTP, against a live gateway that serves the cases' models on ONNX Runtime."""

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conformance.sagemaker import models
from conformance.sagemaker.cases import CASES, DIFFERENCES, Case, body, mismatch
from live import LiveGateway, gateway

LIVE = [case for case in CASES if case["id"] not in models.NOT_AS_FILES]

ECHOED = b'{"instances": ["a", "b"]}'
"""The cases' language model writes two tokens; the echo writes the two that it was sent."""

MODELS_ROOT = "/opt/ml/models"
"""Where the cases' models lie that are loaded by call; here it is a folder of the test's own."""


class Served:
    """The gateways that the cases need, and what the cases' models are called there."""

    def __init__(self, gateways: dict[str, LiveGateway], names: dict[str, str], root: Path) -> None:
        self._gateways = gateways
        self._names = names
        self._root = str(root).encode()

    def answer(self, case: Case) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body, with everything called as in the case."""
        config, given = case.get("config", {}), case["request"]
        kind = next((kind for kind, key in SETTING_OF.items() if key in config), "plain")
        live = self._gateways[kind]
        if kind == "loadable":
            self._load_just(live, config.get("loaded", []))
        name, called = models.serving_name(case, self._names), case["model"]["name"]
        path = given["path"].replace(f"/endpoints/{called}/", f"/endpoints/{name}/")
        sent = body(given).replace(MODELS_ROOT.encode(), self._root)
        if called == "llm":
            sent = ECHOED.replace(b"}", b', "stream": true}') if b"stream" in sent else ECHOED
        status, headers, text = _ask(
            live, given["method"], path, sent, {"X-Tensorgate-Service": name, **given["headers"]}
        )
        return status, headers, text.replace(self._root, MODELS_ROOT.encode())

    def _load_just(self, live: LiveGateway, names: list[str]) -> None:
        """Load those models by call, and no others."""
        for model in json.loads(_ask(live, "GET", "/models")[2])["models"]:
            assert _ask(live, "DELETE", f"/models/{model['modelName']}")[0] == 200
        for name in names:
            order = json.dumps({"model_name": name, "url": f"{self._root.decode()}/{name}/model"})
            assert _ask(live, "POST", "/models", order.encode())[0] == 200


def _ask(
    live: LiveGateway, method: str, path: str, sent: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=30)
    try:
        connection.request(method, path, sent or None, headers or {})
        reply = connection.getresponse()
        return reply.status, {key.lower(): value for key, value in reply.getheaders()}, reply.read()
    finally:
        connection.close()


SETTING_OF = {"accepting": "env", "small": "max_payload_mb", "loadable": "multi_model"}
"""Gateway -> the key of a case's `config` that asks for it."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("sagemaker")
    names: dict[str, str] = {}
    for case in LIVE:
        models.write(case, base / "models" / models.serving_name(case, names))
    _lay_out(base)
    plain = _config(base, "plain", _results(base) + _signed(base, names))
    small = _config(base, "small", f"[limits]\nbody_bytes = {6 << 20}\n")
    loadable = _config(
        base, "loadable", f"[models_control]\nenabled = true\nroots = {json.dumps(str(base / 'root'))}\n"
    )
    with ExitStack() as stack:
        gateways = {name: stack.enter_context(gateway(base / f"{name}.toml")) for name in (plain, small, loadable)}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in _variables().items():
                patch.setenv(name, value)
            gateways["accepting"] = stack.enter_context(gateway(base / f"{_config(base, 'accepting', '')}.toml"))
        for live in gateways.values():
            live.wait_until("/readyz", 200)
        yield Served(gateways, names, base / "root")


def _config(base: Path, name: str, tables: str) -> str:
    (base / f"{name}.toml").write_text(
        f'models_dir = "models"\n[gateway]\nprotocols = ["sagemaker"]\ndevice = "cpu"\n{tables}', "utf-8"
    )
    return name


def _lay_out(base: Path) -> None:
    """Models to load by call, and an object to read."""
    plain = next(case for case in LIVE if "config" not in case)
    for name in {name for case in LIVE for name in case.get("config", {}).get("loaded", ["m-hash-1"])}:
        models.write(plain, base / "root" / name / "model")
    (base / "objects").mkdir()
    (base / "objects" / "in.csv").write_text("1.5,16.0,14.0,23.0\n", "utf-8")


def _results(base: Path) -> str:
    return f'[results]\ndir = "results"\n[results.inputs]\n"s3://bucket" = {json.dumps(str(base / "objects"))}\n'


def _signed(base: Path, names: dict[str, str]) -> str:
    """The services that take signed calls only."""
    (base / "secret").write_text("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "utf-8")
    signer = '{ access_key_id = "AKIDEXAMPLE", secret = { file = "secret" } }'
    signed = {models.serving_name(case, names) for case in LIVE if models.is_signed(case)}
    return "".join(f"[services.{name}]\napp_auth = true\naws_credentials = [{signer}]\n" for name in signed)


def _variables() -> dict[str, str]:
    return {name: value for case in LIVE for name, value in case.get("config", {}).get("env", {}).items()}


@pytest.mark.parametrize("case", LIVE, ids=lambda case: case["id"])
def test_answer_is_as_recorded(served: Served, case: Case) -> None:
    """The gateway answers as the containers did, except where it differs on purpose, and there it does differ."""
    found = mismatch(case, *served.answer(case))
    if case["id"] in DIFFERENCES:
        assert found
    else:
        assert found == ""


def test_listed_cases_exist() -> None:
    """Every exception made here is for a case that there is, and none of them for one that is sure."""
    sure = {case["id"]: case["sure"] for case in CASES}
    assert DIFFERENCES.keys() | models.NOT_AS_FILES.keys() <= sure.keys()
    assert [name for name in DIFFERENCES if sure[name]] == []
