"""The transactional way on DynamoDB, which has no transaction that stays open while a handler runs.

The claim is a leased one that says that a transaction is under way, so that rivals are told at once. What the handler
wants written is collected, and sent with the completed record in one TransactWriteItems: all of it or nothing, on
condition that the claim is still this owner's. Until then nothing is done, so that a stale claim of this kind is taken
over. A lost answer is asked for again under the same token, which DynamoDB remembers for ten minutes; and if that does
not tell, taking the claim back does: it succeeds only where nothing was committed, and nothing can be after it.
"""

from __future__ import annotations

from secrets import token_hex
from typing import Any, Final

from twicesafe.core.claims import Claim, Claimed, Existing
from twicesafe.core.record import Micros, Ownership, StoredResponse
from twicesafe.errors import AmbiguousWriteError, CommitRefusedError, StoreError, StoreUnavailableError
from twicesafe.stores.dynamodb_items import completed_by
from twicesafe.stores.dynamodb_requests import (
    THROTTLED,
    TOO_LARGE,
    Answer,
    Call,
    Marker,
    Pause,
    Steps,
    committing,
    completion,
    lease_lost,
    shrinking,
)
from twicesafe.stores.dynamodb_steps import DynamodbSteps

MOST_WRITES: Final = 99
"""DynamoDB's limit is 100 for a transaction, and one is the record."""

COMMIT_ATTEMPTS: Final = 4
_FIRST_PAUSE: Final = 0.05

_PASSING: Final = frozenset(
    {"None", "TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError", "InternalServerError"}
)
"""Reasons for which the same transaction may be committed a moment later."""

CANCELLED: Final = "TransactionCanceledException"

ENDED: Final = "a transaction has a connection from its claim or begin() to its end"


class Writes:
    """What a handler wants written with its record: the `connection` of a transaction.

    The arguments are those of the client's method of the same name, without ReturnValues. Nothing is sent before the
    end of the handler, so nothing that is written can be read back before. RuntimeError once the transaction is over.
    """

    def __init__(self, client: Any) -> None:
        self.client: Final = client
        """The store's own client, for reading."""
        self._collected: list[dict[str, Any]] = []
        self._over = False

    def __len__(self) -> int:
        return len(self._collected)

    def put_item(self, **arguments: Any) -> None:
        """Put an item, on a condition or without one."""
        self._collect("Put", arguments)

    def update_item(self, **arguments: Any) -> None:
        """Update an item, on a condition or without one."""
        self._collect("Update", arguments)

    def delete_item(self, **arguments: Any) -> None:
        """Delete an item, on a condition or without one."""
        self._collect("Delete", arguments)

    def check_item(self, **arguments: Any) -> None:
        """Write nothing, and commit only where this condition holds: for what the handler has read."""
        self._collect("ConditionCheck", arguments)

    def _collect(self, kind: str, arguments: dict[str, Any]) -> None:
        if self._over:
            raise RuntimeError("this transaction is over: what is written now would belong to no answer")
        if len(self._collected) >= MOST_WRITES:
            raise ValueError(f"a transaction holds {MOST_WRITES} writes and its record at most")
        self._collected.append({kind: arguments})

    def _end(self) -> list[dict[str, Any]]:
        self._over = True
        return self._collected


class DynamodbTransactionSteps:
    """One transaction's dealings, from `begin` or `claim` to `complete`, `commit` or `roll_back`."""

    def __init__(self, steps: DynamodbSteps) -> None:
        self._steps = steps
        self._writes: Writes | None = None
        self._marker = Marker()
        self._own: Ownership | None = None
        self._key_us: Micros = 0

    @property
    def open(self) -> bool:
        """Whether the transaction has begun and has not ended."""
        return self._writes is not None

    @property
    def connection(self) -> Writes:
        """See Transaction.connection."""
        if self._writes is None:
            raise LookupError(ENDED)
        return self._writes

    def begin(self, client: Any) -> None:
        """See Transaction.begin. RuntimeError where it has begun already."""
        if self._writes is not None:
            raise RuntimeError("this transaction has begun already")
        self._writes = Writes(client)

    def claim(self, claim: Claim, client: Any) -> Steps[Claimed | Existing]:
        """See Session.claim. A transaction that it began itself is left open if, and only if, the claim is won."""
        if self._own is not None:
            raise RuntimeError("this transaction has its claim already")
        self._marker = Marker()
        found = yield from self._steps.claim(claim, self._marker)
        if type(found) is Claimed:
            self._own, self._key_us = found.ownership, claim.key_us
            if self._writes is None:
                self._writes = Writes(client)
        else:
            self._marker = Marker()
        return found

    def commit(self) -> Steps[None]:
        """See Transaction.commit. RuntimeError where a claim was won: its answer belongs to the commit."""
        if self._own is not None:
            raise RuntimeError("a transaction whose claim was won is committed by complete(), with its answer")
        if self._writes is None:
            raise LookupError(ENDED)
        writes = self._end()
        if writes:
            lost = yield from self._transact(writes, token_hex(16))
            if lost is not None:
                raise lost if isinstance(lost, StoreError) else _refused(lost, 0)

    def complete(
        self, own: Ownership, response: StoredResponse, key_us: Micros, body_us: Micros, *, keep_effects: bool
    ) -> Steps[None]:
        """See Session.complete. Ends the transaction."""
        if self._writes is None:
            yield from self._steps.completed_before(own)
            return
        if own != self._own:
            yield from self.roll_back()
            raise lease_lost()
        writes = self._end()
        self._own, marker, self._marker = None, self._marker, Marker()
        if not writes or not keep_effects:
            yield from self._steps.complete(own, response, key_us, body_us)
            return
        yield from self._commit(own, marker, writes, response, key_us, body_us)

    def start_answer(self, own: Ownership, head: StoredResponse) -> Steps[None]:
        """See Session.start_answer."""
        yield from self.complete(own, head._replace(body=None), self._key_us, self._key_us, keep_effects=True)

    def roll_back(self) -> Steps[None]:
        """Release, hold, or leaving it unfinished: nothing was done, and what the claim replaced stands again."""
        self._end()
        self._own, marker, self._marker = None, self._marker, Marker()
        if marker.own is not None:
            yield self._steps.undo(marker.own, marker.replaced)

    def _end(self) -> list[dict[str, Any]]:
        writes, self._writes = self._writes, None
        return [] if writes is None else writes._end()  # noqa: SLF001 - one thing in two classes

    def _commit(
        self,
        own: Ownership,
        marker: Marker,
        writes: list[dict[str, Any]],
        response: StoredResponse,
        key_us: Micros,
        body_us: Micros,
    ) -> Steps[None]:
        condition, conditioned = committing(own)
        lost: Answer | StoreError | None = None
        for size, (kept, bare) in enumerate(shrinking(response)):
            window = yield from self._steps.window()
            update, values = completion(kept, window, key_us, body_us, bare=bare)
            record = {
                "Update": {
                    "Key": {"digest": {"B": own.digest}},
                    "UpdateExpression": update,
                    **self._steps.requests.conditioned(condition, {**values, **conditioned}, update),
                }
            }
            # A token means one request: DynamoDB refuses it for another.
            lost = yield from self._transact([record, *writes], f"{own.owner.hex()}-{size}")
            if lost is None:
                return
            if isinstance(lost, StoreError) or not _too_large(lost):
                break
        assert lost is not None
        if not isinstance(lost, StoreError):
            reasons = lost.response.get("CancellationReasons") or [{}]
            if reasons[0].get("Code") == "ConditionalCheckFailed":
                # Mine all the same where the first answer was lost, and its token is forgotten or was never known.
                if not completed_by(reasons[0].get("Item"), own):
                    yield from self._steps.completed_before(own)
                return
        if (yield from self._committed_after_all(own, marker)):
            return
        if isinstance(lost, Answer):
            raise _refused(lost, 1)
        raise StoreUnavailableError(f"nothing was committed: {lost}") from lost

    def _committed_after_all(self, own: Ownership, marker: Marker) -> Steps[bool]:
        """Take the claim back. Where that is refused something was committed, or the claim was somebody else's."""
        answer = yield self._steps.undo(own, marker.replaced)._replace(tolerant=True)
        if answer.error is not None:
            raise AmbiguousWriteError(f"the transaction may be committed: {answer.error}") from answer.error
        if not answer.refused or (answer.repeated and answer.item is None):
            return False
        if completed_by(answer.item, own):
            return True
        raise lease_lost()

    def _transact(self, items: list[dict[str, Any]], token: str) -> Steps[Answer | StoreError | None]:
        """None once committed. Otherwise the answer that refused it for good, or the error that nothing came of."""
        arguments = {"TransactItems": items, "ClientRequestToken": token}
        lost: StoreError | None = None
        for attempt in range(COMMIT_ATTEMPTS):
            if attempt:
                yield Pause(_FIRST_PAUSE * 2.0 ** (attempt - 1))
            answer = yield Call("transact_write_items", arguments, tolerant=True, sheds=True)
            if answer.code == TOO_LARGE:
                return answer
            if answer.error is None:
                return None
            if answer.code == CANCELLED and not _passes(answer):
                return answer
            known = answer.code and not isinstance(answer.error, AmbiguousWriteError)
            if known and answer.code not in THROTTLED and answer.code != CANCELLED:
                return answer
            if lost is None or not isinstance(lost, AmbiguousWriteError):
                lost = answer.error
        return lost


def _passes(answer: Answer) -> bool:
    return all(reason.get("Code", "None") in _PASSING for reason in answer.response.get("CancellationReasons", ()))


def _too_large(answer: Answer) -> bool:
    """Whether it was refused for the size of the record, or of everything together."""
    if answer.code == TOO_LARGE:
        return True
    reasons = answer.response.get("CancellationReasons") or [{}]
    return reasons[0].get("Code") == "ValidationError" and "size" in reasons[0].get("Message", "")


def _refused(answer: Answer, first: int) -> StoreError:
    """What refused the handler's own writes, by their number."""
    reasons = answer.response.get("CancellationReasons", ())
    said = [
        f"write {n}: {reason['Code']}"
        for n, reason in enumerate(reasons[first:], 1)
        if reason.get("Code", "None") != "None"
    ]
    # Without reasons it is the whole that was wrong, and not the record, as far as that can be told.
    whole = answer.response.get("Error", {}).get("Message") or answer.error
    return CommitRefusedError(
        f"DynamoDB refused the transaction and did nothing: {'; '.join(said) or whole or answer.code}"
    )
