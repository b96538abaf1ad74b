"""The recorded cases over HTTP, against a live gateway that serves the cases' models on ONNX Runtime."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.tfserving import models
from conformance.tfserving.cases import CASES, DIFFERENCES, Case, body, mismatch
from live import LiveGateway, gateway

LIVE_DIFFERENCES = DIFFERENCES | {
    "out-bytes-binary-roundtrip": "ONNX Runtime cannot carry strings that are not UTF-8",
    "err-method-trace": "400 in the dialect instead of a page of the web server's",
    "err-not-v1-v2": "404 as JSON instead of a page of the web server's",
    "err-v1-no-slash": "404 as JSON instead of a page of the web server's",
}

LIVE = [case for case in CASES if case["id"] not in models.STATES_THAT_FILES_CANNOT_HOLD]
CORS = '[protocols.tfserving]\ncors_origins = ["*"]\n'


class Served:
    """The gateways that the cases need, and what the cases' models are called there."""

    def __init__(self, folder: Path, plain: LiveGateway, cors: LiveGateway, names: dict[str, str]) -> None:
        self.folder = folder
        self._plain = plain
        self._cors = cors
        self._names = names

    def answer(self, case: Case) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body, with the model called as in the case."""
        live = self._cors if case.get("server_flags") else self._plain
        name = models.serving_name(case, self._names)
        given = case["request"]
        path = given["path"].replace("/models/M", f"/models/{name}").replace("/Models/M", f"/Models/{name}")
        connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=30)
        try:
            connection.request(given["method"], path, body(given), given.get("headers", {}))
            reply = connection.getresponse()
            text = reply.read().replace(name.encode(), case.get("model", {}).get("name", "M").encode())
            return reply.status, {key.lower(): value for key, value in reply.getheaders()}, text
        finally:
            connection.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("models")
    names: dict[str, str] = {}
    for case in LIVE:
        models.write(case, folder / models.serving_name(case, names))
    config = folder.parent / "tfserving.toml"
    config.write_text(f'models_dir = {json.dumps(str(folder))}\n[gateway]\nprotocols = ["tfserving"]\ndevice = "cpu"\n')
    cors = folder.parent / "cors.toml"
    cors.write_text(config.read_text("utf-8") + CORS)
    with gateway(config) as plain, gateway(cors) as open_to_pages:
        plain.wait_until("/readyz", 200)
        open_to_pages.wait_until("/readyz", 200)
        yield Served(folder, plain, open_to_pages, names)


@pytest.mark.parametrize("case", LIVE, ids=lambda case: case["id"])
def test_answer_is_as_recorded(served: Served, case: Case) -> None:
    """The gateway answers as TF Serving did, except where it differs on purpose, and there it does differ."""
    found = mismatch(case, *served.answer(case))
    if case["id"] in LIVE_DIFFERENCES:
        assert found
    else:
        assert found == ""


def test_listed_cases_exist() -> None:
    """Every exception made here is for a case that there is."""
    listed = LIVE_DIFFERENCES.keys() | models.STATES_THAT_FILES_CANNOT_HOLD.keys()
    assert listed <= {case["id"] for case in CASES}
