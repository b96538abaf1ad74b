"""Paths that clients of other servers ask for and that are not served here, and what is to be said of them."""

import re

from gateway.types import Call

_VERB = re.compile(r"/v2/models/([^/:]{1,128}(?:/versions/[^/:]{1,32})?):(infer|generate|generate_stream)\Z")
_CONFIG = re.compile(r"/v2/models/[^/]+(?:/versions/[^/]+)?/config\Z")
_STATISTICS = re.compile(r"/v2/models(?:/[^/]+(?:/versions/[^/]+)?)?/stats\Z")


def advice(call: Call) -> str | None:
    """What to ask for instead, if the path is one of those."""
    if verb := _VERB.search(call.raw_path):
        return f"no such path; the protocol's own is POST /v2/models/{verb[1]}/{verb[2]}"
    if _CONFIG.search(call.raw_path):
        return "Triton's model configuration is not offered here; GET /v2/models/NAME tells what one takes and gives"
    if _STATISTICS.search(call.raw_path):
        return "Triton's statistics are not offered here; GET /metrics counts and times what is asked of each model"
    return None
