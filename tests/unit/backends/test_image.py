"""Pixels as the model wants them to lie, and the wrapper around the model."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from images import RGB, Eye, colours, encoded, see, see_array, spec, wrap

from backends import _image_decoder, image, ort
from gateway.interfaces import BackendStatus, ModelSource
from gateway.types import InferenceRequest, TensorSpec

CONFIGS = Path(__file__).resolve().parents[3] / "configs"


# Layouts...


@pytest.mark.parametrize(
    ("shape", "config", "expected"),
    [
        ((None, 2, 3, 3), {}, RGB[None]),
        ((1, 2, 3, 3), {}, RGB[None]),
        ((2, 3, 3), {"layout": "nhwc"}, RGB),
        ((None, 3, 2, 3), {"layout": "nchw"}, RGB.transpose(2, 0, 1)[None]),
        ((None, 3, None, None), {}, RGB.transpose(2, 0, 1)[None]),
        ((3, None, None), {}, RGB.transpose(2, 0, 1)),
        ((None, None, None, None), {"layout": "nhwc"}, RGB[None]),
        ((None, 18), {"size": [2, 3]}, RGB.reshape(1, 18)),
        ((None, None), {}, RGB.reshape(1, 18)),
        ((18,), {"size": [2, 3]}, RGB.reshape(18)),
    ],
)
def test_layouts(shape: tuple[int | None, ...], config: dict[str, Any], expected: np.ndarray) -> None:
    """The layout is told from the shape where it can be, and the pixels lie accordingly."""
    seen = see(spec(*shape), encoded(RGB), **config)
    assert seen.dtype == np.uint8
    assert seen.flags.c_contiguous
    assert seen.tolist() == expected.tolist()


def test_unknown_rank() -> None:
    """With a configured layout, an input without a declared rank is a batch."""
    assert see(TensorSpec("x", "uint8", None), encoded(RGB), layout="nchw").shape == (1, 3, 2, 3)


@pytest.mark.parametrize("shape", [(None, 5, 6), (None, 1, 5, 6), (None, 5, 6, 1), (1, 5, 6)])
def test_grey(shape: tuple[int | None, ...]) -> None:
    """Grey pixels may lie with or without an axis of their own."""
    pixels = colours(5, 6)[:, :, 0]
    seen = see(spec(*shape), encoded(pixels))
    assert (seen.shape, seen.ravel().tolist()) == ((1, *shape[1:]), pixels.ravel().tolist())


@pytest.mark.parametrize(("length", "shape"), [(784, (28, 28, 1)), (48, (4, 4, 3))])
def test_flat_squares(length: int, shape: tuple[int, int, int]) -> None:
    """A flat input is a square of grey pixels, or of colours if no square of grey fits."""
    pixels = colours(*shape)
    image = encoded(pixels[:, :, 0] if shape[2] == 1 else pixels)
    assert see(spec(None, length), image).tolist() == [pixels.ravel().tolist()]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    """Values keep their size and get the model's dtype."""
    declared = spec(None, 2, 3, 3, dtype=dtype)
    seen = see(declared, encoded(RGB))
    assert (seen.dtype, seen.tolist()) == (declared.numpy_dtype, [RGB.tolist()])


def test_scale_mean_std() -> None:
    """A pixel is worth (value * scale - mean) / std, per channel where there is one number for each."""
    seen = see(
        spec(None, 3, 2, 3, dtype="float32"), encoded(RGB), layout="nchw", scale=1 / 255, mean=[0.5, 0.4, 0.3], std=0.25
    )
    expected = (RGB / 255 - [0.5, 0.4, 0.3]) / 0.25
    np.testing.assert_allclose(seen[0].transpose(1, 2, 0), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("config", "expected"), [({"mean": 128}, [-128, 127]), ({"scale": 0.3}, [0, 76])])
def test_rounding_to_integers(config: dict[str, Any], expected: list[int]) -> None:
    """An integer input gets rounded values, and never wrapped ones."""
    data = encoded(np.array([[0, 255]], np.uint8))
    seen = see(spec(None, 1, 2, 1, dtype="int8"), data, layout="nhwc", **config)
    assert seen.ravel().tolist() == expected


# The wrapper...


def test_metadata() -> None:
    """Every signature says which of its inputs takes images, and nothing else changes."""
    inner = Eye(spec(None, 2, 3, 3), renamed={"image": spec(None, 2, 3, 3)}, without={})
    signatures = wrap(inner).metadata.signatures
    assert signatures["serving_default"].inputs["x"] == msgspec.structs.replace(spec(None, 2, 3, 3), media="image")
    assert signatures["renamed"].inputs["image"].media == "image"
    assert signatures["without"] == inner.metadata.signatures["without"]


def test_numbers_pass_untouched() -> None:
    """Pixels that come as numbers are the very same array, whatever the table says."""
    array = np.zeros((5, 5), np.int64)
    assert see_array(spec(None, 2, 3, 3), array, scale=0.5) is array


@pytest.mark.parametrize("size", [20, 300])
def test_large_images_leave_the_loop(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding and resizing what takes long happens on a thread, what takes short does not."""
    calls: list[Callable[..., Any]] = []
    on_thread = _image_decoder._on_thread

    async def spy(work: Callable[[], Any]) -> Any:
        calls.append(work)
        return await on_thread(work)

    monkeypatch.setattr(_image_decoder, "_on_thread", spy)
    plain = np.zeros((size, size, 3), np.uint8)
    for pixels in (plain, colours(size, size)):
        assert see(spec(None, None, None, 3), encoded(pixels)).tolist() == [pixels.tolist()]
    assert len(calls) == (2 if size == 300 else 0)
    see(spec(None, size, size, 3), encoded(RGB))
    assert len(calls) == (3 if size == 300 else 0)


def test_streams_and_closing() -> None:
    """A stream is decoded too; closing it closes the inner one."""
    inner = Eye(spec(None, 2, 3, 3))
    backend = wrap(inner)

    async def first() -> np.ndarray:
        parts = backend.stream(InferenceRequest({"x": np.array([encoded(RGB)], object)}))
        part = await anext(parts)
        await parts.aclose()  # type: ignore[attr-defined]
        await backend.close()
        return part.outputs["x"]

    assert asyncio.run(first()).tolist() == [RGB.tolist()]
    assert inner.closed == ["stream", "backend"]
    assert backend.status == BackendStatus("eye")


def test_a_digit() -> None:
    """The MNIST model recognizes the sample as a two, from the file as from its pixels."""
    folder = CONFIGS / "models" / "mnist"
    source = ModelSource("mnist", 1, folder / "1", folder)
    data = (CONFIGS / "samples" / "digit.png").read_bytes()

    async def scores() -> np.ndarray:
        backend = image.wrap(await ort.load(source, ort.Config()), image.Config(layout="nchw", resize="box"), source)
        response = await backend.infer(InferenceRequest({"Input3": np.array([data, data], object)}))
        await backend.close()
        return response.outputs["Plus214_Output_0"]

    recorded = [975.670471, -618.723999, 6574.567871, 668.028137, -917.270691]
    for row in asyncio.run(scores()):
        np.testing.assert_allclose(row[:5], recorded, rtol=1e-4)
        assert row.argmax() == 2
