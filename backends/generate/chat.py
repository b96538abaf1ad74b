"""A conversation becomes a prompt by the model's own template, in a sandbox, no control token being a client's.

Source: the chat templates of the Hugging Face hub, and what transformers offers them.
"""

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment

from backends.generate.settings import refused
from backends.generate.vocabulary import Vocabulary
from gateway.errors import ContextTooLong, InvalidTensor, LoadFailed

ROLES = ("system", "developer", "user", "assistant", "tool")

_TOJSON_ARGUMENTS = re.compile(r"arguments\s*\|\s*tojson")
_MAX_ERROR_CHARS = 300


class Refusal(jinja2.TemplateError):
    """What a template says by raise_exception."""


class ChatTemplate:
    """A model's chat template."""

    def __init__(self, source: str, tokenizer_config: Mapping[str, Any], vocabulary: Vocabulary, most: int) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols], autoescape=False
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise LoadFailed(f"the chat template has a mistake: {error}") from None
        self.takes_tools = bool(re.search(r"\btools\b", source))
        self._knows_developer = "developer" in source
        self._wants_objects = bool(_TOJSON_ARGUMENTS.search(source))
        self._tokens = {
            name: text
            for name in ("bos_token", "eos_token", "unk_token", "pad_token")
            if (text := _content(tokenizer_config.get(name)))
        }
        self._vocabulary = vocabulary
        self._most_tokens = most

    def prompt(self, document: str, parameters: Mapping[str, Any]) -> list[int]:
        """The prompt's tokens. Raises InvalidTensor, or ContextTooLong as soon as it is sure."""
        tools = parameters.get("tools") if parameters.get("tool_choice") != "none" else None
        given = parameters.get("chat_template_kwargs")
        if given is not None and not isinstance(given, dict):
            raise refused("chat_template_kwargs", "expected an object")
        try:
            return self._prompt(self._messages(_parsed(document)), tools, given or {}, parameters)
        except RecursionError:
            raise InvalidTensor("messages: they are nested too deep") from None

    def _prompt(
        self, messages: list[dict[str, Any]], tools: Any, given: dict[str, Any], parameters: Mapping[str, Any]
    ) -> list[int]:
        going_on = parameters.get("continue_final_message") is True
        variables = self._vocabulary.guarded({**given, "messages": messages, "tools": tools or None})
        add = parameters.get("add_generation_prompt")
        variables["add_generation_prompt"] = not going_on if add is None else bool(add)
        text = self._render(variables | self._tokens)
        if going_on:
            last = self._vocabulary.guarded(messages[-1]["content"])
            text = text[: text.rindex(last) + len(last)] if last and last in text else text
        return self._vocabulary.encode(text, "messages", bare=True)

    def _render(self, variables: dict[str, Any]) -> str:
        most = self._most_tokens * self._vocabulary.longest
        parts, length = [], 0
        try:
            for part in self._template.generate(variables):
                parts.append(part)
                length += len(part)
                if length > most:
                    break
        except Refusal as error:
            raise InvalidTensor(f"messages: the model's template refuses them: {_short(error)}") from None
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise InvalidTensor(f"messages: the model's template cannot take them: {_short(error)}") from None
        if length > most:
            raise ContextTooLong(f"messages: they have more than the {self._most_tokens} tokens that the model takes")
        return "".join(parts)

    # What the messages must be...

    def _messages(self, messages: Any) -> list[dict[str, Any]]:
        if not isinstance(messages, list) or not messages:
            raise InvalidTensor("messages: expected a list of at least one message, as JSON")
        if len(messages) > self._most_tokens:
            raise ContextTooLong(
                f"messages: {len(messages)} of them have more than the {self._most_tokens} tokens that the model takes"
            )
        return [self._message(message, f"messages[{place}]") for place, message in enumerate(messages)]

    def _message(self, message: Any, where: str) -> dict[str, Any]:
        if not isinstance(message, dict):
            raise InvalidTensor(f"{where}: expected an object")
        role = message.get("role")
        if role not in ROLES:
            raise InvalidTensor(f"{where}.role: expected one of {', '.join(ROLES)}")
        if role == "developer" and not self._knows_developer:
            role = "system"
        calls = message.get("tool_calls")
        content = message.get("content")
        if content is None and not (role == "assistant" and calls):
            raise InvalidTensor(f"{where}.content: expected a string or a list of parts")
        kept = {key: value for key, value in message.items() if key != "tool_calls" and value is not None}
        kept |= {"role": role, "content": "" if content is None else _content_text(content, f"{where}.content")}
        if calls:
            kept["tool_calls"] = self._calls(calls, f"{where}.tool_calls")
        return kept

    def _calls(self, calls: Any, where: str) -> list[dict[str, Any]]:
        if not isinstance(calls, list):
            raise InvalidTensor(f"{where}: expected a list")
        found = []
        for place, call in enumerate(calls):
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                raise InvalidTensor(f"{where}[{place}].function: expected an object with name and arguments")
            arguments = function.get("arguments", "{}")
            if not isinstance(arguments, str):
                raise InvalidTensor(f"{where}[{place}].function.arguments: expected JSON in a string")
            if self._wants_objects:
                try:
                    arguments = msgspec.json.decode(arguments.encode("utf-8", "replace") or b"{}")
                except msgspec.DecodeError:
                    raise InvalidTensor(f"{where}[{place}].function.arguments: not JSON") from None
            found.append({**call, "type": "function", "function": {**function, "arguments": arguments}})
        return found


def _parsed(document: str) -> Any:
    try:
        return json.loads(document)
    except ValueError:
        raise InvalidTensor("messages: expected a list of messages as JSON text") from None


def _content_text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise InvalidTensor(f"{where}: expected a string or a list of parts")
    texts = []
    for place, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise InvalidTensor(f"{where}[{place}].type: only parts of type text are taken")
        texts.append(part["text"])
    return "".join(texts)


def _content(token: Any) -> str:
    """A token of tokenizer_config.json, which may be a text or an object."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False, **options: Any) -> str:
    """As transformers writes it: no HTML escapes."""
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, **options)


def _refuse(message: Any = "") -> NoReturn:
    raise Refusal(str(message))


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:_MAX_ERROR_CHARS]
