"""Several services stopped or deleted by one call: each as far as the caller may, and what became of each."""

from pathlib import Path
from typing import Any

from control_plane import plane, run


def services() -> dict[str, Any]:
    """One for each way to share, of the member ada in the project vision."""
    table = {"model": "iris", "owner": "ada", "project": "vision"}
    return {name: {**table, "sharing": name} for name in ("rw", "ro", "none")}


def test_several_services_are_stopped_at_once(tmp_path: Path) -> None:
    """Each that is named once, as far as the caller may; what became of the others is said of each."""

    async def story() -> None:
        with plane(tmp_path, {**services(), "own": {"model": "iris", "owner": "bob", "state": "stopped"}}) as made:
            bob = made.user("bob", project="vision")
            names = ["rw", "ro", "none", "own", "rw", "missing"]
            reply = (await made.call("POST", "/services/stop", {"names": names}, token=bob)).json()
            assert reply["done"] == ["rw"]
            assert {"ro", "none", "own", "missing"} == reply["failed"].keys()
            assert "already" in reply["failed"]["own"]
            states = {name: one.state for name, one in made.control.services.items()}
            assert states == {"rw": "stopped", "ro": "running", "none": "running", "own": "stopped"}
            events = (await made.call("GET", "/events?service=rw")).json()
            assert [(one["kind"], one["actor"]) for one in events if one["kind"] == "stop"] == [("stop", "bob")]

    run(story)


def test_several_services_are_deleted_at_once(tmp_path: Path) -> None:
    """Those that the caller may, running or not; others stay, each with its reason, and a strange name hurts none."""

    async def story() -> None:
        with plane(tmp_path, services()) as made:
            ada, bob = made.user("ada", project="vision"), made.user("bob", project="vision")
            refused = (await made.call("POST", "/services/delete", {"names": ["ro", "none"]}, token=bob)).json()
            assert ([], {"ro", "none"}) == (refused["done"], refused["failed"].keys())
            await made.call("POST", "/services/stop", {"names": ["ro"]}, token=ada)
            names = ["rw", "ro", "../none", "x" * 10_000]
            reply = (await made.call("POST", "/services/delete", {"names": names}, token=ada)).json()
            assert (reply["done"], len(reply["failed"])) == (["rw", "ro"], 2)
            assert {"none"} == made.control.services.keys() == made.fleet.served[-1].keys()

    run(story)


def test_several_services_are_named_in_a_list(tmp_path: Path) -> None:
    """A body of another form changes nothing and is told where it is wrong."""

    async def story() -> None:
        with plane(tmp_path, services()) as made:
            for body in ({"names": "rw"}, {"names": [1]}, {}, {"names": ["rw"], "all": True}):
                for path in ("/services/stop", "/services/delete"):
                    assert (await made.call("POST", path, body)).status_code == 400
            assert services().keys() == made.control.services.keys()
            assert {"running"} == {one.state for one in made.control.services.values()}

    run(story)
