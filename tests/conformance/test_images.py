"""Pictures sent by every way of every protocol to the demo's models, and their answers as recorded with the models."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from images import encoded
from live import LiveGateway, gateway
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "configs" / "samples"
ASTRONAUT = (SAMPLES / "astronaut.png").read_bytes()
COFFEE = (SAMPLES / "coffee.png").read_bytes()
NOTHING = encoded(np.full((60, 80, 3), 128, np.uint8))

FACE = [179.23056, 82.024506, 94.553009, 94.552826]
"""As the model's exporter recorded it."""
FOUND = (["face"], [FACE], [0.920848])

Send = Callable[[LiveGateway, str, bytes], Any]


@pytest.fixture(scope="module")
def demo() -> Iterator[LiveGateway]:
    """The demo's models."""
    with gateway("--models", ROOT / "configs" / "models", "--device", "cpu") as live:
        live.wait_until("/readyz", 200)
        yield live


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def post(demo: LiveGateway, path: str, **request: Any) -> Any:
    reply = httpx.post(f"{demo.url}{path}", timeout=30, **request)
    assert reply.status_code == 200, reply.text
    return reply.json()


def tfserving(demo: LiveGateway, model: str, data: bytes) -> Any:
    [row] = post(demo, f"/v1/models/{model}:predict", json={"instances": [{"b64": b64(data)}]})["predictions"]
    return row


def tfserving_inputs(demo: LiveGateway, model: str, data: bytes) -> Any:
    outputs = post(demo, f"/v1/models/{model}:predict", json={"inputs": [{"b64": b64(data)}]})["outputs"]
    return {name: values[0] for name, values in outputs.items()}


def seldon(**of: Any) -> Send:
    def send(demo: LiveGateway, model: str, data: bytes) -> Any:
        request = {name: value(data) for name, value in of.items()}
        return post(demo, f"/services/{model}/api/v1.0/predictions", **request)["jsonData"]

    return send


def sagemaker(media: str) -> Send:
    def send(demo: LiveGateway, model: str, data: bytes) -> Any:
        headers = {"Content-Type": media} if media else {}
        [row] = post(demo, f"/endpoints/{model}/invocations", content=data, headers=headers)["predictions"]
        return row

    return send


def sagemaker_json(demo: LiveGateway, model: str, data: bytes) -> Any:
    [row] = post(demo, f"/endpoints/{model}/invocations", json={"instances": [{"b64": b64(data)}]})["predictions"]
    return row


def v2(demo: LiveGateway, model: str, data: bytes) -> Any:
    given = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [b64(data)]}
    return v2_row(post(demo, f"/v2/models/{model}/infer", json={"inputs": [given]}))


def v2_binary(demo: LiveGateway, model: str, data: bytes) -> Any:
    tail = len(data).to_bytes(4, "little") + data
    given = {"name": "image", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(tail)}}
    head = json.dumps({"inputs": [given]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return v2_row(post(demo, f"/v2/models/{model}/infer", content=head + tail, headers=headers))


def v2_row(answer: Any) -> Any:
    outputs = {one["name"]: np.array(one["data"]).reshape(one["shape"]).tolist() for one in answer["outputs"]}
    return {name: values[0] for name, values in outputs.items()}


WAYS: dict[str, Send] = {
    "tfserving-instances": tfserving,
    "tfserving-inputs": tfserving_inputs,
    "seldon-strData": seldon(json=lambda data: {"strData": b64(data)}),
    "seldon-binData": seldon(json=lambda data: {"binData": b64(data)}),
    "seldon-form-binData": seldon(files=lambda data: {"binData": ("x.png", data)}),
    "seldon-form-strData": seldon(files=lambda data: {"strData": (None, b64(data))}),
    "seldon-form-file": seldon(files=lambda data: {"file": ("x.png", data, "image/png")}),
    "seldon-body": seldon(content=lambda data: data, headers=lambda _: {"Content-Type": "image/png"}),
    "sagemaker-image-png": sagemaker("image/png"),
    "sagemaker-image-jpeg": sagemaker("image/jpeg"),
    "sagemaker-x-image": sagemaker("application/x-image"),
    "sagemaker-octets": sagemaker("application/octet-stream"),
    "sagemaker-no-type": sagemaker(""),
    "sagemaker-json": sagemaker_json,
    "v2-json": v2,
    "v2-binary": v2_binary,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_face_is_found_by_every_way(demo: LiveGateway, way: str) -> None:
    """The real model finds the real face where its exporter recorded it."""
    row = WAYS[way](demo, "faces", ASTRONAUT)
    assert (row["dclasses"], row["dobjects"], row["dconfidences"]) == (
        FOUND[0],
        [pytest.approx(FACE, abs=1e-3)],
        pytest.approx(FOUND[2], abs=1e-5),
    )


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_found_by_every_way(demo: LiveGateway, way: str) -> None:
    """Of a picture without a face, the answer is empty."""
    assert WAYS[way](demo, "faces", NOTHING) == {"dclasses": [], "dobjects": [], "dconfidences": []}


@pytest.mark.parametrize("way", WAYS)
def test_a_photo_is_named_by_every_way(demo: LiveGateway, way: str) -> None:
    """The real classifier sees an espresso, as recorded."""
    row = WAYS[way](demo, "imagenet", COFFEE)
    if way.startswith("seldon"):  # several outputs are what the model gave, with a row for each picture
        row = {name: values[0] for name, values in row.items()}
    assert (row["classes"][0], row["scores"][0]) == ("espresso", pytest.approx(0.945, abs=0.01))


def test_several_pictures(demo: LiveGateway) -> None:
    """Each has its own finds, and no others."""
    instances = [{"b64": b64(data)} for data in (NOTHING, ASTRONAUT, COFFEE)]
    expected = [0, 1, 0]
    for path in ("/v1/models/faces:predict", "/endpoints/faces/invocations"):
        rows = post(demo, path, json={"instances": instances})["predictions"]
        assert [len(row["dclasses"]) for row in rows] == expected
        assert [len(row["dobjects"]) for row in rows] == expected
    data = {"ndarray": [one["b64"] for one in instances]}
    rows = post(demo, "/services/faces/api/v1.0/predictions", json={"data": data})["jsonData"]
    assert [len(row["dconfidences"]) for row in rows] == expected
    given = {"name": "image", "shape": [3], "datatype": "BYTES", "data": data["ndarray"]}
    outputs = post(demo, "/v2/models/faces/infer", json={"inputs": [given]})["outputs"]
    assert [one["shape"] for one in outputs] == [[3, 1], [3, 1, 4], [3, 1]]
    assert outputs[0]["data"] == ["", "face", ""]


def test_a_turned_photo(demo: LiveGateway) -> None:
    """A photo that says how it is held has its boxes where they are seen."""
    image = Image.open(SAMPLES / "astronaut.png").convert("RGB").transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it by a quarter, clockwise, to see it upright
    row = tfserving(demo, "faces", encoded(np.asarray(image), exif=exif))
    assert row["dobjects"] == [pytest.approx(FACE, abs=1e-3)]


def test_classes_of_examples(demo: LiveGateway) -> None:
    """TF Serving's classify takes a photo, too."""
    examples = [{"image": {"b64": b64(COFFEE)}}]
    body = {"signature_name": "classify", "examples": examples}
    [pairs] = post(demo, "/v1/models/imagenet:classify", json=body)["results"]
    assert pairs[0] == ["espresso", pytest.approx(0.945, abs=0.01)]


def test_a_digit(demo: LiveGateway) -> None:
    """The digit that came with its model is read as recorded, through every protocol's bytes."""
    digit = (SAMPLES / "digit.png").read_bytes()
    assert np.argmax(tfserving(demo, "mnist", digit)) == 2
    assert np.argmax(sagemaker("image/png")(demo, "mnist", digit)["scores"]) == 2
    assert np.argmax(v2(demo, "mnist", digit)["scores"]) == 2


@pytest.mark.parametrize("media", ["image/svg+xml", "application/x-image", "application/octet-stream", ""])
def test_a_drawing(demo: LiveGateway, media: str) -> None:
    """A drawn digit is read, under its own type, a general one or none."""
    row = sagemaker(media)(demo, "mnist", (SAMPLES / "seven.svg").read_bytes())
    assert np.argmax(row["scores"]) == 7


@pytest.mark.parametrize("media", ["image/webp", "application/octet-stream", ""])
def test_a_webp(demo: LiveGateway, media: str) -> None:
    """A WebP picture is one, under its own type, a general one or none."""
    image = Image.open(SAMPLES / "astronaut.png").convert("RGB")
    row = sagemaker(media)(demo, "faces", encoded(image, "WEBP", lossless=True))
    assert row["dobjects"] == [pytest.approx(FACE, abs=1e-3)]


BAD: dict[str, Callable[[bytes], dict[str, Any]]] = {
    "/v1/models/faces:predict": lambda bad: {"json": {"instances": [{"b64": b64(ASTRONAUT)}, {"b64": b64(bad)}]}},
    "/services/faces/api/v1.0/predictions": lambda bad: {"json": {"data": {"ndarray": [b64(ASTRONAUT), b64(bad)]}}},
    "/services/faces/invocations": lambda bad: {"json": {"instances": [{"b64": b64(ASTRONAUT)}, {"b64": b64(bad)}]}},
    "/v2/models/faces/infer": lambda bad: {
        "json": {
            "inputs": [
                {"name": "image", "shape": [2], "datatype": "BYTES", "data": [b64(ASTRONAUT), b64(bad)]},
            ]
        }
    },
}


@pytest.mark.parametrize("path", BAD)
def test_the_bad_picture_is_named_in_every_dialect(demo: LiveGateway, path: str) -> None:
    """Of several pictures, the one that is none is told by its number."""
    reply = httpx.post(f"{demo.url}{path}", **BAD[path](ASTRONAUT[:5000]))
    assert (reply.status_code, "item 1 is damaged or cut short" in reply.text) == (400, True), reply.text
