"""What the property tests draw: tensors of every dtype, JSON texts, and bodies that are nearly right."""

import json
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gateway.types import Tensor

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool", "string")

texts = st.text(st.characters(codec="utf-8"), max_size=12)


def tensors(dtype: str, least_rank: int = 0) -> st.SearchStrategy[Tensor]:
    """Tensors of up to three dimensions, dimensions of 0 among them."""
    shapes = npst.array_shapes(min_dims=least_rank, max_dims=3, min_side=0, max_side=4)
    if dtype == "string":
        return shapes.flatmap(lambda shape: npst.arrays(object, shape, elements=texts, fill=st.nothing()))
    return npst.arrays(np.dtype(dtype), shapes)


def json_values(leaves: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Any]:
    """Any JSON value, its floats finite unless the leaves say otherwise."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
    return st.recursive(
        leaves or scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=12,
    )


nested_numbers = st.recursive(
    st.integers(-(2**65), 2**65) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-3, 300),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=16,
)
"""Numbers in lists, ragged or not."""

_PARTS = (
    '{"instances":', '{"inputs":', '{"examples":[{"x":', '{"signature_name":"serving_default",', "[", "]", "{", "}",
    ",", ":", '"', '"x"', '"s":', '"b64"', '{"b64":"AAA="}', "\\", "\\u", "\\ud83d", "\\udc00", "1", "-", "0", "1.5",
    "e", "1e400", "-0.0", "NaN", "Infinity", "-Inf", "nul", "null", "true", "fals", "2147483648",
    "18446744073709551616", " ", "\n", "\0", "é", "\ufeff", "9" * 400, "[" * 300, "]" * 300,
)  # fmt: skip

bodies = (
    st.binary(max_size=64)
    | st.lists(st.sampled_from(_PARTS), max_size=24).map(lambda parts: "".join(parts).encode())
    | st.builds(
        lambda key, value: json.dumps({key: value}, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        st.sampled_from(["instances", "inputs", "examples", "context", "signature_name"]),
        json_values() | nested_numbers,
    )
    | st.builds(
        lambda text, at, byte: text[:at] + bytes([byte]) + text[at + 1 :],
        st.just(b'{"instances":[{"x":[1.5,-2],"s":"a\\n"},{"x":[3e2,NaN],"s":{"b64":"AA=="}}]}'),
        st.integers(0, 75),
        st.integers(0, 255),
    )
)
"""Bodies from noise to nearly right."""
