"""Outputs in the forms of SageMaker's algorithms, in every type that a caller may accept, whole and in parts."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from adapters._record_pb2 import Record
from adapters._recordio import split_frames
from adapters.sagemaker import responses
from adapters.sagemaker.forms import FORMS, view
from adapters.sagemaker.parts import chunks
from adapters.sagemaker.responses import CSV, JSON, JSONLINES, NPY, RECORDIO, encode, encode_documents
from gateway.errors import InferenceFailed, NotAcceptable
from gateway.types import InferenceResponse, ResponseForm, Tensor

LABEL, SCORES = np.int64([1, 2]), np.float32([[0.25, 0.75], [0.5, 0.5]])
CLASSIFIER = {"label": LABEL, "probabilities": SCORES}
REGRESSOR = {"variable": np.float32([[0.25], [-3.5]])}
KMEANS = {"label": LABEL, "scores": np.float32([[3, 1, 2], [2, 9, 0.5]])}


def written(outputs: dict[str, Tensor], form: str, media: str = JSON, verbose: bool = False, **names: str) -> Any:
    """The answer to two rows, read back."""
    text = encode(view(outputs, ResponseForm(form, names), 2, verbose), media)
    if media == JSON:
        return json.loads(text)
    if media == RECORDIO:
        return labels(text)
    return text.decode()


def labels(body: bytes) -> list[dict[str, list[float]]]:
    """The label maps of records."""
    records = [Record.FromString(b"".join(parts)) for parts in split_frames(body)]
    return [{key: list(value.float32_tensor.values) for key, value in record.label.items()} for record in records]


# Forms...


@pytest.mark.parametrize(
    ("form", "outputs", "expected"),
    [
        ("predictions", REGRESSOR, {"predictions": [{"variable": [0.25]}, {"variable": [-3.5]}]}),
        ("kmeans", KMEANS, {"predictions": [
            {"closest_cluster": 1.0, "distance_to_cluster": 1.0},
            {"closest_cluster": 2.0, "distance_to_cluster": 0.5}]}),
        ("kmeans", {"d": np.float32([[3, 1], [2, 9]])}, {"predictions": [
            {"closest_cluster": 1.0, "distance_to_cluster": 1.0},
            {"closest_cluster": 0.0, "distance_to_cluster": 2.0}]}),
        ("linear-learner", CLASSIFIER, {"predictions": [
            {"score": 0.75, "predicted_label": 1}, {"score": 0.5, "predicted_label": 2}]}),
        ("linear-learner", {"label": np.array(["a", "b"], object), "p": np.float32([[1, 0, 0], [0, 1, 0]])},
         {"predictions": [{"score": [1, 0, 0], "predicted_label": "a"}, {"score": [0, 1, 0], "predicted_label": "b"}]}),
        ("linear-learner", REGRESSOR, {"predictions": [{"score": 0.25}, {"score": -3.5}]}),
        ("factorization-machines", CLASSIFIER, {"predictions": [
            {"score": 0.75, "predicted_label": 1}, {"score": 0.5, "predicted_label": 2}]}),
        ("pca", {"y": SCORES}, {"projections": [{"projection": [0.25, 0.75]}, {"projection": [0.5, 0.5]}]}),
        ("rcf", {"label": LABEL, "s": np.float32([[0.5], [1.5]])}, {"scores": [{"score": 0.5}, {"score": 1.5}]}),
        ("knn", {"label": LABEL, "distances": SCORES}, {"predictions": [
            {"predicted_label": 1}, {"predicted_label": 2}]}),
        ("knn", {"y": np.float32([0, 2])}, {"predictions": [{"predicted_label": 0.0}, {"predicted_label": 2.0}]}),
        ("ntm", {"y": SCORES}, {"predictions": [{"topic_weights": [0.25, 0.75]}, {"topic_weights": [0.5, 0.5]}]}),
        ("ip-insights", REGRESSOR, {"predictions": [{"dot_product": 0.25}, {"dot_product": -3.5}]}),
        ("xgboost", CLASSIFIER, {"predictions": [{"score": 0.75}, {"score": 0.5}]}),
        ("xgboost", {"p": SCORES}, {"predictions": [{"score": [0.25, 0.75]}, {"score": [0.5, 0.5]}]}),
        ("image-classification", {"y": SCORES}, [[0.25, 0.75], [0.5, 0.5]]),
        ("bare", {"y": SCORES}, [[0.25, 0.75], [0.5, 0.5]]),
        ("bare", CLASSIFIER, {"label": [1, 2], "probabilities": [[0.25, 0.75], [0.5, 0.5]]}),
    ],
)  # fmt: skip
def test_form_is_made_from_the_models_outputs(form: str, outputs: dict[str, Tensor], expected: Any) -> None:
    """Each algorithm's document, from outputs called and shaped as converters call and shape them."""
    assert written(outputs, form) == expected


def test_names_choose_and_rename() -> None:
    """`names` rename; the form `custom` shows only what is named; a form takes its own names first."""
    assert written(CLASSIFIER, "predictions", label="y")["predictions"][0] == {"y": 1, "probabilities": [0.25, 0.75]}
    assert written(CLASSIFIER, "custom", label="y") == {"predictions": [{"y": 1}, {"y": 2}]}
    two = {"a": np.float32([1, 2]), "b": np.float32([3, 4])}
    assert written(two, "rcf", b="score") == {"scores": [{"score": 3.0}, {"score": 4.0}]}
    assert written(two, "kmeans", a="distance_to_cluster", b="closest_cluster")["predictions"][0] == {
        "closest_cluster": 3.0,
        "distance_to_cluster": 1.0,
    }


def test_verbose_shows_everything() -> None:
    """What the form leaves out or makes smaller stands behind it when asked for."""
    knn = {"label": LABEL, "distances": SCORES}
    assert written(knn, "knn", verbose=True)["predictions"][0] == {
        "predicted_label": 1,
        "label": 1,
        "distances": [0.25, 0.75],
    }
    assert written(KMEANS, "kmeans", verbose=True)["predictions"][0]["scores"] == [3.0, 1.0, 2.0]
    assert written(CLASSIFIER, "custom", verbose=True, label="y")["predictions"][0].keys() == {"y", "probabilities"}


@pytest.mark.parametrize(
    ("form", "outputs", "text"),
    [
        ("kmeans", {"label": LABEL}, "response.form: kmeans needs an output for distance_to_cluster, and the"),
        ("kmeans", {"d": np.zeros((2, 0), np.float32)}, "response.form: kmeans needs distances, and the"),
        ("rcf", {"label": LABEL}, "response.form: rcf needs an output for score, and the model's are: label"),
        ("knn", {"s": np.array(["a b"] * 2, object).reshape(2, 1, 1).repeat(2, 1)}, "response.form: knn needs"),
        ("custom", {"label": LABEL}, "response.names: none of them is an output; the model's are: label"),
        ("guess", {"label": LABEL}, f"response.form: 'guess' is unknown; there are: {', '.join(sorted(FORMS))}"),
    ],
)  # fmt: skip
def test_form_that_the_model_cannot_fill(form: str, outputs: dict[str, Tensor], text: str) -> None:
    """The operator's mistake is told with what there is."""
    with pytest.raises(InferenceFailed) as caught:
        written(outputs, form)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("output", [np.float32(7), np.float32([1, 2, 3])])
def test_outputs_without_rows_are_one_record(output: Tensor) -> None:
    """An output that has no row for each of the request's is one record, in every type."""
    outputs = {"label": LABEL, "sum": np.asarray(output)}
    assert written(outputs, "predictions") == {"predictions": [{"label": [1, 2], "sum": np.asarray(output).tolist()}]}
    assert written(outputs, "predictions", JSONLINES).count("\n") == 1
    assert len(written(outputs, "predictions", RECORDIO)) == 1


# Types...


def test_every_type_of_one_answer() -> None:
    """AWS's k-means answer as JSON Lines, CSV, records and an array."""
    assert written(KMEANS, "kmeans", JSONLINES) == (
        '{"closest_cluster":1.0,"distance_to_cluster":1.0}\n{"closest_cluster":2.0,"distance_to_cluster":0.5}\n'
    )
    assert written(KMEANS, "kmeans", CSV) == "1.0,1.0\n2.0,0.5\n"
    assert written(KMEANS, "kmeans", RECORDIO) == [
        {"closest_cluster": [1.0], "distance_to_cluster": [1.0]},
        {"closest_cluster": [2.0], "distance_to_cluster": [0.5]},
    ]
    array = np.load(io.BytesIO(encode(view(KMEANS, ResponseForm("kmeans"), 2, False), NPY)))
    assert (array.tolist(), array.dtype) == ([[1.0, 1.0], [2.0, 0.5]], np.float32)


def test_json_lines_of_bare_forms() -> None:
    """A bare list is a list a line; an image's probabilities have their key there."""
    assert written({"y": SCORES}, "bare", "application/x-jsonlines") == "[0.25,0.75]\n[0.5,0.5]\n"
    assert written({"y": SCORES}, "image-classification", JSONLINES).startswith('{"prediction":[0.25,0.75]}\n')


def test_one_image_is_one_list() -> None:
    """The probabilities of one image are a list, not a list of one list."""
    one = view({"y": SCORES[:1]}, ResponseForm("image-classification"), 1, False)
    assert encode(one, JSON) == b"[0.25,0.75]"


def test_not_a_number() -> None:
    """NaN is null in JSON, which every client reads, and nan in CSV."""
    outputs = {"y": np.float32([np.nan, np.inf])}
    assert written(outputs, "predictions") == {"predictions": [{"y": None}, {"y": None}]}
    assert written(outputs, "predictions", JSONLINES) == '{"y":null}\n{"y":null}\n'
    assert written(outputs, "predictions", CSV) == "nan\ninf\n"


def test_arrays_hold_one_kind() -> None:
    """An array keeps its dtype; numbers beside each other get a common one; texts beside numbers have none."""
    array = encode(view({"y": LABEL}, ResponseForm(), 2, False), NPY)
    assert np.load(io.BytesIO(array)).dtype == np.int64
    mixed = {"y": LABEL, "t": np.array(["a", "b"], object)}
    with pytest.raises(NotAcceptable, match="has texts and numbers"):
        written(mixed, "predictions", NPY)
    nothing = {"a": np.zeros((0, 2)), "b": np.zeros((0, 3))}
    assert np.load(io.BytesIO(encode(view(nothing, ResponseForm(), 0, False), NPY))).shape == (0, 5)


def test_records_carry_on_what_they_brought() -> None:
    """uid and metadata come back with their record, unless there is not one answer for each."""
    shown = view(REGRESSOR, ResponseForm(), 2, False)
    for uids, expected in ((["u1", None], ["u1", ""]), (["u1"], ["", ""])):
        body = encode(shown, RECORDIO, uids, None)
        assert [Record.FromString(b"".join(parts)).uid for parts in split_frames(body)] == expected


def test_empty_outputs_leave_no_cells() -> None:
    """An output without values adds nothing to a line."""
    assert written({"a": LABEL, "b": np.zeros((2, 0))}, "predictions", CSV) == "1\n2\n"


def test_documents_are_answered_one_by_one() -> None:
    """Each of several JSON documents has its own answer, a line each."""
    shown = view({"y": np.float32([1, 2, 3])}, ResponseForm(), 3, False)
    assert encode_documents(shown, (2, 1)) == b'{"predictions":[{"y":1.0},{"y":2.0}]}\n{"predictions":[{"y":3.0}]}\n'


# Parts...


async def parts_of(*values: Any) -> AsyncIterator[InferenceResponse]:
    """A model that answers in parts."""
    for value in values:
        yield InferenceResponse({"token": np.asarray(value)})


def streamed(media: str, form: str, *values: Any) -> list[bytes]:
    """The chunks of a streamed answer."""

    async def collect() -> list[bytes]:
        return [chunk async for chunk in chunks(parts_of(*values), ResponseForm(form), media, False)]

    return asyncio.run(collect())


def test_parts_are_whole_records() -> None:
    """Each part ends with a line feed; one part may hold several records."""
    assert streamed(JSONLINES, "predictions", [1], [2, 3]) == [b'{"token":1}\n', b'{"token":2}\n{"token":3}\n']
    assert streamed(CSV, "predictions", [1], [2]) == [b"1\n", b"2\n"]
    assert labels(b"".join(streamed(RECORDIO, "predictions", [1], [2]))) == [{"token": [1.0]}, {"token": [2.0]}]
    assert streamed(JSONLINES, "predictions", "a") == [b'{"token":"a"}\n']


@pytest.mark.parametrize("form", ["predictions", "bare", "pca"])
def test_parts_of_json_are_one_document(form: str) -> None:
    """Together they are what would have come as a whole."""
    rows = np.float32([[1, 2], [3, 4]])
    whole = encode(view({"token": rows}, ResponseForm(form), 2, False), JSON)
    joined = b"".join(streamed(JSON, form, rows[:1], rows[1:]))
    assert json.loads(joined) == json.loads(whole)
    assert joined.endswith(b"\n")


def test_no_parts_are_no_chunks() -> None:
    """A model that says nothing sends nothing."""
    assert streamed(JSON, "predictions") == []


def test_streams_offer_no_arrays() -> None:
    """npy has a length in its header, so it is not for streams; all else is."""
    assert set(responses.OFFERS) - set(responses.STREAMED_OFFERS) == {NPY}
