"""Text to image: the pictures are diffusers' own, the parameters are checked, and requests take turns."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scene import on_loop

from backends._session import Config as SessionConfig
from backends._session import OnnxRuntime
from backends.diffusion import SIGNATURES, TURN_SECONDS, Config, DiffusionBackend, Work, load
from backends.diffusion.drawing import Drawing
from backends.diffusion.layout import Parts, open_parts
from backends.diffusion.prompts import from_json, from_vocabulary
from backends.diffusion.schedulers import Settings, scheduler
from backends.diffusion.settings import Bounds, Wish
from gateway.config import convert
from gateway.errors import DeadlineExceeded, InvalidTensor, LoadFailed, Overloaded
from gateway.interfaces import ModelSource
from gateway.types import InferenceRequest, ModelMetadata

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "configs" / "models" / "painter" / "1"
DATA = ROOT / "tests" / "data" / "diffusion"
GOLDEN = json.loads((DATA / "ddim20.json").read_text())
OTHERS = np.load(DATA / "schedulers.npz")
CASES = [name for name in OTHERS.files if name.count("-") == 3]


def source(folder: Path = MODEL) -> ModelSource:
    return ModelSource("digits", 1, folder, folder, device="cpu")


@pytest.fixture(scope="module")
def parts() -> Parts:
    return open_parts(source(), SessionConfig(), OnnxRuntime())


@pytest.fixture
def backend(parts: Parts) -> DiffusionBackend:
    """The demo model, at most three requests at a time."""
    metadata = ModelMetadata("digits", 1, "", SIGNATURES)
    return DiffusionBackend(metadata, parts, wish(steps=4), Bounds(150, 1024, 1 << 20, 4), 3)


def wish(**changes: Any) -> Wish:
    given = {"steps": 20, "guidance": 4.0, "width": 32, "height": 32, "seed": 1, "scheduler": "ddim"}
    return convert(given | {"negative": "", "n": 1} | changes, Wish, "wish")


def asked(*prompts: str, **parameters: Any) -> InferenceRequest:
    return InferenceRequest({"prompt": np.array(prompts, object)}, parameters=parameters)


def drawn(drawing: Drawing, latents: np.ndarray) -> np.ndarray:
    drawing.begin(latents)
    for step in range(drawing.steps):
        drawing.step(step)
    return np.stack(list(drawing.paint()))


# Against diffusers...


def test_pictures_equal_the_golden_ones(parts: Parts) -> None:
    """Equal latents give the recorded pictures, but for one in the last place."""
    golden = np.load(DATA / "ddim20.npz")
    prompts = GOLDEN["prompts"]
    pictures = drawn(Drawing(parts, prompts, [""] * len(prompts), wish()), golden["latents"])
    assert np.abs(pictures.astype(int) - golden["images"]).max() <= 1


@pytest.mark.parametrize("case", CASES)
def test_every_scheduler_draws_as_diffusers_does(parts: Parts, case: str) -> None:
    """Scheduler, timestep spacing, prediction and number of steps: the pictures are diffusers' own."""
    name, spacing, prediction, steps = case.split("-")
    settings = {**{f: getattr(parts.scheduler, f) for f in parts.scheduler.__struct_fields__}}
    settings |= {"timestep_spacing": spacing, "prediction_type": prediction}
    changed = Parts(**{f: getattr(parts, f) for f in Parts.__struct_fields__} | {"scheduler": Settings(**settings)})
    drawing = Drawing(changed, GOLDEN["prompts"][:3], [""] * 3, wish(steps=int(steps), scheduler=name))
    noises = iter(OTHERS["noise"])
    drawing._noise = lambda: next(noises)  # type: ignore[method-assign]
    pictures = drawn(drawing, OTHERS["latents"])
    assert np.abs(pictures.astype(int) - OTHERS[case]).max() <= 1


@pytest.mark.parametrize("steps", [1, 2, 7, 999])
@pytest.mark.parametrize("name", ["ddim", "euler", "dpmsolver++", "lcm"])
def test_any_number_of_steps_has_timesteps(name: Any, steps: int) -> None:
    """As many timesteps as steps, downwards, within the training's."""
    times = scheduler(name, Settings(steps_offset=1), steps).timesteps
    assert len(times) == steps
    assert (np.diff(times) <= 0).all()
    assert 0 <= times[-1] <= times[0] <= 1000


@pytest.mark.parametrize("files", ["tokenizer.json", "vocab.json"])
def test_tokens_are_clips(files: str) -> None:
    """From either kind of file a text becomes the ids that transformers gives it."""
    folder = MODEL / "tokenizer"
    if files == "tokenizer.json":
        tokenizer = from_json((folder / files).read_text("utf-8"))
    else:
        vocabulary, merges = json.loads((folder / files).read_text("utf-8")), (folder / "merges.txt").read_text("utf-8")
        tokenizer = from_vocabulary(vocabulary, merges.splitlines(), "<|startoftext|>", "<|endoftext|>")
    tokenizer.enable_truncation(16)
    for text, ids in json.loads((DATA / "tokens.json").read_text("utf-8")):
        given = tokenizer.encode(text).ids
        assert given + [595] * (16 - len(given)) == ids, text


# What is asked for...


@on_loop
async def test_equal_seeds_give_equal_pictures(backend: DiffusionBackend) -> None:
    """A seed's picture is the same alone, in a batch, and beside other requests."""
    alone = (await backend.infer(asked("a red seven", seed=5))).outputs["image"]
    batch, *_ = await asyncio.gather(
        backend.infer(asked("one", "a red seven", seed=4)), backend.infer(asked("two", seed=9))
    )
    assert np.abs(batch.outputs["image"][1].astype(int) - alone[0]).max() <= 1


@on_loop
async def test_seed_that_was_drawn_is_told(backend: DiffusionBackend) -> None:
    """Without a seed there is one, and it draws the same picture again."""
    first = await backend.infer(asked("a red seven"))
    again = await backend.infer(asked("a red seven", seed=first.parameters["seed"]))
    assert np.array_equal(first.outputs["image"], again.outputs["image"])


@pytest.mark.parametrize(("width", "height"), [(32, 32), (64, 40), (33, 50), (8, 8)])
def test_pictures_have_the_asked_size(backend: DiffusionBackend, width: int, height: int) -> None:
    """Whatever the model's own steps are."""
    images = asyncio.run(backend.infer(asked("nine", width=width, height=height, steps=1))).outputs["image"]
    assert ((1, height, width, 3), np.uint8) == (images.shape, images.dtype)


@on_loop
async def test_progress_goes_up_to_one(backend: DiffusionBackend) -> None:
    """Each step is told before it is done; the last part has the picture."""
    parts = [part async for part in backend.stream(asked("nine", steps=4))]
    assert [part.parameters["progress"] for part in parts[:-1]] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert parts[-1].outputs["image"].shape == (1, 32, 32, 3)


@on_loop
async def test_negative_prompt_counts_as_input_or_as_parameter(backend: DiffusionBackend) -> None:
    """Both ways to say it mean the same, and it changes the picture."""
    plain = await backend.infer(asked("a red seven", seed=3))
    by_parameter = await backend.infer(asked("a red seven", seed=3, negativePrompt="red"))
    inputs = {"prompt": np.array(["a red seven"], object), "negative_prompt": np.array(["red"], object)}
    by_input = await backend.infer(InferenceRequest(inputs, "guided", parameters={"seed": 3}))
    assert np.array_equal(by_parameter.outputs["image"], by_input.outputs["image"])
    assert not np.array_equal(plain.outputs["image"], by_input.outputs["image"])


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"steps": 0}, "steps: expected a whole number from 1 to 150, got 0"),
        ({"step": 10**9}, "step: expected a whole number from 1 to 150, got 1000000000"),
        ({"num_inference_steps": "4"}, "num_inference_steps: expected a whole number"),
        ({"width": 100_000}, "width: expected a whole number from 8 to 1024"),
        ({"height": -1}, "height: expected"),
        ({"cfg": float("nan")}, "cfg: expected a number from 0 to 100, got nan"),
        ({"guidance_scale": True}, "guidance_scale: expected a number"),
        ({"seed": -1}, "seed: expected"),
        ({"seed": 1.5}, "seed: expected"),
        ({"scheduler": "magic"}, "scheduler: expected one of ddim, euler, dpmsolver++, lcm, got 'magic'"),
        ({"negative_prompt": 3}, "negative_prompt: expected a text"),
        ({"n": 5}, "n: expected a whole number from 1 to 4"),
    ],
)
def test_bad_parameters_are_named(backend: DiffusionBackend, parameters: dict[str, Any], text: str) -> None:
    """The refusal names the parameter as the caller wrote it, and what was expected."""
    with pytest.raises(InvalidTensor) as refused:
        asyncio.run(backend.infer(asked("a", **parameters)))
    assert text in str(refused.value)


@on_loop
async def test_too_much_is_refused(backend: DiffusionBackend) -> None:
    """More pictures than allowed in one request, and more requests than allowed at once."""
    with pytest.raises(InvalidTensor, match="at most 4 pictures a request, got 6"):
        await backend.infer(asked("a", "b", "c", n=2))
    inputs = {"prompt": np.array(["a"], object), "negative_prompt": np.array(["b", "c"], object)}
    with pytest.raises(InvalidTensor, match="negative_prompt: expected 1 texts"):
        await backend.infer(InferenceRequest(inputs, "guided"))
    results = await asyncio.gather(*(backend.infer(asked("a", seed=1)) for _ in range(5)), return_exceptions=True)
    assert [isinstance(one, Overloaded) for one in results] == [False, False, False, True, True]
    assert backend.busy == 0


@on_loop
async def test_requests_take_turns(backend: DiffusionBackend) -> None:
    """A short request that comes second is done long before the long one."""
    order: list[str] = []

    async def draw(name: str, steps: int) -> None:
        async for _ in backend.stream(asked("a", seed=1, steps=steps)):
            order.append(name)  # noqa: PERF401 - the other's come in between

    await asyncio.gather(draw("long", 60), draw("short", 4))
    assert order.index("short") < 3
    assert max(index for index, name in enumerate(order) if name == "short") < 20


@on_loop
async def test_given_up_drawings_stop(backend: DiffusionBackend) -> None:
    """A request that is cancelled, or closed, or past its deadline, is over within its step."""
    drawing = asyncio.create_task(backend.infer(asked("a", steps=150)))
    await asyncio.sleep(0.02)
    drawing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drawing
    parts = backend.stream(asked("a", steps=150))
    await anext(parts)
    await parts.aclose()  # type: ignore[attr-defined]
    late = InferenceRequest({"prompt": np.array(["a"], object)}, parameters={"steps": 150}, deadline=0.0)
    with pytest.raises(DeadlineExceeded):
        await backend.infer(late)
    assert backend.busy == 0


# Folders that are none...


def without(name: str) -> Any:
    return lambda folder: (folder / name).unlink()


def changed(name: str, **values: Any) -> Any:
    def change(folder: Path) -> None:
        table = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(table | values))

    return change


@pytest.mark.parametrize(
    ("break_", "text"),
    [
        (without("unet/model.onnx"), "unet: there is no model.onnx"),
        (without("scheduler/scheduler_config.json"), "there is no scheduler/scheduler_config.json"),
        (without("tokenizer/tokenizer_config.json"), "there is no tokenizer/tokenizer_config.json"),
        (changed("scheduler/scheduler_config.json", beta_schedule="odd"), "scheduler_config.json: Invalid enum"),
        (changed("unet/config.json", in_channels=0), "unet/config.json: in_channels must be a whole number"),
        (changed("tokenizer/tokenizer_config.json", pad_token="none"), "the vocabulary has no pad_token 'none'"),
        (lambda folder: shutil.copy(folder / "vae_decoder/model.onnx", folder / "unet/model.onnx"),
         "unet: the model has no input 'encoder_hidden_states'"),
        (lambda folder: (folder / "tokenizer/tokenizer.json").write_text("{}"), "tokenizer.json is not a tokenizer"),
    ],
)  # fmt: skip
def test_folders_that_cannot_be_loaded(tmp_path: Path, break_: Any, text: str) -> None:
    """The reason names the part and the file."""
    folder = tmp_path / "m"
    shutil.copytree(MODEL, folder)
    break_(folder)
    with pytest.raises(LoadFailed) as failed:
        asyncio.run(load(source(folder), Config()))
    assert text in str(failed.value)
    assert str(tmp_path) not in str(failed.value)


def test_defaults_must_be_possible() -> None:
    """A table whose own defaults a request could not ask for is refused at load."""
    with pytest.raises(LoadFailed, match=r"diffusion: parameters\.steps: expected a whole number from 1 to 10"):
        asyncio.run(load(source(), Config(steps=20, most_steps=10)))


@on_loop
async def test_older_tokenizer_files_do(tmp_path: Path) -> None:
    """Exports without tokenizer.json draw the same pictures."""
    pictures = []
    for missing in ("tokenizer.json", "vocab.json"):
        folder = tmp_path / missing
        shutil.copytree(MODEL, folder)
        (folder / "tokenizer" / missing).unlink()
        backend = await load(source(folder), Config(steps=2))
        pictures.append((await backend.infer(asked("a red seven", seed=1))).outputs["image"])
    assert np.array_equal(*pictures)


# Turns...


def test_a_turn_holds_what_it_has_room_for() -> None:
    """The prompts are read in a turn of their own; then short runs share turns, and a long one ends its turn."""
    now = 0.0

    def runs() -> Iterator[float]:
        nonlocal now
        for place, share in enumerate([0.1, 0.2, 0.2, 0.2, 0.2, 3.0, 0.2]):
            now += TURN_SECONDS * share
            yield float(place)

    work = Work(runs(), lambda: now)
    assert list(iter(work.go_on, [])) == [[0.0], [1.0, 2.0, 3.0, 4.0], [5.0], [6.0]]
