"""Which fields each call has: honoured, accepted without effect, or refused unless neutral; others are ignored.

Source: OpenAI's OpenAPI description 2.3.0; the extensions have vLLM's names.
"""

from collections.abc import Mapping
from typing import Any, Literal

from adapters._modelcard import is_forwarded
from adapters.openai.errors import Refusal
from adapters.openai.formats import response_format
from adapters.openai.rules import (
    INT64,
    Rule,
    biases,
    boolean,
    false_only,
    number,
    one_of,
    refused,
    size,
    stops,
    stream_options,
    table,
    text,
    text_modality,
    token_ids,
    whole,
)
from adapters.openai.tools import tool_choice, tools
from gateway.types import ModelMetadata

Unknown = Literal["ignore", "refuse"]

_MOST = INT64 - 1
_MOST_CHOICES = 128

_SAMPLING: dict[str, Rule] = {
    "stream": boolean,
    "stream_options": stream_options,
    "max_tokens": whole(1, _MOST),
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "n": whole(1, _MOST_CHOICES),
    "stop": stops,
    "seed": whole(-INT64, _MOST),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "logit_bias": biases,
    # Extensions...
    "top_k": whole(-1, _MOST),
    "min_p": number(0, 1),
    "repetition_penalty": number(0.01, 100),
    "min_tokens": whole(0, _MOST),
    "ignore_eos": boolean,
    "stop_token_ids": token_ids,
    "return_token_ids": boolean,
}

_WITHOUT_EFFECT: dict[str, Rule] = {
    "user": text,
    "safety_identifier": text,
    "metadata": table,
    "prompt_cache_key": text,
    "prompt_cache_retention": text,
    "prompt_cache_options": table,
    "store": false_only,
    "service_tier": one_of("auto", "default"),
    "verbosity": text,
    "reasoning_effort": text,
    "modalities": text_modality,
}

CHAT: dict[str, Rule] = {
    **_SAMPLING,
    **_WITHOUT_EFFECT,
    "max_completion_tokens": whole(1, _MOST),
    "logprobs": boolean,
    "top_logprobs": whole(0, 20),
    "response_format": response_format,
    "tools": tools,
    "tool_choice": tool_choice,
    "parallel_tool_calls": boolean,
    "chat_template_kwargs": table,
    "continue_final_message": boolean,
    "add_generation_prompt": boolean,
    "audio": refused,
    "prediction": refused,
    "web_search_options": refused,
    "moderation": refused,
    "functions": refused,
    "function_call": refused,
}

COMPLETION: dict[str, Rule] = {
    **_SAMPLING,
    "max_tokens": whole(0, _MOST),
    "best_of": whole(1, _MOST_CHOICES),
    "echo": boolean,
    "logprobs": whole(0, 5),
    "suffix": refused,
    "user": text,
}

EMBEDDING: dict[str, Rule] = {
    "encoding_format": one_of("float", "base64"),
    "dimensions": whole(1, _MOST),
    "truncate": boolean,
    "user": text,
}

IMAGE: dict[str, Rule] = {
    "n": whole(1, 10),
    "size": size,
    "response_format": one_of("b64_json", "url"),
    "output_format": one_of("png"),
    "quality": text,
    "style": text,
    "background": one_of("auto", "opaque"),
    "moderation": text,
    "output_compression": whole(100, 100),
    "stream": false_only,
    "partial_images": whole(0, 0),
    "user": text,
    # Extensions...
    "negative_prompt": text,
    "steps": whole(1, _MOST),
    "guidance_scale": number(0, 100),
    "seed": whole(0, _MOST),
    "scheduler": text,
}


_FORWARDED: dict[str, Rule] = {
    "stream": boolean,
    "stream_options": stream_options,
    "n": whole(1, _MOST_CHOICES),
    "encoding_format": one_of("float", "base64"),
    "dimensions": whole(1, _MOST),
}
"""What is looked at even where another server judges the fields: the answer is written by it."""


def read_for(
    metadata: ModelMetadata,
    document: Mapping[str, Any],
    rules: Mapping[str, Rule],
    own: tuple[str, ...],
    unknown: Unknown,
) -> tuple[dict[str, Any], list[str]]:
    """As `read`; of a model that another server answers for, nothing is ignored or refused here."""
    if is_forwarded(metadata):
        return read(document, _FORWARDED, own, "ignore")[0], []
    return read(document, rules, own, unknown)


def read(
    document: Mapping[str, Any], rules: Mapping[str, Rule], own: tuple[str, ...], unknown: Unknown
) -> tuple[dict[str, Any], list[str]]:
    """The fields given, but for the call's `own`, and the names of those that no rule knows. Null counts as absent."""
    fields: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in document.items():
        if value is None or name == "model" or name in own:
            continue
        rule = rules.get(name)
        if rule is not None:
            value = rule(value, name)
        elif unknown == "refuse":
            raise Refusal(f"unknown field {name[:64]!r}", name[:64], "unknown_parameter")
        else:
            ignored.append(name)
        fields[name] = value
    return fields, ignored


def check_choices(count: int, most: int) -> None:
    """Refuse more answers than one call may ask for."""
    if count > most:
        raise Refusal(f"n: at most {most} choices are made for one call, not {count}", "n", "invalid_value")


def check_stream_options(fields: Mapping[str, Any]) -> None:
    """SPEC: they go with a stream only."""
    if "stream_options" in fields and not fields.get("stream"):
        raise Refusal("stream_options: allowed only with stream = true", "stream_options", "invalid_value")


def includes_usage(fields: Mapping[str, Any]) -> bool:
    """Whether a stream ends with a chunk that counts tokens."""
    return bool(fields.get("stream_options", {}).get("include_usage"))
