"""Possessive quantifiers on every Python that has them."""

import pytest

from adapters._patterns import compiled, greedy


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (rb"[0-9]++\.?+[eE][+-]?+x{1,2}+", rb"[0-9]+\.?[eE][+-]?x{1,2}"),
        (r"a*+(?:b|c)++\+?+", r"a*(?:b|c)+\+?"),
        (r"\++", r"\++"),
    ],
)
def test_only_the_possessive_part_goes(pattern: bytes | str, expected: bytes | str) -> None:
    """Escaped signs and plain quantifiers stay as they are."""
    assert greedy(pattern) == expected


def test_a_group_that_tried_two_ways_is_found() -> None:
    """What Python 3.11.2 loses: python/cpython#106052."""
    number = compiled(r"[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+")
    assert [number.match(text)[0] for text in ("1.x", "1e", "1.5e+", "12.5e+3")] == ["1", "1", "1.5", "12.5e+3"]  # type: ignore[index]
