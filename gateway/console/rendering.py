"""Templates made into pages, and the files that they refer to."""

import hashlib
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from starlette.responses import HTMLResponse, Response

from gateway.console.texts import LANGUAGES, Texts

HERE = Path(__file__).parent
STATIC = HERE / "static"

POLICY = "; ".join(
    (
        "default-src 'self'", "img-src 'self' data: blob:", "object-src 'none'", "base-uri 'none'",
        "form-action 'self'", "frame-ancestors 'none'",
    )
)  # fmt: skip
"""Of every page: nothing inline, nothing from elsewhere."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Renderer:
    """Makes pages."""

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals["static"] = address
        self._environment.globals["languages"] = LANGUAGES
        self._environment.filters["moment"] = moment

    def page(self, template: str, texts: Texts, theme: str, status: int, **given: Any) -> Response:
        """One page."""
        text = self._environment.get_template(template).render(
            t=texts, lang=texts.language, theme=theme, **{"said": "", "here": "", **given}
        )
        return HTMLResponse(text, status, HEADERS)


@cache
def address(name: str) -> str:
    """Where a file of `static/` is; the address changes when the file does, so that browsers may keep it."""
    return f"/console/static/{name}?v={hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


def moment(at: str) -> str:
    """A moment of the API, for people; whatever is none as it is."""
    try:
        return datetime.fromisoformat(at).strftime("%Y-%m-%d %H:%M:%S %Z").strip()
    except ValueError:
        return at
