"""The row format: a list of values for the only input, or a list of objects with a value for each input.

Source: TF Serving, tensorflow_serving/util/json_tensor.cc (FillTensorMapFromInstancesList, AddInstanceItem).
"""

from typing import Any

from adapters.tfserving.render import cut, declared, expected, render
from adapters.tfserving.values import MIXED_IMAGES, Fault, is_b64, tensor_of, try_tensor
from gateway.errors import InvalidTensor
from gateway.interfaces import DecodeLimits
from gateway.types import Tensor, TensorSpec

_CHUNK = 1024
"""Elements that are tried together while looking for the faulty one."""

Inputs = dict[str, TensorSpec]


def tensors_of(instances: list[Any], inputs: Inputs, limits: DecodeLimits) -> dict[str, Tensor]:
    """One tensor for each input, its first dimension running over the instances. Raises InvalidTensor."""
    named = _is_named(instances[0])
    if not named and len(inputs) > 1:
        raise InvalidTensor(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
            f"tensorinfo_map; {expected(inputs)}"
        )
    tensors = _tensors(instances, named, inputs, limits)
    if tensors is None:
        raise _first_fault(instances, named, inputs, limits)
    return tensors


def _tensors(instances: list[Any], named: bool, inputs: Inputs, limits: DecodeLimits) -> dict[str, Tensor] | None:
    columns = _columns(instances, named, inputs)
    if columns is None:
        return None
    tensors: dict[str, Tensor] = {}
    for name, spec in inputs.items():
        tensor = try_tensor(columns[name], spec, limits)
        if tensor is None:
            return None
        tensors[name] = tensor
    return tensors


def _is_named(element: Any) -> bool:
    return isinstance(element, dict) and not is_b64(element)


def _columns(instances: list[Any], named: bool, inputs: Inputs) -> dict[str, list[Any]] | None:
    """The values of each input; None if the elements do not all have the form of the first, or other keys."""
    if not named:
        return None if any(map(_is_named, instances)) else dict.fromkeys(inputs, instances)
    names = inputs.keys()
    if not all(isinstance(element, dict) and element.keys() == names for element in instances):
        return None
    if "b64" in names and any(map(is_b64, instances)):
        return None
    return {name: [element[name] for element in instances] for name in names}


def _first_fault(instances: list[Any], named: bool, inputs: Inputs, limits: DecodeLimits) -> InvalidTensor:
    """What TF Serving says, which looks at one element after the other."""
    seen: dict[str, Tensor] = {}
    for start in range(0, len(instances), _CHUNK):
        chunk = instances[start : start + _CHUNK]
        tensors = _tensors(chunk, named, inputs, limits) if start else None
        if tensors and all(tensor.shape[1:] == seen[name].shape for name, tensor in tensors.items()):
            continue
        for index, element in enumerate(chunk, start):
            error = _element_fault(element, index, named, inputs, limits, seen)
            if error is not None:
                return error
    # Each element by itself is in order, but the list around them is one level too many.
    return InvalidTensor(f"tensor parsing error: {', '.join(inputs)}; instances are nested too deeply")


def _element_fault(
    element: Any, index: int, named: bool, inputs: Inputs, limits: DecodeLimits, seen: dict[str, Tensor]
) -> InvalidTensor | None:
    if _is_named(element) != named:
        if named:
            return InvalidTensor(f"Expecting object but got list at item {index} of input list")
        return InvalidTensor(f"Expecting value/list but got object at item {index} of input list; {expected(inputs)}")
    if not named:
        (spec,) = inputs.values()
        why = _value_fault(element, spec, limits, seen, f"instances[{index}]")
        return InvalidTensor(f"Failed to process element: {index} of 'instances' list. Error: {why}") if why else None
    for key, value in element.items():
        if key in inputs:
            why = _value_fault(value, inputs[key], limits, seen, f"instances[{index}].{key}")
        else:
            why = f"INVALID_ARGUMENT: JSON object: does not have named input: {cut(key)}; {expected(inputs)}"
        if why:
            return InvalidTensor(
                f"Failed to process element: {index} key: {cut(key)} of 'instances' list. Error: {why}"
            )
    if element.keys() != inputs.keys():
        return InvalidTensor(
            f"Failed to process element: {index} of 'instances' list. JSON object: {render(element)} "
            f"keys must be equal to: {','.join(sorted(inputs))}; {expected(inputs)}"
        )
    return None


def _value_fault(value: Any, spec: TensorSpec, limits: DecodeLimits, seen: dict[str, Tensor], place: str) -> str | None:
    """What is wrong with one element's value, by itself or beside the first element's."""
    try:
        tensor = tensor_of(value, spec, limits)
    except Fault as fault:
        place += "".join(f"[{index}]" for index in fault.path)
        return f"{fault.code}: {fault} (input {declared(spec)}, at {place})"
    first = seen.setdefault(spec.name, tensor)
    if tensor.dtype != first.dtype:
        return f"INVALID_ARGUMENT: {MIXED_IMAGES} (input {declared(spec)}, at {place})"
    if tensor.size != first.size:
        why = f"Expecting tensor size: {first.size} but got: {tensor.size}"
    elif tensor.shape != first.shape:
        why = f"Expecting shape {_shape(first)} but got: {_shape(tensor)}"
    else:
        return None
    return (
        f"INVALID_ARGUMENT: {why} (input {declared(spec)}, at {place}: shape {_shape(tensor)}, where instances[0] "
        f"has {_shape(first)}; send instances of different shapes in separate requests)"
    )


def _shape(tensor: Tensor) -> str:
    return "[" + ",".join(map(str, tensor.shape)) + "]"
