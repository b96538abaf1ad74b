"""A model's metadata in the wrapper's form.

Source: seldon-core, python/seldon_core/metadata.py (SeldonModelMetadata and its schema).
"""

from collections.abc import Mapping
from typing import Any

from adapters.seldon import unit
from adapters.seldon.errors import BadMetadata
from gateway.types import ModelMetadata, Signature, TensorSpec

Document = dict[str, Any]

_EMPTY: Document = {"name": "", "versions": [""], "platform": "", "inputs": [], "outputs": [], "custom": {}}
_V2_DATATYPES = {"string": "BYTES", "float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16"}


def describe(metadata: ModelMetadata) -> Document:
    """What the model says of itself; a graph's own signature where nobody wrote anything. Raises BadMetadata."""
    if "has" in metadata.extras:
        given = metadata.extras.get("init_metadata") or {}
        return _EMPTY | unit.image_metadata(metadata) | _checked(given) | _checked(unit.metadata(metadata))
    signature = default_signature(metadata)
    return {
        "name": metadata.name,
        "versions": [str(version) for version in metadata.versions or (metadata.version,)],
        "platform": metadata.platform,
        "inputs": [_tensor(name, spec) for name, spec in signature.inputs.items()],
        "outputs": [_tensor(name, spec) for name, spec in signature.outputs.items()],
        "custom": {},
    }


def default_signature(metadata: ModelMetadata) -> Signature:
    """The one that a message means: there is no way to name another."""
    signatures = metadata.signatures
    return signatures.get("serving_default") or next(iter(signatures.values()))


def _tensor(name: str, spec: TensorSpec) -> Document:
    shape = [] if spec.shape is None else [-1 if size is None else size for size in spec.shape]
    return {"name": name, "datatype": _V2_DATATYPES.get(spec.dtype, spec.dtype.upper()), "shape": shape}


def _checked(given: Any) -> Document:
    """SPEC: the schema allows no other keys, and only texts in `versions` and `custom`."""
    if not isinstance(given, Mapping) or not _EMPTY.keys() >= given.keys():
        raise _bad()
    document = dict(given)
    texts = [document.get("name", ""), document.get("platform", "")]
    texts += [*_list(document, "versions"), *_values(document)]
    tensors = [*_list(document, "inputs"), *_list(document, "outputs")]
    if not all(isinstance(text, str) for text in texts) or not all(map(_is_tensor, tensors)):
        raise _bad()
    return document


def _list(document: Document, key: str) -> list[Any]:
    value = document.get(key, [])
    if not isinstance(value, list):
        raise _bad()
    return value


def _values(document: Document) -> list[Any]:
    custom = document.get("custom", {})
    if not isinstance(custom, dict):
        raise _bad()
    return list(custom.values())


def _is_tensor(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if "messagetype" in value:
        return isinstance(value["messagetype"], str) and value.keys() <= {"messagetype", "schema"}
    return value.keys() == {"name", "datatype", "shape"} and isinstance(value["shape"], list)


def _bad() -> BadMetadata:
    return BadMetadata("Model metadata unavailable")
