"""Forms read as the API's bodies: what a person typed, as the data that the endpoint takes; it says what is wrong."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.datastructures import FormData

WHOLE = ("model_version", "nodes", "node.threads", "node.memory_mib")
LISTS = ("aliases", "nodes_allowed")
LIMITS = ("requests_per_second", "concurrency", "queue", "deadline_ms")


def number(text: str) -> Any:
    """A number if it is one that JSON has, too; else the text, which the API refuses in its own words."""
    text = text.strip()
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def expiry(form: FormData) -> dict[str, str]:
    """The field `expires_at`, where something was chosen; a browser's moment has no offset, and is meant as UTC."""
    text = _text(form, "expires_at")
    if not text:
        return {}
    return {"expires_at": text if "Z" in text or "+" in text else f"{text}:00Z"}


def service(form: FormData, before: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a service that its form has; tables that the form has in part are laid over those of `before`."""
    table: dict[str, Any] = {}
    for field in ("model", "version", "type", "sharing", "project", "duration"):
        if field in form:
            table[field] = _text(form, field)
    for field in WHOLE:
        if field in form:
            _put(table, field, number(_text(form, field) or "0"))
    for field in ("node.device", "node.driver"):
        if field in form:
            _put(table, field, _text(form, field))
    for field in LISTS:
        if field in form:
            table[field] = [part.strip() for part in _text(form, field).split(",") if part.strip()]
    for field in ("environment", "parameters"):
        if field in form:
            table[field] = dict(_pairs(_text(form, field).splitlines(), numbers=field == "parameters"))
    if "app_auth_shown" in form:  # NOTE: a box that is not ticked is not sent
        table["app_auth"] = "app_auth" in form
    if "limits.concurrency" in form:
        limits = dict(before.get("limits") or {})
        for field in LIMITS:
            text = _text(form, f"limits.{field}")
            limits[field] = number(text) if text else None
        table["limits"] = limits
    if "mode" in form:
        table["scaling"] = scaling(form) if _text(form, "mode") == "elastic" else None
    return table


def scaling(form: FormData) -> dict[str, Any]:
    """A scaling rule."""
    table: dict[str, Any] = {}
    for field in ("min", "max", "window_seconds"):
        if text := _text(form, f"scaling.{field}"):
            table[field] = number(text)
    for way in ("up", "down"):
        for field in ("interval_seconds", "max_nodes", "max_percent"):
            if text := _text(form, f"scaling.{way}.{field}"):
                table.setdefault(way, {})[field] = number(text)
    metrics, values = form.getlist("scaling.metric"), form.getlist("scaling.value")
    table["expectations"] = [
        {"metric": metric, "value": number(str(value))} for metric, value in zip(metrics, values, strict=False) if value
    ]
    return table


def _text(form: FormData, field: str) -> str:
    value = form.get(field, "")
    return value.strip() if isinstance(value, str) else ""


def _put(table: dict[str, Any], path: str, value: Any) -> None:
    first, _, rest = path.partition(".")
    if rest:
        table.setdefault(first, {})[rest] = value
    else:
        table[first] = value


def _pairs(lines: Iterable[str], *, numbers: bool) -> Iterable[tuple[str, Any]]:
    """Of lines NAME=VALUE."""
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip():
            yield name.strip(), number(value) if numbers else value
