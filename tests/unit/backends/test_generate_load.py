"""Folders and settings of language models that can be served, and those that cannot."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
import tinychat
from onnx import helper

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


READ_A_PROMPT = """
import sys
from pathlib import Path
from backends.generate import layout
from backends.generate.decoder import open_decoder

folder = Path(sys.argv[1])
decoder = open_decoder(layout.read_layout(folder, folder), folder, folder, 1, 64, 8, 1)
print(decoder.prefill(0, 0, [1, 1, 3]).shape[0])
"""
"""In a process of its own, for that is what would die."""


def test_a_division_that_would_end_the_process(tmp_path: Path) -> None:
    """The least integer by minus one, which ONNX Runtime leaves to the processor, is guarded in decoders too."""
    folder = tmp_path / "model"
    shutil.copytree(tinychat.FOLDER, folder)
    model = onnx.load_model(folder / "model.onnx")
    (logits,) = (one for one in model.graph.output if one.name == "logits")
    for node in model.graph.node:
        node.output[:] = ["bare" if name == "logits" else name for name in node.output]
    least = helper.make_tensor("least", onnx.TensorProto.INT64, [1], [-(2**63)])
    two = helper.make_tensor("two", onnx.TensorProto.INT64, [1], [2])
    model.graph.initializer.extend([least, two, helper.make_tensor("axis", onnx.TensorProto.INT64, [1], [2])])
    model.graph.initializer.append(helper.make_tensor("nothing", onnx.TensorProto.FLOAT, [1], [0.0]))
    model.graph.node.extend([
        helper.make_node("Sub", ["input_ids", "two"], ["less"]),
        helper.make_node("Div", ["least", "less"], ["quotient"]),
        helper.make_node("Cast", ["quotient"], ["real"], to=logits.type.tensor_type.elem_type),
        helper.make_node("Mul", ["real", "nothing"], ["none"]),
        helper.make_node("Unsqueeze", ["none", "axis"], ["column"]),
        helper.make_node("Add", ["bare", "column"], ["logits"]),
    ])  # fmt: skip
    onnx.save(model, folder / "model.onnx")
    done = subprocess.run(
        [sys.executable, "-c", READ_A_PROMPT, folder],
        cwd=Path(__file__).resolve().parents[3], capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr[-500:]
