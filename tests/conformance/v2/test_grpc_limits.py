"""The limits hold for gRPC as they do for HTTP, and are told by its codes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.v2.conftest import free_port
from conformance.v2.stub import Stub, connect, request
from live import LiveGateway, gateway, put_echo

CONFIG = """
models_dir = "models"
[gateway]
protocols = ["v2"]
grpc_port = {grpc}
[limits]
output_bytes = 65536
[services.slow.limits]
concurrency = 1
queue = 0
[services.rated.limits]
rows_per_second = 4
[services.hasty.limits]
deadline_ms = 60
"""
ONE = ("x", "FP32", [1], [1.5])


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[LiveGateway]:
    base: Path = tmp_path_factory.mktemp("limited")
    put_echo(base / "models", "rated")
    put_echo(base / "models", "slow", "[echo]\ndelay_ms = 500\n")
    put_echo(base / "models", "hasty", "[echo]\ndelay_ms = 60000\n")
    (base / "config.toml").write_text(CONFIG.format(grpc=port))
    with gateway(base / "config.toml") as running:
        yield running


@pytest.fixture(scope="module")
def stub(live: LiveGateway, port: int) -> Iterator[Stub]:
    with connect(port) as stub:
        yield stub


def test_a_full_service_is_unavailable(stub: Stub, live: LiveGateway) -> None:
    """The second call is told at once, the first one is answered."""
    first = stub.later("ModelInfer", request("slow", ONE))
    live.wait_for_metric("tensorgate_requests_running", 1, service="slow")
    code, text = stub.refused("ModelInfer", request("slow", ONE))
    assert (code, first.done()) == ("UNAVAILABLE", False)
    assert "no room for more requests" in text
    assert first.result(timeout=20).outputs[0].shape == [1]
    live.wait_for_metric("tensorgate_requests_running", 0, service="slow")


def test_rows_are_counted(stub: Stub) -> None:
    """Four rows a second: the fifth is over the limit."""
    four = ("x", "FP32", [4], [1.5, 2.5, 3.5, 4.5])
    assert stub("ModelInfer", request("rated", four)).outputs[0].shape == [4]
    code, text = stub.refused("ModelInfer", request("rated", four))
    assert code == "RESOURCE_EXHAUSTED"
    assert "4 rows a second" in text


@pytest.mark.parametrize("metadata", [(), (("x-tensorgate-deadline-ms", "30"),)])
def test_deadlines_of_ours_end_a_call(stub: Stub, metadata: tuple[tuple[str, str], ...]) -> None:
    """The service's own, or the header's, where the call itself has none."""
    assert stub.refused("ModelInfer", request("hasty", ONE), metadata=metadata)[0] == "DEADLINE_EXCEEDED"


def test_a_message_that_takes_long_is_read_beside_the_others(stub: Stub) -> None:
    """Typed contents and texts of any size are answered as the short ones are."""
    values = [float(number) for number in range(12_000)]
    answer = stub("ModelInfer", request("slow", ("x", "FP32", [12_000], values)))
    assert answer.outputs[0].shape == [12_000]
