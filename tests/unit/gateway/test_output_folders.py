"""Where models may write: a folder under the version of the service that names them."""

from pathlib import Path

import msgspec
import pytest

from gateway.config import Config
from gateway.server import output_of

TABLES = {
    "output_dir": "out",
    "services": {"shop": {"model": "m", "version": "2.1.0"}, "late": {"model": "m"}, "own": {"version": "3.0.0"}},
}


@pytest.mark.parametrize(("model", "folder"), [("m", "2.1.0/m"), ("own", "3.0.0/own"), ("other", "1.0.0/other")])
def test_output_lies_under_the_services_version(model: str, folder: str) -> None:
    """The first service that names the model says the version; a model that none names has the default."""
    config = msgspec.convert(TABLES, Config)
    assert output_of(model, config, Path("/base")) == Path("/base/out") / folder


def test_without_a_folder_there_is_none() -> None:
    """Nobody writes where nobody has said where."""
    assert output_of("m", Config(), Path("/base")) is None
