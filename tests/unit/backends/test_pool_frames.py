"""Frames: what is packed on one side is read on the other, in whatever pieces it arrives."""

from typing import Any

import numpy as np
import pytest

from backends import _frames
from backends._frames import PRELUDE, REQUEST, SCRATCH_BYTES, Frame, Reader, pack


def objects(items: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    """An array of exactly those objects."""
    tensor = np.empty(len(items), object)
    for place, item in enumerate(items):
        tensor[place] = item
    return tensor.reshape(shape)


def read(sent: bytes, piece: int = 1 << 30) -> list[Frame]:
    """The frames, when they arrive in such pieces."""
    reader, frames, at = Reader(), [], 0
    while at < len(sent):
        space = reader.space()
        taken = sent[at : at + min(piece, len(space))]
        space[: len(taken)] = taken
        frames += reader.filled(len(taken))
        at += len(taken)
    return frames


def there_and_back(tensor: np.ndarray, piece: int = 1 << 30) -> np.ndarray:
    """The tensor after a journey."""
    (frame,) = read(b"".join(pack(REQUEST, {"id": 7}, {"before": np.arange(3, dtype="u1"), "x": tensor})), piece)
    assert frame.header == {"id": 7}
    assert frame.tensors["before"].tolist() == [0, 1, 2]
    return frame.tensors["x"]


NUMBERS = [
    np.arange(6, dtype=np.float64).reshape(2, 3),
    np.array([[True, False]]),
    np.array([1, -1], np.int8),
    np.array([2**64 - 1], np.uint64),
    np.array([0.1], np.float16),
    np.array([1 + 2j]),
    np.array([np.nan, -np.inf, -0.0], np.float32),
    np.zeros((0, 3)),
    np.array(7),
    np.random.default_rng(1).random((200, 300)),
]


@pytest.mark.parametrize("piece", [1, 1000, 1 << 30])
@pytest.mark.parametrize("tensor", NUMBERS, ids=lambda tensor: f"{tensor.dtype}{list(tensor.shape)}")
def test_numbers_keep_every_bit(tensor: np.ndarray, piece: int) -> None:
    """Dtype, shape and bits of numbers arrive as they were sent."""
    if tensor.size > 1000 and piece == 1:
        piece = 7919
    found = there_and_back(tensor, piece)
    assert (found.dtype, found.shape, found.tobytes()) == (tensor.dtype, tensor.shape, tensor.tobytes())
    assert found.flags.writeable


def test_order_in_memory_does_not_matter() -> None:
    """Transposed, strided and byte-swapped arrays arrive with their values, native and contiguous."""
    plain = np.arange(6).reshape(2, 3)
    for tensor in (plain.T, plain[:, ::2], plain.astype(">i8")):
        found = there_and_back(tensor)
        assert found.tolist() == tensor.tolist()
        assert found.dtype.isnative
        assert found.flags.c_contiguous


ITEMS = [
    objects(["text"], ()),
    objects([b"\x00\xff"], ()),
    objects(["\u4e2d\u6587", "\ud800", ""], (3,)),
    objects([b"", b"\x00" * 17, b"x"], (3, 1)),
    objects(["a", b"b", 1, 2.5, None, True, {"k": [1]}, [1, [2]]], (2, 4)),
    objects([], (0, 2)),
    objects([2**70, float("inf")], (2,)),
    objects([{"k": 1}], ()),
]


@pytest.mark.parametrize("tensor", ITEMS, ids=lambda tensor: repr(tensor.tolist()))
def test_objects_keep_their_types(tensor: np.ndarray) -> None:
    """Texts, bytes and other JSON values arrive as what they were, none turned into another."""
    found = there_and_back(tensor)
    assert (found.dtype, found.shape, found.tolist()) == (tensor.dtype, tensor.shape, tensor.tolist())
    assert [type(item) for item in found.ravel().tolist()] == [type(item) for item in tensor.ravel().tolist()]


@pytest.mark.parametrize("tensor", [np.array(["a", "bcd"]), np.array([b"a", b"bcd"])])
def test_fixed_width_texts_arrive_as_objects(tensor: np.ndarray) -> None:
    """numpy's text and bytes kinds arrive as arrays of str and of bytes."""
    found = there_and_back(tensor)
    assert (found.dtype, found.tolist()) == (np.dtype(object), tensor.tolist())


def test_headers_hold_what_json_holds_and_more() -> None:
    """NaN, large integers and lone surrogates survive, numpy's values and bytes are written as JSON can."""
    header = {
        "nan": float("nan"),
        "big": 2**80,
        "odd": "\ud800",
        "np": np.int64(3),
        "list": np.array([1.5]),
        "b": b"\x00",
    }
    ((_, found, _),) = read(b"".join(pack(REQUEST, header)))
    assert repr(found) == repr(
        {"nan": float("nan"), "big": 2**80, "odd": "\ud800", "np": 3, "list": [1.5], "b": "AA=="}
    )


@pytest.mark.parametrize("value", [object(), {1, 2}])
def test_what_is_no_json_is_refused(value: Any) -> None:
    """A value that cannot be written is a TypeError that names its type."""
    with pytest.raises(TypeError, match=type(value).__name__):
        pack(REQUEST, {"json": value})


@pytest.mark.parametrize("tensor", [np.array(["2026-01-01"], "M8[D]"), np.zeros(1, "i4,f4")])
def test_dtypes_without_a_form_are_refused(tensor: np.ndarray) -> None:
    """Dates and structures are refused by name."""
    with pytest.raises(TypeError, match="cannot be sent"):
        pack(REQUEST, {}, {"x": tensor})


@pytest.mark.parametrize("piece", [1, 3, 40, 1 << 30])
def test_many_frames_in_any_pieces(piece: int) -> None:
    """Frames that arrive together or torn apart are all read, in order."""
    sent = b"".join(b"".join(pack(REQUEST, {"id": number}, {"x": np.arange(number)})) for number in range(50))
    frames = read(sent, piece)
    assert [frame.header["id"] for frame in frames] == list(range(50))
    assert [len(frame.tensors["x"]) for frame in frames] == list(range(50))


def test_small_and_large_frames_take_turns() -> None:
    """A frame larger than the reader's scratch is read whole, and those around it are not lost."""
    sizes = [3, SCRATCH_BYTES, 1, 3 * SCRATCH_BYTES, 2]
    sent = b"".join(b"".join(pack(REQUEST, {}, {"x": np.ones(size, "u1")})) for size in sizes)
    assert [len(frame.tensors["x"]) for frame in read(sent, 5000)] == sizes


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (PRELUDE.pack(REQUEST, 2, 1 << 40) + b"{}", "too large"),
        (PRELUDE.pack(REQUEST, 2, 0) + b"{]", "Expecting"),
        (b"".join(pack(REQUEST, {"tensors": [{"name": "x", "dtype": "<f8", "shape": [9]}]})), "buffer is smaller"),
        (b"".join(pack(REQUEST, {"tensors": [{"name": "x", "dtype": "O", "shape": [1]}]})), "is no tensor"),
    ],
)
def test_what_is_no_frame_is_a_value_error(sent: bytes, fault: str) -> None:
    """Sizes beyond reason, broken headers and tensors that are none or larger than their payload are found."""
    with pytest.raises(ValueError, match=fault):
        read(sent)


def test_too_large_a_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends more than a frame may hold is told the limit."""
    monkeypatch.setattr(_frames, "MOST_BYTES", 1 << 20)
    with pytest.raises(ValueError, match="larger than the limit of 1 MiB"):
        pack(REQUEST, {}, {"x": np.zeros(1 << 20)})
