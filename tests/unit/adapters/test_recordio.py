"""RecordIO is read as SageMaker's and DMLC's writers frame it, and bad records are named."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adapters._record_pb2 import Record
from adapters._recordio import MAGIC, decode_recordio, split_frames
from adapters._recordio_labels import encode_recordio, frame
from adapters._rowspec import RowSpec
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor

FLOATS = RowSpec(np.dtype(np.float32), 4)
BYTES = RowSpec(np.dtype(object), 1)
ROW = [1.5, 16.0, 14.0, 23.0]
OTHER = [-2.0, 100.25, 15.5, 9.0]

# What the sagemaker SDK 2.257.7 writes...
SDK_FLOAT32 = bytes.fromhex("0a23d7ce200000000a1e0a0676616c756573121412120a100000c03f00008041000060410000b841")
SDK_SPARSE = bytes.fromhex("0a23d7ce1a0000000a180a0676616c756573120e120c0a040000c03f1201011a01030000")


def record(kind: str = "float32_tensor", key: str = "values", **fields: Any) -> Any:
    """A Record with one feature."""
    made = Record()
    tensor = getattr(made.features[key], kind)
    tensor.SetInParent()
    for name, values in fields.items():
        getattr(tensor, name).extend(values)
    return made


def framed(*records: Any) -> bytes:
    """A body of whole records."""
    return b"".join(frame(made.SerializeToString()) for made in records)


def parts(*payloads: bytes) -> bytes:
    """One record in several frames."""
    flags = [1, *[2] * (len(payloads) - 2), 3]
    return b"".join(
        MAGIC + (flag << 29 | len(payload)).to_bytes(4, "little") + payload + bytes(-len(payload) % 4)
        for flag, payload in zip(flags, payloads, strict=True)
    )


def decode(body: bytes, spec: RowSpec = FLOATS) -> Tensor:
    """The one feature of a body."""
    return decode_recordio(body, {"values": spec}).features["values"]


PAYLOAD = record(values=ROW).SerializeToString()
ESCAPED = record(values=[float(np.frombuffer(MAGIC, "<f4")[0])] * 4).SerializeToString()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (SDK_FLOAT32, [ROW]),
        (framed(record(values=ROW), record(values=OTHER)), [ROW, OTHER]),
        (framed(record("float64_tensor", values=ROW), record("float64_tensor", values=OTHER)), [ROW, OTHER]),
        (framed(record("int32_tensor", values=[1, -2, 300, 0])), [[1, -2, 300, 0]]),
        (framed(record(values=ROW), record("float64_tensor", values=OTHER)), [ROW, OTHER]),
        (framed(record("int32_tensor", values=[1, 2, 3, 4]), record(values=OTHER)), [[1, 2, 3, 4], OTHER]),
        (framed(record(values=ROW, shape=[2, 2])), [ROW]),
        (framed(record(values=ROW), record(values=[23, 1.5], keys=[3, 0], shape=[4])), [ROW, [1.5, 0, 0, 23]]),
        (framed(record(values=[1.5, 23], keys=[0, 3], shape=[2, 2])), [[1.5, 0, 0, 23]]),
        (framed(record(shape=[4])), [[0, 0, 0, 0]]),
        (PAYLOAD, [ROW]),
        (bytes.fromhex("0a200a0676616c756573121612140d0000c03f0d000080410d000060410d0000b841"), [ROW]),
        (frame(PAYLOAD + bytes.fromhex("aa0603616263")), [ROW]),
        (frame(PAYLOAD + record(values=OTHER).SerializeToString()), [OTHER]),
        (frame(PAYLOAD + b"\x1a\x01a")[:-1] + b"\x7f", [ROW]),
        (frame(PAYLOAD + b"\x1a\x01a")[:-1], [ROW]),
        (parts(PAYLOAD[:8], PAYLOAD[8:20], PAYLOAD[20:]), [ROW]),
        (parts(PAYLOAD[:9], PAYLOAD[9:]) + frame(PAYLOAD), [ROW, ROW]),
        (parts(*ESCAPED.split(MAGIC)), [[float(np.frombuffer(MAGIC, "<f4")[0])] * 4]),
        (frame(ESCAPED), [[float(np.frombuffer(MAGIC, "<f4")[0])] * 4]),
    ],
)
def test_records(body: bytes, expected: list[list[float]]) -> None:
    """Dense, sparse, mixed, packed, unpacked, framed, unframed and in parts: all give the rows."""
    tensor = decode(body)
    assert np.float32 == tensor.dtype
    assert np.array(expected, np.float32).tolist() == tensor.tolist()


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("kind", ["float32_tensor", "float64_tensor"])
@pytest.mark.parametrize("width", [1, 30, 200, 5000])
def test_alike(kind: str, width: int, pad: int) -> None:
    """Records that are all alike are read in one step, at any length and with or without a last pad."""
    rows = np.arange(3 * width, dtype=np.float32).reshape(3, width)
    body = framed(*[record(kind, "x" * (6 + pad), values=row.tolist()) for row in rows])
    last = len(record(kind, "x" * (6 + pad), values=rows[0].tolist()).SerializeToString())
    specs = {"x" * (6 + pad): RowSpec(np.dtype(np.float64), width)}
    for text in (body, body[: len(body) - -last % 4]):
        assert rows.tolist() == decode_recordio(text, specs).features["x" * (6 + pad)].tolist()


def test_almost_alike() -> None:
    """One record that differs in its header alone is not read with the others' layout."""
    long_key = record(key="valuez", values=ROW)
    with pytest.raises(InvalidTensor, match=r"^record 2: no feature 'values'; there is 'valuez'$"):
        decode(framed(record(values=ROW), long_key))


def test_sparse_of_the_sdk() -> None:
    """The SDK's sparse row of 3 is dense with zeros."""
    assert decode(SDK_SPARSE, RowSpec(np.dtype(np.float32), 3)).tolist() == [[0.0, 1.5, 0.0]]


def test_free_width() -> None:
    """Where the model takes any width, the first record sets it."""
    assert decode(framed(record(values=[1, 2])), RowSpec(np.dtype(np.float32))).shape == (1, 2)
    with pytest.raises(InvalidTensor, match=r"^record 2: expected 2 values, got 3$"):
        decode(framed(record(values=[1, 2]), record(values=[1, 2, 3])), RowSpec(np.dtype(np.float32)))


def test_long_name() -> None:
    """A feature's name may be of any length."""
    name = "n" * 200
    body = framed(record(key=name, values=ROW), record(key=name, values=OTHER))
    assert decode_recordio(body, {name: FLOATS}).features[name].tolist() == [ROW, OTHER]


def test_several_features() -> None:
    """A model of several inputs finds each under its name."""
    made = record(key="a", values=[1, 2])
    made.features["b"].bytes.value.append(b"\x89PNG")
    found = decode_recordio(framed(made), {"a": RowSpec(np.dtype(np.int64), 2), "b": BYTES}).features
    assert {name: tensor.tolist() for name, tensor in found.items()} == {"a": [[1, 2]], "b": [[b"\x89PNG"]]}


def test_uid_and_metadata() -> None:
    """They stay with their records, and with none there is no list."""
    first, second = record(values=ROW), record(values=OTHER)
    assert decode_recordio(framed(first, second), {"values": FLOATS}).uids is None
    first.uid, second.metadata = "u1", '{"a":1}'
    records = decode_recordio(framed(first, second), {"values": FLOATS})
    assert (records.uids, records.metadata) == (["u1", None], [None, '{"a":1}'])


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (b"", MalformedBody, "the body has no records"),
        (b"abcd" + SDK_FLOAT32[4:], MalformedBody, "record 1: no RecordIO magic number at byte 0"),
        (SDK_FLOAT32 + MAGIC + b"\x10", MalformedBody, "record 2: the frame header is cut off"),
        (SDK_FLOAT32 + b"\x0a\x23", MalformedBody, "record 2: no RecordIO magic number at byte 40"),
        (SDK_FLOAT32[:-4], MalformedBody, "record 1: the frame says 32 bytes, but 28 follow"),
        (MAGIC + b"\xff\xff\xff\x1f", MalformedBody, "record 1: the frame says 536870911 bytes, but 0 follow"),
        (MAGIC + b"\x00\x00\x00\x80", MalformedBody, "record 1: unknown frame flag 4"),
        (MAGIC + b"\x04\x00\x00\x00\xff\xff\xff\xff", MalformedBody, "record 1: not a protobuf record"),
        (b"\x0a\x7f\x0a\x00", MalformedBody, "record 1: not a protobuf record"),
        (parts(PAYLOAD[:8], PAYLOAD[8:])[:16], MalformedBody, "record 1: its last part is missing"),
        (parts(PAYLOAD[:8], PAYLOAD[8:])[16:], MalformedBody, "record 1: its parts are out of order"),
        (parts(PAYLOAD[:8], PAYLOAD[8:])[:16] + SDK_FLOAT32, MalformedBody, "record 1: its parts are out of order"),
        (parts(PAYLOAD[:8], PAYLOAD[9:]), MalformedBody, "record 1: not a protobuf record"),
        (framed(record(values=ROW), record(values=ROW[:3])), InvalidTensor, "record 2: expected 4 values, got 3"),
        (framed(record(values=ROW[:3])), InvalidTensor, "record 1: expected 4 values, got 3"),
        (
            framed(record("bytes", value=[b"x"])),
            InvalidTensor,
            "record 1: feature 'values' holds bytes, the model takes numbers",
        ),
        (framed(record(key="x", values=ROW)), InvalidTensor, "record 1: no feature 'values'; there is 'x'"),
        (
            frame(bytes.fromhex("0a050a01ff12000a050a0178 1200")),
            InvalidTensor,
            "record 1: no feature 'values'; there is '\\ufffd', 'x'",
        ),
        (frame(b""), InvalidTensor, "record 1: no feature 'values'; there is none"),
        (frame(b"\x0a\x0a\x0a\x06values\x12\x00"), InvalidTensor, "record 1: feature 'values' is empty"),
        (framed(record()), InvalidTensor, "record 1: feature 'values' has no values"),
        (framed(record(values=[1, 2], keys=[0], shape=[4])), InvalidTensor, "record 1: 1 keys, but 2 values"),
        (
            framed(record(values=[1], keys=[9], shape=[4])),
            InvalidTensor,
            "record 1: key 9 is beyond the 4 values of the shape",
        ),
        (
            framed(record(values=[1], keys=[2**64 - 1], shape=[4])),
            InvalidTensor,
            f"record 1: key {2**64 - 1} is beyond the 4 values of the shape",
        ),
        (framed(record(values=[1, 2], keys=[0, 0], shape=[4])), InvalidTensor, "record 1: a key occurs twice"),
        (framed(record(values=[1.5, 2], keys=[0, 3])), InvalidTensor, "record 1: sparse values need a shape"),
        (framed(record(values=ROW, shape=[5])), InvalidTensor, "record 1: expected 4 values by its shape, got 5"),
        (framed(record(values=ROW[:3], shape=[4])), InvalidTensor, "record 1: 3 values, but 4 by their shape"),
        (framed(record(shape=[2**32, 2**32])), InvalidTensor, f"record 1: expected 4 values by its shape, got {2**64}"),
        (frame(PAYLOAD + b"\x1a\x01\xff"), MalformedBody, "record 1: its uid or metadata is not UTF-8"),
    ],
)
def test_refused(body: bytes, error: type[Exception], text: str) -> None:
    """A refusal names the record and what is wrong with it."""
    with pytest.raises(error) as caught:
        decode(body)
    assert text == str(caught.value)


def test_numbers_for_bytes() -> None:
    """A model that takes bytes gets no numbers."""
    with pytest.raises(InvalidTensor, match="holds numbers, the model takes bytes"):
        decode(SDK_FLOAT32, BYTES)


@pytest.mark.parametrize("others", [[], [record("float64_tensor", values=[1.5])]])
def test_integers(others: list[Any]) -> None:
    """A fraction for an integer model is refused by record, alone or among records of another kind."""
    body = framed(record(values=[1]), record(values=[2]), record(values=[2.5]), *others)
    with pytest.raises(InvalidTensor, match=r"^record 3, column 1: 2.5 does not fit int64$"):
        decode(body, RowSpec(np.dtype(np.int64), 1))


@pytest.mark.parametrize(
    ("body", "width"),
    [
        (framed(record(shape=[2**62])), None),
        (framed(record(values=[1], keys=[5], shape=[3, 3])), None),
        (framed(*[record(values=[1, 2])] * 5), 2),
        (framed(*[record(values=[1, 2])] * 4, record("float64_tensor", values=[1, 2])), None),
    ],
)
def test_budget(body: bytes, width: int | None) -> None:
    """A shape or a number of records over the limit is refused before memory is taken."""
    with pytest.raises(BodyTooLarge, match="limit of 8 values"):
        decode(body, RowSpec(np.dtype(np.float32), width, DecodeLimits(elements=8)))


def test_a_record_of_keys() -> None:
    """Far more keys than the model is wide are refused before protobuf unpacks them."""
    body = framed(record(keys=range(2_000_000), shape=[4]))
    with pytest.raises(BodyTooLarge, match=r"^record 1: [0-9]+ bytes, over the limit of 1048704$"):
        decode(body)


def test_split_frames() -> None:
    """A magic number inside a payload is no frame."""
    assert list(split_frames(frame(ESCAPED) + frame(b"") + frame(MAGIC))) == [[ESCAPED], [b""], [MAGIC]]


# Out...


def labels(body: bytes) -> list[dict[str, list[float]]]:
    """The label map of each record, read by protobuf."""
    made = [Record.FromString(payload) for [payload] in split_frames(body)]
    return [{key: list(value.float32_tensor.values) for key, value in each.label.items()} for each in made]


def test_out_to_the_byte() -> None:
    """A row is the record that the SDK reads, to the byte."""
    expected = "0a23d7ce1f000000121d0a0573636f7265121412120a100000c03f00008041000060410000b84100"
    assert encode_recordio({"score": np.float32([ROW])}).hex() == expected


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"score": np.float32([0.25, -3.5])}, [{"score": [0.25]}, {"score": [-3.5]}]),
        (
            {"a": np.int64([5, 2]), "b": np.float64([[36.5], [90.25]])},
            [{"a": [5], "b": [36.5]}, {"a": [2], "b": [90.25]}],
        ),
        ({"a": np.array([True, False])}, [{"a": [1]}, {"a": [0]}]),
        ({"a": np.float64([1e300])}, [{"a": [float("inf")]}]),
        ({"a": np.zeros((2, 0), np.float32)}, [{"a": []}, {"a": []}]),
        ({"a": np.zeros((0, 2), np.float32)}, []),
        ({"a": np.arange(400, dtype=np.float32).reshape(2, 200)}, [{"a": [*range(200)]}, {"a": [*range(200, 400)]}]),
    ],
)
def test_out(outputs: dict[str, Tensor], expected: list[dict[str, list[float]]]) -> None:
    """Every output is a float32 label of its row's record."""
    assert expected == labels(encode_recordio(outputs))


def test_out_shape() -> None:
    """A row of several dimensions keeps its shape."""
    [payload] = next(split_frames(encode_recordio({"a": np.zeros((1, 2, 3), np.float32)})))
    assert list(Record.FromString(payload).label["a"].float32_tensor.shape) == [2, 3]


def test_out_texts_and_ids() -> None:
    """Texts are bytes; uid and metadata are those of the input."""
    outputs = {"a": np.float32([1, 2]), "t": np.array(["é", b"\xff"], object)}
    body = encode_recordio(outputs, uids=["u", None], metadata=[None, "m"])
    first, second = [Record.FromString(payload) for [payload] in split_frames(body)]
    assert (["é".encode()], [b"\xff"]) == (list(first.label["t"].bytes.value), list(second.label["t"].bytes.value))
    assert tuple(list(made.label["a"].float32_tensor.values) for made in (first, second)) == ([1.0], [2.0])
    assert (first.uid, first.HasField("metadata"), second.HasField("uid"), second.metadata) == ("u", False, False, "m")


@pytest.mark.parametrize("make", [lambda row: {"uids": [row]}, lambda row: {"metadata": [row]}])
def test_out_alike_or_not(make: Callable[[str], dict[str, list[str]]]) -> None:
    """Framing row by row and all at once give the same labels."""
    outputs = {"a": np.float32([[1, 2, 3]]), "b": np.float32([4])}
    assert labels(encode_recordio(outputs)) == labels(encode_recordio(outputs, **make("u")))
