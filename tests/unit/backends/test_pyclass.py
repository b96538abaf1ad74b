"""A user's class in its workers: calls, settings, streams and output, with real processes."""

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from user_class import ECHO, loaded, on_loop, parts_of, request, y

from gateway.errors import InferenceFailed, InvalidTensor, LoadFailed, NotReady, SignatureNotFound
from gateway.types import InferenceRequest


@on_loop
async def test_numbers_and_texts_come_back(tmp_path: Path) -> None:
    """What a class returns is the answer, of the dtype that it has."""
    async with loaded(tmp_path, ECHO) as backend:
        for value in ([[1, 2]], [[1.5]], [True], "text", np.float32([1.5])):
            response = await backend.infer(request(value))
            assert y(response) == np.array(value).tolist()
        assert response.outputs["Y"].dtype == np.float32
        large = np.random.default_rng(0).random((64, 1000))
        assert np.array_equal((await backend.infer(request(large))).outputs["Y"], large)


@on_loop
async def test_a_dict_is_json_and_for_others_its_text(tmp_path: Path) -> None:
    """Protocols that know JSON find the value, those that know tensors find its text."""
    text = "class Model:\n    def predict(self, X, names):\n        return {'a': X, 'b': '\u00e4'}"
    async with loaded(tmp_path, text) as backend:
        response = await backend.infer(request([1, 2]))
    assert response.parameters["json"] == {"a": [1, 2], "b": "\u00e4"}
    assert y(response) == ['{"a": [1, 2], "b": "\u00e4"}']


@on_loop
async def test_calls_that_the_class_does_not_have(tmp_path: Path) -> None:
    """Unknown signatures, inputs and outputs are the caller's mistakes."""
    async with loaded(tmp_path, ECHO) as backend:
        with pytest.raises(SignatureNotFound):
            await backend.infer(request([1], signature="nothing"))
        with pytest.raises(InvalidTensor, match="no input 'Z'"):
            await backend.infer(InferenceRequest({"Z": np.zeros(1)}))
        with pytest.raises(InvalidTensor):
            await backend.infer(request([1], outputs=("Z",)))
        with pytest.raises(InvalidTensor, match="cannot be handed"):
            await backend.infer(InferenceRequest({"X": np.zeros(1, "M8[s]")}))


@on_loop
async def test_settings_reach_the_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters, variables and the folder do; the gateway's own variables, which may be secrets, do not."""
    monkeypatch.setenv("SECRET", "s")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    text = """
        import os
        class Model:
            def __init__(self, size):
                self.size = size
            def predict(self, X, names):
                return {"size": self.size, "cwd": os.getcwd(), **{k: os.environ.get(k) for k in X.tolist()}}
    """
    async with loaded(tmp_path, text, parameters={"size": 3}, environment={"MINE": "m"}) as backend:
        response = await backend.infer(request(["SECRET", "MINE", "LC_ALL"]))
    assert response.parameters["json"] == {
        "size": 3, "cwd": str(tmp_path), "SECRET": None, "MINE": "m", "LC_ALL": "C.UTF-8"
    }  # fmt: skip


@on_loop
async def test_output_has_a_folder(tmp_path: Path) -> None:
    """It is made at load, and the class is told where; one that cannot be made fails the load."""
    text = """
        import os
        class Model:
            def predict(self, X, names):
                with open(os.path.join(os.environ["TENSORGATE_OUTPUT"], "f"), "w") as file:
                    file.write("written")
                return X
    """
    output = tmp_path / "output" / "1.0.0" / "m"
    async with loaded(tmp_path, text, output=output) as backend:
        await backend.infer(request([1]))
    assert (output / "f").read_text() == "written"
    with pytest.raises(LoadFailed, match="output folder cannot be made: Not a directory"):
        async with loaded(tmp_path, text, output=output / "f" / "g"):
            pass


@on_loop
async def test_another_interpreter(tmp_path: Path) -> None:
    """`python` is taken relative to the model's folder or from PATH, and one that is not there fails the load."""
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "python").symlink_to(sys.executable)
    (tmp_path / "env" / "python").unlink()
    wrapper = tmp_path / "env" / "python"
    wrapper.write_text(f'#!/bin/sh\nWRAPPED=1 exec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    text = "import os\nclass Model:\n    def predict(self, X, names):\n        return os.environ.get('WRAPPED', '0')"
    async with loaded(tmp_path, text, python="env/python") as backend:
        assert y(await backend.infer(request([1]))) == "1"
    with pytest.raises(LoadFailed, match="no interpreter 'no-such-python'"):
        async with loaded(tmp_path, text, python="no-such-python"):
            pass


# Streams...

COUNTER = """
    import os, time
    class Model:
        def __init__(self):
            self.given = 0
            self.closed = 0
        def predict(self, X, names):
            return [self.given, self.closed]
        def stream(self, X, names):
            try:
                for number in range(int(X[0])):
                    self.given += 1
                    yield [number]
            except GeneratorExit:
                self.closed += 1
                raise
"""


@on_loop
async def test_parts_come_one_by_one(tmp_path: Path) -> None:
    """A generator's values are the parts, in order, however many there are."""
    async with loaded(tmp_path, COUNTER) as backend:
        assert await parts_of(backend, request([100])) == [[number] for number in range(100)]
        assert await parts_of(backend, request([0])) == []


@on_loop
async def test_a_slow_reader_holds_the_class_back(tmp_path: Path) -> None:
    """Parts are made only so far ahead of their reader, and meanwhile others are answered."""
    async with loaded(tmp_path, COUNTER) as backend:
        stream = backend.stream(request([1000]))
        await anext(stream)
        given = 0
        while (now := y(await backend.infer(request([0])))[0]) > given or now == 0:
            given = now
        assert given <= 16
        await stream.aclose()


@on_loop
async def test_closing_a_stream_closes_the_generator(tmp_path: Path) -> None:
    """Who leaves in the midst of a stream ends the work on it."""
    async with loaded(tmp_path, COUNTER) as backend:
        stream = backend.stream(request([1000]))
        await anext(stream)
        await stream.aclose()
        assert y(await backend.infer(request([0])))[1] == 1


@pytest.mark.parametrize(
    ("text", "parts", "whole"),
    [
        ("def predict(self, X, names):\n            yield 'a'\n            yield 'b'", ["a", "b"], "ab"),
        ("def stream(self, X, names):\n            yield [1]\n            yield [2, 3]", [[1], [2, 3]], [1, 2, 3]),
        ("async def predict(self, X, names):\n            yield 'a'\n            yield 'b'", ["a", "b"], "ab"),
        ("async def predict(self, X, names):\n            return X", [[1]], [1]),
        ("def predict(self, X, names):\n            return X", [[1]], [1]),
        ("def predict(self, X, names):\n            return iter(())", [], []),
    ],
)
@on_loop
async def test_streamed_or_whole(tmp_path: Path, text: str, parts: list[Any], whole: Any) -> None:
    """A class that yields can be asked for the whole, and one that returns for parts; async makes no difference."""
    async with loaded(tmp_path, f"class Model:\n        {text}") as backend:
        assert await parts_of(backend, request([1])) == parts
        assert y(await backend.infer(request([1]))) == whole


@on_loop
async def test_a_stream_may_fail_late(tmp_path: Path) -> None:
    """The parts before an exception arrive, then the exception does."""
    text = "class Model:\n    def predict(self, X, names):\n        yield 'a'\n        raise ValueError('late')"
    async with loaded(tmp_path, text) as backend:
        stream = backend.stream(request([1]))
        assert y(await anext(stream)) == "a"
        with pytest.raises(InferenceFailed, match="late"):
            await anext(stream)


@on_loop
async def test_a_stream_half_told_is_not_told_again(tmp_path: Path) -> None:
    """When its worker ends in the midst of a stream, the reader is told, and nothing is repeated."""
    text = "import os\nclass Model:\n    def predict(self, X, names):\n        yield 'a'\n        os._exit(4)"
    async with loaded(tmp_path, text) as backend:
        stream = backend.stream(request([1]))
        assert y(await anext(stream)) == "a"
        with pytest.raises(NotReady, match="exit code 4"):
            await anext(stream)


# Output...


@on_loop
async def test_output_is_logged_under_the_models_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a class prints, to either stream, is in the log; a traceback shows the class's own lines only."""
    text = """
        import sys
        class Model:
            def predict(self, X, names):
                print("to stdout")
                print("to stderr", file=sys.stderr)
                raise KeyError("gone")
    """
    with caplog.at_level(logging.INFO, "tensorgate.output"):
        async with loaded(tmp_path, text) as backend:
            with pytest.raises(InferenceFailed, match="gone"):
                await backend.infer(request([1]))
    said = [message.removeprefix("m version 1: ") for message in caplog.messages]
    assert said[:3] == ["to stdout", "to stderr", "Traceback (most recent call last):"]
    assert said[-1] == "KeyError: 'gone'"
    assert sum(line.startswith("  File") for line in said) == 1
