"""How a version of a model stands, in short: what the metrics, the status page and the terminal show."""

from collections.abc import Mapping

from msgspec import Struct

from gateway.types import Signature, State, TensorSpec


class VersionSummary(Struct, frozen=True):
    """One version on one line."""

    name: str
    version: int
    state: State
    provider: str = ""
    note: str = ""
    fallbacks: int = 0
    load_seconds: float = 0.0
    signatures: tuple[str, ...] = ()
    """As `written`."""
    contracts: tuple[Signature, ...] = ()
    """The same, for programs."""
    task: str = ""
    """What the model says it is for, if it does: "generate", "embed", "text-to-image"."""
    labels: tuple[str, ...] = ()
    error: str = ""


def written(signature: Signature) -> str:
    """The signature on one line: `serving_default(x float32[-1] -> y float32[-1])`."""
    return f"{signature.name}({_tensors(signature.inputs)} -> {_tensors(signature.outputs)})"


def _tensors(specs: Mapping[str, TensorSpec]) -> str:
    return ", ".join(f"{name} {spec.dtype}[{_shape(spec)}]" for name, spec in specs.items()) or "none"


def _shape(spec: TensorSpec) -> str:
    """-1 for a free dimension, as TF Serving writes it; "..." where even the rank is free."""
    if spec.shape is None:
        return "..."
    return ", ".join("-1" if size is None else str(size) for size in spec.shape)
