"""A sentence encoder: what its vectors are, how texts wait for them, and what is refused."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tinychat import strings

from backends import embed
from backends.embed.queue import Queue, bucket
from gateway.errors import ContextTooLong, GatewayError, InferenceFailed, InvalidTensor, LoadFailed, Overloaded
from gateway.interfaces import Backend, ModelSource
from gateway.types import InferenceRequest

WORDS = ["[CLS]", "[SEP]", "[UNK]", "red", "green", "blue"]
TABLE = np.array([[0, 0, 1], [0, 0, 3], [9, 9, 9], [4, 0, 0], [0, 4, 0], [0, 0, 4]], np.float32)
"""Each word's vector; the last number of `[CLS]` and `[SEP]` shows whether they count."""


def _tokenizer() -> str:
    """Words at spaces, between `[CLS]` and `[SEP]`, with a length baked in as many files have."""
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    described = {
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 9},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 2,
            "pad_type_id": 0,
            "pad_token": "[UNK]",
        },
        "added_tokens": [{"id": at, "content": WORDS[at], "special": True} | plain for at in (0, 1)],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "BertProcessing",
            "sep": ["[SEP]", 1],
            "cls": ["[CLS]", 0],
        },
        "model": {"type": "WordLevel", "vocab": {word: at for at, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }
    return json.dumps(described)


def _encoder(output: str = "last_hidden_state", inputs: Sequence[str] = ("input_ids", "attention_mask")) -> bytes:
    """A model that looks its words up; it pools itself if its output is `sentence_embedding`."""
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["found"])]
    if output == "sentence_embedding":
        nodes.append(helper.make_node("ReduceMax", ["found", "axis"], [output], keepdims=0))
    else:
        nodes.append(helper.make_node("Identity", ["found"], [output]))
    shape = ["texts", 3] if output == "sentence_embedding" else ["texts", "tokens", 3]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        [
            helper.make_tensor("table", TensorProto.FLOAT, TABLE.shape, TABLE.ravel().tolist()),
            helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def on_encoder(
    folder: Path, test: Callable[[Backend], Awaitable[None]], model: bytes | None = None, **config: Any
) -> None:
    """Run the test on a loaded encoder."""
    (folder / "model.onnx").write_bytes(_encoder() if model is None else model)
    (folder / "tokenizer.json").write_text(_tokenizer())

    async def main() -> None:
        backend = await embed.load(ModelSource("words", 1, folder, folder), embed.Config(**config))
        try:
            await test(backend)
        finally:
            await backend.close()

    asyncio.run(main())


def _request(*texts: str, **parameters: Any) -> InferenceRequest:
    return InferenceRequest({"text": strings(*texts)}, parameters=parameters)


@pytest.mark.parametrize(
    ("config", "text", "vector"),
    [
        ({"normalize": False}, "red green", [1, 1, 1]),
        ({"normalize": False}, "red red red red red red", [3, 0, 0.5]),
        ({"normalize": False, "pooling": "cls"}, "red", [0, 0, 1]),
        ({"normalize": False, "pooling": "last"}, "red", [0, 0, 3]),
        ({}, "red green", [3**-0.5] * 3),
    ],
)
def test_vector_of_a_text(tmp_path: Path, config: dict[str, Any], text: str, vector: list[float]) -> None:
    """The vector is pooled as the table says over exactly the text's tokens, whoever shares its run."""

    async def test(backend: Backend) -> None:
        alone = (await backend.infer(_request(text))).outputs["embedding"]
        np.testing.assert_allclose(alone, [vector], rtol=1e-6)
        response = await backend.infer(_request("blue", text, "blue blue blue blue"))
        np.testing.assert_allclose(response.outputs["embedding"][1], vector, rtol=1e-6)
        assert response.outputs["embedding"].dtype == np.float32
        assert response.parameters["usage"]["prompt_tokens"] == 11 + len(text.split())

    on_encoder(tmp_path, test, **config)


def test_model_that_pools_itself(tmp_path: Path) -> None:
    """An output of one vector a text is taken as it is."""

    async def test(backend: Backend) -> None:
        response = await backend.infer(_request("red blue"))
        np.testing.assert_allclose(response.outputs["embedding"], [[4, 0, 4]])

    on_encoder(tmp_path, test, _encoder("sentence_embedding"), normalize=False)


def test_vectors_can_be_cut(tmp_path: Path) -> None:
    """The first numbers of a vector are made a vector of length 1, where the model was trained for it."""

    async def test(backend: Backend) -> None:
        response = await backend.infer(_request("red green", dimensions=2))
        np.testing.assert_allclose(response.outputs["embedding"], [[0.5**0.5] * 2], rtol=1e-6)

    on_encoder(tmp_path, test, matryoshka=True)


def test_many_requests_at_once(tmp_path: Path) -> None:
    """Each of many texts of all lengths gets its own vector back."""

    async def test(backend: Backend) -> None:
        counts = [(red, blue) for red in range(1, 12) for blue in range(12)]
        answers = await asyncio.gather(
            *(backend.infer(_request(" ".join(["red"] * red + ["blue"] * blue))) for red, blue in counts)
        )
        expected = [[4 * red, 0, 4 * blue + 4] for red, blue in counts]
        lengths = [[red + blue + 2] for red, blue in counts]
        vectors = np.concatenate([answer.outputs["embedding"] for answer in answers])
        np.testing.assert_allclose(vectors * lengths, expected, rtol=1e-5, atol=1e-5)

    on_encoder(tmp_path, test, normalize=False, batch_tokens=64)


@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        (_request("red " * 20), ContextTooLong, "22 tokens; the model takes 16"),
        (_request("\ud800"), InvalidTensor, "not valid Unicode"),
        (_request(), InvalidTensor, "expected 1 to 9 texts"),
        (_request(*["red"] * 10), InvalidTensor, "expected 1 to 9 texts"),
        (_request("red", dimensions=2), InvalidTensor, "cannot be cut"),
        (_request("red", dimensions=0), InvalidTensor, "parameters.dimensions"),
        (_request("", prompt_token_ids=[[6]]), InvalidTensor, "token ids from 0 to 5"),
        (_request("", prompt_token_ids=[[]]), InvalidTensor, "text 0 has no tokens"),
        (_request("", prompt_token_ids=[1]), InvalidTensor, "lists of token ids"),
    ],
)
def test_bad_request_is_the_callers(
    tmp_path: Path, request_: InferenceRequest, error: type[GatewayError], text: str
) -> None:
    """What cannot be encoded is refused with the reason."""

    async def test(backend: Backend) -> None:
        with pytest.raises(error, match=text):
            await backend.infer(request_)

    on_encoder(tmp_path, test, max_tokens=16, most_texts=9)


def test_token_ids_and_truncation(tmp_path: Path) -> None:
    """Token ids are taken as they are; a text that may be cut keeps the tokens around it."""

    async def test(backend: Backend) -> None:
        response = await backend.infer(_request("", prompt_token_ids=[[3, 3]]))
        np.testing.assert_allclose(response.outputs["embedding"], [[4, 0, 0]])
        cut = await backend.infer(_request("red " * 20, truncate=True))
        np.testing.assert_allclose(cut.outputs["embedding"] * 4, [[8, 0, 4]])

    on_encoder(tmp_path, test, max_tokens=4, normalize=False)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (_encoder(inputs=("input_ids", "pixels")), "pixels"),
        (b"none", "not an ONNX model"),
    ],
)
def test_model_that_is_no_encoder(tmp_path: Path, model: bytes, text: str) -> None:
    """What takes anything but tokens is refused at load."""

    async def test(backend: Backend) -> None:
        raise AssertionError("it loads")

    with pytest.raises(LoadFailed, match=text):
        on_encoder(tmp_path, test, model)


# The queue...


def test_bucket_wastes_little() -> None:
    """A text is filled up by a quarter at most, but for the shortest."""
    for length in range(1, 5000):
        assert length <= bucket(length) <= max(length * 1.25 + 1, length + 7)


def test_queue_is_bounded_and_forgets_who_left() -> None:
    """More texts than may wait are refused; those of a caller that left are never encoded; failures are told."""
    gate, begun = threading.Event(), threading.Event()
    seen: list[list[list[int]]] = []

    def encode(texts: Sequence[Sequence[int]]) -> np.ndarray:
        seen.append([list(tokens) for tokens in texts])
        begun.set()
        assert gate.wait(10)
        if texts[0][0] == 7:
            raise InferenceFailed("seven")
        return np.zeros((len(texts), 1), np.float32)

    async def main() -> None:
        queue = Queue(encode, 2, 100, "test")
        running = asyncio.ensure_future(queue.vectors([[1]]))
        await asyncio.to_thread(begun.wait, 10)
        leaving = asyncio.ensure_future(queue.vectors([[2]]))
        failing = asyncio.ensure_future(queue.vectors([[7] * 50]))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await queue.vectors([[3]])
        leaving.cancel()
        await asyncio.wait({leaving})
        gate.set()
        assert len(await running) == 1
        with pytest.raises(InferenceFailed, match="seven"):
            await failing
        assert seen == [[[1]], [[7] * 50]]
        queue.close()

    asyncio.run(main())
