"""Whoever finds out what became of an unknown outcome, and settles it."""

from __future__ import annotations

from tests.model.attempts import KEY, SQL, undisturbed
from tests.model.judging import OPERATOR
from tests.model.state import Actor
from tests.model.wishes import Inquire
from twicesafe.core.keys import scoped_key
from twicesafe.core.record import RecordState, StoredResponse
from twicesafe.core.settling import settle
from twicesafe.errors import StoreError
from twicesafe.stores.sql.leased import SqlSteps
from twicesafe.testing.exploring import Place, Program

EVERYTHING = 20_000


def operator() -> Actor:
    """Sweeps, looks, asks the other system, and settles: as a reaper and a reconciler do, or a person."""
    digest = scoped_key("user-1", KEY).digest
    return Actor(OPERATOR, "", digest, Place(lambda: _settling(digest)))


def _settling(digest: bytes) -> Program:
    steps = SqlSteps(SQL)
    try:
        yield from steps.settle_stale(EVERYTHING)
        record = (yield from undisturbed(steps.read(digest))).record
        if record is None or record.state is not RecordState.UNKNOWN:
            return None
        number = yield Inquire(digest)
        if number is None:
            return None
        response = None if number == 0 else StoredResponse(201, (), b"charge %d for a" % number)
        yield from steps.settle(*settle(record, response))
    except StoreError:
        return None
