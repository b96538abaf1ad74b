"""What of a image's file is read at all."""

import io
import struct
import zlib
from time import perf_counter

import numpy as np
import pytest
from images import RGB, colours, encoded, see, spec
from PIL import Image

from backends._image_parts import MOST_SCANS, PartsError, lean
from gateway.errors import InvalidTensor

ANY_SIZE = spec(None, None, None, 3)


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    """One part of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(*extras: bytes) -> bytes:
    """A PNG with those parts behind its head."""
    plain = encoded(RGB)
    return plain[:33] + b"".join(extras) + plain[33:]


def jpeg(*extras: bytes) -> bytes:
    """A JPEG with those parts behind its head."""
    plain = encoded(RGB, "JPEG")
    return plain[:2] + b"".join(extras) + plain[2:]


def progressive(scans: int) -> bytes:
    """A JPEG whose last scan is repeated."""
    kept = io.BytesIO()
    Image.fromarray(colours(64, 64)).save(kept, "JPEG", progressive=True)
    *first, last = kept.getvalue().split(b"\xff\xda")
    repeated = (b"\xff\xda" + last[:-2]) * (scans - len(first) + 1)
    return b"\xff\xda".join(first) + repeated + b"\xff\xd9"


TEXTS = [chunk(b"zTXt", b"key%d\0\0" % number + zlib.compress(bytes(1 << 20))) for number in range(60)]
FRAMES = [chunk(b"acTL", struct.pack(">2I", 9, 0)), *[chunk(b"fdAT", bytes(40))] * 9]


@pytest.mark.parametrize(
    ("full", "plain"),
    [
        (png(*TEXTS), png()),
        (png(*FRAMES), png()),
        (png(*[chunk(b"IDAT")] * 9), png()),
        (jpeg(b"\xff\xfe\x00\x04hi", b"\xff\xe2\x00\x05abc", b"\xff" * 1000), jpeg()),
    ],
)
def test_what_does_not_show_is_left_out(full: bytes, plain: bytes) -> None:
    """Texts, animations, comments, profiles and filling go, and the pixels are the same."""
    assert lean(full) == lean(plain)
    assert np.array_equal(see(ANY_SIZE, full), see(ANY_SIZE, plain))


def test_packed_texts_cost_nothing() -> None:
    """60 MB of text in 60 KB are not unpacked."""
    bomb = png(*TEXTS)
    started = perf_counter()
    see(ANY_SIZE, *[bomb] * 20)
    assert perf_counter() - started < 2


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (png(*[chunk(b"abCd")] * 70_000), "made of more than 65536 parts"),
        (jpeg(*[b"\xff\xe1\x00\x02"] * 70_000), "made of more than 65536 parts"),
        (progressive(MOST_SCANS + 1), "made of more than 100 scans"),
        (jpeg(b"\xff\xe2\xff\xff"), "damaged or cut short"),
        (jpeg(b"\xff\xe2\x00\x00"), "damaged or cut short"),
        (b"\xff\xd8" + b"\xff" * 100_000, "damaged or cut short"),
    ],
)
def test_a_file_of_too_many_parts_is_refused(item: bytes, said: str) -> None:
    """Each part, and each scan over the image, costs time."""
    with pytest.raises(PartsError, match=said):
        lean(item)
    with pytest.raises(InvalidTensor, match=f"item 0 is {said}"):
        see(ANY_SIZE, item)


def test_a_progressive_image_is_welcome() -> None:
    """Its usual scans are all decoded, and a hundred are not too many."""
    kept = io.BytesIO()
    Image.fromarray(colours(64, 64)).save(kept, "JPEG", progressive=True)
    assert see(ANY_SIZE, kept.getvalue()).tolist() == [np.asarray(Image.open(kept)).tolist()]
    assert see(ANY_SIZE, progressive(MOST_SCANS)).shape == (1, 64, 64, 3)
