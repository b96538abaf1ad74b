"""What v2 says of paths that other servers have."""

import json

import pytest

from adapters.v2 import Config, create
from gateway.errors import GatewayError, MethodNotAllowed, ModelNotFound, RouteNotFound
from gateway.interfaces import DecodeLimits
from gateway.types import Call


@pytest.mark.parametrize(
    ("path", "error", "text"),
    [
        ("/v2/models/m:infer", MethodNotAllowed("no", ["GET"]), "POST /v2/models/m/infer"),
        ("/services/s/v2/models/m/versions/2:infer", RouteNotFound("no"), "POST /v2/models/m/versions/2/infer"),
        ("/v2/models/m/config", RouteNotFound("no"), "configuration is not offered here; GET /v2/models/NAME"),
        ("/v2/models/m/versions/2/stats", RouteNotFound("no"), "statistics are not offered here; GET /metrics"),
        ("/v2/models/stats", ModelNotFound("no service", "stats"), "statistics are not offered here; GET /metrics"),
    ],
)
def test_paths_of_other_servers(path: str, error: GatewayError, text: str) -> None:
    """Who asks for what other servers have learns what there is here, and that it is no fault of the method."""
    reply = create(Config(), DecodeLimits()).encode_error(error, Call("POST", path))
    assert isinstance(reply.body, bytes)
    assert (reply.status, reply.headers) == (404, ())
    assert text in json.loads(reply.body)["error"]
