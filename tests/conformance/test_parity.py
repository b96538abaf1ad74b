"""The same tensors to the same models by every protocol: each answer has the same bits.

A protocol takes part by being there: tests/conformance/<adapter>/parity.py lists its ways (see senders.py).
"""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_models
import pytest
from conformance.senders import Gate, Sender
from conformance.v2.conftest import free_port
from live import gateway

from gateway import plugins

HERE = Path(__file__).resolve().parent
ADAPTERS = [name for name in plugins.names("adapters") if (HERE / name / "parity.py").exists()]
WITHOUT_TENSORS = {
    "openai": "its bodies hold messages, texts and embeddings",
    "textimage": "its texts hold a prompt, and a picture",
}

FLOAT32 = np.finfo(np.float32)
TENSORS: dict[str, np.ndarray] = {
    "float32": np.array(
        [[0.1, -0.0, 1.0], [FLOAT32.max, FLOAT32.min, FLOAT32.tiny], [1e-45, 16777217, -1 / 3]], np.float32
    ),
    "float32-not-finite": np.array([[np.nan, np.inf, -np.inf], [1.5, np.nan, 0.0]], np.float32),
    "float64": np.array([[0.1, -0.0], [5e-324, 1.7976931348623157e308]]),
    "int64": np.array([[2**53 + 1, -(2**53) - 1], [2**63 - 1, -(2**63)]], np.int64),
    "uint64": np.array([[2**64 - 1, 2**63 + 1]], np.uint64),
    "uint8": np.array([[0, 255], [7, 128]], np.uint8),
    "bool": np.array([[True, False], [False, True]]),
    "string": np.array([["", "a"], ["été ☃", 'say "hi", twice']], object),
    "one-row": np.array([[0.5, 2.0, -3.25]], np.float32),
    "many-rows": (np.arange(3000, dtype=np.float32) / 7).reshape(1000, 3),
}

MODELS = ("identity", "affine")


def _model_of(tensor: np.ndarray, kind: str) -> str:
    return f"{kind}-{'string' if tensor.dtype == object else tensor.dtype.name}"


def _expected(tensor: np.ndarray, kind: str) -> np.ndarray:
    return tensor if kind == "identity" else tensor * np.float32(0.5) + np.float32(3)


def _affine() -> object:
    """x / 2 + 3, so that something is computed too."""
    nodes = [onnx_models.node("Mul", ["x", "half"], ["m"]), onnx_models.node("Add", ["m", "three"], ["y"])]
    weights = [onnx_models.weight("half", np.float32(0.5)), onnx_models.weight("three", np.float32(3))]
    ends = [[onnx_models.value(name, "float32", ("N", "M"))] for name in "xy"]
    return onnx_models.model(nodes, *ends, weights)


def _senders() -> Iterator[tuple[str, Sender]]:
    for adapter in ADAPTERS:
        module = importlib.import_module(f"conformance.{adapter}.parity")
        yield from ((f"{adapter}-{name}", sender) for name, sender in module.SENDERS.items())


SENDERS = dict(_senders())

CELLS = [
    (name, kind, case)
    for name, sender in SENDERS.items()
    for kind in MODELS
    for case, tensor in TENSORS.items()
    if ("string" if tensor.dtype == object else tensor.dtype.name) in sender.dtypes
    and (kind == "identity" or tensor.dtype == np.float32)
    and (sender.not_finite or case != "float32-not-finite")
]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """A gateway with every protocol on, and a model for every dtype."""
    base: Path = tmp_path_factory.mktemp("parity")
    for dtype in ("float32", "float64", "int64", "uint64", "uint8", "bool", "string"):
        model = onnx_models.identity(dtype, ("N", "M"))
        onnx_models.write(model, base / "models" / f"identity-{dtype}" / "1")
    onnx_models.write(_affine(), base / "models" / "affine-float32" / "1")
    port = free_port()
    config = base / "config.toml"
    models = json.dumps(str(base / "models"))
    config.write_text(f'models_dir = {models}\n[gateway]\ndevice = "cpu"\ngrpc_port = {port}\n', "utf-8")
    with gateway(config) as live:
        live.wait_until("/readyz", 200)
        yield Gate(live.url, port)


@pytest.mark.parametrize(("name", "kind", "case"), CELLS)
def test_bits_are_equal(gate: Gate, name: str, kind: str, case: str) -> None:
    """What comes back has the dtype, the shape and the bits that the model gives for that tensor."""
    tensor = TENSORS[case]
    expected = _expected(tensor, kind)
    found = SENDERS[name].send(gate, _model_of(tensor, kind), tensor)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if tensor.dtype == object:
        assert found.tolist() == expected.tolist()
    else:
        assert found.tobytes() == expected.tobytes(), (found, expected)


def test_every_protocol_takes_part() -> None:
    """Whoever carries tensors is in the matrix."""
    assert set(plugins.names("adapters")) - set(ADAPTERS) <= set(WITHOUT_TENSORS)


def test_every_dtype_by_every_protocol() -> None:
    """No protocol takes part with less than every dtype, by one of its ways or another."""
    for adapter in ADAPTERS:
        ways = [sender for name, sender in SENDERS.items() if name.startswith(f"{adapter}-")]
        carried = set().union(*(sender.dtypes for sender in ways))
        assert carried == {"float32", "float64", "int64", "uint64", "uint8", "bool", "string"}, adapter
        assert any(sender.not_finite for sender in ways), adapter
