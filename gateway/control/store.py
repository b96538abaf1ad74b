"""What the control plane remembers: revisions of all services, users with their tokens, events, settings.

Every method blocks, for as long as the database takes; no request to a model ever waits for one.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import command
from alembic.config import Config as AlembicConfig
from msgspec import Struct
from sqlalchemy import Connection, event
from sqlalchemy.exc import SQLAlchemyError

from gateway.config import ConfigError, ServiceConfig
from gateway.control import tables
from gateway.control.errors import StoreFailed

FILE = "control.db"
LOCK = "lock"
REVISIONS_KEPT = 500
EVENTS_KEPT = 100_000
BUSY_SECONDS = 5.0

_MIGRATIONS = Path(__file__).parent / "migrations"

Services = Mapping[str, ServiceConfig]


class Revision(Struct, frozen=True):
    """All services from one moment to the next."""

    number: int
    at: datetime
    actor: str
    note: str
    services: dict[str, ServiceConfig]


class Event(Struct, frozen=True):
    """Something that was done or decided."""

    id: int
    at: datetime
    actor: str
    kind: str
    service: str
    text: str
    data: dict[str, Any] = {}
    """What a decision was made from."""


class NewEvent(Struct, frozen=True):
    """An event on its way into the store."""

    kind: str
    service: str
    text: str
    data: dict[str, Any] = {}


def now() -> datetime:
    """The moment, in UTC, to the millisecond."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class Store:
    """One database, held by one gateway."""

    def __init__(self, url: str, data_dir: Path) -> None:
        """Open it and bring its tables up to date. Raises ConfigError."""
        self._lock = _locked(data_dir)
        try:
            self.engine = sa.create_engine(url, **_options(url))
            if url.startswith("sqlite"):
                event.listen(self.engine, "connect", _configure_sqlite)
            with self.engine.begin() as connection:
                _migrate(connection)
            self._file = Path(self.engine.url.database or "") if url.startswith("sqlite") else None
            self._identity = _identity(self._file)
        except (SQLAlchemyError, ImportError, OSError) as error:
            os.close(self._lock)
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise ConfigError(f"gateway.store: the database cannot be opened: {reason}") from None

    def close(self) -> None:
        """Let another gateway have it."""
        self.engine.dispose()
        os.close(self._lock)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection; what is done by it is done whole or not at all. Raises StoreFailed."""
        if _identity(self._file) != self._identity:
            # SQLite would go on with the file that nobody can find any more, and lose all of it at the next start.
            raise StoreFailed("the control plane's database file is gone or another one; nothing has been changed")
        try:
            with self.engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreFailed("the control plane's database does not answer; nothing has been changed") from error

    # Revisions...

    def head(self) -> Revision:
        """The latest revision; number 0, without services, before the first."""
        with self.transaction() as connection:
            query = sa.select(tables.revisions).order_by(tables.revisions.c.number.desc()).limit(1)
            row = connection.execute(query).mappings().first()
        return _revision(dict(row)) if row else Revision(0, now(), "", "", {})

    def revision(self, number: int) -> Revision | None:
        """That revision, if it is kept."""
        with self.transaction() as connection:
            query = sa.select(tables.revisions).where(tables.revisions.c.number == number)
            row = connection.execute(query).mappings().first()
        return _revision(dict(row)) if row else None

    def revisions(self, most: int) -> list[Revision]:
        """The latest, newest first, without their services."""
        columns = [column for column in tables.revisions.c if column.name != "services"]
        query = sa.select(*columns).order_by(tables.revisions.c.number.desc()).limit(most)
        with self.transaction() as connection:
            return [_revision({**row, "services": "{}"}) for row in connection.execute(query).mappings()]

    def commit(self, services: Services, actor: str, note: str, happened: Sequence[NewEvent] = ()) -> Revision:
        """A new revision, with what led to it, all of it or nothing."""
        moment = now()
        with self.transaction() as connection:
            values = {"at": moment.isoformat(), "actor": actor, "note": note, "services": _encoded(services)}
            inserted = connection.execute(sa.insert(tables.revisions).values(values)).inserted_primary_key
            assert inserted is not None
            number = int(inserted[0])
            _insert_events(connection, moment, actor, happened)
            old = tables.revisions.c.number <= number - REVISIONS_KEPT
            connection.execute(sa.delete(tables.revisions).where(old))
        return Revision(number, moment, actor, note, dict(services))

    # Events...

    def note(self, actor: str, happened: Sequence[NewEvent]) -> None:
        """Remember what has happened."""
        with self.transaction() as connection:
            _insert_events(connection, now(), actor, happened)

    def events(self, most: int, service: str | None = None, before: int | None = None) -> list[Event]:
        """The latest, newest first; of one service, or older than one event, if asked for."""
        query = sa.select(tables.events).order_by(tables.events.c.id.desc()).limit(most)
        if service is not None:
            query = query.where(tables.events.c.service == service)
        if before is not None:
            query = query.where(tables.events.c.id < before)
        with self.transaction() as connection:
            rows = connection.execute(query).mappings().all()
        return [Event(**{**row, "at": _moment(row["at"]), "data": msgspec.json.decode(row["data"])}) for row in rows]

    # Settings...

    def setting(self, name: str) -> str:
        """Its value; empty if it was never set."""
        with self.transaction() as connection:
            query = sa.select(tables.settings.c.value).where(tables.settings.c.name == name)
            return connection.execute(query).scalar() or ""

    def set(self, name: str, value: str) -> None:
        """Remember the value."""
        with self.transaction() as connection:
            connection.execute(sa.delete(tables.settings).where(tables.settings.c.name == name))
            connection.execute(sa.insert(tables.settings).values(name=name, value=value))


def _locked(data_dir: Path) -> int:
    """A descriptor that holds the folder for this process. Raises ConfigError."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"gateway.data_dir: {data_dir} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise ConfigError(f"gateway.data_dir: another gateway uses {data_dir}") from None
    return descriptor


def _identity(file: Path | None) -> tuple[int, int] | None:
    """Which file it is, whatever its name; None without one."""
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _options(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"connect_args": {"timeout": BUSY_SECONDS}}
    return {"pool_pre_ping": True, "pool_size": 2, "connect_args": {"connect_timeout": int(BUSY_SECONDS)}}


def _configure_sqlite(connection: Any, record: Any) -> None:
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _migrate(connection: Connection) -> None:
    config = AlembicConfig()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _insert_events(connection: Connection, moment: datetime, actor: str, happened: Sequence[NewEvent]) -> None:
    for one in happened:
        values = msgspec.structs.asdict(one) | {"data": msgspec.json.encode(one.data).decode()}
        row = sa.insert(tables.events).values(at=moment.isoformat(), actor=actor, **values)
        inserted = connection.execute(row).inserted_primary_key
        assert inserted is not None
        connection.execute(sa.delete(tables.events).where(tables.events.c.id <= int(inserted[0]) - EVENTS_KEPT))


def _encoded(services: Services) -> str:
    return msgspec.json.encode(services).decode()


def _revision(row: dict[str, Any]) -> Revision:
    services = msgspec.json.decode(row["services"], type=dict[str, ServiceConfig])
    return Revision(row["number"], _moment(row["at"]), row["actor"], row["note"], services)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
