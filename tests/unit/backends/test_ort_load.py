"""Loading a model: what is read, what is refused and how it is said, and which signatures come of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import (
    external,
    floats,
    identity,
    lookup,
    map_type,
    model,
    node,
    sequence_type,
    tensor_type,
    value,
    weight,
    write,
)
from served import Load

from gateway.errors import InvalidTensor, LoadFailed
from gateway.interfaces import SignatureConfig


def refusal(load: Load, *args: Any, **keywords: Any) -> str:
    """What the load is refused with; never a path."""
    with pytest.raises(LoadFailed) as caught:
        load(*args, **keywords)
    text = str(caught.value)
    assert "/" not in text.replace("classes/", "")
    return text


# Files...


def test_a_folder_without_a_model(load: Load, tmp_path: Path) -> None:
    """The missing file is named."""
    (tmp_path / "demo" / "1").mkdir(parents=True)
    assert refusal(load, None) == "there is no model.onnx in the version's folder"
    (tmp_path / "demo" / "1" / "lin.onnx").write_text("x")
    said = (
        "there is no model.onnx in the version's folder; the folder holds lin.onnx, which is not read under that name"
    )
    assert refusal(load, None) == said


def test_a_model_that_is_a_folder(load: Load, tmp_path: Path) -> None:
    """Only regular files are read."""
    (tmp_path / "demo" / "1" / "model.onnx").mkdir(parents=True)
    assert refusal(load, None) == "model.onnx is not a regular file"


@pytest.mark.parametrize("data", [b"not a model", identity().SerializeToString()[:-9]], ids=["other", "cut"])
def test_a_damaged_file(load: Load, data: bytes) -> None:
    """Other files and cut ones are told apart from models."""
    assert refusal(load, data) == "model.onnx is not an ONNX model, or is damaged or cut short"


def test_an_empty_file(load: Load) -> None:
    """Zero bytes are a valid protocol buffer, but no model."""
    assert "holds no graph with outputs" in refusal(load, b"")


def one_node(operator: str, dtype: str = "float32", reads: str = "x", **versions: int) -> onnx.ModelProto:
    """One operation from x to y."""
    return model([node(operator, [reads], ["y"])], [value("x", dtype)], [value("y", dtype)], **versions)


@pytest.mark.parametrize(
    ("faulty", "said"),
    [
        (one_node("Identity", opset=999), "Opset 999"),
        (one_node("Identity", ir_version=99), "Unsupported model IR version: 99"),
        (one_node("Nope"), "No Op registered for Nope"),
        (one_node("Identity", reads="q"), "'q' is not a graph input"),
        (one_node("Neg", "bool"), "tensor(bool)"),
    ],
)
def test_a_model_that_onnx_runtime_refuses(load: Load, faulty: onnx.ModelProto, said: str) -> None:
    """ONNX Runtime's reason is shown, without its paths and codes."""
    text = refusal(load, faulty)
    assert text.startswith("model.onnx: ")
    assert said in text
    assert "ONNXRuntimeError" not in text


def test_nothing_is_printed(load: Load, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither a load nor a failing one nor a failing run writes to the terminal."""
    served = load(lookup(4))
    with pytest.raises(InvalidTensor, match="out of data bounds"):
        served.infer({"x": np.array([9])})
    refusal(load, b"junk")
    assert capfd.readouterr() == ("", "")


# Confinement...


def with_external(location: str) -> onnx.ModelProto:
    """`y = x + w`, the data of w in another file."""
    return model(
        [node("Add", ["x", "w"], ["y"])],
        [value("x", "float32")],
        [value("y", "float32")],
        [external("w", floats(64), location)],
    )


def in_attribute(location: str) -> onnx.ModelProto:
    """The same tensor as the value of a Constant."""
    return model(
        [node("Constant", [], ["w"], value=external("w", floats(64), location)), node("Add", ["x", "w"], ["y"])],
        [value("x", "float32")],
        [value("y", "float32")],
    )


def in_subgraph(location: str) -> onnx.ModelProto:
    """The same tensor as an initializer of a branch."""
    branch = onnx.helper.make_graph(
        [node("Identity", ["w"], ["b"])], "branch", [], [value("b", "float32")], [external("w", floats(64), location)]
    )
    return model(
        [node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)],
        [value("x", "bool", [])],
        [value("y", "float32")],
    )


def in_function(location: str) -> onnx.ModelProto:
    """The same tensor in a function of the model's own."""
    body = [node("Constant", [], ["w"], value=external("w", floats(64), location)), node("Add", ["x", "w"], ["y"])]
    built = model([node("Mine", ["x"], ["y"], domain="mine")], [value("x", "float32")], [value("y", "float32")])
    built.functions.append(onnx.helper.make_function("mine", "Mine", ["x"], ["y"], body, built.opset_import[:1]))
    return built


def in_sparse_weight(location: str) -> onnx.ModelProto:
    """A sparse initializer whose values lie in another file."""
    built = identity()
    values = external("w", floats(64), location)
    built.graph.sparse_initializer.append(
        onnx.helper.make_sparse_tensor(values, weight("indices", np.arange(64)), [64])
    )
    return built


PLACES = [with_external, in_attribute, in_subgraph, in_function, in_sparse_weight]


@pytest.mark.parametrize("build", PLACES)
@pytest.mark.parametrize("location", ["../../outside.bin", "link.bin", "folder/inner.bin"])
def test_external_data_outside_is_refused(load: Load, tmp_path: Path, build: Callable[..., Any], location: str) -> None:
    """Wherever a tensor hides and by whatever link it leads out, its file is not opened."""
    floats(64).tofile(tmp_path / "outside.bin")
    floats(64).tofile(tmp_path / "inner.bin")
    folder = tmp_path / "demo" / "1"
    folder.mkdir(parents=True)
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "folder").symlink_to(tmp_path)
    assert refusal(load, build(location)) == "the external data of tensor 'w' lies outside the model's own folder"


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("/etc/passwd", "tensor 'w': the location of its external data is absolute; it must be relative"),
        ("missing.bin", "the external data of tensor 'w': the file is missing, or a link that leads nowhere"),
        ("loop.bin", "the external data of tensor 'w': the file is missing, or a link that leads nowhere"),
        (".", "the external data of tensor 'w' is not a regular file"),
        ("", "tensor 'w' does not say which file its data is in"),
        ("a\0b", "tensor 'w' does not say which file its data is in"),
    ],
)
def test_external_data_that_cannot_be(load: Load, tmp_path: Path, location: str, said: str) -> None:
    """Each way that a location can be wrong has its text."""
    folder = tmp_path / "demo" / "1"
    folder.mkdir(parents=True)
    (folder / "loop.bin").symlink_to("loop.bin")
    assert refusal(load, with_external(location)) == said


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_external_data_inside(load: Load, tmp_path: Path, dtype: str) -> None:
    """Data beside the model is found, also where the graph had to be rewritten."""
    write(identity(), tmp_path / "demo" / "1")
    floats(64).tofile(tmp_path / "demo" / "1" / "weights.bin")
    built = with_external("weights.bin")
    if dtype == "bfloat16":
        del built.graph.node[:]
        built.graph.node.append(node("Cast", ["x"], ["wide"], to=onnx.TensorProto.FLOAT))
        built.graph.node.append(node("Add", ["wide", "w"], ["y"]))
        built.graph.input[0].CopyFrom(value("x", dtype))
    served = load(built)
    assert served.infer({"x": np.ones(1, np.float32)})["y"].tolist() == (floats(64) + 1).tolist()


def test_a_model_file_that_leads_out(load: Load, tmp_path: Path) -> None:
    """A link to another model's file is not followed."""
    outside = write(identity(), tmp_path / "other")
    (tmp_path / "demo" / "1").mkdir(parents=True)
    (tmp_path / "demo" / "1" / "model.onnx").symlink_to(outside / "model.onnx")
    assert refusal(load, None) == "model.onnx lies outside the model's own folder"


def test_a_model_file_linked_inside(load: Load, tmp_path: Path) -> None:
    """A link that stays in the model's folder is followed, and external data is looked for beside the link."""
    write(with_external("weights.bin"), tmp_path / "demo" / "blobs")
    folder = tmp_path / "demo" / "1"
    folder.mkdir()
    (folder / "model.onnx").symlink_to("../blobs/model.onnx")
    floats(64).tofile(folder / "weights.bin")
    assert load(None).infer({"x": np.zeros(1, np.float32)})["y"].tolist() == floats(64).tolist()


# Types...


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tensor_type("uint4", ["N"]), "uint4"),
        (tensor_type("int4", ["N"]), "int4"),
        (tensor_type("complex64", ["N"]), "complex64"),
        (sequence_type(tensor_type("bfloat16", ["N"])), "sequence, map or optional of bfloat16"),
        (sequence_type(sequence_type(tensor_type("float32", ["N"]))), "sequence of sequences"),
        (map_type(tensor_type("float32", [])), "map"),
        (sequence_type(map_type(tensor_type("float32", []))), "sequence of maps"),
        (onnx.TypeProto(sparse_tensor_type=onnx.TypeProto.SparseTensor(elem_type=1)), "sparse tensor"),
        (onnx.TypeProto(), "of unknown type"),
    ],
)
def test_types_that_are_not_carried(load: Load, kind: onnx.TypeProto, said: str) -> None:
    """The input and its type are named at load, not at the first request."""
    faulty = model([node("Identity", ["x"], ["y"])], [value("x", kind)], [value("y", "float32")])
    assert refusal(load, faulty) == f"input 'x' is {said}, which cannot be carried as a tensor here"


def test_an_output_that_is_not_carried(load: Load) -> None:
    """Outputs are looked at too."""
    faulty = model([node("Identity", ["x"], ["y"])], [value("x", "float32")], [value("y", "int4")])
    assert refusal(load, faulty) == "output 'y' is int4, which cannot be carried as a tensor here"


# Signatures...


def branches() -> onnx.ModelProto:
    """`y = -x`, and apart from it `t_out = t`, a string."""
    return model(
        [node("Neg", ["x"], ["y"]), node("Identity", ["t"], ["t_out"])],
        [value("x", "float32"), value("t", "string", ["M", 2])],
        [value("y", "float32"), value("t_out", "string", ["M", 2])],
    )


def test_the_default_signature(load: Load) -> None:
    """Without configuration there is one predict signature over everything, in the graph's order."""
    metadata = load(branches()).backend.metadata
    signature = metadata.signatures["serving_default"]
    assert list(metadata.signatures) == ["serving_default"]
    assert (signature.method, list(signature.inputs), list(signature.outputs)) == (
        "predict",
        ["x", "t"],
        ["y", "t_out"],
    )
    assert (metadata.name, metadata.version, metadata.platform) == ("demo", 1, "onnxruntime_onnx")


def test_signatures_rename_and_choose(load: Load) -> None:
    """A name on the wire stands for one of the graph's; what a signature leaves out need not be sent."""
    served = load(
        branches(),
        signatures={
            "numbers": SignatureConfig(inputs={"in": "x"}, outputs={"out": "y", "again": "y"}),
            "texts": SignatureConfig(inputs={"t": "t"}, outputs={"t_out": "t_out"}),
            "all": SignatureConfig(),
        },
    )
    signatures = served.backend.metadata.signatures
    assert list(signatures) == ["numbers", "texts", "all"]
    assert signatures["numbers"].inputs["in"].name == "x"
    answer = served.infer({"in": np.ones(2, np.float32)}, signature="numbers")
    assert {name: array.tolist() for name, array in answer.items()} == {"out": [-1.0, -1.0], "again": [-1.0, -1.0]}
    texts = np.array([["a", "b"]], object)
    assert served.infer({"t": texts}, signature="texts")["t_out"].tolist() == [["a", "b"]]
    assert list(served.infer({"x": floats(1), "t": texts}, signature="all")) == ["y", "t_out"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (SignatureConfig(inputs={"a": "q"}), "signatures.s.inputs: the model has no input 'q'; it has 'x', 't'"),
        (SignatureConfig(outputs={"a": "q"}), "signatures.s.outputs: the model has no output 'q'; it has 'y', 't_out'"),
        (
            SignatureConfig(inputs={"a": "x", "b": "x"}),
            "signatures.s.inputs: two names stand for the model's input 'x'",
        ),
        (
            SignatureConfig(inputs={"t": "t"}),
            "signatures.s: output 'y' depends on the model's input 'x', which the signature does not take",
        ),
        (
            SignatureConfig("classify", outputs={"classes": "t_out", "y": "y"}),
            "signatures.s.outputs: a classify signature gives 'classes', 'scores' or both, not 'classes', 'y'",
        ),
        (
            SignatureConfig("classify"),
            "signatures.s.outputs: a classify signature gives 'classes', 'scores' or both, not 'y', 't_out'",
        ),
        (
            SignatureConfig("regress"),
            "signatures.s.outputs: a regress signature gives one output, not 'y', 't_out'",
        ),
    ],
)
def test_signatures_that_do_not_fit(load: Load, config: SignatureConfig, said: str) -> None:
    """The text names the key of model.toml and what the graph has."""
    assert refusal(load, branches(), signatures={"s": config}) == said


def test_dependence_through_a_subgraph(load: Load) -> None:
    """A signature must take what only a branch of an If reads."""
    branch = onnx.helper.make_graph([node("Identity", ["x"], ["b"])], "branch", [], [value("b", "float32")])
    built = model(
        [node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch)],
        [value("x", "float32"), value("flag", "bool", [])],
        [value("y", "float32")],
    )
    text = refusal(load, built, signatures={"s": SignatureConfig(inputs={"flag": "flag"})})
    assert text == "signatures.s: output 'y' depends on the model's input 'x', which the signature does not take"


def test_no_dependence_through_nothing(load: Load) -> None:
    """An output left out of one node is not the input left out of another, though both have an empty name."""
    ones = np.ones((1, 1, 1), np.float32)
    built = model(
        [
            node("RNN", ["x", "w", "w"], ["", "last"], hidden_size=1),
            node("Clip", ["t", "", "most"], ["y"]),
        ],
        [value("x", "float32", [None, 1, 1]), value("t", "float32")],
        [value("last", "float32", [1, 1, 1]), value("y", "float32")],
        [weight("w", ones), weight("most", np.float32(1))],
    )
    served = load(built, signatures={"s": SignatureConfig(inputs={"t": "t"}, outputs={"y": "y"})})
    assert served.infer({"t": floats(3)}, signature="s")["y"].tolist() == [0.0, 1.0, 1.0]


# The warm-up...


def test_a_model_that_refuses_zeros(load: Load) -> None:
    """A warm-up run that fails is no failed load."""
    with pytest.raises(InvalidTensor, match="out of data bounds"):
        load(lookup(0)).infer({"x": np.array([0])})


def test_a_model_with_an_enormous_input(load: Load) -> None:
    """A model is not warmed up with an input that no machine holds."""
    served = load(identity(dims=[1 << 20, 1 << 20]))
    assert served.backend._pace.inline_elements == -1
