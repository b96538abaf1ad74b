"""Who may use the control plane: administrators and members, each with tokens of which only digests are kept."""

import hashlib
import secrets
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.exc import IntegrityError

from gateway.control import tables
from gateway.control.errors import Conflict, NotFound
from gateway.control.store import Store, now

Role = Literal["admin", "member"]

PREFIX = "tgc_"
FIRST = "admin"


class User(Struct, frozen=True):
    """Somebody who may sign in."""

    name: str
    role: Role
    project: str = ""
    disabled: bool = False
    created_at: datetime | None = None


class Token(Struct, frozen=True):
    """One of a user's tokens, as lists show it."""

    id: str
    user: str
    label: str
    created_at: datetime
    expires_at: datetime | None = None


def digest(token: str) -> str:
    """What is kept of a token: it has 192 bits of chance, so nobody finds it from its SHA-256."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class Accounts:
    """The users and tokens in the store. Every method blocks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def first_token(self) -> str | None:
        """A token for the first administrator, if there is nobody yet; it is never shown again."""
        if self.users():
            return None
        self.add(User(FIRST, "admin"))
        return self.new_token(FIRST, "made at the first start", None)[1]

    def users(self) -> list[User]:
        """All of them, by name."""
        with self._store.transaction() as connection:
            rows = connection.execute(sa.select(tables.users).order_by(tables.users.c.name)).mappings().all()
        return [_user(row) for row in rows]

    def user(self, name: str) -> User:
        """That one. Raises NotFound."""
        found = next((user for user in self.users() if user.name == name), None)
        if found is None:
            raise NotFound(f"there is no user {name[:128]!r}")
        return found

    def add(self, user: User) -> None:
        """One more. Raises Conflict."""
        if any(known.name == user.name for known in self.users()):
            raise Conflict(f"there is a user {user.name!r} already", "name")
        values = {"name": user.name, "role": user.role, "project": user.project, "disabled": user.disabled}
        with self._store.transaction() as connection:
            try:
                connection.execute(sa.insert(tables.users).values(**values, created_at=now().isoformat()))
            except IntegrityError:  # somebody was faster
                raise Conflict(f"there is a user {user.name!r} already", "name") from None

    def change(self, name: str, **values: Any) -> User:
        """Other values for some of a user's fields. Raises NotFound, or Conflict for the last administrator."""
        before = self.user(name)
        after = replace(before, **values)
        if before.role == "admin" and not before.disabled and (after.role != "admin" or after.disabled):
            self._check_not_last(name)
        with self._store.transaction() as connection:
            connection.execute(sa.update(tables.users).where(tables.users.c.name == name).values(**values))
        return after

    def remove(self, name: str) -> None:
        """The user and all tokens. Raises NotFound, or Conflict for the last administrator."""
        if self.user(name).role == "admin":
            self._check_not_last(name)
        with self._store.transaction() as connection:
            connection.execute(sa.delete(tables.tokens).where(tables.tokens.c.user == name))
            connection.execute(sa.delete(tables.users).where(tables.users.c.name == name))

    def _check_not_last(self, name: str) -> None:
        others = [user for user in self.users() if user.role == "admin" and not user.disabled and user.name != name]
        if not others:
            raise Conflict(f"{name} is the last administrator: make another first")

    # Tokens...

    def new_token(self, user: str, label: str, expires_at: datetime | None) -> tuple[Token, str]:
        """A new token, and its text, which is not kept. Raises NotFound."""
        self.user(user)
        text = PREFIX + secrets.token_urlsafe(24)
        token = Token(secrets.token_hex(8), user, label, now(), expires_at)
        values = {
            "id": token.id, "user": user, "label": label, "digest": digest(text),
            "created_at": token.created_at.isoformat(), "expires_at": expires_at.isoformat() if expires_at else "",
        }  # fmt: skip
        with self._store.transaction() as connection:
            connection.execute(sa.insert(tables.tokens).values(**values))
        return token, text

    def tokens(self, user: str | None = None) -> list[Token]:
        """All of them, or one user's; oldest first."""
        query = sa.select(tables.tokens).order_by(tables.tokens.c.created_at)
        if user is not None:
            query = query.where(tables.tokens.c.user == user)
        with self._store.transaction() as connection:
            return [_token(row) for row in connection.execute(query).mappings()]

    def revoke(self, token_id: str) -> Token:
        """That token opens nothing any more. Raises NotFound."""
        found = next((token for token in self.tokens() if token.id == token_id), None)
        if found is None:
            raise NotFound(f"there is no token {token_id[:64]!r}")
        with self._store.transaction() as connection:
            connection.execute(sa.delete(tables.tokens).where(tables.tokens.c.id == token_id))
        return found

    def owner(self, token_digest: str) -> User | None:
        """Whose the token of that digest is, if it is good.

        NOTE: of the digest an attacker learns nothing by how long the search takes.
        """
        with self._store.transaction() as connection:
            query = sa.select(tables.tokens).where(tables.tokens.c.digest == token_digest)
            row = connection.execute(query).mappings().first()
            if row is None or (row["expires_at"] and datetime.fromisoformat(row["expires_at"]) <= now()):
                return None
            user = (
                connection.execute(sa.select(tables.users).where(tables.users.c.name == row["user"])).mappings().one()
            )
        return None if user["disabled"] else _user(user)


def _user(row: Any) -> User:
    created = datetime.fromisoformat(row["created_at"])
    return User(row["name"], row["role"], row["project"], bool(row["disabled"]), created)


def _token(row: Any) -> Token:
    expires = datetime.fromisoformat(row["expires_at"]) if row["expires_at"] else None
    return Token(row["id"], row["user"], row["label"], datetime.fromisoformat(row["created_at"]), expires)
