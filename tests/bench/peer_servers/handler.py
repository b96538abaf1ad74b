"""The MLP as a handler of TorchServe's and of multi-model-server's, whose contract is the same function."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from session import open_session

SESSIONS: list[Any] = []


def handle(data: Any, context: Any) -> Any:
    """`instances` to `predictions`; called without data once, to get ready."""
    if not SESSIONS:
        SESSIONS.append(open_session())
    return [_predictions(one.get("body") or one.get("data")) for one in data or ()]


def _predictions(body: Any) -> Any:
    document = json.loads(body) if isinstance(body, bytes | bytearray) else body
    rows = np.array(document["instances"], np.float32)
    return {"predictions": SESSIONS[0].run(["y"], {"x": rows})[0].tolist()}
