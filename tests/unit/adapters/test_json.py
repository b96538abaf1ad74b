"""The exact JSON reader: RapidJSON's verdict on texts that are not quite JSON."""

import math
from typing import Any

import pytest

from adapters import _json
from gateway.errors import MalformedBody

REFUSED = {
    b"": "The document is empty",
    b" \n": "The document is empty. at offset: 2",
    b"\0": "The document is empty. at offset: 0",
    b"[1": "Missing a comma or ']' after an array element. at offset: 2",
    b"[1\0]": "Missing a comma or ']' after an array element. at offset: 2",
    b"[1 2]": "Missing a comma or ']' after an array element. at offset: 3",
    b"[01]": "Missing a comma or ']' after an array element. at offset: 2",
    b"[": "Invalid value. at offset: 1",
    b"[1,": "Invalid value. at offset: 3",
    b"[,1]": "Invalid value. at offset: 1",
    b"[-]": "Invalid value. at offset: 2",
    b"[Nan]": "Invalid value. at offset: 3",
    b"[In]": "Invalid value. at offset: 3",
    b"[-Infinite]": "Invalid value. at offset: 9",
    b"[nul]": "Invalid value. at offset: 4",
    b"[falsy]": "Invalid value. at offset: 5",
    b"[1.]": "Miss fraction part in number. at offset: 3",
    b"[1.x]": "Miss fraction part in number. at offset: 3",
    b"[1e]": "Miss exponent in number. at offset: 3",
    b"[1.5e+]": "Miss exponent in number. at offset: 6",
    b"[-1e999]": "Number too big to be stored in double. at offset: 1",
    b"[0," + b"9" * 400 + b"]": "Number too big to be stored in double. at offset: 3",
    b"[" + b"9" * 5000 + b"]": "Number too big to be stored in double. at offset: 1",
    b"{": "Missing a name for object member. at offset: 1",
    b'{"a":1,}': "Missing a name for object member. at offset: 7",
    b"{1:2}": "Missing a name for object member. at offset: 1",
    b'{"a" 1}': "Missing a colon after a name of object member. at offset: 5",
    b'{"a":}': "Invalid value. at offset: 5",
    b'{"a":1': "Missing a comma or '}' after an object member. at offset: 6",
    b'{"a":[1]]': "Missing a comma or '}' after an object member. at offset: 8",
    b'["a\tb"]': "Invalid escape character in string. at offset: 3",
    b'["\\x"]': "Invalid escape character in string. at offset: 2",
    b'["ab\\': "Invalid escape character in string. at offset: 4",
    b'["\\u12g4"]': "Incorrect hex digit after \\u escape in string. at offset: 2",
    b'["\\uD800x"]': "The surrogate pair in string is invalid. at offset: 2",
    b'["ab\\uDC00"]': "The surrogate pair in string is invalid. at offset: 4",
    b'["\\ud83d\\ud83d\\ude00"]': "The surrogate pair in string is invalid. at offset: 2",
    b'["\\\\ud83d\\ude00"]': "The surrogate pair in string is invalid. at offset: 9",
    '["é", x]'.encode(): "Invalid value. at offset: 7",
    b"\xef\xbb\xbf[x]": "Invalid value. at offset: 4",
}

READ = {
    b"[Inf, -Inf, Infinity, -Infinity]": [math.inf, -math.inf, math.inf, -math.inf],
    b'[Inf, "Inf"]': [math.inf, "Inf"],
    b"{}garbage": {},
    b"[1][2]": [1],
    b"\xef\xbb\xbf {}": {},
    b'{"a":1,"a":2}': {"a": 1},
    b'{"a":Inf,"a":2}': {"a": math.inf},
    b'{"a":{"b":1e-400}}': {"a": {"b": 0.0}},
    b"[1e2, 1E+2, 100]": [100.0, 100.0, 100],
    b"[123456789012345678901234567890]": [123456789012345678901234567890],
    b"[" + b"1" * 305 + b"]": [int("1" * 305)],
    b'["\xff", "a\\n\xfe"]': [b"\xff", b"a\n\xfe"],
    b'{"\xff": 1}': {b"\xff": 1},
    b'["\\ud83d\\ude00"]': ["😀"],
    b'["\\\\ud83d"]': ["\\ud83d"],
    b'[[], {}, [[]], "", null, true, false]': [[], {}, [[]], "", None, True, False],
}


@pytest.mark.parametrize("text", REFUSED, ids=repr)
def test_refusal_is_rapidjsons(text: bytes) -> None:
    """A text that RapidJSON refuses is refused in its words, at its offset."""
    with pytest.raises(MalformedBody) as caught:
        _json.parse(text)
    assert str(caught.value) == f"JSON Parse error: {REFUSED[text]}"


@pytest.mark.parametrize("text", READ, ids=repr)
def test_value_is_rapidjsons(text: bytes) -> None:
    """A text that RapidJSON reads has the value that it reads."""
    assert repr(_json.parse(text)) == repr(READ[text])


@pytest.mark.parametrize("token", [b"NaN", b"-NaN"])
@pytest.mark.parametrize("frame", [b"[%b]", b'{"a":[1.5, %b]}', b'["", %b]'])
def test_nan_tokens(token: bytes, frame: bytes) -> None:
    """Both tokens are NaN, wherever they stand."""
    value: Any = _json.parse(frame % token)
    while not isinstance(value, float):
        value = value["a"] if isinstance(value, dict) else value[-1]
    assert math.isnan(value)


@pytest.mark.parametrize("closed", [True, False])
def test_deep_nesting_needs_no_recursion(closed: bool) -> None:
    """90,000 levels are read, or refused at the end, without recursion."""
    text = b"[" * 90_000 + b"]" * (90_000 if closed else 0)
    if closed:
        value = _json.parse(text)
        depth = 1
        while value:
            value, depth = value[0], depth + 1
        assert depth == 90_000
    else:
        with pytest.raises(MalformedBody, match=r"Invalid value\. at offset: 90000"):
            _json.parse(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"[" + b'"\xff",' * 2001 + b"1]", "Invalid encoding in string. at offset: 2"),
        (b"[" + b"{}," * 2001 + b"}", "Expecting value at character: 6004"),
        (b'{"a":' * 100_001, "nested too deeply"),
        (b"[" + b"{}," * 2001 + b"1e999]", "too many values for the exact parser"),
    ],
)
def test_the_slow_way_has_an_end(text: bytes, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that would keep the machine busy for long is refused with what the scanner made of it."""
    monkeypatch.setattr(_json, "_MACHINE_STEPS", 2000)
    with pytest.raises(MalformedBody) as caught:
        _json.parse(text)
    assert str(caught.value) == f"JSON Parse error: {told}"


@pytest.mark.parametrize("place", [0, 1, 5, 6, 7, 11, 12, 13, 17])
def test_a_surrogate_at_the_edge_of_a_window_is_judged_alike(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body is searched piece by piece; pairs that lie across two pieces are pairs, and lone halves are lone."""
    monkeypatch.setattr(_json, "_WINDOW", 16)
    pad = b"." * place
    assert _json.parse(b'"' + pad + rb'\ud83d\ude00."') == "." * place + "\U0001f600."
    for lone in (rb"\ud83d", rb"\ude00"):
        with pytest.raises(MalformedBody, match="surrogate pair"):
            _json.parse(b'"' + pad + lone + b'........"')
