"""Who is next when several keys wait."""

from collections import Counter

from gateway.fairqueue import FairQueue


def served(queue: "FairQueue[str, str]", turns: int, seconds: dict[str, float]) -> list[str]:
    """The keys of so many turns, one at a time, each of which takes what its key's requests take."""
    order = []
    for _ in range(turns):
        key, _ = queue.pop(1.0)
        order.append(key)
        queue.done(key, seconds[key] - 1.0)
    return order


def test_a_long_line_does_not_hold_up_a_short_one() -> None:
    """A key of 100 requests and one of 2: the two are among the first four."""
    queue: FairQueue[str, str] = FairQueue()
    for number in range(100):
        queue.push("heavy", f"h{number}")
    for number in range(2):
        queue.push("light", f"l{number}")
    assert sorted(served(queue, 4, {"heavy": 1.0, "light": 1.0})) == ["heavy", "heavy", "light", "light"]


def test_shares_are_of_time_and_not_of_requests() -> None:
    """A key whose requests take nine times as long gets a ninth of the turns."""
    queue: FairQueue[str, str] = FairQueue()
    for number in range(200):
        queue.push("slow", f"s{number}")
        queue.push("quick", f"q{number}")
    turns = Counter(served(queue, 200, {"slow": 9.0, "quick": 1.0}))
    assert 170 <= turns["quick"] <= 185


def test_one_key_is_served_in_order() -> None:
    """First come, first served, within a key."""
    queue: FairQueue[str, int] = FairQueue()
    for number in range(5):
        queue.push("a", number)
    assert [queue.pop(1.0)[1] for _ in range(5)] == [0, 1, 2, 3, 4]


def test_nobody_saves_up_time_by_being_away() -> None:
    """A key that comes late shares from then on; it does not catch up on what others had before."""
    queue: FairQueue[str, str] = FairQueue()
    for number in range(200):
        queue.push("old", f"o{number}")
    served(queue, 100, {"old": 1.0})
    for number in range(100):
        queue.push("new", f"n{number}")
    turns = Counter(served(queue, 20, {"old": 1.0, "new": 1.0}))
    assert 9 <= turns["new"] <= 11


def test_what_is_removed_is_not_served_and_leaves_nothing() -> None:
    """A caller that left has no turn, and its key no memory."""
    queue: FairQueue[str, str] = FairQueue()
    queue.push("a", "gone")
    queue.push("b", "here")
    assert queue.remove("a", "gone")
    assert not queue.remove("a", "gone")
    assert len(queue) == 1
    assert queue.pop(1.0) == ("b", "here")
    queue.done("b", 0.0)
    assert len(queue) == 0
    assert not queue._lines


def test_room_is_made_by_the_longest_line_only() -> None:
    """A newcomer's own line, or one that is hardly longer, gives no room."""
    queue: FairQueue[str, int] = FairQueue()
    assert queue.longest("new") is None
    queue.push("a", 1)
    assert queue.longest("new") is None
    queue.push("a", 2)
    assert queue.longest("a") is None
    assert queue.longest("new") == "a"
    assert queue.drop_last("a") == 2
    assert len(queue) == 1


def test_what_comes_before_a_newcomer_is_estimated() -> None:
    """Of each other key as many as of its own, and one more."""
    queue: FairQueue[str, int] = FairQueue()
    for number in range(10):
        queue.push("heavy", number)
    assert queue.ahead("light") == 1
    assert queue.ahead("heavy") == 10
