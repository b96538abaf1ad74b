"""One request of a page: who asks, in which language, and how to answer."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gateway.console.rendering import Renderer
from gateway.console.texts import Texts
from gateway.control.accounts import User
from gateway.control.calls import Calls


class Visit(Struct, frozen=True):
    """What a page is made from."""

    request: Request
    user: User
    calls: Calls
    texts: Texts
    renderer: Renderer
    csrf: str
    theme: str
    form: FormData

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        if_match: str = "",
        **params: str,
    ) -> Any:
        """Call an endpoint of the control API as the visitor. Raises ControlError.

        The fields of its path are those of the page's, and those given.
        """
        return await self.calls(self.user, method, path, body, query, if_match, **{**self.params, **params})

    @property
    def params(self) -> Mapping[str, str]:
        """The path's."""
        return self.request.path_params

    @property
    def query(self) -> Mapping[str, str]:
        """The query's."""
        return self.request.query_params

    def field(self, name: str) -> str:
        """A field of the form; empty if it has none."""
        value = self.form.get(name, "")
        return value if isinstance(value, str) else ""

    def page(self, template: str, status: int = 200, **given: Any) -> Response:
        """A page; it begins with what `go` said."""
        said = self.query.get("said", "")
        given["said"] = said if f"said.{said}" in self.texts.texts else ""
        return self.renderer.page(template, self.texts, self.theme, status, user=self.user, csrf=self.csrf, **given)

    def go(self, path: str, said: str = "") -> Response:
        """On to another page of the console, which begins with what is said there: a key of the texts."""
        return RedirectResponse(f"/console{path}" + (f"?said={said}" if said else ""), 303)


Page = Callable[[Visit], Awaitable[Response]]


class Row(Struct, frozen=True):
    """A page in the site's table."""

    method: str
    path: str
    """Below /console."""
    page: Page
