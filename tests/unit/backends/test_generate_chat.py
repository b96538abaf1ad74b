"""Conversations become prompts by the model's template, and no text of a client's becomes a control token."""

import json
from typing import Any

import pytest
import tinychat
from hypothesis import given
from hypothesis import strategies as st
from tinychat import says

from backends.generate.chat import ChatTemplate
from backends.generate.vocabulary import Vocabulary
from gateway.errors import ContextTooLong, InvalidTensor, LoadFailed

VOCABULARY = tinychat.vocabulary()
TEMPLATE = (tinychat.FOLDER / "chat_template.jinja").read_text("utf-8")
CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|pad|>"]


def _prompt(template: str, messages: Any, **parameters: Any) -> str:
    chat = ChatTemplate(template, {"bos_token": "<|endoftext|>"}, VOCABULARY, 1024)
    return VOCABULARY.shown(chat.prompt(json.dumps(messages), parameters))


def _control_tokens(messages: Any, **parameters: Any) -> int:
    chat = ChatTemplate(TEMPLATE, {}, VOCABULARY, 1024)
    return sum(token in VOCABULARY.special for token in chat.prompt(json.dumps(messages), parameters))


def test_prompt_is_what_the_template_says() -> None:
    """The template's own control tokens are there, and the turn of the assistant is opened."""
    assert _prompt(TEMPLATE, says("Hello!")) == "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"


PIECES = st.sampled_from([*CONTROL, "<|", "im_end", "|>", "<", "|", "\ufdd0", "x"])


@given(st.lists(PIECES, max_size=8).map("".join), st.lists(PIECES, max_size=4).map("".join))
def test_no_text_becomes_a_control_token(text: str, more: str) -> None:
    """Whatever a message, its parts, a tool or a call says, the prompt has the template's control tokens only."""
    call = {"function": {"name": text, "arguments": more}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": text}, {"type": "text", "text": more}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": text, "tool_call_id": "1"},
    ]
    assert _control_tokens(messages) == 7
    tool = {"type": "function", "function": {"name": text, "parameters": {"properties": {more: {}}}}}
    assert _control_tokens(says(text), tools=[tool]) == 5


def test_overlapping_control_tokens_are_all_broken() -> None:
    """Where one control token's text overlaps another's, neither survives."""
    described = {
        "model": {"type": "BPE", "vocab": {char: at for at, char in enumerate("abc")}, "merges": []},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "added_tokens": [
            {"id": 3 + at, "content": text, "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            for at, text in enumerate(("ab", "bc"))
        ],
    }
    vocabulary = Vocabulary(json.dumps(described), 5)
    assert vocabulary.encode(vocabulary.guarded("abc"), "text", bare=True) == [0, 1, 2]


@pytest.mark.parametrize(
    ("template", "messages", "parameters", "prompt"),
    [
        ("{{ messages[0].content | tojson }}", says("<é>"), {}, '"<é>"'),
        ("{{ bos_token }}{{ messages[0].role }}", [{"role": "developer", "content": "a"}], {}, "<|endoftext|>system"),
        ("{# developer #}{{ messages[0].role }}", [{"role": "developer", "content": "a"}], {}, "developer"),
        ("{{ mode }}", says("a"), {"chat_template_kwargs": {"mode": "x"}}, "x"),
        ("{{ tools | length if tools else 0 }}", says("a"), {"tools": [1], "tool_choice": "none"}, "0"),
        ("{{ messages[0].content }}!", says("one"), {"continue_final_message": True}, "one"),
        ("a{{ add_generation_prompt }}", says("a"), {"add_generation_prompt": False}, "aFalse"),
        (
            "{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments|tojson }}{% endif %}"
            "{% endfor %}",
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}],
            {},
            '{"a": 1}',
        ),
    ],
)
def test_templates_get_what_they_expect(template: str, messages: Any, parameters: dict[str, Any], prompt: str) -> None:
    """Filters, tokens and variables are those that templates of the hub are written for."""
    assert prompt == _prompt(template, messages, **parameters)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.content.first }}", "cannot take them"),
        ("{{ ''.__class__.__mro__ }}", "cannot take them"),
        ("{{ messages.append(1) }}", "cannot take them"),
        ("{% for i in range(10**9) %}x{% endfor %}", "cannot take them"),
        ("{{ 1 + messages }}", "cannot take them"),
    ],
)
def test_template_that_fails_is_the_messages_fault(template: str, text: str) -> None:
    """What a template raises over odd messages is told to the caller; the sandbox lets nothing out."""
    with pytest.raises(InvalidTensor, match=text):
        _prompt(template, says("a"))


def test_endless_template_ends() -> None:
    """A prompt that grows without end is cut off once it cannot fit the context."""
    loop = "{% for i in range(90000) %}" * 2 + "x" * 100 + "{% endfor %}" * 2
    with pytest.raises(ContextTooLong):
        _prompt(loop, says("a"))


@pytest.mark.parametrize("document", ["", "hello", "{}", "[1]", "[" * 100_000, '[{"role": "user"}]'])
def test_messages_that_are_none(document: str) -> None:
    """A text that is no conversation is refused."""
    with pytest.raises(InvalidTensor, match="messages"):
        ChatTemplate(TEMPLATE, {}, VOCABULARY, 1024).prompt(document, {})


def test_broken_template_is_found_at_load() -> None:
    """A template that does not compile says so before any request."""
    with pytest.raises(LoadFailed, match="the chat template has a mistake"):
        ChatTemplate("{% for %}", {}, VOCABULARY, 1024)
