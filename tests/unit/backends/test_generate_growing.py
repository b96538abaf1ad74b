"""Decoders whose keys and values grow, as Optimum exports them: the text is that of the same weights in one buffer."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import growing_model
import pytest
import tinychat
from tinychat import asked

from backends import generate
from backends.generate import GenerateBackend, layout
from backends.generate.decoder import open_decoder
from backends.generate.growing import GrowingDecoder
from gateway.errors import LoadFailed

QUESTIONS = ["Hello!", "What is the capital of France?", "What is 12 + 7?", "你好", "Tell me a story.", "Who are you?"]
FORMS = {
    "all inputs": {},
    "no positions": {"positions": False},
    "no mask": {"masked": False},
    "neither": {"positions": False, "masked": False},
    "merged": {"merged": True},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model in every form."""
    base = tmp_path_factory.mktemp("growing")
    for name, form in FORMS.items():
        growing_model.write(base / name, **form)
    return {name: base / name for name in FORMS}


def on(folder: Path, test: Callable[[GenerateBackend], Awaitable[Any]], **config: Any) -> Any:
    """Run the test on the folder's model."""

    async def main() -> Any:
        backend = await generate.load(tinychat.source(folder), generate.Config(**config))
        assert isinstance(backend, GenerateBackend)
        try:
            return await test(backend)
        finally:
            await backend.close()

    return asyncio.run(main())


async def _all(backend: GenerateBackend) -> list[str]:
    """Answers of different lengths, which join the batch and leave it one after the other."""
    seeded = [asked(text, seed=seed, max_tokens=20 + 30 * seed) for seed, text in enumerate(QUESTIONS)]
    greedy = [asked(text, temperature=0) for text in QUESTIONS]
    answers = await asyncio.gather(*(backend.infer(request) for request in seeded + greedy))
    return [str(answer.outputs["text"][0]) for answer in answers]


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """What the model says as it ships."""
    texts: list[str] = on(tinychat.FOLDER, _all, slots=4)
    assert "The capital of France is Paris." in texts
    return texts


@pytest.mark.parametrize("chunk", [5, 256])
@pytest.mark.parametrize("form", FORMS)
def test_the_same_text(folders: dict[str, Path], expected: list[str], form: str, chunk: int) -> None:
    """Whatever inputs the graph has, however prompts are cut and whoever is in the batch, each answer is the same."""
    assert expected == on(folders[form], _all, slots=4, chunk=chunk)


def test_disconnects_and_beginnings(folders: dict[str, Path], expected: list[str]) -> None:
    """Streams that are left, and beginnings that are borrowed from another slot, change no other answer."""

    async def test(backend: GenerateBackend) -> list[str]:
        async def leaves(seed: int) -> None:
            parts = backend.stream(asked("Tell me a story.", seed=seed))
            async for _ in parts:
                if seed % 2:
                    await parts.aclose()

        _, answers, again = await asyncio.gather(
            asyncio.gather(*(leaves(seed) for seed in range(8))), _all(backend), _all(backend)
        )
        assert expected == answers
        return again

    assert expected == on(folders["all inputs"], test, slots=3, queue=64)


@pytest.mark.parametrize(
    ("form", "padded"),
    [("all inputs", True), ("merged", True), ("no positions", False), ("no mask", False), ("neither", False)],
)
def test_how_a_model_is_run_is_found_out(folders: dict[str, Path], form: str, padded: bool) -> None:
    """Only a model that is seen to be right about padding gets slots of different lengths together."""
    folder = folders[form]
    decoder = open_decoder(layout.read_layout(folder, folder), folder, folder, 2, 64, 16, 1)
    assert isinstance(decoder, GrowingDecoder)
    assert (True, padded) == (decoder.in_chunks, decoder.padded)


def test_a_window_is_not_padded(folders: dict[str, Path], tmp_path: Path) -> None:
    """Where a token sees only some before it, padding would take their places."""
    folder = tmp_path / "windowed"
    growing_model.write(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"sliding_window": 128}))
    decoder = open_decoder(layout.read_layout(folder, folder), folder, folder, 2, 64, 16, 1)
    assert isinstance(decoder, GrowingDecoder)
    assert not decoder.padded


def test_prompts_in_one_go_or_token_by_token(
    folders: dict[str, Path], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that takes no part of a prompt behind a past gets what is left of it token by token."""
    monkeypatch.setattr(GrowingDecoder, "_reads_in_chunks", lambda decoder: False)
    assert expected == on(folders["merged"], _all, slots=4, chunk=7)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"eos_token_id": None, "generation": True}, "config.json: eos_token_id must be a token"),
        ({"max_position_embeddings": None}, "config.json: max_position_embeddings must be a whole number"),
        ({"head_dim": "32"}, "config.json: head_dim must be a whole number"),
        ({"num_hidden_layers": 9}, "has no 'past_key_values.4.key'"),
    ],
)
def test_a_configuration_that_does_not_fit(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    """What config.json lacks, or has otherwise than the graph, is said at load."""
    folder = tmp_path / "model"
    growing_model.write(folder)
    if change.pop("generation", False):
        (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(LoadFailed, match=text):
        asyncio.run(generate.load(tinychat.source(folder), generate.Config()))


def test_the_hubs_folders(tmp_path: Path) -> None:
    """The hub has the graph in a folder of its own; other families name the same numbers differently."""
    folder = tmp_path / "model"
    growing_model.write(folder)
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    config = {"n_layer": 4, "n_head": 4, "n_embd": 128, "n_positions": 64, "vocab_size": 1024, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps({"text_config": config}))
    (folder / "generation_config.json").write_text('{"eos_token_id": null}')

    async def test(backend: GenerateBackend) -> str:
        return str((await backend.infer(asked("Hello!", temperature=0))).outputs["text"][0])

    assert on(folder, test) == "Hello! How can I help you today?"
