"""What a loaded version takes of the memory, as far as its files, its load and its model.toml tell."""

from msgspec import Struct

_NOISE_BYTES = 16 << 20
_NOISE_FACTOR = 8
"""Growth beyond so much more than the files is taken for that of the requests that ran meanwhile."""
FIRST_BYTES = 32 << 20
"""Of the growth by the first load of a backend, what its libraries have taken for good."""


class Claim(Struct, frozen=True):
    """What is known of a version before it is loaded."""

    model: str
    version: int
    file_bytes: int = 0
    declared_bytes: int = 0
    """By model.toml; 0 to measure."""
    pinned: bool = False
    kind: str = ""
    """The backend's name."""

    @property
    def label(self) -> str:
        return f"{self.model} version {self.version}"


def cost_of(claim: Claim, grown: int, elsewhere: int) -> int:
    """What model.toml says; else the more of its files and of what this process and its workers hold for it."""
    most = _NOISE_FACTOR * claim.file_bytes + _NOISE_BYTES
    return claim.declared_bytes or max(claim.file_bytes, min(max(grown, 0), most) + elsewhere)


def written(size: int) -> str:
    """Bytes for people: `1.5 GiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"
