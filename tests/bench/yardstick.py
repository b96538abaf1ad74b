"""The yardstick: the least Python that can answer a predict, and nothing of a product.

A Starlette route, pysimdjson, one inline `session.run`, orjson. No names, versions, limits, errors, counters or log.
"""

from typing import Any

import numpy as np
import orjson
import simdjson
from bare import model_from_command_line, serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PARSER = simdjson.Parser()


def decode(body: bytes) -> np.ndarray:
    """The rows under "instances"; ValueError for anything but a rectangle of numbers. Shapes: [rows, features]."""
    document: Any = PARSER.parse(body)
    # A parser refuses its next document while anything still refers to this one...
    rows: Any = None
    row: Any = None
    try:
        rows = document["instances"]
        width = len(rows[0])
        for row in rows:
            if len(row) != width:
                raise ValueError("ragged")
        values = np.frombuffer(rows.as_buffer(of_type="d"), np.float64)
        return values.astype(np.float32).reshape(len(rows), width)
    finally:
        document = rows = row = None


def encode(scores: np.ndarray) -> bytes:
    if not np.isfinite(scores).all():
        raise ValueError("not finite")
    return b'{"predictions":' + orjson.dumps(scores, option=orjson.OPT_SERIALIZE_NUMPY) + b"}"


if __name__ == "__main__":
    model = model_from_command_line()

    async def predict(request: Request) -> Response:
        """Answer one call."""
        scores = model.run(decode(await request.body()))
        return Response(encode(scores), media_type="application/json")

    serve(Starlette(routes=[Route("/v1/models/{name}:predict", predict, methods=["POST"])]))
