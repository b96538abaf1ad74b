"""Budgets of many processes: all parts of one make it whole, and follow what is asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.parts import MOST_BUDGETS, Parts, name_of

NAME = name_of("s")


def settled(parts: Parts[str], asked: dict[str, float], slices: int = 20) -> dict[str, float]:
    """The parts of one budget that processes have once they have asked for so long."""
    found: dict[str, float] = {}
    for _ in range(slices):
        for member, count in asked.items():
            parts.ask(member, {NAME: count})
        found |= {member: dealt.get(NAME, 0.0) for member, dealt in parts.deal(asked.keys()).items()}
    return found


def test_who_is_asked_alone_has_nearly_all() -> None:
    """The others keep enough that they need not wait for a first request."""
    found = settled(Parts(), {"a": 10, "b": 0, "c": 0, "d": 0})
    assert found["a"] > 0.9
    assert all(0.01 < found[member] < 0.03 for member in "bcd")


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.floats(0, 1e6)), min_size=1, max_size=20))
def test_all_parts_make_one(story: list[dict[str, float]]) -> None:
    """Whatever is asked when, no more than the whole is ever dealt."""
    parts: Parts[str] = Parts()
    have = dict.fromkeys("abcd", 0.25)
    for asked in story:
        for member, count in asked.items():
            parts.ask(member, {NAME: count})
        for member, dealt in parts.deal("abcd").items():
            have[member] = dealt.get(NAME, 0.25)
        assert sum(have.values()) == pytest.approx(1.0)


def test_parts_are_equal_again_when_nobody_asks() -> None:
    """What is not named is shared equally, and who has gone is forgotten."""
    parts: Parts[str] = Parts()
    settled(parts, {"a": 10, "b": 1})
    last = [parts.deal(["a", "b"]) for _ in range(30)]
    assert next(dealt for dealt in reversed(last) if dealt) == {"a": {}, "b": {}}
    settled(parts, {"a": 10, "b": 10})
    assert set(parts.deal(["b"])) == {"b"}


def test_budgets_that_are_told_apart_are_bounded() -> None:
    """Of more keys than that each process has its equal part."""
    parts: Parts[str] = Parts()
    parts.ask("a", {name_of("s", number.to_bytes(4, "big")): 1 for number in range(MOST_BUDGETS + 5)})
    assert len(parts.deal(["a", "b"])["a"]) == MOST_BUDGETS
