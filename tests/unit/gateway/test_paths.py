"""The route table: which operation a path means."""

import re

import pytest

from gateway import config, protocols
from gateway.errors import GatewayError, MethodNotAllowed, RouteNotFound
from gateway.interfaces import Answer, Operation, Status
from gateway.paths import PathTable, split_prefix, unclaimed
from gateway.types import Call, Reply


class Fake:
    """An adapter of answers only."""

    ignores_unknown_codings = False

    def __init__(self, *paths: tuple[str, str], claim: int = 0, pattern: str | None = None) -> None:
        self._paths = paths
        self._claim = claim
        self._pattern = re.compile(pattern) if pattern else None

    def routes(self) -> list[Operation]:
        return [
            Answer(method=method, path=path, pattern=self._pattern, reply=lambda call: Reply(b""))
            for method, path in self._paths
        ]

    def claims(self, call: Call) -> int:
        return self._claim if call.raw_path.startswith("/v1/") else 0

    def encode_error(self, error: GatewayError, call: Call) -> Reply:
        return Reply(str(error).encode(), 400)


@pytest.mark.parametrize(
    ("raw_path", "expected"),
    [
        ("/v1/models/a:predict", (None, "/v1/models/a:predict")),
        ("/services/a/v1/models:predict", ("a", "/v1/models:predict")),
        ("/services/a%20b/x", ("a b", "/x")),
        ("/seldon/prod/a/api/v1.0/predictions", ("a", "/api/v1.0/predictions")),
        ("/seldon/a/api/v1.0/predictions", ("a", "/api/v1.0/predictions")),
        ("/seldon/prod/api/api/v0.1/predictions", ("api", "/api/v0.1/predictions")),
        ("/services/a", (None, "/services/a")),
        ("/services//x", (None, "/services//x")),
        ("/Services/a/x", (None, "/Services/a/x")),
    ],
)
def test_a_prefix_names_the_service(raw_path: str, expected: tuple[str | None, str]) -> None:
    """/services/NAME and /seldon/NAMESPACE/NAME are cut off; nothing else is."""
    assert expected == split_prefix(raw_path)


def test_a_template_captures_its_fields() -> None:
    """A field takes anything but a slash and a colon, and stays percent-encoded."""
    table = PathTable({"fake": Fake(("POST", "/m/{model}:predict"))})
    route = table.find(Call("POST", "/services/s/m/a%2Fb:predict"))
    assert route.params == {"model": "a%2Fb"}
    assert route.service == "s"
    assert route.path == "/m/a%2Fb:predict"
    assert route.name == "predict"


def test_the_longest_pattern_wins_whatever_the_order() -> None:
    """The path with the most literal characters is the one meant."""
    short, long = Fake(("GET", "/v1/{a}/{b}")), Fake(("GET", "/v1/models/{b}"))
    for adapters in ({"x": short, "y": long}, {"y": long, "x": short}):
        assert PathTable(adapters).find(Call("GET", "/v1/models/m")).protocol == "y"


def test_among_equal_patterns_the_first_protocol_wins() -> None:
    """Configuration order decides a tie."""
    one, two = Fake(("GET", "/v1/{a}")), Fake(("GET", "/v1/{b}"))
    assert PathTable({"one": one, "two": two}).find(Call("GET", "/v1/m")).protocol == "one"


def test_a_wrong_method_names_the_right_ones() -> None:
    """A path that exists with other methods is not reported as missing."""
    table = PathTable({"fake": Fake(("POST", "/x"), ("PUT", "/x"))})
    with pytest.raises(MethodNotAllowed, match="the method must be POST or PUT") as caught:
        table.find(Call("GET", "/x"))
    assert caught.value.allowed == ("POST", "PUT")


def test_a_preflight_makes_no_path() -> None:
    """What only answers OPTIONS is not there."""
    table = PathTable({"fake": Fake(("OPTIONS", "/x"))})
    with pytest.raises(RouteNotFound):
        table.find(Call("GET", "/x"))


def test_an_unknown_path_is_cut_short_in_the_error() -> None:
    """A path of any length makes a short message."""
    with pytest.raises(RouteNotFound) as caught:
        PathTable({}).find(Call("GET", "/" + "x" * 100_000))
    assert len(str(caught.value)) < 400


def test_the_surest_claim_answers_what_nobody_serves() -> None:
    """An unmatched path is told in the dialect of the adapter that claims it most."""
    table = PathTable({"unsure": Fake(claim=1), "sure": Fake(claim=2)})
    claimant = table.claimant(Call("GET", "/services/s/v1/nothing"))
    assert claimant is not None
    assert claimant[0] == "sure"
    assert table.claimant(Call("GET", "/elsewhere")) is None


def test_the_cache_of_paths_is_bounded() -> None:
    """Made-up names cannot fill the memory."""
    table = PathTable({"fake": Fake(("GET", "/m/{model}"))})
    for number in range(10_000):
        table.find(Call("GET", f"/m/{number}"))
    assert len(table._found) <= 4096


def test_an_own_pattern_replaces_the_template() -> None:
    """Where a protocol's paths are no templates, its regular expression decides."""
    table = PathTable({"fake": Fake(("GET", "/v1/models"), pattern="(?i:/v1/models)/(?P<model>[^/]+)")})
    assert table.find(Call("GET", "/V1/Models/m")).params == {"model": "m"}


class Telling(Fake):
    """An adapter that tells of models."""

    def routes(self) -> list[Operation]:
        return [Status(method="GET", path="/v1/{model}", encode=lambda status, call, target: Reply(b""))]


@pytest.mark.parametrize(("claim", "speaker"), [(1, "first"), (2, "first"), (3, "second")])
def test_a_model_that_is_missing_is_told_in_the_surest_dialect(claim: int, speaker: str) -> None:
    """Of two protocols on one path, the one that claims a call more surely tells its errors."""
    table = PathTable({"first": Telling(claim=2), "second": Fake(("GET", "/v1/other/x"), claim=claim)})
    call = Call("GET", "/v1/m")
    assert table.speaking(table.find(call), call).protocol == speaker
    answer = Call("GET", "/v1/other/x")
    assert table.speaking(table.find(answer), answer) is table.find(answer)


def test_a_path_of_no_protocol_is_answered_with_those_that_there_are() -> None:
    """Who speaks no protocol is told which are on, each with a path that can be called."""
    table = PathTable(
        protocols.load_adapters(config.Config(gateway=config.GatewayConfig(protocols=("tfserving", "v2"))))
    )
    reply = unclaimed(table.examples())
    assert (reply.status, reply.media_type) == (404, "application/json")
    assert reply.body == (
        b'{"error":"not found: no protocol has this path; there are tfserving: POST /v1/models/{model}:predict; '
        b'v2: POST /v2/models/{model}/infer"}'
    )
