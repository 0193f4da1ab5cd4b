"""What a store remembers of what it has seen to be settled."""

from __future__ import annotations

from twicesafe.stores.sql.settled_here import AT_LEAST, SettledHere


def test_the_latest_are_known_and_the_others_forgotten() -> None:
    """R10: however many keys are settled, so many of the latest are known, and never more than twice as many."""
    known = SettledHere()
    digests = [n.to_bytes(32, "big") for n in range(5 * AT_LEAST + 7)]
    for digest in digests:
        known.add(digest)
        assert digest in known
    assert all(digest in known for digest in digests[-AT_LEAST:])
    assert sum(digest in known for digest in digests) < 2 * AT_LEAST
