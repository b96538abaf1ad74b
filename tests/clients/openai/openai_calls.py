"""Runs under the openai package's interpreter, not under pytest: does things with it, prints what it made of them.

`python openai_calls.py URL`; the key is `opensesame`, the models are `tinychat` and `embedder`.
"""

import asyncio
import json
import sys
import warnings
from array import array
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
from httpx_sse import aconnect_sse
from pydantic import BaseModel

warnings.simplefilter("error")

KEY = "opensesame"
HELLO = [{"role": "user", "content": "Hello!"}]
STORY = [{"role": "user", "content": "Tell me a story."}]
EVE = [{"role": "user", "content": "JSON: Eve is 42 years old."}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "w", "parameters": CITY}}]
SEEDED = {"temperature": 1, "seed": 99, "max_tokens": 400}


class Person(BaseModel):
    """What is asked for as JSON."""

    name: str
    age: int


def chat(client: openai.OpenAI) -> dict[str, Any]:
    """Whole, in chunks, and by the helper that puts chunks together."""
    create = client.chat.completions.create
    whole = create(model="tinychat", messages=STORY, **SEEDED)
    chunks = list(
        create(model="tinychat", messages=STORY, stream=True, stream_options={"include_usage": True}, **SEEDED)
    )
    with client.chat.completions.stream(model="tinychat", messages=STORY, n=2, **SEEDED) as stream:
        kinds = sorted({event.type for event in stream})
        final = stream.get_final_completion()
    logprobs = create(model="tinychat", messages=HELLO, logprobs=True, top_logprobs=2, max_tokens=3).choices[0].logprobs
    return {
        "whole": whole.choices[0].message.content,
        "usage": whole.usage.model_dump(exclude_none=True),
        "chunks": "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
        "chunks_usage": chunks[-1].usage.model_dump(exclude_none=True),
        "helper": [choice.message.content for choice in final.choices],
        "helper_reasons": [choice.finish_reason for choice in final.choices],
        "kinds": kinds,
        "hello": create(model="tinychat", messages=HELLO, temperature=0).choices[0].message.content,
        "logprobs": [len(entry.top_logprobs) for entry in logprobs.content],
    }


def structured(client: openai.OpenAI) -> dict[str, Any]:
    """JSON by a schema that pydantic makes, parsed by it."""
    parsed = client.chat.completions.parse(model="tinychat", messages=EVE, response_format=Person, temperature=0)
    with client.chat.completions.stream(
        model="tinychat", messages=EVE, response_format=Person, temperature=0
    ) as stream:
        stream.until_done()
        streamed = stream.get_final_completion().choices[0].message.parsed
    return {"parsed": parsed.choices[0].message.parsed.model_dump(), "streamed": streamed.model_dump()}


def tools(client: openai.OpenAI) -> dict[str, Any]:
    """A function that the model must call, whole and in pieces, and the turn after it."""
    asked = {"model": "tinychat", "tools": TOOLS, "temperature": 0, "max_tokens": 200}
    whole = client.chat.completions.create(messages=WEATHER, tool_choice="required", **asked).choices[0]
    with client.chat.completions.stream(messages=WEATHER, tool_choice="required", **asked) as stream:
        events = list(stream)
        streamed = stream.get_final_completion().choices[0]
    pieces = [event.arguments_delta for event in events if event.type == "tool_calls.function.arguments.delta"]
    done = [event.arguments for event in events if event.type == "tool_calls.function.arguments.done"]
    with client.chat.completions.stream(messages=WEATHER, tool_choice="auto", **asked) as stream:
        stream.until_done()
        auto = stream.get_final_completion().choices[0]
    named = {"type": "function", "function": {"name": "get_weather"}}
    by_name = client.chat.completions.create(messages=WEATHER, tool_choice=named, **asked).choices[0]
    call = whole.message.tool_calls[0]
    answered = [*WEATHER, whole.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    after = client.chat.completions.create(messages=answered, tool_choice="none", **asked).choices[0]
    return {
        "whole": [one.function.model_dump(include={"name", "arguments"}) for one in whole.message.tool_calls],
        "streamed": [one.function.model_dump(include={"name", "arguments"}) for one in streamed.message.tool_calls],
        "auto": [one.function.model_dump(include={"name", "arguments"}) for one in auto.message.tool_calls or ()],
        "pieces": pieces,
        "done": done,
        "reasons": [whole.finish_reason, streamed.finish_reason, by_name.finish_reason],
        "ids": [call.id, streamed.message.tool_calls[0].id],
        "after": after.message.content,
    }


def texts(client: openai.OpenAI) -> dict[str, Any]:
    """Raw completions."""
    asked: dict[str, Any] = {"model": "tinychat", "prompt": ["Once upon a", "Once"], "temperature": 0, "max_tokens": 6}
    whole = client.completions.create(**asked, n=2)
    pieces = ["", ""]
    for chunk in client.completions.create(**asked, stream=True):
        pieces[chunk.choices[0].index] += chunk.choices[0].text
    return {"whole": [choice.text for choice in whole.choices], "pieces": pieces}


def vectors(client: openai.OpenAI) -> dict[str, Any]:
    """As the package asks for them by default, in base64, and as numbers."""
    create = client.embeddings.create
    packed = create(model="embedder", input=["hello world", "hello"])
    plain = create(model="embedder", input=["hello world", "hello"], encoding_format="float")
    return {
        "sizes": [len(one.embedding) for one in packed.data],
        "equal": [array("f", one.embedding) for one in packed.data]
        == [array("f", one.embedding) for one in plain.data],
        "tokens": plain.usage.prompt_tokens,
    }


def models(client: openai.OpenAI) -> dict[str, Any]:
    """The list and its members."""
    ids = [one.id for one in client.models.list()]
    return {"ids": ids, "one": client.models.retrieve("org/tiny:latest").model_dump(include={"id", "object"})}


def errors(client: openai.OpenAI, url: str) -> dict[str, Any]:
    """What the package raises, with the members that it reads."""

    def raised(act: Any) -> list[Any]:
        try:
            act()
        except openai.APIStatusError as error:
            return [type(error).__name__, error.code, error.param, error.type]
        return []

    create = client.chat.completions.create
    return {
        "model": raised(lambda: create(model="nope", messages=HELLO)),
        "retrieve": raised(lambda: client.models.retrieve("nope")),
        "value": raised(lambda: create(model="tinychat", messages=HELLO, temperature=3)),
        "context": raised(lambda: create(model="tinychat", messages=[{"role": "user", "content": "word " * 5000}])),
        "stream": raised(lambda: create(model="tinychat", messages=HELLO, stream=True, n=99)),
        "key": raised(lambda: openai.OpenAI(base_url=url, api_key="no", max_retries=0).models.retrieve("tinychat")),
    }


async def at_once(url: str) -> dict[str, Any]:
    """Many streams of the asynchronous client, each with a seed of its own; some are left early."""
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY) as client:

        async def one(seed: int, leave: bool) -> str:
            stream = await client.chat.completions.create(
                model="tinychat", messages=STORY, stream=True, temperature=1, seed=seed, max_tokens=60
            )
            text = ""
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
                if leave and len(text) > 5:
                    await stream.close()
                    return ""
            return text

        streamed = await asyncio.gather(*(one(seed, seed % 3 == 0) for seed in range(24)))
        whole = await asyncio.gather(*(_whole(client, seed) for seed in range(24)))
    wrong = [seed for seed in range(24) if streamed[seed] and streamed[seed] != whole[seed]]
    return {"wrong": wrong, "left": sum(not text for text in streamed)}


async def _whole(client: openai.AsyncOpenAI, seed: int) -> str:
    answer = await client.chat.completions.create(
        model="tinychat", messages=STORY, temperature=1, seed=seed, max_tokens=60
    )
    return str(answer.choices[0].message.content)


async def independent(url: str) -> dict[str, Any]:
    """The same stream by a reader that knows server-sent events and nothing of OpenAI."""
    body = {"model": "tinychat", "messages": HELLO, "stream": True, "temperature": 0}
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        httpx.AsyncClient(headers=headers) as client,
        aconnect_sse(client, "POST", f"{url}/chat/completions", json=body) as source,
    ):
        events = [event async for event in _events(source)]
    deltas = [json.loads(data)["choices"][0]["delta"].get("content", "") for _, data, _ in events[:-1]]
    return {"text": "".join(deltas), "end": events[-1][1], "named": sorted({(name, last) for name, _, last in events})}


async def _events(source: Any) -> AsyncIterator[tuple[str, str, str]]:
    async for event in source.aiter_sse():
        yield event.event, event.data, event.id


def main(url: str) -> None:
    """Everything, each under its name."""
    client = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
    seen = {act.__name__: act(client) for act in (chat, structured, tools, texts, vectors, models)}
    seen["errors"] = errors(client, url)
    seen["at_once"] = asyncio.run(at_once(url))
    seen["independent"] = asyncio.run(independent(url))
    sys.stdout.write(json.dumps(seen))


main(sys.argv[1])
