"""What a version costs, and how sizes are written."""

import pytest

from gateway.config import bytes_of
from gateway.modelcost import Claim, cost_of, written

MIB = 1 << 20


@pytest.mark.parametrize(
    ("files", "declared", "grown", "elsewhere", "cost"),
    [
        (10, 0, 30, 0, 30),
        (40, 0, 30, 0, 40),
        (40, 20, 30, 50, 20),
        (40, 0, 30, 50, 80),
        (1, 0, -5, 0, 1),
        (1, 0, 500, 0, 24),
    ],
    ids=["growth", "files", "declared", "workers", "shrunk meanwhile", "noise"],
)
def test_cost(files: int, declared: int, grown: int, elsewhere: int, cost: int) -> None:
    """What model.toml says, else the more of files and growth; growth is believed up to a bound."""
    assert cost_of(Claim("a", 1, files * MIB, declared * MIB), grown * MIB, elsewhere * MIB) == cost * MIB


@pytest.mark.parametrize(
    ("text", "size"),
    [(0, 0), ("12B", 12), ("4GiB", 4 << 30), ("1.5 MiB", 3 << 19), ("2 MB", 2_000_000), ("1KB", 1000)],
)
def test_sizes(text: int | str, size: int) -> None:
    """A size is a number of bytes, or a text with a unit, decimal or binary."""
    assert bytes_of(text) == size


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 * MIB, "5 MiB"), (3 << 30, "3 GiB")]
)
def test_written(size: int, text: str) -> None:
    """People read a size in its largest unit."""
    assert written(size) == text
