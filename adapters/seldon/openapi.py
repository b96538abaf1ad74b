"""The protocol as an OpenAPI document, for /seldon.json."""

from typing import Any

import orjson

Json = dict[str, Any]


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _map(values: Json) -> Json:
    return {"type": "object", "additionalProperties": values}


_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer", "format": "int32"}
_NUMBER: Json = {"type": "number"}
_ANYTHING: Json = {}

_SCHEMAS: Json = {
    "SeldonMessage": _object(
        status=_ref("Status"),
        meta=_ref("Meta"),
        data=_ref("DefaultData"),
        binData={"type": "string", "format": "byte"},
        strData=_TEXT,
        jsonData=_ANYTHING,
    ),
    "SeldonMessageList": _object(seldonMessages=_array(_ref("SeldonMessage"))),
    "DefaultData": _object(
        names=_array(_TEXT), tensor=_ref("Tensor"), ndarray=_array(_ANYTHING), tftensor=_ref("TensorProto")
    ),
    "Tensor": _object(shape=_array(_WHOLE), values=_array(_NUMBER)),
    "TensorProto": _object(
        dtype=_TEXT, tensorShape=_map(_ANYTHING), tensorContent={"type": "string", "format": "byte"}
    ),
    "Meta": _object(
        puid=_TEXT,
        tags=_map(_ANYTHING),
        routing=_map(_WHOLE),
        requestPath=_map(_TEXT),
        metrics=_array(_ref("Metric")),
    ),
    "Metric": _object(
        key=_TEXT,
        type={"type": "string", "enum": ["COUNTER", "GAUGE", "TIMER"]},
        value=_NUMBER,
        tags=_map(_TEXT),
    ),
    "Status": _object(code=_WHOLE, info=_TEXT, reason=_TEXT, status=_ANYTHING),
    "Feedback": _object(
        request=_ref("SeldonMessage"), response=_ref("SeldonMessage"), reward=_NUMBER, truth=_ref("SeldonMessage")
    ),
    "Metadata": _object(
        name=_TEXT,
        versions=_array(_TEXT),
        platform=_TEXT,
        inputs=_array(_ANYTHING),
        outputs=_array(_ANYTHING),
        custom=_map(_TEXT),
    ),
}


def _content(schema: str) -> Json:
    return {"content": {"application/json": {"schema": _ref(schema)}}}


def _responses(schema: str) -> Json:
    return {
        "200": {"description": "OK", **_content(schema)},
        "default": {"description": "what went wrong, in status", **_content("SeldonMessage")},
    }


def _post(name: str, body: str = "SeldonMessage") -> Json:
    return {"operationId": name, "requestBody": _content(body), "responses": _responses("SeldonMessage")}


def _get(name: str, schema: str) -> Json:
    return {"operationId": name, "responses": _responses(schema)}


_PATHS: Json = {
    "/api/v1.0/predictions": {"post": _post("Predict")},
    "/api/v1.0/feedback": {"post": _post("SendFeedback", "Feedback")},
    "/api/v0.1/predictions": {"post": _post("PredictV01")},
    "/api/v0.1/feedback": {"post": _post("SendFeedbackV01", "Feedback")},
    "/predict": {"post": _post("MicroservicePredict")},
    "/send-feedback": {"post": _post("MicroserviceFeedback", "Feedback")},
    "/transform-input": {"post": _post("TransformInput")},
    "/transform-output": {"post": _post("TransformOutput")},
    "/route": {"post": _post("Route")},
    "/aggregate": {"post": _post("Aggregate", "SeldonMessageList")},
    "/health/status": {"get": _get("HealthStatus", "SeldonMessage")},
    "/metadata": {"get": _get("Metadata", "Metadata")},
}

DOCUMENT = orjson.dumps(
    {
        "openapi": "3.0.0",
        "info": {"title": "Seldon prediction protocol", "version": "1.0"},
        "paths": _PATHS,
        "components": {"schemas": _SCHEMAS},
    }
)
"""The document as JSON."""
