"""What browser tests share: one Chromium, and one gateway on the demo's models with a control plane."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from admin import Admin
from live import LiveGateway, gateway
from visits import Chromium, Visit, visit

MODELS = Path(__file__).resolve().parents[2] / "configs" / "models"
CONFIG = """
models_dir = "models"
[gateway]
data_dir = "data"
admin_port = 0
device = "cpu"
"""
CHROMIUM = Chromium()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Behind the last test of this folder the browser goes."""
    yield
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        CHROMIUM.stop()


class Platform:
    """A gateway with a control plane, and its first administrator."""

    def __init__(self, live: LiveGateway) -> None:
        self.live = live
        self.admin = Admin(live)
        """Calls the control API."""
        self.url = self.admin.url.removesuffix("/control/v1")
        """The admin listener."""

    def metric(self, name: str) -> float:
        """What the samples of that name add up to on the admin listener."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The demo's models under a control plane, shared by all browser tests: each names its services after itself."""
    folder = tmp_path_factory.mktemp("platform")
    shutil.copytree(MODELS, folder / "models")
    (folder / "gateway.toml").write_text(CONFIG)
    with gateway(folder / "gateway.toml") as live:
        yield Platform(live)


@pytest.fixture
def browse(platform: Platform) -> Iterator[Callable[..., Visit]]:
    """Begins visits to the admin listener; options are Playwright's for a context, such as `viewport` and `locale`."""
    with ExitStack() as visits:

        def begin(**options: Any) -> Visit:
            return visits.enter_context(visit(CHROMIUM.browser(), platform.url, **options))

        yield begin
