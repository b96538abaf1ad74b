"""CSV, text, records, arrays and images become the tensor that the model declares; what has no type is looked at."""

import io
from typing import Any

import numpy as np
import pytest
from sagemaker_decoding import FOUR, LIMITS, OTHER, ROW, model, read, refusal, values

from adapters._recordio_labels import frame
from adapters.sagemaker.requests import decode
from gateway.errors import InvalidTensor, MalformedBody, UnsupportedMedia
from gateway.types import TensorSpec


def npy(array: Any) -> bytes:
    """What numpy saves."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    """What numpy saves of several."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


# Other text...


def test_csv_labels() -> None:
    """label_size drops the first columns; XGBoost's clients say 1 and send none."""
    assert values("9,1.5,16,14,23", "text/csv; label_size=1") == [ROW]
    decoded = read("1.5,16,14,23", "text/csv; label_size=1", form="xgboost")
    assert decoded.inputs["x"].tolist() == [ROW]
    assert refusal("1.5,16,14,23", "text/csv; label_size=x")[1] == "the parameter label_size is no count: 'x'"


def test_csv_of_other_ranks() -> None:
    """One value a line for vectors of rows, flat rows for images, the whole for a model without a batch."""
    assert values("1\n2\n3", "text/csv", TensorSpec("x", "float32", (None,))) == [1, 2, 3]
    assert values("1,2,3", "text/csv", TensorSpec("x", "float32", (3,))) == [1, 2, 3]
    assert values("1,2,3,4", "text/csv", TensorSpec("x", "float32", (None, 2, 2))) == [[[1, 2], [3, 4]]]
    assert values("5", "text/csv", TensorSpec("x", "float32", ())) == 5
    wide = refusal("1,2\n3,4", "text/csv", TensorSpec("x", "float32", (3,)))[1]
    assert wide == "input x takes float32 [3], got 2 rows of 2"
    free = TensorSpec("x", "float32", (None, None, None))
    assert refusal("1,2", "text/csv", free)[1].endswith("do not tell its sizes; send nested lists or npy")
    odd = TensorSpec("x", "float32", (None, None, 2))
    assert refusal("1,2,3", "text/csv", odd)[1].startswith("input x takes float32 [?,?,2], and 3 values in a row")


def test_charsets_of_texts() -> None:
    """What the type says of its encoding is believed."""
    assert values("1.5,16,14,23".encode("utf-16"), "text/csv; charset=UTF-16") == [ROW]
    texts = TensorSpec("x", "string", (None,))
    assert values("käse".encode("latin-1"), "text/plain;charset=iso-8859-1", texts) == ["käse"]


def test_plain_text() -> None:
    """A body of text is one text, for a model that takes texts."""
    assert values("one, two\nthree", "text/plain", TensorSpec("x", "string", (None,))) == ["one, two\nthree"]
    assert refusal("1", "text/plain")[0] is UnsupportedMedia
    assert refusal(b"a\xff", "text/plain", TensorSpec("x", "string", (None,)))[1] == "the text is not UTF-8 at byte 1"


def test_libsvm_base() -> None:
    """Where columns begin to count is a setting."""
    spec = model(FOUR)
    for first, row in ((0, [0, 7, 0, 0]), (1, [7, 0, 0, 0]), ("auto", [7, 0, 0, 0])):
        decoded = decode(b"1 1:7", "text/x-libsvm", spec, LIMITS, first)  # type: ignore[arg-type]
        assert decoded.inputs["x"].tolist() == [row]


# Binary...


def feature(values_: list[float], key: bytes = b"values") -> bytes:
    """One entry of a record's features."""
    data = np.float32(values_).tobytes()
    tensor = b"\x0a" + bytes([len(data)]) + data
    value = b"\x12" + bytes([len(tensor)]) + tensor
    entry = b"\x0a" + bytes([len(key)]) + key + b"\x12" + bytes([len(value)]) + value
    return b"\x0a" + bytes([len(entry)]) + entry


def record(values_: list[float], more: bytes = b"") -> bytes:
    """A record of float32 in its frame."""
    return frame(feature(values_) + more)


RECORDIO = "application/x-recordio-protobuf"


def test_recordio() -> None:
    """Frames and a record without one; what the records carry along is kept."""
    assert values(record(ROW) + record(OTHER), RECORDIO) == [ROW, OTHER]
    assert values(feature(ROW), RECORDIO) == [ROW]
    decoded = read(record(ROW, more=b"\x1a\x02u1\x22\x01m") + record(OTHER), RECORDIO)
    assert (decoded.uids, decoded.metadata) == (["u1", None], ["m", None])


def test_recordio_of_several_inputs() -> None:
    """The features of a record are named as the inputs."""
    specs = (TensorSpec("a", "float32", (None, 2)), TensorSpec("b", "float32", (None,)))
    inputs = read(frame(feature([1, 2], b"a") + feature([3], b"b")), RECORDIO, *specs).inputs
    assert {name: tensor.tolist() for name, tensor in inputs.items()} == {"a": [[1, 2]], "b": [3]}


def test_recordio_of_images() -> None:
    """Encoded images as bytes, or their pixels as numbers."""
    image = TensorSpec("x", "float32", (None, 2, 2), "image")
    png = b"\x89PNG"
    entry = b"\x0a\x06values\x12\x08\x4a\x06\x0a\x04" + png
    assert values(frame(b"\x0a" + bytes([len(entry)]) + entry), RECORDIO, image) == [png]
    assert values(record([1, 2, 3, 4]), RECORDIO, image) == [[[1, 2], [3, 4]]]


def test_npy_ranks() -> None:
    """An array with one dimension less than the model is one row; integers are cast; nothing is no row."""
    assert values(npy(np.float32(ROW)), "application/x-npy") == [ROW]
    assert values(npy(np.int64([[1, 2, 3, 4]])), "application/x-npy") == [[1, 2, 3, 4]]
    assert values(npy(np.float64(7)), "application/x-npy", TensorSpec("x", "float32", (None,))) == [7]
    assert (
        values(npy(np.ones((2, 4))), "application/x-npy", TensorSpec("x", "float32", (None, 2, 2)))
        == [[[1, 1]] * 2] * 2
    )
    assert values(npy(np.array([["a"]])), "application/x-npy", TensorSpec("x", "string", (None, 1))) == [["a"]]
    assert refusal(npy(np.ones((2, 3))), "application/x-npy")[1] == "row 1: expected 4 values, got 3"
    assert refusal(npy(np.ones((1, 2, 2))), "application/x-npy")[1] == "row 1: expected shape [4], got [2, 2]"
    assert refusal(npy(np.ones((0, 4))), "application/x-npy") == (MalformedBody, "the array has no rows")


def test_npz_of_one() -> None:
    """The only array is the only input, whatever it is called."""
    assert values(npz(arr_0=[ROW]), "application/x-npz") == [ROW]


def test_octets_and_images() -> None:
    """Bytes go to models that take bytes: as pixels, as one string, or as an encoded image."""
    assert values(b"\x01\x02\x03\x04", "application/octet-stream", TensorSpec("x", "uint8", (None, 2))) == [
        [1, 2],
        [3, 4],
    ]
    assert values(b"\x01\x02\x03", "image/jpeg", TensorSpec("x", "uint8", (None,))) == [1, 2, 3]
    assert values(b"\xff\x00", "application/octet-stream", TensorSpec("x", "string", (None,))) == [b"\xff\x00"]
    image = TensorSpec("x", "float32", (None, 2, 2), "image")
    for content_type in ("image/png", "IMAGE/*", "application/x-image", "application/octet-stream"):
        assert values(b"\x89PNG", content_type, image) == [b"\x89PNG"]
    odd = refusal(b"abc", "application/octet-stream", TensorSpec("x", "uint8", (None, 2)))
    assert odd == (InvalidTensor, "3 bytes are no rows of 2; the model takes uint8 [?,2]")
    assert refusal(b"", "application/octet-stream", TensorSpec("x", "uint8", (None, 2)))[1] == "the body is empty"
    assert refusal(b"\x89PNG", "image/png") == (
        UnsupportedMedia,
        "image/png feeds models that take images, and this one takes float32 [?,4]",
    )


# Types...


@pytest.mark.parametrize(
    "content_type",
    ["", "application/octet-stream", "Application/Octet-Stream; x=y", "application/x-www-form-urlencoded"],
)
@pytest.mark.parametrize(
    "body",
    [
        b"1.5,16,14,23",
        b" \r\n1.5,16,14,23\n",
        b"[1.5,16,14,23]",
        b'\xef\xbb\xbf {"features": [1.5,16,14,23]}',
        b"0 0:1.5 1:16 2:14 3:23",
        b"0:1.5 1:16 2:14 3:23\n",
        record(ROW),
        npy(np.float32([ROW])),
        npz(x=np.float32([ROW])),
    ],
    ids=range(9),
)
def test_untyped_bodies_are_read_by_their_looks(body: bytes, content_type: str) -> None:
    """Each format is recognised where the client has said nothing, nothing but bytes, or what curl says of all."""
    assert values(body, content_type) == [ROW]


def test_looks_of_images_and_texts() -> None:
    """What a body looks like depends on what the model takes."""
    image = TensorSpec("x", "float32", (None, 2, 2), "image")
    assert values(b"\x89PNG\r\n\x1a\n...", "", image) == [b"\x89PNG\r\n\x1a\n..."]
    assert values(b"0:1 1:2", "", TensorSpec("x", "string", (None,))) == ["0:1 1:2"]


@pytest.mark.parametrize(
    ("content_type", "part"),
    [
        ("application/xml", "application/xml is not read here; send one of application/json, "),
        ("text/csv, application/json", "'text/csv, application/json' is not a media type"),
        ("", "a body without a Content-Type, which looks like none of them, is not read here"),
        ("application/octet-stream", "application/octet-stream is not read here"),
        ("application/x-www-form-urlencoded", "application/x-www-form-urlencoded is not read here"),
    ],
)
def test_unknown_types_are_refused(content_type: str, part: str) -> None:
    """What is not read is named, with what is."""
    kind, text = refusal(b"\x00\x01", content_type)
    assert kind is UnsupportedMedia
    assert text.startswith(part)


# Whatever there is...

ANY = TensorSpec("x", "any", None)


@pytest.mark.parametrize(
    ("body", "media", "dtype", "held"),
    [
        ("1,2\n3,4.5", "text/csv", "float64", [[1.0, 2.0], [3.0, 4.5]]),
        ("1,b\n3,d", "text/csv", "object", [["1", "b"], ["3", "d"]]),
        ("0 1:2 2:3", "text/libsvm", "float64", [[2.0, 3.0]]),
        (npy([[1, 2]]), "application/x-npy", "int64", [[1, 2]]),
        ("words", "text/plain", "object", ["words"]),
        (b"\x89PNG", "image/png", "object", [b"\x89PNG"]),
        (b"\x00\x01", "application/octet-stream", "object", [b"\x00\x01"]),
        ("[[1, 2]]", "application/json", "int64", [[1, 2]]),
        ('{"features": [1.5]}', "application/jsonlines", "float64", [[1.5]]),
    ],
)
def test_an_input_that_takes_anything_gets_what_the_format_holds(
    body: str | bytes, media: str, dtype: str, held: Any
) -> None:
    """Numbers where they are numbers, texts and bytes where they are those."""
    tensor = read(body, media, ANY).inputs["x"]
    assert (tensor.dtype, tensor.tolist()) == (np.dtype(dtype), held)
