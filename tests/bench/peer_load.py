"""Requests to a peer and to the gateway: the same rows, each in the body that its server takes."""

import functools
import json
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import load
import numpy as np
from load import Sample
from peer_environments import Started
from peer_table import Peer, Speech

TOLERANCE = 1e-5
"""Between releases of ONNX Runtime, which add up in another order."""


def measure(contender: Started, speech: Speech, rows: int, connections: int, seconds: int) -> Sample:
    """Load one server; every answer must be a 200."""
    return load.measure(contender, _body(speech, rows), connections, seconds, contender.key)


def check_alike(peer: Peer, ours: Started, theirs: Started) -> float:
    """The largest difference between the two servers' numbers; ends the program where they are others."""
    largest = 0.0
    for rows in (1, 32):
        own, other = _numbers(ours, peer.ours, rows), _numbers(theirs, peer.speech, rows)
        if own.shape != other.shape or not np.allclose(own, other, rtol=TOLERANCE, atol=TOLERANCE):
            raise SystemExit(f"the gateway and {peer.name} differ in the numbers they give for {rows} rows")
        largest = max(largest, float(np.abs(own - other).max()))
    return largest


def _numbers(contender: Started, speech: Speech, rows: int) -> Any:
    headers = {"Content-Type": "application/json"}
    if contender.key:
        headers["Authorization"] = f"APPCODE {contender.key}"
    call = urllib.request.Request(contender.url, speech.body(rows), headers)
    with urllib.request.urlopen(call, timeout=60) as reply:
        return np.array(speech.answer(json.load(reply)), np.float32)


@functools.cache
def _body(speech: Speech, rows: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    path = folder / f"{rows}.json"
    path.write_bytes(speech.body(rows))
    return path
