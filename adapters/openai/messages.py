"""A conversation's messages: roles, text in parts, calls and their results."""

from typing import Any

from adapters.openai.errors import Refusal
from adapters.openai.rules import UNSUPPORTED_VALUE, table, text, wrong

ROLES = ("system", "developer", "user", "assistant", "tool")
MOST = 1 << 14


def read(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages, each with its content as one string, or None for an assistant that only calls."""
    given = _given(document)
    return [_message(table(one, f"messages[{index}]"), f"messages[{index}]") for index, one in enumerate(given)]


def forwarded(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages as they are, for another server to judge what is in them."""
    given = _given(document)
    return [table(one, f"messages[{index}]") for index, one in enumerate(given)]


def check_end(messages: list[dict[str, Any]], continues: bool) -> None:
    """An assistant's message at the end is its answer begun, which must be asked for."""
    if messages[-1]["role"] == "assistant" and not continues:
        where = f"messages[{len(messages) - 1}].role"
        raise Refusal(
            f"{where}: the last message is the assistant's; set continue_final_message to have it continued",
            where,
            "invalid_value",
        )


def _given(document: dict[str, Any]) -> list[Any]:
    given = document.get("messages")
    if given is None:
        raise Refusal("missing messages", "messages", "missing_required_parameter")
    if not isinstance(given, list):
        raise wrong("messages", "a list", given, "invalid_type")
    if not 1 <= len(given) <= MOST:
        raise Refusal(f"messages: expected 1 to {MOST} messages, got {len(given)}", "messages", "invalid_value")
    return given


def _message(message: dict[str, Any], where: str) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        raise wrong(f"{where}.role", ", ".join(ROLES), role)
    calls = message.get("tool_calls")
    if role == "assistant" and message.get("function_call") is not None:
        raise Refusal(f"{where}.function_call is not supported here", f"{where}.function_call", UNSUPPORTED_VALUE)
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise Refusal(f"missing {where}.tool_call_id", f"{where}.tool_call_id", "missing_required_parameter")
    if message.get("name") is not None:
        text(message["name"], f"{where}.name")
    kept = {key: value for key, value in message.items() if value is not None}
    if calls:
        _check_calls(calls, f"{where}.tool_calls")
    else:
        kept.pop("tool_calls", None)
    return kept | {"content": _content(message.get("content"), role == "assistant" and bool(calls), f"{where}.content")}


def _content(value: Any, may_lack: bool, where: str) -> str | None:
    if isinstance(value, str):
        return value
    if value is None:
        if may_lack:
            return None
        raise Refusal(f"missing {where}", where, "missing_required_parameter")
    if not isinstance(value, list):
        raise wrong(where, "a string or a list of parts", value, "invalid_type")
    if not value:
        raise wrong(where, "at least one part", value)
    return "".join(_part(table(part, f"{where}[{index}]"), f"{where}[{index}]") for index, part in enumerate(value))


def _part(part: dict[str, Any], where: str) -> str:
    if part.get("type") != "text":
        raise wrong(f"{where}.type", "'text': the model reads text only", part.get("type"), UNSUPPORTED_VALUE)
    return text(part.get("text"), f"{where}.text")


def _check_calls(calls: Any, where: str) -> None:
    if not isinstance(calls, list):
        raise wrong(where, "a list of calls", calls, "invalid_type")
    for index, call in enumerate(calls):
        at = f"{where}[{index}]"
        function = table(table(call, at).get("function"), f"{at}.function")
        text(call.get("id"), f"{at}.id")
        text(function.get("name"), f"{at}.function.name")
        text(function.get("arguments"), f"{at}.function.arguments")
