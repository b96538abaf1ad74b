"""The protocol's datatypes, and what carries them here.

Source: Open Inference Protocol, "Tensor Data Types"; BF16 is Triton's.
"""

import numpy as np

from gateway.types import FLOAT32_CARRIED, Tensor, TensorSpec

BYTES, BOOL, BF16 = "BYTES", "BOOL", "BF16"

DTYPES: dict[str, np.dtype] = {
    BOOL: np.dtype(bool),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    BF16: np.dtype(np.float32),
    BYTES: np.dtype(object),
}
"""Datatype to the dtype of the arrays that carry it."""

_NAMES = {dtype: name for name, dtype in DTYPES.items() if name not in (BF16, BYTES)}


def declared(spec: TensorSpec) -> str:
    """What clients are told that the tensor is.

    The float8 family has no datatype and is FP32, exactly; what may be anything is told as FP64.
    """
    if spec.dtype == "string":
        return BYTES
    if spec.dtype == "bfloat16":
        return BF16
    if spec.dtype == "any":
        return "FP64"
    return _NAMES.get(spec.numpy_dtype) or spec.dtype.upper()


def given(tensor: Tensor, spec: TensorSpec | None) -> str | None:
    """The datatype of a model's output; None if the protocol has none for it."""
    if tensor.dtype.kind in "OUS":
        return BYTES
    if spec is not None and spec.dtype == "bfloat16":
        return BF16
    return _NAMES.get(tensor.dtype)


def takes(spec: TensorSpec, datatype: str) -> bool:
    """Whether an input of that declaration takes the datatype."""
    if spec.dtype == "any" or datatype == declared(spec):
        return True
    if spec.media == "image" and datatype == BYTES:
        return True
    return spec.dtype in FLOAT32_CARRIED and datatype == "FP32"
