"""What is known of one request."""

from gateway.trace import RequestIds


def test_request_ids_differ_between_requests_and_processes() -> None:
    """A counter behind a random prefix."""
    one, other = RequestIds(), RequestIds()
    assert len({one(), one(), other(), other()}) == 4
