"""One tensor in every format, on a real model: equal to the last bit, and equal to what TF Serving's protocol gives."""

import io
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from conformance.sagemaker.cases import labels
from live import LiveGateway, gateway

from adapters._record_pb2 import Record
from adapters._recordio_labels import frame

KMEANS = Path(__file__).resolve().parents[3] / "configs" / "models" / "iris_kmeans"
SCORES_ALONE = '[signatures.serving_default]\noutputs = { scores = "scores" }\n[response]\nform = "bare"\n'

JSON, LINES, RECORDIO, NPY = (
    "application/json",
    "application/jsonlines",
    "application/x-recordio-protobuf",
    "application/x-npy",
)

RANDOM = np.random.default_rng(7)
ROWS = np.concatenate(
    [
        RANDOM.normal(3, 2, (20, 4)),
        RANDOM.normal(0, 1, (10, 4)) * 10.0 ** RANDOM.integers(-20, 15, (10, 4)),
        [[0.0, -0.0, 1e-45, 3e15], [1 / 3, 16777217, 0.1, -1]],
    ]
).astype(np.float32)


def saved(array: np.ndarray) -> bytes:
    """What numpy saves."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zipped(array: np.ndarray) -> bytes:
    """What numpy saves of several."""
    file = io.BytesIO()
    np.savez_compressed(file, array)
    return file.getvalue()


def records(kind: str, sparse: bool = False) -> bytes:
    """A record for each row, by Google's own protobuf."""
    frames = []
    for row in ROWS.tolist():
        record = Record()
        tensor = getattr(record.features["values"], kind)
        tensor.values.extend(row[::-1] if sparse else row)
        if sparse:
            tensor.keys.extend(range(len(row) - 1, -1, -1))
            tensor.shape.append(len(row))
        frames.append(frame(record.SerializeToString()))
    return b"".join(frames)


def csv(separator: str, cells: Callable[[list[float]], Iterable[str]]) -> bytes:
    """A line for each row."""
    return "".join(separator.join(cells(row)) + "\r\n" for row in ROWS.tolist()).encode()


def lines(instances: list[Any]) -> bytes:
    """A value a line."""
    return "".join(f"{json.dumps(instance)}\n" for instance in instances).encode()


LISTS = ROWS.tolist()
DENSE = [{"features": row} for row in LISTS]
SPARSE = [{"data": {"features": {"keys": [3, 2, 1, 0], "shape": [4], "values": row[::-1]}}} for row in LISTS]
MIXED = [one[index % 2] for index, one in enumerate(zip(DENSE, SPARSE, strict=True))]

BODIES: dict[str, tuple[str, bytes]] = {
    "csv": ("text/csv", csv(",", lambda row: map(repr, row))),
    "csv with labels": ("text/csv; label_size=1", csv(",", lambda row: ["9", *map(repr, row)])),
    "csv in quotes": ("TEXT/CSV;charset=utf-8", csv(",", lambda row: [f'"{x!r}"' for x in row])),
    "json": (JSON, json.dumps(LISTS).encode()),
    "json instances": (JSON, json.dumps({"instances": LISTS}).encode()),
    "json features": (JSON, json.dumps({"instances": DENSE}).encode()),
    "json features, indented": (JSON, json.dumps({"instances": DENSE}, indent=1).encode()),
    "json sparse": (JSON, json.dumps({"instances": SPARSE}).encode()),
    "json mixed": (JSON, json.dumps({"instances": MIXED}).encode()),
    "json inputs": (JSON, json.dumps({"inputs": {"X": LISTS}}).encode()),
    "json in quotes": (JSON, json.dumps([[repr(x) for x in row] for row in LISTS]).encode()),
    "json back to back": (JSON, lines(MIXED)),
    "jsonlines": (LINES, lines(DENSE)),
    "jsonlines mixed": ("application/x-jsonlines", lines(MIXED)),
    "recordio": (RECORDIO, records("float32_tensor")),
    "recordio of float64": (RECORDIO, records("float64_tensor")),
    "recordio sparse": (RECORDIO, records("float32_tensor", sparse=True)),
    "libsvm": ("text/libsvm", csv(" ", lambda row: ["1", *(f"{i}:{x!r}" for i, x in enumerate(row))])),
    "npy": (NPY, saved(ROWS)),
    "npy of float64": (NPY, saved(ROWS.astype(np.float64))),
    "npy by columns": (NPY, saved(np.asfortranarray(ROWS.astype(">f4")))),
    "npz": ("application/x-npz", zipped(ROWS)),
    "untyped": ("", json.dumps(LISTS).encode()),
}  # fmt: skip


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """The k-means model as it is in the demo, and once more with its scores alone."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(KMEANS, folder / "iris_kmeans")
    shutil.copytree(KMEANS, folder / "scores")
    (folder / "scores" / "model.toml").write_text(SCORES_ALONE, "utf-8")
    with gateway("--models", folder, "--device", "cpu") as live:
        live.wait_until("/readyz", 200)
        yield live


@pytest.fixture(scope="module")
def expected(live: LiveGateway) -> bytes:
    """The scores by TF Serving's protocol, as bytes."""
    reply = httpx.post(f"{live.url}/v1/models/scores:predict", json={"instances": LISTS})
    return np.array(reply.json()["predictions"], np.float32).tobytes()


def ask(live: LiveGateway, name: str, content_type: str, body: bytes, accept: str) -> httpx.Response:
    """An invocation of the endpoint."""
    headers = {"Accept": accept} | ({"Content-Type": content_type} if content_type else {})
    return httpx.post(f"{live.url}/endpoints/{name}/invocations", content=body, headers=headers)


@pytest.mark.parametrize("name", BODIES)
def test_every_format_is_the_same_tensor(live: LiveGateway, expected: bytes, name: str) -> None:
    """What the model makes of it is equal to the last bit."""
    reply = ask(live, "scores", *BODIES[name], NPY)
    assert reply.status_code == 200, reply.text
    scores = np.load(io.BytesIO(reply.content))
    assert (scores.dtype, scores.shape, scores.tobytes()) == (np.float32, (len(ROWS), 3), expected)


@pytest.mark.parametrize("accept", [JSON, LINES, "text/csv", RECORDIO, NPY])
def test_every_answer_is_the_same_tensor(live: LiveGateway, expected: bytes, accept: str) -> None:
    """Read back from each type, the scores are equal to the last bit."""
    reply = ask(live, "scores", *BODIES["npy"], accept)
    assert reply.headers["content-type"] == accept
    read = {
        JSON: lambda: reply.json(),
        LINES: lambda: [json.loads(line) for line in reply.text.splitlines()],
        "text/csv": lambda: [[float(cell) for cell in line.split(",")] for line in reply.text.splitlines()],
        RECORDIO: lambda: [record["scores"] for record in labels(reply.content)],
        NPY: lambda: np.load(io.BytesIO(reply.content)),
    }[accept]
    assert np.array(read(), np.float32).tobytes() == expected


def test_kmeans_of_aws(live: LiveGateway, expected: bytes) -> None:
    """The developer guide's k-means answer in each of its types, by a model of scikit-learn."""
    scores = np.frombuffer(expected, np.float32).reshape(-1, 3)
    clusters = [{"closest_cluster": float(np.argmin(row)), "distance_to_cluster": float(min(row))} for row in scores]
    body = BODIES["csv"]
    assert _floats(ask(live, "iris_kmeans", *body, JSON).json()["predictions"]) == clusters
    answer = ask(live, "iris_kmeans", *body, LINES).text
    assert _floats([json.loads(line) for line in answer.splitlines()]) == clusters
    cells = [line.split(",") for line in ask(live, "iris_kmeans", *body, "text/csv").text.splitlines()]
    names = ("closest_cluster", "distance_to_cluster")
    assert _floats([dict(zip(names, map(float, row), strict=True)) for row in cells]) == clusters
    for record, wanted in zip(labels(ask(live, "iris_kmeans", *body, RECORDIO).content), clusters, strict=True):
        assert record == {name: [value] for name, value in wanted.items()}


def _floats(records: list[dict[str, float]]) -> list[dict[str, float]]:
    """The float32 that each number stands for."""
    return [{name: float(np.float32(value)) for name, value in record.items()} for record in records]


# Bad input...

PICKLE = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '|O', 'fortran_order': False, 'shape': (1, 4), }".ljust(117) + b"\n"

BAD = {
    "csv, a header": ("text/csv", b"a,b,c,d\n1,2,3,4", "row 1, column 1: 'a' is not a number; a header row"),
    "csv, a short row": ("text/csv", b"1,2,3,4\n\n1,2,3\n", "row 2 (line 3): expected 4 columns, got 3"),
    "csv, many columns": ("text/csv", b"1" + b",1" * 10**6, "row 1: expected 4 columns, got 1000001"),
    "json, a key beyond": (JSON, b'[{"keys": [9], "shape": [4], "values": [1]}]', "row 1: key 9 is beyond"),
    "json, a vast shape": (JSON, b'[{"keys": [1], "shape": [1099511627776], "values": [1]}]', "row 1: expected 4"),
    "json, a comma too many": (JSON, b'{"instances": [[1,2,3,4],]}', "a comma stands before a closing bracket"),
    "jsonlines, a bad line": (LINES, b'{"features":[1,2,3,4]}\n{oops}', "line 2: not JSON"),
    "libsvm, no pair": ("text/libsvm", b"1 0:1\n1 3", "line 2: '3' is not index:value"),
    "libsvm, an index beyond": ("text/libsvm", b"1 0:1\n1 7:1", "line 2: index 7 is not from 0 to 3"),
    "recordio, 2^29 bytes": (
        RECORDIO,
        b"\x0a\x23\xd7\xce\xff\xff\xff\x1f" + b"x" * 64,
        "record 1: the frame says 536870911",
    ),
    "recordio, a cut frame": (RECORDIO, BODIES["recordio"][1][:-12], f"record {len(ROWS)}: the frame says"),
    "recordio, no protobuf": (RECORDIO, frame(b"\xff\xff\xff\xff"), "record 1: not a protobuf record"),
    "npy, a pickle": (NPY, PICKLE, "it is a pickle, and those are never loaded"),
    "npy, a vast shape": (NPY, saved(np.zeros((1, 4))).replace(b"(1, 4)", b"(9999999, 4)"), "over the limit of"),
    "npz, no zip": ("application/x-npz", b"PK\x03\x04nothing", "the body is not an npz file"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_by_its_place(live: LiveGateway, name: str) -> None:
    """A 4xx on the container's face and a ModelError on the other, with the row, line or record in the text."""
    content_type, body, text = BAD[name]
    reply = httpx.post(f"{live.url}/services/scores/invocations", content=body, headers={"Content-Type": content_type})
    assert (reply.status_code, text in reply.json()["message"]) == (413 if "limit" in text else 400, True), reply.text
    wrapped = ask(live, "scores", content_type, body, JSON)
    if reply.status_code == 400:
        assert (wrapped.status_code, wrapped.json()["OriginalStatusCode"]) == (424, 400)
        assert text in wrapped.json()["OriginalMessage"]
    else:
        assert wrapped.status_code == 413
