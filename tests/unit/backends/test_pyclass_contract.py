"""How a user's class is called and what becomes of what it returns, as Seldon's wrapper does it; without a process."""

import types
from typing import Any

import numpy as np
import pytest
from worker_side import SeldonComponent, SeldonResponse, ask, model, payloads, text, user_model, y

# In...


@pytest.mark.parametrize(
    ("sent", "parameters", "seen"),
    [
        (np.array([[1, 2]]), {}, "array([[1, 2]])"),
        (np.array([[1.5]]), {"names": ["a"]}, "array([[1.5]])"),
        (np.array(["a", "bc"], object), {}, "array(['a', 'bc'], dtype='<U2')"),
        (np.array(["a", 1], object), {}, "array(['a', 1], dtype=object)"),
        (np.array([b"a"], object), {}, "array([b'a'], dtype=object)"),
        (text("words"), {}, "'words'"),
        (text(b"\x00"), {}, "b'\\x00'"),
        (None, {"json": {"k": [1]}}, "{'k': [1]}"),
        (None, {"json": None}, "None"),
        (None, {}, "array([], dtype=float64)"),
    ],
)
def test_the_payload_is_what_seldon_would_hand_over(sent: Any, parameters: dict[str, Any], seen: str) -> None:
    """Numbers, texts, bytes and JSON reach predict as Seldon gives them."""

    class Kind:
        def predict(self, X: Any, names: Any) -> str:
            return f"{X!r} {names!r}"

    assert y(ask(Kind, sent, **parameters)) == f"{seen} {parameters.get('names', [])!r}"


def test_text_that_numpy_would_blow_up_stays_as_it_is() -> None:
    """One long text among many short ones does not cost its length for each."""
    many = np.array(["x" * (1 << 16)] + ["y"] * 1000, object)
    assert payloads.natural(many) is many


def _with(*names: str) -> type:
    """A class whose predict has those parameters and says what it got."""
    scope: dict[str, Any] = {}
    source = f"def predict(self, {', '.join(names)}):\n    return {{k: v for k, v in locals().items() if k != 'self'}}"
    code = compile(source, "users.py", "exec")
    types.FunctionType(code, scope)()
    return type("Kind", (), {"predict": scope["predict"]})


@pytest.mark.parametrize(
    ("names", "got"),
    [
        (["X"], {"X": "x"}),
        (["X", "features_names"], {"X": "x", "features_names": ["n"]}),
        (["X", "names", "meta=None"], {"X": "x", "names": ["n"], "meta": {"puid": "1"}}),
        (["X", "names", "**kw"], {"X": "x", "names": ["n"], "kw": {"meta": {"puid": "1"}}}),
        (["X", "meta=None"], {"X": "x", "meta": {"puid": "1"}}),
        (["*args"], {"args": ("x", ["n"])}),
        (["X", "names", "headers=None"], {"X": "x", "names": ["n"], "headers": {"h": "v"}}),
    ],
)
def test_predict_gets_what_its_signature_takes(names: list[str], got: dict[str, Any]) -> None:
    """Names, meta and headers are each given to those who take them."""
    answer = ask(_with(*names), text("x"), names=["n"], meta={"puid": "1"}, headers={"h": "v"})
    assert answer.parameters["json"] == got


def test_predict_is_called_once() -> None:
    """A TypeError from inside is no reason to call again."""

    class Kind:
        calls = 0

        def predict(self, X: Any, names: Any, meta: Any = None) -> Any:
            Kind.calls += 1
            raise TypeError("inside")

    with pytest.raises(TypeError, match="inside"):
        ask(Kind, [1])
    assert Kind.calls == 1


# Out...


def _returning(value: Any, **members: Any) -> type:
    return type("Kind", (), {"predict": lambda self, X, names: value, **members})


class Frame:
    """As much of a DataFrame as is looked at."""

    columns = ("p", 3)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array([[1, 2]])


@pytest.mark.parametrize(
    ("returned", "answered"),
    [
        (np.array([[0.1]], np.float32), np.array([[0.1]], np.float32)),
        ([1, 2], np.array([1, 2])),
        ([[1.5, 2]], np.array([[1.5, 2.0]])),
        ((1, 2), np.array([1, 2])),
        ([], np.array([])),
        (["a", 1], np.array(["a", 1], object)),
        ([{"k": 1}], np.array([{"k": 1}], object)),
        ([[1, 2], [3]], payloads._listed([[1, 2], [3]])),
        (5, np.array(5)),
        (np.float64(2.5), np.array(2.5)),
        (True, np.array(True)),
        ("text", text("text")),
        (np.str_("t"), text("t")),
        (b"\x00", text(b"\x00")),
        (bytearray(b"hi"), text(b"hi")),
        (memoryview(b"hi"), text(b"hi")),
        (np.array(["x", "yy"]), np.array(["x", "yy"])),
    ],
)
def test_returned_values_become_tensors(returned: Any, answered: np.ndarray) -> None:
    """Arrays keep their dtype, lists and scalars get numpy's, texts and bytes stay bare."""
    found = ask(_returning(returned), [1]).outputs["Y"]
    assert (found.dtype, found.shape, found.tolist()) == (answered.dtype, answered.shape, answered.tolist())
    assert [type(item) for item in found.ravel().tolist()] == [type(item) for item in answered.ravel().tolist()]


@pytest.mark.parametrize("returned", [None, {1, 2}, object()])
def test_other_values_are_refused_in_seldons_words(returned: Any) -> None:
    """What is no payload is refused as Seldon refuses it."""
    with pytest.raises(payloads.Refused, match="Unknown data type returned as payload") as caught:
        ask(_returning(returned), [1])
    assert (caught.value.status, caught.value.reason) == (400, "MICROSERVICE_BAD_DATA")


def test_names_stand_beside_tables_only() -> None:
    """class_names is a method or an attribute, or a DataFrame's columns, and asked for where there are columns."""
    assert ask(_returning([[1, 2]], class_names=lambda self: ("a", "b")), [1]).parameters == {"names": ["a", "b"]}
    assert ask(_returning([[1, 2]], class_names=["p"]), [1]).parameters == {"names": ["p"]}
    assert ask(_returning(Frame()), [1]).parameters == {"names": ["p", "3"]}
    assert ask(_returning([1, 2], class_names=["p"]), [1]).parameters == {}
    assert ask(_returning([[1, 2]]), [1]).parameters == {}


def test_tags_and_metrics_come_together() -> None:
    """Those of the class and those of the one response; of a tag in both the response's counts."""
    metric = {"type": "COUNTER", "key": "c", "value": 1}
    response = SeldonResponse([1], {"both": 2}, [{**metric, "key": "r"}], {"X-A": "1"}, 202)
    kind = _returning(response, tags=lambda self: {"own": 1, "both": 1}, metrics=lambda self: [metric])
    assert ask(kind, [1]).parameters == {
        "tags": {"own": 1, "both": 2},
        "metrics": [metric, {**metric, "key": "r"}],
        "headers": {"X-A": "1"},
        "status": 202,
    }


@pytest.mark.parametrize(
    "metric", [{"type": "WRONG", "key": "k", "value": 1}, {"type": "GAUGE", "key": "k", "value": "1"}, 5]
)
def test_bad_metrics_are_refused(metric: Any) -> None:
    """A metric that Seldon would not count fails the request as in Seldon."""
    with pytest.raises(payloads.Refused, match="Bad metric created during request") as caught:
        ask(_returning([1], metrics=lambda self: [metric]), [1])
    assert (caught.value.status, caught.value.reason) == (500, "MICROSERVICE_BAD_METRIC")


def test_the_models_edits_of_meta_are_told() -> None:
    """The meta that predict got comes back with what predict did to it."""

    class Kind:
        def predict(self, X: Any, names: Any, meta: Any) -> Any:
            meta["tags"] = {"added": 1}
            return X

    assert ask(Kind, [1], meta={}).parameters == {"meta": {"tags": {"added": 1}}}


# Raw...


class Raw:
    """Answers messages."""

    def predict_raw(self, message: dict[str, Any]) -> Any:
        if message.get("strData") == "metrics":
            return {"meta": {"metrics": [{"type": "COUNTER", "key": "c", "value": 2}]}}
        return {"data": {"ndarray": [[7]]}, "got": message}


def test_a_message_is_answered_by_a_message() -> None:
    """predict_raw gets the message and its value is the answer, with its metrics beside it."""
    answer = ask(Raw, None, message={"foo": 1})
    assert answer.parameters == {"json": {"data": {"ndarray": [[7]]}, "got": {"foo": 1}}, "raw": True}
    assert ask(Raw, None, message={"strData": "metrics"}).parameters["metrics"][0]["key"] == "c"


def test_other_protocols_reach_predict_raw_too() -> None:
    """A class that has nothing else gets a message made for it, and its answer is unpacked."""
    assert y(ask(Raw, [[1, 2]], names=["a", "b"])) == [[7]]


def test_predict_raw_may_step_aside() -> None:
    """SeldonNotImplementedError from predict_raw means predict."""

    class Kind(SeldonComponent):
        def predict_raw(self, message: Any) -> Any:
            raise user_model.SeldonNotImplementedError("no")

        def predict(self, X: Any, names: Any, meta: Any = None) -> Any:
            return "predicted"

    assert y(ask(Kind, [1], message={})) == "predicted"


# The graph's methods...


class Nothing:
    """No methods."""


class Component(SeldonComponent):
    """Seldon's base class as it is."""


@pytest.mark.parametrize("kind", [Nothing, Component])
def test_what_is_missing_answers_as_in_seldon(kind: type) -> None:
    """No predict means no data, no transformation means none; a base class's methods count as missing."""
    assert model(kind).has == []
    assert y(ask(kind, [1])) == []
    assert y(ask(kind, [1], "transform_input")) == [1]
    assert y(ask(kind, [1], "transform_output")) == [1]
    assert y(ask(kind, [1], "send_feedback")) == []
    healthy = {Nothing: "healthy", Component: "not implemented - assuming healthy"}
    assert y(ask(kind, None, "health_status")) == healthy[kind]
    for call in ("route", "aggregate"):
        words = {Nothing: f"{call.title()} not defined", Component: f"{call} is not implemented"}
        with pytest.raises(payloads.Refused, match=words[kind]):
            ask(kind, [1], call)


def test_routes_are_integers() -> None:
    """route answers [[branch]]; anything but a Python int is refused."""
    assert y(ask(type("Kind", (), {"route": lambda self, X, names: -1}), [1], "route")) == [[-1]]
    for wrong in ("left", np.int64(1), True):
        with pytest.raises(payloads.Refused, match=f"Routing response must be int but got {wrong}"):
            ask(type("Kind", (), {"route": lambda self, X, names, wrong=wrong: wrong}), [1], "route")


def test_aggregate_gets_all_messages() -> None:
    """Tensors or JSON values in order, and the names of each."""

    class Kind:
        def aggregate(self, features: list[Any], names: list[Any]) -> Any:
            return {"features": [getattr(one, "tolist", lambda one=one: one)() for one in features], "names": names}

    wrapped = model(Kind)
    inputs = {"X0": np.array([1]), "X1": text("b")}
    value = wrapped.call("aggregate", inputs, {"names_list": [["a"], []]}, False)
    assert value == {"features": [[1], "b"], "names": [["a"], []]}
    value = wrapped.call("aggregate", {}, {"json_list": [1, None]}, False)
    assert value == {"features": [1, None], "names": [[], []]}


@pytest.mark.parametrize("routing", [True, False])
def test_feedback_gets_its_parts(routing: bool) -> None:
    """Features, names, reward and truth; routing only for those who take it."""
    seen: list[Any] = []

    class With:
        def send_feedback(self, features: Any, names: Any, reward: Any, truth: Any, routing: Any = None) -> None:
            seen.append([np.asarray(features).tolist(), names, reward, np.asarray(truth).tolist(), routing])

    class Without:
        def send_feedback(self, features: Any, names: Any, reward: Any, truth: Any) -> None:
            seen.append([np.asarray(features).tolist(), names, reward, np.asarray(truth).tolist(), None])

    wrapped = model(With if routing else Without)
    parameters = {"feedback": {"reward": 0.5}, "names": ["a"], "routing": 1}
    assert wrapped.call("send_feedback", {"X": np.array([1.0]), "truth": np.array([2.0])}, parameters, False) == []
    assert wrapped.call("send_feedback", {}, {}, False) == []
    assert seen == [[[1.0], ["a"], 0.5, [2.0], 1 if routing else None], [[], [], 0.0, [], None]]
