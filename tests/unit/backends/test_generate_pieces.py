"""What a language model's answer is made of: text from tokens, the next token from logits, calls from text."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
import tinychat
from hypothesis import given
from hypothesis import strategies as st

from backends.generate.calls import CallReader, joined
from backends.generate.detokenize import Detokenizer, Stops
from backends.generate.grammar import Grammars, grammar_of
from backends.generate.sampling import Sampler, logprob_entry
from backends.generate.settings import Settings, settings_of
from backends.generate.tools import Tools, family_of, tools_of
from backends.generate.vocabulary import Vocabulary
from gateway.errors import InvalidTensor, LoadFailed

VOCABULARY = tinychat.vocabulary()


# Text from tokens...


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_survives_its_tokens(text: str) -> None:
    """Tokens fed one by one give the text back, and no part of it ever holds half a character."""
    detokenizer = Detokenizer(VOCABULARY, frozenset())
    parts = [detokenizer.push(token) for token in VOCABULARY.encode(text, "text")]
    assert text == "".join(parts) + detokenizer.flush()
    assert all(part in text for part in parts)


def test_unfinished_character_is_replaced_at_the_end() -> None:
    """What lacks its last byte is shown as a replacement character, once no byte can follow."""
    tokens = VOCABULARY.encode("\U0001f409", "text")
    assert len(tokens) > 1
    detokenizer = Detokenizer(VOCABULARY, frozenset())
    assert ["".join(map(detokenizer.push, tokens[:-1])), detokenizer.flush()] == ["", "\ufffd"]


def test_control_tokens_show_nothing() -> None:
    """A control token has no text, unless it marks a tool call."""
    assert Detokenizer(VOCABULARY, frozenset()).push(1) == ""
    assert Detokenizer(VOCABULARY, frozenset({1})).push(1) == "<|im_start|>"


def _sentencepiece_like(decoder: dict[str, Any] | None) -> Vocabulary:
    pieces = ["<unk>", "\u2581a", "b", "<0xC3>", "<0xA9>", "<pad>"]
    described = {
        "model": {
            "type": "BPE",
            "vocab": {piece: token for token, piece in enumerate(pieces)},
            "merges": [],
            "unk_token": "<unk>",
            "byte_fallback": True,
        },
        "decoder": decoder,
        "added_tokens": [
            {"id": 5, "content": "<pad>", "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        ],
    }
    return Vocabulary(json.dumps(described), 8)


def test_sentencepiece_like_tokens() -> None:
    """Spaces are pieces' first characters, unknown characters come as bytes, and the first space is dropped."""
    replace = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    decoders = [replace, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]
    vocabulary = _sentencepiece_like({"type": "Sequence", "decoders": decoders})
    assert vocabulary.bytes == [b"<unk>", b" a", b"b", b"\xc3", b"\xa9", b"<pad>", b"", b""]
    detokenizer = Detokenizer(vocabulary, frozenset())
    assert [detokenizer.push(token) for token in (1, 2, 1, 3, 4, 5, 7)] == ["a", "b", " a", "", "é", "", ""]


@pytest.mark.parametrize("decoder", [None, {"type": "WordPiece", "prefix": "##", "cleanup": True}])
def test_tokens_of_another_kind_are_refused(decoder: dict[str, Any] | None) -> None:
    """A tokenizer whose tokens have no bytes of their own is refused at load."""
    with pytest.raises(LoadFailed, match="a decoder of kind"):
        _sentencepiece_like(decoder)


@pytest.mark.parametrize(
    ("stops", "parts", "shown", "stop"),
    [
        (["END"], ["a", "E", "N", "D", "b"], ["a", "", "", ""], "END"),
        (["END"], ["aEN", "x"], ["a", "ENx"], None),
        (["END"], ["aENEN", "D"], ["aEN", ""], "END"),
        (["b", "abc"], ["xa", "bc"], ["x", ""], "abc"),
        (["abc", "ab"], ["xab"], ["x"], "abc"[:2]),
        (["aab"], ["a", "a", "a", "b"], ["", "", "a", ""], "aab"),
        (["\n\n"], ["one\n", "two\n", "\n"], ["one", "\ntwo", ""], "\n\n"),
        ([], ["a", "b"], ["a", "b"], None),
    ],
)
def test_stop_strings(stops: list[str], parts: list[str], shown: list[str], stop: str | None) -> None:
    """Text is shown up to the earliest stop string, wherever tokens end; what may become one waits."""
    watch = Stops(stops)
    found: list[tuple[str, str | None]] = []
    for part in parts:
        found.append(watch.push(part))
        if found[-1][1]:
            break
    assert (shown, stop) == ([text for text, _ in found], found[-1][1])


def test_held_back_text_is_told_at_the_end() -> None:
    """The beginning of a stop string that never came is part of the text."""
    watch = Stops(["END"])
    assert watch.push("aEN") == ("a", None)
    assert watch.flush() == "EN"


# The next token from logits...


def _drawn(logits: list[float], count: int = 4000, **settings: Any) -> Counter[int]:
    sampler = Sampler(Settings(**{"seed": 1} | settings), 0, len(logits), [])
    return Counter(sampler.choose(np.array(logits, np.float32), None) for _ in range(count))


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, {0, 1, 2, 3}),
        ({"temperature": 0.0}, {3}),
        ({"top_p": 0.0}, {3}),
        ({"top_k": 1}, {3}),
        ({"top_k": 2}, {2, 3}),
        ({"top_k": 99}, {0, 1, 2, 3}),
        ({"top_p": 0.5}, {3}),
        ({"top_p": 0.7}, {2, 3}),
        ({"min_p": 0.3}, {2, 3}),
        ({"top_p": 0.9, "min_p": 0.3}, {2, 3}),
        ({"top_k": 2, "top_p": 0.5}, {3}),
        ({"logit_bias": {3: -100.0}}, {0, 1, 2}),
        ({"logit_bias": {0: 100.0}}, {0}),
    ],
)
def test_only_some_tokens_are_drawn(settings: dict[str, Any], tokens: set[int]) -> None:
    """Each setting leaves exactly the tokens that it should. Probabilities: 0.03, 0.09, 0.24, 0.64."""
    assert tokens == set(_drawn([0.0, 1.0, 2.0, 3.0], **settings))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float) -> None:
    """Over many draws the shares are the probabilities."""
    logits = np.array([0.0, 1.0, 2.0, 3.0])
    weights = np.exp(logits / temperature)
    counts = _drawn(logits.tolist(), temperature=temperature)
    shares = [counts[token] / 4000 for token in range(4)]
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.03)


def test_large_vocabulary_keeps_its_nucleus() -> None:
    """Where the likeliest hundred do not suffice for top_p, more are looked at."""
    logits = np.zeros(5000, np.float32)
    sampler = Sampler(Settings(top_p=0.5, seed=3), 0, 5000, [])
    found = {sampler.choose(logits, None) for _ in range(3000)}
    assert 1000 < len(found) <= 2500


def test_penalties_count_what_was_drawn() -> None:
    """A penalty makes the next likeliest token win; the repetition penalty counts the prompt too."""
    logits = np.array([1.0, 0.9, 0.0], np.float32)
    for penalty in ({"presence_penalty": 0.5}, {"frequency_penalty": 0.5}, {"repetition_penalty": 1.5}):
        sampler = Sampler(Settings(temperature=0, **penalty), 0, 3, [])
        assert [sampler.choose(logits, None) for _ in range(2)] == [0, 1]
    assert Sampler(Settings(temperature=0, repetition_penalty=1.5), 0, 3, [0]).choose(logits, None) == 1


def test_choices_of_one_seed_differ() -> None:
    """Each choice has a generator of its own; the same choice draws the same again."""
    logits = np.zeros(500, np.float32)

    def draws(choice: int) -> list[int]:
        sampler = Sampler(Settings(seed=-7), choice, 500, [])
        return [sampler.choose(logits, None) for _ in range(8)]

    assert draws(0) == draws(0)
    assert draws(0) != draws(1)


def test_what_is_not_allowed_is_never_drawn() -> None:
    """The grammar's word is the last, even where the bias forbids all that it allows."""
    allowed = np.array([False, True, False])
    sampler = Sampler(Settings(logit_bias={1: -100.0}, seed=1), 0, 3, [])
    assert {1} == {sampler.choose(np.array([9, 0, 9], np.float32), allowed) for _ in range(20)}


def test_logprobs_are_of_the_raw_logits() -> None:
    """The drawn token has its probability, and the likeliest come in order."""
    logits = np.zeros(tinychat.SIZE, np.float32)
    logits[[10, 11]] = [20, 19]
    entry = logprob_entry(logits, 11, 2, VOCABULARY)
    assert [one["token_id"] for one in entry["top_logprobs"]] == [10, 11]
    assert entry["logprob"] == pytest.approx(np.log(np.exp(19) / (np.exp(19) + np.exp(20) + 1022)), rel=1e-5)
    assert bytes(entry["bytes"]).decode() == entry["token"]


# Parameters...


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": 9}, "n"),
        ({"seed": 1 << 63}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": 1}, "stop"),
        ({"logit_bias": {"abc": 1}}, "logit_bias"),
        ({"logit_bias": {"1024": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": "yes"}, "logprobs"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"ignore_eos": 1}, "ignore_eos"),
    ],
)
def test_wrong_parameter_is_refused_by_name(parameters: dict[str, Any], name: str) -> None:
    """A value out of range, or of the wrong type, is the caller's mistake."""
    with pytest.raises(InvalidTensor, match=rf"^parameters\.{name}: "):
        settings_of(parameters, {}, tinychat.SIZE, 8)


def test_parameters_are_read() -> None:
    """OpenAI's, vLLM's and text-generation's names are known; null is absent; the model's defaults come last."""
    given = {"max_new_tokens": 5.0, "do_sample": False, "stop_sequences": ["x"], "logprobs": 3, "seed": None, "zz": 1}
    assert Settings(max_tokens=5, temperature=0, stop=("x",), top_logprobs=3, top_k=7) == settings_of(
        given, {"top_k": 7, "max_new_tokens": 9}, tinychat.SIZE, 8
    )


# Grammars...


@pytest.mark.parametrize(
    "parameters",
    [
        {"response_format": "json"},
        {"response_format": {"type": "xml"}},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": "(?=x)"}}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "http://example.com/x"}}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}},
        {"structured_outputs": {"regex": "a", "choice": ["b"]}},
        {"structured_outputs": {"regex": "("}},
        {"structured_outputs": {"choice": [1]}},
        {"structured_outputs": {"grammar": "start: nobody"}},
    ],
)
def test_grammar_that_cannot_be_is_refused(parameters: dict[str, Any]) -> None:
    """What the engine cannot compile is the caller's mistake, and is told as such."""
    grammars = Grammars(VOCABULARY, frozenset({2}))
    with pytest.raises(InvalidTensor, match=r"^parameters\.(response_format|structured_outputs)"):
        grammars.constraint(*(grammar_of(parameters) or ("", "")))


# Calls from text...

TOOLS = {"hermes": "<tool_call>%s</tool_call>", "llama3": "%s", "mistral": "[TOOL_CALLS][%s]"}
CALL = '{"name": "add", "arguments": {"a": 1}}'


def _read(
    family: Any, text: str, step: int, several: bool = True, early: bool = False
) -> tuple[str, list[tuple[str, str]]]:
    reader = CallReader(Tools(family, frozenset({"add"}), several), early)
    content, calls = "", []
    for at in range(0, len(text), step):
        more, found = reader.push(text[at : at + step])
        content, calls = content + more, calls + found
    more, found = reader.flush()
    functions = [call["function"] for call in joined(call.wire() for call in calls + found)]
    return content + more, [(function["name"], function["arguments"]) for function in functions]


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    ("family", "text", "content", "calls"),
    [
        ("hermes", "Hi <tool_call>%s</tool_call>" % CALL, "Hi ", 1),  # noqa: UP031
        ("hermes", f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{CALL}</tool_call>", "", 2),
        ("hermes", f"<tool_call>{CALL}", "", 1),
        ("hermes", "a <tool b <tool_call", "a <tool b <tool_call", 0),
        ("hermes", "<tool_call>{oops</tool_call> b", "<tool_call>{oops</tool_call> b", 0),
        ("hermes", '<tool_call>{"name": "sub"}</tool_call>', '<tool_call>{"name": "sub"}</tool_call>', 0),
        ("llama3", '{"name": "add", "parameters": {"a": 1}}', "", 1),
        ("llama3", f"<|python_tag|>{CALL}", "", 1),
        ("llama3", "{not json", "{not json", 0),
        ("llama3", "Hello {x}", "Hello {x}", 0),
        ("mistral", f"[TOOL_CALLS][{CALL}, {CALL}]", "", 2),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 1}', "", 1),
        ("mistral", "[TOOL", "[TOOL", 0),
    ],
)
def test_calls_are_found_in_text(family: str, text: str, content: str, calls: int, step: int) -> None:
    """However the text is cut, the calls are found, and what is no call of an offered tool stays text."""
    assert (content, [("add", '{"a": 1}')] * calls) == _read(family, text, step)
    assert (content, [("add", '{"a": 1}')] * calls) == _read(family, text, step, early=True)


def test_one_call_at_most_where_one_is_wanted() -> None:
    """Without parallel calls the first is the only one."""
    text = f"<tool_call>{CALL}</tool_call>" * 2
    assert _read("hermes", text, 5, several=False) == ("", [("add", '{"a": 1}')])
    assert _read("hermes", text, 5, several=False, early=True) == ("", [("add", '{"a": 1}')])


NESTED = '{"a": "}</tool_call>\\"{", "b": [{"c": {}}, "]"], "d": "é"}'


@pytest.mark.parametrize("family", ["hermes", "llama3", "mistral"])
def test_a_stream_tells_a_call_as_it_is_written(family: Any) -> None:
    """The name comes once it is sure, each piece of the arguments at once, and no character of what is around them."""
    arguments = NESTED if family != "hermes" else NESTED.replace("</tool_call>", "</tool_")
    text = TOOLS[family] % f'{{ "name" : "add",  "arguments":{arguments}, "id": "x"}}'
    reader = CallReader(Tools(family, frozenset({"add"}), True), early=True)
    told: list[tuple[int, str, str]] = []
    shown = ""
    for place, char in enumerate(text):
        more, found = reader.push(char)
        shown += more
        told += [(place, call.name, call.arguments) for call in found]
    more, found = reader.flush()
    assert (shown + more, found, reader.calls) == ("", [], 1)
    assert [name for _, name, _ in told if name] == ["add"]
    assert arguments == "".join(piece for *_, piece in told)
    assert len(told) > len(arguments) // 2
    assert told[-1][0] == text.index(arguments) + len(arguments) - 1


def test_a_call_that_breaks_off_stays_what_it_was_told_as() -> None:
    """Whole, broken JSON is text; in a stream its beginning has been told as a call already."""
    text = '<tool_call>{"name": "add", "arguments": {"a": 1</tool_call>'
    assert _read("hermes", text, 1) == (text, [])
    assert _read("hermes", text, 1, early=True) == ("", [("add", '{"a": 1')])


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('<tool_call>{"name": "sub", "arguments": {}}</tool_call>', True),
        ('<tool_call>{"name": "\\x", "arguments": {}}</tool_call>', True),
        ('<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>', False),
        ('<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', False),
    ],
)
def test_calls_that_are_told_whole_or_not_at_all(text: str, content: bool, step: int) -> None:
    """A stream waits for the end of a call that is written in another order, and of one to a tool that is not there."""
    wanted = (text, []) if content else ("", [("add", '{"a": 1}')])
    assert wanted == _read("hermes", text, step, early=True) == _read("hermes", text, step)


@pytest.mark.parametrize(
    "parameters",
    [
        {"tool_choice": "auto"},
        {"tools": []},
        {"tools": "add"},
        {"tools": [{"type": "custom"}]},
        {"tools": [{"type": "function", "function": {"name": "add"}}], "tool_choice": "maybe"},
        {"tools": [{"type": "function", "function": {"name": "add"}}], "tool_choice": {"type": "function"}},
    ],
)
def test_wrong_tools_are_refused(parameters: dict[str, Any]) -> None:
    """Tools that are none, and a choice of a tool that is not there, are the caller's mistake."""
    with pytest.raises(InvalidTensor, match=r"^parameters\.tool"):
        tools_of(parameters, "hermes", VOCABULARY)


def test_tools_need_a_model_that_knows_them() -> None:
    """Tools are never dropped silently."""
    assert family_of("{{ messages }}") is None
    with pytest.raises(InvalidTensor, match="this model knows no tools"):
        tools_of({"tools": [{"type": "function", "function": {"name": "add"}}]}, None, VOCABULARY)
