"""The API's OpenAPI document, made from the table of its endpoints."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from gateway import __version__
from gateway.control.endpoint import PREFIX, Endpoint

_PROBLEM = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "field", "status"],
            "properties": {
                "message": {"type": "string"},
                "field": {"type": "string", "description": "What it is about, as a path into the call's body."},
                "status": {"type": "integer"},
            },
        }
    },
}
_FIELD = re.compile(r"\{(\w+)\}")


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """OpenAPI 3.1."""
    endpoints = tuple(endpoints)
    types = [kind for one in endpoints for kind in (one.takes, one.gives) if _is_described(kind)]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    named = dict(zip(map(id, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        paths.setdefault(PREFIX + one.path, {})[one.method.lower()] = _operation(one, named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tensorgate control API",
            "version": __version__,
            "description": "Services, their keys, canaries, scaling and expiry.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _is_described(kind: Any) -> bool:
    return kind is not None and kind is not dict and kind != dict[str, Any]


def _operation(one: Endpoint, named: dict[int, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": one.summary}
    if one.status != 204:
        answer["content"] = _json(named.get(id(one.gives), {"type": "object"}))
    problem = {"description": "What is wrong", "content": _json({"$ref": "#/components/schemas/Problem"})}
    operation: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.path.split("/")[1]],
        "parameters": [
            *(_parameter(name, "path") for name in _FIELD.findall(one.path)),
            *(_parameter(name, "query") for name in one.query),
        ],
        "responses": {str(one.status): answer, "default": problem},
    }
    if one.who == "admin":
        operation["description"] = "For administrators only."
    if one.takes is not None:
        operation["requestBody"] = {"required": True, "content": _json(named.get(id(one.takes), {"type": "object"}))}
    return operation


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
