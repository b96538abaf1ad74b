"""The console's routes: who may see a page, in which language, and what happens to a mistake."""

import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from gateway.console import detail, listing, machines, people, playground, releases, revisions, scaling
from gateway.console.rendering import STATIC, Renderer
from gateway.console.sessions import COOKIE, LONGEST_SECONDS, Sessions, check_csrf
from gateway.console.texts import LANGUAGES, preferred, texts
from gateway.console.visit import Row, Visit
from gateway.control.accounts import User
from gateway.control.calls import Calls
from gateway.control.errors import ControlError, Invalid, NotFound, NotSignedIn, TooOften

CONSOLE = "/console"
ROWS: Sequence[Row] = (
    *listing.PAGES, *detail.PAGES, *playground.PAGES, *releases.PAGES, *scaling.PAGES, *machines.PAGES,
    *revisions.PAGES, *people.PAGES,
)  # fmt: skip

THEMES = ("auto", "light", "dark")
_LANGUAGE, _THEME = "tensorgate_language", "tensorgate_theme"
_YEAR = 365 * 86400
_FORM_BYTES = 1 << 20
_NOBODY = User("", "member")

log = logging.getLogger("tensorgate.console")


class Site:
    """The application below CONSOLE."""

    def __init__(self, calls: Calls, sessions: Sessions) -> None:
        self._calls = calls
        self._sessions = sessions
        self._renderer = Renderer()
        routes: list[Route | Mount] = [
            Route("/", self._home),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
            Route("/settings", self._settings, methods=["POST"]),
            *(Route(row.path, self._answering(row), methods=[row.method]) for row in ROWS),
            Mount("/static", _Static(directory=STATIC)),
        ]
        handlers: dict[Any, Any] = {
            HTTPException: self._no_page, ControlError: self._refused, Exception: self._failed,
        }  # fmt: skip
        self.app = Starlette(routes=routes, exception_handlers=handlers)

    def _answering(self, row: Row) -> Any:
        async def answer(request: Request) -> Response:
            found = await self._sessions.find(request)
            if found is None:
                return self._to_sign_in(request)
            session, user = found
            visit = self._visit(request, user, session.csrf)
            try:
                if request.method == "POST":
                    visit = self._visit(request, user, session.csrf, await _form(request))
                    check_csrf(session, visit.field("csrf"))
                return await row.page(visit)
            except ControlError as error:
                return self._mistake(visit, error)
            except Exception as error:  # not left to Starlette, which raises it again for the server to log twice more
                return await self._failed(request, error)

        return answer

    def _visit(self, request: Request, user: User, csrf: str, form: FormData | None = None) -> Visit:
        cookies = request.cookies
        language = preferred(cookies.get(_LANGUAGE, ""), request.headers.get("accept-language", ""))
        theme = cookies.get(_THEME, THEMES[0])
        theme = theme if theme in THEMES else THEMES[0]
        return Visit(request, user, self._calls, texts(language), self._renderer, csrf, theme, form or FormData())

    def _mistake(self, visit: Visit, error: ControlError) -> Response:
        return visit.page("mistake.html", error.status, error=error)

    # Pages that need no session...

    async def _home(self, request: Request) -> Response:
        return RedirectResponse(f"{CONSOLE}/services", 303)

    def _to_sign_in(self, request: Request) -> Response:
        wanted = request.url.path if request.method == "GET" else f"{CONSOLE}/services"
        if request.headers.get("hx-request") or request.url.path.endswith(".json"):
            return Response(status_code=401, headers={"HX-Redirect": f"{CONSOLE}/sign-in"})
        return RedirectResponse(f"{CONSOLE}/sign-in?to={quote(wanted)}", 303)

    async def _sign_in(self, request: Request) -> Response:
        form = await _form(request) if request.method == "POST" else FormData()
        visit = self._visit(request, _NOBODY, "", form)
        wanted = _own_path(visit.field("to") or request.query_params.get("to", ""))
        if request.method == "GET":
            return visit.page("sign-in.html", to=wanted, error=None)
        peer = request.client.host if request.client else ""
        try:
            if not _from_here(request):
                raise NotSignedIn("another page has sent this: sign in here")
            cookie = await self._sessions.begin(visit.field("token").strip(), peer)
        except ControlError as error:
            page = visit.page("sign-in.html", error.status, to=wanted, error=error)
            if isinstance(error, TooOften):
                page.headers["retry-after"] = str(error.seconds)
            return page
        reply = RedirectResponse(wanted, 303)
        secure = request.url.scheme == "https"
        reply.set_cookie(
            COOKIE, cookie, max_age=int(LONGEST_SECONDS), path="/", secure=secure, httponly=True, samesite="strict"
        )
        return reply

    async def _sign_out(self, request: Request) -> Response:
        found = await self._sessions.find(request)
        if found is not None:
            visit = self._visit(request, found[1], found[0].csrf, await _form(request))
            try:
                check_csrf(found[0], visit.field("csrf"))
            except ControlError as error:
                return self._mistake(visit, error)
            self._sessions.end(request)
        reply = RedirectResponse(f"{CONSOLE}/sign-in", 303)
        reply.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return reply

    async def _settings(self, request: Request) -> Response:
        """Another language or theme, kept in a cookie; it changes nothing else, so anybody may ask for it."""
        visit = self._visit(request, _NOBODY, "", await _form(request))
        reply = RedirectResponse(_own_path(visit.field("to")), 303)
        for cookie, name, known in ((_LANGUAGE, "language", LANGUAGES), (_THEME, "theme", THEMES)):
            if visit.field(name) in known:
                reply.set_cookie(cookie, visit.field(name), max_age=_YEAR, path=CONSOLE, httponly=True, samesite="lax")
        return reply

    # Mistakes...

    async def _no_page(self, request: Request, error: Exception) -> Response:
        found = await self._sessions.find(request)
        visit = self._visit(request, *((found[1], found[0].csrf) if found else (_NOBODY, "")))
        return self._mistake(visit, NotFound(visit.texts("mistake.no_page")))

    async def _refused(self, request: Request, error: Exception) -> Response:
        """Of pages that need no session: a form that cannot be read."""
        assert isinstance(error, ControlError)
        return self._mistake(self._visit(request, _NOBODY, ""), error)

    async def _failed(self, request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        visit = self._visit(request, _NOBODY, "")
        return visit.page("mistake.html", 500, error=visit.texts("mistake.internal"))


class _Static(StaticFiles):
    """Files that a browser may keep for as long as their address says the same."""

    async def get_response(self, path: str, scope: Any) -> Response:
        reply = await super().get_response(path, scope)
        versioned = b"v=" in scope["query_string"]
        reply.headers["cache-control"] = "public, max-age=31536000, immutable" if versioned else "no-cache"
        reply.headers["x-content-type-options"] = "nosniff"
        return reply


async def _form(request: Request) -> FormData:
    """Raises Invalid."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length[:18]) > _FORM_BYTES:
        raise Invalid(f"a form has a Content-Length of at most {_FORM_BYTES} bytes")
    try:
        return await request.form(max_files=0, max_fields=2000)
    except (HTTPException, ClientDisconnect, ValueError) as error:  # the last is of odd charsets
        raise Invalid(
            f"the form cannot be read: {getattr(error, 'detail', 'it is cut short, or of an unknown charset')}"
        ) from None


def _own_path(path: str) -> str:
    """The path, if it is the console's; else its beginning."""
    own = path.startswith(f"{CONSOLE}/") and "//" not in path and "\\" not in path and path.isprintable()
    return path if own else f"{CONSOLE}/services"


def _from_here(request: Request) -> bool:
    """Whether a form comes from a page of this site, as far as the browser says."""
    return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
