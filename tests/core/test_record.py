"""What is kept about a key."""

from __future__ import annotations

from tests.core.records import DIGEST, THEM, record
from twicesafe.core.record import Effects, Ownership, RecordState


def test_ownership_is_digest_owner_and_epoch() -> None:
    """I3: what proves a claim names the row, the owner and how often the row was claimed."""
    assert record(epoch=7).ownership == Ownership(DIGEST, THEM, 7)
    assert record(epoch=7).ownership != record(epoch=8).ownership


def test_stored_words_never_change() -> None:
    """R13: these words are in databases; a release that spells others cannot read its own records."""
    assert [str(state) for state in RecordState] == ["claimed", "completed", "unknown"]
    assert [str(effects) for effects in Effects] == ["transactional", "resumable", "keyed", "opaque"]
