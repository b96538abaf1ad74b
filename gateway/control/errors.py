"""What can be wrong with a call to the control plane; its API gives each a status."""


class ControlError(Exception):
    """The text is for the caller; `field` is what it is about, as a path into the call's body."""

    status = 400

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


class Invalid(ControlError):
    """Well formed, but it cannot be so."""


class NotFound(ControlError):
    """There is no such thing, or none that the caller may see."""

    status = 404


class NotSignedIn(ControlError):
    """No token, or one that is not valid."""

    status = 401


class NotAllowed(ControlError):
    """A valid token, but not for this."""

    status = 403


class Conflict(ControlError):
    """It would be right at another moment: the name is taken, or the state does not allow it."""

    status = 409


class Stale(ControlError):
    """Somebody has changed it since the caller looked."""

    status = 412


class TooLarge(ControlError):
    """The body is longer than it may be."""

    status = 413


class Unreachable(ControlError):
    """What answers calls does not just now."""

    status = 502


class StoreFailed(ControlError):
    """The database does not answer; nothing has been changed."""

    status = 503


class TooOften(ControlError):
    """Wrong so often that it must wait."""

    status = 429

    def __init__(self, text: str, seconds: int) -> None:
        super().__init__(text, "token")
        self.seconds = seconds
