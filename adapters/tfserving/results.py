"""classify and regress: which signatures they may call, and their answers.

Source: TF Serving, servables/tensorflow/classifier.cc and regressor.cc.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from adapters._tensorjson import NonFinite, dump, texts
from adapters.tfserving.body import find_signature
from adapters.tfserving.errors import NO_EXAMPLES_SIGNATURE
from adapters.tfserving.predictions import dump_objects
from gateway.errors import InvalidTensor
from gateway.types import ModelMetadata, Signature, Tensor

_CLASSES = "classes"
_SCORES = "scores"
_LOST = "; a [signatures] table in model.toml may rename outputs"


def classify_signature(name: str, metadata: ModelMetadata) -> Signature:
    """The signature, if it can classify. Raises SignatureNotFound or InvalidTensor."""
    signature = _signature(name, metadata)
    outputs = signature.outputs
    if len(outputs) not in (1, 2):
        raise InvalidTensor(f"Expected one or two output Tensors, found {len(outputs)}{_LOST}")
    if not outputs.keys() & {_CLASSES, _SCORES}:
        raise InvalidTensor(
            'Expected classification signature outputs to contain at least one of "classes" or "scores". '
            f"Signature was: {', '.join(outputs)}{_LOST}"
        )
    return signature


def classify_outputs(signature: Signature) -> tuple[str, ...]:
    """The outputs that a classification is made of."""
    return tuple(name for name in (_CLASSES, _SCORES) if name in signature.outputs)


def regress_signature(name: str, metadata: ModelMetadata) -> Signature:
    """The signature, if it can regress. Raises SignatureNotFound or InvalidTensor."""
    signature = _signature(name, metadata)
    # SPEC: TF Serving also insists on the name `outputs`; the only output cannot be mistaken, whatever its name.
    if len(signature.outputs) != 1:
        raise InvalidTensor(f"Expected one output Tensor.{_LOST}")
    return signature


def _signature(name: str, metadata: ModelMetadata) -> Signature:
    return find_signature(name, metadata, NO_EXAMPLES_SIGNATURE)


def classifications(outputs: Mapping[str, Tensor], examples: int, non_finite: NonFinite) -> bytes:
    """`results`: for each example its [label, score] pairs. Raises InvalidTensor."""
    classes, scores = outputs.get(_CLASSES), outputs.get(_SCORES)
    for name, tensor, kinds in ((_CLASSES, classes, "OUS"), (_SCORES, scores, "f")):
        if tensor is not None:
            _check_matrix(name, tensor, kinds, examples)
    if classes is not None and scores is not None and classes.shape != scores.shape:
        raise InvalidTensor(
            f"Tensors class and score should match in dim_size(1). Got {classes.shape[1]} vs. {scores.shape[1]}"
        )
    shape = classes.shape if classes is not None else scores.shape if scores is not None else (examples, 0)
    labels: Any = texts(classes) if classes is not None else np.full(shape, "").tolist()
    values = scores if scores is not None else np.zeros(shape, np.float32)
    table = [list(zip(*pair, strict=True)) for pair in zip(labels, values, strict=True)]
    return b'{"results":' + dump_objects(table, (values,), non_finite) + b"}"


def _check_matrix(name: str, tensor: Tensor, kinds: str, examples: int) -> None:
    if tensor.ndim != 2:
        raise InvalidTensor(f"Expected Tensor shape: [batch_size num_classes] but got {list(tensor.shape)} of {name}")
    if tensor.dtype.kind not in kinds:
        wanted = "DT_STRING" if name == _CLASSES else "DT_FLOAT"
        raise InvalidTensor(f"Expected {name} Tensor of {wanted}. Got: {tensor.dtype}")
    _check_batch(name, tensor, examples)


def _check_batch(name: str, tensor: Tensor, examples: int) -> None:
    if len(tensor) != examples:
        raise InvalidTensor(f"Expected {name} output batch size of {examples}. Got: {len(tensor)}")


def regressions(outputs: Mapping[str, Tensor], examples: int, non_finite: NonFinite) -> bytes:
    """`results`: one number for each example. Raises InvalidTensor."""
    ((name, tensor),) = outputs.items()
    if not (tensor.ndim == 1 or (tensor.ndim == 2 and tensor.shape[1] == 1)):
        raise InvalidTensor(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{list(tensor.shape)} of {name}"
        )
    if tensor.dtype.kind != "f":
        raise InvalidTensor(f"Expected output Tensor of DT_FLOAT.  Got: {tensor.dtype} of {name}")
    _check_batch(name, tensor, examples)
    return b'{"results":' + dump(tensor.ravel(), non_finite) + b"}"
