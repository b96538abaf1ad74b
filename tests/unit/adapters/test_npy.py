"""npy and npz are read as numpy and scipy write them, and nothing else that they could hold is."""

import base64
import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adapters._npy import decode_npy, decode_npz, encode_npy
from adapters._rowspec import RowSpec
from gateway.errors import BodyTooLarge, GatewayError, InvalidTensor, MalformedBody, NotAcceptable
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor

LIMITS = DecodeLimits()
SPEC = RowSpec(np.dtype(np.float32), 4)
SCIPY_CSC = (
    "UEsDBC0AAAAIAAAAIQAeMQlL//////////8LABQAaW5kaWNlcy5ucHkBABAAiAAAAAAAAABHAAAAAAAAAJvsF+obEMnIUMZQrZ6SWpxcpG6loG6T"
    "aaKuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GkY6mjoKtQoUAC4GKAAAUEsDBC0AAAAIAAAAIQBkdrVz//////////8KABQAaW5kcHRy"
    "Lm5weQEAEACUAAAAAAAAAEwAAAAAAAAAm+wX6hsQychQxlCtnpJanFykbqWgbpNpoq6joJ6WX1RSlJgXn1+UkgoSd0vMKU4FihdnJBakAvkapjqa"
    "Ogq1ChQALgYgYETCTEAMAFBLAwQtAAAACAAAACEAUePE/f//////////CgAUAGZvcm1hdC5ucHkBABAAgwAAAAAAAABFAAAAAAAAAJvsF+obEMnI"
    "UMZQrZ6SWpxcpG6loF4TbKyuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5Gpo6CrUKFAGu5OJkAFBLAwQtAAAACAAAACEAeUG7Bv//////"
    "////CQAUAHNoYXBlLm5weQEAEACQAAAAAAAAAEoAAAAAAAAAm+wX6hsQychQxlCtnpJanFykbqWgbpNpoa6joJ6WX1RSlJgXn1+UkgoSd0vMKU4F"
    "ihdnJBakAvkaRjqaOgq1ChQALiYGCGCB0gBQSwMELQAAAAgAAAAhANDU6LP//////////wgAFABkYXRhLm5weQEAEACIAAAAAAAAAEwAAAAAAAAA"
    "m+wX6hsQychQxlCtnpJanFykbqWgbpNmoq6joJ6WX1RSlJgXn1+UkgoSd0vMKU4FihdnJBakAvkaRjqaOgq1ChQALgaGA/YMDDscAVBLAQItAy0A"
    "AAAIAAAAIQAeMQlLRwAAAIgAAAALAAAAAAAAAAAAAACAAQAAAABpbmRpY2VzLm5weVBLAQItAy0AAAAIAAAAIQBkdrVzTAAAAJQAAAAKAAAAAAAA"
    "AAAAAACAAYQAAABpbmRwdHIubnB5UEsBAi0DLQAAAAgAAAAhAFHjxP1FAAAAgwAAAAoAAAAAAAAAAAAAAIABDAEAAGZvcm1hdC5ucHlQSwECLQMt"
    "AAAACAAAACEAeUG7BkoAAACQAAAACQAAAAAAAAAAAAAAgAGNAQAAc2hhcGUubnB5UEsBAi0DLQAAAAgAAAAhANDU6LNMAAAAiAAAAAgAAAAAAAAA"
    "AAAAAIABEgIAAGRhdGEubnB5UEsFBgAAAAAFAAUAFgEAAJgCAAAAAA=="
)
"""What scipy's save_npz writes for [[1.5, 0, 0, 23], [0, 0, 0, 0]] as csc."""


def saved(array: Any, version: tuple[int, int] | None = None) -> bytes:
    """What numpy writes."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), version, allow_pickle=True)
    return file.getvalue()


def headed(header: str, data: bytes = b"") -> bytes:
    """An npy file of any header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def zipped(compression: int = zipfile.ZIP_DEFLATED, **members: Any) -> bytes:
    """An npz file; bytes are members as they are."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, member in members.items():
            archive.writestr(f"{name}.npy", member if isinstance(member, bytes) else saved(member))
    return file.getvalue()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize(
    "array",
    [
        np.float32([[1.5, 16, 14, 23], [-2, 100.25, 15.5, 9]]),
        np.float32([1.5, 2]),
        np.float64(7.5),
        np.array([[1, 2], [3, 4]], ">f4"),
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.array([[True, False]]),
        np.uint64([2**64 - 1]),
        np.float16([1.5]),
        np.array([["a", "bcé"]]),
        np.array([[b"a", b"bc"]]),
        np.zeros((0, 4), np.float32),
        np.zeros((2, 0, 3), np.int8),
    ],
)
def test_npy(array: Tensor, version: tuple[int, int]) -> None:
    """Every dtype but objects, in any order of bytes or axes, comes as it was, native and contiguous."""
    tensor = decode_npy(saved(array, version), LIMITS)
    np.testing.assert_array_equal(array, tensor)
    assert (array.shape, array.dtype.newbyteorder("=")) == (tensor.shape, tensor.dtype)
    assert tensor.flags.c_contiguous
    assert tensor.flags.aligned


def test_npy_of_python_2() -> None:
    """Old headers write long integers and any spacing; data need not be aligned."""
    header = "{'descr':'<f4','fortran_order':False,'shape':(1L, 2L),}"
    tensor = decode_npy(headed(header, np.float32([1, 2]).tobytes()), LIMITS)
    assert tensor.tolist() == [[1.0, 2.0]]
    assert tensor.flags.aligned


PICKLE = "the npy array holds Python objects: it is a pickle, and those are never loaded"
NO_NUMBERS = "the npy array must hold numbers, bools or texts"
NO_LAYOUT = "the sparse matrix is none of csr, csc, coo, bsr and dia"
HEADER = "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}"


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (b"", MalformedBody, "the body is not an npy file"),
        (b"xx", MalformedBody, "the body is not an npy file"),
        (b"\x93NUMPY\x09\x00", MalformedBody, "the body is not an npy file"),
        (b"\x93NUMPY\x01\x00\x76", MalformedBody, "the npy header is cut off or too long"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", MalformedBody, "the npy header is cut off or too long"),
        (headed("{}"), MalformedBody, "the npy header is malformed"),
        (headed(HEADER.format("'<f4'", "(2, x)")), MalformedBody, "the npy header is malformed"),
        (headed(HEADER.format("'<f4'", "(-1,)")), MalformedBody, "the npy header is malformed"),
        (headed(HEADER.format("'<f4'", f"({'9' * 5000},)")), MalformedBody, "the npy header is malformed"),
        (
            headed(HEADER.format("'<f4'", f"({'1,' * 33})")),
            MalformedBody,
            "the npy header says 33 dimensions; at most 32 are read",
        ),
        (headed(HEADER.format("'<f3'", "(1,)")), MalformedBody, "the npy dtype 'f3' is unknown"),
        (headed(HEADER.format("'<U0'", "(1,)")), MalformedBody, "the npy dtype 'U0' is unknown"),
        (headed(HEADER.format("'<M8'", "(1,)")), InvalidTensor, NO_NUMBERS),
        (
            headed(HEADER.format("[('a', '<f4')]", "(1,)")),
            InvalidTensor,
            "the npy array must hold numbers, bools or texts",
        ),
        (saved(np.float32([1, 2]))[:-1], MalformedBody, "the npy header says 8 bytes of data, got 7"),
        (saved(np.float32([1, 2])) + b"x", MalformedBody, "the npy header says 8 bytes of data, got 9"),
        (
            saved(np.array([["a", None]], object)),
            MalformedBody,
            PICKLE,
        ),
        (
            headed(HEADER.format("'<f4'", "(1099511627776, 1099511627776)")),
            BodyTooLarge,
            "an array of 1208925819614629174706176 values is over the limit of 16777216",
        ),
    ],
)
def test_npy_refused(body: bytes, error: type[Exception], text: str) -> None:
    """Headers are judged before anything is built from them, and objects are never loaded."""
    with pytest.raises(error) as caught:
        decode_npy(body, LIMITS)
    assert text == str(caught.value)


def test_npy_empty_and_vast() -> None:
    """A shape of no values may say anything beside its zero."""
    assert decode_npy(headed(HEADER.format("'<f4'", "(0, 9223372036854775808)")), LIMITS).size == 0


@pytest.mark.parametrize(
    "array",
    [np.float32([[1.5, 2]]), np.int64(3), np.asfortranarray(np.eye(3)), np.zeros((0, 2)), np.array([True])],
)
def test_npy_out(array: Tensor) -> None:
    """An answer is what numpy would save, in the output's own dtype."""
    assert saved(np.ascontiguousarray(array).reshape(array.shape), (1, 0)) == encode_npy(array)


def test_npy_out_texts() -> None:
    """Texts become unicode of one width, unless one of them is out of all proportion."""
    body = encode_npy(np.array([["a", b"bc"], ["", "é"]], object))
    assert np.load(io.BytesIO(body)).tolist() == [["a", "bc"], ["", "é"]]
    assert encode_npy(np.zeros((0,), object)).startswith(b"\x93NUMPY")
    with pytest.raises(NotAcceptable, match="differ too much in length"):
        encode_npy(np.array(["x" * 100_000, *[""] * 1000], object))


# npz...

DENSE = np.float32([[1.5, 0, 0, 23], [0, 0, 2, 0]])
CSR: dict[str, Any] = {
    "format": np.array(b"csr"),
    "shape": np.int64([2, 4]),
    "data": np.float32([1.5, 23, 2]),
    "indices": np.int32([0, 3, 2]),
    "indptr": np.int32([0, 2, 3]),
}
CSC = CSR | {
    "format": np.array("csc"),
    "data": np.float32([1.5, 2, 23]),
    "indices": np.int32([0, 1, 0]),
    "indptr": np.int32([0, 1, 1, 2, 3]),
}
COO: dict[str, Any] = {
    "format": np.array(b"coo"),
    "shape": np.int64([2, 4]),
    "data": np.float32([1.5, 20, 3, 2]),
    "row": np.int32([0, 0, 0, 1]),
    "col": np.int32([0, 3, 3, 2]),
}
COORDS = {key: COO[key] for key in ("format", "shape", "data")} | {"coords": np.int64([[0, 0, 0, 1], [0, 3, 3, 2]])}
BSR = CSR | {
    "format": np.array(b"bsr"),
    "data": np.float32([[[1.5, 0], [0, 0]], [[0, 23], [2, 0]]]),
    "indices": np.int32([0, 1]),
    "indptr": np.int32([0, 2]),
}
DIA: dict[str, Any] = {
    "format": np.array(b"dia"),
    "shape": np.int64([2, 4]),
    "data": np.float32([[1.5, 0, 9, 9], [9, 0, 2, 9], [9, 9, 9, 23]]),
    "offsets": np.int32([0, 1, 3]),
}


@pytest.mark.parametrize("parts", [CSR, CSC, COO, COORDS, BSR, DIA])
def test_sparse(parts: dict[str, Any]) -> None:
    """Each of scipy's layouts is the same dense matrix; values of one cell are summed."""
    np.testing.assert_array_equal(DENSE, decode_npz(zipped(**parts), SPEC)[""])


def test_sparse_of_scipy() -> None:
    """A file that scipy itself wrote is read."""
    dense = decode_npz(base64.b64decode(SCIPY_CSC), SPEC)[""]
    assert ([[1.5, 0, 0, 23], [0, 0, 0, 0]], np.float32) == (dense.tolist(), dense.dtype)


def test_plain_npz() -> None:
    """Other arrays come under their names, compressed or not."""
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        arrays = decode_npz(zipped(compression, a=np.int8([1]), b=np.float32([[2]])), SPEC)
        assert {name: array.tolist() for name, array in arrays.items()} == {"a": [1], "b": [[2.0]]}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"shape": np.int64([2, 5])}, InvalidTensor, "the sparse matrix: expected 4 columns, got 5"),
        (
            {"shape": np.int64([2**40, 4])},
            BodyTooLarge,
            f"{2**40} rows of 4 values are over the limit of 16777216 values",
        ),
        ({"shape": np.int64([-1, 4])}, MalformedBody, "the sparse matrix has no columns"),
        ({"shape": np.int64([2])}, MalformedBody, "the sparse matrix has no shape of two sizes"),
        ({"shape": np.float32([2, 4])}, MalformedBody, "the sparse matrix has no shape of two sizes"),
        ({"format": np.array(b"lil")}, MalformedBody, NO_LAYOUT),
        (
            {"format": np.array([b"csr", b"csr"])},
            MalformedBody,
            "the sparse matrix is none of csr, csc, coo, bsr and dia",
        ),
        ({"data": np.array([b"a"])}, MalformedBody, "the sparse matrix does not hold numbers"),
        ({"data": np.float32([1])}, MalformedBody, "the sparse matrix's members differ in length"),
        ({"indices": np.int32([0, 9, 2])}, MalformedBody, "the sparse matrix has an index beyond its shape"),
        ({"indices": np.int32([0, -1, 2])}, MalformedBody, "the sparse matrix has an index beyond its shape"),
        ({"indices": np.float32([0, 1, 2])}, MalformedBody, "the sparse matrix's indices are no integers"),
        ({"indptr": np.int32([0, 2, 9])}, MalformedBody, "the sparse matrix's indptr does not fit its shape"),
        ({"indptr": np.int32([0, 4, 3])}, MalformedBody, "the sparse matrix's indptr does not fit its shape"),
        ({"indptr": np.int32([0, 3])}, MalformedBody, "the sparse matrix's indptr does not fit its shape"),
        ({"format": np.array(b"coo")}, MalformedBody, "the sparse matrix has no member 'row'"),
        (
            {"format": np.array(b"coo"), "coords": np.int64([0, 1, 2])},
            MalformedBody,
            "the sparse matrix's coords are no pairs",
        ),
        ({"format": np.array(b"bsr")}, MalformedBody, "the sparse matrix's blocks are malformed"),
        (
            {"format": np.array(b"dia"), "offsets": np.int32([0])},
            MalformedBody,
            "the sparse matrix's diagonals are malformed",
        ),
        (
            {"data": saved(np.array([None]))},
            MalformedBody,
            "member 'data': the npy array holds Python objects: it is a pickle, and those are never loaded",
        ),
        ({"data": b"x"}, MalformedBody, "member 'data': the body is not an npy file"),
    ],
)
def test_sparse_refused(change: dict[str, Any], error: type[Exception], text: str) -> None:
    """A matrix that contradicts itself or the model is refused, its size before it is made dense."""
    with pytest.raises(error) as caught:
        decode_npz(zipped(**(CSR | change)), SPEC)
    assert text == str(caught.value)


def _encrypted() -> bytes:
    body = bytearray(zipped(a=np.int8([1])))
    body[6] |= 1
    body[body.index(b"PK\x01\x02") + 8] |= 1
    return bytes(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"PK",
        b"PK\x05\x06" + b"\xff" * 18,
        zipped(a=np.int8([1]))[:-9],
        zipped(zipfile.ZIP_BZIP2, a=np.int8([1])),
        zipped(zipfile.ZIP_STORED, a=np.int8([1])).replace(b"NUMPY", b"NUMPX"),
        _encrypted(),
    ],
)
def test_npz_refused(body: bytes) -> None:
    """What is no plain zip of npy files is malformed."""
    with pytest.raises(MalformedBody):
        decode_npz(body, SPEC)


@pytest.mark.parametrize(
    "make",
    [
        lambda: zipped(a=bytes(200 << 20)),
        lambda: zipped(a=saved(np.zeros(17 << 20, np.int8))),
        lambda: zipped(**{f"a{i}": b"" for i in range(40)}),
    ],
)
def test_zip_bomb(make: Callable[[], bytes]) -> None:
    """A small file of large members is refused by their sizes, without memory for them."""
    body = make()
    tracemalloc.start()
    with pytest.raises(GatewayError):
        decode_npz(body, SPEC)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 << 20


@pytest.mark.parametrize("code", [0x110000, 0xFFFFFFFF, 0xD800, 0xDFFF])
@pytest.mark.parametrize("order", ["<", ">"])
def test_texts_are_unicode(order: str, code: int) -> None:
    """Code points that there are not, and halves of others, are refused and never become a text."""
    header = f"{{'descr': '{order}U1', 'fortran_order': False, 'shape': (2,), }}"
    with pytest.raises(MalformedBody, match="no Unicode text"):
        decode_npy(headed(header, struct.pack(f"{order}II", ord("a"), code)), LIMITS)
