"""`response_format`: plain text, any JSON object, or JSON by a schema."""

import re
from typing import Any

from adapters.openai.errors import Refusal
from adapters.openai.rules import table, wrong

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
KINDS = ("text", "json_object", "json_schema")


def response_format(value: Any, name: str) -> dict[str, Any]:
    """The format asked for; whether its schema can be followed is for the model's backend to say."""
    given = table(value, name)
    kind = given.get("type")
    if kind not in KINDS:
        raise wrong(f"{name}.type", " or ".join(map(repr, KINDS)), kind)
    if kind == "json_schema":
        _check_schema(given.get("json_schema"), f"{name}.json_schema")
    return given


def _check_schema(value: Any, where: str) -> None:
    if value is None:
        raise Refusal(f"missing {where}", where, "missing_required_parameter")
    given = table(value, where)
    if not isinstance(given.get("name"), str) or not _NAME.match(given["name"]):
        raise wrong(f"{where}.name", "1 to 64 letters, digits, _ or -", given.get("name"))
    if not isinstance(given.get("schema"), dict | bool | None):
        raise wrong(f"{where}.schema", "a JSON schema", given["schema"], "invalid_type")
    if given.get("strict") is not None and not isinstance(given["strict"], bool):
        raise wrong(f"{where}.strict", "true or false", given["strict"], "invalid_type")
