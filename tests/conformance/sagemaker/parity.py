"""SageMaker's ways to carry a tensor: every format in, and every format out."""

import csv
import io
import json
from collections.abc import Callable
from functools import partial

import numpy as np
from conformance.senders import ALL, Gate, Sender, array_of, post

from adapters._record_pb2 import Record
from adapters._recordio import split_frames
from adapters._recordio_labels import frame

JSON, LINES, CSV = "application/json", "application/jsonlines", "text/csv"
RECORDIO, NPY, LIBSVM = "application/x-recordio-protobuf", "application/x-npy", "text/libsvm"

WITHOUT_TEXT = ALL - {"string"}


def _instances(tensor: np.ndarray) -> bytes:
    return json.dumps({"instances": tensor.tolist()}).encode()


def _bare(tensor: np.ndarray) -> bytes:
    return json.dumps(tensor.tolist()).encode()


def _lines(tensor: np.ndarray) -> bytes:
    return b"".join(json.dumps({"features": row}).encode() + b"\n" for row in tensor.tolist())


def _csv(tensor: np.ndarray) -> bytes:
    file = io.StringIO()
    csv.writer(file).writerows(tensor.tolist())
    return file.getvalue().encode()


def _npy(tensor: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, tensor.astype(str) if tensor.dtype == object else tensor)
    return file.getvalue()


def _recordio(tensor: np.ndarray) -> bytes:
    frames = []
    for row in tensor:
        record = Record()
        field = "float32_tensor" if tensor.dtype == np.float32 else "float64_tensor"
        getattr(record.features["values"], field).values.extend(row.tolist())
        frames.append(frame(record.SerializeToString()))
    return b"".join(frames)


def _libsvm(tensor: np.ndarray) -> bytes:
    lines = [" ".join(["0", *(f"{at}:{value!r}" for at, value in enumerate(row, 1))]) for row in tensor.tolist()]
    return "\n".join(lines).encode()


def _from_json(body: bytes, dtype: np.dtype) -> np.ndarray:
    rows = json.loads(body)["predictions"]
    return array_of([row["y"] for row in rows], dtype)


def _from_lines(body: bytes, dtype: np.dtype) -> np.ndarray:
    return array_of([json.loads(line)["y"] for line in body.splitlines()], dtype)


def _from_csv(body: bytes, dtype: np.dtype) -> np.ndarray:
    rows = list(csv.reader(io.StringIO(body.decode())))
    if dtype.kind == "f":
        return np.array([[float(cell) for cell in row] for row in rows]).astype(dtype)
    return (
        np.array(rows, object) if dtype.kind == "O" else np.array([[int(cell) for cell in row] for row in rows], dtype)
    )


def _from_npy(body: bytes, dtype: np.dtype) -> np.ndarray:
    array = np.load(io.BytesIO(body))
    return array.astype(object) if dtype.kind == "O" else array


def _from_recordio(body: bytes, dtype: np.dtype) -> np.ndarray:
    rows = []
    for parts in split_frames(body):
        (label,) = Record.FromString(b"".join(parts)).label.values()
        rows.append(list(label.float32_tensor.values))
    return np.array(rows, np.float32)


def _send(
    write: Callable[[np.ndarray], bytes],
    sent: str,
    read: Callable[[bytes, np.dtype], np.ndarray],
    wanted: str,
    gate: Gate,
    model: str,
    tensor: np.ndarray,
) -> np.ndarray:
    url = f"{gate.url}/endpoints/{model}/invocations"
    reply = post(url, write(tensor), {"Content-Type": sent, "Accept": wanted})
    return read(reply.content, tensor.dtype)


INS = {
    "instances": (_instances, JSON, ALL),
    "json": (_bare, JSON, ALL),
    "lines": (_lines, LINES, ALL),
    "csv": (_csv, CSV, WITHOUT_TEXT - {"bool"}),
    "npy": (_npy, NPY, ALL),
    "recordio": (_recordio, RECORDIO, frozenset({"float32", "float64"})),
    "libsvm": (_libsvm, LIBSVM, frozenset({"float32", "float64"})),
}
OUTS = {
    "json": (_from_json, JSON, ALL, False),
    "lines": (_from_lines, LINES, ALL, False),
    "csv": (_from_csv, CSV, ALL - {"bool"}, True),
    "npy": (_from_npy, NPY, ALL, True),
    "recordio": (_from_recordio, RECORDIO, frozenset({"float32"}), True),
}

SENDERS = {
    f"{given}-to-{wanted}": Sender(partial(_send, write, sent, read, accept), dtypes & out_dtypes, not_finite)
    for given, (write, sent, dtypes) in INS.items()
    for wanted, (read, accept, out_dtypes, not_finite) in OUTS.items()
}
