"""How a process came to its end, in words for a log line or an error."""

import contextlib
import signal


def ending(code: int | None) -> str:
    """What the exit code says, as the rest of a sentence."""
    if code is None:
        return "did not end"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
