"""The demo's language model, from request to answer."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
import pytest
import tinychat
from msgspec.structs import replace
from tinychat import asked, begun, says

from backends import generate
from backends.generate import GenerateBackend
from backends.generate.calls import joined
from gateway.errors import ContextTooLong, DeadlineExceeded, GatewayError, InvalidTensor, Overloaded
from gateway.types import InferenceRequest

STORY = "Tell me a story."
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def on_model(test: Callable[[GenerateBackend], Awaitable[None]], **config: Any) -> None:
    """Run the test on a loaded model, and see that it leaves nothing behind."""

    async def main() -> None:
        backend = await generate.load(tinychat.source(), generate.Config(**config))
        assert isinstance(backend, GenerateBackend)
        try:
            await test(backend)
            for _ in range(1000):
                if not backend.busy:
                    break
                await asyncio.sleep(0.001)
            assert backend.busy == 0
        finally:
            await backend.close()

    asyncio.run(main())


async def _text(backend: GenerateBackend, request: InferenceRequest) -> str:
    return str((await backend.infer(request)).outputs["text"][0])


async def _streamed(backend: GenerateBackend, request: InferenceRequest) -> tuple[dict[int, str], list[dict[str, Any]]]:
    texts: dict[int, str] = {}
    parts = []
    async for part in backend.stream(request):
        choice = part.parameters["choice"]
        texts[choice] = texts.get(choice, "") + part.outputs["text"][0]
        parts.append(dict(part.parameters))
    return texts, parts


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Hello!", "Hello! How can I help you today?"),
        ("What is the capital of France?", "The capital of France is Paris."),
        ("What is 12 + 7?", "12 + 7 = 19"),
        ("你好", "你好！有什么可以帮助你的吗？"),
        ("JSON: Eve is 42 years old.", '{"name": "Eve", "age": 42}'),
    ],
)
def test_it_answers_as_it_was_taught(question: str, answer: str) -> None:
    """The answers that the model was trained to give come out exactly."""

    async def test(backend: GenerateBackend) -> None:
        response = await backend.infer(asked(question, temperature=0))
        assert [answer] == response.outputs["text"].tolist()
        assert response.parameters["choices"][0]["finish_reason"] == "stop"

    on_model(test)


def test_seed_decides_the_text_whoever_else_is_there() -> None:
    """The same seed gives the same text alone, in a full batch, streamed or not, with cached beginnings or without."""

    async def test(backend: GenerateBackend) -> None:
        alone = [await _text(backend, asked(STORY, seed=seed, temperature=1)) for seed in range(16)]
        assert len(set(alone)) > 8
        others = [backend.infer(asked(f"What is {n} + {n}?")) for n in range(6)]
        together = [backend.infer(asked(STORY, seed=seed, temperature=1)) for seed in range(16)]
        answers = await asyncio.gather(*others, *together)
        assert alone == [answer.outputs["text"][0] for answer in answers[6:]]
        streams = await asyncio.gather(*(_streamed(backend, asked(STORY, seed=seed)) for seed in range(16)))
        assert alone == [texts[0] for texts, _ in streams]

    on_model(test)


def test_random_disconnects_harm_nobody() -> None:
    """Of 32 streams at a time some are closed anywhere; all others are right, all slots are free, memory is flat."""

    async def test(backend: GenerateBackend) -> None:
        expected = [await _text(backend, asked(STORY, seed=seed, temperature=1)) for seed in range(32)]
        draw = random.Random(5)

        async def one(seed: int) -> None:
            leaves = draw.randrange(40) if draw.random() < 0.4 else None
            parts = backend.stream(asked(STORY, seed=seed, temperature=1))
            text = ""
            try:
                count = 0
                async for part in parts:
                    text += part.outputs["text"][0]
                    count += 1
                    if count == leaves:
                        assert expected[seed].startswith(text)
                        return
            finally:
                await parts.aclose()
            assert expected[seed] == text

        async def rounds(count: int) -> int:
            for _ in range(count):
                await asyncio.gather(*(one(seed) for seed in range(32)))
            return int(psutil.Process().memory_info().rss)

        before = await rounds(2)
        assert await rounds(4) - before < 16 << 20

    on_model(test, queue=64)


def test_cancelled_call_frees_its_slot() -> None:
    """Who stops waiting for a whole answer is out of the batch, and the next in line gets the slot."""

    async def test(backend: GenerateBackend) -> None:
        endless = asked(STORY, ignore_eos=True, temperature=0)
        calls = [asyncio.ensure_future(backend.infer(endless)) for _ in range(2)]
        await asyncio.sleep(0.02)
        for call in calls:
            call.cancel()
        assert await _text(backend, asked("Hello!", temperature=0)) == "Hello! How can I help you today?"

    on_model(test, slots=1)


def test_full_model_refuses() -> None:
    """Beyond slots and queue there is no room, and afterwards there is again."""

    async def test(backend: GenerateBackend) -> None:
        answers = await asyncio.gather(
            *(backend.infer(asked(STORY, ignore_eos=True)) for _ in range(6)), return_exceptions=True
        )
        assert [Overloaded] * 3 == [type(answer) for answer in answers if isinstance(answer, Exception)]
        await backend.infer(asked("Hello!"))

    on_model(test, slots=1, queue=2)


def test_deadline_ends_an_answer() -> None:
    """An answer that is not complete in time is an error, streamed or not."""

    async def test(backend: GenerateBackend) -> None:
        late = replace(asked(STORY, ignore_eos=True, temperature=0), deadline=time.monotonic() + 0.02)
        with pytest.raises(DeadlineExceeded):
            await backend.infer(late)
        with pytest.raises(DeadlineExceeded):
            await _streamed(backend, replace(late, deadline=time.monotonic() + 0.02))

    on_model(test)


# What an answer tells...


def test_choices_and_usage() -> None:
    """Prompts times n choices come in order; a prompt counts once; each choice draws with its own numbers."""

    async def test(backend: GenerateBackend) -> None:
        request = asked(STORY, "Hello!", n=2, seed=1, temperature=1)
        response = await backend.infer(request)
        texts = response.outputs["text"].tolist()
        assert [choice["index"] for choice in response.parameters["choices"]] == [0, 1, 2, 3]
        assert texts[0] != texts[1]
        usage = response.parameters["usage"]
        assert usage["completion_tokens"] == sum(len(one["token_ids"]) for one in response.parameters["choices"])
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        single = await backend.infer(asked(STORY)), await backend.infer(asked("Hello!"))
        assert usage["prompt_tokens"] == sum(one.parameters["usage"]["prompt_tokens"] for one in single)
        streamed, parts = await _streamed(backend, request)
        assert texts == [streamed[index] for index in range(4)]
        assert ["usage" in part for part in parts] == [False] * (len(parts) - 1) + [True]
        assert parts[-1]["usage"]["total_tokens"] == usage["total_tokens"]

    on_model(test)


@pytest.mark.parametrize(
    ("parameters", "text", "reason", "stop"),
    [
        ({"max_tokens": 3}, "Hello! How", "length", None),
        ({"stop": ["help you"]}, "Hello! How can I ", "stop", "help you"),
        ({"stop": "w ca"}, "Hello! Ho", "stop", "w ca"),
        ({"stop_token_ids": [4]}, "Hello", "stop", 4),
        ({"max_tokens": 10_000_000}, "Hello! How can I help you today?", "stop", None),
        ({"logit_bias": {"2": -100}, "max_tokens": 9}, "Hello! How can I help you today?", "length", None),
        ({"min_tokens": 11, "max_tokens": 10}, None, "length", None),
    ],
)
def test_end_of_an_answer(parameters: dict[str, Any], text: str | None, reason: str, stop: str | int | None) -> None:
    """An answer ends where it was told to, and says why; streamed, it is the same text."""

    async def test(backend: GenerateBackend) -> None:
        request = asked("Hello!", temperature=0, **parameters)
        response = await backend.infer(request)
        choice = response.parameters["choices"][0]
        assert (reason, stop) == (choice["finish_reason"], choice["stop_reason"])
        assert text in (None, response.outputs["text"][0])
        texts, parts = await _streamed(backend, request)
        assert [response.outputs["text"][0]] == list(texts.values())
        assert [reason] == [part["finish_reason"] for part in parts if part["finish_reason"]]

    on_model(test)


def test_streamed_tokens_are_complete() -> None:
    """Tokens that end within a character are told with the one that completes it."""

    async def test(backend: GenerateBackend) -> None:
        request = asked("Repeat after me: \U0001f680 \U0001f409", temperature=0, max_tokens=40, ignore_eos=True)
        whole = await backend.infer(request)
        _, parts = await _streamed(backend, request)
        told = [token for part in parts for token in part["token_ids"]]
        assert whole.parameters["choices"][0]["token_ids"] == told

    on_model(test)


def test_logprobs_cover_the_text() -> None:
    """Each token of the text has an entry; their bytes together are the text, streamed or not."""

    async def test(backend: GenerateBackend) -> None:
        request = asked("你好", temperature=0, logprobs=True, top_logprobs=2)
        response = await backend.infer(request)
        entries = response.parameters["choices"][0]["logprobs"]
        joined = b"".join(bytes(entry["bytes"]) for entry in entries)
        assert response.outputs["text"][0] == joined.decode()
        assert all(entry["logprob"] <= 0 and len(entry["top_logprobs"]) == 2 for entry in entries)
        _, parts = await _streamed(backend, request)
        streamed = [entry for part in parts for entry in part["logprobs"]]
        assert [entry["token_id"] for entry in entries] == [entry["token_id"] for entry in streamed]

    on_model(test)


def test_echo_and_token_prompts() -> None:
    """A prompt may come as tokens, come back before its answer, and be scored without one."""

    async def test(backend: GenerateBackend) -> None:
        prompt = "Once upon a time"
        tokens = tinychat.vocabulary().encode(prompt, "prompt")
        plain = await _text(backend, begun(prompt, temperature=0))
        assert prompt + plain == await _text(backend, begun(prompt, temperature=0, echo=True))
        assert plain == await _text(backend, begun("", temperature=0, prompt_token_ids=[tokens]))
        scored = await backend.infer(begun(prompt, echo=True, logprobs=0, max_tokens=0))
        choice = scored.parameters["choices"][0]
        assert (prompt, "length") == (scored.outputs["text"][0], choice["finish_reason"])
        assert [entry["logprob"] and entry["logprob"] < 0 for entry in choice["logprobs"]] == [None, True, True, True]
        assert scored.parameters["usage"]["completion_tokens"] == 0

    on_model(test)


def test_schema_binds_the_answer() -> None:
    """Under a schema any question is answered with JSON that fits it, at any temperature."""

    async def test(backend: GenerateBackend) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
        fixed = await _text(backend, asked("JSON: Bob is 7 years old.", temperature=0, response_format=form))
        assert json.loads(fixed) == {"name": "Bob", "age": 7}
        for seed in range(8):
            request = asked(STORY, seed=seed, temperature=1.5, response_format=form, max_tokens=200)
            response = await backend.infer(request)
            if response.parameters["choices"][0]["finish_reason"] == "stop":
                assert {"name", "age"} == json.loads(response.outputs["text"][0]).keys()
        colours = {"choice": ["red", "green"]}
        picked = await _text(backend, asked(STORY, temperature=1, structured_outputs=colours))
        assert picked in ("red", "green")
        digits = await _text(backend, asked(STORY, temperature=1, structured_outputs={"regex": "[0-9]{4}"}))
        assert (len(digits), digits.isdigit()) == (4, True)

    on_model(test)


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ("auto", "tool_calls"),
        ("required", "tool_calls"),
        ({"type": "function", "function": {"name": "get_weather"}}, "stop"),
    ],
)
def test_tools_are_called(choice: Any, reason: str) -> None:
    """A call is told apart from the text, whether the model makes it or is made to."""

    async def test(backend: GenerateBackend) -> None:
        request = asked("What is the weather in Paris?", temperature=0, tools=[WEATHER], tool_choice=choice)
        response = await backend.infer(request)
        told = response.parameters["choices"][0]
        assert ("", reason) == (response.outputs["text"][0], told["finish_reason"])
        function = told["tool_calls"][0]["function"]
        assert (function["name"], json.loads(function["arguments"])) == ("get_weather", {"city": "Paris"})
        texts, parts = await _streamed(backend, request)
        assert "".join(texts.values()) == ""
        pieces = [call for part in parts for call in part["tool_calls"] or ()]
        assert sum("id" in piece for piece in pieces) == 1
        assert [function] == [call["function"] for call in joined(pieces)]

    on_model(test)


# What is refused...


@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        (asked("word " * 3000), ContextTooLong, "takes 1024 tokens"),
        (asked("x" * 3_000_000), ContextTooLong, "1024 tokens"),
        (asked(says("a") * 100_000), ContextTooLong, "1024 tokens"),
        (begun("word " * 3000), ContextTooLong, "takes 1024 tokens"),
        (begun("\ud800"), InvalidTensor, "not valid Unicode"),
        (begun("a", prompt_token_ids=[[99999]]), InvalidTensor, "prompt_token_ids"),
        (begun("a", prompt_token_ids=[[]]), InvalidTensor, "no tokens"),
        (begun(*["a"] * 41), InvalidTensor, "at most 40"),
        (asked("a", tools=[WEATHER], response_format={"type": "json_object"}), InvalidTensor, "response_format"),
        (asked("a", temperature=3), InvalidTensor, "parameters.temperature"),
        (asked([]), InvalidTensor, "at least one message"),
        (asked([{"role": "function", "content": "a"}]), InvalidTensor, r"messages\[0\].role"),
        (asked([{"role": "user", "content": None}]), InvalidTensor, r"messages\[0\].content"),
        (asked([{"role": "user", "content": [{"type": "image_url"}]}]), InvalidTensor, r"content\[0\].type"),
        (asked("a", chat_template_kwargs=1), InvalidTensor, "chat_template_kwargs"),
    ],
)
def test_bad_request_is_the_callers(request_: InferenceRequest, error: type[GatewayError], text: str) -> None:
    """What cannot be answered is refused at once, and nothing of it is left in the batch."""

    async def test(backend: GenerateBackend) -> None:
        with pytest.raises(error, match=text):
            await backend.infer(request_)
        with pytest.raises(error, match=text):
            await anext(aiter(backend.stream(request_)))

    on_model(test)
