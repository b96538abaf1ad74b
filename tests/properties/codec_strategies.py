"""What the tests of the SageMaker codecs draw: tables, and bodies that are nearly right."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gateway.types import Tensor

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NUMBERS = (*FLOATS, *INTEGERS, "bool")

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8).filter(
    lambda text: not text.startswith(" ")
)
"""Texts of cells: CSV's reader drops the spaces after a comma."""


def tables(dtype: str, least: int = 1) -> st.SearchStrategy[Tensor]:
    """`[rows, columns]` of that dtype, NaN and the infinities among the floats."""
    shapes = st.tuples(st.integers(least, 5), st.integers(1, 5))
    if dtype == "object":
        return shapes.flatmap(lambda shape: npst.arrays(object, shape, elements=texts, fill=st.nothing()))
    return shapes.flatmap(lambda shape: npst.arrays(np.dtype(dtype), shape))


def outputs() -> st.SearchStrategy[dict[str, Tensor]]:
    """One to three outputs of the same number of rows."""

    def of(rows: int) -> st.SearchStrategy[dict[str, Tensor]]:
        shapes = npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4).map(lambda shape: (rows, *shape))
        arrays = st.sampled_from(["float32", "int64", "bool"]).flatmap(
            lambda dtype: shapes.flatmap(lambda shape: npst.arrays(np.dtype(dtype), shape))
        )
        return st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=200), arrays, min_size=1, max_size=3)

    return st.integers(0, 4).flatmap(of)


def nearly(alphabet: list[str], most: int = 24) -> st.SearchStrategy[bytes]:
    """Bodies of a format's own words in any order, and sometimes of any bytes."""
    words = st.lists(st.sampled_from(alphabet), max_size=most).map(lambda parts: "".join(parts).encode())
    return words | st.binary(max_size=16)


def broken(good: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Good bodies with some of their bytes changed, cut out or doubled."""

    @st.composite
    def draw_broken(draw: st.DrawFn) -> bytes:
        body = bytearray(draw(good))
        for _ in range(draw(st.integers(1, 4))):
            start = draw(st.integers(0, len(body)))
            end = min(len(body), start + draw(st.integers(0, 4)))
            body[start:end] = draw(st.binary(max_size=5))
        return bytes(body)

    return draw_broken()


_NUMBERS = ["1", "-2.5", "1e5", "7", ".5", "+3", "1e400", "nan", "NaN", "inf"]
_MARKS = ["-1.5e-300", "-2.5e-300", "-9223372036854775807"]
_SEPARATORS = [",", ",", ",", "\n", "\n", "\n", "\r\n", '"', '"1"', " ", "\t", "\r"]
_cells = st.sampled_from(["1", "-2", "2.5", "nan", "", " 7", "-1.5e-300", "-2.5e-300", "9", '"3"'])
_lines = st.sampled_from([1, 2, 3]).flatmap(
    lambda width: st.lists(_cells, min_size=width, max_size=width).map(",".join)
)
csv_bodies = nearly([*_NUMBERS, *_MARKS, *_SEPARATORS, "x", "_", "[", "]", "null", "\ufeff", "٣"]) | st.lists(
    _lines, max_size=4
).map(lambda lines: "\n".join(lines).encode())
_pairs = st.lists(
    st.tuples(st.sampled_from("01235"), st.sampled_from(["1", "2.5", "-7000000000000000000", "-8000000000000000000"])),
    max_size=3,
).map(lambda pairs: " ".join(map(":".join, sorted(pairs))))
libsvm_bodies = nearly(
    ["0", "1", "3", ":", ":", ":", "1.5", "-2", " ", " ", "\n", "#", "qid", "nan", "x", "\r\n", "1.0", "1e0"]
) | st.lists(st.tuples(st.sampled_from(["", "1 ", "-8000000000000000000 "]), _pairs).map("".join), max_size=4).map(
    lambda lines: "\n".join(lines).encode()
)
jsonlines_bodies = nearly(
    [
        "[",
        "]",
        "{",
        "}",
        '"features":',
        '{"features":[',
        "]}",
        "1",
        "2.5",
        "NaN",
        "-Infinity",
        ",",
        "\n",
        '"a"',
        " ",
        "\r\n",
    ]
)
accepts = nearly(
    [
        "text/csv",
        "application/json",
        "*/*",
        "text/*",
        "*",
        ";q=",
        "0",
        "1",
        ".5",
        ",",
        ";",
        "=",
        '"',
        "\\",
        " ",
        "verbose",
        "a/b",
    ]
).map(lambda header: header.decode("latin-1"))
