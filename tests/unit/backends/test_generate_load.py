"""Folders and settings of language models that can be served, and those that cannot."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinychat

from backends import generate
from gateway.errors import LoadFailed


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("genai_config.json", None, "there is no genai_config.json"),
        ("genai_config.json", "{", "is not JSON"),
        ("genai_config.json", "[]", "is not a JSON object"),
        ("genai_config.json", '{"model": {}}', "describes no model.decoder"),
        ("genai_config.json", '{"model": {"vision": {}, "decoder": {}}}', "only plain text decoders"),
        ("tokenizer.json", "{}", "tokenizer.json cannot be used"),
        ("model.onnx", "none", "is not an ONNX model"),
        ("chat_template.jinja", "{% if %}", "the chat template has a mistake"),
    ],
)
def test_folder_that_cannot_be_served(tmp_path: Path, name: str, change: str | None, text: str) -> None:
    """What is wrong with a folder is said at load, without its path."""
    folder = tmp_path / "model"
    shutil.copytree(tinychat.FOLDER, folder)
    (folder / name).unlink()
    if change is not None:
        (folder / name).write_text(change)
    with pytest.raises(LoadFailed, match=text) as caught:
        asyncio.run(generate.load(tinychat.source(folder), generate.Config()))
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"memory_mib": 1}, "one slot of 1024 tokens takes 2 MiB"),
        ({"defaults": {"temperature": 9}}, "generate.defaults: parameters.temperature"),
    ],
)
def test_settings_that_cannot_be_kept(config: dict[str, Any], text: str) -> None:
    """A table that no request could be answered under is refused at load."""
    with pytest.raises(LoadFailed, match=text):
        asyncio.run(generate.load(tinychat.source(), generate.Config(**config)))


def test_memory_bounds_the_slots() -> None:
    """Where memory is short there are fewer slots, and the status says so."""

    async def main() -> str:
        backend = await generate.load(tinychat.source(), generate.Config(memory_mib=4))
        await backend.close()
        return backend.status.note

    assert "generate.memory_mib leaves room for 2 slots" in asyncio.run(main())
