"""The control plane over HTTP: every endpoint of the table below PREFIX, and the operators' pages beside it."""

import ipaddress
import logging
import re
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from gateway.console.sessions import Sessions
from gateway.console.site import CONSOLE, Site
from gateway.control.accounts import User
from gateway.control.calls import ENDPOINTS, Calls, answered, check_caller, mistake
from gateway.control.document import document
from gateway.control.endpoint import PREFIX, Ask, Endpoint
from gateway.control.errors import ControlError, Invalid, NotSignedIn
from gateway.control.plane import Control
from gateway.control.signin import SignIn
from gateway.control.testing import Testing

BODY_BYTES = 4 << 20
METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"

log = logging.getLogger("tensorgate.control")


class Api:
    """The ASGI application of the admin listener."""

    def __init__(self, control: Control, open_pages: bool, sign_in: SignIn) -> None:
        self._control = control
        self._open_pages = open_pages
        """Whether metrics and status are shown without a token: on this machine's own address only."""
        self._sign_in = sign_in
        self._sessions = Sessions(sign_in)
        site = Site(Calls(control), self._sessions)
        self._testing = Testing(control)
        self._document = msgspec.json.encode(document(ENDPOINTS))
        routes = [Route(PREFIX + one.path, self._answering(one), methods=[one.method]) for one in ENDPOINTS]
        pages = {"/healthz": self._healthz, "/metrics": self._metrics, "/statusz": self._statusz}
        pages[f"{PREFIX}/openapi.json"] = self._openapi
        # Of paths that both match, the one without a field comes first: /services/delete is no service.
        routes.sort(key=lambda route: "{" in route.path)
        self._app = Starlette(
            routes=[
                *(Route(path, page) for path, page in pages.items()),
                *routes,
                Mount(f"{PREFIX}/services/{{name}}/test", self._test),
                Route("/", _to_console),
                Mount(CONSOLE, site.app),
            ],
            exception_handlers={404: _not_found, 405: _not_found, Exception: _failed},
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    def _answering(self, endpoint: Endpoint) -> Any:
        async def answer(request: Request) -> Response:
            try:
                return await self._answer(endpoint, request)
            except ControlError as error:
                return _problem(error)

        return answer

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        user = await self._user(request)
        check_caller(endpoint, user)
        body = await _body(endpoint, request)
        etag = request.headers.get("if-match", "")
        reply = await answered(
            endpoint, Ask(self._control, user, request.path_params, request.query_params, body, etag)
        )
        if reply.status == 204:
            return Response(status_code=204)
        return Response(msgspec.json.encode(reply.body), reply.status, dict(reply.headers), "application/json")

    async def _test(self, scope: Any, receive: Any, send: Any) -> None:
        """The online test's calls of a service."""
        try:
            user = await self._user(HTTPConnection(scope))
            await self._testing.pass_on(user, scope["path_params"]["name"], scope, receive, send)
        except ControlError as error:
            await _problem(error)(scope, receive, send)

    async def _user(self, connection: HTTPConnection) -> User:
        """Whose token the call has, or whose session of the console. Raises NotSignedIn or NotAllowed."""
        authorization = connection.headers.get("authorization", "")
        if not authorization and (user := await self._sessions.user(connection)) is not None:
            return user
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise NotSignedIn("send a token: Authorization: Bearer <token>")
        user = await self._sign_in.holder(token)
        if user is None:
            raise NotSignedIn("the token is not valid")
        return user

    # Pages...

    async def _healthz(self, request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def _openapi(self, request: Request) -> Response:
        return Response(self._document, media_type="application/json")

    async def _metrics(self, request: Request) -> Response:
        return await self._page(request, "metrics")

    async def _statusz(self, request: Request) -> Response:
        return await self._page(request, "describe")

    async def _page(self, request: Request, what: str) -> Response:
        try:
            if not self._open_pages or not _by_address(request):
                await self._user(request)
        except ControlError as error:
            return _problem(error)
        assert self._control.fleet is not None
        if what == "metrics":
            return Response(await self._control.fleet.metrics(), headers={"content-type": METRICS_TYPE})
        return Response(msgspec.json.encode(await self._control.fleet.describe()), media_type="application/json")


def _by_address(request: Request) -> bool:
    """Whether the listener is called by an address or as localhost.

    NOTE: whoever owns another name may have it lead here, and then a browser lets that owner's page read the answer
    (DNS rebinding). It sends no cookie of ours under that name, so all that asks for a session or a token is safe.
    """
    host = request.headers.get("host", "").lower()
    name = re.sub(r":[0-9]*\Z", "", host).removesuffix(".")
    if not host or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


async def _body(endpoint: Endpoint, request: Request) -> Any:
    """The call's body as the endpoint takes it. Raises Invalid."""
    if endpoint.takes is None:
        return None
    raw = bytearray()
    try:
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > BODY_BYTES:
                raise Invalid(f"the body is larger than {BODY_BYTES} bytes")
    except ClientDisconnect:
        raise Invalid("the body was cut short") from None
    try:
        return msgspec.json.decode(bytes(raw) or b"{}", type=endpoint.takes)
    except msgspec.ValidationError as error:
        raise mistake(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the body is not JSON: {error}") from None


async def _to_console(request: Request) -> Response:
    return RedirectResponse(CONSOLE, 303)


def _problem(error: ControlError) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, NotSignedIn) else {}
    body = {"error": {"message": str(error), "field": error.field, "status": error.status}}
    return Response(msgspec.json.encode(body), error.status, headers, "application/json")


async def _not_found(request: Request, error: Any) -> Response:
    text = "no such path" if error.status_code == 404 else "the path exists, with other methods"
    body = {
        "error": {"message": f"{text}; {PREFIX}/openapi.json has all of them", "field": "", "status": error.status_code}
    }
    return Response(msgspec.json.encode(body), error.status_code, error.headers or {}, "application/json")


async def _failed(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    body = {"error": {"message": "internal error; the gateway's log has its reason", "field": "", "status": 500}}
    return Response(msgspec.json.encode(body), 500, media_type="application/json")
