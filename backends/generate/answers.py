"""What the choices have become, as responses: text as a tensor, and all that is no text in the parameters."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from backends.generate.sequence import Choice, Delta
from gateway.types import InferenceResponse, Tensor


def whole(choices: Sequence[Choice], deltas: Iterable[Delta]) -> InferenceResponse:
    """All choices, each once. Shapes: text [choices]."""
    told = sorted(deltas, key=lambda delta: delta.choice)
    described = [
        {
            "index": delta.choice,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
            "logprobs": delta.logprobs if choices[delta.choice].wants_logprobs else None,
            "tool_calls": [_without_index(call) for call in delta.tool_calls] or None,
            "token_ids": delta.tokens,
        }
        for delta in told
    ]
    parameters = {"choices": described, "usage": usage(choices)}
    return InferenceResponse({"text": _texts([delta.text for delta in told])}, parameters)


def parts_of(choices: Sequence[Choice], deltas: Sequence[Delta]) -> Iterator[InferenceResponse]:
    """One part for each delta that tells something; the very last has the usage. Shapes: text [1]."""
    told = [delta for delta in deltas if not delta.empty]
    for place, delta in enumerate(told):
        parameters: dict[str, Any] = {
            "choice": delta.choice,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
            "logprobs": delta.logprobs if choices[delta.choice].wants_logprobs else None,
            "tool_calls": delta.tool_calls or None,
            "token_ids": delta.tokens,
        }
        if delta.finish_reason is not None:
            choices[delta.choice].told = True
        if place == len(told) - 1 and all(choice.told for choice in choices):
            parameters["usage"] = usage(choices)
        yield InferenceResponse({"text": _texts([delta.text])}, parameters)


def usage(choices: Sequence[Choice]) -> dict[str, Any]:
    """The tokens read and drawn; a prompt counts once, however many choices it has."""
    firsts = {id(choice.prompt): choice for choice in reversed(choices)}.values()
    prompt = sum(choice.prompt_tokens for choice in firsts)
    completion = sum(choice.completion_tokens for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(choice.cached_tokens for choice in firsts)},
    }


def _without_index(call: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name != "index"}


def _texts(texts: Sequence[str]) -> Tensor:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array
