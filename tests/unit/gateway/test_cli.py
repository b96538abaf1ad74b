"""The command line: exit codes, messages, help."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import main

ECHO = 'backend = "echo"\n'


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A models folder with one echo."""
    (tmp_path / "models" / "echo").mkdir(parents=True)
    (tmp_path / "models" / "echo" / "model.toml").write_text(ECHO)
    return tmp_path / "models"


def config(models: Path, text: str = "") -> str:
    """A configuration beside the models folder."""
    path = models.parent / "gateway.toml"
    path.write_text(f'models_dir = "models"\n{text}')
    return str(path)


def test_check_accepts_a_good_configuration(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And says what it found."""
    assert main(["check", config(models, '[services.a]\nmodel = "echo"')]) == 0
    assert "ok, 1 models, 1 services" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[services.a]\nmodel = "absent"', "services.a.model: there is no model 'absent'"),
        ("[gateway]\nport = 'x'", "gateway.toml: gateway.port: Expected `int`, got `str`"),
        ("[gateway]\nprotocols = ['nothing']", "no adapter 'nothing'; there are: "),
        ("[protocols.nothing]\nx = 1", "protocols.nothing: this protocol is not on; there are: "),
        ("[protocols.tfserving]\nx = 1", "protocols.tfserving: (top level): Object contains unknown field `x`"),
        ("[services.echo]\napp_auth = true", "services.echo.app_codes: app_auth is on, so at least one code is needed"),
        ("[services.echo]\naliases = ['echo']", "services.echo.aliases: 'echo' is taken"),
        ("[gateway]\nhosts = 'a.example.com'", "gateway.hosts: expected {service} in it"),
        ("default_service = 'absent'", "default_service: there is no service 'absent'"),
    ],
)
def test_check_names_what_is_wrong(models: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 and one line that says where."""
    assert main(["check", config(models, text)]) == 1
    assert message in capsys.readouterr().err


def test_check_tells_of_keys_that_nobody_needs(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who sets keys and forgets to ask for them learns it; it is no error."""
    assert main(["check", config(models, '[services.echo]\napp_codes = ["k"]')]) == 0
    told = "gateway.toml: services.echo: it has keys, but app_auth is not true, so nobody needs them\n"
    assert capsys.readouterr().err == told


def test_check_looks_at_the_models_too(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broken model.toml is found without loading anything."""
    (models / "echo" / "model.toml").write_text("versions = 'newest'")
    assert main(["check", config(models)]) == 1
    assert "echo/model.toml: versions: " in capsys.readouterr().err


def test_a_model_may_have_a_folder_of_its_own(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is checked and loaded under the name that the file gives it."""
    (models.parent / "gateway.toml").write_text('[models]\nmine = "models/echo"\n[results]\ndir = "results"')
    path = str(models.parent / "gateway.toml")
    assert main(["check", path]) == 0
    assert main(["models", path]) == 0
    assert re.search(r"^mine +1 +AVAILABLE", capsys.readouterr().out, re.MULTILINE)
    assert not (models.parent / "results").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[models]\nmine = 'absent'", "absent does not exist"),
        ("[models]\nmine = 'gateway.toml'", "gateway.toml is no folder"),
        ("[models]\n'a/b' = 'models/echo'", "gateway.toml: models: Expected letters, digits"),
        ("[models_control]\nenabled = true", "models_control.roots: no folder is named"),
        ("[limits]\nelements = 1", "models_dir: no models folder is named"),
    ],
)
def test_check_names_models_that_are_not_there(
    models: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By their folder or by the key to set."""
    (models.parent / "gateway.toml").write_text(text)
    assert main(["check", str(models.parent / "gateway.toml")]) == 1
    assert message in capsys.readouterr().err


def test_serve_refuses_a_results_folder_of_others(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before it listens: the folder is cleaned in time, so it must be for nothing else."""
    assert main(["serve", config(models, "[results]\ndir = 'models'"), "--port", "0"]) == 1
    assert "results.dir: models holds other files" in capsys.readouterr().err


def test_routes_lists_every_path(capsys: pytest.CaptureFixture[str]) -> None:
    """Method, path, protocol and operation, one a line."""
    assert main(["routes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    predict = [line.split() for line in lines if line.endswith("tfserving predict")]
    assert [words[0] for words in predict] == ["POST"]
    assert predict[0][1].startswith("/v1/models")
    assert "/readyz" in {line.split()[1] for line in lines}


def test_models_loads_and_lists(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a folder, the models are loaded here to see whether they do."""
    assert main(["models", "--models", str(models)]) == 0
    out = capsys.readouterr().out
    assert "echo" in out
    assert "AVAILABLE" in out
    assert "serving_default(x float32[...] -> x float32[...])" in out


def test_an_empty_folder_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Instead of an empty table there is a line that says what a model looks like."""
    assert main(["models", "--models", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no models: a model is a folder NAME with model.onnx or NAME/1/model.onnx\n"


def test_each_signature_has_a_line(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One under the other, in their own column."""
    (models / "echo" / "model.toml").write_text(f"{ECHO}[signatures.a]\n[signatures.b]\n")
    assert main(["models", "--models", str(models)]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    column = head.index("SIGNATURES")
    assert first[column:] == "a(x float32[...] -> x float32[...])"
    assert second == " " * column + "b(x float32[...] -> x float32[...])"


def test_models_fails_when_a_model_does_not_load(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error stands under its line, and the exit code tells scripts."""
    (models / "broken" / "1").mkdir(parents=True)
    (models / "broken" / "1" / "model.onnx").write_bytes(b"not a model")
    assert main(["models", "--models", str(models)]) == 1
    out = capsys.readouterr().out
    assert "model.onnx" in out
    assert str(models) not in out


def test_models_without_a_gateway_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Not a traceback from the HTTP client."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert main(["models", "--url", f"http://127.0.0.1:{port}"]) == 1
    assert f"no gateway answers at http://127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve"], "nothing to serve: give a CONFIG.toml or --models DIR"),
        (["serve", "absent.toml"], "absent.toml: cannot be read: No such file"),
        (["serve", "--models", "absent"], "the models folder absent does not exist"),
    ],
)
def test_serve_without_its_files_says_so(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and one line."""
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_serve_on_a_taken_port_says_so(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before any model is loaded."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--models", str(models), "--port", str(port)]) == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["nothing"], ["serve", "--port", "x"], ["check"], ["serve", "--device", "tpu"]]
)
def test_a_wrong_command_line_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With the usage."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: tensorgate" in capsys.readouterr().err


def test_help_and_version_work_as_a_module() -> None:
    """`python -m gateway` is the same command."""
    for flag, text in (("--help", "serve"), ("--version", "tensorgate 0.")):
        done = subprocess.run([sys.executable, "-m", "gateway", flag], capture_output=True, text=True, check=True)
        assert text in done.stdout
