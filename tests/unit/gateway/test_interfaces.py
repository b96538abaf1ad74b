"""What every adapter gets for nothing: the target that a path names."""

import pytest

from gateway.errors import ModelNotFound
from gateway.interfaces import from_path
from gateway.types import Call, Target


@pytest.mark.parametrize(
    ("params", "target"),
    [
        ({}, Target()),
        ({"model": "a%2Fb%3Ac"}, Target("a/b:c")),
        ({"model": "m", "version": "3"}, Target("m", 3)),
        ({"version": "0007"}, Target(None, 7)),
        ({"version": "0"}, Target(None, 0)),
        ({"version": "0" * 100 + "1"}, Target(None, 1)),
        ({"version": "9223372036854775807"}, Target(None, 9223372036854775807)),
        ({"label": "a%20b"}, Target(None, None, "a b")),
    ],
)
def test_a_path_names_its_target(params: dict[str, str], target: Target) -> None:
    """Names are percent-decoded, and versions are numbers."""
    assert target == from_path(Call("GET", "/", params))


@pytest.mark.parametrize(
    "version", ["9223372036854775808", "9" * 19, "9" * 5000, "latest", "-1", "1.0", "٣", "%31", " 1"]
)
def test_what_is_no_version_is_not_found(version: str) -> None:
    """Whatever a client writes in a version's place is its own mistake, and told in a short text."""
    with pytest.raises(ModelNotFound, match="is no version: expected a whole number") as caught:
        from_path(Call("GET", "/", {"version": version}))
    assert len(str(caught.value)) < 120
