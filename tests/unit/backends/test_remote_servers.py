"""Which server is asked next, and what becomes of one that fails; on a clock that the test moves."""

from backends.remote.servers import Servers


class Clock:
    """Time as the test wants it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_least_busy_is_asked() -> None:
    """Servers take turns when idle; a busy one is passed over."""
    servers = Servers(["http://a/", "http://b"], 3, 5)
    first, second = servers.pick(), servers.pick()
    assert {"http://a", "http://b"} == {first.url, second.url}
    first.running = 1
    assert [second, second] == [servers.pick(), servers.pick()]
    assert first is servers.pick([second])


def test_failures_in_a_row_eject() -> None:
    """An answer between them clears a server; the rest that it gets grows, and ends with a trial of one call."""
    clock = Clock()
    servers = Servers(["http://a", "http://b"], 2, 5, clock)
    bad, good = servers.all
    servers.failed(bad)
    servers.answered(bad)
    servers.failed(bad)
    assert servers.down == 0
    servers.failed(bad)
    assert (servers.down, {servers.pick() for _ in range(4)}) == (1, {good})
    clock.now += 5
    assert servers.pick() is bad
    bad.running = 1
    assert servers.pick() is good
    bad.running = 0
    servers.failed(bad)
    assert bad.back_at == clock.now + 10
    clock.now += 10
    servers.answered(servers.pick())
    assert servers.down == 0


def test_nobody_left() -> None:
    """If all are aside, the one that is back first is asked, those not tried yet before others."""
    clock = Clock()
    servers = Servers(["http://a", "http://b"], 1, 5, clock)
    first, second = servers.all
    servers.failed(first)
    clock.now += 1
    servers.failed(second)
    assert (servers.pick(), servers.pick([first])) == (first, second)
    assert not servers.others([])
