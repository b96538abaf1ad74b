"""Configuration files and their errors."""

from pathlib import Path

import pytest

from gateway import config
from gateway.config import ConfigError, ServiceConfig


def write(folder: Path, text: str, name: str = "demo.toml") -> Path:
    """A file with that text."""
    path = folder / name
    path.write_text(text)
    return path


def test_every_table_has_defaults(tmp_path: Path) -> None:
    """An empty file is a configuration."""
    assert config.Config() == config.load(write(tmp_path, ""))


def test_a_service_is_read_with_its_fields(tmp_path: Path) -> None:
    """Tables become frozen structs."""
    text = """
        [services.digits]
        model = "mnist"
        type = "tfserving"
        app_auth = true
        app_codes = ["c"]
        aliases = ["a/b:c"]
    """
    expected = ServiceConfig(model="mnist", type="tfserving", app_auth=True, app_codes=("c",), aliases=("a/b:c",))
    assert {"digits": expected} == config.load(write(tmp_path, text)).services


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[gateway]\nport = 70000", "demo.toml: gateway.port: Expected `int` <= 65535"),
        ("[gateway]\nprot = 1", "demo.toml: gateway: Object contains unknown field `prot`"),
        ("[services.iris]\ntype = 'x'", "demo.toml: services.iris.type: Invalid enum value 'x'"),
        ("[services.'a/b']\n", "demo.toml: services: Expected letters, digits, '.', '_' and '-', at most 128,"),
        ('[services."iris\\n"]', "demo.toml: services: Expected letters, digits, '.', '_' and '-', at most 128,"),
        ("services = 3", "demo.toml: services: Expected `object`, got `int`"),
        ("[services.a]\n[services.b]\nmodel = 3", "demo.toml: services.b.model: Expected `str`, got `int`"),
        ("[limits]\nbody_bytes = 0", "demo.toml: limits.body_bytes: Expected `int` >= 1"),
        ("[services.a]\nversion = '1.0'", 'demo.toml: services.a.version: Expected three numbers, such as "1.0.0"'),
        ("[services.a]\nduration = 'forever'", 'demo.toml: services.a.duration: Expected a duration such as "90s"'),
        ("[services.a]\naliases = ['']", "demo.toml: services.a.aliases[0]: "),
        ("a = ", "demo.toml: not TOML: "),
    ],
)
def test_an_error_names_file_and_key(tmp_path: Path, text: str, where: str) -> None:
    """So that it can be mended without guessing."""
    with pytest.raises(ConfigError) as caught:
        config.load(write(tmp_path, text))
    assert str(caught.value).startswith(where), str(caught.value)


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    """Not a traceback."""
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
        config.load(tmp_path / "absent.toml")


def test_model_toml_keeps_plugin_tables_apart(tmp_path: Path) -> None:
    """The core's keys are converted, other tables are left to their plugins, in order."""
    path = write(tmp_path, 'versions = "all"\n[image]\nlayout = "nchw"\n[echo]\nsuffix = "_out"', "model.toml")
    loaded = config.load_model(path)
    assert loaded.versions == "all"
    assert list(loaded.plugins) == ["image", "echo"]


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    path = tmp_path / "model.toml"
    path.write_bytes(b'\xef\xbb\xbfbackend = "echo"')
    assert config.load_model(path).backend == "echo"


def test_a_missing_model_toml_means_defaults(tmp_path: Path) -> None:
    """It is optional."""
    assert config.ModelConfig() == config.load_model(tmp_path / "model.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "version = 'latest'",
            "version: unknown key; expected one of backend, versions, labels, placement, memory, pinned, "
            "signatures, response, batching or a table",
        ),
        ("versions = []", "versions: Expected `array` of length >= 1"),
        ("versions = ", "not TOML: "),
        ("versions = [0]", "versions[0]: Expected `int` >= 1"),
        ("[labels]\nstable = 'x'", "labels.stable: Expected `int`"),
        ("[signatures.s]\nmethod = 'x'", "signatures.s.method: Invalid enum value 'x'"),
    ],
)
def test_a_model_error_names_folder_and_key(tmp_path: Path, text: str, expected: str) -> None:
    """The folder's name tells which of many model.toml files is meant."""
    with pytest.raises(ConfigError) as caught:
        config.load_model(write(tmp_path, text, "model.toml"))
    assert f"{tmp_path.name}/model.toml: {expected}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("", []), ("models_dir = 'm'", ["m"]), ("models_dir = ['a', '/b']", ["a", "/b"])]
)
def test_models_folders_are_relative_to_the_file(tmp_path: Path, text: str, expected: list[str]) -> None:
    """Wherever the command is started."""
    path = write(tmp_path, text)
    assert tuple(tmp_path / name for name in expected) == config.models_dirs(config.load(path), path)
