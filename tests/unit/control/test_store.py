"""What the control plane remembers is whole, and held by one gateway."""

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from gateway.config import CanaryConfig, ConfigError, ServiceConfig
from gateway.control.accounts import Accounts, User, digest
from gateway.control.errors import Conflict, NotFound, StoreFailed
from gateway.control.store import FILE, NewEvent, Store, now
from gateway.control.tables import metadata


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return opened(tmp_path)


def opened(folder: Path) -> Store:
    return Store(f"sqlite:///{folder / FILE}", folder)


SERVICES = {"a": ServiceConfig(model="m", canary=CanaryConfig(weight=30)), "b": ServiceConfig(app_auth=True)}


def test_revisions_are_kept_whole(store: Store, tmp_path: Path) -> None:
    """What was committed is there again for the next process, with who did it and why."""
    assert store.head().number == 0
    store.commit(SERVICES, "ada", "first")
    store.commit({}, "bob", "second", [NewEvent("delete", "a", "a was deleted", {"x": 1})])
    store.close()
    again = opened(tmp_path)
    assert (again.head().number, again.head().actor, again.head().services) == (2, "bob", {})
    first = again.revision(1)
    assert first is not None
    assert first.services == SERVICES
    assert [one.number for one in again.revisions(10)] == [2, 1]
    (event,) = again.events(10)
    assert (event.kind, event.service, event.data, event.actor) == ("delete", "a", {"x": 1}, "bob")
    again.close()


def test_events_are_found_by_service_and_age(store: Store) -> None:
    """Newest first; of one service, or older than one."""
    store.note("ada", [NewEvent("edit", name, name) for name in ("a", "b", "a")])
    assert [one.id for one in store.events(10, "a")] == [3, 1]
    assert [one.id for one in store.events(10, before=3)] == [2, 1]
    assert [one.id for one in store.events(1)] == [3]


def test_one_folder_belongs_to_one_gateway(store: Store, tmp_path: Path) -> None:
    """A second gateway on the same folder is told so; once the first has gone, it may."""
    with pytest.raises(ConfigError, match="another gateway uses"):
        opened(tmp_path)
    store.close()
    opened(tmp_path).close()


def test_a_locked_database_changes_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the database does not answer, the caller is told, and there is no half of a revision."""
    store.commit(SERVICES, "ada", "first")
    with store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreFailed, match="nothing has been changed"):
        store.commit({}, "bob", "second")
    other.execute("ROLLBACK")
    other.close()
    assert store.head().number == 1


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    """A file that something else has written is left alone, with a reason."""
    (tmp_path / FILE).write_bytes(b"not a database at all" * 100)
    with pytest.raises(ConfigError, match=r"gateway\.store: the database cannot be opened"):
        opened(tmp_path)
    assert (tmp_path / FILE).read_bytes().startswith(b"not a database")


def test_tables_are_those_of_the_migrations(store: Store) -> None:
    """What the migrations make is what the code expects."""
    found = sa.inspect(store.engine)
    for table in metadata.sorted_tables:
        assert {column.name for column in table.columns} == {one["name"] for one in found.get_columns(table.name)}


# Accounts...


def test_the_first_token_is_made_once(store: Store) -> None:
    """The first start gets an administrator; the next does not."""
    accounts = Accounts(store)
    token = accounts.first_token()
    assert token is not None
    user = accounts.owner(digest(token))
    assert user is not None
    assert (user.name, user.role) == ("admin", "admin")
    assert accounts.first_token() is None


def test_tokens_are_not_kept(store: Store, tmp_path: Path) -> None:
    """No token's text is anywhere in the database."""
    accounts = Accounts(store)
    token = accounts.first_token()
    assert token is not None
    store.close()
    assert token.encode() not in (tmp_path / FILE).read_bytes()


def test_who_holds_a_token(store: Store) -> None:
    """Revoked and expired tokens, disabled and removed users open nothing."""
    accounts = Accounts(store)
    accounts.first_token()
    accounts.add(User("ada", "member", "vision"))
    token, text = accounts.new_token("ada", "laptop", None)
    _, expired = accounts.new_token("ada", "", now())
    assert accounts.owner(digest(text)) == accounts.user("ada")
    assert accounts.owner(digest(expired)) is None
    assert accounts.owner(digest(text + "x")) is None
    accounts.change("ada", disabled=True)
    assert accounts.owner(digest(text)) is None
    accounts.change("ada", disabled=False)
    accounts.revoke(token.id)
    assert accounts.owner(digest(text)) is None
    _, other = accounts.new_token("ada", "", None)
    accounts.remove("ada")
    assert accounts.owner(digest(other)) is None


def test_there_is_always_an_administrator(store: Store) -> None:
    """The last one cannot be removed, disabled or made a member; names are unique."""
    accounts = Accounts(store)
    accounts.first_token()
    for act in (
        lambda: accounts.remove("admin"),
        lambda: accounts.change("admin", disabled=True),
        lambda: accounts.change("admin", role="member"),
    ):
        with pytest.raises(Conflict, match="the last administrator"):
            act()
    with pytest.raises(Conflict, match="there is a user 'admin' already"):
        accounts.add(User("admin", "member"))
    with pytest.raises(NotFound):
        accounts.user("nobody")
    accounts.add(User("second", "admin"))
    accounts.remove("admin")
