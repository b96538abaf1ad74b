"""Runs under the sagemaker SDK's interpreter, not under pytest: predicts with its classes and prints what they give.

`python sdk_calls.py URL < rows` reads `{"iris": rows, "kmeans": rows}` from standard input.
"""

import io
import json
import sys
from typing import Any
from unittest.mock import Mock

import boto3
import numpy as np
import pandas
from sagemaker import Session
from sagemaker.amazon.common import RecordDeserializer, RecordSerializer
from sagemaker.amazon.kmeans import KMeansPredictor
from sagemaker.deserializers import (
    BytesDeserializer,
    CSVDeserializer,
    JSONDeserializer,
    JSONLinesDeserializer,
    NumpyDeserializer,
    PandasDeserializer,
    StreamDeserializer,
    StringDeserializer,
)
from sagemaker.iterators import LineIterator
from sagemaker.predictor import Predictor
from sagemaker.serializers import (
    CSVSerializer,
    IdentitySerializer,
    JSONLinesSerializer,
    JSONSerializer,
    LibSVMSerializer,
    NumpySerializer,
)


def session(url: str) -> Session:
    """The SDK's session, with nothing but the runtime behind it."""
    made = boto3.Session("AKIDEXAMPLE", "any secret", region_name="us-east-1")
    runtime = made.client("sagemaker-runtime", endpoint_url=url)
    return Session(boto_session=made, sagemaker_client=Mock(), sagemaker_runtime_client=runtime)


def sent(rows: np.ndarray) -> dict[str, tuple[Any, Any]]:
    """How the rows are sent: name -> the SDK's serializer and what it is given."""
    lines = [{"features": row} for row in rows.tolist()]
    sparse = [{"data": {"features": {"keys": [0, 1, 2, 3], "shape": [4], "values": row}}} for row in rows.tolist()]
    libsvm = "\n".join(" ".join(f"{index}:{value!r}" for index, value in enumerate(row)) for row in rows.tolist())
    return {
        "csv": (CSVSerializer(), rows),
        "csv of a frame": (CSVSerializer(), pandas.DataFrame(rows)),
        "json": (JSONSerializer(), rows),
        "json instances": (JSONSerializer(), {"instances": lines}),
        "json sparse": (JSONSerializer(), {"instances": sparse}),
        "jsonlines": (JSONLinesSerializer(), lines),
        "jsonlines sparse": (JSONLinesSerializer(), sparse),
        "npy": (NumpySerializer(), rows),
        "npy of float64": (NumpySerializer(dtype=np.float64), rows),
        "recordio": (RecordSerializer(), rows),
        "recordio of float64": (RecordSerializer(), rows.astype(np.float64)),
        "libsvm": (LibSVMSerializer(), libsvm),
        "octets": (IdentitySerializer(), json.dumps(rows.tolist()).encode()),
    }


def read() -> dict[str, tuple[Any, Any]]:
    """How the answer is read: name -> the SDK's deserializer, and what makes a matrix of what it gives."""
    return {
        "csv": (CSVDeserializer(), matrix),
        "json": (JSONDeserializer(), matrix),
        "jsonlines": (JSONLinesDeserializer(), matrix),
        "npy": (NumpyDeserializer(), matrix),
        "csv as npy": (NumpyDeserializer(accept="text/csv"), matrix),
        "json as npy": (NumpyDeserializer(accept="application/json"), matrix),
        "frame of json": (PandasDeserializer(accept="application/json"), lambda frame: matrix(frame.to_numpy())),
        "string": (StringDeserializer(accept="text/csv"), of_csv),
        "bytes": (BytesDeserializer(accept="application/json"), lambda data: matrix(json.loads(data))),
        "stream": (StreamDeserializer(accept="application/jsonlines"), lambda pair: matrix(lines_of(pair[0]))),
        "recordio": (RecordDeserializer(), lambda records: matrix([label(record, "scores") for record in records])),
    }  # fmt: skip


def matrix(values: Any) -> list[list[float]]:
    """Numbers, or texts of numbers, as the float32 that they stand for."""
    return np.asarray(values, np.float64).astype(np.float32).tolist()


def lines_of(stream: Any) -> list[Any]:
    """The JSON lines of an HTTP body."""
    return [json.loads(line) for line in stream.read().splitlines()]


def of_csv(text: str) -> list[list[float]]:
    """Lines of numbers."""
    return matrix(np.loadtxt(io.StringIO(text), delimiter=","))


def label(record: Any, name: str) -> list[float]:
    """What a record's label map holds under the name."""
    return list(record.label[name].float32_tensor.values)


def event_lines(runtime: Any, rows: np.ndarray) -> list[Any]:
    """A streamed answer by the SDK's LineIterator."""
    answer = runtime.invoke_endpoint_with_response_stream(
        EndpointName="scores", Body=json.dumps(rows.tolist()), ContentType="application/json"
    )
    return [json.loads(line) for line in LineIterator(answer["Body"])]


def main() -> None:
    """Predict with every serializer, with every deserializer, and with the predictor of AWS's k-means."""
    rows = np.array(json.load(sys.stdin), np.float32)
    made = session(sys.argv[1])
    results: dict[str, Any] = {"sent": {}, "read": {}}
    for name, (serializer, given) in sent(rows).items():
        predictor = Predictor("scores", made, serializer=serializer, deserializer=NumpyDeserializer())
        results["sent"][name] = matrix(predictor.predict(given))
    for name, (deserializer, as_matrix) in read().items():
        predictor = Predictor("scores", made, serializer=CSVSerializer(), deserializer=deserializer)
        results["read"][name] = as_matrix(predictor.predict(rows))
    single = Predictor("scores", made, serializer=CSVSerializer(), deserializer=JSONDeserializer())
    results["one row"] = matrix(single.predict(rows[0]))
    clusters = KMeansPredictor("iris_kmeans", made).predict(rows)
    results["kmeans"] = [
        [label(record, name)[0] for name in ("closest_cluster", "distance_to_cluster")] for record in clusters
    ]
    results["events"] = event_lines(made.sagemaker_runtime_client, rows)
    json.dump(results, sys.stdout)


main()
