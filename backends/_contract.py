"""What a user's class may define, and how it is called: Seldon's contract, in the worker's process.

Source: seldon-core, python/seldon_core/{user_model,seldon_methods,utils,metrics}.py. On purpose different: a method is
called once, with what its signature takes; a call that raises TypeError is not repeated with fewer arguments.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from _payloads import Answer, Refused, array_of, check_metrics, message_of, natural, payload, raw_answer, unpacked

if TYPE_CHECKING:
    import asyncio

METHODS = (
    "predict", "predict_raw", "predict_rest", "stream", "transform_input", "transform_output", "route", "aggregate",
    "send_feedback", "class_names", "tags", "metrics", "feature_names", "health_status", "init_metadata",
)  # fmt: skip

_KINDS: dict[str, Callable[[str], Any]] = {
    "INT": int,
    "FLOAT": float,
    "DOUBLE": float,
    "STRING": str,
    "BOOL": lambda text: str(text).strip().lower() in ("y", "yes", "t", "true", "on", "1"),
}


class Model:
    """An instance of the user's class."""

    def __init__(self, entry: str, parameters: dict[str, Any] | None) -> None:
        self.instance = _class(entry)(**(_from_environment() if parameters is None else parameters))
        self.has = [name for name in METHODS if self._defines(name)]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._takes: dict[str, Takes] = {}
        if self._defines("load"):
            try:
                self._settled(self.instance.load())
            except NotImplementedError:
                pass
            except Exception as error:
                if not _is(error, "SeldonNotImplementedError"):
                    raise

    @property
    def is_component(self) -> bool:
        return _is(self.instance, "SeldonComponent")

    def describe(self) -> dict[str, Any]:
        """What the gateway may tell of the class."""
        has = [name for name in self.has if name != "init_metadata"]
        if any(self._accepts(name).headers for name in has if callable(getattr(self.instance, name))):
            has.append("headers")
        told: dict[str, Any] = {"has": has}
        if "init_metadata" in self.has:
            told["init_metadata"] = self._settled(self.instance.init_metadata())
        return told

    def call(self, name: str, inputs: dict[str, np.ndarray], parameters: dict[str, Any], stream: bool) -> Any:
        """What the class returns: a value for `answer`, an Answer, or an iterator over the parts."""
        if name == "predict":
            return self._predict(inputs, parameters, stream)
        if name in ("transform_input", "transform_output"):
            x = payload(inputs, parameters)
            return self._run(name, x, parameters) if name in self.has else x
        if name == "route":
            return self._route(inputs, parameters)
        if name == "aggregate":
            return self._aggregate(inputs, parameters)
        if name == "send_feedback":
            return self._feedback(inputs, parameters)
        if name == "health_status":
            if name in self.has:
                return self._settled(self.instance.health_status())
            return "not implemented - assuming healthy" if self.is_component else "healthy"
        raise Refused(f"a user's class has no method {name!r}")

    def answer(self, value: Any, parameters: dict[str, Any], whole: bool = True) -> Answer:
        """The returned value as tensors and parameters; with `whole`, tags and metrics beside it."""
        if isinstance(value, Answer):
            return value
        told: dict[str, Any] = {}
        tags, metrics = self._tags_and_metrics() if whole else ({}, [])
        if _is(value, "SeldonResponse"):
            tags = {**tags, **(value.tags or {})}
            metrics = [*metrics, *(value.metrics or [])]
            told.update({name: found for name in ("headers", "status") if (found := getattr(value, name, None))})
            value = value.data
        outputs = {}
        if isinstance(value, dict):
            told["json"] = value
        else:
            outputs["Y"] = array = array_of(value)
            if array.ndim > 1 and (names := self._class_names(value)) is not None:
                told["names"] = names
        check_metrics(metrics)
        told.update({name: found for name, found in (("tags", tags), ("metrics", metrics)) if found})
        if parameters.get("meta") is not None:
            told["meta"] = parameters["meta"]
        return Answer(outputs, told)

    def joined(self, parts: Iterator[Any]) -> Any:
        """All parts of a stream as one value: text is strung together, rows are put below one another."""
        values = list(parts)
        if len(values) < 2:
            return values[0] if values else []
        if all(isinstance(value, str) for value in values):
            return "".join(values)
        return np.concatenate([np.atleast_1d(array_of(value)) for value in values])

    def custom_failure(self, error: BaseException) -> Refused | None:
        """What the class's own Flask error handler, `model_error_handler`, makes of the exception."""
        blueprint, flask = getattr(self.instance, "model_error_handler", None), sys.modules.get("flask")
        if blueprint is None or flask is None or not isinstance(error, Exception):
            return None
        app = flask.Flask("user")
        app.register_blueprint(blueprint)
        try:
            with app.test_request_context():
                response = app.make_response(app.handle_user_exception(error))
        except Exception:  # it has no handler for this kind
            return None
        return Refused(response.get_data(as_text=True), response.status_code, body=response.get_json(silent=True))

    # One method each...

    def _predict(self, inputs: dict[str, np.ndarray], parameters: dict[str, Any], stream: bool) -> Any:
        raw = next((name for name in ("predict_rest", "predict_raw") if name in self.has), None)
        if raw and ("message" in parameters or "predict" not in self.has):
            message = parameters["message"] if "message" in parameters else message_of(inputs, parameters)
            try:
                value = self._settled(getattr(self.instance, raw)(message))
                return raw_answer(value) if "message" in parameters else unpacked(value)
            except Exception as error:
                if not _is(error, "SeldonNotImplementedError"):
                    raise
        if stream and "stream" in self.has:
            return self._run("stream", payload(inputs, parameters), parameters)
        name = "predict" if "predict" in self.has or "stream" not in self.has else "stream"
        # SPEC: a class without predict answers with empty data.
        return self._run(name, payload(inputs, parameters), parameters) if name in self.has else []

    def _route(self, inputs: dict[str, np.ndarray], parameters: dict[str, Any]) -> Any:
        if "route" not in self.has:
            raise Refused("route is not implemented" if self.is_component else "Route not defined")
        branch = self._run("route", payload(inputs, parameters), parameters)
        if type(branch) is not int:
            raise Refused(f"Routing response must be int but got {branch}")
        return [[branch]]

    def _aggregate(self, inputs: dict[str, np.ndarray], parameters: dict[str, Any]) -> Any:
        if "aggregate" not in self.has:
            raise Refused("aggregate is not implemented" if self.is_component else "Aggregate not defined")
        values = parameters.get("json_list") or [natural(inputs[name]) for name in inputs]
        names = parameters.get("names_list") or [[] for _ in values]
        takes = self._accepts("aggregate")
        metas = {"metas": parameters.get("metas")} if takes.metas else {}
        return self._settled(self.instance.aggregate(values, names, **metas))

    def _feedback(self, inputs: dict[str, np.ndarray], parameters: dict[str, Any]) -> Any:
        if "send_feedback" not in self.has:
            return []
        features, truth = (natural(inputs[name]) if name in inputs else [] for name in ("X", "truth"))
        reward = (parameters.get("feedback") or {}).get("reward", 0.0)
        names = parameters.get("names") or []
        routing = {"routing": parameters.get("routing")} if self._accepts("send_feedback").routing else {}
        value = self._settled(self.instance.send_feedback(features, names, reward, truth, **routing))
        return [] if value is None else value

    def _run(self, name: str, x: Any, parameters: dict[str, Any]) -> Any:
        takes = self._accepts(name)
        arguments = (x, parameters.get("names", [])) if takes.names else (x,)
        named: dict[str, Any] = {"meta": parameters.get("meta")} if takes.meta else {}
        if takes.headers:
            named["headers"] = parameters.get("headers") or {}
        return self._settled(getattr(self.instance, name)(*arguments, **named))

    def _settled(self, value: Any) -> Any:
        """The value itself, where the class is written with async and await; its generators become plain ones."""
        if inspect.isasyncgen(value):
            return self._pulled(value)
        if not inspect.isawaitable(value):
            return value
        return self._on_loop(value)

    def _pulled(self, parts: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._on_loop(parts.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            self._on_loop(parts.aclose())

    def _on_loop(self, awaitable: Any) -> Any:
        if self._loop is None:
            import asyncio  # PERF: takes as long as all the rest, and most classes need it not

            self._loop = asyncio.new_event_loop()

        async def wait() -> Any:
            return await awaitable

        return self._loop.run_until_complete(wait())

    # What goes beside an answer...

    def _tags_and_metrics(self) -> tuple[dict[str, Any], list[Any]]:
        tags = self.instance.tags() if "tags" in self.has else {}
        metrics = self.instance.metrics() if "metrics" in self.has else []
        return dict(tags or {}), list(metrics or [])

    def _class_names(self, value: Any) -> list[Any] | None:
        if "class_names" in self.has:
            names = self.instance.class_names
            names = names() if callable(names) else names
        else:
            names = getattr(value, "columns", None)  # a DataFrame's
        return None if names is None else [str(name) for name in names]

    def _defines(self, name: str) -> bool:
        """Whether the class has it by itself, not from Seldon's base class, where it only says that it is missing."""
        if name in vars(self.instance):
            return True
        owner = next((kind for kind in type(self.instance).__mro__ if name in vars(kind)), None)
        if owner is None:
            return hasattr(self.instance, name)
        return owner.__name__ != "SeldonComponent"

    def _accepts(self, name: str) -> Takes:
        if name not in self._takes:
            self._takes[name] = _takes(getattr(self.instance, name))
        return self._takes[name]


class Takes(NamedTuple):
    """Which arguments beside the payload a method takes."""

    names: bool
    meta: bool
    headers: bool
    routing: bool
    metas: bool


def _takes(method: Callable[..., Any]) -> Takes:
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):  # written in C
        return Takes(True, False, False, True, False)
    kinds = [one.kind for one in parameters.values()]
    positional = sum(kind in (kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD) for kind in kinds)
    some = any(kind is kind.VAR_KEYWORD for kind in kinds)
    return Takes(
        names=(positional > 1 and list(parameters)[1] not in ("meta", "headers"))
        or any(kind is kind.VAR_POSITIONAL for kind in kinds),
        meta="meta" in parameters or some,
        headers="headers" in parameters,
        routing="routing" in parameters or some,
        metas="metas" in parameters,
    )  # fmt: skip


def _is(thing: Any, name: str) -> bool:
    """Whether a class of that name is among its classes: the real seldon_core's, or the shim's."""
    return any(kind.__name__ == name for kind in type(thing).__mro__)


# The class itself...


def _class(entry: str) -> Callable[..., Any]:
    """`module:Class`, or as Seldon names it: `Module`, whose class has its name, or `package.module.Class`."""
    module, separator, name = entry.partition(":")
    if not separator:
        module, _, name = entry.rpartition(".")
        module = module or name
    found = getattr(_module(module), name, None)
    if found is None:
        raise Refused(f"there is no class {name!r} in {module}.py")
    return found  # type: ignore[no-any-return]


def _module(name: str) -> ModuleType:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise Refused(f"there is no {name.replace('.', '/')}.py in the version's folder")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _from_environment() -> dict[str, Any]:
    """Seldon's own way to give the constructor's arguments."""
    text = os.environ.get("PREDICTIVE_UNIT_PARAMETERS", "[]")
    return {one["name"]: _KINDS[one.get("type", "STRING")](one["value"]) for one in json.loads(text)}
