"""The configuration file is a seed: applied when it has changed, and then only what it names."""

from pathlib import Path

from control_plane import plane
from msgspec.structs import replace

from gateway import keys
from gateway.control import seeding


def test_the_file_is_applied_once(tmp_path: Path) -> None:
    """The first start applies it; the next leaves alone what was changed since, until the file changes."""
    with plane(tmp_path, {"a": {"model": "iris"}}) as first:
        assert list(first.prepared.services) == ["a"]
        first.control.store.commit({}, "ada", "deleted")
    with plane(tmp_path, {"a": {"model": "iris"}}) as second:
        assert second.prepared.services == {}
    with plane(tmp_path, {"a": {"model": "mnist"}, "b": {"model": "iris"}}) as third:
        assert {name: one.model for name, one in third.prepared.services.items()} == {"a": "mnist", "b": "iris"}
        assert [(one.kind, one.service) for one in third.prepared.sown] == [("create", "a"), ("create", "b")]


def test_others_stay_unless_they_are_pruned(tmp_path: Path) -> None:
    """A service that was made by API is not the file's affair, unless `prune` says so."""
    with plane(tmp_path, {"a": {"model": "iris"}}) as first:
        made = {**first.prepared.services, "mine": first.prepared.services["a"]}
        first.control.store.commit(made, "ada", "made")
    with plane(tmp_path, {"a": {"model": "mnist"}}) as second:
        assert {"a", "mine"} == second.prepared.services.keys()
    with plane(tmp_path, {"a": {"model": "iris"}}, prune=True) as third:
        assert {"a"} == third.prepared.services.keys()


def test_codes_become_hashes(tmp_path: Path) -> None:
    """The store learns no code from the file, and the codes still open the service."""
    table = {"a": {"model": "iris", "app_auth": True, "app_codes": ["pass-word-1"]}}
    with plane(tmp_path, table) as made:
        service = made.prepared.services["a"]
        assert service.app_codes == ()
        assert keys.find(b"pass-word-1", [key.hash for key in service.keys])
    assert b"pass-word-1" not in (tmp_path / "data" / "control.db").read_bytes()


def test_drift_is_what_was_changed_since(tmp_path: Path) -> None:
    """What people have changed by API shows against the file; what they have made does not."""
    with plane(tmp_path, {"a": {"model": "iris"}}) as made:
        assert seeding.drift(made.control.store, made.config) == ()
        changed = {**made.prepared.services}
        changed["a"] = replace(changed["a"], model="mnist")
        made.control.store.commit({**changed, "mine": changed["a"]}, "ada", "")
        (found,) = seeding.drift(made.control.store, made.config)
        assert (
            found.service, found.fields[0].field, found.fields[0].before, found.fields[0].after,
        ) == ("a", "model", "mnist", "iris")  # fmt: skip


def test_durations_begin_when_they_are_sown(tmp_path: Path) -> None:
    """A service of the file expires at a moment that the next start keeps."""
    with plane(tmp_path, {"a": {"model": "iris", "duration": "8h"}}) as first:
        moment = first.prepared.services["a"].expires_at
        assert moment is not None
    with plane(tmp_path, {"a": {"model": "iris", "duration": "8h"}}) as second:
        assert second.prepared.services["a"].expires_at == moment
