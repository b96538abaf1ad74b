"""A service with settings of its own for a protocol."""

from pathlib import Path

import httpx
import pytest
from live import gateway, put_echo

from gateway.cli import main

CONFIG = """
models_dir = "models"

[protocols.tfserving]
non_finite = "null"

[services.plain]
model = "echo"

[services.named]
model = "echo"
[services.named.protocols.tfserving]
named_outputs = true
"""


def test_a_services_tables_lie_over_the_protocols_own(tmp_path: Path) -> None:
    """What the service says counts for its calls, whatever names it; what it does not say stays as it is for all."""
    put_echo(tmp_path / "models", "echo")
    (tmp_path / "gateway.toml").write_text(CONFIG)
    with gateway(tmp_path / "gateway.toml") as live:

        def predict(path: str) -> str:
            return httpx.post(f"{live.url}{path}", content='{"inputs": [NaN]}').text

        assert predict("/v1/models/plain:predict") == '{"outputs":[null]}'
        assert predict("/v1/models/named:predict") == '{"outputs":{"x":[null]}}'
        assert predict("/services/named/v1/models:predict") == '{"outputs":{"x":[null]}}'


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[services.a.protocols.nothing]", "services.a.protocols.nothing: this protocol is not on"),
        ("[services.a.protocols.tfserving]\nx = 1", "services.a.protocols.tfserving: "),
    ],
)
def test_settings_that_no_protocol_has_are_refused(
    tmp_path: Path, table: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At start, and by `check`, with the key."""
    put_echo(tmp_path / "models", "a")
    (tmp_path / "gateway.toml").write_text(f'models_dir = "models"\n{table}\n')
    assert main(["check", str(tmp_path / "gateway.toml")]) == 1
    assert message in capsys.readouterr().err
