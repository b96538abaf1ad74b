"""Wrong keys are counted by address, in bounded memory."""

from gateway.suspects import MOST_ADDRESSES, Suspects


def test_too_many_wrong_keys_from_one_address_are_limited() -> None:
    """Others are not affected; after a while it is told again that the key is wrong."""
    now = 0.0
    suspects = Suspects(3, lambda: now)
    assert [suspects.note("10.0.0.1") is None for _ in range(5)] == [True, True, True, False, False]
    assert suspects.note("10.0.0.2") is None
    now = 1.0
    assert suspects.note("10.0.0.1") is None


def test_a_network_of_one_client_is_one_address() -> None:
    """An IPv6 client has a whole /64."""
    suspects = Suspects(1, lambda: 0.0)
    assert suspects.note("2001:db8:1:2:3::1") is None
    assert suspects.note("2001:db8:1:2:ffff::9") is not None
    assert suspects.note("2001:db8:1:3::1") is None


def test_the_table_does_not_grow() -> None:
    """Whoever comes from ever new addresses makes it forget the oldest."""
    suspects = Suspects(1, lambda: 0.0)
    for number in range(3 * MOST_ADDRESSES):
        suspects.note(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(suspects._budgets) == MOST_ADDRESSES


def test_without_a_bound_nothing_is_kept() -> None:
    """0 turns it off."""
    suspects = Suspects(0)
    assert [suspects.note("a") for _ in range(1000)] == [None] * 1000
    assert not suspects._budgets
