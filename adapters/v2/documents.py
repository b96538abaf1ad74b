"""A JSON object out of a request's body: strict JSON, and beyond it the tokens NaN and Infinity that Triton takes."""

import json
from math import isinf
from typing import Any

from adapters._tensorjson import check_lists, check_size
from gateway.errors import MalformedBody
from gateway.interfaces import DecodeLimits


def parse_object(text: bytes, limits: DecodeLimits) -> dict[str, Any]:
    """The object that the text is; of equal keys the last counts. Raises MalformedBody or BodyTooLarge."""
    check_size(text, limits.elements)
    check_lists(text, limits.elements)
    try:
        document = _DECODER.decode(text.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise MalformedBody(f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not JSON: it is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise MalformedBody("the body is not JSON that can be read: it is nested too deeply") from None
    except ValueError:
        raise MalformedBody("the body is not JSON that can be read: a number is out of range") from None
    if not isinstance(document, dict):
        raise MalformedBody("the body must be a JSON object")
    return document


def is_unicode(texts: list[str]) -> bool:
    """Whether all of them can be written as UTF-8: JSON may hold halves of surrogate pairs."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def _float(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError
    return value


_DECODER = json.JSONDecoder(parse_float=_float)
