"""The signatures a model offers: those of model.toml, else one over all of its inputs and outputs."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gateway.errors import LoadFailed, SignatureNotFound
from gateway.interfaces import SignatureConfig
from gateway.types import DEFAULT_SIGNATURE, Signature, TensorSpec

CLASSIFY_OUTPUTS = frozenset({"classes", "scores"})


class Wiring(Struct, frozen=True):
    """A signature, and which of the model's own names each of its names stands for."""

    signature: Signature
    inputs: dict[str, str]
    outputs: dict[str, str]


def wirings(
    configs: Mapping[str, SignatureConfig], inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
) -> dict[str, Wiring]:
    """The wiring of every signature. Raises LoadFailed for names that the model does not have."""
    configs = configs or {DEFAULT_SIGNATURE: SignatureConfig()}
    return {name: _wiring(name, config, inputs, outputs) for name, config in configs.items()}


def not_found(name: str, known: Iterable[str]) -> SignatureNotFound:
    """The complaint about a signature that the model does not have, and what it has."""
    return SignatureNotFound(f"there is no signature {name[:128]!r}; there are: {', '.join(known) or 'none'}", name)


def _wiring(
    name: str, config: SignatureConfig, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
) -> Wiring:
    taken = config.inputs or {own: own for own in inputs}
    given = config.outputs or {own: own for own in outputs}
    _check_names(name, "input", taken, inputs)
    _check_names(name, "output", given, outputs)
    _check_method(name, config, given)
    signature = Signature(
        name=name,
        method=config.method,
        inputs={told: inputs[own] for told, own in taken.items()},
        outputs={told: outputs[own] for told, own in given.items()},
    )
    return Wiring(signature, dict(taken), dict(given))


def _check_names(signature: str, side: str, names: Mapping[str, str], known: Mapping[str, TensorSpec]) -> None:
    where = f"signatures.{signature}.{side}s"
    for own in names.values():
        if own not in known:
            raise LoadFailed(
                f"{where}: the model has no {side} {own!r}; it has {', '.join(map(repr, known)) or 'none'}"
            )
    if side == "input" and len(set(names.values())) < len(names):
        twice = next(own for own in names.values() if list(names.values()).count(own) > 1)
        raise LoadFailed(f"{where}: two names stand for the model's input {twice!r}")


def _check_method(signature: str, config: SignatureConfig, outputs: Mapping[str, str]) -> None:
    names = ", ".join(map(repr, outputs))
    if config.method == "classify" and not (outputs and outputs.keys() <= CLASSIFY_OUTPUTS):
        raise LoadFailed(
            f"signatures.{signature}.outputs: a classify signature gives 'classes', 'scores' or both, not {names}"
        )
    if config.method == "regress" and len(outputs) != 1:
        raise LoadFailed(f"signatures.{signature}.outputs: a regress signature gives one output, not {names}")
