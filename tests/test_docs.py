"""The documentation against the code: every key, metric and option is there, and every curl line does what it says."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from admin import Admin
from live import LiveGateway, gateway

from gateway import config, interfaces, plugins, residency, residencymetrics
from gateway.accesslog import AccessLine
from gateway.batching import metrics as batchmetrics
from gateway.bounds import Bounds
from gateway.cli import main
from gateway.interfaces import SignatureConfig
from gateway.observe import Observer
from gateway.payloadlog import PayloadLog
from gateway.recorders import Recorders
from gateway.residency import ModelMemory
from gateway.types import ResponseForm

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "configs" / "models" / "README.md"]
TEXT = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in PAGES}

TABLES: dict[str, type[msgspec.Struct]] = {
    "Top level": config.Config,
    "`[gateway]`": config.GatewayConfig,
    "`[limits]`": config.LimitsConfig,
    "`[services.NAME.limits]`": config.ServiceLimitsConfig,
    "`[limits.memory]`": config.MemoryConfig,
    "`limits.key`": config.KeyLimitsConfig,
    "`[payload_log]`": config.PayloadLogConfig,
    "`[telemetry]`": config.TelemetryConfig,
    "`[results]`": config.ResultsConfig,
    "`[models_control]`": config.ModelsControlConfig,
    "`[services.NAME]`": config.ServiceConfig,
    "`[services.NAME.node]`": config.NodeConfig,
    "`[services.NAME.scaling]`": config.ScalingConfig,
    "Keys": config.Secret,
    "Signatures": config.AwsCredential,
    "`[[services.NAME.keys]]`": config.KeyConfig,
    "`[services.NAME.canary]`": config.CanaryConfig,
    "`[services.NAME.canary.shadow]`": config.ShadowConfig,
    "`[services.NAME.canary.analysis]`": config.AnalysisConfig,
    "`model.toml`": config.ModelConfig,
    "`[signatures.NAME]`": SignatureConfig,
    "`[response]`": ResponseForm,
}
"""Heading in docs/configuration.md -> the Struct whose keys stand in the table below it."""

NOT_KEYS = {"plugins"}
"""Fields that hold other tables, not keys of their own."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$\n*(?:^```(json|text)\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
DEMO_URL = "http://127.0.0.1:8080"
REMOTE_URL = "http://127.0.0.1:8090"
"""Where configs/remote.toml is served, whose models are the demo's."""
ADMIN_URL = "http://127.0.0.1:8081"
CONTROLLED = re.compile(rf"{ADMIN_URL}|^tensorgate (?!serve|check|bench|replay)", re.MULTILINE)
"""What is for the control plane of configs/platform.toml."""


# Tables...


def _section(page: str, heading: str) -> str:
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", TEXT[page], re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {heading!r}"
    return found[1]


def _rows(section: str) -> list[list[str]]:
    """The cells of the section's tables, heads left out."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = [number for number, row in enumerate(cells) if set(row[0]) <= {"-", ":"}]
    return [row for number, row in enumerate(cells) if number not in rules and number + 1 not in rules]


def _default(kind: type[msgspec.Struct], name: str) -> Any:
    """The field's default, as it would stand in TOML."""
    field = next(one for one in msgspec.structs.fields(kind) if one.name == name)
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return msgspec.json.decode(msgspec.json.encode(default))


@pytest.mark.parametrize("heading", TABLES)
def test_keys_are_documented(heading: str) -> None:
    """docs/configuration.md lists exactly the keys that there are."""
    documented = [row[0].strip("`") for row in _rows(_section("docs/configuration.md", heading))]
    assert sorted(documented) == sorted(set(TABLES[heading].__struct_fields__) - NOT_KEYS)


@pytest.mark.parametrize("heading", TABLES)
def test_defaults_are_documented(heading: str) -> None:
    """The default that docs/configuration.md gives for a key is the one in the code."""
    for name, shown, _ in _rows(_section("docs/configuration.md", heading)):
        if shown.startswith("`"):
            assert tomllib.loads(f"x = {shown.strip('`')}")["x"] == _default(TABLES[heading], name.strip("`")), name


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("adapters", "backends") for name in plugins.names(kind)]
)
def test_plugin_keys_are_documented(kind: plugins.Kind, name: str) -> None:
    """The keys of a plugin's own table stand on the protocol's page, or on the models' page."""
    page = f"docs/protocols/{name}.md" if kind == "adapters" else "docs/models.md"
    module = plugins.load(kind, name, "Config")
    missing = [key for key in module.Config.__struct_fields__ if not re.search(rf"`{key}`|\b{key} = ", TEXT[page])]
    assert not missing


def test_operations_are_documented() -> None:
    """docs/writing-an-adapter.md has a row for each kind of operation that the gateway knows."""
    rows = _rows(_section("docs/writing-an-adapter.md", "Operations"))
    kinds = [kind.__name__ for kind in vars(interfaces).values() if _is_operation(kind)]
    assert sorted(row[0].strip("`") for row in rows) == sorted(kinds)


def _is_operation(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, interfaces.Operation) and kind is not interfaces.Operation


def _observer() -> Observer:
    memory = ModelMemory(residency.Bounds())
    batching, kept = lambda: batchmetrics.collect([]), lambda: residencymetrics.collect(memory)
    observer = Observer(tuple, Bounds(config.Config()).collect, kept, batching)
    observer.recorders = Recorders(PayloadLog(config.PayloadLogConfig(), ROOT))
    return observer


def test_metrics_are_documented() -> None:
    """docs/operations.md names every metric of ours, as it is scraped."""
    names = {f"{metric.name}_total" if metric.type == "counter" else metric.name for metric in _observer().collect()}
    assert {row[0].strip("`") for row in _rows(_section("docs/operations.md", "Metrics"))} == names


def test_log_fields_are_documented() -> None:
    """docs/operations.md names every field of the access log."""
    named = {name for row in _rows(_section("docs/operations.md", "Logs")) for name in re.findall(r"`(\w+)`", row[0])}
    assert named == set(AccessLine.__struct_fields__)


@pytest.mark.parametrize("command", ["serve", "check", "routes", "models", "replay"])
def test_command_line_is_documented(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/configuration.md shows every option of every command."""
    with pytest.raises(SystemExit):
        main([command, "--help"])
    options = set(re.findall(r"--[a-z]+", capsys.readouterr().out)) - {"--help"}
    row = next(
        row
        for row in _rows(_section("docs/configuration.md", "Command line"))
        if row[0].startswith(f"`tensorgate {command} ")
    )
    assert set(re.findall(r"--[a-z]+", row[0])) == options


def test_commands_are_all_tested_above(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/configuration.md has a row for every command that the program offers."""
    with pytest.raises(SystemExit):
        main(["--help"])
    offered = set(re.findall(r"^    (\w+)(?: |$)", capsys.readouterr().out, re.MULTILINE))
    rows = _rows(_section("docs/configuration.md", "Command line"))
    assert {found[1] for row in rows if (found := re.match(r"`tensorgate (\w+)", row[0]))} == offered


# Links...


@pytest.mark.parametrize("page", TEXT)
def test_links_lead_somewhere(page: str) -> None:
    """A relative link names a file of the repository, and a heading of it where it names one."""
    for link in re.findall(r"\]\(([^)\s]+)\)", TEXT[page]):
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), link
        if anchor:
            assert anchor in map(_anchor, re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE)), link


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_index_lists_every_page() -> None:
    """docs/index.md leads to every page but the changelog's fragments."""
    pages = {page.removeprefix("docs/") for page in TEXT if page.startswith("docs/")}
    linked = set(re.findall(r"\]\(([^)#]+)\)", TEXT["docs/index.md"]))
    assert {page for page in pages if not page.startswith("changes/")} - {"index.md"} <= linked


# Commands...


def _commands() -> Iterator[tuple[str, str, str, str]]:
    """(page, script, form of the answer, answer) of every bash block that calls the demo, or what stands before it."""
    for page, text in TEXT.items():
        for language, script, form, answer in FENCE.findall(text):
            if language == "bash" and (DEMO_URL in script or REMOTE_URL in script or CONTROLLED.search(script)):
                yield page, script, form, answer


COMMANDS = list(_commands())


@pytest.fixture(scope="module")
def demo() -> Iterator[LiveGateway]:
    """The gateway as scripts/demo starts it."""
    with gateway(ROOT / "configs" / "demo.toml", "--device", "cpu") as live:
        live.wait_until("/readyz", 200)
        yield live


@pytest.fixture(scope="module")
def remote(demo: LiveGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """configs/remote.toml, in front of this demo."""
    base = tmp_path_factory.mktemp("remote")
    shutil.copytree(ROOT / "configs" / "remote", base / "remote")
    shutil.copy(ROOT / "configs" / "remote.toml", base)
    for file in (base / "remote").rglob("*.toml"):
        file.write_text(file.read_text("utf-8").replace(DEMO_URL, demo.url), "utf-8")
    with gateway(base / "remote.toml") as live:
        live.wait_until("/readyz", 200)
        yield live


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveGateway, Admin]]:
    """configs/platform.toml, with a folder for its data elsewhere."""
    base = tmp_path_factory.mktemp("platform")
    (base / "configs").mkdir()
    (base / "configs" / "models").symlink_to(ROOT / "configs" / "models")
    text = (ROOT / "configs" / "platform.toml").read_text("utf-8")
    (base / "configs" / "platform.toml").write_text(text.replace("admin_port = 8081", "admin_port = 0"))
    with gateway(base / "configs" / "platform.toml", "--device", "cpu") as live:
        admin = Admin(live)
        live.wait_until("/readyz", 200)
        yield live, admin


def test_there_are_commands() -> None:
    """The README's first request is among those that are run below."""
    assert COMMANDS[0][0] == "README.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    ("script", "form", "answer"),
    [command[1:] for command in COMMANDS],
    ids=[f"{page}-{number}" for number, (page, *_) in enumerate(COMMANDS)],
)
def test_command_answers_as_shown(
    request: pytest.FixtureRequest, demo: LiveGateway, script: str, form: str, answer: str
) -> None:
    """A command of the documentation succeeds against the demo, and answers what the page shows below it."""
    if REMOTE_URL in script:
        script = script.replace(REMOTE_URL, request.getfixturevalue("remote").url)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if CONTROLLED.search(script):
        demo, admin = request.getfixturevalue("controlled")
        url = admin.url.removesuffix("/control/v1")
        script = script.replace(ADMIN_URL, url)
        environment |= {"TENSORGATE_ADMIN_URL": url, "TENSORGATE_TOKEN": admin.token}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace(DEMO_URL, demo.url)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    if form == "json":
        assert json.loads(done.stdout) == _near(json.loads(answer))
    elif form == "text":
        assert done.stdout.strip() == answer.strip()
    else:
        assert done.stdout


def _near(value: Any) -> Any:
    """The same value with its fractions to be compared as near enough."""
    if isinstance(value, dict):
        return {key: _near(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_near(item) for item in value]
    return pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value
