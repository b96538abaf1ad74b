"""classify and regress, in: `examples` of features, and a `context` that they share, to named tensors.

The model's inputs are the features; TF Serving hands the graph serialized tf.Examples instead.
Source: TF Serving, tensorflow_serving/util/json_tensor.cc (FillClassifyRegressRequestFromJson, AddValueToFeature);
TensorFlow, core/util/example_proto_fast_parsing.cc for what a missing or ill-typed feature is told.
"""

from math import prod
from typing import Any

from adapters.tfserving.body import ill_formed, parse_object
from adapters.tfserving.render import cut, declared, json_type
from adapters.tfserving.values import B64, Fault, is_b64, tensor_of, unescape
from gateway.errors import InvalidTensor
from gateway.interfaces import DecodeLimits
from gateway.types import INT64_MAX, Tensor, TensorSpec

Features = dict[str, list[Any]]
"""Name to values: bool, int, float, str, or a b64 object."""

_UINT64_MAX = 2**64 - 1


def read_examples(body: bytes, limits: DecodeLimits) -> tuple[dict[str, Any], list[Features]]:
    """The body's object, and its examples with the context in each. Raises MalformedBody or InvalidTensor."""
    document = parse_object(body, limits)
    context = _features(document["context"]) if "context" in document else {}
    if "examples" not in document:
        raise ill_formed(document, "When method is classify, key 'examples' is expected and was not found")
    examples = document["examples"]
    if not isinstance(examples, list):
        raise ill_formed(document, "Expecting 'examples' value to be an list/array")
    if not examples:
        raise ill_formed(document, "'examples' value is an empty array")
    # SPEC: the guide forbids a feature in both; TF Serving lets the example's win, and so does this.
    return document, [context | _features(example) for example in examples]


def tensors_of(examples: list[Features], inputs: dict[str, TensorSpec], limits: DecodeLimits) -> dict[str, Tensor]:
    """One tensor for each input, its first dimension running over the examples. Raises InvalidTensor."""
    return {
        name: _tensor([example.get(name) or [] for example in examples], spec, limits) for name, spec in inputs.items()
    }


# Features...


def _features(example: Any) -> Features:
    if not isinstance(example, dict):
        raise InvalidTensor(f"Example must be JSON object but got JSON {json_type(example)}")
    return {name: _values(name, content) for name, content in example.items()}


def _values(name: str, content: Any) -> list[Any]:
    values = content if isinstance(content, list) else [content]
    types = set(map(type, values))
    if not (types <= {float} or types <= {str}):
        _check_values(name, values)
    return values


def _check_values(name: str, values: list[Any]) -> None:
    first = ""
    for value in values:
        kind = _kind(value)
        if not kind:
            raise InvalidTensor(f"Feature: {cut(name)} has element with unexpected JSON type: {json_type(value)}")
        first = first or kind
        # SPEC: TF Serving refuses [1, 2.5] as well; whole numbers are welcome among floats here.
        if kind != first and not {kind, first} <= {"int64", "float"}:
            raise InvalidTensor(f"Unexpected element type in feature: {cut(name)} expecting type: {first}")
        if kind == "int64" and INT64_MAX < value <= _UINT64_MAX:
            raise InvalidTensor(f"Feature: {cut(name)} has uint64_t element. Only int64_t is supported.")
        if is_b64(value) and unescape(value[B64]) is None:
            raise InvalidTensor(
                f"Unable to base64 decode (feature {cut(name)}), the standard alphabet (+ and /) is expected"
            )


def _kind(value: Any) -> str:
    if isinstance(value, int):
        return "int64" if -INT64_MAX - 1 <= value <= _UINT64_MAX else "float"
    if isinstance(value, float):
        return "float"
    return "bytes" if isinstance(value, str | bytes) or is_b64(value) else ""


# Tensors...


def _tensor(columns: list[list[Any]], spec: TensorSpec, limits: DecodeLimits) -> Tensor:
    if [] in columns:
        raise InvalidTensor(
            f"Feature: {spec.name} (data type: {_wanted(spec)}) is required but could not be found. "
            f"(input {declared(spec)}, at examples[{columns.index([])}])"
        )
    inner = _inner_shape(columns[0], spec)
    _check_lengths(columns, prod(inner), spec)
    if spec.numpy_dtype.kind in "iub":
        columns = [[_unbool(value, spec) for value in column] for column in columns]
    try:
        tensor = tensor_of(columns if inner else [column[0] for column in columns], spec, limits)
    except Fault as fault:
        raise _ill_typed(columns, spec, fault) from None
    return tensor.reshape((len(columns), *inner)) if inner else tensor


def _inner_shape(column: list[Any], spec: TensorSpec) -> tuple[int, ...]:
    """The shape of one example's feature: as declared, with a free dimension as large as the first example's values."""
    if spec.shape is None:
        return (len(column),)
    if is_b64(column[0]) and (spec.media == "image" or spec.dtype == "uint8"):
        return ()
    known = prod(size for size in spec.shape[1:] if size is not None)
    if not spec.shape or spec.shape[1:].count(None) > 1:
        raise InvalidTensor(
            f"Feature: {spec.name} has no shape that a flat list could fill: use :predict ({declared(spec)})"
        )
    return tuple(max(1, len(column) // max(1, known)) if size is None else size for size in spec.shape[1:])


def _check_lengths(columns: list[list[Any]], wanted: int, spec: TensorSpec) -> None:
    for index, column in enumerate(columns):
        if len(column) != wanted:
            raise InvalidTensor(
                f"Name: <unknown>, Key: {spec.name}, Index: {index}.  Number of {_wanted(spec)} values != expected.  "
                f"values size: {len(column)} but output shape: [{wanted}] (input {declared(spec)})"
            )


def _unbool(value: Any, spec: TensorSpec) -> Any:
    """SPEC: true and false are the integers 1 and 0 in a tf.Example; a bool input takes them back."""
    if spec.dtype == "bool":
        return bool(value) if isinstance(value, int) and value in (0, 1) else value
    return int(value) if isinstance(value, bool) else value


def _ill_typed(columns: list[list[Any]], spec: TensorSpec, fault: Fault) -> InvalidTensor:
    index, position = (*fault.path, 0, 0)[:2]
    kind, wanted, reason = _kind(columns[index][position]), _wanted(spec), str(fault)
    if kind.replace("bytes", "string") != wanted:
        reason = f"Data types don't match. Data type: {kind.replace('bytes', 'string')} but expected type: {wanted}"
    return InvalidTensor(
        f"Name: <unknown>, Key: {spec.name}, Index: {index}.  {reason} "
        f"(input {declared(spec)}, at examples[{index}].{spec.name}[{position}])"
    )


def _wanted(spec: TensorSpec) -> str:
    """The kind of feature that an input takes, as a TensorFlow dtype."""
    kind = spec.numpy_dtype.kind
    return "float" if kind == "f" else "string" if kind == "O" else "int64"
