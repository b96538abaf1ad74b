"""One live gateway with services of every kind."""

from collections.abc import Iterator

import pytest
from live import LiveGateway, gateway, put_echo

CONFIG = """
models_dir = "models"
default_service = "alpha"

[gateway]
hosts = "{service}.example.com"

[services.alpha]
model = "one"
aliases = ["org/alpha:latest", "first"]

[services.beta]
model = "two"
app_auth = true
app_codes = ["beta-code"]

[services.gamma]
model = "two"
app_auth = true
app_codes = ["gamma-code"]

[services.talker]
model = "one"
type = "openai"
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """alpha -> one (default), beta and gamma -> two (keys), talker -> one (openai only), and the model three itself."""
    folder = tmp_path_factory.mktemp("addressing")
    for number, name in enumerate(("one", "two", "three"), 1):
        # The output's name tells which model answered: it shows where there are two outputs.
        put_echo(folder / "models", name, f'[echo]\nsuffix = "_{number}"\n[echo.inputs.a]\n[echo.inputs.b]\n')
    (folder / "gateway.toml").write_text(CONFIG)
    with gateway(folder / "gateway.toml") as running:
        yield running
