"""Which model and version names mean, in a path as in a message."""

from urllib.parse import unquote

from gateway.interfaces import version_number
from gateway.types import Call, Target


def from_path(call: Call) -> Target:
    """The target that the path's `{model}` and `{version}` name."""
    model, version = call.params.get("model"), call.params.get("version")
    return target_of(unquote(model) if model else "", unquote(version) if version else "")


def target_of(model: str, version: str) -> Target:
    """The target that names mean; what is no number is a version's label."""
    if not version:
        return Target(model or None)
    if not (version.isascii() and version.isdecimal()):
        return Target(model or None, label=version)
    return Target(model or None, version=version_number(version))
