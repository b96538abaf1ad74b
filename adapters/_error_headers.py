"""What HTTP asks for beside the status of an error, the same in every protocol."""

from math import ceil

from gateway.errors import CapacityError, GatewayError, MethodNotAllowed, Unauthenticated

Headers = tuple[tuple[str, str], ...]

CHALLENGE = 'APPCODE realm="tensorgate", Bearer realm="tensorgate"'


def error_headers(error: GatewayError) -> Headers:
    """`Allow`, `WWW-Authenticate` or `Retry-After`, where the error calls for it and knows enough."""
    if isinstance(error, MethodNotAllowed) and error.allowed:
        return (("Allow", ", ".join(error.allowed)),)
    if isinstance(error, Unauthenticated):
        return (("WWW-Authenticate", CHALLENGE),)
    if isinstance(error, CapacityError) and error.retry_after is not None:
        return (("Retry-After", str(max(1, ceil(error.retry_after)))),)
    return ()
