"""The leased way on MySQL: what leased.py does, with what MySQL answers in place of RETURNING."""

from __future__ import annotations

from typing import Final, TypeVar, cast

from twicesafe.core.claims import Claim, Claimed, Existing, Found
from twicesafe.core.record import Ownership, RecordState
from twicesafe.errors import StoreUnavailableError
from twicesafe.stores.sql.leased import SqlSteps
from twicesafe.stores.sql.rows import COLUMNS, WIDTH, to_record
from twicesafe.stores.sql.statements import Queries
from twicesafe.stores.steps import Batch, Rows, Statement, Steps

R = TypeVar("R")

READ_PATIENCE: Final = 5
"""Seconds that a read waits for a transaction with its key, at most."""

_EPOCH: Final = COLUMNS.index("epoch")
_STATE: Final = COLUMNS.index("state")
_ENDED_AS: Final = {"hold_stale": RecordState.UNKNOWN, "settle_answered": RecordState.COMPLETED}


class MysqlSteps(SqlSteps):
    """Every method of the leased way, as steps."""

    def __init__(self, sql: Queries, patience: int = READ_PATIENCE) -> None:
        super().__init__(sql)
        self._looks_first = True  # having tried
        self._patience = patience

    FROM_THE_START: object = b""

    def claim(self, claim: Claim) -> Steps[Claimed | Existing]:
        """See Session.claim."""
        if claim.seen is not None:
            if (won := (yield from self.go_on(claim, claim.seen))) is not None:
                return won
            claim = claim._replace(seen=None)
        if claim.digest not in self.settled_here:
            rows = yield self._insertion(claim)
            if rows:
                return Claimed(Ownership(claim.digest, claim.owner, 1), rows[0][0])
        return (yield from self._returning(super().claim(claim), claim))

    def _returning(self, steps: Steps[R], claim: Claim) -> Steps[R]:
        """Give `steps` the rows that others get by RETURNING. Nothing, where they could be another's by now."""
        found: Rows = ()
        try:
            step = next(steps)
            while True:
                rows = yield step
                name = cast("Statement", step).name
                if name == "find":
                    found = rows
                elif rows and name == "claim":
                    rows = ((claim.owner, rows[0][0]),)
                elif rows and name == "claim_expired":
                    rows = ((found[0][_EPOCH] + 1, rows[0][0]),)
                elif rows and name in _ENDED_AS:
                    rows = yield self._sql("find", digest=claim.digest)
                    if rows and (rows[0][_EPOCH], rows[0][_STATE]) != (found[0][_EPOCH], _ENDED_AS[name]):
                        rows = ()
                step = steps.send(rows)
        except StopIteration as end:
            return cast("R", end.value)
        finally:
            steps.close()

    def read(self, digest: bytes) -> Steps[Found]:
        """See Store.read."""
        sql = self._sql
        row = (yield Batch((lock(sql, digest, self._patience), sql("look", digest=digest), sql("unlock"))))[0]
        if row[WIDTH + 1] != MINE:
            raise StoreUnavailableError(
                f"a transaction with this key is under way, and has not ended within {self._patience} s: read again"
            )
        return Found(to_record(row), row[WIDTH])


MINE: Final = "mine"


def lock(sql: Queries, digest: bytes, patience: int) -> Statement:
    """Ask for the lock of a key. Where two keys share its 16 bytes, one of them is told "in progress" now and then."""
    return sql("lock", lock_name=f"twicesafe.{digest[:16].hex()}.", patience=patience)
