"""A call to the request that a model answers: predict, the graph's methods, feedback, aggregate.

A user's class takes whatever numpy makes of a payload; every other model takes what its signature declares.
"""

from collections.abc import Mapping
from typing import Any

import pybase64
from msgspec import Struct
from msgspec.structs import replace

from adapters.seldon import binding, fast, unit
from adapters.seldon.answers import Wish
from adapters.seldon.asking import asked
from adapters.seldon.bodies import message_of, text_of
from adapters.seldon.describe import default_signature
from adapters.seldon.feedback import read_feedback
from adapters.seldon.heads import puid
from adapters.seldon.messages import Mixed, Payload, array_of, payload_of, single, unbase64
from adapters.seldon.metas import merged
from gateway.errors import BodyTooLarge, InvalidTensor, MalformedBody
from gateway.interfaces import DecodeLimits
from gateway.types import Call, InferenceRequest, ModelMetadata, Tensor

_SMALL_BODY = 1024
"""Up to here the exact way is the faster one."""

_BARE = "bare"
"""The response form of model.toml that leaves the message away."""

_MOST_MESSAGES = 1000


class Decoder(Struct, frozen=True):
    """Reads calls as the configuration wants them."""

    limits: DecodeLimits
    mixed: Mixed = "text"
    bare_json: bool = False
    request_path: bool = False

    def predict(self, call: Call, model: ModelMetadata, method: str = "") -> InferenceRequest:
        """The request of predict, or of the graph's method of that name. Raises RequestErrors."""
        found = self._numbers(call, model, method)
        if is_class(model):
            return self._for_class(call, model, method, found)
        if found is not None:
            return self._for_model(model, found)
        given = asked(payload_of(message_of(call, self.limits)), model)
        inputs = binding.bind(given.payload, given.signature.inputs, self.limits)
        return InferenceRequest(
            inputs=inputs,
            signature=given.signature.name,
            parameters=given.parameters,
            wire=self._wish(given.payload, model),
        )

    def predict_quickly(self, call: Call, model: ModelMetadata) -> InferenceRequest | None:
        """As `predict`, for a message of numbers; None for any other, which takes thirty times as long."""
        found = self._numbers(call, model, "")
        if found is None:
            return None
        return self._for_class(call, model, "", found) if is_class(model) else self._for_model(model, found)

    def _for_model(self, model: ModelMetadata, found: fast.Numbers) -> InferenceRequest:
        signature = default_signature(model)
        [(name, spec)] = signature.inputs.items()
        inputs = {name: binding.bind_array(found.array, spec)}
        return InferenceRequest(inputs=inputs, signature=signature.name, wire=self._wish(found.payload, model))

    def identity(self, call: Call) -> tuple[dict[str, Any], dict[str, Tensor], Wish]:
        """SPEC: a model without a transformation gives back what it was given: its parameters, outputs and wish."""
        payload = payload_of(message_of(call, self.limits))
        parameters, inputs = self._contents(payload)
        return parameters, inputs, Wish(payload.form, payload.meta, is_class=True)

    def feedback(self, call: Call, model: ModelMetadata) -> InferenceRequest:
        """The request of send_feedback. Raises MalformedBody and InvalidTensor."""
        given = read_feedback(message_of(call, self.limits), unit.unit_name(model))
        carried = {"X": given.features, "truth": given.truth}
        inputs = {name: array_of(one, self.limits, self.mixed) for name, one in carried.items() if one is not None}
        parameters = {"feedback": given.document, "names": given.request.names or [], "routing": given.routing}
        return InferenceRequest(
            inputs=inputs,
            signature="send_feedback",
            parameters=parameters,
            wire=Wish(given.request.form, _just_puid(given.request.meta), is_class=True, feedback=True),
        )

    def aggregate(self, call: Call, model: ModelMetadata) -> InferenceRequest:
        """The request of aggregate: a list of messages, or `seldonMessages`. Raises MalformedBody and InvalidTensor."""
        document = message_of(call, self.limits)
        messages = document.get("seldonMessages") if isinstance(document, dict) else document
        if not isinstance(messages, list) or not messages:
            raise MalformedBody("Invalid request data type: expected a list of messages, or seldonMessages")
        if len(messages) > _MOST_MESSAGES:
            raise BodyTooLarge(f"{len(messages)} messages; at most {_MOST_MESSAGES} are taken at once")
        payloads = [payload_of(message) for message in messages]
        parameters: dict[str, Any] = {
            "names_list": [payload.names for payload in payloads],
            "metas": [payload.meta for payload in payloads],
        }
        inputs: dict[str, Tensor] = {}
        if {payload.form for payload in payloads} == {"jsonData"}:
            parameters["json_list"] = [payload.value for payload in payloads]
        elif any(payload.form == "jsonData" for payload in payloads):
            raise InvalidTensor("jsonData cannot be aggregated with other payloads")
        else:
            inputs = {f"X{place}": self._array(payload) for place, payload in enumerate(payloads)}
        wish = self._wish(payloads[0], model, merged(parameters["metas"]))
        return InferenceRequest(inputs=inputs, signature="aggregate", parameters=parameters, wire=wish)

    def route(self, call: Call, model: ModelMetadata) -> InferenceRequest:
        """The request of route. SPEC: of the request's meta, only puid is in the answer."""
        request = self._for_class(call, model, "route", self._numbers(call, model, "route"))
        wish: Wish = request.wire
        kept = replace(wish, meta=_just_puid(wish.meta), returned_meta=False)
        return replace(request, wire=kept)

    # A user's class...

    def _for_class(self, call: Call, model: ModelMetadata, method: str, found: fast.Numbers | None) -> InferenceRequest:
        signature = method or default_signature(model).name
        parameters: dict[str, Any]
        if found is not None:
            payload, parameters, inputs = found.payload, {}, {"X": found.array}
        else:
            message = message_of(call, self.limits)
            payload, parameters, inputs = self._raw(message) if _is_raw(model, method) else self._read(message)
        parameters |= {"names": payload.names, "meta": payload.meta}
        if "headers" in model.extras.get("has", ()):
            parameters["headers"] = _headers(call)
        return InferenceRequest(
            inputs=inputs, signature=signature, parameters=parameters, wire=self._wish(payload, model)
        )

    def _read(self, message: Any) -> tuple[Payload, dict[str, Any], dict[str, Tensor]]:
        payload = payload_of(message)
        return payload, *self._contents(payload)

    def _raw(self, message: Any) -> tuple[Payload, dict[str, Any], dict[str, Tensor]]:
        """SPEC: predict_raw gets whatever was sent; what predict would get goes along where it can be read."""
        try:
            payload, parameters, inputs = self._read(message)
        except (MalformedBody, InvalidTensor):
            payload, parameters, inputs = Payload("strData", ""), {}, {}
        if isinstance(message, dict) and isinstance(message.get("binData"), bytes):
            message = {**message, "binData": pybase64.b64encode(message["binData"]).decode("ascii")}
        return payload, {**parameters, "message": message}, inputs

    def _contents(self, payload: Payload) -> tuple[dict[str, Any], dict[str, Tensor]]:
        if payload.form == "jsonData":
            return {"json": payload.value}, {}
        return {}, {"X": self._array(payload)}

    def _array(self, payload: Payload) -> Tensor:
        if payload.form == "strData":
            return single(payload.value)
        if payload.form == "binData":
            return single(unbase64(payload.value))
        return array_of(payload, self.limits, self.mixed)

    # Both...

    def _numbers(self, call: Call, model: ModelMetadata, method: str) -> fast.Numbers | None:
        """The message, if it is a large one of numbers only."""
        if len(call.body) <= _SMALL_BODY or _is_raw(model, method):
            return None
        specs = list(default_signature(model).inputs.values())
        if not is_class(model) and len(specs) != 1:
            return None
        text = text_of(call)
        if text is None or len(text) <= _SMALL_BODY:
            return None
        if is_class(model):
            return fast.read_numbers(text, self.limits, None)
        dtype = specs[0].numpy_dtype
        return fast.read_numbers(text, self.limits, dtype) if dtype.kind in "fiu" else None

    def _wish(self, payload: Payload, model: ModelMetadata, meta: dict[str, Any] | None = None) -> Wish:
        return Wish(
            form=payload.form,
            meta=payload.meta if meta is None else meta,
            request_path=self._path(model),
            bare=self.bare_json or model.response.form == _BARE,
            is_class=is_class(model),
            own_metrics=unit.shows_metrics(model),
        )

    def _path(self, model: ModelMetadata) -> Mapping[str, str]:
        own = {model.name: str(model.version)} if self.request_path else {}
        return unit.request_path(model) or own


def is_class(model: ModelMetadata) -> bool:
    """Whether a user's class answers, or whoever else takes payloads of any kind."""
    return "has" in model.extras or any(spec.dtype == "any" for spec in default_signature(model).inputs.values())


def _is_raw(model: ModelMetadata, method: str) -> bool:
    """Whether the class wants the whole message."""
    return not method and not {"predict_raw", "predict_rest"}.isdisjoint(model.extras.get("has", ()))


def _just_puid(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    return {"puid": meta.get("puid")} if meta else meta


def _headers(call: Call) -> dict[str, str]:
    """All headers; the request's id among them, whoever made it."""
    found = {key.decode("latin-1"): value.decode("latin-1") for key, value in reversed(call.headers)}
    return {**found, "seldon-puid": puid(call)}
