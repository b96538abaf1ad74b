"""Who has signed in to the console: a cookie for a browser, kept in memory as a digest, over when its token is."""

import hashlib
import hmac
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from msgspec import Struct
from starlette.requests import HTTPConnection

from gateway.control.accounts import User, digest
from gateway.control.errors import NotAllowed, NotSignedIn, TooOften
from gateway.control.signin import SignIn
from gateway.forwarding import SESSION_COOKIE

COOKIE = SESSION_COOKIE.decode()
CSRF_HEADER = "x-csrf-token"
IDLE_SECONDS = 3600.0
LONGEST_SECONDS = 12 * 3600.0
MOST = 10_000
"""Sessions, and addresses whose wrong tokens are counted."""
FREE_TRIES = 5
LONGEST_LOCK_SECONDS = 300.0

Clock = Callable[[], float]


class Session(Struct):
    """One browser's."""

    token_digest: str
    csrf: str
    ends: float
    seen: float


class Lockout:
    """After a few wrong tokens an address must wait, each time twice as long."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Address to how often in a row, and until when it is locked out."""

    def check(self, peer: str) -> None:
        """Raise TooOften while the address must wait."""
        left = self._wrong.get(peer, (0, 0.0))[1] - self._clock()
        if left > 0:
            raise TooOften(f"too many wrong tokens; try again in {math.ceil(left)} s", math.ceil(left))

    def wrong(self, peer: str) -> None:
        """One more."""
        count = self._wrong.pop(peer, (0, 0.0))[0] + 1
        seconds = min(2.0 ** (count - FREE_TRIES), LONGEST_LOCK_SECONDS) if count >= FREE_TRIES else 0.0
        self._wrong[peer] = (count, self._clock() + seconds)
        if len(self._wrong) > MOST:
            self._wrong.popitem(last=False)

    def right(self, peer: str) -> None:
        """The address has shown that it knows one."""
        self._wrong.pop(peer, None)


class Sessions:
    """All of them."""

    def __init__(self, sign_in: SignIn, clock: Clock = monotonic) -> None:
        self._sign_in = sign_in
        self._clock = clock
        self._lockout = Lockout(clock)
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    async def begin(self, token: str, peer: str) -> str:
        """The cookie of a new session. Raises NotSignedIn, or TooOften."""
        self._lockout.check(peer)
        if await self._sign_in.holder(token) is None:
            self._lockout.wrong(peer)
            raise NotSignedIn("the token is not valid", "token")
        self._lockout.right(peer)
        cookie, now = secrets.token_urlsafe(32), self._clock()
        session = Session(digest(token[:256]), secrets.token_urlsafe(24), now + LONGEST_SECONDS, now)
        self._sessions[_key(cookie)] = session
        if len(self._sessions) > MOST:
            self._sessions.popitem(last=False)
        return cookie

    def end(self, connection: HTTPConnection) -> None:
        """The browser signs out."""
        self._sessions.pop(_key(_cookie(connection)), None)

    async def find(self, connection: HTTPConnection) -> tuple[Session, User] | None:
        """The browser's session, and who it is; None if it has none that is good."""
        key = _key(_cookie(connection))
        session = self._sessions.get(key)
        if session is None:
            return None
        now = self._clock()
        user = None
        if now < session.ends and now - session.seen < IDLE_SECONDS:
            user = await self._sign_in.owner(session.token_digest)
        if user is None:
            self._sessions.pop(key, None)
            return None
        session.seen = now
        return session, user

    async def user(self, connection: HTTPConnection) -> User | None:
        """Whose session a call of the API comes with, if any. Raises NotAllowed if another page may have made it."""
        found = await self.find(connection)
        if found is None:
            return None
        session, user = found
        scope = connection.scope
        if scope["type"] == "websocket":
            # NOTE: browsers send no header of ours with a websocket, but always say which page opens it.
            if not _same_origin(connection):
                raise NotAllowed("a websocket is opened by the console's own pages only")
        elif scope["method"] not in ("GET", "HEAD"):
            check_csrf(session, connection.headers.get(CSRF_HEADER, ""))
        return user


def check_csrf(session: Session, given: str) -> None:
    """Raise NotAllowed unless the call comes from a page that this session was shown."""
    if not hmac.compare_digest(session.csrf.encode(), given.encode("utf-8", "replace")):
        raise NotAllowed("the page is out of date, or another page has sent this: load it again")


def _same_origin(connection: HTTPConnection) -> bool:
    origin = connection.headers.get("origin", "")
    return origin.partition("://")[2] == connection.headers.get("host", "")


def _cookie(connection: HTTPConnection) -> str:
    # NOTE: read as browsers write them; http.cookies stops at the first of another program that it does not like.
    return connection.cookies.get(COOKIE, "")


def _key(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).digest()
