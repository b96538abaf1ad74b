"""What browser tests share: one Chromium, and one gateway on the demo's models with a control plane."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from controlled import Platform
from live import gateway, put_echo
from visits import Chromium, Visit, visit

MODELS = Path(__file__).resolve().parents[2] / "configs" / "models"
DATA = Path(__file__).resolve().parents[1] / "data" / "console"
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


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The demo's models under a control plane, shared by all browser tests: each names its services after itself."""
    folder = tmp_path_factory.mktemp("platform")
    shutil.copytree(MODELS, folder / "models")
    for name in ("finder", "talker"):
        shutil.copytree(DATA / name, folder / "models" / name)
    put_echo(folder / "models", "exact", '[echo.inputs]\nx = { dtype = "int64", shape = [-1, 2] }\n')
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


@pytest.fixture
def signed_in(platform: Platform, browse: Callable[..., Visit]) -> Callable[..., Visit]:
    """As `browse`, in a browser in which the administrator has signed in to the console."""

    def begin(**options: Any) -> Visit:
        one = browse(**options)
        one.context.add_cookies(platform.cookies)  # type: ignore[arg-type]
        return one

    return begin


@pytest.fixture
def try_out(platform: Platform, signed_in: Callable[..., Visit]) -> Callable[..., Visit]:
    """Opens the online test of a service, which is made with those fields if it is not there yet."""

    def open_page(name: str, options: dict[str, Any] | None = None, **fields: Any) -> Visit:
        platform.have(name, **fields)
        one = signed_in(**(options or {}))
        one.go(f"/console/services/{name}/test")
        return one

    return open_page
