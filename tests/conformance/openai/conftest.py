"""One gateway with only this protocol on, and a language model and an embedding model behind keys."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.openai import models
from live import LiveGateway, gateway

CONFIG = """
models_dir = {models}
[gateway]
protocols = ["openai"]
device = "cpu"
[services.chatter]
model = "tinychat"
app_auth = true
app_codes = ["opensesame"]
[services.vectors]
model = "embedder"
aliases = ["org/embedder:int8"]
app_auth = true
app_codes = ["opensesame"]
"""


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    base: Path = tmp_path_factory.mktemp("openai")
    models.write(base / "models")
    (base / "config.toml").write_text(CONFIG.format(models=json.dumps(str(base / "models"))), "utf-8")
    with gateway(base / "config.toml") as running:
        running.wait_until("/readyz", 200)
        yield running
