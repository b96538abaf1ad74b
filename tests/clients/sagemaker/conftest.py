"""One gateway for all of the clients, with the demo's models."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import LiveGateway, gateway

MODELS = Path(__file__).resolve().parents[3] / "configs" / "models"

CONFIG = """
models_dir = [{models}, "bare"]
[gateway]
device = "cpu"
[results]
dir = "results"
[results.inputs]
"s3://bucket" = "objects"
[services.iris_kmeans]
[services.signed]
model = "iris_kmeans"
app_auth = true
aws_credentials = [{{ access_key_id = "AKIDEXAMPLE", secret = {{ file = "secret" }} }}]
"""


BARE = """
[signatures.serving_default]
outputs = { scores = "scores" }
[response]
form = "bare"
"""


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway whose service `signed` takes signed calls only."""
    base = tmp_path_factory.mktemp("clients")
    (base / "objects").mkdir()
    (base / "objects" / "row.csv").write_text("5.1,3.5,1.4,0.2\n", "utf-8")
    shutil.copytree(MODELS / "iris_kmeans", base / "bare" / "scores")
    (base / "bare" / "scores" / "model.toml").write_text(BARE, "utf-8")
    (base / "secret").write_text("a well kept secret", "utf-8")
    (base / "config.toml").write_text(CONFIG.format(models=json.dumps(str(MODELS))), "utf-8")
    with gateway(base / "config.toml") as live:
        live.wait_until("/readyz", 200)
        yield live
