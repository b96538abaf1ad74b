"""No division ends the process, and no model is rewritten without need."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx_models import external, floats, model, node, value, weight, write
from served import Load

from backends import _graph, _guards
from gateway.errors import InvalidTensor

REPOSITORY = Path(__file__).resolve().parents[3]
MODELS = REPOSITORY / "configs" / "models"

DIVIDENDS = [0, 7, -7, 0, 5, -9]
DIVISORS = [-1, -1, -1, 3, -2, 4]
"""The first dividend becomes the least integer of its type, and so does the fourth."""

ASK = """
import asyncio, json, sys
from pathlib import Path
import numpy as np
from backends import ort
from gateway.interfaces import ModelSource
from gateway.types import InferenceRequest

async def ask(folder, inputs):
    backend = await ort.load(ModelSource("demo", 1, Path(folder), Path(folder), device="cpu"), ort.Config())
    feed = {name: np.array(*one) for name, one in inputs.items()}
    try:
        array = (await backend.infer(InferenceRequest(feed))).outputs["y"]
        return array.dtype.name, array.tolist()
    except Exception as error:
        return type(error).__name__, str(error)

print(json.dumps([asyncio.run(ask(*one)) for one in json.load(sys.stdin)]))
"""
"""Asked in a process of its own, for that is what would die."""


class Division(NamedTuple):
    """An operation on integers of one type."""

    operator: str
    dtype: str = "int64"
    opset: int = 19

    def operands(self) -> tuple[list[int], list[int]]:
        """Dividends and divisors, the poisonous pair first."""
        least = int(np.iinfo(self.dtype).min)
        return [least, *DIVIDENDS[1:3], least, *DIVIDENDS[4:]], DIVISORS

    def results(self) -> list[int]:
        """What a processor that wraps and does not trap would give: quotients cut towards zero, floored remainders."""
        pairs = zip(*self.operands(), strict=True)
        if self.operator == "Mod":
            return [a % b for a, b in pairs]
        exact = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in pairs]
        modulus = 2 ** np.iinfo(self.dtype).bits
        return [(q + modulus // 2) % modulus - modulus // 2 for q in exact]


def plain(division: Division) -> onnx.ModelProto:
    """The operation in the graph itself."""
    return model([node(division.operator, ["a", "b"], ["y"])], *edges(division), opset=division.opset)


def edges(division: Division, *more: onnx.ValueInfoProto) -> tuple[list[onnx.ValueInfoProto], ...]:
    """Two operands, a result."""
    names = [value(name, division.dtype) for name in "aby"]
    return [*names[:2], *more], names[2:]


def in_if(division: Division) -> onnx.ModelProto:
    """In a branch, with operands from outside; the other branch has a float of the same name."""
    then = onnx.helper.make_graph(
        [node(division.operator, ["a", "b"], ["t"])], "then", [], [value("t", division.dtype)]
    )
    casts = [node("Cast", ["b"], ["t"], to=1), node("Div", ["t", "t"], ["f"]), node("Cast", ["f"], ["e"], to=7)]
    other = onnx.helper.make_graph(casts, "else", [], [value("e", "int64")])
    return model(
        [node("Not", ["no"], ["yes"]), node("If", ["yes"], ["y"], then_branch=then, else_branch=other)],
        *edges(division),
        [weight("no", np.array(False))],
    )


def in_loop(division: Division) -> onnx.ModelProto:
    """In the body of a loop that runs once."""
    body = onnx.helper.make_graph(
        [node(division.operator, ["c", "b"], ["d"]), node("Identity", ["go"], ["on"])],
        "body",
        [value("i", "int64", []), value("go", "bool", []), value("c", division.dtype)],
        [value("on", "bool", []), value("d", division.dtype)],
    )
    weights = [weight("once", np.array(1)), weight("true", np.array(True))]
    return model([node("Loop", ["once", "true", "a"], ["y"], body=body)], *edges(division), weights)


def in_scan(division: Division) -> onnx.ModelProto:
    """In the body of a scan over both operands."""
    body = onnx.helper.make_graph(
        [node(division.operator, ["p", "q"], ["r"])],
        "body",
        [value("p", division.dtype, []), value("q", division.dtype, [])],
        [value("r", division.dtype, [])],
    )
    return model([node("Scan", ["a", "b"], ["y"], body=body, num_scan_inputs=2)], *edges(division))


def in_function(division: Division, operator: str = "") -> onnx.ModelProto:
    """In a function of the model's own, that another one calls."""
    opsets = [onnx.helper.make_opsetid("", division.opset), onnx.helper.make_opsetid("mine", 1)]
    inner = [node(operator or division.operator, ["p", "q"], ["r"])]
    outer = [node("Inner", ["p", "q"], ["r"], domain="mine")]
    built = model([node("Outer", ["a", "b"], ["y"], domain="mine")], *edges(division))
    built.opset_import.append(opsets[1])
    for name, nodes in (("Inner", inner), ("Outer", outer)):
        built.functions.append(onnx.helper.make_function("mine", name, ["p", "q"], ["r"], nodes, opsets))
    return built


def of_unknown_type(division: Division) -> onnx.ModelProto:
    """Between operators that ONNX does not know."""
    opaque = [node("ExpandDims", [name, "first"], [f"{name}2"], domain="com.microsoft") for name in "ab"]
    built = model(
        [*opaque, node(division.operator, ["a2", "b2"], ["y2"]), node("Squeeze", ["y2", "axes"], ["y"])],
        *edges(division),
        [weight("first", np.array(0, np.int32)), weight("axes", np.array([0]))],
    )
    built.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return built


def of_taken_names(division: Division) -> onnx.ModelProto:
    """Where the names that a guard would like to give are taken."""
    nodes = [node("Identity", ["b"], ["y__divisor"]), node(division.operator, ["a", "y__divisor"], ["y"])]
    return model(nodes, *edges(division))


CASES = [
    *(
        (plain, Division(operator, dtype))
        for operator in ("Div", "Mod")
        for dtype in ("int8", "int16", "int32", "int64")
    ),
    (plain, Division("Div", "int32", 9)),
    (plain, Division("Mod", "int64", 10)),
    *((build, Division("Div")) for build in (in_if, in_loop, in_scan, in_function, of_unknown_type, of_taken_names)),
    *((build, Division("Mod", "int32")) for build in (in_function, of_unknown_type)),
]


def stft(*inputs: str) -> onnx.ModelProto:
    """A spectrum whose frames are as long as the request says."""
    known = {
        "signal": value("signal", "float32", [1, None, 1]),
        "step": value("step", "int64", []),
        "window": value("window", "float32"),
        "length": value("length", "int64", []),
    }
    return model(
        [node("STFT", inputs, ["y"])],
        [known[name] for name in inputs if name in known],
        [value("y", "float32", [None] * 4)],
        [weight("four", np.array(4))],
    )


SIGNAL = {"signal": [[[[1.0]] * 16], "float32"], "step": [2, "int64"]}
SPECTRA: list[tuple[tuple[str, ...], dict[str, Any], bool]] = [
    (("signal", "step", "", "length"), {"length": [4, "int64"]}, True),
    (("signal", "step", "", "length"), {"length": [0, "int64"]}, False),
    (("signal", "step", "window"), {"window": [[1.0] * 4, "float32"]}, True),
    (("signal", "step", "window"), {"window": [[], "float32"]}, False),
]
"""Inputs, what they are, and whether there is an answer."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What one process answers to all of them."""
    asked: list[tuple[onnx.ModelProto, dict[str, Any]]] = []
    for build, division in CASES:
        a, b = division.operands()
        asked.append((build(division), {"a": [a, division.dtype], "b": [b, division.dtype]}))
    asked += [(stft(*names), SIGNAL | inputs) for names, inputs, _ in SPECTRA]
    folders = [str(write(built, tmp_path_factory.mktemp("model"))) for built, _ in asked]
    question = json.dumps([(folder, inputs) for folder, (_, inputs) in zip(folders, asked, strict=True)])
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        input=question, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("index", range(len(CASES)), ids=[f"{build.__name__}-{one}" for build, one in CASES])
def test_the_least_integer_by_minus_one(answers: list[Any], index: int) -> None:
    """The process lives, and the quotient wraps; everything else is divided as ever."""
    _, division = CASES[index]
    assert [division.dtype, division.results()] == answers[index]


@pytest.mark.parametrize("index", range(len(SPECTRA)))
def test_frames_without_length(answers: list[Any], index: int) -> None:
    """Frames of no length are the request's mistake; others are answered."""
    _, _, answered = SPECTRA[index]
    assert ("float32" if answered else "InvalidTensor") == answers[len(CASES) + index][0]


# Rewritten or not...


def rewritten(built: onnx.ModelProto) -> bool:
    """Whether the model gets guards; where it does not, it stays as it is."""
    before = built.SerializeToString(deterministic=True)
    guarded = _guards.guard(built)
    assert guarded == (built.SerializeToString(deterministic=True) != before)
    return guarded


def by(divisor: onnx.TensorProto | onnx.NodeProto, dtype: str = "int64", operator: str = "Mod") -> onnx.ModelProto:
    """`y = a % b`, b in the model."""
    operation = node(operator, ["a", "b"], ["y"])
    made = [divisor] if isinstance(divisor, onnx.NodeProto) else []
    weights = [] if made else [divisor]
    return model([*made, operation], [value("a", dtype)], [value("y", dtype)], weights)


def constant(**attributes: Any) -> onnx.NodeProto:
    """A Constant `b`."""
    return node("Constant", [], ["b"], **attributes)


def by_a_size() -> onnx.ModelProto:
    """One size of a tensor by another."""
    sizes = [node("Shape", [name], [f"shape_{name}"]) for name in "ab"]
    picked = [node("Gather", [f"shape_{name}", "first"], [f"size_{name}"]) for name in "ab"]
    division = node("Div", ["size_a", "size_b"], ["y"])
    return model(
        [*sizes, *picked, division],
        [value("a", "float32"), value("b", "float32")],
        [value("y", "int64", [])],
        [weight("first", np.array(0))],
    )


def in_a_branch_by_a_constant() -> onnx.ModelProto:
    """A constant of the graph, used in a branch."""
    branch = onnx.helper.make_graph([node("Div", ["a", "b"], ["t"])], "branch", [], [value("t", "int64")])
    choice = node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)
    weights = [weight("yes", np.array(True)), weight("b", np.array(3))]
    return model([choice], [value("a", "int64")], [value("y", "int64")], weights)


@pytest.mark.parametrize(
    "built",
    [
        *(plain(Division("Div", dtype)) for dtype in ("float32", "float64", "uint64", "int8", "int16")),
        model([node("Mod", ["a", "b"], ["y"], fmod=1)], *edges(Division("Mod"))),
        in_function(Division("Div", "float32")),
        by(weight("b", np.array([2, 3]))),
        by(weight("b", floats(3)), "float32", "Div"),
        by(constant(value=weight("b", np.array(3)))),
        by(constant(value_int=3)),
        by(constant(value_ints=[3, -2])),
        by(constant(value_float=3.0), "float32", "Div"),
        model([node("Div", ["b", "a"], ["y"])], [value("a", "int64")], [value("y", "int64")], [weight("b", [1])]),
        by_a_size(),
        in_a_branch_by_a_constant(),
        stft("signal", "step", "", "four"),
        plain(Division("Div", "int64", 8)),
    ],
)
def test_without_need_nothing_is_rewritten(built: onnx.ModelProto) -> None:
    """Floats, integers that cannot trap, divisors that are never -1, and operators too old to be guarded."""
    assert not rewritten(built)


@pytest.mark.parametrize(
    "built",
    [
        by(weight("b", np.array([2, -1]))),
        by(constant(value_int=-1)),
        by(external("b", np.array([2, 3]), "weights.bin")),
        in_function(Division("Div"), "Mod"),
    ],
)
def test_what_may_divide_by_minus_one_is_rewritten(built: onnx.ModelProto) -> None:
    """Constants of -1, divisors in other files, and functions that are called with integers."""
    assert rewritten(built)


def test_an_old_model_is_left_alone_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Without Where there is no guard: the log tells."""
    assert not rewritten(plain(Division("Div", "int64", 8)))
    assert caplog.messages == ["Div of integers is not guarded, for opset 8 lacks what it takes"]


def test_real_models_load_from_their_files() -> None:
    """No model of the demonstration needs guards, though some divide."""
    folders = sorted(file.parent for file in MODELS.rglob("model.onnx"))
    assert folders
    assert [None] * len(folders) == [_graph.read(folder, MODELS).rewritten for folder in folders]


def test_external_weights_of_a_guarded_model(load: Load, tmp_path: Path) -> None:
    """They are still found beside the file."""
    folder = tmp_path / "demo" / "1"
    folder.mkdir(parents=True)
    floats(1024).tofile(folder / "weights.bin")
    built = model(
        [node("Mod", ["a", "b"], ["i"]), node("Gather", ["w", "i"], ["y"])],
        [value("a", "int64"), value("b", "int64")],
        [value("y", "float32")],
        [external("w", floats(1024), "weights.bin")],
    )
    operands = {"a": np.array([1030, 5]), "b": np.array([1000, -1])}
    assert load(built).infer(operands)["y"].tolist() == [30.0, 0.0]


def test_a_division_by_zero(load: Load) -> None:
    """It is the request's mistake, and no guard hides it."""
    with pytest.raises(InvalidTensor, match="Div: Integer division by zero"):
        load(plain(Division("Div"))).infer({"a": np.array([1]), "b": np.array([0])})
