"""What is read at once is read as the exact way reads it; what takes long is left to that, and to a thread."""

import io

import numpy as np
import pytest
from sagemaker_decoding import FOUR, LIMITS, OTHER, ROW, model

from adapters._recordio_labels import frame
from adapters.sagemaker import Config, create
from adapters.sagemaker.quick import decode_quickly
from adapters.sagemaker.requests import decode
from gateway.errors import InvalidTensor
from gateway.interfaces import Infer
from gateway.types import TensorSpec


def npy() -> bytes:
    """Two rows as numpy saves them."""
    file = io.BytesIO()
    np.save(file, np.array([ROW, OTHER], np.float32))
    return file.getvalue()


def record(row: list[float]) -> bytes:
    """A packed record, framed."""
    packed = np.array(row, "<f4").tobytes()
    tensor = b"\x0a" + bytes([len(packed)]) + packed
    value = b"\x12" + bytes([len(tensor)]) + tensor
    entry = b"\x0a\x06values\x12" + bytes([len(value)]) + value
    return frame(b"\x0a" + bytes([len(entry)]) + entry)


LINES = '{"features": [1.5, 16, 14, 23]}\n{"features": [-2, 100.25, 15.5, 9]}\n'


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ('{"instances": [{"features": [1.5, 16, 14, 23]}, {"features": [-2, 100.25, 15.5, 9]}]}', "application/json"),
        ("[[1.5, 16, 14, 23], [-2, 100.25, 15.5, 9]]", "Application/JSON; charset=utf-8"),
        (LINES, "application/jsonlines"),
        (LINES, "application/x-jsonlines"),
        ("1.5,16,14,23\n-2,100.25,15.5,9\n", "text/csv"),
        ("7,1.5,16,14,23\n7,-2,100.25,15.5,9\n", "text/csv; label_size=1"),
        (record(ROW) + record(OTHER), "application/x-recordio-protobuf"),
        (npy(), "application/x-npy"),
    ],
)
def test_plain_rows_are_read_at_once(body: bytes | str, content_type: str) -> None:
    """Rows of numbers that are all alike need no thread."""
    data = body if isinstance(body, bytes) else body.encode()
    quick = decode_quickly(data, content_type, model(FOUR), LIMITS)
    exact = decode(data, content_type, model(FOUR), LIMITS, "auto")
    assert quick is not None
    assert [ROW, OTHER] == quick.inputs["x"].tolist() == exact.inputs["x"].tolist()
    assert exact.signature == quick.signature
    assert exact.inputs["x"].dtype == quick.inputs["x"].dtype


@pytest.mark.parametrize(
    ("body", "content_type", "specs"),
    [
        ("1 1 1", "application/json", [FOUR]),
        ('["a"]', "application/json", [FOUR]),
        ('{"a": 1}\n[1]', "application/jsonlines", [FOUR]),
        ('"1",2,3,4', "text/csv", [FOUR]),
        ("1,2,3,4", "text/csv; charset=utf-16", [FOUR]),
        ("1,2,3,4", "text/csv", [TensorSpec("x", "any", None)]),
        ("1,2,3,4", "text/csv", [FOUR, TensorSpec("z", "float32", None)]),
        ("a,b", "text/csv", [TensorSpec("x", "string", (None,))]),
        ("0 1:1", "text/libsvm", [FOUR]),
        ("1,2,3,4", "", [FOUR]),
        ("1,2,3,4", "application/octet-stream", [FOUR]),
        (b"\x0a\x02ab", "application/x-recordio-protobuf", [FOUR]),
    ],
)
def test_other_bodies_are_not_read_at_once(body: bytes | str, content_type: str, specs: list[TensorSpec]) -> None:
    """Whatever could take long is left to the exact way."""
    data = body if isinstance(body, bytes) else body.encode()
    assert decode_quickly(data, content_type, model(*specs), LIMITS) is None


def test_xgboost_keeps_its_labels() -> None:
    """label_size drops nothing for XGBoost's clients, which only the exact way knows."""
    assert decode_quickly(b"1,2,3,4", "text/csv; label_size=1", model(FOUR, form="xgboost"), LIMITS) is None


def test_pictures_are_not_looked_into() -> None:
    """Encoded images go to the model as they are, and so at once."""
    picture = TensorSpec("x", "float32", (None, 3, 8, 8), "image")
    quick = decode_quickly(b"\x89PNG", "image/png", model(picture), LIMITS)
    assert quick is not None
    assert quick.inputs["x"].tolist() == [b"\x89PNG"]


def test_a_quick_refusal_is_the_exact_one() -> None:
    """A row too wide is refused at once."""
    with pytest.raises(InvalidTensor, match=r"^row 1: expected 4 columns, got 5$"):
        decode_quickly(b"1,2,3,4,5", "text/csv", model(FOUR), LIMITS)


def test_every_way_in_has_a_quick_one() -> None:
    """No path reads a large body on the event loop without asking whether it is quick."""
    operations = [one for one in create(Config(), LIMITS).routes() if isinstance(one, Infer)]
    assert [one.path for one in operations if one.decode_quickly is None] == []
