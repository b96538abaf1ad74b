"""How many lists and objects a body may hold that is no rectangle of numbers."""

import pytest

from adapters._tensorjson import check_lists
from gateway.errors import BodyTooLarge


@pytest.mark.parametrize(
    ("elements", "most"), [(16 << 20, 1 << 20), (1 << 20, 1 << 16), (1 << 18, 1 << 16), (400, 100)]
)
@pytest.mark.parametrize("piece", [b"[],", b"{},"])
def test_lists_are_bounded_below_values(elements: int, most: int, piece: bytes) -> None:
    """A sixteenth of the values, or 65,536 if that is more, and at most a quarter."""
    check_lists(piece * most, elements)
    with pytest.raises(BodyTooLarge, match=f"more than {most} lists and objects"):
        check_lists(piece * (most + 1), elements)
